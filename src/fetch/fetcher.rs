//! The executor of plans.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures::future::BoxFuture;
use futures::{FutureExt as _, StreamExt as _, TryStreamExt as _};

use super::reader::{ReaderSettings, Readers};
use super::{Budget, DecodePool, FetchError, Reservation};
use crate::cache::{ChunkCache, ChunkKey, Claim, Flight, Flights, JustRead};
use crate::format::ArrayMeta;
use crate::metrics::Metrics;
use crate::model::{ChunkCoord, ChunkData, Version};
use crate::plan::{Extent, ObjectFacts, ReadPlan, coalesce};
use crate::store::{Bucket, ObjectInfo, StoreError};
use crate::tensor::{Tensor, assemble};

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

/// What one read brought: each chunk decoded, and the description of the object it belongs to.
#[derive(Debug)]
struct ReadResult {
    chunks: HashMap<ChunkCoord, ChunkData>,
    info: Option<ObjectInfo>,
}

/// What a claim found.
enum Kept {
    /// The chunk, at the version that was planned.
    Chunk(ChunkData),
    /// A read that told the version.
    Read(Arc<ReadResult>),
}

type ReadAnswer = Result<Arc<ReadResult>, FetchError>;

/// An assembled answer, with what reading taught.
#[derive(Debug)]
pub struct Fetched {
    /// The elements.
    pub tensor: Tensor,
    /// Per object of the plan: its description where reading it told; `None` for an object found absent.
    pub learned: HashMap<usize, Option<ObjectInfo>>,
    /// Bytes in flight, held until the answer has left.
    pub reservation: Reservation,
}

/// Runs plans against buckets. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Fetcher {
    cache: ChunkCache,
    flights: Flights<ChunkKey, ReadAnswer>,
    just_read: JustRead<Arc<ReadResult>>,
    pool: DecodePool,
    budget: Budget,
    readers: Readers,
    settings: FetcherSettings,
    metrics: Metrics,
}

/// A chunk to be read.
#[derive(Debug, Clone)]
struct Wanted {
    key: ChunkKey,
    object: usize,
    range: std::ops::Range<u64>,
    whole: bool,
    shape: Vec<u64>,
}

impl Fetcher {
    /// An executor with these parts.
    pub fn new(
        cache: ChunkCache,
        pool: DecodePool,
        budget: Budget,
        settings: FetcherSettings,
        metrics: Metrics,
    ) -> Self {
        let FetcherSettings { store_concurrency, gap_bytes, .. } = settings;
        Self {
            readers: Readers::new(ReaderSettings { store_concurrency, gap_bytes }, metrics.clone()),
            cache,
            flights: Flights::default(),
            just_read: JustRead::new(),
            pool,
            budget,
            settings,
            metrics,
        }
    }

    /// Forgets reads of an object whose version they were to tell, because it was written through this gateway.
    pub fn invalidate(&self, bucket: &str, object: &str) {
        self.just_read.forget();
        self.flights.forget(|key| key.version.is_none() && *key.bucket == *bucket && *key.object == *object);
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

    /// Whether each chunk of a plan is in the cache. Absent chunks and unknown versions are not.
    pub fn cached(&self, bucket: &Bucket, array: &ArrayMeta, plan: &ReadPlan) -> Vec<bool> {
        let codec = array.codec.fingerprint();
        plan.chunks
            .iter()
            .map(|chunk| {
                chunk.extent.as_ref().is_some_and(|extent| {
                    let key = chunk_key(bucket, plan, extent, &chunk.coord, codec);
                    key.version.is_some() && self.cache.contains(&key)
                })
            })
            .collect()
    }

    /// Reads, decodes and assembles a plan for `principal`, in whose turn it waits for memory. `kept` says which axes
    /// the answer keeps.
    ///
    /// # Errors
    /// [`FetchError`]; [`FetchError::is_changed`] when planning again may help.
    pub async fn run(
        &self,
        principal: &str,
        bucket: &Bucket,
        array: &Arc<ArrayMeta>,
        plan: Arc<ReadPlan>,
        kept: Vec<bool>,
    ) -> Result<Fetched, FetchError> {
        let reservation = self.budget.reserve(principal, self.memory_bytes(array, &plan)).await?;
        let codec = array.codec.fingerprint();
        let wanted: Vec<(usize, Wanted)> = plan
            .chunks
            .iter()
            .enumerate()
            .filter_map(|(i, chunk)| {
                let extent = chunk.extent.as_ref()?;
                let wanted = Wanted {
                    key: chunk_key(bucket, &plan, extent, &chunk.coord, codec),
                    object: extent.object,
                    range: extent.range.clone(),
                    whole: extent.whole,
                    shape: array.decoded_shape(&chunk.coord),
                };
                Some((i, wanted))
            })
            .collect();
        let keys: Vec<ChunkKey> = wanted.iter().map(|(_, wanted)| wanted.key.clone()).collect();
        let claims = self.flights.claim(
            &keys,
            |key| match key.version {
                Some(_) => self.cache.get(key).map(Kept::Chunk),
                None => self.just_read.get(key).map(Kept::Read),
            },
            |missing| {
                let missing: Vec<(usize, &Wanted)> = missing.iter().map(|&i| (i, &wanted[i].1)).collect();
                self.reads(bucket, array, &plan, &missing)
            },
        );

        let mut chunks: Vec<Option<ChunkData>> = vec![None; plan.chunks.len()];
        let mut learned = HashMap::new();
        let mut waiting: Vec<(usize, &Wanted, Flight<ReadAnswer>)> = Vec::new();
        for ((i, wanted), claim) in wanted.iter().zip(claims) {
            match claim {
                Claim::Found(Kept::Chunk(data)) => chunks[*i] = Some(data),
                Claim::Found(Kept::Read(result)) => {
                    chunks[*i] = result.chunks.get(&wanted.key.chunk).cloned();
                    learned.insert(wanted.object, result.info.clone());
                }
                Claim::InFlight(flight) => waiting.push((*i, wanted, flight)),
            }
        }
        // One waiter a read, not one a chunk: a shared future wakes every clone.
        type Parts<'a> = Vec<(usize, &'a Wanted)>;
        let mut answers: Vec<(Flight<ReadAnswer>, Parts<'_>)> = Vec::new();
        for (i, wanted, flight) in waiting {
            match answers.iter_mut().rev().find(|(known, _)| known.ptr_eq(&flight)) {
                Some((_, parts)) => parts.push((i, wanted)),
                None => answers.push((flight, vec![(i, wanted)])),
            }
        }
        let mut arriving: futures::stream::FuturesUnordered<_> =
            answers.into_iter().map(|(flight, parts)| flight.map(move |answer| (answer, parts))).collect();
        while let Some((answer, parts)) = arriving.next().await {
            let result = answer?;
            for (i, wanted) in parts {
                chunks[i] = result.chunks.get(&wanted.key.chunk).cloned();
                if wanted.key.version.is_none() {
                    learned.insert(wanted.object, result.info.clone());
                }
            }
        }
        drop(arriving);
        let array = Arc::clone(array);
        let tensor = self.pool.run(move || assemble(&array, &plan, &kept, &chunks)).await??;
        Ok(Fetched { tensor, learned, reservation })
    }

    /// What a plan may hold in memory at once: its answer, and its chunks stored and decoded.
    fn memory_bytes(&self, array: &ArrayMeta, plan: &ReadPlan) -> u64 {
        let decoded = array.chunk_bytes().unwrap_or(64 << 10);
        let chunks: u64 = plan.chunks.iter().filter(|chunk| chunk.extent.is_some()).count() as u64;
        plan.answer_bytes().saturating_add(chunks.saturating_mul(decoded))
    }

    /// The reads for `missing` (positions with their chunks), each with the positions that it serves.
    fn reads(
        &self,
        bucket: &Bucket,
        array: &Arc<ArrayMeta>,
        plan: &Arc<ReadPlan>,
        missing: &[(usize, &Wanted)],
    ) -> Vec<(Vec<usize>, BoxFuture<'static, ReadAnswer>)> {
        let mut reads = Vec::new();
        let gap_bytes = self.gap_bytes(bucket);
        // Chunks are ordered by object.
        for of_object in missing.chunk_by(|a, b| a.1.object == b.1.object) {
            let ranges: Vec<_> = of_object.iter().map(|(_, wanted)| wanted.range.clone()).collect();
            for read in coalesce(&ranges, gap_bytes, self.settings.read_bytes) {
                let served = read.parts.iter().map(|&part| of_object[part].0).collect();
                let parts: Vec<Wanted> = read.parts.iter().map(|&part| of_object[part].1.clone()).collect();
                let object = &plan.objects[of_object[0].1.object];
                let version = match &object.facts {
                    ObjectFacts::Present { version, .. } => Some(version.clone()),
                    ObjectFacts::Absent | ObjectFacts::LearnOnRead => None,
                };
                let task = ReadTask {
                    fetcher: self.clone(),
                    bucket: bucket.clone(),
                    array: Arc::clone(array),
                    key: Arc::clone(&object.key),
                    version,
                    range: read.range,
                    parts,
                };
                reads.push((served, task.run().boxed()));
            }
        }
        reads
    }
}

fn chunk_key(bucket: &Bucket, plan: &ReadPlan, extent: &Extent, chunk: &ChunkCoord, codec: [u8; 16]) -> ChunkKey {
    let object = &plan.objects[extent.object];
    let version = match &object.facts {
        ObjectFacts::Present { version, .. } => Some(version.clone()),
        ObjectFacts::Absent | ObjectFacts::LearnOnRead => None,
    };
    ChunkKey {
        bucket: Arc::clone(&bucket.name),
        object: Arc::clone(&object.key),
        version,
        start: extent.range.start,
        chunk: chunk.clone(),
        codec,
    }
}

/// Chunks of one read that are queued for decoding at once: enough to keep the pool busy, few enough that a request
/// that is given up leaves little behind.
const DECODES_AT_ONCE: usize = 16;

/// Bound of a configured read time: an instant must be able to hold its end.
const LONGEST_READ: Duration = Duration::from_secs(24 * 3600);

/// One ranged read and the decoding of what it brings.
struct ReadTask {
    fetcher: Fetcher,
    bucket: Bucket,
    array: Arc<ArrayMeta>,
    key: Arc<str>,
    version: Option<Version>,
    range: std::ops::Range<u64>,
    parts: Vec<Wanted>,
}

impl ReadTask {
    async fn run(self) -> ReadAnswer {
        let moment = self.fetcher.just_read.moment();
        let fetched = match self.read().await {
            Ok(Some(fetched)) => fetched,
            // Only a read that was to learn the version may find nothing: a known version has gone.
            Ok(None) => return Ok(self.keep(moment, ReadResult { chunks: HashMap::new(), info: None })),
            Err(error) => return Err(error),
        };
        let (info, body) = fetched;
        let decoding: Vec<_> = self.parts.iter().map(|part| self.decode(part, &info, &body)).collect();
        let decoded: Vec<ChunkData> = futures::stream::iter(decoding).buffered(DECODES_AT_ONCE).try_collect().await?;
        let mut chunks = HashMap::with_capacity(decoded.len());
        for (part, data) in self.parts.iter().zip(decoded) {
            let key = ChunkKey { version: Some(info.version.clone()), ..part.key.clone() };
            if info.settled {
                self.fetcher.cache.insert(key, data.clone());
            }
            chunks.insert(part.key.chunk.clone(), data);
        }
        Ok(self.keep(moment, ReadResult { chunks, info: Some(info) }))
    }

    /// Keeps a result for a moment where it told a version, so that who planned before knowing it finds it.
    fn keep(&self, moment: u64, result: ReadResult) -> Arc<ReadResult> {
        let result = Arc::new(result);
        if self.version.is_none() && result.info.as_ref().is_none_or(|info| info.settled) {
            for part in &self.parts {
                let read = Arc::clone(&result);
                self.fetcher.just_read.keep(moment, self.bucket.freshness, part.key.clone(), read);
            }
        }
        result
    }

    /// The bytes of `self.range`; fewer only when a whole object of unknown size ends.
    async fn read(&self) -> Result<Option<(ObjectInfo, Bytes)>, FetchError> {
        if self.range.is_empty() {
            // A chunk of no bytes: nothing to ask, and its codecs will judge it.
            let Some(version) = &self.version else { return Ok(None) };
            let info = ObjectInfo {
                size: 0,
                version: version.clone(),
                last_modified: std::time::UNIX_EPOCH,
                settled: true,
                content_type: None,
                headers: std::collections::BTreeMap::new(),
            };
            return Ok(Some((info, Bytes::new())));
        }
        let reader = self.fetcher.readers.of(&self.bucket);
        let deadline = Instant::now() + self.fetcher.settings.read_time.min(LONGEST_READ);
        match reader.read(&self.key, self.range.clone(), self.version.as_ref(), deadline).await {
            Ok(fetched) => Ok(Some((fetched.info, fetched.bytes))),
            Err(StoreError::NotFound { key }) => {
                if self.version.is_some() {
                    return Err(FetchError::Store(Arc::new(StoreError::Changed { key })));
                }
                Ok(None)
            }
            Err(StoreError::RangeNotSatisfiable { size, .. }) => {
                let part = &self.parts[0];
                let expected = part.range.end - part.range.start;
                let got = size.saturating_sub(part.range.start).min(expected);
                Err(FetchError::Short { chunk: part.key.chunk.clone(), key: Arc::clone(&self.key), got, expected })
            }
            Err(error) => Err(FetchError::Store(Arc::new(error))),
        }
    }

    async fn decode(&self, part: &Wanted, info: &ObjectInfo, body: &Bytes) -> Result<ChunkData, FetchError> {
        let start = (part.range.start - self.range.start) as usize;
        let expected = part.range.end - part.range.start;
        let end = start.saturating_add(expected as usize).min(body.len());
        let stored = body.slice(start.min(body.len())..end);
        let short = (stored.len() as u64) < expected;
        if part.whole && self.version.is_none() {
            // The range ends one byte past the largest honest chunk.
            if !short {
                return Err(FetchError::Bloated { key: Arc::clone(&self.key), size: info.size });
            }
            if stored.len() as u64 != info.size {
                let (got, expected) = (stored.len() as u64, info.size);
                return Err(FetchError::Short {
                    chunk: part.key.chunk.clone(),
                    key: Arc::clone(&self.key),
                    got,
                    expected,
                });
            }
        } else if short {
            let got = stored.len() as u64;
            return Err(FetchError::Short { chunk: part.key.chunk.clone(), key: Arc::clone(&self.key), got, expected });
        }
        let (array, shape) = (Arc::clone(&self.array), part.shape.clone());
        // A raw chunk that is a slice of a joined read would keep all of the read in memory.
        let alone = stored.len() == body.len();
        let decode = move || {
            let stored = if alone || !array.codec.is_raw() { stored } else { Bytes::copy_from_slice(&stored) };
            array.codec.decode(stored, &shape)
        };
        let data = self.fetcher.pool.run(decode).await?;
        self.fetcher.metrics.chunks_decoded(1);
        data.map_err(|source| FetchError::Decode {
            chunk: part.key.chunk.clone(),
            key: Arc::clone(&self.key),
            source: Arc::new(source),
        })
    }
}
