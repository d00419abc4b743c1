//! Pages of shard indexes, weighed in bytes.

use std::ops::Range;
use std::sync::Arc;

use moka::Equivalent;
use moka::sync::Cache;

use crate::index::IndexPage;
use crate::model::Version;

/// The identity of a page: bytes of an object in a version. How the numbers in them are written is told by whoever
/// reads them, and a checksummed index is told from a page of another by its length.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct IndexKey {
    /// The bucket.
    pub bucket: Arc<str>,
    /// The object within the bucket.
    pub object: Arc<str>,
    /// The object's version.
    pub version: Version,
    /// Where the page is stored in the object, with the checksum where there is one.
    pub range: Range<u64>,
}

/// An [`IndexKey`] to look up, made without allocating. Its fields are hashed in the same order.
#[derive(Debug, PartialEq, Eq, Hash)]
pub struct IndexKeyRef<'a> {
    /// The bucket.
    pub bucket: &'a str,
    /// The object within the bucket.
    pub object: &'a str,
    /// The object's version.
    pub version: &'a Version,
    /// Where the page is stored in the object.
    pub range: &'a Range<u64>,
}

impl IndexKey {
    /// The same, borrowed.
    pub fn borrowed(&self) -> IndexKeyRef<'_> {
        IndexKeyRef { bucket: &self.bucket, object: &self.object, version: &self.version, range: &self.range }
    }
}

impl Equivalent<IndexKey> for IndexKeyRef<'_> {
    fn equivalent(&self, key: &IndexKey) -> bool {
        *self == key.borrowed()
    }
}

/// The cache of shard indexes. Cheap to clone.
///
/// Half of it is for large pages, which compete with each other only: one index of millions of chunks must neither
/// push out a thousand small ones, nor be kept out for ever because it would have to.
#[derive(Clone)]
pub struct IndexCache {
    small: Cache<IndexKey, IndexPage>,
    large: Cache<IndexKey, IndexPage>,
    large_from: u64,
}

/// A page is large from this part of the cache on: 8 MiB of 128 MiB. In the half for small pages, eight places at
/// least are left whatever is put there.
const LARGE: u64 = 16;

/// What an entry costs beside its entries: key, map slots, moka's own bookkeeping. An estimate.
const ENTRY_OVERHEAD_BYTES: u64 = 512;

fn weight_bytes(key: &IndexKey, page: &IndexPage) -> u64 {
    page.weight_bytes() + (key.object.len() + key.version.as_str().len()) as u64 + ENTRY_OVERHEAD_BYTES
}

impl IndexCache {
    /// A cache of at most `capacity_bytes`; 0 keeps nothing. A page of more than half of it is not kept.
    pub fn new(capacity_bytes: u64) -> Self {
        // moka weighs in u32: an index is far smaller, being limited where it is read.
        let half = |bytes| {
            let weight = |key: &IndexKey, page: &IndexPage| u32::try_from(weight_bytes(key, page)).unwrap_or(u32::MAX);
            Cache::builder().max_capacity(bytes).weigher(weight).build()
        };
        let large = capacity_bytes / 2;
        Self { small: half(capacity_bytes - large), large: half(large), large_from: capacity_bytes / LARGE }
    }

    fn of(&self, stored_bytes: u64) -> &Cache<IndexKey, IndexPage> {
        if stored_bytes >= self.large_from { &self.large } else { &self.small }
    }

    /// The page, if it is kept.
    pub fn get(&self, key: &IndexKeyRef<'_>) -> Option<IndexPage> {
        self.of(key.range.end - key.range.start).get(key)
    }

    /// Keeps a page, if admission allows.
    pub fn insert(&self, key: IndexKey, page: IndexPage) {
        self.of(key.range.end - key.range.start).insert(key, page);
    }
}

impl std::fmt::Debug for IndexCache {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let entries = self.small.entry_count() + self.large.entry_count();
        f.debug_struct("IndexCache").field("entries", &entries).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::{ChunkKeys, GridStorage, IndexLocation, ShardIndexFormat, ShardLevel};
    use crate::index::Nesting;

    const MIB: u64 = 1 << 20;

    /// Key and page of a checksummed index of `bytes` bytes, of the object `name`.
    fn entry(name: &str, bytes: u64) -> (IndexKey, IndexPage) {
        let chunks = bytes / 16;
        let index = ShardIndexFormat { big_endian: false, crc32c: true };
        let level = ShardLevel { inner_shape: vec![1], index, location: IndexLocation::End };
        let keys = ChunkKeys::V2 { separator: '.' };
        let grid = GridStorage { object_shape: vec![chunks], keys, shards: vec![level], block: None };
        let mut stored = vec![0; bytes as usize];
        stored.extend(crc32c::crc32c(&stored).to_le_bytes());
        let range = 0..stored.len() as u64;
        let page = Nesting::new(&grid).layouts()[0].page(0, stored.into()).expect("valid");
        (IndexKey { bucket: "b".into(), object: name.into(), version: Version::new("v"), range }, page)
    }

    fn settle(cache: &IndexCache) {
        cache.small.run_pending_tasks();
        cache.large.run_pending_tasks();
    }

    #[test]
    fn a_borrowed_key_finds_what_its_owned_twin_put() {
        let cache = IndexCache::new(MIB);
        let (key, page) = entry("k", 1600);
        cache.insert(key.clone(), page.clone());
        assert_eq!(cache.get(&key.borrowed()), Some(page));
        let others = [
            IndexKey { bucket: "c".into(), ..key.clone() },
            IndexKey { object: "l".into(), ..key.clone() },
            IndexKey { version: Version::new("w"), ..key.clone() },
            IndexKey { range: 1..key.range.end, ..key.clone() },
        ];
        assert!(others.iter().all(|other| cache.get(&other.borrowed()).is_none()));
    }

    #[test]
    fn an_entry_weighs_its_bytes_and_what_it_takes_to_keep_it() {
        let cache = IndexCache::new(MIB);
        let (key, page) = entry("k", 1600);
        cache.insert(key, page);
        settle(&cache);
        assert_eq!(cache.small.weighted_size(), 1600 + 2 + ENTRY_OVERHEAD_BYTES);
    }

    #[test]
    fn a_large_index_pushes_no_small_one_out_and_is_not_kept_out_by_them() {
        let cache = IndexCache::new(8 * MIB);
        let small: Vec<_> = (0..900).map(|i| entry(&i.to_string(), 4096)).collect();
        for (key, page) in &small {
            cache.insert(key.clone(), page.clone());
        }
        let (large, page) = entry("large", 3 * MIB);
        cache.insert(large.clone(), page);
        settle(&cache);
        assert!(small.iter().all(|(key, _)| cache.get(&key.borrowed()).is_some()));
        assert!(cache.get(&large.borrowed()).is_some());
    }

    #[test]
    fn the_whole_stays_within_its_capacity() {
        let cache = IndexCache::new(MIB);
        for i in 0..200 {
            let (key, page) = entry(&i.to_string(), 16 << (i % 15));
            cache.insert(key, page);
            settle(&cache);
            assert!(cache.small.weighted_size() + cache.large.weighted_size() <= MIB);
        }
        let (key, page) = entry("more than half", MIB / 2 + 16);
        cache.insert(key.clone(), page);
        settle(&cache);
        assert!(cache.get(&key.borrowed()).is_none());
        let nothing = IndexCache::new(0);
        nothing.insert(entry("k", 16).0, entry("k", 16).1);
        settle(&nothing);
        assert_eq!(nothing.small.entry_count() + nothing.large.entry_count(), 0);
    }
}
