//! Pages of shard indexes: from the cache, or read at the shard's version, by one of all who want them.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use futures::future::BoxFuture;
use futures::{FutureExt as _, StreamExt as _, TryStreamExt as _};

use super::lookup::present;
use super::{DatasetError, Datasets, Snapshot};
use crate::cache::{Claim, Flight, IndexKey, IndexKeyRef};
use crate::index::{IndexLayout, IndexPage};
use crate::model::{ByteRange, Version};
use crate::plan::coalesce;
use crate::store::{Bucket, Fetched, StoreError};

/// Largest hole, in bytes, that is read through instead of sending a second GET: two pages. That is what a connection
/// carries in the milliseconds that a request costs a store, and not yet much to keep in vain.
const GAP_BYTES: u64 = 128 << 10;

/// Longest joined read, in bytes. Reads of one level run side by side, so that longer ones would take longer.
const READ_BYTES: u64 = 4 << 20;

/// Reads of one shard's level under way at once. Their sum over all shards of a request stays in the hundreds.
const READS_AT_ONCE: usize = 16;

/// Bytes of a checksummed index from which on it is verified on a thread of its own: about a tenth of a millisecond of
/// work, which is what other requests on the runtime's thread may be kept waiting.
const VERIFIED_APART_BYTES: usize = 1 << 20;

/// What one read of pages gave to all who wanted some of them.
pub(super) type PageAnswer = Result<Arc<PagesRead>, DatasetError>;

/// Pages that were read together.
#[derive(Debug)]
pub(super) struct PagesRead {
    pages: HashMap<Range<u64>, IndexPage>,
    settled: bool,
    from_store: bool,
}

/// A page of one container's index, where it lies in the object.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct PagePlace {
    start: u64,
    end: u64,
    number: u64,
}

impl PagePlace {
    /// Page `number` of the index that begins at `index` in the object.
    pub(super) fn new(layout: &IndexLayout, index: u64, number: u64) -> Self {
        let within = layout.page_range(number);
        Self { start: index + within.start, end: index + within.end, number }
    }

    fn range(&self) -> Range<u64> {
        self.start..self.end
    }

    /// Bytes of the page.
    pub(super) fn len_bytes(&self) -> u64 {
        self.end - self.start
    }
}

/// A shard in the version that a request goes by.
#[derive(Debug, Clone)]
pub(super) struct ShardName {
    pub(super) bucket: Bucket,
    pub(super) key: Arc<str>,
    pub(super) version: Version,
}

impl ShardName {
    fn page(&self, place: &PagePlace) -> IndexKey {
        IndexKey {
            bucket: Arc::clone(&self.bucket.name),
            object: Arc::clone(&self.key),
            version: self.version.clone(),
            range: place.range(),
        }
    }
}

impl Datasets {
    /// These pages, parallel to `places`, when all of them are kept.
    pub(super) fn pages_at_hand(
        &self,
        bucket: &str,
        object: &str,
        version: &Version,
        places: &[PagePlace],
    ) -> Option<Vec<IndexPage>> {
        places
            .iter()
            .map(|place| self.indexes.get(&IndexKeyRef { bucket, object, version, range: &place.range() }))
            .collect()
    }

    /// These pages of the indexes of one level, parallel to `places`; and how many reads of the store they took.
    /// `given` is a part of the shard in this version that was read before: what it holds is not read again.
    ///
    /// # Errors
    /// The store's, [`StoreError::Changed`] when the shard has another version by now, and [`DatasetError::Index`]
    /// for an index that cannot be trusted.
    pub(super) async fn pages(
        &self,
        shard: &ShardName,
        layout: &Arc<IndexLayout>,
        places: &[PagePlace],
        given: Option<&Arc<Fetched>>,
        snapshot: &Snapshot,
    ) -> Result<(Vec<IndexPage>, u64), DatasetError> {
        if let Some(pages) = self.pages_at_hand(&shard.bucket.name, &shard.key, &shard.version, places) {
            return Ok((pages, 0));
        }
        let keys: Vec<IndexKey> = places.iter().map(|place| shard.page(place)).collect();
        let claims = self.pages.claim(
            &keys,
            |key| self.indexes.get(&key.borrowed()),
            |missing| self.page_reads(shard, layout, places, missing, given),
        );
        let mut pages: Vec<Option<IndexPage>> = Vec::with_capacity(places.len());
        // One waiter a read, not one a page: a shared future wakes every clone.
        let mut reads: Vec<(Flight<PageAnswer>, Vec<usize>)> = Vec::new();
        for (i, claim) in claims.into_iter().enumerate() {
            match claim {
                Claim::Found(page) => pages.push(Some(page)),
                Claim::InFlight(flight) => {
                    pages.push(None);
                    match reads.iter_mut().rev().find(|(known, _)| known.ptr_eq(&flight)) {
                        Some((_, served)) => served.push(i),
                        None => reads.push((flight, vec![i])),
                    }
                }
            }
        }
        let waits = reads.into_iter().map(|(flight, served)| flight.map(|answer| answer.map(|read| (read, served))));
        let mut answers = futures::stream::iter(waits.collect::<Vec<_>>()).buffer_unordered(READS_AT_ONCE);
        let mut from_store = 0;
        while let Some((read, served)) = answers.try_next().await? {
            from_store += u64::from(read.from_store);
            if !read.settled {
                snapshot.unsettle();
            }
            for i in served {
                pages[i] = read.pages.get(&places[i].range()).cloned();
            }
        }
        let pages: Option<Vec<IndexPage>> = pages.into_iter().collect();
        Ok((pages.expect("a read gives every page that it was claimed for"), from_store))
    }

    /// The reads for the `missing` of `places`, each with the positions that it serves.
    fn page_reads(
        &self,
        shard: &ShardName,
        layout: &Arc<IndexLayout>,
        places: &[PagePlace],
        missing: &[usize],
        given: Option<&Arc<Fetched>>,
    ) -> Vec<(Vec<usize>, BoxFuture<'static, PageAnswer>)> {
        let is_given = |place: &PagePlace| {
            given.is_some_and(|given| given.start <= place.start && place.end - given.start <= given.bytes.len() as u64)
        };
        let (here, away): (Vec<usize>, Vec<usize>) = missing.iter().partition(|&&i| is_given(&places[i]));
        let task = |served: &[usize], range: Range<u64>, given: Option<Arc<Fetched>>| PageRead {
            datasets: self.clone(),
            shard: shard.clone(),
            layout: Arc::clone(layout),
            range,
            places: served.iter().map(|&i| places[i].clone()).collect(),
            given,
        };
        let mut reads = Vec::new();
        if let Some(given) = given.filter(|_| !here.is_empty()) {
            let range = given.start..given.start + given.bytes.len() as u64;
            let task = task(&here, range, Some(Arc::clone(given)));
            reads.push((here, task.run().boxed()));
        }
        let ranges: Vec<_> = away.iter().map(|&i| places[i].range()).collect();
        for read in coalesce(&ranges, GAP_BYTES, READ_BYTES) {
            let served: Vec<usize> = read.parts.iter().map(|&part| away[part]).collect();
            let task = task(&served, read.range, None);
            reads.push((served, task.run().boxed()));
        }
        reads
    }
}

/// One read, of one or several pages.
struct PageRead {
    datasets: Datasets,
    shard: ShardName,
    layout: Arc<IndexLayout>,
    range: Range<u64>,
    places: Vec<PagePlace>,
    /// The bytes, where they are here already.
    given: Option<Arc<Fetched>>,
}

impl PageRead {
    async fn run(self) -> PageAnswer {
        let from_store = self.given.is_none();
        let fetched = match &self.given {
            Some(given) => Arc::clone(given),
            None => Arc::new(self.fetch().await?),
        };
        let mut pages = HashMap::with_capacity(self.places.len());
        for place in &self.places {
            let (from, to) = (place.start - self.range.start, place.end - self.range.start);
            let part = fetched.bytes.slice(from as usize..to as usize);
            // A page that shares the memory of its neighbours would keep it from being given back with them.
            let part = if part.len() == fetched.bytes.len() { part } else { Bytes::copy_from_slice(&part) };
            let page = self.verified(place.number, part).await?;
            if fetched.info.settled {
                self.datasets.indexes.insert(self.shard.page(place), page.clone());
            }
            pages.insert(place.range(), page);
        }
        Ok(Arc::new(PagesRead { pages, settled: fetched.info.settled, from_store }))
    }

    /// The bytes from the store, all of them, in the version of the shard.
    async fn fetch(&self) -> Result<Fetched, DatasetError> {
        let ShardName { bucket, key, version } = &self.shard;
        let moment = self.datasets.moment();
        let expected = self.range.end - self.range.start;
        let short = |got| DatasetError::Short { key: key.to_string(), got, expected };
        let changed = || DatasetError::from(Arc::new(StoreError::Changed { key: key.to_string() }));
        let fetched = match bucket.store.get(key, ByteRange::Bounded(self.range.clone()), Some(version)).await {
            Ok(fetched) => fetched,
            Err(StoreError::NotFound { .. }) => return Err(changed()),
            // The range lies in the size that this version was said to have.
            Err(StoreError::RangeNotSatisfiable { .. }) => return Err(short(0)),
            Err(error) => return Err(Arc::new(error).into()),
        };
        if fetched.info.version != *version {
            return Err(changed());
        }
        self.datasets.versions.learn(moment.0, &bucket.name, key, present(&fetched.info), moment.1);
        if fetched.bytes.len() as u64 != expected || fetched.start != self.range.start {
            return Err(short(fetched.bytes.len() as u64));
        }
        Ok(fetched)
    }

    async fn verified(&self, number: u64, bytes: Bytes) -> Result<IndexPage, DatasetError> {
        let page = if self.layout.is_checked() && bytes.len() >= VERIFIED_APART_BYTES {
            let layout = Arc::clone(&self.layout);
            tokio::task::spawn_blocking(move || layout.page(number, bytes)).await.map_err(|ended| {
                let (operation, key) = ("verify the index of", self.shard.key.to_string());
                DatasetError::from(Arc::new(StoreError::Failed { operation, key, reason: ended.to_string() }))
            })?
        } else {
            self.layout.page(number, bytes)
        };
        page.map_err(|source| DatasetError::Index { key: self.shard.key.to_string(), source })
    }
}
