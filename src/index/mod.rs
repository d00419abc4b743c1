//! Where chunks are, in bytes: shard indexes, and the way from a chunk down through nested shards.
//!
//! Pure: takes the bytes of an index, returns positions that were checked. Every offset from a file is
//! untrusted: sums are checked, and nothing outside its container is ever returned.

mod nesting;
mod shard_index;

pub use nesting::{Nesting, dense_range};
pub use shard_index::{IndexError, ShardIndex};
