//! Where the chunks of a survey are: shard indexes read once per level, versions of the objects that hold them.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::SystemTime;

use futures::{StreamExt as _, TryStreamExt as _};

use super::lookup::present;
use super::{Array, DatasetError, Datasets, Snapshot};
use crate::cache::{IndexKey, ObjectState};
use crate::format::{FormatError, IndexLocation, Storage};
use crate::index::{Nesting, ShardIndex, dense_range};
use crate::model::key::join;
use crate::model::{ByteRange, Version};
use crate::plan::{Located, ObjectFacts, Survey, SurveyedChunk};
use crate::store::StoreError;

/// Objects looked up at once for one request.
const AT_ONCE: usize = 64;

/// Largest shard index read: four million inner chunks.
const INDEX_BYTES: u64 = 64 << 20;

/// Whether versions must be known before reading, or may be learned by it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Learning {
    /// Every touched object's version is looked up.
    Before,
    /// An object that is read whole, and of which nothing is known, tells its version when it is read: one request
    /// instead of two.
    OnRead,
}

/// What was found out about a survey's objects and chunks, parallel to them.
#[derive(Debug, Clone)]
pub struct Whereabouts {
    /// Per object.
    pub facts: Vec<ObjectFacts>,
    /// Per chunk.
    pub located: Vec<Located>,
    /// The latest change among the objects whose versions are known.
    pub last_modified: Option<SystemTime>,
    /// Shard indexes that had to be read from the store.
    pub index_reads: u64,
}

/// One object, looked up.
struct Found {
    state: Option<ObjectState>,
    /// Per chunk of the object, in the survey's order.
    located: Vec<Located>,
    index_reads: u64,
}

impl Datasets {
    /// Finds the objects and chunks of a survey.
    ///
    /// # Errors
    /// The store's, and [`DatasetError::Index`] for an index that contradicts its shard.
    pub async fn locate(
        &self,
        array: &Array,
        survey: &Survey,
        learning: Learning,
        snapshot: &Snapshot,
    ) -> Result<Whereabouts, DatasetError> {
        // Chunks are ordered by object: each object's are one run.
        let mut runs: Vec<&[SurveyedChunk]> = Vec::with_capacity(survey.objects.len());
        let mut rest = survey.chunks.as_slice();
        for object in 0..survey.objects.len() {
            let (run, after) = rest.split_at(rest.partition_point(|chunk| chunk.object <= object));
            runs.push(run);
            rest = after;
        }
        let lookups = survey.objects.iter().zip(runs).map(|(key, chunks)| async move {
            match &array.meta.storage {
                Storage::Dense { offset, order, block } => Ok(dense(array, chunks, *offset, order, block)),
                Storage::Grid(grid) if grid.shards.is_empty() => {
                    self.plain(array, key, chunks, learning, snapshot).await
                }
                Storage::Grid(grid) => self.sharded(array, Nesting::new(grid), key, chunks, snapshot).await,
            }
        });
        let lookups: Vec<_> = lookups.collect();
        let found: Vec<Found> = futures::stream::iter(lookups).buffered(AT_ONCE).try_collect().await?;
        let mut whereabouts =
            Whereabouts { facts: Vec::new(), located: Vec::new(), last_modified: None, index_reads: 0 };
        for object in found {
            whereabouts.index_reads += object.index_reads;
            whereabouts.located.extend(object.located);
            whereabouts.facts.push(match object.state {
                None => ObjectFacts::LearnOnRead,
                Some(ObjectState::Absent) => ObjectFacts::Absent,
                Some(ObjectState::Present { version, size, last_modified }) => {
                    whereabouts.last_modified = whereabouts.last_modified.max(Some(last_modified));
                    ObjectFacts::Present { version, size }
                }
            });
        }
        Ok(whereabouts)
    }

    /// The states of an array's objects, in the order of `keys`, which are relative to the array.
    ///
    /// # Errors
    /// The store's.
    pub async fn states(
        &self,
        array: &Array,
        keys: &[String],
        snapshot: &Snapshot,
    ) -> Result<Vec<ObjectState>, DatasetError> {
        let lookups: Vec<_> = keys
            .iter()
            .map(|key| async move {
                self.state(&array.bucket, &join(&array.path, key), snapshot).await.map(|entry| entry.state)
            })
            .collect();
        Ok(futures::stream::iter(lookups).buffered(AT_ONCE).try_collect().await?)
    }

    /// How many of an array's objects would have to be asked of the store to know their versions.
    pub fn untrusted(&self, array: &Array, keys: &[String], snapshot: &Snapshot) -> usize {
        if array.bucket.store.is_local() {
            return 0;
        }
        keys.iter().filter(|key| self.trusted(&array.bucket, &join(&array.path, key), snapshot).is_none()).count()
    }

    /// An object that is one chunk.
    async fn plain(
        &self,
        array: &Array,
        key: &str,
        chunks: &[SurveyedChunk],
        learning: Learning,
        snapshot: &Snapshot,
    ) -> Result<Found, DatasetError> {
        let key = join(&array.path, key);
        let unheard = snapshot.get(&key).is_none() && self.versions.get(&array.bucket.name, &key).is_none();
        let state = if learning == Learning::OnRead && unheard && !array.bucket.store.is_local() {
            None
        } else {
            Some(self.state(&array.bucket, &key, snapshot).await?.state)
        };
        Ok(Found { state, located: vec![Located::Whole; chunks.len()], index_reads: 0 })
    }

    /// A shard: its index, and the indexes of nested shards on the way to the chunks.
    async fn sharded(
        &self,
        array: &Array,
        nesting: Nesting<'_>,
        key: &str,
        chunks: &[SurveyedChunk],
        snapshot: &Snapshot,
    ) -> Result<Found, DatasetError> {
        let key = join(&array.path, key);
        let known = HashMap::new();
        let mut reader = IndexReader { datasets: self, array, nesting, key: &key, snapshot, reads: 0, known };
        let Some(shard) = reader.outermost().await? else {
            let located = vec![Located::Absent; chunks.len()];
            return Ok(Found { state: Some(ObjectState::Absent), located, index_reads: reader.reads });
        };
        let mut located = Vec::with_capacity(chunks.len());
        for chunk in chunks {
            located.push(reader.descend(chunk, &shard).await?);
        }
        let Shard { version, size, last_modified, .. } = shard;
        let state = Some(ObjectState::Present { version, size, last_modified });
        Ok(Found { state, located, index_reads: reader.reads })
    }
}

fn dense(array: &Array, chunks: &[SurveyedChunk], offset: u64, order: &[usize], block: &[u64]) -> Found {
    let size = array.meta.dtype.size_bytes().unwrap_or(1) as u64;
    let located = chunks
        .iter()
        .map(|chunk| Located::Range(dense_range(&array.meta, &chunk.coord, offset, order, block, size)))
        .collect();
    // The file is the array's only source, so the version it was opened in is the one that is read.
    let state = array.sources.first().map(|source| source.state.clone());
    Found { state, located, index_reads: 0 }
}

/// An object that holds many chunks, with its index.
struct Shard {
    version: Version,
    size: u64,
    last_modified: SystemTime,
    index: Arc<ShardIndex>,
}

/// Reads the indexes of one object, each once.
struct IndexReader<'a> {
    datasets: &'a Datasets,
    array: &'a Array,
    nesting: Nesting<'a>,
    key: &'a str,
    snapshot: &'a Snapshot,
    reads: u64,
    known: HashMap<(usize, u64), Arc<ShardIndex>>,
}

impl IndexReader<'_> {
    fn index_key(&self, version: &Version, level: usize, start: u64) -> IndexKey {
        let description = format!("{:?}{:?}", self.array.meta.codec.fingerprint(), self.nesting.levels()[level]);
        let mut codec = [0; 16];
        codec.copy_from_slice(&blake3::hash(description.as_bytes()).as_bytes()[..16]);
        IndexKey {
            bucket: Arc::clone(&self.array.bucket.name),
            object: self.key.into(),
            version: version.clone(),
            start,
            level,
            codec,
        }
    }

    fn parse(&self, level: usize, bytes: &[u8]) -> Result<Arc<ShardIndex>, DatasetError> {
        let format = self.nesting.levels()[level].index;
        ShardIndex::parse(bytes, format, self.nesting.inner_chunks(level))
            .map(Arc::new)
            .map_err(|source| DatasetError::Index { key: self.key.to_owned(), source })
    }

    /// The index of the object itself, with the version it belongs to; `None` when there is no object.
    async fn outermost(&mut self) -> Result<Option<Shard>, DatasetError> {
        let (datasets, bucket) = (self.datasets, &self.array.bucket);
        let length = self.nesting.index_bytes(0);
        if length > INDEX_BYTES {
            return Err(self.too_long(length));
        }
        let trusted = datasets.trusted(bucket, self.key, self.snapshot);
        let indexed = datasets.versions.get(&bucket.name, self.key).is_some_and(|entry| match entry.state {
            ObjectState::Absent => true,
            ObjectState::Present { version, .. } => datasets.indexes.get(&self.index_key(&version, 0, 0)).is_some(),
        });
        let state = match trusted {
            Some(entry) => Some(entry.state),
            // A stat or HEAD is less than an index that is already here.
            None if indexed || bucket.store.is_local() => {
                Some(datasets.state(bucket, self.key, self.snapshot).await?.state)
            }
            None => None,
        };
        let location = self.nesting.levels()[0].location;
        let (range, version) = match state {
            Some(ObjectState::Absent) => return Ok(None),
            Some(ObjectState::Present { version, size, last_modified }) => {
                if let Some(index) = datasets.indexes.get(&self.index_key(&version, 0, 0)) {
                    return Ok(Some(Shard { version, size, last_modified, index }));
                }
                let range = self
                    .nesting
                    .index_range(0, size)
                    .map_err(|source| DatasetError::Index { key: self.key.to_owned(), source })?;
                (ByteRange::Bounded(range), Some(version))
            }
            None if location == IndexLocation::Start => (ByteRange::Bounded(0..length), None),
            None => (ByteRange::Suffix(length), None),
        };
        self.reads += 1;
        let fetched = match datasets.read(bucket, self.key, range, version, self.snapshot).await {
            Ok(Some(fetched)) => fetched,
            Ok(None) => return Ok(None),
            Err(error) => {
                return Err(match *error {
                    StoreError::RangeNotSatisfiable { size, .. } => DatasetError::Index {
                        key: self.key.to_owned(),
                        source: crate::index::IndexError::NoRoom { container: size, index: length },
                    },
                    _ => error.into(),
                });
            }
        };
        let ObjectState::Present { version, size, last_modified } = present(&fetched.info) else { return Ok(None) };
        let index = self.parse(0, &fetched.bytes)?;
        if fetched.info.settled {
            datasets.indexes.insert(self.index_key(&version, 0, 0), Arc::clone(&index));
        }
        Ok(Some(Shard { version, size, last_modified, index }))
    }

    /// Follows the indexes from the object down to one innermost chunk.
    async fn descend(&mut self, chunk: &SurveyedChunk, shard: &Shard) -> Result<Located, DatasetError> {
        let broken = |source| DatasetError::Index { key: self.key.to_owned(), source };
        let number = self.nesting.number_at(0, &chunk.coord);
        let Some(mut range) = shard.index.range(number, shard.size).map_err(broken)? else {
            return Ok(Located::Absent);
        };
        for level in 1..self.nesting.levels().len() {
            let index = self.nested(level, &range, &shard.version).await?;
            let number = self.nesting.number_at(level, &chunk.coord);
            let inner = index
                .range(number, range.end - range.start)
                .map_err(|source| DatasetError::Index { key: self.key.to_owned(), source })?;
            let Some(inner) = inner else { return Ok(Located::Absent) };
            range = range.start + inner.start..range.start + inner.end;
        }
        Ok(Located::Range(range))
    }

    async fn nested(
        &mut self,
        level: usize,
        container: &std::ops::Range<u64>,
        version: &Version,
    ) -> Result<Arc<ShardIndex>, DatasetError> {
        if let Some(index) = self.known.get(&(level, container.start)) {
            return Ok(Arc::clone(index));
        }
        let key = self.index_key(version, level, container.start);
        if let Some(index) = self.datasets.indexes.get(&key) {
            self.known.insert((level, container.start), Arc::clone(&index));
            return Ok(index);
        }
        let within = self
            .nesting
            .index_range(level, container.end - container.start)
            .map_err(|source| DatasetError::Index { key: self.key.to_owned(), source })?;
        let length = within.end - within.start;
        if length > INDEX_BYTES {
            return Err(self.too_long(length));
        }
        let range = ByteRange::Bounded(container.start + within.start..container.start + within.end);
        self.reads += 1;
        let fetched =
            self.datasets.read(&self.array.bucket, self.key, range, Some(version.clone()), self.snapshot).await?;
        let Some(fetched) = fetched else {
            return Err(Arc::new(StoreError::Changed { key: self.key.to_owned() }).into());
        };
        let index = self.parse(level, &fetched.bytes)?;
        if fetched.info.settled {
            self.datasets.indexes.insert(key, Arc::clone(&index));
        }
        self.known.insert((level, container.start), Arc::clone(&index));
        Ok(index)
    }

    fn too_long(&self, length: u64) -> DatasetError {
        let feature = format!("a shard index of {length} bytes (the limit is {INDEX_BYTES})");
        DatasetError::Format { key: self.key.to_owned(), source: FormatError::Feature { feature } }
    }
}
