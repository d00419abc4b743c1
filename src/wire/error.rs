//! Why a tensor does not become a body.

use super::Format;
use crate::model::{DType, Details, ErrorKind, Fault};

/// Why a tensor does not become a body.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WireError {
    /// The format cannot hold this answer.
    #[error("{} cannot hold this answer: {reason}; possible: {}", format.name(), names(possible))]
    NotPossible {
        /// The format asked for.
        format: Format,
        /// Why, with the values.
        reason: String,
        /// The formats that can hold it.
        possible: Vec<Format>,
    },
    /// `Accept` admits no format that can hold this answer.
    #[error("`Accept: {accept}` admits no format that can hold this answer; possible: {}", media_types(possible))]
    NotAcceptable {
        /// The header's value, shortened.
        accept: String,
        /// The formats that can hold the answer.
        possible: Vec<Format>,
    },
    /// The body's length does not fit 64 bits.
    #[error("the answer is longer than 2^64 - 1 bytes")]
    TooLong,
    /// A text element is not Unicode.
    #[error("element {element} is not {encoding}")]
    Text {
        /// The element's row-major position in the answer.
        element: usize,
        /// The encoding that its type promises.
        encoding: &'static str,
    },
    /// The format is built whole: it has no head, and no length before it is built.
    #[error("{} is not a streaming format", format.name())]
    NotStreamed {
        /// The format.
        format: Format,
    },
    /// A tensor contradicts itself: a fault of the code that made it.
    #[error("a tensor of {dtype} holds {found} bytes or values where its shape has {expected}")]
    Inconsistent {
        /// The element type.
        dtype: DType,
        /// Bytes, or values of variable length, by shape and type.
        expected: u64,
        /// Bytes or values there are.
        found: u64,
    },
    /// The PNG encoder failed.
    #[error("the PNG encoder failed")]
    Png(#[from] png::EncodingError),
}

impl Fault for WireError {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::NotPossible { .. } | Self::NotAcceptable { .. } => ErrorKind::FormatNotPossible,
            Self::TooLong => ErrorKind::SliceTooLarge,
            Self::Text { .. } => ErrorKind::CorruptData,
            Self::NotStreamed { .. } | Self::Inconsistent { .. } | Self::Png(_) => ErrorKind::Internal,
        }
    }

    fn details(&self) -> Details {
        match self {
            Self::NotPossible { possible, .. } => {
                Details { parameter: Some("format".into()), valid: Some(names(possible)), ..Details::default() }
            }
            Self::NotAcceptable { possible, .. } => {
                Details { parameter: Some("Accept".into()), valid: Some(media_types(possible)), ..Details::default() }
            }
            Self::TooLong | Self::Text { .. } | Self::NotStreamed { .. } | Self::Inconsistent { .. } | Self::Png(_) => {
                Details::default()
            }
        }
    }
}

fn names(formats: &[Format]) -> String {
    formats.iter().map(|f| f.name()).collect::<Vec<_>>().join(", ")
}

fn media_types(formats: &[Format]) -> String {
    formats.iter().map(|f| f.media_type()).collect::<Vec<_>>().join(", ")
}
