//! Where objects live. The only module that names `object_store` and the AWS SDK.
//!
//! One contract, [`Store`], run in one conformance suite against memory, folders and S3 (`tests/it/store_contract.rs`).
//! Absent, denied, changed and broken are four different errors.

mod bucket;
mod buffers;
mod error;
mod faulty;
mod listing;
mod local;
mod memory;
mod metered;
mod object_store_backend;
mod prefixed;
mod range;
mod s3;
mod upload_body;

use std::collections::BTreeMap;
use std::time::SystemTime;

use bytes::Bytes;
use futures::stream::BoxStream;

pub use bucket::{AnonymousAccess, Bucket, Buckets, DefaultBuckets, Freshness};
pub use buffers::{Buffer, Buffers};
pub use error::StoreError;
pub use faulty::{Call, Fault, FaultyStore};
pub use listing::{ListPage, ListRequest};
pub use local::LocalStore;
pub use memory::memory_store;
pub use metered::MeteredStore;
pub use object_store_backend::{AzureSettings, GcsSettings, ObjectStoreBackend, azure_store, gcs_store};
pub use prefixed::Prefixed;
pub use s3::{S3Settings, S3Store};

use crate::model::{ByteRange, Version};

/// What a store says of an object, without its bytes.
#[derive(Debug, Clone)]
pub struct ObjectInfo {
    /// Bytes of the whole object.
    pub size: u64,
    /// Its version.
    pub version: Version,
    /// When it was last written; whole seconds count on the wire.
    pub last_modified: SystemTime,
    /// Whether another change is sure to give another version. False only for a file of a plain folder that changed a
    /// moment ago: within one tick of the file system's clock a second change could go unseen. Such bytes are
    /// answered and never cached.
    pub settled: bool,
    /// `Content-Type`, if the store knows one.
    pub content_type: Option<String>,
    /// Other stored headers, lower case: `content-encoding`, `cache-control`, `content-disposition`,
    /// `content-language`, `expires`, and `x-amz-meta-*`.
    pub headers: BTreeMap<String, String>,
}

/// Bytes of an object with the version that they belong to.
#[derive(Debug, Clone)]
pub struct Fetched {
    /// The whole object's description.
    pub info: ObjectInfo,
    /// Where `bytes` begins in the object.
    pub start: u64,
    /// The bytes. For `ByteRange::Bounded` shorter than asked only when the object ends there.
    pub bytes: Bytes,
}

/// An object as a stream, for plain GETs.
pub struct ObjectStream {
    /// The whole object's description.
    pub info: ObjectInfo,
    /// Where the stream begins in the object.
    pub start: u64,
    /// How many bytes it will yield. A stream that ends early yields an error, never a clean end.
    pub len: u64,
    /// The bytes: of a file in few large pieces, of another store as they arrive.
    pub body: BoxStream<'static, Result<Bytes, StoreError>>,
}

/// What an upload may carry beside its bytes.
#[derive(Debug, Clone, Default)]
pub struct PutOptions {
    /// Bytes announced, if they were.
    pub content_length: Option<u64>,
    /// `Content-MD5`, decoded.
    pub content_md5: Option<[u8; 16]>,
    /// `Content-Type` and other headers to keep, as in [`ObjectInfo::headers`]. A plain folder keeps none.
    pub headers: BTreeMap<String, String>,
    /// Refuse when the key exists (`If-None-Match: *`).
    pub if_absent: bool,
    /// Refuse unless the key has this version (`If-Match`).
    pub if_match: Option<Version>,
}

/// The body of an upload.
pub type UploadStream = BoxStream<'static, Result<Bytes, StoreError>>;

/// A place that holds objects by key.
///
/// Keys are opaque UTF-8 without a leading slash. Every method may be called concurrently. Dropping a future
/// stops the work. No method retries beyond what one request's deadline allows.
#[async_trait::async_trait]
pub trait Store: Send + Sync + std::fmt::Debug + 'static {
    /// Describes an object.
    ///
    /// # Errors
    /// [`StoreError::NotFound`] only when the store says so; a folder is not an object.
    async fn head(&self, key: &str) -> Result<ObjectInfo, StoreError>;

    /// Reads a part of an object into memory, in one request.
    ///
    /// # Errors
    /// [`StoreError::Changed`] when `if_match` is given and the object has another version;
    /// [`StoreError::RangeNotSatisfiable`] when a bounded range or `From` starts at or past the end of the object
    /// (an empty object satisfies only `Whole` and `Suffix`);
    /// [`StoreError::Truncated`] when the body ends before its announced length.
    async fn get(&self, key: &str, range: ByteRange, if_match: Option<&Version>) -> Result<Fetched, StoreError>;

    /// [`Store::get`], sent once: for a caller that tries again itself and must hear of each failure, because it
    /// slows down after some and has a deadline for all. A store that never retries needs no other than this default;
    /// a store around another passes it on.
    async fn get_once(&self, key: &str, range: ByteRange, if_match: Option<&Version>) -> Result<Fetched, StoreError> {
        self.get(key, range, if_match).await
    }

    /// Opens a part of an object as a stream. Errors as [`Store::get`].
    async fn stream(&self, key: &str, range: ByteRange, if_match: Option<&Version>)
    -> Result<ObjectStream, StoreError>;

    /// Lists keys in ascending order of their UTF-8 bytes.
    async fn list(&self, request: &ListRequest) -> Result<ListPage, StoreError>;

    /// Stores an object whole, or not at all: a reader sees the old or the new version.
    ///
    /// # Errors
    /// [`StoreError::BadDigest`] when length or MD5 contradict the options, [`StoreError::PreconditionFailed`],
    /// [`StoreError::InvalidKey`] with the reason when the store cannot hold the key.
    async fn put(&self, key: &str, body: UploadStream, options: PutOptions) -> Result<ObjectInfo, StoreError>;

    /// Removes an object; removing what is absent succeeds.
    async fn delete(&self, key: &str) -> Result<(), StoreError>;

    /// Whether the store answers, for `/-/ready`.
    async fn ready(&self) -> Result<(), StoreError>;

    /// Whether a `head` is so cheap that it is not counted as a store request (a stat).
    fn is_local(&self) -> bool {
        false
    }
}
