//! Chunks to answers: a dense tensor, and the strided copies that fill it.
//!
//! Pure: no I/O, no async.

use crate::model::{ChunkData, DType};

/// A dense row-major tensor in memory.
#[derive(Debug, Clone, PartialEq)]
pub struct Tensor {
    /// Elements per axis.
    pub shape: Vec<u64>,
    /// The element type.
    pub dtype: DType,
    /// The elements.
    pub data: ChunkData,
}
