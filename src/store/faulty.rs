//! A test double: a store that fails on demand, the way real ones do.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use futures::{StreamExt, stream};

use super::{Fetched, ListPage, ListRequest, ObjectInfo, ObjectStream, PutOptions, Store, StoreError, UploadStream};
use crate::model::{ByteRange, Version};

/// What goes wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fault {
    /// The body ends after so many bytes of it.
    TruncateAfter(u64),
    /// The store answers this status: 403 denied, 404 absent, 412 changed, 503 throttled, others failed.
    Status(u16),
    /// The connection breaks before an answer.
    Reset,
    /// No answer ever comes.
    Hang,
    /// The answer comes so much later.
    Latency(Duration),
    /// The object is another version than before: a read with a condition finds it changed, one without is told
    /// a new version of the same bytes.
    Changed,
    /// All bits of the byte at this offset of the object are flipped, under the same version.
    FlipByte(u64),
}

/// A call that reached the store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Call {
    /// `head`, `get`, `list`, `put` or `delete`; a stream is a `get`.
    pub operation: &'static str,
    /// The key, or a listing's prefix.
    pub key: String,
    /// The range of a `get`.
    pub range: Option<ByteRange>,
    /// The version that a `get` asks for.
    pub if_match: Option<Version>,
}

#[derive(Debug)]
struct Rule {
    key_part: String,
    operation: Option<&'static str>,
    from: usize,
    times: usize,
    seen: usize,
    fault: Fault,
}

/// A store that passes everything on to another, except where a fault was asked for. Faults can be added while it
/// serves; the first that matches a call decides.
#[derive(Debug, Clone)]
pub struct FaultyStore {
    inner: Arc<dyn Store>,
    rules: Arc<Mutex<Vec<Rule>>>,
    calls: Arc<Mutex<Vec<Call>>>,
}

impl FaultyStore {
    /// A store without faults yet.
    pub fn new(inner: Arc<dyn Store>) -> Self {
        Self { inner, rules: Arc::default(), calls: Arc::default() }
    }

    /// Every call on a key that contains `key_part` meets this fault.
    pub fn always(&self, key_part: &str, fault: Fault) {
        self.add(key_part, None, 0, usize::MAX, fault);
    }

    /// The next `times` calls on a key that contains `key_part` meet this fault.
    pub fn next(&self, key_part: &str, times: usize, fault: Fault) {
        self.add(key_part, None, 0, times, fault);
    }

    /// Only the `nth` call (from 0) from now on, on a key that contains `key_part`, meets this fault.
    pub fn nth(&self, key_part: &str, nth: usize, fault: Fault) {
        self.add(key_part, None, nth, 1, fault);
    }

    /// Only this operation (`head`, `get`, `list`, `put`, `delete`), from its `nth` call on, meets this fault.
    pub fn operation(&self, operation: &'static str, key_part: &str, nth: usize, fault: Fault) {
        self.add(key_part, Some(operation), nth, usize::MAX, fault);
    }

    /// No fault any more.
    pub fn heal(&self) {
        lock(&self.rules).clear();
    }

    /// Every call so far, in the order of arrival.
    pub fn calls(&self) -> Vec<Call> {
        lock(&self.calls).clone()
    }

    /// Forgets the calls so far.
    pub fn forget_calls(&self) {
        lock(&self.calls).clear();
    }

    fn add(&self, key_part: &str, operation: Option<&'static str>, from: usize, times: usize, fault: Fault) {
        let rule = Rule { key_part: key_part.into(), operation, from, times, seen: 0, fault };
        lock(&self.rules).push(rule);
    }

    /// Notes a call, waits as long as a fault says, and returns what is left of the fault to apply.
    async fn arrive(
        &self,
        operation: &'static str,
        key: &str,
        asked: Option<(ByteRange, Option<&Version>)>,
    ) -> Result<Option<Fault>, StoreError> {
        let (range, if_match) = asked.map_or((None, None), |(range, if_match)| (Some(range), if_match.cloned()));
        lock(&self.calls).push(Call { operation, key: key.into(), range, if_match });
        let fault = lock(&self.rules).iter_mut().find_map(|rule| rule.meets(operation, key));
        match fault {
            Some(Fault::Status(status)) => Err(status_error(status, operation, key)),
            Some(Fault::Reset) => Err(StoreError::Interrupted {
                operation,
                key: key.to_owned(),
                reason: "connection reset (a test double says so)".into(),
            }),
            Some(Fault::Hang) => std::future::pending().await,
            Some(Fault::Latency(time)) => {
                tokio::time::sleep(time).await;
                Ok(None)
            }
            Some(fault @ (Fault::TruncateAfter(_) | Fault::Changed | Fault::FlipByte(_))) => Ok(Some(fault)),
            None => Ok(None),
        }
    }
}

impl Rule {
    fn meets(&mut self, operation: &str, key: &str) -> Option<Fault> {
        if !key.contains(&self.key_part) || self.operation.is_some_and(|only| only != operation) {
            return None;
        }
        let index = self.seen;
        self.seen += 1;
        (index >= self.from && index - self.from < self.times).then(|| self.fault.clone())
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn status_error(status: u16, operation: &'static str, key: &str) -> StoreError {
    let key = key.to_owned();
    match status {
        403 => StoreError::Denied { operation, key, reason: "AccessDenied (a test double says so)".into() },
        404 => StoreError::NotFound { key },
        412 => StoreError::Changed { key },
        503 => StoreError::Throttled,
        504 => StoreError::Timeout { key },
        other => StoreError::Failed { operation, key, reason: format!("status {other} (a test double says so)") },
    }
}

fn changed(info: ObjectInfo) -> ObjectInfo {
    ObjectInfo { version: Version::new(&format!("{}-changed", info.version)), ..info }
}

/// Flips the byte at `offset` of the object when it lies in a piece that begins at `start`.
fn flip(bytes: Bytes, start: u64, offset: u64) -> Bytes {
    let Some(index) = offset.checked_sub(start).and_then(|index| usize::try_from(index).ok()) else { return bytes };
    let mut bytes = bytes.to_vec();
    if let Some(byte) = bytes.get_mut(index) {
        *byte ^= 0xff;
    }
    bytes.into()
}

#[async_trait::async_trait]
impl Store for FaultyStore {
    async fn head(&self, key: &str) -> Result<ObjectInfo, StoreError> {
        let fault = self.arrive("head", key, None).await?;
        let info = self.inner.head(key).await?;
        Ok(if fault == Some(Fault::Changed) { changed(info) } else { info })
    }

    async fn get(&self, key: &str, range: ByteRange, if_match: Option<&Version>) -> Result<Fetched, StoreError> {
        let fault = self.arrive("get", key, Some((range.clone(), if_match))).await?;
        if fault == Some(Fault::Changed) && if_match.is_some() {
            return Err(StoreError::Changed { key: key.into() });
        }
        let fetched = self.inner.get(key, range, if_match).await?;
        let expected = fetched.bytes.len() as u64;
        match fault {
            Some(Fault::TruncateAfter(got)) if got < expected => {
                Err(StoreError::Truncated { key: key.into(), got, expected })
            }
            Some(Fault::FlipByte(offset)) => {
                Ok(Fetched { bytes: flip(fetched.bytes, fetched.start, offset), ..fetched })
            }
            Some(Fault::Changed) => Ok(Fetched { info: changed(fetched.info), ..fetched }),
            // The body ends before the fault; the others were met on arrival.
            Some(Fault::TruncateAfter(_) | Fault::Status(_) | Fault::Reset | Fault::Hang | Fault::Latency(_))
            | None => Ok(fetched),
        }
    }

    async fn stream(
        &self,
        key: &str,
        range: ByteRange,
        if_match: Option<&Version>,
    ) -> Result<ObjectStream, StoreError> {
        let fault = self.arrive("get", key, Some((range.clone(), if_match))).await?;
        if fault == Some(Fault::Changed) && if_match.is_some() {
            return Err(StoreError::Changed { key: key.into() });
        }
        let stream = self.inner.stream(key, range, if_match).await?;
        match fault {
            Some(Fault::TruncateAfter(got)) if got < stream.len => {
                let error = StoreError::Truncated { key: key.into(), got, expected: stream.len };
                let body = first_bytes(stream.body, got).chain(stream::once(async { Err(error) })).boxed();
                Ok(ObjectStream { body, ..stream })
            }
            Some(Fault::FlipByte(offset)) => {
                let mut position = stream.start;
                let body = stream.body.map(move |piece| {
                    let piece = piece?;
                    let start = position;
                    position += piece.len() as u64;
                    Ok(flip(piece, start, offset))
                });
                Ok(ObjectStream { body: body.boxed(), ..stream })
            }
            Some(Fault::Changed) => Ok(ObjectStream { info: changed(stream.info), ..stream }),
            Some(Fault::TruncateAfter(_) | Fault::Status(_) | Fault::Reset | Fault::Hang | Fault::Latency(_))
            | None => Ok(stream),
        }
    }

    async fn list(&self, request: &ListRequest) -> Result<ListPage, StoreError> {
        self.arrive("list", &request.prefix, None).await?;
        self.inner.list(request).await
    }

    async fn put(&self, key: &str, body: UploadStream, options: PutOptions) -> Result<ObjectInfo, StoreError> {
        self.arrive("put", key, None).await?;
        self.inner.put(key, body, options).await
    }

    async fn delete(&self, key: &str) -> Result<(), StoreError> {
        self.arrive("delete", key, None).await?;
        self.inner.delete(key).await
    }

    async fn ready(&self) -> Result<(), StoreError> {
        self.inner.ready().await
    }

    fn is_local(&self) -> bool {
        self.inner.is_local()
    }
}

fn first_bytes(
    body: stream::BoxStream<'static, Result<Bytes, StoreError>>,
    count: u64,
) -> impl stream::Stream<Item = Result<Bytes, StoreError>> + Send {
    body.scan(count, |left, piece| {
        std::future::ready((*left > 0).then(|| {
            let mut piece = piece?;
            piece.truncate(usize::try_from(*left).unwrap_or(usize::MAX));
            *left -= piece.len() as u64;
            Ok(piece)
        }))
    })
}

#[cfg(test)]
mod tests {
    use futures::TryStreamExt;

    use super::*;
    use crate::store::memory_store;

    async fn store_with(bytes: &'static [u8]) -> FaultyStore {
        let inner = memory_store();
        inner.put("k", stream::iter([Ok(bytes.into())]).boxed(), PutOptions::default()).await.unwrap();
        FaultyStore::new(inner)
    }

    #[tokio::test]
    async fn only_the_nth_call_fails() {
        let store = store_with(b"abc").await;
        store.nth("k", 1, Fault::Status(500));
        assert!(store.get("k", ByteRange::Whole, None).await.is_ok());
        assert!(matches!(store.get("k", ByteRange::Whole, None).await, Err(StoreError::Failed { .. })));
        assert!(store.get("k", ByteRange::Whole, None).await.is_ok());
        assert_eq!(store.calls().len(), 3);
    }

    #[tokio::test]
    async fn a_truncated_stream_ends_with_an_error_after_its_bytes() {
        let store = store_with(b"abcdef").await;
        store.always("k", Fault::TruncateAfter(4));
        let mut body = store.stream("k", ByteRange::Whole, None).await.unwrap().body;
        assert_eq!(body.try_next().await.unwrap().unwrap(), "abcd");
        assert!(matches!(body.try_next().await, Err(StoreError::Truncated { got: 4, expected: 6, .. })));
    }

    #[tokio::test]
    async fn the_flipped_byte_is_counted_from_the_start_of_the_object() {
        let store = store_with(b"abcdef").await;
        store.always("k", Fault::FlipByte(3));
        let fetched = store.get("k", ByteRange::Bounded(2..5), None).await.unwrap();
        assert_eq!(fetched.bytes[..], [b'c', b'd' ^ 0xff, b'e']);
        let fetched = store.get("k", ByteRange::Bounded(4..6), None).await.unwrap();
        assert_eq!(fetched.bytes, "ef");
    }

    #[tokio::test]
    async fn a_changed_object_fails_only_conditional_reads() {
        let store = store_with(b"abc").await;
        let version = store.head("k").await.unwrap().version;
        store.always("k", Fault::Changed);
        assert!(matches!(store.get("k", ByteRange::Whole, Some(&version)).await, Err(StoreError::Changed { .. })));
        assert_ne!(store.get("k", ByteRange::Whole, None).await.unwrap().info.version, version);
    }
}
