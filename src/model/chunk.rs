//! A chunk: the smallest unit that decodes alone, by its place in the grid and by its elements. Of large uncompressed
//! chunks that is a block, which is a chunk to all that follows here.

use std::fmt;

use bytes::Bytes;
use smallvec::SmallVec;

/// One number per axis. Arrays have few axes: a request makes one of these for each chunk, without allocating.
pub type PerAxis<T> = SmallVec<[T; 6]>;

/// A chunk's place in the grid of innermost chunks, one number per axis.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ChunkCoord(pub PerAxis<u64>);

impl fmt::Display for ChunkCoord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[")?;
        for (i, c) in self.0.iter().enumerate() {
            if i > 0 {
                f.write_str(",")?;
            }
            write!(f, "{c}")?;
        }
        f.write_str("]")
    }
}

/// Decoded elements in row-major order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ChunkData {
    /// Fixed-size elements, little-endian, packed.
    Fixed(Bytes),
    /// One byte string per element (text is UTF-8).
    Variable(Vec<Box<[u8]>>),
}

impl ChunkData {
    /// Bytes that the elements occupy in memory, for budgets.
    pub fn weight_bytes(&self) -> u64 {
        match self {
            Self::Fixed(bytes) => bytes.len() as u64,
            Self::Variable(values) => {
                let header = std::mem::size_of::<Box<[u8]>>() as u64;
                values.iter().map(|v| v.len() as u64 + header).sum()
            }
        }
    }
}
