//! What was parsed from an array's elements, by the version of all that it was read from.

use std::sync::Arc;

use moka::sync::Cache;

/// Bytes kept.
const CAPACITY_BYTES: u64 = 64 << 20;

/// Parsed values by a name that tells every byte they were made from: an entry can be evicted, never stale.
pub struct ParsedCache<V>(Cache<String, (u32, Arc<V>)>);

impl<V: Send + Sync + 'static> ParsedCache<V> {
    /// Keeps nothing yet.
    pub fn new() -> Self {
        let weight = |_: &String, (kib, _): &(u32, Arc<V>)| *kib;
        Self(Cache::builder().max_capacity(CAPACITY_BYTES / 1024).weigher(weight).build())
    }

    /// The value with this name.
    pub fn get(&self, name: &str) -> Option<Arc<V>> {
        self.0.get(name).map(|(_, value)| value)
    }

    /// Keeps a value of so many bytes.
    pub fn insert(&self, name: String, bytes: usize, value: Arc<V>) {
        self.0.insert(name, (u32::try_from(bytes / 1024 + 1).unwrap_or(u32::MAX), value));
    }
}

impl<V: Send + Sync + 'static> Default for ParsedCache<V> {
    fn default() -> Self {
        Self::new()
    }
}

impl<V: Send + Sync + 'static> std::fmt::Debug for ParsedCache<V> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("ParsedCache").field(&self.0.entry_count()).finish()
    }
}
