//! What can be wrong with a shard's index.

use crate::model::{ErrorKind, Fault};

/// Why an index cannot be trusted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum IndexError {
    /// Fewer or more bytes than the number of chunks asks for.
    #[error("shard index has {got} bytes instead of {expected}")]
    Length {
        /// Bytes found.
        got: u64,
        /// Bytes of the index, or of the page of it that was read.
        expected: u64,
    },
    /// The checksum does not match.
    #[error("shard index fails its crc32c")]
    Checksum,
    /// An entry points outside its shard.
    #[error("shard index places inner chunk {chunk} at {offset}+{len}, outside the shard of {container} bytes")]
    Outside {
        /// The inner chunk's row-major number.
        chunk: u64,
        /// Its offset as stored.
        offset: u64,
        /// Its length as stored.
        len: u64,
        /// Bytes of the shard.
        container: u64,
    },
    /// The shard is too small to hold its index.
    #[error("shard of {container} bytes cannot hold its index of {index} bytes")]
    NoRoom {
        /// Bytes of the shard.
        container: u64,
        /// Bytes of the index.
        index: u64,
    },
}

impl Fault for IndexError {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::Length { .. } | Self::Checksum | Self::Outside { .. } | Self::NoRoom { .. } => ErrorKind::CorruptData,
        }
    }
}
