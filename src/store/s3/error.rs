//! Failures of the SDK, as the contract tells them.

use aws_sdk_s3::config::http::HttpResponse;
use aws_sdk_s3::error::{DisplayErrorContext, ProvideErrorMetadata, SdkError};
use aws_sdk_s3::operation::RequestId;
use aws_sdk_s3::primitives::ByteStreamError;

use super::super::StoreError;

/// A failed call, as told for a read. What differs for uploads is [`PutFault`].
pub(super) fn sdk_error<E>(operation: &'static str, key: &str, error: &SdkError<E, HttpResponse>) -> StoreError
where
    E: std::error::Error + ProvideErrorMetadata + 'static,
{
    let status = error.raw_response().map_or(0, |response| response.status().as_u16());
    let code = error.as_service_error().and_then(ProvideErrorMetadata::code).unwrap_or("");
    let key = key.to_owned();
    match (status, code) {
        (404, "NoSuchBucket" | "NoSuchUpload") => StoreError::Failed { operation, key, reason: words(error) },
        (404, _) => StoreError::NotFound { key },
        (401 | 403, _) => StoreError::Denied { operation, key, reason: words(error) },
        (412, _) => StoreError::Changed { key },
        (416, _) => StoreError::RangeNotSatisfiable { key, size: announced_size(error) },
        (429 | 503, _) | (_, "SlowDown" | "ServiceUnavailable" | "Throttling" | "RequestLimitExceeded") => {
            StoreError::Throttled
        }
        (408 | 504, _) => StoreError::Timeout { key },
        _ if timed_out(error) => StoreError::Timeout { key },
        // S3 documents both as passing: "InternalError: try again".
        (500 | 502, _) => StoreError::Interrupted { operation, key, reason: words(error) },
        _ if disconnected(error) => StoreError::Interrupted { operation, key, reason: words(error) },
        _ => StoreError::Failed { operation, key, reason: words(error) },
    }
}

/// What an upload makes of a failure: a version that does not match is the client's condition.
pub(super) struct PutFault;

impl PutFault {
    pub(super) fn of<E>(key: &str, error: &SdkError<E, HttpResponse>) -> StoreError
    where
        E: std::error::Error + ProvideErrorMetadata + 'static,
    {
        let code = error.as_service_error().and_then(ProvideErrorMetadata::code).unwrap_or("");
        match (sdk_error("write", key, error), code) {
            (_, "BadDigest" | "InvalidDigest") => {
                StoreError::BadDigest { key: key.into(), reason: "the bytes changed on the way to the store".into() }
            }
            (_, "KeyTooLongError" | "InvalidURI") => {
                StoreError::InvalidKey { key: key.into(), reason: format!("the store answers {code}") }
            }
            (StoreError::Changed { key }, _) => StoreError::PreconditionFailed { key },
            // A condition on an object that another upload is just writing, or that is not there.
            (_, "ConditionalRequestConflict") => StoreError::PreconditionFailed { key: key.into() },
            (StoreError::NotFound { key }, "NoSuchKey") => StoreError::PreconditionFailed { key },
            (StoreError::NotFound { key }, _) => StoreError::Failed { operation: "write", key, reason: words(error) },
            (other, _) => other,
        }
    }
}

/// A body that broke off.
pub(super) fn body_error(key: &str, got: u64, expected: u64, error: &ByteStreamError) -> StoreError {
    let text = DisplayErrorContext(error).to_string();
    if text.contains("timeout") || text.contains("timed out") {
        return StoreError::Timeout { key: key.into() };
    }
    if got < expected {
        return StoreError::Truncated { key: key.into(), got, expected };
    }
    StoreError::Failed { operation: "read", key: key.into(), reason: text }
}

fn timed_out<E>(error: &SdkError<E, HttpResponse>) -> bool {
    match error {
        SdkError::TimeoutError(_) => true,
        SdkError::DispatchFailure(failure) => failure.is_timeout(),
        _ => false,
    }
}

/// Whether the connection was refused or broke before an answer.
fn disconnected<E>(error: &SdkError<E, HttpResponse>) -> bool {
    matches!(error, SdkError::DispatchFailure(failure) if failure.is_io())
}

/// The store's words, with code and request id, for the log.
fn words<E>(error: &SdkError<E, HttpResponse>) -> String
where
    E: std::error::Error + ProvideErrorMetadata + 'static,
{
    let Some(service) = error.as_service_error() else { return DisplayErrorContext(error).to_string() };
    let status = error.raw_response().map_or(0, |response| response.status().as_u16());
    let code = service.code().unwrap_or("no code");
    let message = service.message().unwrap_or("no message");
    let request_id = service.meta().request_id().unwrap_or("none");
    format!("status {status}, {code}: {message} (request id {request_id})")
}

/// The size that a 416 tells in `Content-Range: bytes */N`, or zero.
fn announced_size<E>(error: &SdkError<E, HttpResponse>) -> u64 {
    let header = error.raw_response().and_then(|response| response.headers().get("content-range"));
    header.and_then(|value| value.rsplit('/').next()?.trim().parse().ok()).unwrap_or(0)
}
