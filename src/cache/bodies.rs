//! Bodies that are built whole (JSON, PNG), kept briefly: a client that HEADs and then reads ranges builds them once.

use std::time::Duration;

use bytes::Bytes;
use moka::sync::Cache;

/// Long enough for a HEAD and the ranged reads after it.
const KEPT: Duration = Duration::from_secs(30);

/// Bytes of bodies kept.
const CAPACITY_BYTES: u64 = 64 << 20;

/// Built bodies by their slice's ETag, which names every byte of them.
#[derive(Clone)]
pub struct BodyCache(Cache<String, Bytes>);

impl BodyCache {
    /// Keeps nothing yet.
    pub fn new() -> Self {
        let weight = |_: &String, body: &Bytes| u32::try_from(body.len() / 1024 + 1).unwrap_or(u32::MAX);
        Self(Cache::builder().max_capacity(CAPACITY_BYTES / 1024).weigher(weight).time_to_live(KEPT).build())
    }

    /// The body with this ETag.
    pub fn get(&self, etag: &str) -> Option<Bytes> {
        self.0.get(etag)
    }

    /// Keeps a body.
    pub fn insert(&self, etag: &str, body: Bytes) {
        self.0.insert(etag.to_owned(), body);
    }
}

impl Default for BodyCache {
    fn default() -> Self {
        Self::new()
    }
}

impl std::fmt::Debug for BodyCache {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("BodyCache").field(&self.0.entry_count()).finish()
    }
}
