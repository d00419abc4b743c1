//! Axes whose coordinates stand in an array: one number a position, or two, the bounds of its cell.

use std::cmp::Ordering;

use num_traits::ToPrimitive as _;
use serde_json::{Value, json};

use super::measure::{Measured, Place};
use super::{Taken, ceil, floor, integer};
use crate::model::exact::{Exact, shortest, shortest_f32, text};
use crate::model::{DType, FloatKind};
use crate::query::{Closed, Method};

/// Numbers of a coordinate array.
#[derive(Debug, Clone, PartialEq)]
pub enum Values {
    /// Integers.
    Whole(Vec<i64>),
    /// Times: the least integer is none.
    Ticks(Vec<i64>),
    /// Integers beyond them.
    Natural(Vec<u64>),
    /// Double precision.
    Double(Vec<f64>),
    /// Single precision.
    Single(Vec<f32>),
}

/// Whether numbers rise or fall.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// None is below the one before it.
    Ascending,
    /// None is above it.
    Descending,
    /// Neither, or some are no numbers.
    Mixed,
}

/// What makes a position lie in an interval.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Rule {
    /// The interior of its cell meets the interval; its point lies in it.
    Meets,
    /// Its cell contains the one place that the interval is.
    Contains,
    /// Its cell begins in the interval, whose upper end is not part of it.
    Begins,
}

/// A number to compare with.
#[derive(Debug, Clone)]
pub struct Limit {
    exact: Exact,
    near: f64,
    floor: i128,
    ceil: i128,
}

impl Limit {
    /// Of an exact number.
    pub fn new(exact: &Exact) -> Self {
        let near = exact.to_f64().unwrap_or(f64::NAN);
        Self { exact: exact.clone(), near, floor: floor(exact), ceil: ceil(exact) }
    }

    /// How an integer compares with it.
    pub fn with_whole(&self, value: i128) -> Ordering {
        if value == self.floor && self.floor != self.ceil { Ordering::Less } else { value.cmp(&self.floor) }
    }

    /// Compares a binary number, far from the limit by approximation, near it as the decimal that is written: within
    /// `near` of both, more than the number's precision.
    fn with_binary(&self, value: f64, near: f64, exact: impl Fn() -> Option<Exact>) -> Option<Ordering> {
        let distance = value - self.near;
        if distance.abs() > near * (value.abs() + self.near.abs()) + 1e-37 {
            return distance.partial_cmp(&0.0);
        }
        if value.is_infinite() {
            return value.partial_cmp(&0.0);
        }
        Some(exact()?.cmp(&self.exact))
    }
}

impl Values {
    /// From little-endian elements; `None` for element types that are no coordinates.
    pub fn parse(dtype: &DType, bytes: &[u8]) -> Option<Self> {
        macro_rules! of {
            ($kind:ty) => {
                bytes.chunks_exact(size_of::<$kind>()).map(|b| <$kind>::from_le_bytes(b.try_into().unwrap_or_default()))
            };
        }
        Some(match dtype {
            DType::Int(2 | 4 | 8) => Self::Whole(of!(i8).map(i64::from).collect()),
            DType::Int(16) => Self::Whole(of!(i16).map(i64::from).collect()),
            DType::Int(32) => Self::Whole(of!(i32).map(i64::from).collect()),
            DType::Int(64) => Self::Whole(of!(i64).collect()),
            DType::UInt(2 | 4 | 8) => Self::Whole(of!(u8).map(i64::from).collect()),
            DType::UInt(16) => Self::Whole(of!(u16).map(i64::from).collect()),
            DType::UInt(32) => Self::Whole(of!(u32).map(i64::from).collect()),
            DType::UInt(64) => Self::Natural(of!(u64).collect()),
            DType::Float(FloatKind::F16) => {
                Self::Single(of!(u16).map(|bits| half::f16::from_bits(bits).to_f32()).collect())
            }
            DType::Float(FloatKind::BF16) => {
                Self::Single(of!(u16).map(|bits| half::bf16::from_bits(bits).to_f32()).collect())
            }
            DType::Float(FloatKind::F32) => Self::Single(of!(f32).collect()),
            DType::Float(FloatKind::F64) => Self::Double(of!(f64).collect()),
            DType::DateTime64 { .. } | DType::TimeDelta64 { .. } => Self::Ticks(of!(i64).collect()),
            _ => return None,
        })
    }

    /// How many.
    pub fn len(&self) -> usize {
        match self {
            Self::Whole(list) | Self::Ticks(list) => list.len(),
            Self::Natural(list) => list.len(),
            Self::Double(list) => list.len(),
            Self::Single(list) => list.len(),
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes of memory.
    pub fn bytes(&self) -> usize {
        let size = if matches!(self, Self::Single(_)) { 4 } else { 8 };
        self.len() * size
    }

    /// Whether a value is no number.
    pub fn is_nan(&self, at: usize) -> bool {
        self.pair(at, at).is_none()
    }

    /// Those at some positions, which lie inside.
    pub fn at(&self, positions: &[u64]) -> Self {
        macro_rules! taken {
            ($list:expr) => {
                positions.iter().map(|at| $list[*at as usize]).collect()
            };
        }
        match self {
            Self::Whole(list) => Self::Whole(taken!(list)),
            Self::Ticks(list) => Self::Ticks(taken!(list)),
            Self::Natural(list) => Self::Natural(taken!(list)),
            Self::Double(list) => Self::Double(taken!(list)),
            Self::Single(list) => Self::Single(taken!(list)),
        }
    }

    /// As a position: an integer that is not negative.
    pub fn whole(&self, at: usize) -> Option<u64> {
        match self {
            Self::Whole(list) => u64::try_from(*list.get(at)?).ok(),
            Self::Natural(list) => list.get(at).copied(),
            Self::Ticks(_) | Self::Double(_) | Self::Single(_) => None,
        }
    }

    /// The part from one position up to another.
    fn part(&self, range: std::ops::Range<usize>) -> Self {
        match self {
            Self::Whole(list) => Self::Whole(list[range].to_vec()),
            Self::Ticks(list) => Self::Ticks(list[range].to_vec()),
            Self::Natural(list) => Self::Natural(list[range].to_vec()),
            Self::Double(list) => Self::Double(list[range].to_vec()),
            Self::Single(list) => Self::Single(list[range].to_vec()),
        }
    }

    /// As the decimal that is written; `None` for what is no number.
    pub fn exact(&self, at: usize) -> Option<Exact> {
        match self {
            Self::Whole(list) => list.get(at).map(|value| integer(i128::from(*value))),
            Self::Ticks(list) => {
                list.get(at).filter(|value| **value != i64::MIN).map(|value| integer(i128::from(*value)))
            }
            Self::Natural(list) => list.get(at).map(|value| integer(i128::from(*value))),
            Self::Double(list) => shortest(*list.get(at)?),
            Self::Single(list) => shortest_f32(*list.get(at)?),
        }
    }

    /// How the value at `at` compares with a limit; `None` for what is no number.
    pub fn compare(&self, at: usize, limit: &Limit) -> Option<Ordering> {
        match self {
            Self::Whole(list) => Some(limit.with_whole(i128::from(list[at]))),
            Self::Ticks(list) => (list[at] != i64::MIN).then(|| limit.with_whole(i128::from(list[at]))),
            Self::Natural(list) => Some(limit.with_whole(i128::from(list[at]))),
            Self::Double(list) => limit.with_binary(list[at], 1e-9, || shortest(list[at])),
            Self::Single(list) => limit.with_binary(f64::from(list[at]), 1e-6, || shortest_f32(list[at])),
        }
    }

    /// How two values compare; `None` where one is no number.
    fn pair(&self, a: usize, b: usize) -> Option<Ordering> {
        match self {
            Self::Whole(list) => Some(list[a].cmp(&list[b])),
            Self::Ticks(list) => (list[a] != i64::MIN && list[b] != i64::MIN).then(|| list[a].cmp(&list[b])),
            Self::Natural(list) => Some(list[a].cmp(&list[b])),
            Self::Double(list) => list[a].partial_cmp(&list[b]),
            Self::Single(list) => list[a].partial_cmp(&list[b]),
        }
    }

    /// Whether every `step`th from `from` on rises, and whether it falls; `None` where one is no number.
    fn trend(&self, from: usize, step: usize) -> Option<(bool, bool)> {
        let (mut rises, mut falls) = (true, true);
        let mut at = from;
        if at < self.len() {
            self.pair(at, at)?;
        }
        while at + step < self.len() && (rises || falls) {
            match self.pair(at, at + step)? {
                Ordering::Less => falls = false,
                Ordering::Greater => rises = false,
                Ordering::Equal => {}
            }
            at += step;
        }
        Some((rises, falls))
    }
}

impl Order {
    fn of(trend: Option<(bool, bool)>) -> Self {
        match trend {
            Some((true, _)) => Self::Ascending,
            Some((false, true)) => Self::Descending,
            Some((false, false)) | None => Self::Mixed,
        }
    }
}

/// Coordinates of an array.
#[derive(Debug, Clone)]
pub struct Listed {
    values: Values,
    /// Two values a position: the ends of its cell, in either order.
    bounds: bool,
    order: Order,
    pub(super) measured: Measured,
    source: String,
}

impl Listed {
    /// One number a position.
    pub fn points(values: Values, measured: Measured, source: String) -> Self {
        Self { order: Order::of(values.trend(0, 1)), values, bounds: false, measured, source }
    }

    /// Two numbers a position, as CF's `bounds` have them.
    pub fn cells(values: Values, measured: Measured, source: String) -> Self {
        // Cells are in order when both their ends are, and in the same one.
        let trend = values.trend(0, 2).zip(values.trend(1, 2));
        let order = Order::of(trend.map(|(first, second)| (first.0 && second.0, first.1 && second.1)));
        Self { order, values, bounds: true, measured, source }
    }

    /// Those of a part of the axis.
    pub fn part(&self, range: std::ops::Range<u64>) -> Self {
        let (a, b) = (range.start as usize, range.end as usize);
        let (measured, source) = (self.measured.clone(), self.source.clone());
        if self.bounds {
            Self::cells(self.values.part(2 * a..2 * b), measured, source)
        } else {
            Self::points(self.values.part(a..b), measured, source)
        }
    }

    /// Positions.
    pub fn len(&self) -> u64 {
        (self.values.len() / if self.bounds { 2 } else { 1 }) as u64
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes of memory.
    pub fn bytes(&self) -> usize {
        self.values.bytes()
    }

    /// Whether they rise or fall.
    pub fn order(&self) -> Order {
        self.order
    }

    /// Whether each position has two numbers.
    pub fn is_cells(&self) -> bool {
        self.bounds
    }

    /// The numbers.
    pub fn values(&self) -> &Values {
        &self.values
    }

    /// What they mean.
    pub fn measured(&self) -> &Measured {
        &self.measured
    }

    /// The number at a position of points.
    pub fn exact(&self, at: u64) -> Option<Exact> {
        self.values.exact(usize::try_from(at).ok()?)
    }

    /// The span of a position; `None` where it is no number.
    pub fn span(&self, at: usize) -> Option<(Exact, Exact)> {
        let (low, high) = self.ends(at)?;
        self.values.pair(low, high)?;
        Some((self.values.exact(low)?, self.values.exact(high)?))
    }

    /// Where the lower and the upper end of a position stand in the values.
    fn ends(&self, at: usize) -> Option<(usize, usize)> {
        if !self.bounds {
            return Some((at, at));
        }
        match self.values.pair(2 * at, 2 * at + 1)? {
            Ordering::Greater => Some((2 * at + 1, 2 * at)),
            Ordering::Less | Ordering::Equal => Some((2 * at, 2 * at + 1)),
        }
    }

    /// Whether a position is taken by an interval.
    fn takes(&self, at: usize, lo: Option<&Limit>, hi: Option<&Limit>, rule: Rule) -> bool {
        let Some((low, high)) = self.ends(at) else { return false };
        let Some(extent) = self.values.pair(low, high) else { return false };
        let is = |at: usize, limit: Option<&Limit>, fits: fn(Ordering) -> bool| {
            limit.is_none_or(|limit| self.values.compare(at, limit).is_some_and(fits))
        };
        match rule {
            Rule::Begins => is(low, lo, Ordering::is_ge) && is(low, hi, Ordering::is_lt),
            // A point, and a cell without an interior.
            Rule::Meets | Rule::Contains if extent == Ordering::Equal => {
                is(low, lo, Ordering::is_ge) && is(high, hi, Ordering::is_le)
            }
            Rule::Meets => is(high, lo, Ordering::is_gt) && is(low, hi, Ordering::is_lt),
            Rule::Contains => is(high, lo, Ordering::is_gt) && is(low, hi, Ordering::is_le),
        }
    }

    /// An end in numbers of the axis. Positions are not numbers of it; they are compared apart.
    fn limits(lo: Option<&Place>, hi: Option<&Place>) -> (Option<Limit>, Option<Limit>) {
        let limit = |place: Option<&Place>| match place {
            Some(Place::At(value)) => Some(Limit::new(value)),
            Some(Place::Position(_)) | None => None,
        };
        (limit(lo), limit(hi))
    }

    pub(super) fn take(&self, lo: Option<&Place>, hi: Option<&Place>, closed: Closed) -> Taken {
        let (from, to) = self.between_positions(lo, hi);
        let counted = [lo, hi].into_iter().flatten().any(|place| matches!(place, Place::Position(_)));
        let (lo, hi) = Self::limits(lo, hi);
        let rule = match (closed, &lo, &hi) {
            (Closed::Left, _, _) => Rule::Begins,
            (Closed::Both, Some(lo), Some(hi)) if lo.exact == hi.exact => Rule::Contains,
            (Closed::Both, _, _) => Rule::Meets,
        };
        let (lo, hi) = (lo.as_ref(), hi.as_ref());
        // Counted positions are taken whatever their coordinates are; an interval takes none that is no number.
        if lo.is_none() && hi.is_none() && (self.order != Order::Mixed || counted) {
            return Taken::Range(from as i128, to.max(from) as i128);
        }
        let len = self.len() as usize;
        // In order, what reaches one end lies behind a place, and what does not pass the other before one.
        let (start, stop) = match self.order {
            Order::Mixed => {
                return as_range((0..len).filter(|at| self.takes(*at, lo, hi, rule)).map(|at| at as u64).collect());
            }
            Order::Ascending => (
                partition(len, |at| !self.takes(at, lo, None, rule)),
                partition(len, |at| self.takes(at, None, hi, rule)),
            ),
            Order::Descending => (
                partition(len, |at| !self.takes(at, None, hi, rule)),
                partition(len, |at| self.takes(at, lo, None, rule)),
            ),
        };
        Taken::Range(start as i128, stop.max(start) as i128)
    }

    fn between_positions(&self, lo: Option<&Place>, hi: Option<&Place>) -> (usize, usize) {
        let len = i128::from(self.len());
        let at = |place: Option<&Place>, round: fn(&Exact) -> i128, otherwise: i128| match place {
            Some(Place::Position(position)) => round(position).clamp(0, len) as usize,
            Some(Place::At(_)) | None => otherwise as usize,
        };
        (at(lo, floor, 0), at(hi, ceil, len))
    }

    /// The lowest and the highest coordinate, if there is a number at all.
    pub(super) fn extent(&self) -> Option<(Exact, Exact)> {
        let exact = |at: usize| self.values.exact(at);
        if self.order != Order::Mixed && !self.is_empty() {
            let last = self.values.len() - 1;
            let ends = if self.bounds { vec![0, 1.min(last), last.saturating_sub(1), last] } else { vec![0, last] };
            let ends: Vec<Exact> = ends.into_iter().filter_map(exact).collect();
            return Some((ends.iter().min()?.clone(), ends.iter().max()?.clone()));
        }
        let (mut low, mut high): (Option<usize>, Option<usize>) = (None, None);
        for at in (0..self.values.len()).filter(|at| self.values.pair(*at, *at).is_some()) {
            if low.is_none_or(|low| self.values.pair(at, low) == Some(Ordering::Less)) {
                low = Some(at);
            }
            if high.is_none_or(|high| self.values.pair(at, high) == Some(Ordering::Greater)) {
                high = Some(at);
            }
        }
        Some((exact(low?)?, exact(high?)?))
    }

    /// Whether an interval meets the span of the coordinates.
    pub(super) fn reaches(&self, lo: Option<&Place>, hi: Option<&Place>) -> bool {
        let Some((low, high)) = self.extent() else { return false };
        let len = integer(i128::from(self.len()));
        let below = match hi {
            Some(Place::At(hi)) => *hi >= low,
            Some(Place::Position(hi)) => *hi > integer(0),
            None => true,
        };
        let above = match lo {
            Some(Place::At(lo)) => *lo <= high,
            Some(Place::Position(lo)) => *lo < len,
            None => true,
        };
        below && above
    }

    /// The position whose cell contains a place, or whose point it is; of several the first.
    pub(super) fn containing(&self, place: &Place) -> Option<i128> {
        let value = match place {
            Place::Position(position) => return Some(floor(position)),
            Place::At(value) => Limit::new(value),
        };
        let holds = |at: usize| {
            let Some((low, high)) = self.ends(at) else { return false };
            let lower = self.values.compare(low, &value);
            match self.values.pair(low, high) {
                Some(Ordering::Less) => {
                    lower.is_some_and(Ordering::is_le) && self.values.compare(high, &value) == Some(Ordering::Greater)
                }
                _ => lower == Some(Ordering::Equal),
            }
        };
        let len = self.len() as usize;
        let found = match self.order {
            Order::Mixed => (0..len).find(|at| holds(*at)),
            // Of those whose upper end is reached the first begins lowest, in the other direction of those that begin
            // below: if it does not hold the place, none does.
            Order::Ascending => Some(partition(len, |at| !self.reaches_beyond(at, &value))),
            Order::Descending => Some(partition(len, |at| {
                self.ends(at).is_none_or(|(low, _)| self.values.compare(low, &value).is_none_or(Ordering::is_gt))
            })),
        };
        found.filter(|at| *at < len && holds(*at)).map(|at| at as i128)
    }

    /// Whether a position ends behind a place, or is the point there: a cell that ends at it has been left.
    fn reaches_beyond(&self, at: usize, value: &Limit) -> bool {
        let Some((low, high)) = self.ends(at) else { return false };
        let is_cell = self.values.pair(low, high) == Some(Ordering::Less);
        self.values.compare(high, value).is_some_and(|order| if is_cell { order.is_gt() } else { order.is_ge() })
    }

    /// The first position from a place on, in the order of the coordinates: the one that contains it, or the next.
    pub(super) fn first_from(&self, place: &Place) -> Result<Option<i128>, &'static str> {
        let value = match place {
            Place::Position(position) => return Ok(Some(floor(position))),
            Place::At(value) => Limit::new(value),
        };
        let reached = |at: usize| self.reaches_beyond(at, &value);
        let len = self.len() as usize;
        match self.order {
            Order::Ascending => Ok(Some(partition(len, |at| !reached(at))).filter(|at| *at < len).map(|at| at as i128)),
            Order::Descending => Ok(partition(len, reached).checked_sub(1).map(|at| at as i128)),
            Order::Mixed => Err("the coordinates are in no order to count cells in"),
        }
    }

    pub(super) fn find(&self, place: &Place, method: Method) -> Result<Option<u64>, &'static str> {
        let value = match place {
            Place::Position(position) => {
                let inside = position.is_integer() && (0..i128::from(self.len())).contains(&floor(position));
                return Ok(inside.then(|| floor(position) as u64));
            }
            Place::At(value) => value,
        };
        if method == Method::Exact {
            return Ok(self.containing(place).and_then(|at| u64::try_from(at).ok()));
        }
        if self.bounds {
            // The label of a cell is its place, not a number.
            return Err("cells with bounds have no labels to be near to");
        }
        let limit = Limit::new(value);
        let len = self.len() as usize;
        let below = |at: usize| self.values.compare(at, &limit).is_some_and(Ordering::is_lt);
        let not_above = |at: usize| self.values.compare(at, &limit).is_some_and(Ordering::is_le);
        // The last at or below the value, and the first at or above it, in the order of the coordinates.
        let (forward, backward) = match self.order {
            Order::Mixed => return Err("the coordinates are in no order"),
            Order::Ascending => {
                (partition(len, not_above).checked_sub(1), Some(partition(len, below)).filter(|at| *at < len))
            }
            Order::Descending => (
                Some(partition(len, |at| !not_above(at))).filter(|at| *at < len),
                partition(len, |at| !below(at)).checked_sub(1),
            ),
        };
        let found = match method {
            Method::Exact => None,
            Method::Forward => forward,
            Method::Backward => backward,
            Method::Nearest => match (forward, backward) {
                (Some(low), Some(high)) => {
                    let (Some(under), Some(over)) = (self.values.exact(low), self.values.exact(high)) else {
                        return Ok(None);
                    };
                    Some(if value - under < over - value { low } else { high })
                }
                (one, other) => one.or(other),
            },
        };
        Ok(found.map(|at| at as u64))
    }

    pub(super) fn describe(&self) -> Value {
        let extent = self.extent();
        json!({
            "kind": if self.bounds { "cells" } else { "points" },
            "source": self.source,
            "order": match self.order {
                Order::Ascending => "ascending",
                Order::Descending => "descending",
                Order::Mixed => "mixed",
            },
            "first": extent.as_ref().map(|(low, _)| text(low)),
            "last": extent.as_ref().map(|(_, high)| text(high)),
            "unit": self.measured.name(),
        })
    }
}

/// How many of `len` fulfil a predicate that holds up to some place and nowhere behind it.
fn partition(len: usize, holds: impl Fn(usize) -> bool) -> usize {
    let (mut low, mut high) = (0, len);
    while low < high {
        let middle = low + (high - low) / 2;
        if holds(middle) { low = middle + 1 } else { high = middle }
    }
    low
}

/// Positions that follow each other as a range: the same selection, the same form.
fn as_range(taken: Vec<u64>) -> Taken {
    match (taken.first(), taken.last()) {
        (Some(first), Some(last)) if last - first + 1 == taken.len() as u64 => {
            Taken::Range(i128::from(*first), i128::from(*last) + 1)
        }
        (None, _) | (_, None) => Taken::Range(0, 0),
        _ => Taken::List(taken),
    }
}
