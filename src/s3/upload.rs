//! PutObject and DeleteObject.
//!
//! Invariant: an object becomes visible only after its length, Content-MD5, checksums and trailers were verified.
//! The verifying stream keeps the last piece back until then, so that no store can have the whole body before.

use http::{HeaderMap, HeaderValue};
use s3s::dto::{DeleteObjectInput, ETag, ETagCondition, PutObjectInput, PutObjectOutput};
use s3s::{S3ErrorCode, S3Request};

use super::access::principal;
use super::edge::FramingFault;
use super::failure::Failure;
use super::guards;
use super::target::pairs;
use super::verify::{Algorithm, Checks};
use crate::auth::Action;
use crate::http::Gateway;
use crate::model::{ErrorKind, Version};
use crate::query::parameters;
use crate::store::PutOptions;

/// The most bytes of names and values of `x-amz-meta-*`, as S3 has it.
const MAX_METADATA_BYTES: usize = 2048;

/// Headers that are kept with an object beside `x-amz-meta-*` and Content-Type.
const KEPT: [&str; 4] = ["cache-control", "content-disposition", "content-language", "expires"];

/// Stores an object.
pub(super) async fn put(gateway: &Gateway, req: S3Request<PutObjectInput>) -> Result<PutObjectOutput, Failure> {
    let (bucket, key) = (req.input.bucket, req.input.key);
    let principal = principal(req.credentials.as_ref());
    let allowed = gateway.policy.authorise(&principal, Action::Write, &gateway.buckets, &bucket, &key)?;
    refuse_slices(&key, &pairs(&req.uri), allowed.bucket().in_key_form)?;
    refuse_unkept(&req.headers)?;

    let length = announced_length(&req.headers, gateway.upload_bytes)?;
    let fault = req.extensions.get::<FramingFault>().cloned().unwrap_or_default();
    let checks = Checks::of(&req.headers, length, req.trailing_headers)?;
    let options = PutOptions {
        content_length: Some(length),
        content_md5: checks.content_md5(),
        headers: kept_headers(&req.headers)?,
        if_absent: if_absent(req.input.if_none_match)?,
        if_match: if_match(req.input.if_match)?,
    };
    let (body, verdict) =
        checks.wrap(req.input.body, &key).await.map_err(|failure| fault.get().map_or(failure, framing_failure))?;
    let stored = allowed.bucket().store.put(&key, body, options).await;
    // Also after an error: a write that timed out may have taken place.
    gateway.invalidate(&bucket, &key);
    match stored {
        Ok(info) => {
            let mut output = PutObjectOutput {
                e_tag: Some(ETag::Strong(info.version.as_str().to_owned())),
                ..PutObjectOutput::default()
            };
            if let Some((algorithm, value)) = verdict.checksum() {
                let field = match algorithm {
                    Algorithm::Crc32 => &mut output.checksum_crc32,
                    Algorithm::Crc32c => &mut output.checksum_crc32c,
                    Algorithm::Crc64Nvme => &mut output.checksum_crc64nvme,
                    Algorithm::Sha1 => &mut output.checksum_sha1,
                    Algorithm::Sha256 => &mut output.checksum_sha256,
                };
                *field = Some(value);
            }
            Ok(output)
        }
        Err(error) => {
            let known = fault.get().map(framing_failure).or_else(|| verdict.failure());
            Err(known.unwrap_or_else(|| error.into()))
        }
    }
}

/// Removes an object.
pub(super) async fn delete(gateway: &Gateway, req: &S3Request<DeleteObjectInput>) -> Result<(), Failure> {
    let input = &req.input;
    let principal = principal(req.credentials.as_ref());
    let allowed = gateway.policy.authorise(&principal, Action::Delete, &gateway.buckets, &input.bucket, &input.key)?;
    // By parameters only: an object that bears a reserved name can be removed.
    refuse_slices(&input.key, &pairs(&req.uri), false)?;
    if input.version_id.as_deref().is_some_and(|version| version != "null") {
        return Err(Failure::not_implemented("versions of objects are not implemented"));
    }
    if input.if_match.is_some() || input.if_match_last_modified_time.is_some() || input.if_match_size.is_some() {
        return Err(Failure::not_implemented("conditional deletes are not implemented"));
    }
    let deleted = allowed.bucket().store.delete(&input.key).await;
    gateway.invalidate(&input.bucket, &input.key);
    Ok(deleted?)
}

/// A slice cannot be written, neither by parameter nor by its in-key name.
fn refuse_slices(key: &str, pairs: &[(String, String)], in_key_form: bool) -> Result<(), Failure> {
    if in_key_form && parameters::is_reserved_key(key) {
        let message = format!("`{key}` is reserved: a last segment `@NAME…` is read as a slice and cannot be written");
        return Err(Failure::kind(ErrorKind::InvalidKey, message));
    }
    if parameters::concerns(key, pairs, false) {
        return Err(Failure::kind(ErrorKind::InvalidParameter, "a slice can be read, not written"));
    }
    Ok(())
}

/// What S3 would keep or obey and this gateway does not must not be dropped in silence.
fn refuse_unkept(headers: &HeaderMap) -> Result<(), Failure> {
    for (name, value) in headers {
        let (name, value) = (name.as_str(), value.as_bytes());
        let refused = match name {
            "x-amz-acl" => !matches!(value, b"private" | b"bucket-owner-full-control"),
            "x-amz-storage-class" => value != b"STANDARD",
            "x-amz-tagging" | "x-amz-website-redirect-location" | "x-amz-write-offset-bytes" => true,
            "x-amz-expected-bucket-owner" => true,
            _ => ["x-amz-grant-", "x-amz-server-side-encryption", "x-amz-object-lock-"]
                .iter()
                .any(|prefix| name.starts_with(prefix)),
        };
        if refused {
            return Err(Failure::not_implemented(format!("{name} is not implemented by this gateway")));
        }
    }
    Ok(())
}

fn announced_length(headers: &HeaderMap, limit: u64) -> Result<u64, Failure> {
    let chunked = guards::is_aws_chunked(headers);
    if !chunked && encodings(headers)?.contains(&"aws-chunked") {
        // s3s decodes the framing only under these names; it would be stored as data.
        let message = "Content-Encoding aws-chunked needs an x-amz-content-sha256 of STREAMING-…";
        return Err(Failure::kind(ErrorKind::InvalidRequest, message));
    }
    let name = if chunked { "x-amz-decoded-content-length" } else { "content-length" };
    let length = headers.get(name).and_then(|value| value.to_str().ok()).and_then(|value| value.parse().ok());
    match length {
        Some(length) if length > limit => {
            let message = format!("an upload of {length} bytes exceeds the {limit} bytes that are taken here");
            Err(Failure::code(S3ErrorCode::EntityTooLarge, message))
        }
        Some(length) => Ok(length),
        None => Err(Failure::code(S3ErrorCode::MissingContentLength, format!("the {name} header is missing"))),
    }
}

/// The content codings, in order.
fn encodings(headers: &HeaderMap) -> Result<Vec<&str>, Failure> {
    let mut all = Vec::new();
    for value in headers.get_all("content-encoding") {
        all.extend(text("content-encoding", value)?.split(',').map(str::trim).filter(|coding| !coding.is_empty()));
    }
    Ok(all)
}

/// The headers to keep with the object.
fn kept_headers(headers: &HeaderMap) -> Result<std::collections::BTreeMap<String, String>, Failure> {
    let mut kept = std::collections::BTreeMap::new();
    let mut metadata_bytes = 0;
    for (name, value) in headers {
        let name = name.as_str();
        let metadata = name.strip_prefix("x-amz-meta-");
        if metadata.is_some() || name == "content-type" || KEPT.contains(&name) {
            let value = text(name, value)?;
            metadata_bytes += metadata.map_or(0, |short| short.len() + value.len());
            // Like S3, a repeated x-amz-meta-* is one value with commas.
            kept.entry(name.to_owned())
                .and_modify(|held: &mut String| {
                    held.push(',');
                    held.push_str(value);
                })
                .or_insert_with(|| value.to_owned());
        }
    }
    if metadata_bytes > MAX_METADATA_BYTES {
        let message = format!("the metadata of {metadata_bytes} bytes exceeds the {MAX_METADATA_BYTES} allowed");
        return Err(Failure::code(S3ErrorCode::MetadataTooLarge, message));
    }
    // The framing is gone from the body, so it must be gone from what describes the body.
    let encodings: Vec<&str> = encodings(headers)?.into_iter().filter(|coding| *coding != "aws-chunked").collect();
    if !encodings.is_empty() {
        kept.insert("content-encoding".to_owned(), encodings.join(","));
    }
    Ok(kept)
}

fn text<'a>(name: &str, value: &'a HeaderValue) -> Result<&'a str, Failure> {
    std::str::from_utf8(value.as_bytes())
        .map_err(|_| Failure::kind(ErrorKind::InvalidRequest, format!("the {name} header is not UTF-8")))
}

fn if_absent(condition: Option<ETagCondition>) -> Result<bool, Failure> {
    match condition {
        None => Ok(false),
        Some(ETagCondition::Any) => Ok(true),
        Some(ETagCondition::ETag(_)) => Err(Failure::not_implemented("If-None-Match on a write takes only *")),
    }
}

fn if_match(condition: Option<ETagCondition>) -> Result<Option<Version>, Failure> {
    match condition {
        None => Ok(None),
        Some(ETagCondition::ETag(etag)) => Ok(Some(Version::new(etag.value()))),
        Some(ETagCondition::Any) => Err(Failure::not_implemented("If-Match on a write takes only an entity tag")),
    }
}

fn framing_failure(error: super::framing::FramingError) -> Failure {
    use super::framing::FramingError;
    match error {
        FramingError::ChunkTooLarge { .. } => Failure::code(S3ErrorCode::EntityTooLarge, error.to_string()),
        FramingError::Incomplete => Failure::code(S3ErrorCode::IncompleteBody, error.to_string()),
        FramingError::TooLong { .. } | FramingError::Malformed => {
            Failure::kind(ErrorKind::InvalidRequest, error.to_string())
        }
    }
}
