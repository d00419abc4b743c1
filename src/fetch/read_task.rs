//! One ranged read, and the decoding of the chunks that it brings.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use futures::stream::{StreamExt as _, TryStreamExt as _};
use tokio_util::sync::CancellationToken;

use super::{FetchError, Fetcher};
use crate::cache::{ChunkKey, ChunkSource};
use crate::format::ArrayMeta;
use crate::model::{ByteRange, ChunkCoord, ChunkData};
use crate::store::{Bucket, ObjectInfo, StoreError};

/// What one read brought: each chunk decoded, and the description of the object it belongs to (`None`: there is none).
#[derive(Debug)]
pub(super) struct ReadResult {
    pub(super) chunks: HashMap<ChunkCoord, Arc<ChunkData>>,
    pub(super) info: Option<ObjectInfo>,
}

/// What all who wait for a read are told.
pub(super) type ReadAnswer = Result<Arc<ReadResult>, FetchError>;

/// A chunk to be read.
#[derive(Debug, Clone)]
pub(super) struct Part {
    pub(super) key: ChunkKey,
    /// Its bytes in the object.
    pub(super) range: std::ops::Range<u64>,
    /// Whether it is the whole object.
    pub(super) whole: bool,
}

/// One ranged read of one object.
pub(super) struct ReadTask {
    pub(super) fetcher: Fetcher,
    pub(super) bucket: Bucket,
    pub(super) array: Arc<ArrayMeta>,
    pub(super) range: std::ops::Range<u64>,
    /// Never empty; all of one source.
    pub(super) parts: Vec<Part>,
}

/// Stored bytes that one task of the pool decodes at least: less is not worth handing over.
const TASK_BYTES: u64 = 64 << 10;

impl ReadTask {
    fn source(&self) -> &ChunkSource {
        &self.parts[0].key.source
    }

    fn key(&self) -> &Arc<str> {
        self.source().object()
    }

    pub(super) async fn run(self) -> ReadAnswer {
        let moment = self.fetcher.just_read.moment();
        let permits = self.fetcher.permits(&self.bucket);
        // The semaphore is never closed.
        let permit = permits.acquire().await.map_err(|_| FetchError::Busy)?;
        let fetched = match self.read().await {
            Ok(Some(fetched)) => fetched,
            // Only a read that was to learn the version may find nothing: a known version has gone.
            Ok(None) => return Ok(self.keep(moment, ReadResult { chunks: HashMap::new(), info: None })),
            Err(error) => return Err(error),
        };
        drop(permit);
        let (info, body) = fetched;
        self.check_size(&info)?;
        let decoded = self.decode(&info, &body).await?;
        let chunks = if info.settled { self.cache(&info, decoded) } else { decoded };
        let chunks = self.parts.iter().map(|part| part.key.chunk.clone()).zip(chunks).collect();
        Ok(self.keep(moment, ReadResult { chunks, info: Some(info) }))
    }

    /// Puts decoded chunks into the cache.
    fn cache(&self, info: &ObjectInfo, decoded: Vec<Arc<ChunkData>>) -> Vec<Arc<ChunkData>> {
        if self.fetcher.cache.capacity_bytes() == 0 {
            return decoded;
        }
        let known = self.source().version() == Some(&info.version);
        let source = if known { Arc::clone(&self.parts[0].key.source) } else { self.source().at(&info.version).into() };
        for (part, data) in self.parts.iter().zip(&decoded) {
            let key = ChunkKey { source: Arc::clone(&source), start: part.key.start, chunk: part.key.chunk.clone() };
            self.fetcher.cache.insert(key, Arc::clone(data));
        }
        decoded
    }

    /// Keeps a result for a moment where it told a version, so that who planned before knowing it finds it.
    fn keep(&self, moment: u64, result: ReadResult) -> Arc<ReadResult> {
        let result = Arc::new(result);
        if self.source().version().is_none() && result.info.as_ref().is_none_or(|info| info.settled) {
            for part in &self.parts {
                let read = Arc::clone(&result);
                self.fetcher.just_read.keep(moment, self.bucket.freshness, part.key.clone(), read);
            }
        }
        result
    }

    /// The bytes of `self.range`; fewer only when a whole object of unknown size ends.
    async fn read(&self) -> Result<Option<(ObjectInfo, Bytes)>, FetchError> {
        let version = self.source().version();
        if self.range.is_empty() {
            // A chunk of no bytes: nothing to ask, and its codecs will judge it.
            let Some(version) = version else { return Ok(None) };
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
        let range = ByteRange::Bounded(self.range.clone());
        match self.bucket.store.get(self.key(), range, version).await {
            Ok(fetched) => Ok(Some((fetched.info, fetched.bytes))),
            Err(StoreError::NotFound { key }) => {
                if version.is_some() {
                    return Err(FetchError::Store(Arc::new(StoreError::Changed { key })));
                }
                Ok(None)
            }
            Err(StoreError::RangeNotSatisfiable { size, .. }) => {
                let part = &self.parts[0];
                let expected = part.range.end - part.range.start;
                let got = size.saturating_sub(part.range.start).min(expected);
                Err(self.short(part, got, expected))
            }
            Err(error) => Err(FetchError::Store(Arc::new(error))),
        }
    }

    /// Of chunks that are read in blocks, checks what could not be checked when they were planned: the size of an object
    /// of which nothing was known.
    fn check_size(&self, info: &ObjectInfo) -> Result<(), FetchError> {
        match self.array.cut_chunk_bytes() {
            Some(expected) if self.source().version().is_none() && info.size != expected => {
                Err(FetchError::Length { key: Arc::clone(self.key()), size: info.size, expected })
            }
            Some(_) | None => Ok(()),
        }
    }

    /// The chunks, in the order of the parts, decoded by as many tasks as the pool has threads.
    async fn decode(&self, info: &ObjectInfo, body: &Bytes) -> Result<Vec<Arc<ChunkData>>, FetchError> {
        let stored: Vec<Bytes> =
            self.parts.iter().map(|part| self.stored(part, info, body)).collect::<Result<_, _>>()?;
        let bytes = stored.iter().map(|stored| stored.len() as u64).sum::<u64>();
        let tasks = self.fetcher.pool.threads().min((bytes / TASK_BYTES) as usize).clamp(1, stored.len());
        let each = stored.len().div_ceil(tasks);
        // A request that is given up leaves no more behind than the chunk that is being decoded.
        let token = CancellationToken::new();
        let _given_up = token.clone().drop_guard();
        let tasks: Vec<_> = self
            .parts
            .chunks(each)
            .zip(stored.chunks(each))
            .map(|(parts, stored)| {
                let parts: Vec<(ChunkCoord, Bytes)> =
                    parts.iter().zip(stored).map(|(part, stored)| (part.key.chunk.clone(), stored.clone())).collect();
                let array = Arc::clone(&self.array);
                let (key, token) = (Arc::clone(self.key()), token.clone());
                // A raw chunk that is a slice of a joined read would keep all of the read in memory.
                let alone = parts.len() == 1 && parts[0].1.len() == body.len();
                let copied = array.codec.is_raw() && !alone && self.fetcher.cache.capacity_bytes() > 0;
                let metrics = self.fetcher.metrics.clone();
                let work = move || {
                    let mut decoded = Vec::with_capacity(parts.len());
                    for (chunk, stored) in parts {
                        if token.is_cancelled() {
                            break;
                        }
                        metrics.chunks_decoded(1);
                        let stored = if copied { Bytes::copy_from_slice(&stored) } else { stored };
                        let data = array.codec.decode(stored, &array.decoded_shape(&chunk)).map_err(|source| {
                            FetchError::Decode { chunk, key: Arc::clone(&key), source: Arc::new(source) }
                        })?;
                        decoded.push(Arc::new(data));
                    }
                    Ok::<_, FetchError>(decoded)
                };
                let pool = self.fetcher.pool.clone();
                async move { pool.run(work).await? }
            })
            .collect();
        let most = tasks.len();
        futures::stream::iter(tasks).buffered(most).try_concat().await
    }

    /// The stored bytes of one chunk, checked for their length.
    fn stored(&self, part: &Part, info: &ObjectInfo, body: &Bytes) -> Result<Bytes, FetchError> {
        let start = (part.range.start - self.range.start) as usize;
        let expected = part.range.end - part.range.start;
        let end = start.saturating_add(expected as usize).min(body.len());
        let stored = body.slice(start.min(body.len())..end);
        let got = stored.len() as u64;
        let learning = part.whole && self.source().version().is_none();
        // The range of an object of unknown size ends one byte past the largest honest chunk.
        if learning && got >= expected {
            return Err(FetchError::Bloated { key: Arc::clone(self.key()), size: info.size });
        }
        let expected = if learning { info.size } else { expected };
        if got != expected {
            return Err(self.short(part, got, expected));
        }
        Ok(stored)
    }

    fn short(&self, part: &Part, got: u64, expected: u64) -> FetchError {
        FetchError::Short { chunk: part.key.chunk.clone(), key: Arc::clone(self.key()), got, expected }
    }
}
