//! The executor of plans.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use futures::stream::{FuturesUnordered, StreamExt as _};

use super::fill::{fill_answer, variable_answer};
use super::read_task::{Part, ReadAnswer, ReadResult, ReadTask};
use super::reader::{ReaderSettings, Readers};
use super::{Budget, DecodePool, FetchError, Reservation};
use crate::cache::{ChunkCache, ChunkKey, ChunkSource, Claim, Flight, Flights, JustRead, RecentBytes, Span};
use crate::format::ArrayMeta;
use crate::metrics::Metrics;
use crate::model::{ChunkData, Version};
use crate::plan::{ObjectFacts, ReadPlan, coalesce};
use crate::store::{Bucket, Buffers, ObjectInfo, StoreError};
use crate::tensor::{Tensor, answer_len, direct_range, is_covered};

/// How plans are run.
#[derive(Debug, Clone, Copy)]
pub struct FetcherSettings {
    /// Largest hole, in bytes, that is read through instead of sending a second GET; `None` measures each store.
    pub gap_bytes: Option<u64>,
    /// Longest joined read, in bytes: longer ones would hold back what is needed first.
    pub read_bytes: u64,
    /// Reads under way at once, for each store, at most; fewer while the store asks for fewer.
    pub store_concurrency: usize,
    /// Longest time for one read, waiting for its turn and trying again included: a request's own deadline.
    pub read_time: Duration,
}

/// One plan to be run, and the array that it is about.
#[derive(Debug, Clone)]
pub struct Job {
    /// The bucket that holds the array.
    pub bucket: Bucket,
    /// The array's key within it.
    pub path: Arc<str>,
    /// The array.
    pub array: Arc<ArrayMeta>,
    /// What to read.
    pub plan: Arc<ReadPlan>,
    /// Whether this is a part of something too large for the cache: its chunks are taken from there, but not put there,
    /// and decoded where they belong in the answer when that is possible.
    pub scan: bool,
}

/// A chunk as it was had.
#[derive(Debug, Clone)]
pub(super) enum Had {
    /// Its elements.
    Decoded(Arc<ChunkData>),
    /// Its stored bytes, as long as they should be: whoever puts the answer together decodes them.
    Stored(Bytes),
}

/// The chunks of one job.
#[derive(Debug, Default)]
pub struct Gathered {
    /// Parallel to the plan's chunks; `None` reads as the fill value.
    pub(super) chunks: Vec<Option<Had>>,
    /// Per object of the plan whose version was to be learned: its description; `None` for an object found absent.
    pub learned: HashMap<usize, Option<ObjectInfo>>,
}

impl Gathered {
    /// The chunks that there are.
    pub fn present(&self) -> usize {
        self.chunks.iter().flatten().count()
    }

    /// Whether nothing is left to decode.
    pub(super) fn is_decoded(&self) -> bool {
        self.chunks.iter().flatten().all(|had| matches!(had, Had::Decoded(_)))
    }
}

/// What becomes of the other jobs when one fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnError {
    /// Nothing more is waited for: they share the failure.
    Fail,
    /// They go on.
    Skip,
}

/// The job that made others fail with it.
#[derive(Debug, Clone)]
pub struct FailedJob {
    /// Its position.
    pub job: usize,
    /// Why.
    pub error: FetchError,
}

/// An assembled answer, with what reading taught.
#[derive(Debug)]
pub struct Fetched {
    /// The elements.
    pub tensor: Tensor,
    /// As [`Gathered::learned`].
    pub learned: HashMap<usize, Option<ObjectInfo>>,
    /// Bytes in flight, held until the answer has left.
    pub reservation: Reservation,
}

/// Largest answer, in bytes, that is put together on the runtime's own thread where all its chunks are here: handing
/// it to the pool costs about as much as copying it, and 50 µs hold nobody up.
const INLINE_BYTES: usize = 512 << 10;

/// Runs plans against buckets. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Fetcher {
    pub(super) cache: ChunkCache,
    pub(super) recent: RecentBytes,
    flights: Flights<ChunkKey, ReadAnswer>,
    pub(super) just_read: JustRead<Arc<ReadResult>>,
    pub(super) pool: DecodePool,
    budget: Budget,
    buffers: Buffers,
    pub(super) readers: Readers,
    pub(super) settings: FetcherSettings,
    pub(super) metrics: Metrics,
}

/// A chunk that is kept, or a read that told its version.
enum Kept {
    Chunk(Arc<ChunkData>),
    Read(Arc<ReadResult>),
}

/// A chunk to be had. Several jobs may want it.
struct Wanted {
    part: Part,
    /// The first job that wants it, and the object in its plan.
    job: usize,
    object: usize,
}

/// Where a wanted chunk's elements came from.
#[derive(Clone)]
enum Outcome {
    Chunk(Arc<ChunkData>),
    Read(Arc<ReadResult>),
    Failed(FetchError),
}

impl Fetcher {
    /// An executor with these parts.
    pub fn new(
        cache: ChunkCache,
        recent: RecentBytes,
        pool: DecodePool,
        budget: Budget,
        settings: FetcherSettings,
        metrics: Metrics,
    ) -> Self {
        let FetcherSettings { store_concurrency, gap_bytes, .. } = settings;
        Self {
            readers: Readers::new(ReaderSettings { store_concurrency, gap_bytes }, metrics.clone()),
            cache,
            recent,
            flights: Flights::default(),
            just_read: JustRead::new(),
            pool,
            budget,
            buffers: Buffers::new(),
            settings,
            metrics,
        }
    }

    /// Forgets reads of an object whose version they were to tell, because it was written through this gateway.
    pub fn invalidate(&self, bucket: &str, object: &str) {
        self.just_read.forget();
        let written = ChunkSource::new(bucket, object, None, [0; 16]);
        self.flights.forget(|key| !key.source().is_versioned() && key.source().is_of(&written));
    }

    /// How plans are run.
    pub fn settings(&self) -> FetcherSettings {
        self.settings
    }

    /// The largest hole, in bytes, that is read through in a bucket's store now.
    pub fn gap_bytes(&self, bucket: &Bucket) -> u64 {
        self.readers.of(bucket).gap_bytes()
    }

    /// The cache of decoded chunks.
    pub fn cache(&self) -> &ChunkCache {
        &self.cache
    }

    /// The pool, for work on whole bodies.
    pub fn pool(&self) -> &DecodePool {
        &self.pool
    }

    /// The memory that answers are assembled in.
    pub fn buffers(&self) -> &Buffers {
        &self.buffers
    }

    /// Whether each chunk of a plan is in the cache. Absent chunks and unknown versions are not.
    pub fn cached(&self, bucket: &Bucket, array: &ArrayMeta, plan: &ReadPlan) -> Vec<bool> {
        let sources = sources(bucket, array, plan);
        plan.chunks
            .iter()
            .map(|chunk| {
                chunk.extent.as_ref().is_some_and(|extent| {
                    let key = ChunkKey::new(sources[extent.object], &extent.range);
                    key.source().is_versioned() && self.cache.contains(&key)
                })
            })
            .collect()
    }

    /// Reads, decodes and assembles a plan for `principal`, in whose turn it waits for memory. `kept` says which axes
    /// the answer keeps.
    ///
    /// # Errors
    /// [`FetchError`]; [`FetchError::is_changed`] when planning again may help.
    pub async fn run(&self, principal: &str, job: Job, kept: &[bool]) -> Result<Fetched, FetchError> {
        let jobs = std::slice::from_ref(&job);
        let wants = Wants::of(jobs);
        let reservation = self.reserve(principal, wants.memory_bytes(jobs)).await?;
        let gathered = self.gather(jobs, wants, OnError::Fail).await.map_err(|failed| failed.error)?.pop();
        let mut gathered = gathered.unwrap_or_else(|| Ok(Gathered::default()))?;
        let learned = std::mem::take(&mut gathered.learned);
        let shape = job.plan.counts.iter().zip(kept).filter(|(_, kept)| **kept).map(|(n, _)| *n).collect();
        let dtype = job.plan.dtype.clone();
        let data = match answer_len(&job.plan)? {
            Some(len) => {
                let buffers = self.buffers.clone();
                let decoded = gathered.is_decoded();
                let (watch, _given_up) = self.watch();
                let fill = move || {
                    let mut out = buffers.take(len);
                    fill_answer(&job, gathered, &mut out, &watch)?;
                    Ok::<_, FetchError>(ChunkData::Fixed(out.freeze(len)))
                };
                match (decoded, len <= INLINE_BYTES) {
                    (true, true) => DecodePool::run_here(fill)??,
                    (true, false) => self.pool.run(fill).await??,
                    // What is still stored is decoded by all threads.
                    (false, _) => self.pool.run_spread(fill).await??,
                }
            }
            None => {
                let (watch, _given_up) = self.watch();
                let values = self.pool.run(move || variable_answer(&job, gathered, &watch)).await??;
                ChunkData::Variable(values)
            }
        };
        Ok(Fetched { tensor: Tensor { shape, dtype, data }, learned, reservation })
    }

    /// Waits, in the turn of `principal`, for memory.
    ///
    /// # Errors
    /// [`FetchError::Busy`].
    pub async fn reserve(&self, principal: &str, bytes: u64) -> Result<Reservation, FetchError> {
        self.budget.reserve(principal, bytes).await
    }

    /// Gets the chunks of jobs: each chunk once, however many jobs want it, with reads joined across jobs. `wants` is of
    /// these jobs. The answer runs parallel to them; with [`OnError::Fail`] none of it has failed.
    ///
    /// # Errors
    /// With [`OnError::Fail`], the first job found to fail.
    pub async fn gather(
        &self,
        jobs: &[Job],
        wants: Wants,
        on_error: OnError,
    ) -> Result<Vec<Result<Gathered, FetchError>>, FailedJob> {
        let Wants { wanted, slots } = wants;
        let gathered = match self.outcomes(jobs, &wanted, on_error).await {
            Ok(outcomes) => {
                let gathered = jobs.iter().zip(slots).map(|(job, slots)| collect(job, &slots, &outcomes));
                let gathered: Vec<Result<Gathered, FetchError>> = gathered.collect();
                let failed = gathered.iter().position(Result::is_err).filter(|_| on_error == OnError::Fail);
                match failed.map(|job| (job, gathered[job].as_ref().err().cloned())) {
                    Some((job, Some(error))) => Err(FailedJob { job, error }),
                    Some((_, None)) | None => Ok(gathered),
                }
            }
            Err(failed) => Err(failed),
        };
        let changed = match &gathered {
            Ok(gathered) => gathered.iter().any(|gathered| gathered.as_ref().is_err_and(FetchError::is_changed)),
            Err(failed) => failed.error.is_changed(),
        };
        // Whoever plans anew must not find the reads again that told the version before.
        if changed {
            self.just_read.forget();
        }
        gathered
    }

    /// What became of each wanted chunk; the first failure where jobs share it.
    async fn outcomes(
        &self,
        jobs: &[Job],
        wanted: &[Wanted],
        on_error: OnError,
    ) -> Result<Vec<Option<Outcome>>, FailedJob> {
        let kept = |key: &ChunkKey| {
            if key.source().is_versioned() {
                self.cache.get(key).map(Kept::Chunk)
            } else {
                self.just_read.get(key).map(Kept::Read)
            }
        };
        let outcome = |kept| match kept {
            Kept::Chunk(data) => Outcome::Chunk(data),
            Kept::Read(read) => Outcome::Read(read),
        };
        let mut outcomes: Vec<Option<Outcome>> =
            wanted.iter().map(|wanted| kept(&wanted.part.key).map(outcome)).collect();
        let missing: Vec<usize> = (0..wanted.len()).filter(|&i| outcomes[i].is_none()).collect();
        self.metrics.cache_asked((wanted.len() - missing.len()) as u64, missing.len() as u64);
        if self.metrics.tells_datasets() {
            self.count_by_dataset(jobs, wanted, &missing);
        }
        if missing.is_empty() {
            return Ok(outcomes);
        }
        let keys: Vec<ChunkKey> = missing.iter().map(|&i| wanted[i].part.key).collect();
        let claims = self.flights.claim(&keys, kept, |unclaimed| self.reads(jobs, wanted, &missing, unclaimed));
        // One waiter a read, not one a chunk: a shared future wakes every clone.
        let mut flights: Vec<(Flight<ReadAnswer>, Vec<usize>)> = Vec::new();
        for (&i, claim) in missing.iter().zip(claims) {
            match claim {
                Claim::Found(found) => outcomes[i] = Some(outcome(found)),
                Claim::InFlight(flight) => match flights.iter_mut().rev().find(|(known, _)| known.ptr_eq(&flight)) {
                    Some((_, served)) => served.push(i),
                    None => flights.push((flight, vec![i])),
                },
            }
        }
        let mut arriving: FuturesUnordered<_> =
            flights.into_iter().map(|(flight, served)| flight.map(move |answer| (answer, served))).collect();
        while let Some((answer, served)) = arriving.next().await {
            let outcome = match (answer, on_error) {
                (Ok(read), _) => Outcome::Read(read),
                (Err(error), OnError::Fail) => return Err(FailedJob { job: wanted[served[0]].job, error }),
                (Err(error), OnError::Skip) => Outcome::Failed(error),
            };
            for i in served {
                outcomes[i] = Some(outcome.clone());
            }
        }
        Ok(outcomes)
    }

    /// Of chunks of one source, those that lie in bytes that were read last, by the reads; and the others.
    fn recent<'a>(
        &self,
        positions: &[usize],
        part: impl Fn(&usize) -> &'a Part,
    ) -> (Vec<(Span, Vec<usize>)>, Vec<usize>) {
        let (mut recent, mut absent): (Vec<(Span, Vec<usize>)>, Vec<usize>) = (Vec::new(), Vec::new());
        for position in positions {
            let Part { key, range, .. } = part(position);
            let source = key.source();
            let last =
                recent.last_mut().filter(|(span, _)| span.range.start <= range.start && range.end <= span.range.end);
            match last {
                Some((_, served)) => served.push(*position),
                None if !source.is_versioned() => absent.push(*position),
                None => match self.recent.get(&source, range) {
                    Some(span) => recent.push((span, vec![*position])),
                    None => absent.push(*position),
                },
            }
        }
        self.metrics.recent_found((positions.len() - absent.len()) as u64);
        (recent, absent)
    }

    /// Counts hits and misses for the jobs' datasets. `wanted` is ordered by job, and `missing` ascends.
    fn count_by_dataset(&self, jobs: &[Job], wanted: &[Wanted], missing: &[usize]) {
        let mut start = 0;
        for of_job in wanted.chunk_by(|a, b| a.job == b.job) {
            let end = start + of_job.len();
            let misses = missing.partition_point(|&i| i < end) - missing.partition_point(|&i| i < start);
            let job = &jobs[of_job[0].job];
            self.metrics.dataset_asked(&job.bucket.name, &job.path, (of_job.len() - misses) as u64, misses as u64);
            start = end;
        }
    }

    /// The reads for `unclaimed` positions of `missing`, each with the positions that it serves.
    fn reads(
        &self,
        jobs: &[Job],
        wanted: &[Wanted],
        missing: &[usize],
        unclaimed: &[usize],
    ) -> Vec<(Vec<usize>, BoxFuture<'static, ReadAnswer>)> {
        let of = |position: &usize| &wanted[missing[*position]];
        let mut order = unclaimed.to_vec();
        order.sort_by(|a, b| {
            let (a, b) = (&of(a).part, &of(b).part);
            a.key.cmp(&b.key)
        });
        let mut reads = Vec::new();
        for of_source in order.chunk_by(|a, b| of(a).part.key.source() == of(b).part.key.source()) {
            let Wanted { job, object, .. } = of(&of_source[0]);
            let job = &jobs[*job];
            let object = &job.plan.objects[*object];
            let mut begin = |range, served: Vec<usize>, at_hand| {
                let task = ReadTask {
                    fetcher: self.clone(),
                    bucket: job.bucket.clone(),
                    array: Arc::clone(&job.array),
                    cached: !job.scan,
                    key: Arc::clone(&object.key),
                    version: version(&object.facts).cloned(),
                    range,
                    parts: served.iter().map(|position| of(position).part.clone()).collect(),
                    at_hand,
                };
                reads.push((served, task.run().boxed()));
            };
            let (recent, absent) = self.recent(of_source, |position| &of(position).part);
            for (span, served) in recent {
                begin(span.range.clone(), served, Some(span));
            }
            let ranges: Vec<_> = absent.iter().map(|position| of(position).part.range.clone()).collect();
            for read in coalesce(&ranges, self.gap_bytes(&job.bucket), self.settings.read_bytes) {
                begin(read.range, read.parts.iter().map(|&part| absent[part]).collect(), None);
            }
        }
        reads
    }
}

/// Bytes that a chunk of text is taken for before it is decoded.
const VARIABLE_CHUNK_BYTES: u64 = 64 << 10;

/// The version that a plan reads an object at.
fn version(facts: &ObjectFacts) -> Option<&Version> {
    match facts {
        ObjectFacts::Present { version, .. } => Some(version),
        ObjectFacts::Absent | ObjectFacts::LearnOnRead => None,
    }
}

/// The version that a read told; `None` of an object found absent.
fn told(info: &Option<ObjectInfo>) -> Option<&Version> {
    info.as_ref().map(|info| &info.version)
}

/// Per object of a plan, the source of its chunks.
fn sources(bucket: &Bucket, array: &ArrayMeta, plan: &ReadPlan) -> Vec<ChunkSource> {
    let codec = array.codec.fingerprint();
    let objects = plan.objects.iter();
    objects.map(|object| ChunkSource::new(&bucket.name, &object.key, version(&object.facts), codec)).collect()
}

/// The place of an absent chunk in a job's slots.
const ABSENT: usize = usize::MAX;

/// The distinct chunks that jobs want.
pub struct Wants {
    wanted: Vec<Wanted>,
    /// Per job, the place of each of its chunks among them.
    slots: Vec<Vec<usize>>,
}

impl Wants {
    /// What these jobs want.
    pub fn of(jobs: &[Job]) -> Self {
        wanted(jobs)
    }

    /// What jobs may hold in memory at once: their answers, and their chunks decoded.
    pub fn memory_bytes(&self, jobs: &[Job]) -> u64 {
        let chunks =
            self.wanted.iter().map(|wanted| jobs[wanted.job].array.chunk_bytes().unwrap_or(VARIABLE_CHUNK_BYTES));
        let answers = jobs.iter().map(|job| job.plan.answer_bytes());
        chunks.chain(answers).fold(0, u64::saturating_add)
    }
}

impl std::fmt::Debug for Wants {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Wants").field("chunks", &self.wanted.len()).finish_non_exhaustive()
    }
}

fn wanted(jobs: &[Job]) -> Wants {
    let mut wanted: Vec<Wanted> = Vec::new();
    let mut slots = Vec::with_capacity(jobs.len());
    // One plan names each of its chunks once.
    let mut known: Option<HashMap<ChunkKey, usize>> = (jobs.len() > 1).then(HashMap::new);
    for (number, job) in jobs.iter().enumerate() {
        let sources = sources(&job.bucket, &job.array, &job.plan);
        let covered = job.scan && is_covered(&job.plan);
        let of_job = job.plan.chunks.iter().map(|planned| {
            let Some(extent) = &planned.extent else { return ABSENT };
            let key = ChunkKey::new(sources[extent.object], &extent.range);
            if let Some(known) = &mut known {
                match known.entry(key) {
                    Entry::Occupied(entry) => return *entry.get(),
                    Entry::Vacant(entry) => entry.insert(wanted.len()),
                };
            }
            let chunk = planned.coord.clone();
            let direct = job.scan && covered && direct_range(&job.array, &job.plan, planned).is_some();
            let part = Part { key, chunk, range: extent.range.clone(), whole: extent.whole, decode: !direct };
            wanted.push(Wanted { part, job: number, object: extent.object });
            wanted.len() - 1
        });
        slots.push(of_job.collect());
    }
    Wants { wanted, slots }
}

/// A job's chunks from the outcomes, or its first failure.
fn collect(job: &Job, slots: &[usize], outcomes: &[Option<Outcome>]) -> Result<Gathered, FetchError> {
    let mut gathered = Gathered { chunks: Vec::with_capacity(slots.len()), learned: HashMap::new() };
    for (chunk, &slot) in job.plan.chunks.iter().zip(slots) {
        let outcome = if slot == ABSENT { None } else { outcomes[slot].as_ref() };
        let data = match (outcome, &chunk.extent) {
            (Some(Outcome::Chunk(data)), _) => Some(Had::Decoded(Arc::clone(data))),
            (Some(Outcome::Read(read)), Some(extent)) => {
                let object = &job.plan.objects[extent.object];
                if version(&object.facts).is_none() {
                    match gathered.learned.entry(extent.object) {
                        Entry::Vacant(entry) => drop(entry.insert(read.info.clone())),
                        // The blocks of one chunk may come by several reads, which may meet several versions of it.
                        Entry::Occupied(entry) if told(entry.get()) != told(&read.info) => {
                            let key = object.key.to_string();
                            return Err(FetchError::Store(Arc::new(StoreError::Changed { key })));
                        }
                        Entry::Occupied(_) => {}
                    }
                }
                read.chunks.get(&extent.range).cloned().transpose()?
            }
            (Some(Outcome::Failed(error)), _) => return Err(error.clone()),
            (None, _) | (Some(Outcome::Read(_)), None) => None,
        };
        gathered.chunks.push(data);
    }
    Ok(gathered)
}
