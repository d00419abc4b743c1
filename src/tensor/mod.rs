//! Chunks to answers: a dense tensor, and the strided copies that fill it.
//!
//! Pure: no I/O, no async. A copy never reads or writes outside its chunk or tensor: positions come from a plan
//! whose arithmetic was checked, and slices check them again.

mod assemble;
mod place;

pub use assemble::{
    AssembleError, Chunk, Chunks, answer_len, assemble, assemble_variable, direct_range, fill, is_covered,
};
pub use place::{Beside, Element, beside_axis, place, place_beside, place_value};

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
