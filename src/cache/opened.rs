//! What paths were found to hold. An entry names the objects that it was made from, and serves only while these
//! have the same versions.

use std::sync::Arc;

use moka::sync::Cache;

/// Opened paths, bounded in number.
#[derive(Clone)]
pub struct OpenedCache<T: Clone + Send + Sync + 'static>(Cache<(Arc<str>, String), T>);

impl<T: Clone + Send + Sync + 'static> OpenedCache<T> {
    /// A cache of at most `entries` paths.
    pub fn new(entries: u64) -> Self {
        Self(Cache::new(entries))
    }

    /// What `path` of `bucket` was found to hold.
    pub fn get(&self, bucket: &Arc<str>, path: &str) -> Option<T> {
        self.0.get(&(Arc::clone(bucket), path.to_owned()))
    }

    /// Keeps what `path` of `bucket` holds.
    pub fn insert(&self, bucket: &Arc<str>, path: &str, opened: T) {
        self.0.insert((Arc::clone(bucket), path.to_owned()), opened);
    }
}

impl<T: Clone + Send + Sync + 'static> std::fmt::Debug for OpenedCache<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("OpenedCache").field(&self.0.entry_count()).finish()
    }
}
