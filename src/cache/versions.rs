//! Versions and absences of objects, each with the time it was learned.
//!
//! A write through the gateway forgets its key at once, and nothing learned before the write is kept after it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Instant, SystemTime};

use moka::Equivalent;
use moka::sync::Cache;

use crate::model::Version;
use crate::store::Freshness;

/// Whether an object exists, and in which version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ObjectState {
    /// The store says that there is none.
    Absent,
    /// It exists.
    Present {
        /// Its version.
        version: Version,
        /// Its size in bytes.
        size: u64,
        /// When it was last written.
        last_modified: SystemTime,
    },
}

/// What was learned of an object, and when.
#[derive(Debug, Clone)]
pub struct VersionEntry {
    /// What was learned.
    pub state: ObjectState,
    /// When the store was asked.
    pub checked: Instant,
}

impl VersionEntry {
    /// Whether it may still be trusted.
    pub fn is_fresh(&self, freshness: Freshness) -> bool {
        match freshness {
            Freshness::For(duration) => self.checked.elapsed() < duration,
            Freshness::Immutable => true,
        }
    }
}

/// An object's name to look up, made without allocating. It is hashed as the pair that it stands for.
#[derive(Hash)]
struct NameRef<'a>(&'a str, &'a str);

impl Equivalent<(Arc<str>, String)> for NameRef<'_> {
    fn equivalent(&self, (bucket, key): &(Arc<str>, String)) -> bool {
        *self.0 == **bucket && self.1 == key
    }
}

/// The versions known, bounded in number.
#[derive(Clone)]
pub struct VersionCache {
    entries: Cache<(Arc<str>, String), VersionEntry>,
    /// Counts writes: what was asked before a write must not be kept after it.
    writes: Arc<AtomicU64>,
}

impl VersionCache {
    /// A cache of at most `entries` objects.
    pub fn new(entries: u64) -> Self {
        Self { entries: Cache::new(entries), writes: Arc::default() }
    }

    /// What is known of an object, fresh or not.
    pub fn get(&self, bucket: &Arc<str>, key: &str) -> Option<VersionEntry> {
        self.entries.get(&NameRef(bucket, key))
    }

    /// A moment to give to [`VersionCache::learn`]: take it before asking the store.
    pub fn moment(&self) -> u64 {
        self.writes.load(Ordering::Acquire)
    }

    /// Keeps what the store answered to a question asked at `moment`, unless something was written since.
    pub fn learn(&self, moment: u64, bucket: &Arc<str>, key: &str, state: ObjectState, checked: Instant) {
        if self.moment() != moment {
            return;
        }
        self.entries.insert((Arc::clone(bucket), key.to_owned()), VersionEntry { state, checked });
        // A write between the check and the insert has already forgotten the key: forget it again.
        if self.moment() != moment {
            self.forget(bucket, key);
        }
    }

    /// Forgets an object, because it was written or found changed.
    pub fn forget(&self, bucket: &Arc<str>, key: &str) {
        self.writes.fetch_add(1, Ordering::AcqRel);
        self.entries.invalidate(&NameRef(bucket, key));
    }
}

impl std::fmt::Debug for VersionCache {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("VersionCache").field(&self.entries.entry_count()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn what_was_asked_before_a_write_is_not_kept() {
        let versions = VersionCache::new(10);
        let bucket: Arc<str> = "b".into();
        let asked = versions.moment();
        versions.forget(&bucket, "k");
        versions.learn(asked, &bucket, "k", ObjectState::Absent, Instant::now());
        assert!(versions.get(&bucket, "k").is_none());
        versions.learn(versions.moment(), &bucket, "k", ObjectState::Absent, Instant::now());
        assert_eq!(versions.get(&bucket, "k").map(|e| e.state), Some(ObjectState::Absent));
    }

    #[test]
    fn zero_freshness_trusts_nothing() {
        let entry = VersionEntry { state: ObjectState::Absent, checked: Instant::now() };
        assert!(!entry.is_fresh(Freshness::For(Duration::ZERO)));
        assert!(entry.is_fresh(Freshness::For(Duration::from_secs(60))));
        assert!(entry.is_fresh(Freshness::Immutable));
    }
}
