//! Opening arrays: what a path holds, in which version, and where its chunks are.
//!
//! Every object is looked up at most once a request, and not at all within its bucket's freshness. However many
//! requests ask at once, the store is asked once.

mod error;
mod locate;
mod lookup;
mod open;
mod pages;
mod shards;

pub use error::DatasetError;
pub use locate::{Learning, Whereabouts};
pub(crate) use lookup::present as state_of;
pub use lookup::{Datasets, Snapshot, Source};
pub use open::{Array, FileArray, Group, GroupMember, Opened, OpenedFile};
