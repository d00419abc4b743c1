//! Where the chunks of a survey are, and in which versions the objects that hold them.

use std::time::SystemTime;

use futures::{StreamExt as _, TryStreamExt as _};

use super::shards::Shards;
use super::{Array, DatasetError, Datasets, Snapshot};
use crate::cache::ObjectState;
use crate::format::Storage;
use crate::index::dense_range;
use crate::model::key::join;
use crate::plan::{Located, ObjectFacts, Survey, SurveyedChunk};

/// Objects looked up at once for one request.
const AT_ONCE: usize = 64;

/// Whether versions must be known before reading, or may be learned by it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Learning {
    /// Every touched object's version is looked up.
    Before,
    /// An object that is one chunk, and of which nothing is known, tells its version when it is read: one request
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
    /// Reads of shard indexes that were made of the store.
    pub index_reads: u64,
}

/// One object, looked up.
pub(super) struct Found {
    /// `None` when reading it will tell.
    pub(super) state: Option<ObjectState>,
    /// Per chunk of the object, in the survey's order.
    pub(super) located: Vec<Located>,
    pub(super) index_reads: u64,
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
        let shards = match &array.meta.storage {
            Storage::Grid(grid) if !grid.shards.is_empty() => Some(Shards::new(self, array, grid, snapshot)?),
            Storage::Grid(_) | Storage::Dense { .. } => None,
        };
        let lookup = Lookup { datasets: self, array, shards: shards.as_ref(), learning, snapshot };
        // What is known already takes no future.
        let mut found: Vec<Option<Found>> =
            survey.objects.iter().zip(&runs).map(|(key, run)| lookup.at_hand(key, run)).collect();
        let unknown = (0..found.len()).filter(|&i| found[i].is_none());
        let lookups: Vec<_> = unknown
            .map(|i| {
                let (lookup, key, run) = (&lookup, &survey.objects[i], runs[i]);
                async move { lookup.ask(key, run).await.map(|found| (i, found)) }
            })
            .collect();
        let at_once = shards.as_ref().map_or(AT_ONCE, |shards| shards.at_once(AT_ONCE));
        let mut answers = futures::stream::iter(lookups).buffer_unordered(at_once);
        while let Some((i, answer)) = answers.try_next().await? {
            found[i] = Some(answer);
        }
        drop(answers);
        let mut whereabouts =
            Whereabouts { facts: Vec::new(), located: Vec::new(), last_modified: None, index_reads: 0 };
        whereabouts.facts.reserve_exact(survey.objects.len());
        for object in found.into_iter().flatten() {
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
        let names: Vec<String> = keys.iter().map(|key| join(&array.path, key)).collect();
        let known = names.iter().map(|name| self.trusted(&array.bucket, name, snapshot).map(|entry| entry.state));
        if let Some(states) = known.collect() {
            return Ok(states);
        }
        let lookups: Vec<_> = names
            .iter()
            .map(|name| async move { self.state(&array.bucket, name, snapshot).await.map(|entry| entry.state) })
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
}

/// What looking an object up depends on, beside the object.
struct Lookup<'a> {
    datasets: &'a Datasets,
    array: &'a Array,
    /// Where the array is sharded.
    shards: Option<&'a Shards<'a>>,
    learning: Learning,
    snapshot: &'a Snapshot,
}

impl Lookup<'_> {
    /// What is known of an object without asking the store.
    fn at_hand(&self, key: &str, chunks: &[SurveyedChunk]) -> Option<Found> {
        if let Storage::Dense { offset, order, block } = &self.array.meta.storage {
            return Some(dense(self.array, chunks, *offset, order, block));
        }
        let key = join(&self.array.path, key);
        if let Some(shards) = self.shards {
            return shards.at_hand(&key, chunks);
        }
        let bucket = &self.array.bucket;
        let located = || vec![Located::Whole; chunks.len()];
        if let Some(entry) = self.datasets.trusted(bucket, &key, self.snapshot) {
            return Some(Found { state: Some(entry.state), located: located(), index_reads: 0 });
        }
        let unheard = self.datasets.versions.get(&bucket.name, &key).is_none();
        let learns = self.learning == Learning::OnRead && unheard && !bucket.store.is_local();
        learns.then(|| Found { state: None, located: located(), index_reads: 0 })
    }

    /// Looks an object up in the store.
    async fn ask(&self, key: &str, chunks: &[SurveyedChunk]) -> Result<Found, DatasetError> {
        let key = join(&self.array.path, key);
        match self.shards {
            Some(shards) => shards.find(&key, chunks).await,
            None => {
                let state = self.datasets.state(&self.array.bucket, &key, self.snapshot).await?.state;
                Ok(Found { state: Some(state), located: vec![Located::Whole; chunks.len()], index_reads: 0 })
            }
        }
    }
}

impl Found {
    /// There is no such object.
    pub(super) fn absent(chunks: &[SurveyedChunk]) -> Self {
        Self { state: Some(ObjectState::Absent), located: vec![Located::Absent; chunks.len()], index_reads: 0 }
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
