//! A bucket: a name that clients see, in front of a place in a store.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::Store;

/// How long the versions and absences of a bucket's objects are trusted before they are looked up again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Freshness {
    /// So long; zero means on every request.
    For(Duration),
    /// For ever: objects of this bucket are never overwritten.
    Immutable,
}

/// What requests without a key may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum AnonymousAccess {
    /// Nothing.
    #[default]
    None,
    /// Read objects and slices, and list.
    Read,
}

/// One bucket. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Bucket {
    /// The name that clients use.
    pub name: Arc<str>,
    /// Its objects, with the bucket's prefix already applied, and counted in the metrics.
    pub store: Arc<dyn Store>,
    /// How long versions are trusted.
    pub freshness: Freshness,
    /// What requests without a key may do.
    pub anonymous: AnonymousAccess,
    /// Whether PutObject and DeleteObject are served.
    pub writable: bool,
    /// Whether keys with a last segment `@NAME…` are slices.
    pub in_key_form: bool,
}

/// The buckets of a gateway, by name.
#[derive(Debug, Clone, Default)]
pub struct Buckets(BTreeMap<Arc<str>, Bucket>);

impl Buckets {
    /// A table of these buckets; a later one of the same name replaces an earlier one.
    pub fn new(buckets: impl IntoIterator<Item = Bucket>) -> Self {
        Self(buckets.into_iter().map(|bucket| (Arc::clone(&bucket.name), bucket)).collect())
    }

    /// The bucket of this name.
    pub fn get(&self, name: &str) -> Option<&Bucket> {
        self.0.get(name)
    }

    /// All of them, in the order of their names.
    pub fn iter(&self) -> impl Iterator<Item = &Bucket> {
        self.0.values()
    }
}
