//! What a store can answer instead of bytes.

use crate::model::{ErrorKind, Fault};

/// Why a store operation did not succeed. Absent, denied, changed and broken stay apart.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// The store says that there is no such object.
    #[error("`{key}` does not exist")]
    NotFound {
        /// The key within the bucket.
        key: String,
    },
    /// The store refused the gateway's credential, or the operating system its user.
    #[error("the store refused the gateway's own access to `{key}`")]
    Denied {
        /// What was tried.
        operation: &'static str,
        /// The key within the bucket.
        key: String,
        /// The store's words; for the log, not for clients.
        reason: String,
    },
    /// The object has another version than the one asked for.
    #[error("`{key}` changed while being read")]
    Changed {
        /// The key within the bucket.
        key: String,
    },
    /// The range starts past the object's end.
    #[error("range starts past the end of `{key}` ({size} bytes)")]
    RangeNotSatisfiable {
        /// The key within the bucket.
        key: String,
        /// The object's size in bytes.
        size: u64,
    },
    /// A condition of an upload does not hold.
    #[error("a condition on `{key}` does not hold")]
    PreconditionFailed {
        /// The key within the bucket.
        key: String,
    },
    /// The body ended before its announced length.
    #[error("the body of `{key}` ended after {got} of {expected} bytes")]
    Truncated {
        /// The key within the bucket.
        key: String,
        /// Bytes received.
        got: u64,
        /// Bytes announced.
        expected: u64,
    },
    /// No answer in time.
    #[error("the store did not answer in time for `{key}`")]
    Timeout {
        /// The key within the bucket.
        key: String,
    },
    /// The store asks for fewer requests.
    #[error("the store is overloaded")]
    Throttled,
    /// The connection broke, or the store stumbled (500, 502): the same call may succeed when it is made again.
    #[error("the connection to the store broke, or the store stumbled: {operation} `{key}`")]
    Interrupted {
        /// What was tried.
        operation: &'static str,
        /// The key within the bucket.
        key: String,
        /// The store's words; for the log, not for clients.
        reason: String,
    },
    /// Any other failure of the store.
    #[error("the store failed to {operation} `{key}`: {reason}")]
    Failed {
        /// What was tried.
        operation: &'static str,
        /// The key within the bucket.
        key: String,
        /// The store's words; for the log, not for clients.
        reason: String,
    },
    /// The store cannot hold this key.
    #[error("key `{key}` cannot be stored here: {reason}")]
    InvalidKey {
        /// The key within the bucket.
        key: String,
        /// Why.
        reason: String,
    },
    /// An upload contradicts its declared length or checksum.
    #[error("upload of `{key}`: {reason}")]
    BadDigest {
        /// The key within the bucket.
        key: String,
        /// Which and how.
        reason: String,
    },
    /// The client's own body failed.
    #[error("the request body ended early: {reason}")]
    RequestBody {
        /// Why.
        reason: String,
    },
    /// This store has no such operation.
    #[error("this store cannot {operation}")]
    Unsupported {
        /// What was tried.
        operation: &'static str,
    },
}

impl StoreError {
    /// The same error about another name of the same object: a store beneath a prefix tells keys without it.
    pub(super) fn about(mut self, name: &str) -> Self {
        match &mut self {
            Self::NotFound { key }
            | Self::Denied { key, .. }
            | Self::Changed { key }
            | Self::RangeNotSatisfiable { key, .. }
            | Self::PreconditionFailed { key }
            | Self::Truncated { key, .. }
            | Self::Timeout { key }
            | Self::Interrupted { key, .. }
            | Self::Failed { key, .. }
            | Self::InvalidKey { key, .. }
            | Self::BadDigest { key, .. } => *key = name.to_owned(),
            Self::Throttled | Self::RequestBody { .. } | Self::Unsupported { .. } => {}
        }
        self
    }

    /// Whether the same read may succeed when it is sent again: nothing was learned of the object, only of the way to
    /// it. What is absent, denied, changed or wrongly asked stays so.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Truncated { .. } | Self::Timeout { .. } | Self::Throttled | Self::Interrupted { .. } => true,
            Self::NotFound { .. }
            | Self::Denied { .. }
            | Self::Changed { .. }
            | Self::RangeNotSatisfiable { .. }
            | Self::PreconditionFailed { .. }
            | Self::Failed { .. }
            | Self::InvalidKey { .. }
            | Self::BadDigest { .. }
            | Self::RequestBody { .. }
            | Self::Unsupported { .. } => false,
        }
    }

    /// Whether the store asks for fewer requests, in words or by not answering in time.
    pub fn is_overload(&self) -> bool {
        matches!(self, Self::Throttled | Self::Timeout { .. })
    }

    /// A name for metrics when the store itself is at fault; `None` for what a client asked wrongly or what is absent.
    pub(super) fn store_fault(&self) -> Option<&'static str> {
        match self {
            Self::Denied { .. } => Some("denied"),
            Self::Changed { .. } => Some("changed"),
            Self::Truncated { .. } => Some("truncated"),
            Self::Timeout { .. } => Some("timeout"),
            Self::Throttled => Some("throttled"),
            Self::Interrupted { .. } => Some("interrupted"),
            Self::Failed { .. } => Some("failed"),
            Self::NotFound { .. }
            | Self::RangeNotSatisfiable { .. }
            | Self::PreconditionFailed { .. }
            | Self::InvalidKey { .. }
            | Self::BadDigest { .. }
            | Self::RequestBody { .. }
            | Self::Unsupported { .. } => None,
        }
    }
}

impl Fault for StoreError {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::NotFound { .. } => ErrorKind::NoSuchKey,
            Self::Denied { .. } => ErrorKind::UpstreamDenied,
            Self::Changed { .. } => ErrorKind::ArrayChanged,
            Self::RangeNotSatisfiable { .. } => ErrorKind::InvalidRange,
            Self::PreconditionFailed { .. } => ErrorKind::PreconditionFailed,
            Self::Truncated { .. } | Self::Interrupted { .. } | Self::Failed { .. } => ErrorKind::UpstreamError,
            Self::Timeout { .. } => ErrorKind::UpstreamTimeout,
            Self::Throttled => ErrorKind::SlowDown,
            Self::InvalidKey { .. } => ErrorKind::InvalidKey,
            Self::BadDigest { .. } => ErrorKind::BadDigest,
            Self::RequestBody { .. } => ErrorKind::InvalidRequest,
            Self::Unsupported { .. } => ErrorKind::NotImplemented,
        }
    }
}
