//! Hot decoded chunks, weighed in bytes.

use std::sync::Arc;

use moka::sync::Cache;

use crate::metrics::Metrics;
use crate::model::{ChunkCoord, ChunkData, Version};

/// A decoded chunk's identity. Two equal keys are the same elements.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ChunkKey {
    /// The bucket.
    pub bucket: Arc<str>,
    /// The object within the bucket.
    pub object: Arc<str>,
    /// The object's version; `None` only while a read that will tell it is in flight.
    pub version: Option<Version>,
    /// Where the chunk begins in the object: one file may hold several arrays that differ in nothing else.
    pub start: u64,
    /// The chunk within its array.
    pub chunk: ChunkCoord,
    /// The chain of codecs, the element type and the chunk's shape.
    pub codec: [u8; 16],
}

/// The cache of decoded chunks.
#[derive(Clone)]
pub struct ChunkCache {
    entries: Cache<ChunkKey, ChunkData>,
    metrics: Metrics,
}

/// What an entry costs beside its elements: key, map slots, moka's own bookkeeping. An estimate.
const ENTRY_OVERHEAD_BYTES: u64 = 512;

/// Weights are u32 in moka: counted in KiB, an entry may have 4 TiB.
fn weight_kib(data: &ChunkData) -> u32 {
    u32::try_from((data.weight_bytes() + ENTRY_OVERHEAD_BYTES).div_ceil(1024)).unwrap_or(u32::MAX)
}

impl ChunkCache {
    /// A cache of at most `capacity_bytes`; 0 keeps nothing.
    pub fn new(capacity_bytes: u64, metrics: Metrics) -> Self {
        let evictions = metrics.clone();
        let entries = Cache::builder()
            .max_capacity(capacity_bytes / 1024)
            .weigher(|_, data: &ChunkData| weight_kib(data))
            .eviction_listener(move |_, _, cause| {
                if cause.was_evicted() {
                    evictions.cache_evicted(1);
                }
            })
            .build();
        Self { entries, metrics }
    }

    /// The chunk, if it is kept. Counts a hit or a miss.
    pub fn get(&self, key: &ChunkKey) -> Option<ChunkData> {
        let found = self.entries.get(key);
        if found.is_some() {
            self.metrics.cache_hit(1)
        } else {
            self.metrics.cache_missed(1)
        }
        found
    }

    /// Whether the chunk is kept; counts nothing.
    pub fn contains(&self, key: &ChunkKey) -> bool {
        self.entries.contains_key(key)
    }

    /// Keeps a chunk, if admission allows.
    pub fn insert(&self, key: ChunkKey, data: ChunkData) {
        self.entries.insert(key, data);
    }

    /// Brings the gauge of bytes kept up to date; moka's own count lags behind by its maintenance.
    pub fn report(&self) {
        self.entries.run_pending_tasks();
        self.metrics.cache_holds(self.entries.weighted_size() * 1024);
    }
}

impl std::fmt::Debug for ChunkCache {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ChunkCache").field("entries", &self.entries.entry_count()).finish_non_exhaustive()
    }
}
