//! Which chunks a hyperslab touches, and in which objects they are. Reads nothing.

use std::ops::Range;

use super::{AxisChunk, Limits, PlanError, chunks_along};
use crate::format::{ArrayMeta, Storage};
use crate::model::{Axis, ChunkCoord, Hyperslab, PerAxis, shape};

/// A touched chunk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SurveyedChunk {
    /// Its place in the grid of innermost chunks.
    pub coord: ChunkCoord,
    /// The object that holds it: a position in [`Survey::objects`].
    pub object: usize,
    /// Per axis, its entry in [`Survey::axes`].
    pub at: PerAxis<u32>,
}

/// What a hyperslab touches.
#[derive(Debug, Clone)]
pub struct Survey {
    /// Keys of the touched objects, relative to the array; empty text for the one object of a dense array.
    pub objects: Vec<String>,
    /// The touched chunks: by object, and row-major within it.
    pub chunks: Vec<SurveyedChunk>,
    /// Per axis, the chunks along it and what is taken of each.
    pub axes: Vec<Vec<AxisChunk>>,
    /// Positions per array axis.
    pub counts: Vec<u64>,
}

/// Finds the chunks and objects that `slab` touches.
///
/// # Errors
/// Those of [`check`].
pub fn survey(array: &ArrayMeta, slab: &Hyperslab, limits: &Limits) -> Result<Survey, PlanError> {
    check(array, slab, limits)?;
    let chunk_shape = array.chunk_shape();
    let counts = slab.counts();
    if counts.contains(&0) {
        let axes = vec![Vec::new(); chunk_shape.len()];
        return Ok(Survey { objects: Vec::new(), chunks: Vec::new(), axes, counts });
    }
    let axes = split(array, slab, chunk_shape);
    // Along each axis, the entries that lie in one object are neighbours.
    let spans: Vec<Vec<Span>> =
        axes.iter().zip(chunks_per_object(array)).map(|(axis, chunks)| spans(axis, chunks)).collect();
    let total = axes.iter().map(Vec::len).product();
    let mut objects = Vec::new();
    let mut chunks = Vec::with_capacity(total);
    each_of_product(spans.iter().map(|spans| 0..spans.len()).collect(), |at| {
        let object = objects.len();
        let cell: PerAxis<u64> = at.iter().zip(&spans).map(|(&i, spans)| spans[i].cell).collect();
        objects.push(object_key(array, &cell));
        let entries = at.iter().zip(&spans).map(|(&i, spans)| spans[i].entries.clone()).collect();
        each_of_product(entries, |at| {
            let coord = ChunkCoord(at.iter().zip(&axes).map(|(&i, axis)| axis[i].chunk).collect());
            chunks.push(SurveyedChunk { coord, object, at: at.iter().map(|&i| i as u32).collect() });
        });
    });
    Ok(Survey { objects, chunks, axes, counts })
}

/// Checks that a request may ask for `slab`: by arithmetic, before anything is listed.
///
/// # Errors
/// [`PlanError::TooLarge`], [`PlanError::TooManyChunks`], [`PlanError::ChunkTooLarge`].
pub fn check(array: &ArrayMeta, slab: &Hyperslab, limits: &Limits) -> Result<(), PlanError> {
    check_size(array, slab, limits)?;
    check_chunks(array, slab, limits)
}

/// Keys of the objects that `slab` touches, relative to the array, in the order of [`Survey::objects`]; `None` when
/// they are more than `most`. `slab` must have passed [`check`].
pub fn objects(array: &ArrayMeta, slab: &Hyperslab, most: usize) -> Option<Vec<String>> {
    if slab.counts().contains(&0) {
        return Some(Vec::new());
    }
    let cells: Vec<Vec<AxisChunk>> = match &array.storage {
        Storage::Grid(grid) => split(array, slab, &grid.object_shape),
        // One object, touched or not.
        Storage::Dense { .. } => split(array, slab, &array.shape),
    };
    let count = cells.iter().try_fold(1_usize, |n, axis| n.checked_mul(axis.len()))?;
    if count > most {
        return None;
    }
    let mut objects = Vec::with_capacity(count);
    each_of_product(cells.iter().map(|axis| 0..axis.len()).collect(), |at| {
        let cell: PerAxis<u64> = at.iter().zip(&cells).map(|(&i, axis)| axis[i].chunk).collect();
        objects.push(object_key(array, &cell));
    });
    Some(objects)
}

fn split(array: &ArrayMeta, slab: &Hyperslab, block: &[u64]) -> Vec<Vec<AxisChunk>> {
    let lengths = array.shape.iter().zip(block);
    slab.axes().iter().zip(lengths).map(|(axis, (&len, &block))| chunks_along(axis, len, block)).collect()
}

/// Chunks along each axis of one object. A dense array is one object, however long.
fn chunks_per_object(array: &ArrayMeta) -> PerAxis<u64> {
    match &array.storage {
        Storage::Grid(grid) => {
            grid.object_shape.iter().zip(array.chunk_shape()).map(|(object, c)| object / c).collect()
        }
        Storage::Dense { .. } => array.shape.iter().map(|_| u64::MAX).collect(),
    }
}

fn object_key(array: &ArrayMeta, cell: &[u64]) -> String {
    match &array.storage {
        Storage::Grid(grid) => grid.keys.key(cell),
        Storage::Dense { .. } => String::new(),
    }
}

/// Entries of one axis that lie in one object.
struct Span {
    /// The object's place along the axis.
    cell: u64,
    entries: Range<usize>,
}

/// Groups an axis' entries, which ascend, by object: one object spans `chunks` chunks.
fn spans(axis: &[AxisChunk], chunks: u64) -> Vec<Span> {
    let mut spans: Vec<Span> = Vec::new();
    for (i, entry) in axis.iter().enumerate() {
        let cell = entry.chunk / chunks;
        match spans.last_mut() {
            Some(span) if span.cell == cell => span.entries.end = i + 1,
            Some(_) | None => spans.push(Span { cell, entries: i..i + 1 }),
        }
    }
    spans
}

/// Visits the product of ranges in row-major order. A product of no ranges has one member.
fn each_of_product(ranges: PerAxis<Range<usize>>, mut visit: impl FnMut(&[usize])) {
    if ranges.iter().any(Range::is_empty) {
        return;
    }
    let mut at: PerAxis<usize> = ranges.iter().map(|range| range.start).collect();
    loop {
        visit(&at);
        let mut axis = ranges.len();
        loop {
            if axis == 0 {
                return;
            }
            axis -= 1;
            at[axis] += 1;
            if at[axis] < ranges[axis].end {
                break;
            }
            at[axis] = ranges[axis].start;
        }
    }
}

fn check_size(array: &ArrayMeta, slab: &Hyperslab, limits: &Limits) -> Result<(), PlanError> {
    // Variable-size elements weigh at least their header.
    let size = array.dtype.size_bytes().unwrap_or(std::mem::size_of::<Box<[u8]>>());
    let bytes = shape::bytes(&slab.counts(), size).unwrap_or(u64::MAX);
    if bytes > limits.result_bytes {
        let parts = bytes.div_ceil(limits.result_bytes.max(1));
        return Err(PlanError::TooLarge {
            bytes,
            limit: limits.result_bytes,
            split: suggest_split(array, slab, parts),
        });
    }
    let chunk = shape::bytes(array.chunk_shape(), size).unwrap_or(u64::MAX);
    if chunk > limits.chunk_bytes {
        return Err(PlanError::ChunkTooLarge { bytes: chunk, limit: limits.chunk_bytes });
    }
    Ok(())
}

/// The most chunks that `slab` can touch; saturating.
pub fn chunks_at_most(array: &ArrayMeta, slab: &Hyperslab) -> u64 {
    if slab.counts().contains(&0) {
        return 0;
    }
    let along = slab.axes().iter().zip(array.shape.iter().zip(array.chunk_shape())).map(|(axis, (&len, &chunk))| {
        // An axis without chunks must not hide how many the others have: they are listed one by one.
        let upper = len.div_ceil(chunk).max(1);
        match axis {
            Axis::Range { start, step, count } => {
                let span = i128::from(*step).unsigned_abs().saturating_mul(u128::from(count - 1));
                let spanned = span / u128::from(chunk) + 2;
                let inside = *start >= 0 && u128::from(*start as u64) < u128::from(len);
                let spanned = if span == 0 && inside { 1 } else { spanned };
                spanned.min(u128::from(*count)).min(u128::from(upper)) as u64
            }
            Axis::List(list) => {
                // Neighbours in the list are mostly neighbours in the array.
                let steps = list.windows(2).filter(|pair| pair[0] / chunk != pair[1] / chunk).count() as u64;
                (steps + 1).min(upper)
            }
        }
    });
    along.fold(1_u64, u64::saturating_mul)
}

/// The most bytes that the chunks which `slab` touches take once decoded; saturating. Elements of varying length count
/// by a flat estimate.
pub fn decoded_at_most(array: &ArrayMeta, slab: &Hyperslab) -> u64 {
    const VARIABLE: u64 = 64 << 10;
    chunks_at_most(array, slab).saturating_mul(array.chunk_bytes().unwrap_or(VARIABLE))
}

fn check_chunks(array: &ArrayMeta, slab: &Hyperslab, limits: &Limits) -> Result<(), PlanError> {
    let chunks = chunks_at_most(array, slab);
    if chunks > limits.chunks {
        let parts = chunks.div_ceil(limits.chunks.max(1));
        return Err(PlanError::TooManyChunks {
            chunks,
            limit: limits.chunks,
            split: suggest_split(array, slab, parts),
        });
    }
    Ok(())
}

/// A way to ask for the same in parts: along the first axis long enough.
fn suggest_split(array: &ArrayMeta, slab: &Hyperslab, parts: u64) -> String {
    let counts = slab.counts();
    match counts.iter().position(|&n| n >= parts) {
        Some(axis) => {
            format!(
                "ask for at most {} positions of dimension `{}` at a time",
                counts[axis] / parts,
                array.axis_label(axis)
            )
        }
        None => "ask for single positions of the leading dimensions at a time".to_owned(),
    }
}
