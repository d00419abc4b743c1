//! One axis of a hyperslab, split by chunk: which positions of a chunk go where in the answer.

use smallvec::{SmallVec, smallvec};

use crate::model::Axis;

/// Positions of one chunk along one axis, evenly spaced, that land next to each other in the answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Run {
    /// First position in the answer.
    pub out: u64,
    /// First position in the chunk.
    pub start: u64,
    /// Distance of positions in the chunk; may be negative.
    pub step: i64,
    /// How many.
    pub count: u64,
}

/// One chunk along one axis, with what is taken from it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AxisChunk {
    /// The chunk's place in the grid along this axis.
    pub chunk: u64,
    /// What is taken, in the order of the answer. A range takes one run of each chunk.
    pub runs: SmallVec<[Run; 1]>,
}

/// Splits an axis of `len` positions into chunks of `chunk` positions. Ascending by chunk; positions outside
/// `0..len` (of `oob=fill` and of pads) belong to no chunk.
pub fn chunks_along(axis: &Axis, len: u64, chunk: u64) -> Vec<AxisChunk> {
    match axis {
        Axis::Range { start, step, count } => range_chunks(*start, *step, *count, len, chunk),
        Axis::List(list) => list_chunks(list, len, chunk),
    }
}

fn range_chunks(start: i64, step: i64, count: u64, len: u64, chunk: u64) -> Vec<AxisChunk> {
    // Wide arithmetic: `oob=fill` allows bounds anywhere in i64.
    let (start, wide, len) = (i128::from(start), i128::from(step), i128::from(len));
    // The answer's positions whose array position lies in lo..hi.
    let within = |lo: i128, hi: i128| -> (i128, i128) {
        let (first, last) = if wide > 0 {
            (div_ceil(lo - start, wide), div_ceil(hi - start, wide))
        } else {
            (div_ceil(start - hi + 1, -wide), div_ceil(start - lo + 1, -wide))
        };
        (first.clamp(0, i128::from(count)), last.clamp(0, i128::from(count)))
    };
    let (first, last) = within(0, len);
    let mut chunks = Vec::new();
    let mut out = first;
    while out < last {
        let at = start + out * wide;
        let index = at / i128::from(chunk);
        let base = index * i128::from(chunk);
        let (_, end) = within(base, (base + i128::from(chunk)).min(len));
        let run = Run { out: out as u64, start: (at - base) as u64, step, count: (end - out) as u64 };
        chunks.push(AxisChunk { chunk: index as u64, runs: smallvec![run] });
        out = end;
    }
    if wide < 0 {
        chunks.reverse();
    }
    chunks
}

fn div_ceil(a: i128, b: i128) -> i128 {
    a.div_euclid(b) + i128::from(a.rem_euclid(b) != 0)
}

fn list_chunks(list: &[u64], len: u64, chunk: u64) -> Vec<AxisChunk> {
    let mut order: Vec<usize> = (0..list.len()).filter(|&i| list[i] < len).collect();
    order.sort_by_key(|&i| (list[i] / chunk, i));
    let mut chunks: Vec<AxisChunk> = Vec::new();
    for i in order {
        let (index, start) = (list[i] / chunk, list[i] % chunk);
        if chunks.last().is_none_or(|last| last.chunk != index) {
            chunks.push(AxisChunk { chunk: index, runs: SmallVec::new() });
        }
        let Some(last) = chunks.last_mut() else { continue };
        match last.runs.last_mut() {
            Some(run) if run.out + run.count == i as u64 && extends(run, start) => {
                if run.count == 1 {
                    run.step = start as i64 - run.start as i64;
                }
                run.count += 1;
            }
            Some(_) | None => last.runs.push(Run { out: i as u64, start, step: 1, count: 1 }),
        }
    }
    chunks
}

/// Whether `start` is the position that the run would take next. A run of one has no step yet; equal positions
/// stay runs of their own, since a step is never 0.
fn extends(run: &Run, start: u64) -> bool {
    if run.count == 1 {
        return start != run.start;
    }
    i128::from(run.start) + i128::from(run.step) * i128::from(run.count) == i128::from(start)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Every (answer position, array position) that the chunks describe, by answer position.
    fn pairs(chunks: &[AxisChunk], chunk: u64) -> Vec<(u64, i64)> {
        let mut pairs: Vec<(u64, i64)> = chunks
            .iter()
            .flat_map(|c| {
                c.runs.iter().flat_map(move |run| {
                    (0..run.count).map(move |i| {
                        let inside = run.start as i64 + run.step * i as i64;
                        assert!((0..chunk as i64).contains(&inside), "outside its chunk");
                        (run.out + i, (c.chunk * chunk) as i64 + inside)
                    })
                })
            })
            .collect();
        pairs.sort_unstable();
        pairs
    }

    proptest! {
        #[test]
        fn a_range_is_split_without_loss(start in -20_i64..40, step in (-5_i64..6).prop_filter("0", |s| *s != 0), count in 0_u64..30, len in 0_u64..25, chunk in 1_u64..8) {
            let chunks = chunks_along(&Axis::Range { start, step, count }, len, chunk);
            prop_assert!(chunks.windows(2).all(|w| w[0].chunk < w[1].chunk));
            let expected: Vec<(u64, i64)> = (0..count).map(|i| (i, start + step * i as i64)).filter(|(_, at)| (0..len as i64).contains(at)).collect();
            prop_assert_eq!(pairs(&chunks, chunk), expected);
        }

        #[test]
        fn a_list_is_split_without_loss(list in prop::collection::vec(prop_oneof![9 => 0_u64..30, 1 => Just(u64::MAX)], 0..20), chunk in 1_u64..8) {
            let chunks = chunks_along(&Axis::List(list.clone().into()), 30, chunk);
            prop_assert!(chunks.windows(2).all(|w| w[0].chunk < w[1].chunk));
            let inside = list.iter().enumerate().filter(|(_, at)| **at < 30);
            let expected: Vec<(u64, i64)> = inside.map(|(i, &at)| (i as u64, at as i64)).collect();
            prop_assert_eq!(pairs(&chunks, chunk), expected);
        }
    }

    #[test]
    fn absurd_bounds_cost_nothing() {
        let axis = Axis::Range { start: i64::MIN, step: 1, count: u64::MAX >> 1 };
        assert_eq!(chunks_along(&axis, 10, 5).len(), 0);
        let axis = Axis::Range { start: -5, step: 1, count: 1 << 62 };
        assert_eq!(chunks_along(&axis, 10, 5).len(), 2);
    }
}
