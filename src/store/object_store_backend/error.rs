//! Failures of the `object_store` crate, as the contract tells them.

use std::error::Error as _;

use object_store::Error;
use object_store::client::{HttpError, HttpErrorKind};

use super::super::StoreError;

/// A failed call, as told for a read.
pub(super) fn backend_error(operation: &'static str, key: &str, error: Error) -> StoreError {
    let reason = chain(&error);
    let key = key.to_owned();
    let broken = broken_connection(&error);
    match error {
        // An absent bucket must not read as an absent object.
        Error::NotFound { .. } if reason.contains("NoSuchBucket") || reason.contains("ContainerNotFound") => {
            StoreError::Failed { operation, key, reason }
        }
        Error::NotFound { .. } | Error::InvalidPath { .. } => StoreError::NotFound { key },
        Error::Precondition { .. } => StoreError::Changed { key },
        Error::PermissionDenied { .. } | Error::Unauthenticated { .. } => StoreError::Denied { operation, key, reason },
        Error::NotSupported { .. } | Error::NotImplemented { .. } => StoreError::Unsupported { operation },
        _ => match status_in(&reason) {
            Some(429 | 503) => StoreError::Throttled,
            Some(408 | 504) => StoreError::Timeout { key },
            _ if reason.contains("timed out") || reason.contains("timeout") => StoreError::Timeout { key },
            Some(500 | 502) => StoreError::Interrupted { operation, key, reason },
            _ if broken => StoreError::Interrupted { operation, key, reason },
            _ => StoreError::Failed { operation, key, reason },
        },
    }
}

/// What an upload makes of a failure: a version that does not match is the client's condition.
pub(super) fn put_error(key: &str, error: Error) -> StoreError {
    if matches!(error, Error::AlreadyExists { .. } | Error::Precondition { .. }) {
        return StoreError::PreconditionFailed { key: key.into() };
    }
    let reason = chain(&error);
    match backend_error("write", key, error) {
        StoreError::NotFound { key } => StoreError::Failed { operation: "write", key, reason },
        other => other,
    }
}

/// Whether the store refused the range itself.
pub(super) fn is_unsatisfiable(error: &Error) -> bool {
    matches!(error, Error::Generic { .. }) && status_in(&chain(error)) == Some(416)
}

/// The HTTP status in an error's text: the crate keeps the type that holds it to itself.
fn status_in(text: &str) -> Option<u16> {
    let (_, rest) = text.split_once("status code: ")?;
    rest.get(..3)?.parse().ok()
}

/// Whether the connection was refused or broke.
fn broken_connection(error: &Error) -> bool {
    let mut source = error.source();
    while let Some(cause) = source {
        if let Some(error) = cause.downcast_ref::<HttpError>() {
            let kind = error.kind();
            return matches!(kind, HttpErrorKind::Connect | HttpErrorKind::Request | HttpErrorKind::Interrupted);
        }
        source = cause.source();
    }
    false
}

/// An error and its causes in one line.
fn chain(error: &Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        // The crate's messages repeat their cause.
        if !text.contains(&cause_text) {
            text = format!("{text}: {cause_text}");
        }
        source = cause.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn generic(text: &'static str) -> Error {
        Error::Generic { store: "GCS", source: text.into() }
    }

    #[test]
    fn statuses_that_the_crate_hides_keep_their_meaning() {
        let refused = generic("Server returned non-2xx status code: 416 Range Not Satisfiable: ");
        assert!(is_unsatisfiable(&refused));
        let busy = generic("Server returned non-2xx status code: 503 Service Unavailable: SlowDown");
        assert!(!is_unsatisfiable(&busy));
        assert!(matches!(backend_error("read", "k", busy), StoreError::Throttled));
        let stumbled = generic("Server returned non-2xx status code: 500 Internal Server Error: ");
        assert!(matches!(backend_error("read", "k", stumbled), StoreError::Interrupted { .. }));
        assert!(matches!(backend_error("read", "k", generic("operation timed out")), StoreError::Timeout { .. }));
        assert!(matches!(backend_error("read", "k", generic("nonsense")), StoreError::Failed { .. }));
    }

    #[test]
    fn an_absent_bucket_is_no_absent_object() {
        let error = |text: &'static str| Error::NotFound { path: "k".into(), source: text.into() };
        assert!(matches!(backend_error("read", "k", error("NoSuchKey")), StoreError::NotFound { .. }));
        assert!(matches!(backend_error("read", "k", error("<Code>NoSuchBucket</Code>")), StoreError::Failed { .. }));
    }
}
