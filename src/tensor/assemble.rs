//! All chunks of a plan into one tensor.

use std::sync::Arc;

use super::place::{place, place_value};
use crate::format::ArrayMeta;
use crate::model::{ChunkData, ErrorKind, Fault, PerAxis, shape};
use crate::plan::{AxisChunk, PlannedChunk, ReadPlan, Run};

/// Why chunks do not fit their plan.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AssembleError {
    /// A chunk holds another kind or number of elements than its array says.
    #[error("chunk {chunk} holds {got} instead of {expected}")]
    Chunk {
        /// The chunk's grid coordinates.
        chunk: String,
        /// What it holds.
        got: String,
        /// What it should hold.
        expected: String,
    },
    /// The answer does not fit memory arithmetic.
    #[error("the answer does not fit in memory")]
    TooLarge,
}

impl Fault for AssembleError {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::Chunk { .. } => ErrorKind::CorruptData,
            Self::TooLarge => ErrorKind::SliceTooLarge,
        }
    }
}

/// A plan's chunks, parallel to `plan.chunks`; `None` reads as the fill value.
pub type Chunks = [Option<Arc<ChunkData>>];

/// Bytes of the answer of `plan`, where its elements have a fixed size.
///
/// # Errors
/// [`AssembleError::TooLarge`].
pub fn answer_len(plan: &ReadPlan) -> Result<Option<usize>, AssembleError> {
    let Some(size) = plan.dtype.size_bytes() else { return Ok(None) };
    let bytes = shape::bytes(&plan.counts, size).and_then(|n| usize::try_from(n).ok());
    bytes.map(Some).ok_or(AssembleError::TooLarge)
}

/// Fills `out`, which has [`answer_len`] bytes and may hold anything before, with fixed-size elements.
///
/// # Errors
/// [`AssembleError::Chunk`] when a chunk's elements are not what the array says: nothing is guessed.
pub fn assemble(array: &ArrayMeta, plan: &ReadPlan, chunks: &Chunks, out: &mut [u8]) -> Result<(), AssembleError> {
    let size = plan.dtype.size_bytes().ok_or(AssembleError::TooLarge)?;
    let covered = is_covered(plan);
    if !covered {
        fill(out, &plan.outside);
    }
    let work = Work { array, plan, chunks, covered };
    match size {
        0 => Ok(()),
        1 => fixed::<1>(work, out),
        2 => fixed::<2>(work, out),
        4 => fixed::<4>(work, out),
        8 => fixed::<8>(work, out),
        16 => fixed::<16>(work, out),
        other => odd(work, out, other),
    }
}

/// The elements of an answer of varying length.
///
/// # Errors
/// As [`assemble`].
pub fn assemble_variable(array: &ArrayMeta, plan: &ReadPlan, chunks: &Chunks) -> Result<Vec<Box<[u8]>>, AssembleError> {
    let total = shape::elements(&plan.counts).and_then(|n| usize::try_from(n).ok()).ok_or(AssembleError::TooLarge)?;
    variable(array, plan, chunks, total)
}

#[derive(Clone, Copy)]
struct Work<'a> {
    array: &'a ArrayMeta,
    plan: &'a ReadPlan,
    chunks: &'a Chunks,
    /// Whether the chunks cover the answer: then what it held before need not be overwritten first.
    covered: bool,
}

impl Work<'_> {
    /// Whether absent chunks are in place already.
    fn absent_is_done(self) -> bool {
        !self.covered && self.plan.fill == self.plan.outside
    }
}

/// Whether every position of the answer lies in a chunk. Along an axis, no position is taken from two chunks.
fn is_covered(plan: &ReadPlan) -> bool {
    let taken = |axis: &Vec<AxisChunk>| axis.iter().flat_map(|chunk| &chunk.runs).map(|run| run.count).sum::<u64>();
    plan.axes.iter().zip(&plan.counts).all(|(axis, count)| taken(axis) == *count)
}

/// Repeats `element` over `out`.
pub fn fill(out: &mut [u8], element: &[u8]) {
    match element {
        [] => {}
        [first, rest @ ..] if rest.iter().all(|byte| byte == first) => out.fill(*first),
        _ => out.chunks_exact_mut(element.len()).for_each(|slot| slot.copy_from_slice(element)),
    }
}

fn runs<'a>(plan: &'a ReadPlan, chunk: &PlannedChunk) -> PerAxis<&'a [Run]> {
    chunk.at.iter().zip(&plan.axes).map(|(&at, axis)| axis[at as usize].runs.as_slice()).collect()
}

/// The bytes of a chunk, checked against its shape.
fn checked<'a>(chunk: &PlannedChunk, data: &'a ChunkData, expected: u64) -> Result<&'a [u8], AssembleError> {
    let got = match data {
        ChunkData::Fixed(bytes) if bytes.len() as u64 == expected => return Ok(bytes),
        ChunkData::Fixed(bytes) => format!("{} bytes", bytes.len()),
        ChunkData::Variable(values) => format!("{} variable-size elements", values.len()),
    };
    Err(AssembleError::Chunk { chunk: chunk.coord.to_string(), got, expected: format!("{expected} bytes") })
}

fn fixed<const N: usize>(work: Work<'_>, out: &mut [u8]) -> Result<(), AssembleError> {
    let Work { array, plan, .. } = work;
    let (out, _) = out.as_chunks_mut::<N>();
    for (chunk, data) in plan.chunks.iter().zip(work.chunks) {
        let runs = runs(plan, chunk);
        let chunk_shape = array.decoded_shape(&chunk.coord);
        match data {
            Some(data) => {
                let expected = shape::bytes(&chunk_shape, N).ok_or(AssembleError::TooLarge)?;
                let (from, _) = checked(chunk, data, expected)?.as_chunks::<N>();
                place(out, &plan.counts, from, &chunk_shape, &runs);
            }
            None if work.absent_is_done() => {}
            None => {
                let mut element = [0; N];
                element.copy_from_slice(&plan.fill);
                place_value(out, &plan.counts, &element, &chunk_shape, &runs);
            }
        }
    }
    Ok(())
}

/// Elements of an uncommon size: the bytes of an element become one more axis, taken whole.
fn odd(work: Work<'_>, out: &mut [u8], size: usize) -> Result<(), AssembleError> {
    let Work { array, plan, .. } = work;
    let bytes = [Run { out: 0, start: 0, step: 1, count: size as u64 }];
    let mut counts = plan.counts.clone();
    counts.push(size as u64);
    let (out, _) = out.as_chunks_mut::<1>();
    for (chunk, data) in plan.chunks.iter().zip(work.chunks) {
        let mut chunk_shape = array.decoded_shape(&chunk.coord);
        let elements = shape::elements(&chunk_shape).ok_or(AssembleError::TooLarge)?;
        let expected = shape::bytes(&chunk_shape, size).ok_or(AssembleError::TooLarge)?;
        chunk_shape.push(size as u64);
        let mut runs = runs(plan, chunk);
        runs.push(&bytes);
        let repeated;
        let from = match data {
            Some(data) => checked(chunk, data, expected)?,
            None if work.absent_is_done() => continue,
            None => {
                repeated = plan.fill.repeat(elements as usize);
                &repeated
            }
        };
        place(out, &counts, from.as_chunks::<1>().0, &chunk_shape, &runs);
    }
    Ok(())
}

fn variable(
    array: &ArrayMeta,
    plan: &ReadPlan,
    chunks: &Chunks,
    total: usize,
) -> Result<Vec<Box<[u8]>>, AssembleError> {
    let mut out: Vec<Box<[u8]>> = vec![plan.outside.to_vec().into_boxed_slice(); total];
    for (chunk, data) in plan.chunks.iter().zip(chunks) {
        let chunk_shape = array.decoded_shape(&chunk.coord);
        let elements = shape::elements(&chunk_shape).ok_or(AssembleError::TooLarge)?;
        let runs = runs(plan, chunk);
        match data.as_deref() {
            Some(ChunkData::Variable(values)) if values.len() as u64 == elements => {
                place(&mut out, &plan.counts, values, &chunk_shape, &runs);
            }
            Some(data) => {
                let got = match data {
                    ChunkData::Fixed(bytes) => format!("{} bytes of fixed-size elements", bytes.len()),
                    ChunkData::Variable(values) => format!("{} elements", values.len()),
                };
                return Err(AssembleError::Chunk {
                    chunk: chunk.coord.to_string(),
                    got,
                    expected: format!("{elements} elements"),
                });
            }
            None if plan.fill == plan.outside => {}
            None => {
                let values = vec![plan.fill.to_vec().into_boxed_slice(); elements as usize];
                place(&mut out, &plan.counts, &values, &chunk_shape, &runs);
            }
        }
    }
    Ok(out)
}
