//! Stores that are reached through the `object_store` crate: GCS, Azure, and memory.
//!
//! The crate knows keys as paths without empty, `.` and `..` segments; a key that it would change is refused.

mod connect;
mod error;

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use futures::stream::BoxStream;
use futures::{StreamExt, TryStreamExt, stream};
use object_store::list::{PaginatedListOptions, PaginatedListStore};
use object_store::path::Path;
use object_store::{
    Attribute, AttributeValue, Attributes, GetOptions, GetRange, GetResult, ObjectMeta, ObjectStore, ObjectStoreExt,
    PutMode, PutMultipartOptions, PutPayload, UpdateVersion,
};

pub use self::connect::{AzureSettings, GcsSettings, azure_store, gcs_store};

use self::error::{backend_error, is_unsatisfiable, put_error};
use super::listing::PageBuilder;
use super::range::resolve;
use super::upload_body::UploadBody;
use super::{Fetched, ListPage, ListRequest, ObjectInfo, ObjectStream, PutOptions, Store, StoreError, UploadStream};
use crate::model::{ByteRange, Version};

/// Size of a part in bytes: what an upload holds in memory.
const PART_BYTES: u64 = 16 << 20;

/// Which ranges a backend takes as they are; others cost a HEAD before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum NativeRanges {
    /// All.
    All,
    /// All but suffixes (Azure).
    NoSuffix,
    /// None: a HEAD costs nothing there (memory).
    None,
}

/// A store behind the `object_store` crate.
#[derive(Clone)]
pub struct ObjectStoreBackend {
    store: Arc<dyn ObjectStore>,
    /// The same place through a client that never retries, which the crate decides for a client, not for a call.
    once: Arc<dyn ObjectStore>,
    pages: Option<Arc<dyn PaginatedListStore>>,
    ranges: NativeRanges,
    timeout: Duration,
}

impl fmt::Debug for ObjectStoreBackend {
    /// Names the kind only: the crate's own output may hold settings.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ObjectStoreBackend").field("ranges", &self.ranges).finish_non_exhaustive()
    }
}

impl ObjectStoreBackend {
    /// A store that answers from memory: listing it costs as much as all of its keys.
    pub fn in_memory(store: Arc<dyn ObjectStore>) -> Self {
        Self { once: Arc::clone(&store), store, pages: None, ranges: NativeRanges::None, timeout: Duration::MAX }
    }

    /// A store that lists keys page by page, in ascending order.
    fn remote<S: ObjectStore + PaginatedListStore>(store: S, once: S, ranges: NativeRanges, timeout: Duration) -> Self {
        let store = Arc::new(store);
        Self { pages: Some(store.clone()), store, once: Arc::new(once), ranges, timeout }
    }

    async fn within<T>(
        &self,
        key: &str,
        call: impl Future<Output = Result<T, StoreError>> + Send,
    ) -> Result<T, StoreError> {
        match tokio::time::timeout(self.timeout, call).await {
            Ok(result) => result,
            Err(_elapsed) => Err(StoreError::Timeout { key: key.into() }),
        }
    }

    async fn head_now(&self, key: &str) -> Result<ObjectInfo, StoreError> {
        let path = readable(key)?;
        let options = GetOptions { head: true, ..GetOptions::default() };
        let result =
            self.store.get_opts(&path, options).await.map_err(|error| backend_error("describe", key, error))?;
        object_info(key, &result.meta, &result.attributes)
    }

    /// Opens a range, with the part of the object that will come.
    async fn open(&self, key: &str, range: &ByteRange, if_match: Option<&Version>) -> Result<Opened, StoreError> {
        let native = match (range, self.ranges) {
            (ByteRange::Bounded(range), _) if range.is_empty() => false,
            (ByteRange::Suffix(0), _) => false,
            (ByteRange::Whole, _) | (_, NativeRanges::All) => true,
            (ByteRange::Suffix(_), NativeRanges::NoSuffix) | (_, NativeRanges::None) => false,
            (ByteRange::Bounded(_) | ByteRange::From(_), NativeRanges::NoSuffix) => true,
        };
        if !native {
            return self.open_after_head(key, range, if_match).await;
        }
        match self.open_native(key, range, if_match).await {
            Ok(opened) => Ok(opened),
            Err(error) if is_unsatisfiable(&error) => self.open_after_head(key, range, if_match).await,
            Err(error) => Err(backend_error("read", key, error)),
        }
    }

    async fn open_native(
        &self,
        key: &str,
        range: &ByteRange,
        if_match: Option<&Version>,
    ) -> object_store::Result<Opened> {
        let path = readable(key).map_err(|_| not_found(key))?;
        let range = match range {
            ByteRange::Whole => None,
            ByteRange::Bounded(range) => Some(GetRange::Bounded(range.clone())),
            ByteRange::From(start) => Some(GetRange::Offset(*start)),
            ByteRange::Suffix(length) => Some(GetRange::Suffix(*length)),
        };
        let if_match = if_match.map(|version| format!("\"{version}\""));
        let result = self.store.get_opts(&path, GetOptions { range, if_match, ..GetOptions::default() }).await?;
        Ok(Opened::Body(result))
    }

    /// Looks the size up, then reads at the version found.
    async fn open_after_head(
        &self,
        key: &str,
        range: &ByteRange,
        if_match: Option<&Version>,
    ) -> Result<Opened, StoreError> {
        let info = self.head_now(key).await?;
        if if_match.is_some_and(|expected| *expected != info.version) {
            return Err(StoreError::Changed { key: key.into() });
        }
        let Some(found) = resolve(range, info.size) else {
            return Err(StoreError::RangeNotSatisfiable { key: key.into(), size: info.size });
        };
        if found.is_empty() {
            return Ok(Opened::Empty { info, start: found.start });
        }
        self.open_native(key, &ByteRange::Bounded(found), Some(&info.version))
            .await
            .map_err(|error| backend_error("read", key, error))
    }

    /// Everything beneath the prefix's folder, sorted: for stores that hold their keys in memory anyway.
    async fn list_all(&self, request: &ListRequest) -> Result<ListPage, StoreError> {
        let mut page = PageBuilder::new(request);
        let folder = request.prefix.rsplit_once('/').map_or("", |(folder, _)| folder);
        let Ok(folder) = exact_path(folder) else { return Ok(page.finish(false)) };
        let listed = self.store.list(Some(&folder)).try_collect::<Vec<_>>().await;
        let mut metas = listed.map_err(|error| backend_error("list", &request.prefix, error))?;
        metas.sort_by(|a, b| a.location.as_ref().cmp(b.location.as_ref()));
        for meta in metas {
            let key = meta.location.to_string();
            if !page.wants(&key) {
                continue;
            }
            let info = object_info(&key, &meta, &Attributes::new())?;
            if page.push_object(key, info) {
                return Ok(page.finish(true));
            }
        }
        Ok(page.finish(false))
    }

    /// Page by page from the store, until ours is complete.
    async fn list_pages(&self, pages: &dyn PaginatedListStore, request: &ListRequest) -> Result<ListPage, StoreError> {
        let mut page = PageBuilder::new(request);
        // Not every store rolls up by another delimiter than a slash; the builder does.
        let delimiter = request.delimiter.as_deref().filter(|delimiter| *delimiter == "/");
        let mut page_token = None;
        loop {
            let options = PaginatedListOptions {
                offset: request.start_after.clone().filter(|start| start.starts_with(&request.prefix)),
                delimiter: delimiter.map(|_| "/".into()),
                page_token: page_token.take(),
                ..PaginatedListOptions::default()
            };
            let prefix = Some(request.prefix.as_str()).filter(|prefix| !prefix.is_empty());
            let answer = pages
                .list_paginated(prefix, options)
                .await
                .map_err(|error| backend_error("list", &request.prefix, error))?;
            let complete = add_entries(&mut page, answer.result)?;
            if complete || (page.is_full() && answer.page_token.is_some()) {
                return Ok(page.finish(true));
            }
            match answer.page_token {
                Some(token) => page_token = Some(token),
                None => return Ok(page.finish(false)),
            }
        }
    }
}

/// What came of opening a range.
enum Opened {
    Body(GetResult),
    Empty { info: ObjectInfo, start: u64 },
}

#[async_trait::async_trait]
impl Store for ObjectStoreBackend {
    async fn head(&self, key: &str) -> Result<ObjectInfo, StoreError> {
        self.within(key, self.head_now(key)).await
    }

    async fn get(&self, key: &str, range: ByteRange, if_match: Option<&Version>) -> Result<Fetched, StoreError> {
        let call = async {
            let stream = into_stream(key, self.open(key, &range, if_match).await?)?;
            let mut pieces: Vec<Bytes> = stream.body.try_collect().await?;
            let bytes = match pieces.len() {
                1 => pieces.remove(0),
                _ => pieces.concat().into(),
            };
            Ok(Fetched { info: stream.info, start: stream.start, bytes })
        };
        self.within(key, call).await
    }

    async fn get_once(&self, key: &str, range: ByteRange, if_match: Option<&Version>) -> Result<Fetched, StoreError> {
        Self { store: Arc::clone(&self.once), ..self.clone() }.get(key, range, if_match).await
    }

    async fn stream(
        &self,
        key: &str,
        range: ByteRange,
        if_match: Option<&Version>,
    ) -> Result<ObjectStream, StoreError> {
        let opened = self.within(key, self.open(key, &range, if_match)).await?;
        into_stream(key, opened)
    }

    async fn list(&self, request: &ListRequest) -> Result<ListPage, StoreError> {
        if request.max_keys == 0 {
            return Ok(ListPage::default());
        }
        match &self.pages {
            Some(pages) => self.within(&request.prefix, self.list_pages(pages.as_ref(), request)).await,
            None => self.list_all(request).await,
        }
    }

    async fn put(&self, key: &str, body: UploadStream, options: PutOptions) -> Result<ObjectInfo, StoreError> {
        let path = exact_path(key).map_err(|reason| StoreError::InvalidKey { key: key.into(), reason })?;
        let attributes = attributes(&options);
        let mut body = UploadBody::new(key, body, &options);
        let first = body.read(PART_BYTES).await?;
        if !body.is_finished() {
            if options.if_absent || options.if_match.is_some() {
                return Err(StoreError::Unsupported { operation: "store more than 16 MiB under a condition" });
            }
            return self.put_parts(key, &path, first, body, attributes).await;
        }
        body.check()?;
        let mode = match (&options.if_match, options.if_absent) {
            (Some(version), _) => {
                PutMode::Update(UpdateVersion { e_tag: Some(format!("\"{version}\"")), version: None })
            }
            (None, true) => PutMode::Create,
            (None, false) => PutMode::Overwrite,
        };
        let put = object_store::PutOptions { mode, attributes, ..object_store::PutOptions::default() };
        let call = async {
            let result = self.store.put_opts(&path, PutPayload::from(first), put).await;
            result.map_err(|error| put_error(key, error))?;
            self.head_now(key).await
        };
        self.within(key, call).await
    }

    async fn delete(&self, key: &str) -> Result<(), StoreError> {
        let Ok(path) = exact_path(key) else { return Ok(()) };
        let call = async {
            match self.store.delete(&path).await.map_err(|error| backend_error("delete", key, error)) {
                Err(StoreError::NotFound { .. }) => Ok(()),
                other => other,
            }
        };
        self.within(key, call).await
    }

    async fn ready(&self) -> Result<(), StoreError> {
        let request = ListRequest { max_keys: 1, ..ListRequest::default() };
        self.list(&request).await.map(|_| ())
    }
}

impl ObjectStoreBackend {
    async fn put_parts(
        &self,
        key: &str,
        path: &Path,
        first: Bytes,
        mut body: UploadBody,
        attributes: Attributes,
    ) -> Result<ObjectInfo, StoreError> {
        let options = PutMultipartOptions { attributes, ..PutMultipartOptions::default() };
        let call = async { self.store.put_multipart_opts(path, options).await.map_err(|error| put_error(key, error)) };
        let mut upload = self.within(key, call).await?;
        let sent = async {
            let mut part = first;
            while !part.is_empty() {
                let call = upload.put_part(PutPayload::from(part));
                self.within(key, async { call.await.map_err(|error| put_error(key, error)) }).await?;
                part = body.read(PART_BYTES).await?;
            }
            body.check().map(|_| ())
        };
        if let Err(error) = sent.await {
            // Nothing of it is visible; parts that stay are the store's to expire.
            let _ = self.within(key, async { Ok(upload.abort().await) }).await;
            return Err(error);
        }
        let call = async {
            upload.complete().await.map_err(|error| put_error(key, error))?;
            self.head_now(key).await
        };
        self.within(key, call).await
    }
}

/// A key as a path, or why it is none.
fn exact_path(key: &str) -> Result<Path, String> {
    let path = Path::parse(key).map_err(|error| error.to_string())?;
    if path.as_ref() == key { Ok(path) } else { Err("it begins or ends with `/`".into()) }
}

fn readable(key: &str) -> Result<Path, StoreError> {
    match exact_path(key) {
        Ok(path) if !key.is_empty() => Ok(path),
        Ok(_) | Err(_) => Err(StoreError::NotFound { key: key.into() }),
    }
}

fn not_found(key: &str) -> object_store::Error {
    object_store::Error::NotFound { path: key.into(), source: "no path can be this key".into() }
}

fn object_info(key: &str, meta: &ObjectMeta, attributes: &Attributes) -> Result<ObjectInfo, StoreError> {
    let Some(etag) = meta.e_tag.as_deref().filter(|etag| !etag.is_empty()) else {
        let reason = "the answer has no ETag".into();
        return Err(StoreError::Failed { operation: "describe", key: key.into(), reason });
    };
    let mut info = ObjectInfo {
        size: meta.size,
        version: Version::new(etag),
        last_modified: SystemTime::from(meta.last_modified),
        settled: true,
        content_type: None,
        headers: Default::default(),
    };
    for (attribute, value) in attributes {
        let name = match attribute {
            Attribute::ContentType => {
                info.content_type = Some(value.to_string());
                continue;
            }
            Attribute::ContentEncoding => "content-encoding".to_owned(),
            Attribute::ContentDisposition => "content-disposition".to_owned(),
            Attribute::ContentLanguage => "content-language".to_owned(),
            Attribute::CacheControl => "cache-control".to_owned(),
            Attribute::Metadata(name) => format!("x-amz-meta-{}", name.to_lowercase()),
            // Others say how the store keeps the object, which is no header of ours.
            _ => continue,
        };
        info.headers.insert(name, value.to_string());
    }
    Ok(info)
}

fn attributes(options: &PutOptions) -> Attributes {
    let known = options.headers.iter().filter_map(|(name, value)| {
        let attribute = match name.as_str() {
            "content-type" => Attribute::ContentType,
            "content-encoding" => Attribute::ContentEncoding,
            "content-disposition" => Attribute::ContentDisposition,
            "content-language" => Attribute::ContentLanguage,
            "cache-control" => Attribute::CacheControl,
            other => Attribute::Metadata(other.strip_prefix("x-amz-meta-")?.to_owned().into()),
        };
        Some((attribute, AttributeValue::from(value.clone())))
    });
    known.collect()
}

/// The body as a stream that cannot end early without saying so.
fn into_stream(key: &str, opened: Opened) -> Result<ObjectStream, StoreError> {
    let result = match opened {
        Opened::Body(result) => result,
        Opened::Empty { info, start } => {
            return Ok(ObjectStream { info, start, len: 0, body: stream::empty().boxed() });
        }
    };
    let info = object_info(key, &result.meta, &result.attributes)?;
    let range = result.range.clone();
    let len = range.end.saturating_sub(range.start);
    let name = key.to_owned();
    let body = result.into_stream().map_err(move |error| backend_error("read", &name, error)).boxed();
    Ok(ObjectStream { info, start: range.start, len, body: exactly(key.to_owned(), len, body) })
}

fn exactly(
    key: String,
    len: u64,
    body: BoxStream<'static, Result<Bytes, StoreError>>,
) -> BoxStream<'static, Result<Bytes, StoreError>> {
    stream::unfold(Some((body, 0_u64)), move |state| {
        let key = key.clone();
        async move {
            let (mut body, mut got) = state?;
            match body.next().await {
                Some(Ok(piece)) => {
                    got = got.saturating_add(piece.len() as u64);
                    if got > len {
                        let reason = format!("the body is longer than {len} bytes");
                        return Some((Err(StoreError::Failed { operation: "read", key, reason }), None));
                    }
                    Some((Ok(piece), Some((body, got))))
                }
                Some(Err(error)) => Some((Err(error), None)),
                None if got < len => Some((Err(StoreError::Truncated { key, got, expected: len }), None)),
                None => None,
            }
        }
    })
    .boxed()
}

/// Adds a page of the store's to ours. True when ours is complete.
fn add_entries(page: &mut PageBuilder<'_>, result: object_store::ListResult) -> Result<bool, StoreError> {
    // The crate takes the slash off common prefixes.
    let prefixes = result.common_prefixes.into_iter().map(|path| (format!("{path}/"), None));
    let objects = result.objects.into_iter().map(|meta| (meta.location.to_string(), Some(meta)));
    let mut entries: Vec<_> = prefixes.chain(objects).collect();
    entries.sort_by(|a, b| a.0.cmp(&b.0));
    for (name, meta) in entries {
        let complete = match meta {
            Some(meta) => {
                let info = object_info(&name, &meta, &Attributes::new())?;
                page.push_object(name, info)
            }
            None => page.push_prefix(name),
        };
        if complete {
            return Ok(true);
        }
    }
    Ok(false)
}
