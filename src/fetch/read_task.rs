//! One ranged read, and the decoding of the chunks that it brings.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures::stream::StreamExt as _;
use tokio_util::sync::CancellationToken;

use super::fetcher::Had;
use super::{FetchError, Fetcher};
use crate::cache::{ChunkKey, ChunkSource, Span};
use crate::format::ArrayMeta;
use crate::model::{ChunkCoord, ChunkData, Version};
use crate::store::{Bucket, ObjectInfo, StoreError};

/// What one read brought: each chunk decoded, and the description of the object it belongs to (`None`: there is none).
#[derive(Debug)]
pub(super) struct ReadResult {
    /// By their planned extents. A chunk that is broken is so alone: its neighbours in the read are not.
    pub(super) chunks: HashMap<Range<u64>, Result<Had, FetchError>>,
    pub(super) info: Option<ObjectInfo>,
}

impl ReadResult {
    /// Whether none of its chunks is broken.
    fn is_sound(&self) -> bool {
        self.chunks.values().all(Result::is_ok)
    }
}

/// What all who wait for a read are told.
pub(super) type ReadAnswer = Result<Arc<ReadResult>, FetchError>;

/// A chunk to be read.
#[derive(Debug, Clone)]
pub(super) struct Part {
    pub(super) key: ChunkKey,
    pub(super) chunk: ChunkCoord,
    /// Its bytes in the object.
    pub(super) range: Range<u64>,
    /// Whether it is the whole object.
    pub(super) whole: bool,
    /// Whether it is decoded here; else its stored bytes are handed on.
    pub(super) decode: bool,
}

/// One ranged read of one object.
pub(super) struct ReadTask {
    pub(super) fetcher: Fetcher,
    pub(super) bucket: Bucket,
    pub(super) array: Arc<ArrayMeta>,
    /// Whether its chunks are offered to the cache.
    pub(super) cached: bool,
    /// The object's key.
    pub(super) key: Arc<str>,
    /// The version that it is read at; `None` where the read is to tell.
    pub(super) version: Option<Version>,
    pub(super) range: Range<u64>,
    /// Never empty; all of one source.
    pub(super) parts: Vec<Part>,
    /// What was read before of that range, at that version.
    pub(super) at_hand: Option<Span>,
}

/// Bound of a configured read time: an instant must be able to hold its end.
const LONGEST_READ: Duration = Duration::from_secs(24 * 3600);

/// Stored bytes that one task of the pool decodes at least, about 150 µs of zstd: the reads of a crop are decoded beside
/// each other anyway, and to hand over less costs more than it saves.
const TASK_BYTES: u64 = 256 << 10;

impl ReadTask {
    pub(super) async fn run(mut self) -> ReadAnswer {
        let moment = self.fetcher.just_read.moment();
        if let Some(Span { range, bytes, info }) = self.at_hand.take() {
            let result = self.chunks(info, &bytes).await?;
            if result.is_sound() {
                return Ok(self.keep(moment, result));
            }
            // What broke on its way here, or in memory, need not be broken in the store.
            self.fetcher.recent.forget(&self.parts[0].key.source(), range.start);
            self.range = self.extent();
        }
        let Some((info, body)) = self.read().await? else {
            // Only a read that was to learn the version may find nothing: a known version has gone.
            return Ok(self.keep(moment, ReadResult { chunks: HashMap::new(), info: None }));
        };
        let result = self.chunks(info, &body).await?;
        if let Some(info) = result.info.as_ref().filter(|_| result.is_sound()) {
            self.keep_bytes(info, &body);
        }
        Ok(self.keep(moment, result))
    }

    /// From the first byte of its chunks to the last.
    fn extent(&self) -> Range<u64> {
        let start = self.parts.iter().map(|part| part.range.start).min();
        let end = self.parts.iter().map(|part| part.range.end).max();
        start.unwrap_or(self.range.start)..end.unwrap_or(self.range.end)
    }

    /// The chunks in `body`, the bytes of `self.range`.
    async fn chunks(&self, info: ObjectInfo, body: &Bytes) -> Result<ReadResult, FetchError> {
        self.check_size(&info)?;
        let mut chunks = HashMap::with_capacity(self.parts.len());
        let mut stored = Vec::with_capacity(self.parts.len());
        for part in &self.parts {
            match self.stored(part, &info, body) {
                Ok(bytes) if part.decode => stored.push((part, bytes)),
                other => drop(chunks.insert(part.range.clone(), other.map(Had::Stored))),
            }
        }
        if !stored.is_empty() {
            let decoded = self.decode(&stored, body.len()).await;
            if info.settled && self.cached {
                self.cache(&info, &stored, &decoded);
            }
            let ranges = stored.iter().map(|(part, _)| part.range.clone());
            chunks.extend(ranges.zip(decoded.into_iter().map(|data| data.map(Had::Decoded))));
        }
        Ok(ReadResult { chunks, info: Some(info) })
    }

    /// Puts decoded chunks into the cache.
    fn cache(&self, info: &ObjectInfo, parts: &[(&Part, Bytes)], decoded: &[Result<Arc<ChunkData>, FetchError>]) {
        if self.fetcher.cache.capacity_bytes() == 0 {
            return;
        }
        let source = self.source(info);
        for ((part, _), data) in parts.iter().zip(decoded) {
            let Ok(data) = data else { continue };
            // Of a whole object the plan may have known only a bound.
            let range = if part.whole { 0..info.size } else { part.range.clone() };
            self.fetcher.cache.insert(ChunkKey::new(source, &range), Arc::clone(data));
        }
    }

    /// The source of what was read, by the version that was read.
    fn source(&self, info: &ObjectInfo) -> ChunkSource {
        match &self.version {
            Some(version) if *version == info.version => self.parts[0].key.source(),
            Some(_) | None => {
                let codec = self.array.codec.fingerprint();
                ChunkSource::new(&self.bucket.name, &self.key, Some(&info.version), codec)
            }
        }
    }

    /// Keeps what was read, as it is stored. A folder's files are in the page cache anyway.
    fn keep_bytes(&self, info: &ObjectInfo, bytes: &Bytes) {
        if self.cached && info.settled && !self.bucket.store.is_local() {
            let range = self.range.start..self.range.start + bytes.len() as u64;
            self.fetcher.recent.insert(self.source(info), Span { range, bytes: bytes.clone(), info: info.clone() });
        }
    }

    /// Keeps a result for a moment where it told a version, so that who planned before knowing it finds it.
    fn keep(&self, moment: u64, result: ReadResult) -> Arc<ReadResult> {
        let result = Arc::new(result);
        let sound = result.is_sound() && result.info.as_ref().is_none_or(|info| info.settled);
        if self.version.is_none() && sound {
            for part in &self.parts {
                let read = Arc::clone(&result);
                self.fetcher.just_read.keep(moment, self.bucket.freshness, part.key, read);
            }
        }
        result
    }

    /// The bytes of `self.range`; fewer only when a whole object of unknown size ends.
    async fn read(&self) -> Result<Option<(ObjectInfo, Bytes)>, FetchError> {
        let version = self.version.as_ref();
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
        let reader = self.fetcher.readers.of(&self.bucket);
        let deadline = Instant::now() + self.fetcher.settings.read_time.min(LONGEST_READ);
        match reader.read(&self.key, self.range.clone(), version, deadline).await {
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
            Some(expected) if self.version.is_none() && info.size != expected => {
                Err(FetchError::Length { key: Arc::clone(&self.key), size: info.size, expected })
            }
            Some(_) | None => Ok(()),
        }
    }

    /// Chunks from their stored bytes, decoded by as many tasks as the pool has threads. `read` is the length of what
    /// was read in all.
    async fn decode(&self, parts: &[(&Part, Bytes)], read: usize) -> Vec<Result<Arc<ChunkData>, FetchError>> {
        let bytes = parts.iter().map(|(_, stored)| stored.len() as u64).sum::<u64>();
        let tasks = self.fetcher.pool.threads().min((bytes / TASK_BYTES) as usize).clamp(1, parts.len());
        let each = parts.len().div_ceil(tasks);
        // A request that is given up leaves no more behind than the chunk that is being decoded.
        let token = CancellationToken::new();
        let _given_up = token.clone().drop_guard();
        let tasks: Vec<_> = parts
            .chunks(each)
            .map(|parts| {
                let parts: Vec<(ChunkCoord, Bytes)> =
                    parts.iter().map(|(part, stored)| (part.chunk.clone(), stored.clone())).collect();
                let array = Arc::clone(&self.array);
                let (key, token) = (Arc::clone(&self.key), token.clone());
                // A raw chunk that is a slice of a joined read would keep all of the read in memory.
                let alone = parts.len() == 1 && parts[0].1.len() == read;
                let copied = array.codec.is_raw() && !alone && self.cached && self.fetcher.cache.capacity_bytes() > 0;
                let metrics = self.fetcher.metrics.clone();
                let count = parts.len();
                let work = move || {
                    let decode = |(chunk, stored): (ChunkCoord, Bytes)| {
                        metrics.chunks_decoded(1);
                        let stored = if copied { Bytes::copy_from_slice(&stored) } else { stored };
                        let data = array.codec.decode(stored, &array.decoded_shape(&chunk));
                        data.map(Arc::new).map_err(|source| FetchError::Decode {
                            chunk,
                            key: Arc::clone(&key),
                            source: Arc::new(source),
                        })
                    };
                    let given_up = |chunk| if token.is_cancelled() { Err(FetchError::GivenUp) } else { decode(chunk) };
                    parts.into_iter().map(given_up).collect::<Vec<_>>()
                };
                let pool = self.fetcher.pool.clone();
                async move { pool.run(work).await.unwrap_or_else(|error| vec![Err(error); count]) }
            })
            .collect();
        let most = tasks.len();
        futures::stream::iter(tasks).buffered(most).concat().await
    }

    /// The stored bytes of one chunk, checked for their length.
    fn stored(&self, part: &Part, info: &ObjectInfo, body: &Bytes) -> Result<Bytes, FetchError> {
        let start = (part.range.start - self.range.start) as usize;
        let expected = part.range.end - part.range.start;
        let end = start.saturating_add(expected as usize).min(body.len());
        let stored = body.slice(start.min(body.len())..end);
        let got = stored.len() as u64;
        let learning = part.whole && self.version.is_none();
        // The range of an object of unknown size ends one byte past the largest honest chunk.
        if learning && got >= expected {
            return Err(FetchError::Bloated { key: Arc::clone(&self.key), size: info.size });
        }
        let expected = if learning { info.size } else { expected };
        if got != expected {
            return Err(self.short(part, got, expected));
        }
        Ok(stored)
    }

    fn short(&self, part: &Part, got: u64, expected: u64) -> FetchError {
        FetchError::Short { chunk: part.chunk.clone(), key: Arc::clone(&self.key), got, expected }
    }
}
