//! Uploads: one PutObject when the body fits a part, else a multipart upload that is aborted unless it completes.

use std::collections::BTreeMap;
use std::time::SystemTime;

use aws_sdk_s3::Client;
use aws_sdk_s3::primitives::ByteStream;
use aws_sdk_s3::types::{CompletedMultipartUpload, CompletedPart};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use md5::{Digest, Md5};

use super::{PutFault, S3Store};
use crate::model::Version;
use crate::store::upload_body::UploadBody;
use crate::store::{ObjectInfo, PutOptions, StoreError, UploadStream};

/// Size of a part in bytes: what an upload holds in memory.
const PART_BYTES: u64 = 16 << 20;

/// Most parts of a multipart upload.
const PARTS: u64 = 10_000;

pub(super) async fn put(
    store: &S3Store,
    key: &str,
    body: UploadStream,
    options: PutOptions,
) -> Result<ObjectInfo, StoreError> {
    let part_bytes = options.content_length.map_or(PART_BYTES, |length| length.div_ceil(PARTS).max(PART_BYTES));
    let mut body = UploadBody::new(key, body, &options);
    let first = body.read(part_bytes).await?;
    if !body.is_finished() {
        return multipart(store, key, first, body, part_bytes, &options).await;
    }
    body.check()?;
    let size = first.len() as u64;
    let request = store
        .client
        .put_object()
        .bucket(&store.bucket)
        .key(key)
        .content_md5(BASE64_STANDARD.encode(Md5::digest(&first)))
        .set_if_match(options.if_match.as_ref().map(quoted))
        .set_if_none_match(options.if_absent.then(|| "*".to_owned()))
        .set_content_type(options.headers.get("content-type").cloned())
        .set_cache_control(options.headers.get("cache-control").cloned())
        .set_content_disposition(options.headers.get("content-disposition").cloned())
        .set_content_encoding(options.headers.get("content-encoding").cloned())
        .set_content_language(options.headers.get("content-language").cloned())
        .set_metadata(metadata(&options.headers))
        .body(ByteStream::from(first));
    let call = async { request.send().await.map_err(|error| PutFault::of(key, &error)) };
    let output = store.within(key, call).await?;
    stored(store, key, size, output.e_tag(), options).await
}

async fn multipart(
    store: &S3Store,
    key: &str,
    first: Bytes,
    mut body: UploadBody,
    part_bytes: u64,
    options: &PutOptions,
) -> Result<ObjectInfo, StoreError> {
    let request = store
        .client
        .create_multipart_upload()
        .bucket(&store.bucket)
        .key(key)
        .set_content_type(options.headers.get("content-type").cloned())
        .set_cache_control(options.headers.get("cache-control").cloned())
        .set_content_disposition(options.headers.get("content-disposition").cloned())
        .set_content_encoding(options.headers.get("content-encoding").cloned())
        .set_content_language(options.headers.get("content-language").cloned())
        .set_metadata(metadata(&options.headers));
    let call = async { request.send().await.map_err(|error| PutFault::of(key, &error)) };
    let id = store.within(key, call).await?.upload_id.unwrap_or_default();
    let mut upload =
        Multipart { client: store.client.clone(), bucket: store.bucket.clone(), key: key.into(), id, completed: false };

    let mut parts = Vec::new();
    let mut part = first;
    while !part.is_empty() {
        parts.push(upload.send_part(store, parts.len() + 1, part).await?);
        part = body.read(part_bytes).await?;
    }
    let size = body.check()?;
    let request = store
        .client
        .complete_multipart_upload()
        .bucket(&store.bucket)
        .key(key)
        .upload_id(&upload.id)
        .set_if_match(options.if_match.as_ref().map(quoted))
        .set_if_none_match(options.if_absent.then(|| "*".to_owned()))
        .multipart_upload(CompletedMultipartUpload::builder().set_parts(Some(parts)).build());
    let call = async { request.send().await.map_err(|error| PutFault::of(key, &error)) };
    let output = store.within(key, call).await?;
    upload.completed = true;
    stored(store, key, size, output.e_tag(), options.clone()).await
}

/// A multipart upload under way; dropped before it completes it is aborted, so that its parts cost nobody anything.
struct Multipart {
    client: Client,
    bucket: String,
    key: String,
    id: String,
    completed: bool,
}

impl Multipart {
    async fn send_part(&self, store: &S3Store, number: usize, bytes: Bytes) -> Result<CompletedPart, StoreError> {
        let number =
            i32::try_from(number).ok().filter(|number| i64::from(*number) <= PARTS as i64).ok_or_else(|| {
                let reason = format!("more than {PARTS} parts; announce the length of so large an upload");
                StoreError::Failed { operation: "write", key: self.key.clone(), reason }
            })?;
        let request = self
            .client
            .upload_part()
            .bucket(&self.bucket)
            .key(&self.key)
            .upload_id(&self.id)
            .part_number(number)
            .content_md5(BASE64_STANDARD.encode(Md5::digest(&bytes)))
            .body(ByteStream::from(bytes));
        let call = async { request.send().await.map_err(|error| PutFault::of(&self.key, &error)) };
        let output = store.within(&self.key, call).await?;
        Ok(CompletedPart::builder().part_number(number).set_e_tag(output.e_tag).build())
    }
}

impl Drop for Multipart {
    fn drop(&mut self) {
        if self.completed {
            return;
        }
        let request = self.client.abort_multipart_upload().bucket(&self.bucket).key(&self.key).upload_id(&self.id);
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(request.send());
        }
    }
}

async fn stored(
    store: &S3Store,
    key: &str,
    size: u64,
    etag: Option<&str>,
    options: PutOptions,
) -> Result<ObjectInfo, StoreError> {
    store.note_bucket();
    match etag {
        Some(etag) if !etag.is_empty() => {
            let mut headers = options.headers;
            let content_type = headers.remove("content-type");
            // PutObject tells no time. The store's clock may differ by a little; HEAD tells its own.
            let last_modified = SystemTime::now();
            Ok(ObjectInfo { size, version: Version::new(etag), last_modified, settled: true, content_type, headers })
        }
        Some(_) | None => store.within(key, store.head_now(key)).await,
    }
}

fn quoted(version: &Version) -> String {
    format!("\"{version}\"")
}

fn metadata(headers: &BTreeMap<String, String>) -> Option<std::collections::HashMap<String, String>> {
    let own =
        headers.iter().filter_map(|(name, value)| Some((name.strip_prefix("x-amz-meta-")?.into(), value.clone())));
    let own: std::collections::HashMap<_, _> = own.collect();
    (!own.is_empty()).then_some(own)
}
