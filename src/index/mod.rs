//! Where chunks are, in bytes: shard indexes, and the way from a chunk down through nested shards.
//!
//! Pure: takes the bytes of an index, returns positions that were checked. Every offset from a file is
//! untrusted: sums are checked, and nothing outside its container is ever returned.

mod blocks;
mod error;
mod layout;
mod nesting;
mod page;

pub use blocks::BlockLayout;
pub use error::IndexError;
pub use layout::{IndexLayout, PAGE_ENTRIES};
pub use nesting::{Nesting, dense_range};
pub use page::IndexPage;
