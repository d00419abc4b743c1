//! Why a chunk's stored bytes did not become its elements.

use crate::model::{ErrorKind, Fault};

/// A chunk that does not decode. The bytes, or the metadata that describes them, are at fault.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CodecError {
    /// The codec refused its input.
    #[error("codec `{codec}` could not decode {len} bytes: {reason}")]
    Invalid {
        /// The codec.
        codec: &'static str,
        /// Bytes that it was given.
        len: usize,
        /// What it said.
        reason: String,
    },
    /// The codec gave, or was given, another number of bytes than the chunk's shape needs.
    #[error("codec `{codec}`: {got} bytes where {expected} are needed")]
    Length {
        /// The codec.
        codec: &'static str,
        /// Bytes needed.
        expected: u64,
        /// Bytes there are, or that the codec's own header claims.
        got: u64,
    },
    /// The decoded bytes pass the most that this place in the chain can hold.
    #[error("codec `{codec}`: more than {limit} bytes from {len}")]
    TooLong {
        /// The codec.
        codec: &'static str,
        /// Bytes that it was given.
        len: usize,
        /// The most bytes allowed.
        limit: u64,
    },
    /// The checksum stored with the bytes is not theirs.
    #[error("codec `{codec}`: stored checksum {stored:#010x}, but {len} bytes have {computed:#010x}")]
    Checksum {
        /// The codec.
        codec: &'static str,
        /// Bytes under the checksum.
        len: usize,
        /// As stored.
        stored: u32,
        /// As computed.
        computed: u32,
    },
    /// The chain cannot decode to this shape: it was made for another.
    #[error("codec `{codec}` does not fit the chunk shape {shape:?}")]
    Shape {
        /// The codec.
        codec: &'static str,
        /// The chunk shape.
        shape: Vec<u64>,
    },
}

impl CodecError {
    /// An [`CodecError::Invalid`] with any displayable reason.
    pub(super) fn invalid(codec: &'static str, len: usize, reason: impl std::fmt::Display) -> Self {
        Self::Invalid { codec, len, reason: reason.to_string() }
    }
}

impl Fault for CodecError {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::Invalid { .. }
            | Self::Length { .. }
            | Self::TooLong { .. }
            | Self::Checksum { .. }
            | Self::Shape { .. } => ErrorKind::CorruptData,
        }
    }
}
