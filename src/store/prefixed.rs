//! The part of a store beneath a prefix, as a store of its own.

use std::sync::Arc;

use super::{Fetched, ListPage, ListRequest, ObjectInfo, ObjectStream, PutOptions, Store, StoreError, UploadStream};
use crate::model::{ByteRange, Version};
use futures::StreamExt;

/// A store whose every key lies beneath a prefix of another store. Keys and errors are told without the prefix.
///
/// A key with a `.` or `..` segment is absent, and refused by `put`: something between here and the store might
/// resolve it and so leave the prefix.
#[derive(Debug, Clone)]
pub struct Prefixed {
    inner: Arc<dyn Store>,
    prefix: String,
}

impl Prefixed {
    /// The keys of `inner` that begin with `prefix`. A slash is added to a prefix that lacks it; `""` is all of them.
    pub fn new(inner: Arc<dyn Store>, prefix: &str) -> Self {
        let prefix = if prefix.is_empty() || prefix.ends_with('/') { prefix.into() } else { format!("{prefix}/") };
        Self { inner, prefix }
    }

    fn full(&self, key: &str) -> Option<String> {
        let climbs = key.split('/').any(|segment| matches!(segment, "." | ".."));
        (!climbs && !key.is_empty()).then(|| format!("{}{key}", self.prefix))
    }

    fn readable(&self, key: &str) -> Result<String, StoreError> {
        self.full(key).ok_or_else(|| StoreError::NotFound { key: key.into() })
    }

    fn strip(&self, key: &str) -> Result<String, StoreError> {
        key.strip_prefix(&self.prefix).map(str::to_owned).ok_or_else(|| StoreError::Failed {
            operation: "list",
            key: key.into(),
            reason: format!("the store listed a key that does not begin with `{}`", self.prefix),
        })
    }
}

#[async_trait::async_trait]
impl Store for Prefixed {
    async fn head(&self, key: &str) -> Result<ObjectInfo, StoreError> {
        self.inner.head(&self.readable(key)?).await.map_err(|error| error.about(key))
    }

    async fn get(&self, key: &str, range: ByteRange, if_match: Option<&Version>) -> Result<Fetched, StoreError> {
        self.inner.get(&self.readable(key)?, range, if_match).await.map_err(|error| error.about(key))
    }

    async fn get_once(&self, key: &str, range: ByteRange, if_match: Option<&Version>) -> Result<Fetched, StoreError> {
        self.inner.get_once(&self.readable(key)?, range, if_match).await.map_err(|error| error.about(key))
    }

    async fn stream(
        &self,
        key: &str,
        range: ByteRange,
        if_match: Option<&Version>,
    ) -> Result<ObjectStream, StoreError> {
        let stream =
            self.inner.stream(&self.readable(key)?, range, if_match).await.map_err(|error| error.about(key))?;
        let key = key.to_owned();
        let body = stream.body.map(move |piece| piece.map_err(|error| error.about(&key))).boxed();
        Ok(ObjectStream { body, ..stream })
    }

    async fn list(&self, request: &ListRequest) -> Result<ListPage, StoreError> {
        let add = |text: &str| format!("{}{text}", self.prefix);
        let full = ListRequest {
            prefix: add(&request.prefix),
            start_after: request.start_after.as_deref().map(add),
            delimiter: request.delimiter.clone(),
            max_keys: request.max_keys,
        };
        let page = self.inner.list(&full).await.map_err(|error| error.about(&request.prefix))?;
        let objects = page.objects.into_iter().map(|(key, info)| Ok((self.strip(&key)?, info)));
        Ok(ListPage {
            // The object `prefix/` itself, which some tools write as a mark of a folder, has no key here.
            objects: objects
                .filter(|item| !matches!(item, Ok((key, _)) if key.is_empty()))
                .collect::<Result<_, _>>()?,
            prefixes: page.prefixes.iter().map(|prefix| self.strip(prefix)).collect::<Result<_, _>>()?,
            next: page.next.map(|next| self.strip(&next)).transpose()?,
        })
    }

    async fn put(&self, key: &str, body: UploadStream, options: PutOptions) -> Result<ObjectInfo, StoreError> {
        let full = self.full(key).ok_or_else(|| StoreError::InvalidKey {
            key: key.into(),
            reason: "it is empty or has a segment `.` or `..`".into(),
        })?;
        self.inner.put(&full, body, options).await.map_err(|error| error.about(key))
    }

    async fn delete(&self, key: &str) -> Result<(), StoreError> {
        let Some(full) = self.full(key) else { return Ok(()) };
        self.inner.delete(&full).await.map_err(|error| error.about(key))
    }

    async fn ready(&self) -> Result<(), StoreError> {
        self.inner.ready().await
    }

    fn is_local(&self) -> bool {
        self.inner.is_local()
    }
}
