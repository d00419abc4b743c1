//! A folder served as it is: keys are relative paths, objects are regular files.
//!
//! Keeps nothing beside the files: no metadata, no index. A version is the file's identity and its times; a file is
//! described by the same descriptor that its bytes are read from, before and after, so bytes and version belong
//! together also when another program writes into the folder. System calls run on tokio's blocking pool, in pieces,
//! so that a slow client holds no thread.

mod folder;
mod key;
mod list;
mod read;
mod write;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use futures::{StreamExt, TryStreamExt, stream};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use self::folder::{Folder, object_info, store_error};
use self::key::LocalKey;
use self::read::OpenObject;
use self::write::Upload;
use super::{
    Buffers, Fetched, ListPage, ListRequest, ObjectInfo, ObjectStream, PutOptions, Store, StoreError, UploadStream,
};
use crate::model::{ByteRange, Version};

/// Size of a stream's pieces in bytes: few and large, as 64 KiB reads serve a tenth slower and 8 KiB five times.
const PIECE_BYTES: u64 = 1 << 20;

/// Pieces of a stream that are read ahead of the client, the current one included.
const PIECES_AHEAD: usize = 2;

/// Most blocking operations of one store at once. Tokio's pool (512 threads) serves every store and more.
const BLOCKING_OPERATIONS: usize = 64;

/// A folder as a store. Cheap to clone.
#[derive(Debug, Clone)]
pub struct LocalStore {
    folder: Arc<Folder>,
    permits: Arc<Semaphore>,
    buffers: Buffers,
}

impl LocalStore {
    /// Opens an existing folder, and removes what uploads of a process that was killed left in it.
    ///
    /// # Errors
    /// When the path is no folder, may not be read, or the system has no `openat2`: one line that names the path.
    pub fn open(root: PathBuf) -> std::io::Result<Self> {
        let folder = Folder::open(root)?;
        write::remove_leftovers(&folder);
        Ok(Self {
            folder: Arc::new(folder),
            permits: Arc::new(Semaphore::new(BLOCKING_OPERATIONS)),
            buffers: Buffers::new(),
        })
    }

    /// The folder.
    pub fn root(&self) -> &Path {
        self.folder.path()
    }

    /// Runs blocking work. It learns through the token that nobody waits any more.
    async fn blocking<T: Send + 'static>(
        &self,
        operation: &'static str,
        key: &str,
        work: impl FnOnce(&Arc<Folder>, &CancellationToken) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let failed = |reason: String| StoreError::Failed { operation, key: key.into(), reason };
        let permit = Arc::clone(&self.permits).acquire_owned().await.map_err(|error| failed(error.to_string()))?;
        let folder = Arc::clone(&self.folder);
        let token = CancellationToken::new();
        let _cancel = token.clone().drop_guard();
        let work = move || {
            let _permit = permit;
            work(&folder, &token)
        };
        match tokio::task::spawn_blocking(work).await {
            Ok(result) => result,
            Err(error) => Err(failed(format!("the operation was lost: {error}"))),
        }
    }

    async fn open_object(
        &self,
        key: &str,
        range: ByteRange,
        if_match: Option<&Version>,
    ) -> Result<OpenObject, StoreError> {
        if let Some(opened) = OpenObject::open_cached(&self.folder, key, &range, if_match) {
            return opened;
        }
        let (name, if_match) = (key.to_owned(), if_match.cloned());
        self.blocking("read", key, move |folder, _| OpenObject::open(folder, &name, &range, if_match.as_ref())).await
    }

    async fn read(&self, object: Arc<OpenObject>, range: std::ops::Range<u64>) -> Result<Bytes, StoreError> {
        if let Some(read) = object.read_cached(range.clone(), &self.buffers) {
            return read;
        }
        let (key, buffers) = (object.key.clone(), self.buffers.clone());
        self.blocking("read", &key, move |_, cancel| object.read(range, &buffers, cancel)).await
    }
}

#[async_trait::async_trait]
impl Store for LocalStore {
    async fn head(&self, key: &str) -> Result<ObjectInfo, StoreError> {
        let object = self.open_object(key, ByteRange::Whole, None).await?;
        Ok(object_info(key, &object.stat))
    }

    async fn get(&self, key: &str, range: ByteRange, if_match: Option<&Version>) -> Result<Fetched, StoreError> {
        let object = Arc::new(self.open_object(key, range, if_match).await?);
        let range = object.range.clone();
        let bytes = self.read(Arc::clone(&object), range.clone()).await?;
        Ok(Fetched { info: object_info(key, &object.stat), start: range.start, bytes })
    }

    async fn stream(
        &self,
        key: &str,
        range: ByteRange,
        if_match: Option<&Version>,
    ) -> Result<ObjectStream, StoreError> {
        let object = Arc::new(self.open_object(key, range, if_match).await?);
        let info = object_info(key, &object.stat);
        let range = object.range.clone();
        let store = self.clone();
        let body = stream::iter(pieces(range.clone()))
            .map(move |piece| {
                let (store, object) = (store.clone(), Arc::clone(&object));
                async move { store.read(object, piece).await }
            })
            .buffered(PIECES_AHEAD);
        Ok(ObjectStream { info, start: range.start, len: range.end - range.start, body: end_at_error(body).boxed() })
    }

    async fn list(&self, request: &ListRequest) -> Result<ListPage, StoreError> {
        let owned = request.clone();
        self.blocking("list", &request.prefix, move |folder, cancel| list::list(folder, &owned, cancel)).await
    }

    async fn put(&self, key: &str, mut body: UploadStream, options: PutOptions) -> Result<ObjectInfo, StoreError> {
        let path = LocalKey::parse(key).map_err(|reason| StoreError::InvalidKey { key: key.into(), reason })?;
        let mut upload = self.blocking("write", key, move |folder, _| Upload::begin(folder, path)).await?;
        let mut received = 0_u64;
        let mut pending: Vec<Bytes> = Vec::new();
        let mut pending_bytes = 0_u64;
        while let Some(piece) = body.try_next().await? {
            received = received.saturating_add(piece.len() as u64);
            if let Some(expected) = options.content_length.filter(|expected| received > *expected) {
                let reason = format!("more than the announced {expected} bytes arrived");
                return Err(StoreError::BadDigest { key: key.into(), reason });
            }
            pending_bytes += piece.len() as u64;
            pending.push(piece);
            if pending_bytes >= PIECE_BYTES {
                let pieces = std::mem::take(&mut pending);
                pending_bytes = 0;
                upload = self.blocking("write", key, move |_, _| upload.write(&pieces)).await?;
            }
        }
        self.blocking("write", key, move |_, _| upload.write(&pending)?.commit(&options)).await
    }

    async fn delete(&self, key: &str) -> Result<(), StoreError> {
        // What no path can hold is absent.
        let Ok(path) = LocalKey::parse(key) else { return Ok(()) };
        self.blocking("delete", key, move |folder, _| write::delete(folder, &path)).await
    }

    async fn ready(&self) -> Result<(), StoreError> {
        self.blocking("open", "", |folder, _| {
            let stat = rustix::fs::fstat(folder.root()).map_err(|errno| store_error("open", "", errno))?;
            if stat.st_nlink == 0 {
                let reason = format!("the folder `{}` was removed", folder.path().display());
                return Err(StoreError::Failed { operation: "open", key: String::new(), reason });
            }
            Ok(())
        })
        .await
    }

    fn is_local(&self) -> bool {
        true
    }
}

/// A range cut into pieces.
fn pieces(range: std::ops::Range<u64>) -> impl Iterator<Item = std::ops::Range<u64>> {
    let end = range.end;
    (0..end.saturating_sub(range.start).div_ceil(PIECE_BYTES)).map(move |index| {
        let start = range.start + index * PIECE_BYTES;
        start..end.min(start.saturating_add(PIECE_BYTES))
    })
}

/// The same stream, with nothing after its first error.
fn end_at_error(
    body: impl stream::Stream<Item = Result<Bytes, StoreError>> + Send + 'static,
) -> impl stream::Stream<Item = Result<Bytes, StoreError>> + Send + 'static {
    body.scan(false, |failed, item| {
        let item = if *failed { None } else { Some(item) };
        *failed = matches!(item, Some(Err(_)));
        std::future::ready(item)
    })
}
