//! Objects and their versions: asked of the store once, trusted for the bucket's freshness.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Instant, SystemTime};

use bytes::Bytes;
use futures::FutureExt as _;

use super::DatasetError;
use super::open::OpenedEntry;
use super::pages::PageAnswer;
use crate::cache::{
    Claim, Flights, IndexCache, IndexKey, ObjectState, OpenedCache, RecentRead, RecentReads, VersionCache, VersionEntry,
};
use crate::model::{ByteRange, Version};
use crate::store::{Bucket, Fetched, ObjectInfo, StoreError};

/// Largest metadata document read.
const DOCUMENT_BYTES: u64 = 8 << 20;

/// Objects whose versions are remembered.
const VERSIONS: u64 = 200_000;

/// Paths whose parsed metadata is remembered.
const OPENED: u64 = 10_000;

/// An object that an answer depends on, in the version that the answer was made from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Source {
    /// Its key within the bucket.
    pub key: String,
    /// Its state when it was looked up.
    pub state: ObjectState,
}

/// What one request has found out so far. An object has one state in one answer, however long the answer takes and
/// whatever becomes of the object meanwhile.
#[derive(Debug, Default)]
pub struct Snapshot {
    seen: Mutex<HashMap<String, VersionEntry>>,
    revalidate: bool,
    unsettled: AtomicBool,
}

impl Snapshot {
    /// Nothing found out yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Nothing found out yet, and nothing that earlier requests found out is trusted.
    pub fn revalidating() -> Self {
        Self { revalidate: true, ..Self::default() }
    }

    /// What this request goes by for an object.
    pub fn get(&self, key: &str) -> Option<VersionEntry> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).get(key).cloned()
    }

    /// Goes by `entry` from now on, unless the object has a state already; says which holds.
    pub fn pin(&self, key: &str, entry: VersionEntry) -> VersionEntry {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        match seen.get(key) {
            Some(pinned) => pinned.clone(),
            None => {
                seen.insert(key.to_owned(), entry.clone());
                entry
            }
        }
    }

    /// Whether something was read that must not be kept ([`ObjectInfo::settled`]).
    pub(crate) fn is_unsettled(&self) -> bool {
        self.unsettled.load(Ordering::Relaxed)
    }

    /// Notes that something was read that must not be kept.
    pub(super) fn unsettle(&self) {
        self.unsettled.store(true, Ordering::Relaxed);
    }

    /// When the oldest of the states was learned.
    pub fn oldest(&self) -> Option<Instant> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).values().map(|entry| entry.checked).min()
    }
}

/// Answers what a store was asked, shared by all who asked.
type Answer<T> = Result<T, Arc<StoreError>>;
type ObjectName = (Arc<str>, String);

/// What is known of all buckets' arrays. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Datasets {
    pub(super) versions: VersionCache,
    pub(super) opened: OpenedCache<Arc<OpenedEntry>>,
    pub(super) indexes: IndexCache,
    pub(super) pages: Flights<IndexKey, PageAnswer>,
    heads: Flights<ObjectName, Answer<VersionEntry>>,
    reads: Flights<(ObjectName, RangeKey), Answer<RecentRead>>,
    recent: RecentReads<(ObjectName, RangeKey)>,
}

/// A range as part of a flight's identity, with the version that it is read at.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct RangeKey(ByteRange, Option<Version>);

impl Datasets {
    /// Knows nothing yet; keeps at most `index_bytes` of shard indexes.
    pub fn new(index_bytes: u64) -> Self {
        Self {
            versions: VersionCache::new(VERSIONS),
            opened: OpenedCache::new(OPENED),
            indexes: IndexCache::new(index_bytes),
            pages: Flights::default(),
            heads: Flights::default(),
            reads: Flights::default(),
            recent: RecentReads::new(),
        }
    }

    /// Forgets an object because it was written or removed through this gateway, or was found changed.
    pub fn invalidate(&self, bucket: &Arc<str>, key: &str) {
        self.versions.forget(bucket, key);
        self.heads.forget(|name| name.0 == *bucket && name.1 == key);
        self.reads.forget(|(name, _)| name.0 == *bucket && name.1 == key);
    }

    /// What is known of an object without asking the store, if it may still be trusted.
    pub(super) fn trusted(&self, bucket: &Bucket, key: &str, snapshot: &Snapshot) -> Option<VersionEntry> {
        snapshot.get(key).or_else(|| {
            let entry = self.remembered(bucket, key, snapshot)?;
            Some(snapshot.pin(key, entry))
        })
    }

    /// What earlier requests learned of an object, if this one may trust it.
    fn remembered(&self, bucket: &Bucket, key: &str, snapshot: &Snapshot) -> Option<VersionEntry> {
        let entry = self.versions.get(&bucket.name, key)?;
        (!snapshot.revalidate && entry.is_fresh(bucket.freshness)).then_some(entry)
    }

    /// A moment to give to [`Datasets::learn`]: take it before reading.
    pub fn moment(&self) -> (u64, Instant) {
        (self.versions.moment(), Instant::now())
    }

    /// Keeps what a chunk's read told of its object (`None`: there is none).
    pub fn learn(
        &self,
        moment: (u64, Instant),
        bucket: &Bucket,
        key: &str,
        info: Option<&ObjectInfo>,
        snapshot: &Snapshot,
    ) -> ObjectState {
        let state = info.map_or(ObjectState::Absent, present);
        self.versions.learn(moment.0, &bucket.name, key, state.clone(), moment.1);
        snapshot.pin(key, VersionEntry { state, checked: moment.1 }).state
    }

    /// The state of an object: as trusted, else as the store says.
    ///
    /// # Errors
    /// The store's, but for `NotFound`, which is the state `Absent`.
    pub async fn state(
        &self,
        bucket: &Bucket,
        key: &str,
        snapshot: &Snapshot,
    ) -> Result<VersionEntry, Arc<StoreError>> {
        if let Some(entry) = self.trusted(bucket, key, snapshot) {
            return Ok(entry);
        }
        let name = (Arc::clone(&bucket.name), key.to_owned());
        let claim = self.heads.join(
            &name,
            |_| self.remembered(bucket, key, snapshot),
            || {
                let (this, bucket, key) = (self.clone(), bucket.clone(), key.to_owned());
                async move {
                    let (moment, checked) = (this.versions.moment(), Instant::now());
                    let state = match bucket.store.head(&key).await {
                        Ok(info) => present(&info),
                        Err(StoreError::NotFound { .. }) => ObjectState::Absent,
                        Err(error) => return Err(Arc::new(error)),
                    };
                    this.versions.learn(moment, &bucket.name, &key, state.clone(), checked);
                    Ok(VersionEntry { state, checked })
                }
                .boxed()
            },
        );
        let entry = match claim {
            Claim::Found(entry) => entry,
            Claim::InFlight(flight) => flight.await?,
        };
        Ok(snapshot.pin(key, entry))
    }

    /// Reads a part of an object, at `version` where one is given; `None` when there is no such object.
    /// Learns the object's version.
    pub(super) async fn read(
        &self,
        bucket: &Bucket,
        key: &str,
        range: ByteRange,
        version: Option<Version>,
        snapshot: &Snapshot,
    ) -> Result<Option<Arc<Fetched>>, Arc<StoreError>> {
        let name = ((Arc::clone(&bucket.name), key.to_owned()), RangeKey(range.clone(), version.clone()));
        let just_made = |name: &(ObjectName, RangeKey)| {
            let read = self.recent.get(name)?;
            // A read at a known version stays what it is; another is as good as what is known of its object.
            let known = || self.remembered(bucket, key, snapshot).is_some_and(|entry| entry.state == state_of(&read));
            (version.is_some() || known()).then(|| read.clone())
        };
        let claim = self.reads.join(&name, just_made, || {
            let (this, bucket, name) = (self.clone(), bucket.clone(), name.clone());
            async move {
                let (moment, checked) = (this.versions.moment(), Instant::now());
                let ((_, key), RangeKey(range, version)) = &name;
                let fetched = match bucket.store.get(key, range.clone(), version.as_ref()).await {
                    Ok(fetched) => Some(Arc::new(fetched)),
                    Err(StoreError::NotFound { .. }) => None,
                    Err(error) => return Err(Arc::new(error)),
                };
                let read = (checked, fetched);
                this.versions.learn(moment, &bucket.name, key, state_of(&read), checked);
                if read.1.as_ref().is_none_or(|fetched| fetched.info.settled) {
                    this.recent.insert(name, read.clone());
                }
                Ok(read)
            }
            .boxed()
        });
        let read = match claim {
            Claim::Found(read) => read,
            Claim::InFlight(flight) => flight.await?,
        };
        let state = state_of(&read);
        let (checked, fetched) = read;
        if fetched.as_ref().is_some_and(|fetched| !fetched.info.settled) {
            snapshot.unsettle();
        }
        let pinned = snapshot.pin(key, VersionEntry { state: state.clone(), checked });
        // Another part of this request goes by another version: the answer would mix the two.
        if pinned.state != state {
            return Err(Arc::new(StoreError::Changed { key: key.to_owned() }));
        }
        Ok(fetched)
    }

    /// Reads a small document whole; `None` when there is none.
    ///
    /// # Errors
    /// [`DatasetError::Format`] beyond the size of any sane document.
    pub(super) async fn document(
        &self,
        bucket: &Bucket,
        key: &str,
        snapshot: &Snapshot,
    ) -> Result<(Source, Option<Bytes>), DatasetError> {
        if let Some(VersionEntry { state: ObjectState::Absent, .. }) = self.trusted(bucket, key, snapshot) {
            return Ok((Source { key: key.to_owned(), state: ObjectState::Absent }, None));
        }
        // One byte more than is accepted, so that a longer document is told from one of exactly that length.
        let range = ByteRange::Bounded(0..DOCUMENT_BYTES + 1);
        match self.read(bucket, key, range, None, snapshot).await {
            Ok(Some(fetched)) if fetched.info.size > DOCUMENT_BYTES => Err(DatasetError::Format {
                key: key.to_owned(),
                source: crate::format::FormatError::Malformed {
                    document: "metadata",
                    reason: format!("{} bytes, the limit is {DOCUMENT_BYTES}", fetched.info.size),
                },
            }),
            Ok(Some(fetched)) => {
                let got = fetched.bytes.len() as u64;
                if got != fetched.info.size {
                    return Err(DatasetError::Short { key: key.to_owned(), got, expected: fetched.info.size });
                }
                let state = present(&fetched.info);
                Ok((Source { key: key.to_owned(), state }, Some(fetched.bytes.clone())))
            }
            Ok(None) => Ok((Source { key: key.to_owned(), state: ObjectState::Absent }, None)),
            Err(error) => match *error {
                // An empty document: there is no first byte to range over.
                StoreError::RangeNotSatisfiable { .. } => {
                    let entry = self.state(bucket, key, snapshot).await?;
                    Ok((Source { key: key.to_owned(), state: entry.state }, Some(Bytes::new())))
                }
                _ => Err(error.into()),
            },
        }
    }
}

fn state_of((_, fetched): &RecentRead) -> ObjectState {
    fetched.as_ref().map_or(ObjectState::Absent, |fetched| present(&fetched.info))
}

/// The state that a store's description of an object amounts to.
pub(crate) fn present(info: &ObjectInfo) -> ObjectState {
    ObjectState::Present { version: info.version.clone(), size: info.size, last_modified: info.last_modified }
}

impl Source {
    /// When the object was last written, if it exists.
    pub fn last_modified(&self) -> Option<SystemTime> {
        match &self.state {
            ObjectState::Absent => None,
            ObjectState::Present { last_modified, .. } => Some(*last_modified),
        }
    }
}
