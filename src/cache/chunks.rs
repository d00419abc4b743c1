//! Hot decoded chunks, weighed in bytes.

use std::ops::Range;
use std::sync::Arc;

use foldhash::fast::RandomState;
use moka::sync::Cache;

use crate::metrics::Metrics;
use crate::model::{ChunkData, Version};

/// The object that chunks come from, in one version, and how its bytes are read.
///
/// A name of 128 bits from a strong hash: two sources have one name with a chance of 2^-64 after 2^32 of them, less
/// than that of a fault in memory. It makes keys that are compared and hashed without following a pointer, which a warm
/// request does a hundred thousand times a second.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ChunkSource {
    name: u128,
    /// Names bucket and object alone.
    object: u64,
    versioned: bool,
}

impl ChunkSource {
    /// An object of a bucket. `version` is `None` only while a read that will tell it is in flight; `codec` is the
    /// fingerprint of codecs, element type and chunk shape.
    pub fn new(bucket: &str, object: &str, version: Option<&Version>, codec: [u8; 16]) -> Self {
        let mut hash = blake3::Hasher::new();
        for text in [bucket, object] {
            hash.update(&(text.len() as u64).to_le_bytes());
            hash.update(text.as_bytes());
        }
        let (mut of_object, mut name) = ([0; 8], [0; 16]);
        of_object.copy_from_slice(&hash.finalize().as_bytes()[..8]);
        hash.update(&codec);
        if let Some(version) = version {
            hash.update(version.as_str().as_bytes());
        }
        name.copy_from_slice(&hash.finalize().as_bytes()[..16]);
        Self { name: u128::from_le_bytes(name), object: u64::from_le_bytes(of_object), versioned: version.is_some() }
    }

    /// Whether its version is known.
    pub fn is_versioned(&self) -> bool {
        self.versioned
    }

    /// Whether it is the same object, in whatever version.
    pub fn is_of(&self, other: &Self) -> bool {
        self.object == other.object
    }
}

/// A decoded chunk's identity. Two equal keys are the same elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ChunkKey {
    source: ChunkSource,
    start: u64,
    end: u64,
}

impl ChunkKey {
    /// The chunk that is stored in `range` of an object.
    pub fn new(source: ChunkSource, range: &Range<u64>) -> Self {
        Self { source, start: range.start, end: range.end }
    }

    /// The object that holds it.
    pub fn source(&self) -> ChunkSource {
        self.source
    }
}

/// The cache of decoded chunks. Admission weighs how often a chunk was asked for against what it would displace
/// (moka's TinyLFU), so that a scan does not sweep out what is hot.
#[derive(Clone)]
pub struct ChunkCache {
    entries: Cache<ChunkKey, Arc<ChunkData>, RandomState>,
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
            .build_with_hasher(RandomState::default());
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
