//! A selection as written: not yet tied to an array.

use super::interval::{Closed, Label, Subset};

/// What to do with range bounds outside an axis.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OutOfBounds {
    /// Clip as numpy does.
    #[default]
    Clip,
    /// Refuse.
    Error,
    /// Bounds are literal positions; positions outside read as the fill value.
    Fill,
}

/// One bound of a range; `None` where it is omitted.
pub type Bound = Option<i64>;

/// What is taken along one axis.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Dim {
    /// All axes not named otherwise.
    Ellipsis,
    /// One position; the axis is dropped.
    Index(i64),
    /// `start:stop:step`.
    Range {
        /// First position.
        start: Bound,
        /// First position not taken.
        stop: Bound,
        /// Distance, never 0.
        step: i64,
    },
    /// These positions.
    List(Vec<i64>),
}

impl Dim {
    /// Everything along an axis.
    pub const ALL: Self = Self::Range { start: None, stop: None, step: 1 };
}

/// What was asked of an array, by position and by name.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Selection {
    /// From `slice`: one entry a dimension, at most one ellipsis. Empty means everything.
    pub dims: Vec<Dim>,
    /// From `isel`: dimension name and what is taken.
    pub named: Vec<(String, Dim)>,
    /// From `subset`, `bbox` and `datetime`: intervals in coordinate space.
    pub subsets: Vec<Subset>,
    /// From `sel`: positions by their coordinates.
    pub labels: Vec<Label>,
    /// From `closed`: what the ends of intervals take.
    pub closed: Closed,
    /// What happens to bounds outside an axis.
    pub oob: OutOfBounds,
    /// Whether integers keep their axis.
    pub keepdims: bool,
}

impl Selection {
    /// Whether a box selects.
    pub fn has_bbox(&self) -> bool {
        self.subsets.iter().any(|subset| subset.parameter == "bbox")
    }

    /// Whether the coordinates of an axis are needed to resolve it.
    pub fn has_coordinates(&self) -> bool {
        !self.subsets.is_empty() || !self.labels.is_empty()
    }
}
