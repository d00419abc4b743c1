//! Counts what is asked of a store, and what comes back.

use std::sync::Arc;

use futures::StreamExt;

use super::{Fetched, ListPage, ListRequest, ObjectInfo, ObjectStream, PutOptions, Store, StoreError, UploadStream};
use crate::metrics::{Metrics, StoreMeter, StoreOperation};
use crate::model::{ByteRange, Version};

/// A store with a meter: requests by operation, bytes read, and failures that are the store's.
///
/// A `head` on a local store is a stat, which is not counted as a request. An absent object is no failure.
#[derive(Debug, Clone)]
pub struct MeteredStore {
    inner: Arc<dyn Store>,
    meter: StoreMeter,
}

impl MeteredStore {
    /// Counts under this bucket's name.
    pub fn new(inner: Arc<dyn Store>, metrics: &Metrics, bucket: &str) -> Self {
        Self { inner, meter: metrics.store_meter(bucket) }
    }

    fn noted<T>(&self, result: Result<T, StoreError>) -> Result<T, StoreError> {
        if let Err(error) = &result {
            note(&self.meter, error);
        }
        result
    }
}

fn note(meter: &StoreMeter, error: &StoreError) {
    if let Some(kind) = error.store_fault() {
        meter.failed(kind);
    }
}

#[async_trait::async_trait]
impl Store for MeteredStore {
    async fn head(&self, key: &str) -> Result<ObjectInfo, StoreError> {
        if !self.inner.is_local() {
            self.meter.requested(StoreOperation::Head);
        }
        self.noted(self.inner.head(key).await)
    }

    async fn get(&self, key: &str, range: ByteRange, if_match: Option<&Version>) -> Result<Fetched, StoreError> {
        self.meter.requested(StoreOperation::Get);
        let fetched = self.noted(self.inner.get(key, range, if_match).await)?;
        self.meter.read(fetched.bytes.len() as u64);
        Ok(fetched)
    }

    async fn get_once(&self, key: &str, range: ByteRange, if_match: Option<&Version>) -> Result<Fetched, StoreError> {
        self.meter.requested(StoreOperation::Get);
        let fetched = self.noted(self.inner.get_once(key, range, if_match).await)?;
        self.meter.read(fetched.bytes.len() as u64);
        Ok(fetched)
    }

    async fn stream(
        &self,
        key: &str,
        range: ByteRange,
        if_match: Option<&Version>,
    ) -> Result<ObjectStream, StoreError> {
        self.meter.requested(StoreOperation::Get);
        let stream = self.noted(self.inner.stream(key, range, if_match).await)?;
        let meter = self.meter.clone();
        let body = stream.body.inspect(move |piece| match piece {
            Ok(bytes) => meter.read(bytes.len() as u64),
            Err(error) => note(&meter, error),
        });
        Ok(ObjectStream { body: body.boxed(), ..stream })
    }

    async fn list(&self, request: &ListRequest) -> Result<ListPage, StoreError> {
        self.meter.requested(StoreOperation::List);
        self.noted(self.inner.list(request).await)
    }

    async fn put(&self, key: &str, body: UploadStream, options: PutOptions) -> Result<ObjectInfo, StoreError> {
        self.meter.requested(StoreOperation::Put);
        self.noted(self.inner.put(key, body, options).await)
    }

    async fn delete(&self, key: &str) -> Result<(), StoreError> {
        self.meter.requested(StoreOperation::Delete);
        self.noted(self.inner.delete(key).await)
    }

    async fn ready(&self) -> Result<(), StoreError> {
        self.inner.ready().await
    }

    fn is_local(&self) -> bool {
        self.inner.is_local()
    }
}

#[cfg(test)]
mod tests {
    use futures::TryStreamExt;

    use super::*;
    use crate::store::{LocalStore, memory_store};

    fn body(bytes: &'static [u8]) -> UploadStream {
        futures::stream::iter([Ok(bytes.into())]).boxed()
    }

    #[tokio::test]
    async fn requests_bytes_and_failures_are_counted_by_bucket() {
        let metrics = Metrics::new();
        let store = MeteredStore::new(memory_store(), &metrics, "b");
        store.put("k", body(b"0123456789"), PutOptions::default()).await.unwrap();
        store.head("k").await.unwrap();
        store.get("k", ByteRange::Bounded(2..5), None).await.unwrap();
        let stream = store.stream("k", ByteRange::Whole, None).await.unwrap();
        stream.body.try_collect::<Vec<_>>().await.unwrap();
        store.get("absent", ByteRange::Whole, None).await.unwrap_err();
        store.get("k", ByteRange::Whole, Some(&Version::new("other"))).await.unwrap_err();
        let text = metrics.encode();
        for line in [
            "w4dx_store_requests_total{bucket=\"b\",op=\"get\"} 4",
            "w4dx_store_requests_total{bucket=\"b\",op=\"head\"} 1",
            "w4dx_store_requests_total{bucket=\"b\",op=\"put\"} 1",
            "w4dx_store_bytes_total{bucket=\"b\"} 13",
            "w4dx_store_errors_total{bucket=\"b\",kind=\"changed\"} 1",
        ] {
            assert!(text.contains(line), "{line}\nin\n{text}");
        }
        assert!(!text.contains("not_found"));
    }

    #[tokio::test]
    async fn a_stat_of_a_local_file_is_no_request() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("k"), b"x").unwrap();
        let metrics = Metrics::new();
        let store = MeteredStore::new(Arc::new(LocalStore::open(folder.path().into()).unwrap()), &metrics, "b");
        store.head("k").await.unwrap();
        assert!(metrics.encode().contains("op=\"head\"} 0"));
        store.get("k", ByteRange::Whole, None).await.unwrap();
        assert!(metrics.encode().contains("op=\"get\"} 1"));
    }
}
