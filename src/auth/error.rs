//! Why an action was not allowed.

use crate::model::{ErrorKind, Fault};

/// Why an action was not allowed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AuthError {
    /// The principal has no right to do this, whether or not the bucket or key exists.
    #[error("access denied")]
    Denied,
    /// The principal would have the right, but there is no such bucket.
    #[error("bucket `{bucket}` does not exist")]
    NoSuchBucket {
        /// The name asked for.
        bucket: String,
    },
    /// The principal would have the right, but nothing may be written to this bucket.
    #[error("bucket `{bucket}` is read-only here")]
    ReadOnly {
        /// The bucket's name.
        bucket: String,
    },
}

impl Fault for AuthError {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::Denied | Self::ReadOnly { .. } => ErrorKind::AccessDenied,
            Self::NoSuchBucket { .. } => ErrorKind::NoSuchBucket,
        }
    }
}
