//! The strided copy: the wanted positions of one chunk into their places in the answer.

use crate::model::shape;
use crate::plan::Run;

/// Copies the positions that `runs` names from `chunk` to `out`, both row-major with elements of `T`.
///
/// `runs[axis]` holds the runs along that axis; the copied positions are their product. `T` is a byte array of the
/// element's size where there is one, so that a copy of single elements is a move and no call.
///
/// # Panics
/// When a run leaves the chunk or the answer: a fault of the planner.
pub fn place<T: Clone>(out: &mut [T], out_shape: &[u64], chunk: &[T], chunk_shape: &[u64], runs: &[&[Run]]) {
    let mut axes: Vec<AxisCopy<'_>> = Vec::with_capacity(runs.len());
    let (out_strides, chunk_strides) = (shape::strides(out_shape), shape::strides(chunk_shape));
    for (axis, runs) in runs.iter().enumerate() {
        axes.push(AxisCopy {
            runs,
            out_stride: out_strides[axis] as usize,
            chunk_stride: chunk_strides[axis] as isize,
        });
    }
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
    copy(out, chunk, &axes, 0, 0, row);
}

struct AxisCopy<'a> {
    runs: &'a [Run],
    out_stride: usize,
    chunk_stride: isize,
}

fn copy<T: Clone>(out: &mut [T], chunk: &[T], axes: &[AxisCopy<'_>], out_at: usize, chunk_at: usize, row: usize) {
    let Some((axis, inner)) = axes.split_first() else {
        out[out_at..out_at + row].clone_from_slice(&chunk[chunk_at..chunk_at + row]);
        return;
    };
    for run in axis.runs {
        let (count, out_at) = (run.count as usize, out_at + run.out as usize * axis.out_stride);
        let chunk_at = chunk_at + run.start as usize * axis.chunk_stride as usize;
        let step = run.step as isize * axis.chunk_stride;
        if inner.is_empty() && run.step == 1 {
            // The last axis that is not whole, taken in steps of one: its rows touch.
            out[out_at..out_at + count * row].clone_from_slice(&chunk[chunk_at..chunk_at + count * row]);
        } else if inner.is_empty() && row == 1 {
            let mut from = chunk_at as isize;
            for slot in &mut out[out_at..out_at + count] {
                *slot = chunk[from as usize].clone();
                from += step;
            }
        } else {
            for i in 0..count {
                let from = chunk_at as isize + step * i as isize;
                copy(out, chunk, inner, out_at + i * axis.out_stride, from as usize, row);
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

            let mut out = vec![u64::MAX; wanted.len()];
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
                place(&mut out, &counts, &stored, &chunk, &runs);
            }
            prop_assert_eq!(out, wanted);
        }
    }
}
