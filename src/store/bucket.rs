//! A bucket: a name that clients see, in front of a place in a store.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::{ListRequest, Prefixed, Store, StoreError};

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
    /// The name of the configured store that it lies in. Buckets of one store share its limits and what was measured
    /// of it. Never from a request: names of stores are kept.
    pub store_name: Arc<str>,
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

/// The store that holds every bucket which is not listed, each beneath a prefix with its name.
#[derive(Debug, Clone)]
pub struct DefaultBuckets {
    /// The name of the configured store, one for all of its buckets.
    pub store_name: Arc<str>,
    /// The store, counted in the metrics.
    pub store: Arc<dyn Store>,
    /// How long versions are trusted in each of them.
    pub freshness: Freshness,
    /// What requests without a key may do in each of them.
    pub anonymous: AnonymousAccess,
    /// Whether a bucket can have this name.
    pub is_name: fn(&str) -> bool,
}

/// The buckets of a gateway, by name.
#[derive(Debug, Clone, Default)]
pub struct Buckets {
    listed: BTreeMap<Arc<str>, Bucket>,
    default: Option<DefaultBuckets>,
}

impl Buckets {
    /// A table of these buckets; a later one of the same name replaces an earlier one.
    pub fn new(buckets: impl IntoIterator<Item = Bucket>) -> Self {
        let listed = buckets.into_iter().map(|bucket| (Arc::clone(&bucket.name), bucket)).collect();
        Self { listed, default: None }
    }

    /// The same table, with a store for all buckets that it does not list.
    #[must_use]
    pub fn with_default(self, default: DefaultBuckets) -> Self {
        Self { default: Some(default), ..self }
    }

    /// The listed bucket of this name.
    pub fn get(&self, name: &str) -> Option<&Bucket> {
        self.listed.get(name)
    }

    /// The bucket of this name: listed, or a place in the default store, whether or not anything is stored there yet.
    pub fn resolve(&self, name: &str) -> Option<Bucket> {
        if let Some(bucket) = self.listed.get(name) {
            return Some(bucket.clone());
        }
        let default = self.default.as_ref().filter(|default| (default.is_name)(name))?;
        Some(Bucket {
            name: name.into(),
            store_name: Arc::clone(&default.store_name),
            store: Arc::new(Prefixed::new(Arc::clone(&default.store), name)),
            freshness: default.freshness,
            anonymous: default.anonymous,
            writable: true,
            in_key_form: true,
        })
    }

    /// The listed buckets, in the order of their names.
    pub fn iter(&self) -> impl Iterator<Item = &Bucket> {
        self.listed.values()
    }

    /// Names of at most `limit` buckets in the default store that hold something and are not listed, in order.
    ///
    /// # Errors
    /// Those of [`Store::list`].
    pub async fn discover(&self, limit: usize) -> Result<Vec<String>, StoreError> {
        let Some(default) = &self.default else { return Ok(Vec::new()) };
        let mut names = Vec::new();
        let mut start_after = None;
        while names.len() < limit {
            let request =
                ListRequest { delimiter: Some("/".into()), start_after, max_keys: 1000, prefix: String::new() };
            let page = default.store.list(&request).await?;
            let found = page.prefixes.iter().filter_map(|prefix| prefix.strip_suffix('/'));
            let unlisted = found.filter(|name| (default.is_name)(name) && !self.listed.contains_key(*name));
            names.extend(unlisted.map(str::to_owned));
            start_after = page.next;
            if start_after.is_none() {
                break;
            }
        }
        names.truncate(limit);
        Ok(names)
    }
}
