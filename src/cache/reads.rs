//! Small reads (metadata, shard indexes) that have just been made.
//!
//! What is parsed from them is kept elsewhere. This bridges the moment between the end of a fetch and the keeping of
//! what was made of it, in which another request would fetch the same again.

use std::hash::Hash;
use std::sync::Arc;
use std::time::{Duration, Instant};

use moka::sync::Cache;

use crate::store::Fetched;

/// How long a read is kept: parsing takes milliseconds.
const KEPT: Duration = Duration::from_secs(2);

/// Bytes of reads kept.
const CAPACITY_BYTES: u64 = 32 << 20;

/// When the store was asked, and what it had; `None` for an object that does not exist.
pub type RecentRead = (Instant, Option<Arc<Fetched>>);

/// Reads just made, by what was asked.
#[derive(Clone)]
pub struct RecentReads<K: Hash + Eq + Send + Sync + 'static>(Cache<K, RecentRead>);

impl<K: Hash + Eq + Send + Sync + 'static> RecentReads<K> {
    /// Keeps nothing yet.
    pub fn new() -> Self {
        let weight = |_: &K, read: &RecentRead| {
            let bytes = read.1.as_ref().map_or(0, |fetched| fetched.bytes.len());
            u32::try_from(bytes / 1024 + 1).unwrap_or(u32::MAX)
        };
        Self(Cache::builder().max_capacity(CAPACITY_BYTES / 1024).weigher(weight).time_to_live(KEPT).build())
    }

    /// The read that was asked so, if it was just made. Whether it may be trusted is the caller's to judge.
    pub fn get(&self, asked: &K) -> Option<RecentRead> {
        self.0.get(asked)
    }

    /// Keeps a read for a moment.
    pub fn insert(&self, asked: K, read: RecentRead) {
        self.0.insert(asked, read);
    }
}

impl<K: Hash + Eq + Send + Sync + 'static> Default for RecentReads<K> {
    fn default() -> Self {
        Self::new()
    }
}

impl<K: Hash + Eq + Send + Sync + 'static> std::fmt::Debug for RecentReads<K> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("RecentReads").field(&self.0.entry_count()).finish()
    }
}
