//! All chunks of a plan into one tensor.

use bytes::Bytes;

use super::{Tensor, place};
use crate::format::ArrayMeta;
use crate::model::{ChunkData, ErrorKind, Fault, shape};
use crate::plan::{PlannedChunk, ReadPlan, Run};

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

/// Fills the answer of `plan` from `chunks`, which run parallel to `plan.chunks` (`None` reads as the fill value).
///
/// `kept` says which axes the answer keeps.
///
/// # Errors
/// [`AssembleError::Chunk`] when a chunk's elements are not what the array says: nothing is guessed.
pub fn assemble(
    array: &ArrayMeta,
    plan: &ReadPlan,
    kept: &[bool],
    chunks: &[Option<ChunkData>],
) -> Result<Tensor, AssembleError> {
    let total = shape::elements(&plan.counts).and_then(|n| usize::try_from(n).ok()).ok_or(AssembleError::TooLarge)?;
    let data = match plan.dtype.size_bytes() {
        Some(size) => {
            let len = total.checked_mul(size).ok_or(AssembleError::TooLarge)?;
            let mut out = filled(len, &plan.outside);
            match size {
                1 => fixed::<1>(array, plan, chunks, &mut out)?,
                2 => fixed::<2>(array, plan, chunks, &mut out)?,
                4 => fixed::<4>(array, plan, chunks, &mut out)?,
                8 => fixed::<8>(array, plan, chunks, &mut out)?,
                16 => fixed::<16>(array, plan, chunks, &mut out)?,
                0 => {}
                other => odd(array, plan, chunks, &mut out, other)?,
            }
            ChunkData::Fixed(Bytes::from(out))
        }
        None => ChunkData::Variable(variable(array, plan, chunks, total)?),
    };
    let shape = plan.counts.iter().zip(kept).filter(|(_, kept)| **kept).map(|(n, _)| *n).collect();
    Ok(Tensor { shape, dtype: plan.dtype.clone(), data })
}

/// `len` bytes of the repeated element; zeros come from the allocator for free.
fn filled(len: usize, element: &[u8]) -> Vec<u8> {
    let mut out = vec![0; len];
    if element.iter().any(|&b| b != 0) {
        for slot in out.chunks_exact_mut(element.len()) {
            slot.copy_from_slice(element);
        }
    }
    out
}

fn runs<'a>(plan: &'a ReadPlan, chunk: &PlannedChunk) -> Vec<&'a [Run]> {
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

fn fixed<const N: usize>(
    array: &ArrayMeta,
    plan: &ReadPlan,
    chunks: &[Option<ChunkData>],
    out: &mut [u8],
) -> Result<(), AssembleError> {
    let (out, _) = out.as_chunks_mut::<N>();
    for (chunk, data) in plan.chunks.iter().zip(chunks) {
        let runs = runs(plan, chunk);
        let chunk_shape = array.decoded_shape(&chunk.coord);
        match data {
            Some(data) => {
                let expected = shape::bytes(&chunk_shape, N).ok_or(AssembleError::TooLarge)?;
                let (from, _) = checked(chunk, data, expected)?.as_chunks::<N>();
                place(out, &plan.counts, from, &chunk_shape, &runs);
            }
            None if plan.fill == plan.outside => {}
            None => {
                let mut element = [0; N];
                element.copy_from_slice(&plan.fill);
                let elements = shape::elements(&chunk_shape).ok_or(AssembleError::TooLarge)?;
                place(out, &plan.counts, &vec![element; elements as usize], &chunk_shape, &runs);
            }
        }
    }
    Ok(())
}

/// Elements of an uncommon size: the bytes of an element become one more axis, taken whole.
fn odd(
    array: &ArrayMeta,
    plan: &ReadPlan,
    chunks: &[Option<ChunkData>],
    out: &mut [u8],
    size: usize,
) -> Result<(), AssembleError> {
    let bytes = [Run { out: 0, start: 0, step: 1, count: size as u64 }];
    let mut counts = plan.counts.clone();
    counts.push(size as u64);
    for (chunk, data) in plan.chunks.iter().zip(chunks) {
        let mut chunk_shape = array.decoded_shape(&chunk.coord);
        let elements = shape::elements(&chunk_shape).ok_or(AssembleError::TooLarge)?;
        let expected = shape::bytes(&chunk_shape, size).ok_or(AssembleError::TooLarge)?;
        chunk_shape.push(size as u64);
        let mut runs = runs(plan, chunk);
        runs.push(&bytes);
        match data {
            Some(data) => place(out, &counts, checked(chunk, data, expected)?, &chunk_shape, &runs),
            None if plan.fill == plan.outside => {}
            None => place(out, &counts, &plan.fill.repeat(elements as usize), &chunk_shape, &runs),
        }
    }
    Ok(())
}

fn variable(
    array: &ArrayMeta,
    plan: &ReadPlan,
    chunks: &[Option<ChunkData>],
    total: usize,
) -> Result<Vec<Box<[u8]>>, AssembleError> {
    let mut out: Vec<Box<[u8]>> = vec![plan.outside.to_vec().into_boxed_slice(); total];
    for (chunk, data) in plan.chunks.iter().zip(chunks) {
        let chunk_shape = array.decoded_shape(&chunk.coord);
        let elements = shape::elements(&chunk_shape).ok_or(AssembleError::TooLarge)?;
        let runs = runs(plan, chunk);
        match data {
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
