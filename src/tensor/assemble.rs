//! All chunks of a plan into one tensor.

use std::ops::Range;
use std::sync::Arc;

use smallvec::{SmallVec, smallvec};

use super::place::{Beside, beside_axis, place, place_beside, place_value};
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

/// A chunk while an answer is put together.
#[derive(Debug, Clone)]
pub enum Chunk {
    /// Its elements.
    Decoded(Arc<ChunkData>),
    /// Its elements are in the answer already: they were decoded into [`direct_range`].
    InPlace,
}

/// A plan's chunks, parallel to `plan.chunks`; `None` reads as the fill value.
pub type Chunks = [Option<Chunk>];

/// Where in the answer's bytes a chunk lies, when all of it is wanted and its elements are neighbours there in the order
/// in which they are stored: then it can be decoded in place. Only for answers that chunks cover ([`is_covered`]).
pub fn direct_range(array: &ArrayMeta, plan: &ReadPlan, chunk: &PlannedChunk) -> Option<Range<usize>> {
    let size = plan.dtype.size_bytes()?;
    let chunk_shape = array.decoded_shape(&chunk.coord);
    let strides = shape::strides(&plan.counts);
    let mut at = 0;
    // From the fastest axis: while the chunk spans the answer, the next axis may still be longer than one.
    let mut spans = true;
    for axis in (0..chunk_shape.len()).rev() {
        let [run] = plan.axes[axis][chunk.at[axis] as usize].runs[..] else { return None };
        if (run.start, run.step, run.count) != (0, 1, chunk_shape[axis]) || !(spans || run.count == 1) {
            return None;
        }
        spans = spans && run.count == plan.counts[axis];
        at += run.out * strides[axis];
    }
    let start = usize::try_from(at).ok()?.checked_mul(size)?;
    let len = usize::try_from(shape::bytes(&chunk_shape, size)?).ok()?;
    Some(start..start.checked_add(len)?)
}

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
pub fn is_covered(plan: &ReadPlan) -> bool {
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
    let Work { array, plan, chunks, .. } = work;
    let (out, _) = out.as_chunks_mut::<N>();
    let beside = beside_axis(&plan.axes, &plan.counts, array.chunk_shape());
    let elements = |n: usize, shape: &[u64]| -> Result<Option<&[[u8; N]]>, AssembleError> {
        let Some(Chunk::Decoded(data)) = &chunks[n] else { return Ok(None) };
        let expected = shape::bytes(shape, N).ok_or(AssembleError::TooLarge)?;
        Ok(Some(checked(&plan.chunks[n], data, expected)?.as_chunks::<N>().0))
    };
    let mut n = 0;
    while n < plan.chunks.len() {
        let chunk = &plan.chunks[n];
        let runs = runs(plan, chunk);
        let chunk_shape = array.decoded_shape(&chunk.coord);
        let Some(from) = elements(n, &chunk_shape)? else {
            if chunks[n].is_none() && !work.absent_is_done() {
                let mut element = [0; N];
                element.copy_from_slice(&plan.fill);
                place_value(out, &plan.counts, &element, &chunk_shape, &runs);
            }
            n += 1;
            continue;
        };
        let Some(axis) = beside else {
            place(out, &plan.counts, from, &chunk_shape, &runs);
            n += 1;
            continue;
        };
        let run = |chunk: &PlannedChunk| plan.axes[axis][chunk.at[axis] as usize].runs[0];
        let mut row: SmallVec<[Beside<'_, [u8; N]>; 8]> = smallvec![(from, run(chunk))];
        while let Some(next) = plan.chunks.get(n + row.len()) {
            let same = (0..next.at.len()).all(|i| i == axis || next.at[i] == chunk.at[i]);
            // At the edge of a dense array a block is shorter, and its rows lie closer to each other.
            if !same || array.decoded_shape(&next.coord) != chunk_shape {
                break;
            }
            let Some(from) = elements(n + row.len(), &chunk_shape)? else { break };
            row.push((from, run(next)));
        }
        n += row.len();
        place_beside(out, &plan.counts, &row, &chunk_shape, &runs, axis);
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
            Some(Chunk::Decoded(data)) => checked(chunk, data, expected)?,
            Some(Chunk::InPlace) => continue,
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
        let data = data.as_ref().and_then(|chunk| match chunk {
            Chunk::Decoded(data) => Some(&**data),
            Chunk::InPlace => None,
        });
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::zarr;
    use crate::model::{Axis, Hyperslab, Version};
    use crate::plan::{Limits, Located, ObjectFacts, survey};
    use proptest::prelude::*;

    fn array(shape: &[u64], chunk: &[u64]) -> ArrayMeta {
        let document = serde_json::json!({
            "zarr_format": 3, "node_type": "array", "shape": shape, "data_type": "uint16", "fill_value": 7,
            "chunk_grid": { "name": "regular", "configuration": { "chunk_shape": chunk } },
            "chunk_key_encoding": { "name": "default" },
            "codecs": [{ "name": "bytes", "configuration": { "endian": "little" } }],
        });
        match zarr::parse_v3(document.to_string().as_bytes()) {
            Ok(zarr::Node::Array(array)) => *array,
            other => unreachable!("{other:?}"),
        }
    }

    fn plan(array: &ArrayMeta, slab: &Hyperslab) -> ReadPlan {
        let limits = Limits { result_bytes: 1 << 30, chunks: 100_000, chunk_bytes: 1 << 20 };
        let survey = survey(array, slab, &limits).expect("small");
        let facts = vec![ObjectFacts::Present { version: Version::new("v"), size: 0 }; survey.objects.len()];
        let located = vec![Located::Whole; survey.chunks.len()];
        ReadPlan::new(array, "a", survey, facts, located, None).expect("sound")
    }

    proptest! {
        /// Whatever is placed at once, absent chunks, edges and steps between, the answer is that of indexing the array.
        #[test]
        fn an_answer_is_the_dense_arrays_part(
            dims in prop::collection::vec((1_u64..5, 1_u64..9, 0_u64..4, 1_u64..3), 1..4),
            absent in prop::collection::vec(any::<bool>(), 64),
        ) {
            let chunk: Vec<u64> = dims.iter().map(|(c, ..)| *c).collect();
            let shape: Vec<u64> = dims.iter().map(|(_, n, ..)| *n).collect();
            let axes = dims.iter().map(|(_, len, skip, step)| {
                let start = (*skip).min(len - 1);
                Axis::Range { start: start as i64, step: *step as i64, count: (len - start).div_ceil(*step) }
            });
            let slab = Hyperslab::new(axes.collect(), vec![true; shape.len()]);
            let array = array(&shape, &chunk);
            let plan = plan(&array, &slab);
            let grid: Vec<u64> = shape.iter().zip(&chunk).map(|(n, c)| n.div_ceil(*c)).collect();
            let is_absent = |coord: &[u64]| {
                let at: u64 = coord.iter().zip(shape::strides(&grid)).map(|(c, s)| c * s).sum();
                absent[at as usize % absent.len()]
            };
            let value = |at: &[u64]| {
                let coord: Vec<u64> = at.iter().zip(&chunk).map(|(a, c)| a / c).collect();
                let linear: u64 = at.iter().zip(shape::strides(&shape)).map(|(a, s)| a * s).sum();
                if is_absent(&coord) { 7 } else { linear as u16 + 100 }
            };
            let inside = shape::elements(&chunk).expect("small");
            let chunks: Vec<Option<Chunk>> = plan.chunks.iter().map(|planned| {
                let stored: Vec<u8> = (0..inside).flat_map(|i| {
                    let inner = shape::unravel(i, &chunk);
                    let at: Vec<u64> =
                        inner.iter().zip(&planned.coord.0).zip(&chunk).map(|((i, c), n)| c * n + i).collect();
                    if at.iter().zip(&shape).all(|(a, n)| a < n) { value(&at) } else { 0xffff }.to_le_bytes()
                }).collect();
                (!is_absent(&planned.coord.0)).then(|| Chunk::Decoded(Arc::new(ChunkData::Fixed(stored.into()))))
            }).collect();
            let mut out = vec![0xee; answer_len(&plan).expect("small").expect("fixed")];
            assemble(&array, &plan, &chunks, &mut out).expect("fits");
            let counts = slab.counts();
            let expected: Vec<u8> = (0..shape::elements(&counts).expect("small")).flat_map(|i| {
                let at = shape::unravel(i, &counts);
                let at: Vec<u64> = at.iter().zip(&dims).map(|(i, (_, len, skip, step))| {
                    (*skip).min(len - 1) + i * step
                }).collect();
                value(&at).to_le_bytes()
            }).collect();
            prop_assert_eq!(out, expected);
        }

        /// A chunk that is said to lie in one piece lies there: placing it and copying it give the same answer.
        #[test]
        fn a_direct_range_is_where_the_chunk_is_placed(
            dims in prop::collection::vec((1_u64..5, 1_u64..4, 0_u64..3, 1_u64..3), 1..4),
        ) {
            let chunk: Vec<u64> = dims.iter().map(|(c, ..)| *c).collect();
            let shape: Vec<u64> = dims.iter().map(|(c, n, ..)| c * n).collect();
            let axes = dims.iter().zip(&shape).map(|((c, n, skip, step), len)| {
                let start = (skip * c).min(len - 1);
                let step = if *n == 3 { *step } else { 1 };
                Axis::Range { start: start as i64, step: step as i64, count: (len - start).div_ceil(step) }
            });
            let array = array(&shape, &chunk);
            let slab = Hyperslab::new(axes.collect(), vec![true; shape.len()]);
            let plan = plan(&array, &slab);
            let bytes = shape::bytes(&chunk, 2).expect("small") as usize;
            let chunks: Vec<Option<Chunk>> = (0..plan.chunks.len())
                .map(|n| Some(Chunk::Decoded(Arc::new(ChunkData::Fixed(vec![n as u8 + 1; bytes].into())))))
                .collect();
            let mut placed = vec![0; answer_len(&plan).expect("small").expect("fixed")];
            assemble(&array, &plan, &chunks, &mut placed).expect("fits");
            let mut direct = vec![0; placed.len()];
            let chunks: Vec<Option<Chunk>> = plan.chunks.iter().zip(&chunks).enumerate().map(|(n, (planned, chunk))| {
                match direct_range(&array, &plan, planned) {
                    Some(range) => {
                        direct[range].fill(n as u8 + 1);
                        Some(Chunk::InPlace)
                    }
                    None => chunk.clone(),
                }
            }).collect();
            prop_assert!(is_covered(&plan));
            assemble(&array, &plan, &chunks, &mut direct).expect("fits");
            prop_assert_eq!(direct, placed);
        }
    }

    #[test]
    fn whole_rows_of_chunks_are_direct_and_crops_are_not() {
        let array = array(&[8, 6], &[2, 6]);
        let whole = plan(&array, &Hyperslab::whole(&[8, 6]));
        let ranges: Vec<_> = whole.chunks.iter().map(|chunk| direct_range(&array, &whole, chunk)).collect();
        assert_eq!(ranges, [Some(0..24), Some(24..48), Some(48..72), Some(72..96)]);
        let crop = Hyperslab::new(vec![Axis::all(8), Axis::Range { start: 1, step: 1, count: 5 }], vec![true; 2]);
        let crop = plan(&array, &crop);
        assert!(crop.chunks.iter().all(|chunk| direct_range(&array, &crop, chunk).is_none()));
    }

    #[test]
    fn an_answer_that_chunks_do_not_cover_keeps_nothing_of_its_buffer() {
        let array = array(&[4], &[2]);
        let slab = Hyperslab::new(vec![Axis::Range { start: -1, step: 1, count: 6 }], vec![true]);
        let plan = plan(&array, &slab);
        let mut out = vec![0xff; 12];
        let data = |byte| Some(Chunk::Decoded(Arc::new(ChunkData::Fixed(vec![byte; 4].into()))));
        assemble(&array, &plan, &[data(1), None], &mut out).expect("fits");
        assert_eq!(out, [7, 0, 1, 1, 1, 1, 7, 0, 7, 0, 7, 0]);
    }
}
