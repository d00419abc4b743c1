//! A resolved selection: per axis the positions taken, in the order of the answer.

use std::ops::Range;
use std::sync::Arc;

use super::shape;

/// The positions taken along one axis.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Axis {
    /// `start + i * step` for `i` in `0..count`. Positions outside the array read as the fill value;
    /// only `oob=fill` makes such ranges.
    Range {
        /// The first position; may be negative or past the end.
        start: i64,
        /// The distance between positions, never 0.
        step: i64,
        /// How many positions.
        count: u64,
    },
    /// These positions; order and duplicates are kept. Those of [`OUTSIDE`] read as the fill value; only pads make such.
    List(Arc<[u64]>),
}

/// A position of no array.
pub const OUTSIDE: u64 = u64::MAX;

impl Axis {
    /// Every position of an axis of length `n`.
    pub fn all(n: u64) -> Self {
        Self::Range { start: 0, step: 1, count: n }
    }

    /// How many positions are taken.
    pub fn count(&self) -> u64 {
        match self {
            Self::Range { count, .. } => *count,
            Self::List(list) => list.len() as u64,
        }
    }

    /// The positions, which lie inside the array.
    pub fn positions(&self) -> impl Iterator<Item = u64> + '_ {
        (0..self.count()).map(move |i| match self {
            Self::Range { start, step, .. } => start.wrapping_add(step.wrapping_mul(i as i64)) as u64,
            Self::List(list) => list[i as usize],
        })
    }

    /// Some of this axis' own positions, by their place among them, ascending. Neighbours stay a range: equal positions
    /// have one form.
    pub fn pick(&self, places: &[u64]) -> Self {
        match (places.first(), places.last()) {
            (Some(first), Some(last)) if last - first + 1 == places.len() as u64 => match self.part(*first..last + 1) {
                Self::Range { start, count: 1, .. } => Self::Range { start, step: 1, count: 1 },
                part => part,
            },
            (None, _) | (_, None) => Self::Range { start: 0, step: 1, count: 0 },
            _ => {
                let at = |place: &u64| match self {
                    Self::Range { start, step, .. } => start.wrapping_add(step.wrapping_mul(*place as i64)) as u64,
                    Self::List(list) => list[*place as usize],
                };
                Self::List(places.iter().map(at).collect())
            }
        }
    }

    /// The positions `range` of this axis' own positions.
    ///
    /// `range` must lie within `0..self.count()`.
    pub fn part(&self, range: Range<u64>) -> Self {
        match self {
            // Every position fits; a product on the way need not.
            Self::Range { start, step, .. } => Self::Range {
                start: start.wrapping_add(step.wrapping_mul(range.start as i64)),
                step: *step,
                count: range.end - range.start,
            },
            Self::List(list) => Self::List(list[range.start as usize..range.end as usize].into()),
        }
    }
}

/// Positions per axis within an array, and which axes the answer keeps.
///
/// Made by `query::resolve` against one shape: every list position is inside it or a pad, every count fits memory
/// arithmetic, and the rank is the array's.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Hyperslab {
    axes: Vec<Axis>,
    kept: Vec<bool>,
}

/// A part of a hyperslab whose elements are contiguous in the row-major answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Piece {
    /// The part.
    pub slab: Hyperslab,
    /// Its elements' positions in the whole answer.
    pub elements: Range<u64>,
}

impl Piece {
    /// The piece in two, each contiguous in the answer; `None` for a single element.
    pub fn halves(&self) -> Option<[Self; 2]> {
        let counts = self.slab.counts();
        // All axes before the first that is longer than one have one position: cut there, both halves are contiguous.
        let axis = counts.iter().position(|&count| count > 1)?;
        let half = counts[axis] / 2;
        let part = |range: Range<u64>| {
            let ranges: Vec<Range<u64>> =
                counts.iter().enumerate().map(|(i, &n)| if i == axis { range.clone() } else { 0..n }).collect();
            self.slab.part(&ranges)
        };
        let middle = self.elements.start + (self.elements.end - self.elements.start) / counts[axis] * half;
        Some([
            Self { slab: part(0..half), elements: self.elements.start..middle },
            Self { slab: part(half..counts[axis]), elements: middle..self.elements.end },
        ])
    }
}

impl Hyperslab {
    /// A hyperslab from its axes; `kept[i]` is false for an axis that an integer selected.
    ///
    /// # Panics
    /// When the lengths differ.
    pub fn new(axes: Vec<Axis>, kept: Vec<bool>) -> Self {
        assert_eq!(axes.len(), kept.len(), "one flag an axis");
        Self { axes, kept }
    }

    /// The same with other positions along one axis.
    pub fn with_axis(mut self, axis: usize, positions: Axis) -> Self {
        self.axes[axis] = positions;
        self
    }

    /// All of an array.
    pub fn whole(shape: &[u64]) -> Self {
        Self { axes: shape.iter().map(|&n| Axis::all(n)).collect(), kept: vec![true; shape.len()] }
    }

    /// The axes, one per array axis.
    pub fn axes(&self) -> &[Axis] {
        &self.axes
    }

    /// Which axes the answer keeps.
    pub fn kept(&self) -> &[bool] {
        &self.kept
    }

    /// As the parameter `slice` has it. Positions outside the array need `oob=fill`; a long list is cut short.
    pub fn text(&self) -> String {
        const LISTED: usize = 100;
        let dims = self.axes.iter().zip(&self.kept).map(|(axis, kept)| match axis {
            Axis::Range { start, count: 1, .. } if !kept => start.to_string(),
            Axis::Range { start, step, count } => {
                let stop = i128::from(*start) + i128::from(*step) * i128::from(*count);
                // A bound below 0 would count from the end.
                let stop = if *step < 0 && stop < 0 { String::new() } else { stop.to_string() };
                let step = if *step == 1 { String::new() } else { format!(":{step}") };
                format!("{start}:{stop}{step}")
            }
            Axis::List(list) => {
                let name = |at: &u64| if *at == OUTSIDE { "pad".to_owned() } else { at.to_string() };
                let listed: Vec<String> = list.iter().take(LISTED).map(name).collect();
                format!("({}{})", listed.join(","), if list.len() > LISTED { ",…" } else { "" })
            }
        });
        dims.collect::<Vec<_>>().join(",")
    }

    /// Positions per array axis, dropped axes included.
    pub fn counts(&self) -> Vec<u64> {
        self.axes.iter().map(Axis::count).collect()
    }

    /// The answer's shape: the counts of the kept axes.
    pub fn answer_shape(&self) -> Vec<u64> {
        self.axes.iter().zip(&self.kept).filter(|(_, kept)| **kept).map(|(axis, _)| axis.count()).collect()
    }

    /// Elements of the answer, or `None` beyond 2^64 - 1.
    pub fn elements(&self) -> Option<u64> {
        shape::elements(&self.counts())
    }

    /// The part with `ranges[i]` of axis `i`'s own positions.
    fn part(&self, ranges: &[Range<u64>]) -> Self {
        Self {
            axes: self.axes.iter().zip(ranges).map(|(axis, range)| axis.part(range.clone())).collect(),
            kept: self.kept.clone(),
        }
    }

    /// Cuts the elements `range` of the row-major answer into hyperslabs of at most about `most` elements, in order.
    ///
    /// Together the pieces are exactly `range`; each is contiguous in the answer. A piece grows along the
    /// outermost axis that keeps it under `most`, and ends on a multiple of `align[axis]` positions where it can,
    /// so that a chunk is rarely cut by two pieces. `align` has one entry an axis, at least 1.
    pub fn pieces(&self, range: Range<u64>, most: u64, align: &[u64]) -> Vec<Piece> {
        let counts = self.counts();
        let strides = shape::strides(&counts);
        let mut pieces = Vec::new();
        if self.axes.is_empty() {
            if range.start < range.end {
                pieces.push(Piece { slab: self.clone(), elements: range });
            }
            return pieces;
        }
        let mut at = range.start;
        while at < range.end {
            let coord = shape::unravel(at, &counts);
            let left = range.end - at;
            // The outermost axis on which whole steps can be taken from here: all axes below it are at 0.
            let mut axis = counts.len() - 1;
            while axis > 0 && coord[axis] == 0 && strides[axis - 1] <= left && strides[axis - 1] <= most.max(1) {
                axis -= 1;
            }
            let room = counts[axis] - coord[axis];
            let mut take = room.min(left / strides[axis]).min((most / strides[axis]).max(1)).max(1);
            if take < room {
                let end = coord[axis] + take;
                let aligned = end - end % align[axis].max(1);
                if aligned > coord[axis] {
                    take = aligned - coord[axis];
                }
            }
            let ranges: Vec<Range<u64>> = (0..counts.len())
                .map(|i| match i.cmp(&axis) {
                    std::cmp::Ordering::Less => coord[i]..coord[i] + 1,
                    std::cmp::Ordering::Equal => coord[i]..coord[i] + take,
                    std::cmp::Ordering::Greater => 0..counts[i],
                })
                .collect();
            let len = take * strides[axis];
            pieces.push(Piece { slab: self.part(&ranges), elements: at..at + len });
            at += len;
        }
        pieces
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn pieces_tile_the_range_in_order(
            shape in prop::collection::vec(1_u64..6, 0..5),
            most in 1_u64..200,
            align in 1_u64..4,
            cut in (0.0_f64..1.0, 0.0_f64..1.0),
        ) {
            let slab = Hyperslab::whole(&shape);
            let n = slab.elements().unwrap_or(0);
            let (a, b) = ((cut.0 * n as f64) as u64, (cut.1 * n as f64) as u64);
            let range = a.min(b)..a.max(b);
            let pieces = slab.pieces(range.clone(), most, &vec![align; shape.len()]);
            let mut at = range.start;
            for piece in &pieces {
                prop_assert_eq!(piece.elements.start, at);
                prop_assert_eq!(piece.slab.elements(), Some(piece.elements.end - piece.elements.start));
                prop_assert!(piece.elements.end - piece.elements.start <= most.max(1));
                at = piece.elements.end;
            }
            prop_assert_eq!(at, range.end);
        }
    }

    proptest! {
        #[test]
        fn halves_are_contiguous_and_together_the_piece(shape in prop::collection::vec(1_u64..6, 0..5)) {
            let slab = Hyperslab::whole(&shape);
            let n = slab.elements().unwrap_or(0);
            let whole = Piece { slab, elements: 7..7 + n };
            match whole.halves() {
                None => prop_assert_eq!(n, 1),
                Some([first, second]) => {
                    prop_assert_eq!((first.elements.start, second.elements.end), (7, 7 + n));
                    prop_assert_eq!(first.elements.end, second.elements.start);
                    for half in [&first, &second] {
                        prop_assert_eq!(half.slab.elements(), Some(half.elements.end - half.elements.start));
                    }
                    let axis = shape.iter().position(|&n| n > 1).expect("longer than one");
                    let cut = &second.slab.axes()[axis];
                    prop_assert_eq!(cut, &Axis::all(shape[axis]).part(shape[axis] / 2..shape[axis]));
                }
            }
        }
    }

    #[test]
    fn a_range_in_the_middle_is_cut_into_head_body_and_tail() {
        let slab = Hyperslab::whole(&[3, 4]);
        let pieces = slab.pieces(2..11, u64::MAX, &[1, 1]);
        let spans: Vec<_> = pieces.iter().map(|p| p.elements.clone()).collect();
        assert_eq!(spans, [2..4, 4..8, 8..11]);
    }
}
