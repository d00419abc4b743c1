//! The strided copy: the wanted positions of one chunk into their places in the answer.

use crate::model::{PerAxis, shape};
use crate::plan::{AxisChunk, Run};

/// An element that the strided copy moves.
pub trait Element: Clone {
    /// Copies `from` to `to`, which have one length.
    fn copy_row(to: &mut [Self], from: &[Self]);
}

impl<const N: usize> Element for [u8; N] {
    #[inline]
    fn copy_row(to: &mut [Self], from: &[Self]) {
        copy_bytes(to.as_flattened_mut(), from.as_flattened());
    }
}

impl Element for Box<[u8]> {
    fn copy_row(to: &mut [Self], from: &[Self]) {
        to.clone_from_slice(from);
    }
}

/// Bytes moved at once: two vector registers of the baseline instruction set.
const LANE: usize = 32;

/// Rows up to this are copied in place, lane by lane: a call of `memcpy` costs as much as moving them.
const SHORT_ROW: usize = 512;

#[inline]
fn copy_bytes(to: &mut [u8], from: &[u8]) {
    let len = to.len();
    if !(LANE..=SHORT_ROW).contains(&len) {
        to.copy_from_slice(from);
        return;
    }
    let (to_lanes, _) = to.as_chunks_mut::<LANE>();
    let (from_lanes, _) = from.as_chunks::<LANE>();
    for (to, from) in to_lanes.iter_mut().zip(from_lanes) {
        *to = *from;
    }
    // The rest, together with bytes that are there already: one move more instead of a loop over single bytes.
    if !len.is_multiple_of(LANE)
        && let (Some(to), Some(from)) = (to.last_chunk_mut::<LANE>(), from.last_chunk::<LANE>())
    {
        *to = *from;
    }
}

/// Copies the positions that `runs` names from `chunk` to `out`, both row-major with elements of `T`.
///
/// `runs[axis]` holds the runs along that axis; the copied positions are their product. `T` is a byte array of the
/// element's size where there is one, so that a copy of single elements is a move and no call.
///
/// # Panics
/// When a run leaves the chunk or the answer: a fault of the planner.
pub fn place<T: Element>(out: &mut [T], out_shape: &[u64], chunk: &[T], chunk_shape: &[u64], runs: &[&[Run]]) {
    each_row(out_shape, chunk_shape, runs, |row| match row {
        Row::Contiguous { to, from, len } => T::copy_row(&mut out[to..to + len], &chunk[from..from + len]),
        Row::Spaced { to, from, step, len } => {
            let mut at = from as isize;
            for slot in &mut out[to..to + len] {
                *slot = chunk[at as usize].clone();
                at += step;
            }
        }
    });
}

/// A chunk's elements, and what is taken of them along one axis.
pub type Beside<'a, T> = (&'a [T], Run);

/// Copies from chunks that lie beside each other along `axis` at once, so that each row of the answer is written from its
/// beginning to its end.
///
/// `chunks` holds each chunk with its run along `axis`; all have `chunk_shape`, and one set of runs along the axes before
/// `axis`. The axes behind it are taken whole: [`beside_axis`] says where that holds.
///
/// # Panics
/// As [`place`].
pub fn place_beside<T: Element>(
    out: &mut [T],
    out_shape: &[u64],
    chunks: &[Beside<'_, T>],
    chunk_shape: &[u64],
    runs: &[&[Run]],
    axis: usize,
) {
    let (out_strides, chunk_strides) = (shape::strides(out_shape), shape::strides(chunk_shape));
    let row = out_strides[axis] as usize;
    let axes: PerAxis<AxisCopy<'_>> = runs[..axis]
        .iter()
        .zip(out_strides.iter().zip(&chunk_strides))
        .map(|(runs, (out, chunk))| AxisCopy { runs, out_stride: *out as usize, chunk_stride: *chunk as isize })
        .collect();
    each_place(&axes, 0, 0, &mut |to, from| {
        for (chunk, run) in chunks {
            let (to, from) = (to + run.out as usize * row, from + run.start as usize * row);
            let len = run.count as usize * row;
            T::copy_row(&mut out[to..to + len], &chunk[from..from + len]);
        }
    });
}

/// The axis along which a plan's chunks can be placed beside each other, if there is one: the last with more than one
/// chunk, taken in steps of one, where all behind it is taken whole.
pub fn beside_axis(axes: &[Vec<AxisChunk>], out_shape: &[u64], chunk_shape: &[u64]) -> Option<usize> {
    let axis = axes.iter().rposition(|chunks| chunks.len() > 1)?;
    let single = |chunk: &AxisChunk| matches!(chunk.runs[..], [run] if run.step == 1);
    let whole = (axis + 1..axes.len()).all(|behind| {
        let taken = axes[behind].first().filter(|chunk| single(chunk)).map(|chunk| chunk.runs[0].count);
        taken == Some(out_shape[behind]) && taken == Some(chunk_shape[behind])
    });
    (whole && axes[axis].iter().all(single)).then_some(axis)
}

/// The positions of the product of runs, in the answer and in the chunk.
fn each_place(axes: &[AxisCopy<'_>], to: usize, from: usize, visit: &mut impl FnMut(usize, usize)) {
    let Some((axis, inner)) = axes.split_first() else { return visit(to, from) };
    for run in axis.runs {
        let to = to + run.out as usize * axis.out_stride;
        let from = from as isize + run.start as isize * axis.chunk_stride;
        let step = run.step as isize * axis.chunk_stride;
        for i in 0..run.count as usize {
            let (to, from) = (to + i * axis.out_stride, (from + step * i as isize) as usize);
            if inner.is_empty() { visit(to, from) } else { each_place(inner, to, from, visit) }
        }
    }
}

/// Sets the positions that `runs` names to `value`: what [`place`] would do with a chunk that holds nothing else.
///
/// # Panics
/// As [`place`].
pub fn place_value<T: Element>(out: &mut [T], out_shape: &[u64], value: &T, chunk_shape: &[u64], runs: &[&[Run]]) {
    each_row(out_shape, chunk_shape, runs, |row| {
        let (Row::Contiguous { to, len, .. } | Row::Spaced { to, len, .. }) = row;
        out[to..to + len].fill(value.clone());
    });
}

/// Elements that lie next to each other in the answer.
enum Row {
    /// So they do in the chunk.
    Contiguous { to: usize, from: usize, len: usize },
    /// In the chunk they lie `step` elements apart.
    Spaced { to: usize, from: usize, step: isize, len: usize },
}

struct AxisCopy<'a> {
    runs: &'a [Run],
    out_stride: usize,
    chunk_stride: isize,
}

fn each_row(out_shape: &[u64], chunk_shape: &[u64], runs: &[&[Run]], mut visit: impl FnMut(Row)) {
    let (out_strides, chunk_strides) = (shape::strides(out_shape), shape::strides(chunk_shape));
    let mut axes: PerAxis<AxisCopy<'_>> = runs
        .iter()
        .zip(out_strides.iter().zip(&chunk_strides))
        .map(|(runs, (out, chunk))| AxisCopy { runs, out_stride: *out as usize, chunk_stride: *chunk as isize })
        .collect();
    // Trailing axes taken whole, on both sides, are one contiguous row.
    let mut row = 1_usize;
    while let Some(axis) = axes.len().checked_sub(1) {
        let [run] = axes[axis].runs else { break };
        let whole = run.step == 1 && run.count == out_shape[axis] && run.count == chunk_shape[axis];
        if !whole {
            break;
        }
        row *= run.count as usize;
        axes.pop();
    }
    walk(&axes, 0, 0, row, &mut visit);
}

fn walk(axes: &[AxisCopy<'_>], out_at: usize, chunk_at: usize, row: usize, visit: &mut impl FnMut(Row)) {
    let Some((axis, inner)) = axes.split_first() else {
        visit(Row::Contiguous { to: out_at, from: chunk_at, len: row });
        return;
    };
    for run in axis.runs {
        let (count, to) = (run.count as usize, out_at + run.out as usize * axis.out_stride);
        let from = chunk_at + run.start as usize * axis.chunk_stride as usize;
        let step = run.step as isize * axis.chunk_stride;
        match inner {
            // The last axis that is not whole, taken in steps of one: its rows touch.
            [] if run.step == 1 => visit(Row::Contiguous { to, from, len: count * row }),
            [] if row == 1 => visit(Row::Spaced { to, from, step, len: count }),
            // Rows of one length at even distances: the loop that a crop spends its time in.
            [last] if matches!(last.runs, [run] if run.step == 1) => {
                let run = &last.runs[0];
                let to = to + run.out as usize * last.out_stride;
                let from = from as isize + run.start as isize * last.chunk_stride;
                for i in 0..count {
                    let from = (from + step * i as isize) as usize;
                    visit(Row::Contiguous { to: to + i * axis.out_stride, from, len: run.count as usize * row });
                }
            }
            _ => {
                for i in 0..count {
                    let from = from as isize + step * i as isize;
                    walk(inner, to + i * axis.out_stride, from as usize, row, visit);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Axis;
    use crate::plan::chunks_along;
    use proptest::prelude::*;

    fn axis(len: u64) -> impl Strategy<Value = Axis> {
        let range = (0..len, 0..len, prop::sample::select(vec![-3_i64, -2, -1, 1, 1, 1, 2, 3])).prop_map(
            move |(a, b, step)| {
                let count = a.abs_diff(b) / step.unsigned_abs() + 1;
                let start = if step > 0 { a.min(b) } else { a.max(b) };
                Axis::Range { start: start as i64, step, count }
            },
        );
        prop_oneof![
            Just(Axis::all(len)),
            range,
            prop::collection::vec(0..len, 0..5).prop_map(|list| Axis::List(list.into())),
        ]
    }

    fn position(axis: &Axis, i: u64) -> u64 {
        match axis {
            Axis::Range { start, step, .. } => (start + step * i as i64) as u64,
            Axis::List(list) => list[i as usize],
        }
    }

    proptest! {
        #[test]
        fn placing_every_chunk_equals_indexing_the_dense_array(
            (shape, chunk, axes) in prop::collection::vec((1_u64..7, 1_u64..5), 0..4).prop_flat_map(|dims| {
                let (shape, chunk): (Vec<u64>, Vec<u64>) = dims.into_iter().unzip();
                let axes: Vec<_> = shape.iter().map(|&n| axis(n)).collect();
                (Just(shape), Just(chunk), axes)
            })
        ) {
            let total = shape::elements(&shape).expect("small");
            let dense: Vec<u64> = (0..total).collect();
            let strides = shape::strides(&shape);
            let counts: Vec<u64> = axes.iter().map(Axis::count).collect();
            let wanted: Vec<u64> = (0..shape::elements(&counts).expect("small"))
                .map(|linear| {
                    let at = shape::unravel(linear, &counts);
                    let dense_at: u64 = at.iter().zip(&axes).zip(&strides).map(|((i, axis), s)| position(axis, *i) * s).sum();
                    dense[dense_at as usize]
                })
                .collect();

            let mut out = vec![u64::MAX.to_le_bytes(); wanted.len()];
            let split: Vec<_> = axes.iter().zip(shape.iter().zip(&chunk)).map(|(a, (&n, &c))| chunks_along(a, n, c)).collect();
            let grid: Vec<u64> = split.iter().map(|s| s.len() as u64).collect();
            for linear in 0..shape::elements(&grid).expect("small") {
                let at = shape::unravel(linear, &grid);
                let parts: Vec<_> = at.iter().zip(&split).map(|(&i, s)| &s[i as usize]).collect();
                // The chunk as a codec would give it: whole, edges padded.
                let stored: Vec<u64> = (0..shape::elements(&chunk).expect("small"))
                    .map(|inner| {
                        let inner = shape::unravel(inner, &chunk);
                        let global: Vec<u64> = inner.iter().zip(&parts).zip(&chunk).map(|((i, p), c)| p.chunk * c + i).collect();
                        if global.iter().zip(&shape).any(|(g, n)| g >= n) { return u64::MAX; }
                        global.iter().zip(&strides).map(|(g, s)| g * s).sum()
                    })
                    .collect();
                let runs: Vec<&[Run]> = parts.iter().map(|p| p.runs.as_slice()).collect();
                let stored: Vec<[u8; 8]> = stored.into_iter().map(u64::to_le_bytes).collect();
                place(&mut out, &counts, &stored, &chunk, &runs);
            }
            let out: Vec<u64> = out.into_iter().map(u64::from_le_bytes).collect();
            prop_assert_eq!(out, wanted);
        }
    }

    proptest! {
        #[test]
        fn short_rows_are_copied_whole_and_nothing_beside_them(len in 0_usize..700, before in 0_usize..40) {
            let from: Vec<u8> = (0..len).map(|i| i as u8 | 1).collect();
            let mut out = vec![0; before + len + 40];
            copy_bytes(&mut out[before..before + len], &from);
            prop_assert_eq!(&out[before..before + len], &from[..]);
            prop_assert!(out[..before].iter().chain(&out[before + len..]).all(|&b| b == 0));
        }
    }
}
