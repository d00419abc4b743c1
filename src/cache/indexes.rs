//! Shard indexes, weighed in bytes.

use std::sync::Arc;

use moka::sync::Cache;

use crate::index::ShardIndex;
use crate::model::Version;

/// A shard index's identity.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct IndexKey {
    /// The bucket.
    pub bucket: Arc<str>,
    /// The object within the bucket.
    pub object: Arc<str>,
    /// The object's version.
    pub version: Version,
    /// Where the container that the index describes begins in the object: 0 but for nested shards.
    pub start: u64,
    /// Which level of sharding it belongs to: containers of two levels may begin at one place.
    pub level: usize,
    /// The array's codecs: they say how the index is stored.
    pub codec: [u8; 16],
}

/// The cache of shard indexes.
#[derive(Clone)]
pub struct IndexCache(Cache<IndexKey, Arc<ShardIndex>>);

impl IndexCache {
    /// A cache of at most `capacity_bytes`.
    pub fn new(capacity_bytes: u64) -> Self {
        Self(
            Cache::builder()
                .max_capacity(capacity_bytes / 1024)
                .weigher(|_, index: &Arc<ShardIndex>| {
                    u32::try_from((index.weight_bytes() + 512).div_ceil(1024)).unwrap_or(u32::MAX)
                })
                .build(),
        )
    }

    /// The index, if it is kept.
    pub fn get(&self, key: &IndexKey) -> Option<Arc<ShardIndex>> {
        self.0.get(key)
    }

    /// Keeps an index.
    pub fn insert(&self, key: IndexKey, index: Arc<ShardIndex>) {
        self.0.insert(key, index);
    }
}

impl std::fmt::Debug for IndexCache {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("IndexCache").field(&self.0.entry_count()).finish()
    }
}
