//! What is kept between requests: decoded chunks, shard indexes, object versions; and who is fetching what.
//!
//! The only module that names `moka`. Nothing here is the truth: every entry is tied to an object's version, and
//! versions are trusted only for a bucket's freshness.

mod bodies;
mod chunks;
mod flights;
mod front;
mod indexes;
mod just_read;
mod opened;
mod parsed;
mod reads;
mod recent_bytes;
mod versions;

pub use bodies::BodyCache;
pub use chunks::{ChunkCache, ChunkKey, ChunkSource};
pub use flights::{Claim, Flight, Flights};
pub use indexes::{IndexCache, IndexKey, IndexKeyRef};
pub use just_read::JustRead;
pub use opened::OpenedCache;
pub use parsed::ParsedCache;
pub use reads::{RecentRead, RecentReads};
pub use recent_bytes::{RecentBytes, Span};
pub use versions::{ObjectState, VersionCache, VersionEntry};
