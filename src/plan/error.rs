//! Limits of one request, and what happens past them.

use crate::index::IndexError;
use crate::model::{ChunkCoord, Details, ErrorKind, Fault};

/// What one request may ask for. Decided before anything is allocated or read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of the answer's elements.
    pub result_bytes: u64,
    /// Chunks touched.
    pub chunks: u64,
    /// Bytes of one decoded chunk.
    pub chunk_bytes: u64,
}

/// Why a hyperslab cannot be planned.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PlanError {
    /// The answer is too large.
    #[error("the answer would hold {bytes} bytes, the limit is {limit}; {split}")]
    TooLarge {
        /// Bytes of the answer; saturated.
        bytes: u64,
        /// The limit.
        limit: u64,
        /// A suggested split, in words.
        split: String,
    },
    /// Too many chunks are touched.
    #[error("the selection touches {chunks} chunks, the limit is {limit}; {split}")]
    TooManyChunks {
        /// Chunks touched; saturated.
        chunks: u64,
        /// The limit.
        limit: u64,
        /// A suggested split, in words.
        split: String,
    },
    /// The array's chunks are too large to be held in memory.
    #[error("a chunk decodes to {bytes} bytes, the limit is {limit}")]
    ChunkTooLarge {
        /// Bytes of one decoded chunk; saturated.
        bytes: u64,
        /// The limit.
        limit: u64,
    },
    /// The place of a chunk contradicts its container.
    #[error("chunk {chunk} of `{key}`: {source}")]
    Index {
        /// The chunk.
        chunk: Box<ChunkCoord>,
        /// The object that should hold it.
        key: String,
        /// How.
        #[source]
        source: IndexError,
    },
    /// A chunk's stored size cannot be that of a chunk.
    #[error("chunk {chunk} of `{key}` is stored in {len} bytes, a chunk of {decoded} bytes never is")]
    Bloated {
        /// The chunk.
        chunk: Box<ChunkCoord>,
        /// The object that holds it.
        key: String,
        /// Its stored bytes.
        len: u64,
        /// Its decoded bytes.
        decoded: u64,
    },
    /// An uncompressed chunk is not stored in as many bytes as its elements take.
    #[error("chunk {chunk} of `{key}` is stored in {len} bytes instead of {expected}")]
    Length {
        /// The chunk, by its place in the grid of stored chunks.
        chunk: Box<ChunkCoord>,
        /// The object that holds it.
        key: String,
        /// Its stored bytes.
        len: u64,
        /// Bytes of its elements.
        expected: u64,
    },
}

impl Fault for PlanError {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::TooLarge { .. } | Self::TooManyChunks { .. } | Self::ChunkTooLarge { .. } => ErrorKind::SliceTooLarge,
            Self::Index { .. } | Self::Bloated { .. } | Self::Length { .. } => ErrorKind::CorruptData,
        }
    }

    fn details(&self) -> Details {
        match self {
            Self::TooLarge { limit, .. } => {
                Details { valid: Some(format!("at most {limit} bytes")), ..Details::default() }
            }
            Self::TooManyChunks { limit, .. } => {
                Details { valid: Some(format!("at most {limit} chunks")), ..Details::default() }
            }
            Self::ChunkTooLarge { .. } => Details::default(),
            Self::Index { chunk, .. } | Self::Bloated { chunk, .. } | Self::Length { chunk, .. } => {
                Details { chunk: Some(chunk.to_string()), ..Details::default() }
            }
        }
    }
}
