//! What can be wrong with a metadata document or a file header.

use crate::model::{ErrorKind, Fault};

/// Why bytes do not describe an array that we can serve.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FormatError {
    /// The document contradicts its format.
    #[error("{document}: {reason}")]
    Malformed {
        /// Which document: `zarr.json`, `.zarray`, `npy header` and such.
        document: &'static str,
        /// What is wrong, with the values.
        reason: String,
    },
    /// A codec that we do not have, or have not in this place.
    #[error("codec `{name}` is not supported{hint}")]
    Codec {
        /// The codec's name as stored.
        name: String,
        /// Why, starting with `: `, or nothing.
        hint: String,
    },
    /// An element type that we do not have.
    #[error("data type `{name}` is not supported{hint}")]
    Dtype {
        /// The type's name as stored.
        name: String,
        /// Why, starting with `: `, or nothing.
        hint: String,
    },
    /// Another feature of the format that we do not have.
    #[error("{feature} is not supported")]
    Feature {
        /// The feature and its value, such as "chunk grid `rectilinear`".
        feature: String,
    },
}

impl Fault for FormatError {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::Malformed { .. } => ErrorKind::CorruptData,
            Self::Codec { .. } => ErrorKind::UnsupportedCodec,
            Self::Dtype { .. } => ErrorKind::UnsupportedDtype,
            Self::Feature { .. } => ErrorKind::NotImplemented,
        }
    }
}
