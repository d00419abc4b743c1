//! Hot decoded chunks, weighed in bytes.

use std::hash::{BuildHasher, Hash, Hasher, RandomState};
use std::sync::{Arc, LazyLock};

use moka::sync::Cache;

use crate::metrics::Metrics;
use crate::model::{ChunkCoord, ChunkData, Version};

/// The object that chunks come from, and how its bytes are read. Its hash is made once, not once a chunk.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ChunkSource {
    // First, so that unequal sources differ at once.
    hash: u64,
    bucket: Arc<str>,
    object: Arc<str>,
    version: Option<Version>,
    codec: [u8; 16],
}

impl ChunkSource {
    /// An object of a bucket. `version` is `None` only while a read that will tell it is in flight; `codec` is the
    /// fingerprint of codecs, element type and chunk shape.
    pub fn new(bucket: &Arc<str>, object: &Arc<str>, version: Option<&Version>, codec: [u8; 16]) -> Self {
        // Keys come from clients: the hash must not be theirs to choose.
        static HASHER: LazyLock<RandomState> = LazyLock::new(RandomState::new);
        let hash = HASHER.hash_one((bucket, object, version, codec));
        Self { hash, bucket: Arc::clone(bucket), object: Arc::clone(object), version: version.cloned(), codec }
    }

    /// The same object, now that its version is known.
    #[must_use]
    pub fn at(&self, version: &Version) -> Self {
        Self::new(&self.bucket, &self.object, Some(version), self.codec)
    }

    /// The bucket.
    pub fn bucket(&self) -> &str {
        &self.bucket
    }

    /// The object's key.
    pub fn object(&self) -> &Arc<str> {
        &self.object
    }

    /// The object's version, where it is known.
    pub fn version(&self) -> Option<&Version> {
        self.version.as_ref()
    }
}

impl Hash for ChunkSource {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.hash);
    }
}

/// A decoded chunk's identity. Two equal keys are the same elements.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ChunkKey {
    /// The object that holds it.
    pub source: Arc<ChunkSource>,
    /// Where the chunk begins in the object: one file may hold several arrays that differ in nothing else.
    pub start: u64,
    /// The chunk within its array.
    pub chunk: ChunkCoord,
}

/// The cache of decoded chunks. Admission weighs how often a chunk was asked for against what it would displace
/// (moka's TinyLFU), so that a scan does not sweep out what is hot.
#[derive(Clone)]
pub struct ChunkCache {
    entries: Cache<ChunkKey, Arc<ChunkData>>,
    capacity_bytes: u64,
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
            .weigher(|_, data: &Arc<ChunkData>| weight_kib(data))
            .eviction_listener(move |_, _, cause| {
                if cause.was_evicted() {
                    evictions.cache_evicted(1);
                }
            })
            .build();
        Self { entries, capacity_bytes, metrics }
    }

    /// The chunk, if it is kept. Counts neither hit nor miss: whoever asks for many counts once.
    pub fn get(&self, key: &ChunkKey) -> Option<Arc<ChunkData>> {
        if self.capacity_bytes == 0 {
            return None;
        }
        self.entries.get(key)
    }

    /// Whether the chunk is kept; tells the admission nothing.
    pub fn contains(&self, key: &ChunkKey) -> bool {
        self.entries.contains_key(key)
    }

    /// Keeps a chunk, if admission allows.
    pub fn insert(&self, key: ChunkKey, data: Arc<ChunkData>) {
        if self.capacity_bytes > 0 {
            self.entries.insert(key, data);
        }
    }

    /// Most bytes kept.
    pub fn capacity_bytes(&self) -> u64 {
        self.capacity_bytes
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
