//! Which chunks a hyperslab touches, and in which objects they are. Reads nothing.

use std::collections::HashMap;

use super::{AxisChunk, Limits, PlanError, chunks_along};
use crate::format::{ArrayMeta, Storage};
use crate::index::Nesting;
use crate::model::{Axis, ChunkCoord, Hyperslab, shape};

/// A touched chunk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SurveyedChunk {
    /// Its place in the grid of innermost chunks.
    pub coord: ChunkCoord,
    /// The object that holds it: a position in [`Survey::objects`].
    pub object: usize,
    /// Per axis, its entry in [`Survey::axes`].
    pub at: Box<[u32]>,
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
/// [`PlanError::TooLarge`], [`PlanError::TooManyChunks`], [`PlanError::ChunkTooLarge`]: decided by arithmetic, before
/// anything is listed.
pub fn survey(array: &ArrayMeta, slab: &Hyperslab, limits: &Limits) -> Result<Survey, PlanError> {
    check_size(array, slab, limits)?;
    let chunk_shape = array.chunk_shape();
    if slab.counts().contains(&0) {
        let axes = vec![Vec::new(); chunk_shape.len()];
        return Ok(Survey { objects: Vec::new(), chunks: Vec::new(), axes, counts: slab.counts() });
    }
    check_chunks(array, slab, limits)?;
    let axes: Vec<Vec<AxisChunk>> = slab
        .axes()
        .iter()
        .zip(array.shape.iter().zip(chunk_shape))
        .map(|(axis, (&len, &chunk))| chunks_along(axis, len, chunk))
        .collect();
    let grid: Vec<u64> = axes.iter().map(|axis| axis.len() as u64).collect();
    let total = shape::elements(&grid).unwrap_or(u64::MAX);
    let mut objects = Vec::new();
    let mut numbers: HashMap<Vec<u64>, usize> = HashMap::new();
    let mut chunks = Vec::with_capacity(total as usize);
    for linear in 0..total {
        let at = shape::unravel(linear, &grid);
        let coord = ChunkCoord(at.iter().zip(&axes).map(|(&i, axis)| axis[i as usize].chunk).collect());
        let object = match &array.storage {
            Storage::Grid(storage) => {
                let cell = Nesting::new(storage).object_of(&coord);
                match numbers.get(&cell) {
                    Some(number) => *number,
                    None => {
                        objects.push(storage.keys.key(&cell));
                        numbers.insert(cell, objects.len() - 1);
                        objects.len() - 1
                    }
                }
            }
            Storage::Dense { .. } => {
                if objects.is_empty() {
                    objects.push(String::new());
                }
                0
            }
        };
        chunks.push(SurveyedChunk { coord, object, at: at.iter().map(|&i| i as u32).collect() });
    }
    chunks.sort_by_key(|chunk| chunk.object);
    Ok(Survey { objects, chunks, axes, counts: slab.counts() })
}

fn check_size(array: &ArrayMeta, slab: &Hyperslab, limits: &Limits) -> Result<(), PlanError> {
    // Variable-size elements weigh at least their header.
    let size = array.dtype.size_bytes().unwrap_or(std::mem::size_of::<Box<[u8]>>());
    let bytes = shape::bytes(&slab.counts(), size).unwrap_or(u64::MAX);
    if bytes > limits.result_bytes {
        let parts = bytes.div_ceil(limits.result_bytes.max(1));
        return Err(PlanError::TooLarge { bytes, limit: limits.result_bytes, split: split(array, slab, parts) });
    }
    let chunk = shape::bytes(array.chunk_shape(), size).unwrap_or(u64::MAX);
    if chunk > limits.chunk_bytes {
        return Err(PlanError::ChunkTooLarge { bytes: chunk, limit: limits.chunk_bytes });
    }
    Ok(())
}

fn check_chunks(array: &ArrayMeta, slab: &Hyperslab, limits: &Limits) -> Result<(), PlanError> {
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
            Axis::List(list) => (list.len() as u64).min(upper),
        }
    });
    let chunks = along.fold(1_u64, u64::saturating_mul);
    if chunks > limits.chunks {
        let parts = chunks.div_ceil(limits.chunks.max(1));
        return Err(PlanError::TooManyChunks { chunks, limit: limits.chunks, split: split(array, slab, parts) });
    }
    Ok(())
}

/// A way to ask for the same in parts: along the first axis long enough.
fn split(array: &ArrayMeta, slab: &Hyperslab, parts: u64) -> String {
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
