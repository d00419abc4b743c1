//! What can go wrong while a plan runs.

use std::sync::Arc;

use crate::format::codec::CodecError;
use crate::model::{ChunkCoord, Details, ErrorKind, Fault};
use crate::store::StoreError;
use crate::tensor::AssembleError;

/// Why a plan has no answer.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum FetchError {
    /// The store failed.
    #[error("{0}")]
    Store(Arc<StoreError>),
    /// A chunk's bytes are not what its codecs made.
    #[error("chunk {chunk} in `{key}`: {source}")]
    Decode {
        /// The chunk.
        chunk: ChunkCoord,
        /// The object that holds it.
        key: Arc<str>,
        /// How.
        #[source]
        source: Arc<CodecError>,
    },
    /// A body ended inside a chunk.
    #[error("chunk {chunk} in `{key}` is cut off: {got} of {expected} bytes came")]
    Short {
        /// The chunk.
        chunk: ChunkCoord,
        /// The object that holds it.
        key: Arc<str>,
        /// Bytes received.
        got: u64,
        /// Bytes planned.
        expected: u64,
    },
    /// An object is larger than any chunk of this array could be.
    #[error("`{key}` has {size} bytes, more than a chunk of this array can take")]
    Bloated {
        /// The object.
        key: Arc<str>,
        /// Its size.
        size: u64,
    },
    /// An object that is one uncompressed chunk has not as many bytes as the chunk's elements take.
    #[error("`{key}` has {size} bytes, the chunk in it takes {expected}")]
    Length {
        /// The object.
        key: Arc<str>,
        /// Its size.
        size: u64,
        /// Bytes of a chunk.
        expected: u64,
    },
    /// Decoded chunks do not fit their plan.
    #[error(transparent)]
    Assemble(#[from] AssembleError),
    /// Too much is being answered already.
    #[error("the gateway's budget of bytes in flight is spent")]
    Busy,
    /// Nobody waits any more. Told to no client.
    #[error("the request was given up")]
    GivenUp,
    /// A task of ours died.
    #[error("decoding failed: {reason}")]
    Panicked {
        /// The panic's message; for the log.
        reason: String,
    },
}

impl FetchError {
    /// Whether an object changed since it was planned: planning again may help.
    pub fn is_changed(&self) -> bool {
        matches!(self, Self::Store(error) if matches!(**error, StoreError::Changed { .. }))
    }
}

impl Fault for FetchError {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::Store(error) => error.kind(),
            Self::Decode { source, .. } => source.kind(),
            Self::Short { .. } | Self::Bloated { .. } | Self::Length { .. } => ErrorKind::CorruptData,
            Self::Assemble(error) => error.kind(),
            Self::Busy | Self::GivenUp => ErrorKind::SlowDown,
            Self::Panicked { .. } => ErrorKind::Internal,
        }
    }

    /// The array is for whoever knows it: here it is one object of many.
    fn details(&self) -> Details {
        match self {
            Self::Decode { chunk, .. } | Self::Short { chunk, .. } => {
                Details { chunk: Some(chunk.to_string()), ..Details::default() }
            }
            Self::Bloated { .. }
            | Self::Length { .. }
            | Self::Store(_)
            | Self::Assemble(_)
            | Self::Busy
            | Self::GivenUp
            | Self::Panicked { .. } => Details::default(),
        }
    }
}
