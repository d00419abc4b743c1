//! Hot decoded chunks, weighed in bytes.

use std::ops::Range;
use std::sync::Arc;

use foldhash::fast::RandomState;
use moka::notification::RemovalCause;
use moka::sync::Cache;

use super::front::Front;
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
///
/// moka decides what is kept. It is told of every miss and of an entry's first hits, but of only some of the later ones:
/// a lookup there costs a microsecond, one in the table in front of it a third, and a warm crop makes twenty.
#[derive(Clone)]
pub struct ChunkCache {
    front: Arc<Front<ChunkKey, ChunkData>>,
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
        let front: Arc<Front<ChunkKey, ChunkData>> = Arc::new(Front::new());
        let (evictions, kept) = (metrics.clone(), Arc::clone(&front));
        let entries = Cache::builder()
            .max_capacity(capacity_bytes / 1024)
            .weigher(|_, data: &Arc<ChunkData>| weight_kib(data))
            .eviction_listener(move |key: Arc<ChunkKey>, _, cause| {
                if cause != RemovalCause::Replaced {
                    kept.remove(&key);
                }
                if cause.was_evicted() {
                    evictions.cache_evicted(1);
                }
            })
            .build_with_hasher(RandomState::default());
        Self { front, entries, capacity_bytes, metrics }
    }

    /// The chunk, if it is kept. Counts neither hit nor miss: whoever asks for many counts once.
    pub fn get(&self, key: &ChunkKey) -> Option<Arc<ChunkData>> {
        if self.capacity_bytes == 0 {
            return None;
        }
        match self.front.get(key) {
            Some(hit) if !hit.told => Some(hit.value),
            hit => {
                self.entries.get(key);
                hit.map(|hit| hit.value)
            }
        }
    }

    /// Whether the chunk is kept; tells the admission nothing.
    pub fn contains(&self, key: &ChunkKey) -> bool {
        self.front.contains(key)
    }

    /// Keeps a chunk, if admission allows.
    pub fn insert(&self, key: ChunkKey, data: Arc<ChunkData>) {
        if self.capacity_bytes > 0 {
            self.front.insert(key, Arc::clone(&data));
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

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;

    const CHUNK_KIB: usize = 64;

    fn cache(chunks: u64) -> ChunkCache {
        ChunkCache::new(chunks * (CHUNK_KIB as u64 + 1) * 1024, Metrics::new())
    }

    fn key(n: u64) -> ChunkKey {
        ChunkKey::new(ChunkSource::new("b", "o", Some(&Version::new("v")), [0; 16]), &(n..n + 1))
    }

    fn read(cache: &ChunkCache, n: u64) -> bool {
        let kept = cache.get(&key(n)).is_some();
        if !kept {
            cache.insert(key(n), Arc::new(ChunkData::Fixed(Bytes::from(vec![n as u8; CHUNK_KIB << 10]))));
        }
        kept
    }

    /// The share of hits of `hot` chunks, each read in turn between chunks that are read once.
    fn hits_between_a_scan(cache: &ChunkCache, hot: u64, scanned: std::ops::Range<u64>) -> f64 {
        let (mut hits, mut reads) = (0, 0);
        for n in scanned {
            reads += 1;
            hits += u64::from(read(cache, n % hot));
            read(cache, n);
        }
        f64::from(u32::try_from(hits).expect("few")) / f64::from(u32::try_from(reads).expect("few"))
    }

    #[test]
    fn the_table_holds_what_the_policy_keeps_and_nothing_else() {
        let cache = cache(50);
        for n in 0..500 {
            read(&cache, n);
            read(&cache, n / 2);
            // Again, as two requests do that decoded one chunk at once.
            cache.insert(key(n), Arc::new(ChunkData::Fixed(Bytes::from(vec![0; CHUNK_KIB << 10]))));
        }
        // A chunk that is larger than the whole cache is not kept.
        cache.insert(key(1000), Arc::new(ChunkData::Fixed(Bytes::from(vec![0; 60 * (CHUNK_KIB << 10)]))));
        cache.report();
        assert!(cache.entries.entry_count() > 20, "{}", cache.entries.entry_count());
        assert_eq!(cache.front.len() as u64, cache.entries.entry_count());
        assert!(!cache.contains(&key(1000)));
        for n in 0..500 {
            assert_eq!(cache.front.contains(&key(n)), cache.entries.contains_key(&key(n)), "{n}");
        }
    }

    #[test]
    fn hot_chunks_stay_through_a_scan_though_the_policy_hears_of_few_of_their_hits() {
        let cache = cache(100);
        for _ in 0..40 {
            (0..60).for_each(|n| {
                read(&cache, n);
            });
        }
        cache.report();
        let hits = hits_between_a_scan(&cache, 60, 1000..21_000);
        assert!(hits > 0.95, "{hits}");
    }

    #[test]
    fn what_has_become_hot_replaces_what_no_longer_is() {
        let cache = cache(100);
        for _ in 0..40 {
            (0..90).for_each(|n| {
                read(&cache, n);
            });
        }
        let mut hits = 0;
        for round in 0..60 {
            let of_round = (1000..1090).filter(|&n| read(&cache, n)).count();
            hits = if round < 55 { 0 } else { hits + of_round };
        }
        assert!(hits > 5 * 80, "{hits} of {}", 5 * 90);
    }
}
