//! A selection against one array: positions per axis.

use super::{Bound, Dim, OutOfBounds, QueryError, Selection};
use crate::model::{Axis, Hyperslab};

/// Positions that were found otherwise than by their numbers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// Of which axis.
    pub axis: usize,
    /// By which parameter.
    pub parameter: &'static str,
    /// Which.
    pub positions: Positions,
}

/// Positions along an axis, literally.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Positions {
    /// One; the axis is dropped.
    One(u64),
    /// From the first up to the second; outside the axis they read as the fill value.
    Range(i64, i64),
    /// These.
    List(Vec<u64>),
}

/// Ties a selection to an array of `shape` whose axes have the names `dims`. `found` says what its coordinates select.
///
/// The result has one axis per array axis. Two selections that take the same positions in the same order and
/// keep the same axes give equal hyperslabs, as far as ranges and lists allow: the answer's ETag depends on it.
///
/// # Errors
/// [`QueryError`] for too many dimensions, unknown names, one dimension selected twice, and positions outside
/// an axis where the rules forbid them.
pub fn resolve(
    selection: &Selection,
    shape: &[u64],
    dims: &[Option<String>],
    found: &[Found],
) -> Result<Hyperslab, QueryError> {
    let rank = shape.len();
    let mut chosen: Vec<Option<(&'static str, Choice<'_>)>> = vec![None; rank];
    for (axis, dim) in by_position(&selection.dims, rank)? {
        if *dim != Dim::ALL {
            chosen[axis] = Some(("slice", Choice::Written(dim)));
        }
    }
    let label = |axis: usize| dims.get(axis).cloned().flatten().unwrap_or_else(|| axis.to_string());
    let mut choose = |axis: usize, parameter: &'static str, choice| match chosen[axis].replace((parameter, choice)) {
        None => Ok(()),
        Some((first, _)) => {
            let dimension = label(axis);
            let (first, second) = (format!("`{first}`"), format!("`{parameter}={dimension}`"));
            Err(QueryError::ConstrainedTwice { dimension, first, second })
        }
    };
    for (name, dim) in &selection.named {
        choose(axis_named("isel", name, dims)?, "isel", Choice::Written(dim))?;
    }
    for Found { axis, parameter, positions } in found {
        choose(*axis, parameter, Choice::Found(positions))?;
    }
    let mut axes = Vec::with_capacity(rank);
    let mut kept = Vec::with_capacity(rank);
    for (axis, choice) in chosen.iter().enumerate() {
        let (parameter, choice) = choice.unwrap_or(("slice", Choice::Written(&Dim::ALL)));
        let dimension = || label(axis);
        let scope = Scope { parameter, len: shape[axis], dimension: &dimension };
        axes.push(match choice {
            Choice::Written(dim) => scope.axis(dim, selection.oob)?,
            Choice::Found(positions) => positions.axis(),
        });
        let one = matches!(choice, Choice::Written(Dim::Index(_)) | Choice::Found(Positions::One(_)));
        kept.push(selection.keepdims || !one);
    }
    Ok(Hyperslab::new(axes, kept))
}

/// What is taken along one axis.
#[derive(Debug, Clone, Copy)]
enum Choice<'a> {
    Written(&'a Dim),
    Found(&'a Positions),
}

impl Positions {
    fn axis(&self) -> Axis {
        match self {
            Self::One(at) => Axis::Range { start: *at as i64, step: 1, count: 1 },
            Self::List(list) => Axis::List(list.as_slice().into()),
            // No positions, one form.
            Self::Range(start, stop) if start >= stop => Axis::Range { start: 0, step: 1, count: 0 },
            Self::Range(start, stop) => Axis::Range { start: *start, step: 1, count: stop.abs_diff(*start) },
        }
    }
}

/// Pairs each written dimension with its axis; an ellipsis takes what is left.
fn by_position(dims: &[Dim], rank: usize) -> Result<Vec<(usize, &Dim)>, QueryError> {
    let ellipsis = dims.iter().position(|dim| matches!(dim, Dim::Ellipsis));
    let selected = dims.len() - usize::from(ellipsis.is_some());
    if selected > rank {
        return Err(QueryError::TooManyDimensions { selected, rank });
    }
    let front = ellipsis.unwrap_or(dims.len());
    let back = &dims[(front + 1).min(dims.len())..];
    let front = dims[..front].iter().enumerate();
    let back = back.iter().enumerate().map(|(i, dim)| (rank - back.len() + i, dim));
    Ok(front.chain(back).collect())
}

/// The axis with a name.
///
/// # Errors
/// [`QueryError::UnknownDimension`] where none has it, or more than one.
pub fn axis_named(parameter: &'static str, name: &str, dims: &[Option<String>]) -> Result<usize, QueryError> {
    let mut found = dims.iter().enumerate().filter(|(_, dim)| dim.as_deref() == Some(name)).map(|(axis, _)| axis);
    let valid = || dims.iter().flatten().map(String::as_str).collect::<Vec<_>>().join(", ");
    let unknown = |reason| QueryError::UnknownDimension { parameter, name: name.to_owned(), reason, valid: valid() };
    match (found.next(), found.next()) {
        (Some(axis), None) => Ok(axis),
        (Some(_), Some(_)) => Err(unknown(format!("two dimensions are named `{name}`; use `slice`"))),
        (None, _) if valid().is_empty() => {
            Err(unknown(format!("the array's dimensions have no names, so `{name}` is none of them; use `slice`")))
        }
        (None, _) => Err(unknown(format!("no dimension is named `{name}`; there are {}", valid()))),
    }
}

/// One axis while its selection is resolved.
struct Scope<'a> {
    parameter: &'static str,
    len: u64,
    dimension: &'a dyn Fn() -> String,
}

impl Scope<'_> {
    fn out_of_range(&self, index: i64) -> QueryError {
        QueryError::OutOfRange { parameter: self.parameter, index, dimension: (self.dimension)(), len: self.len }
    }

    /// A position that may count from the end, inside the axis.
    fn position(&self, index: i64) -> Result<u64, QueryError> {
        let n = i128::from(self.len);
        let at = if index < 0 { i128::from(index) + n } else { i128::from(index) };
        if (0..n).contains(&at) { Ok(at as u64) } else { Err(self.out_of_range(index)) }
    }

    fn axis(&self, dim: &Dim, oob: OutOfBounds) -> Result<Axis, QueryError> {
        match dim {
            Dim::Index(index) => Ok(Axis::Range { start: self.position(*index)? as i64, step: 1, count: 1 }),
            Dim::List(list) => {
                let list: Result<Vec<u64>, _> = list.iter().map(|index| self.position(*index)).collect();
                Ok(Axis::List(list?.into()))
            }
            Dim::Range { start, stop, step } => self.range(*start, *stop, *step, oob),
            // By position it was expanded; by name the grammar refuses it.
            Dim::Ellipsis => Ok(Axis::all(self.len)),
        }
    }

    fn range(&self, start: Bound, stop: Bound, step: i64, oob: OutOfBounds) -> Result<Axis, QueryError> {
        let n = i128::from(self.len);
        let (lowest, highest) = if step > 0 { (0, n) } else { (-1, n - 1) };
        let (first, last) = if step > 0 { (lowest, highest) } else { (highest, lowest) };
        let bound = |bound: Bound, omitted: i128| -> Result<i128, QueryError> {
            let Some(given) = bound else { return Ok(omitted) };
            if oob == OutOfBounds::Fill {
                return Ok(i128::from(given));
            }
            let at = if given < 0 { i128::from(given) + n } else { i128::from(given) };
            match oob {
                OutOfBounds::Error if !(0..=n).contains(&at) => Err(self.out_of_range(given)),
                OutOfBounds::Error | OutOfBounds::Clip | OutOfBounds::Fill => Ok(at.clamp(lowest, highest)),
            }
        };
        let (start, stop) = (bound(start, first)?, bound(stop, last)?);
        let step = i128::from(step);
        let span = if step > 0 { stop - start } else { start - stop };
        let count = if span <= 0 { 0 } else { (span - 1) / step.abs() + 1 };
        // Equal positions, equal form: the ETag must not tell `5:6:2` from `5:6`.
        let (start, step) = match count {
            0 => (0, 1),
            1 => (start, 1),
            _ => (start, step),
        };
        let narrow = |value: i128| i64::try_from(value).map_err(|_| QueryError::TooManyPositions);
        Ok(Axis::Range { start: narrow(start)?, step: narrow(step)?, count: narrow(count)? as u64 })
    }
}

#[cfg(test)]
mod tests {
    use super::super::grammar::parse_slice;
    use super::*;
    use proptest::prelude::*;

    fn positions(axis: &Axis) -> Vec<i64> {
        match axis {
            Axis::Range { start, step, count } => (0..*count as i64).map(|i| start + i * step).collect(),
            Axis::List(list) => list.iter().map(|&p| p as i64).collect(),
        }
    }

    /// Python's `range(*slice(start, stop, step).indices(n))`, written as its documentation does.
    fn python_slice(start: Bound, stop: Bound, step: i64, n: i64) -> Vec<i64> {
        let (lower, upper) = if step < 0 { (-1, n - 1) } else { (0, n) };
        let fix = |bound: Bound, omitted: i64| match bound {
            None => omitted,
            Some(b) if b < 0 => (b + n).max(lower),
            Some(b) => b.min(upper),
        };
        let (start, stop) =
            if step < 0 { (fix(start, upper), fix(stop, lower)) } else { (fix(start, lower), fix(stop, upper)) };
        python_range(start, stop, step)
    }

    fn python_range(start: i64, stop: i64, step: i64) -> Vec<i64> {
        let mut taken = Vec::new();
        let mut at = start;
        while (step > 0 && at < stop) || (step < 0 && at > stop) {
            taken.push(at);
            at += step;
        }
        taken
    }

    fn bound() -> impl Strategy<Value = Bound> {
        prop::option::of(-15_i64..15)
    }

    proptest! {
        #[test]
        fn clipping_is_pythons(start in bound(), stop in bound(), step in (-4_i64..5).prop_filter("0", |s| *s != 0), n in 0_u64..10) {
            let selection = Selection { dims: vec![Dim::Range { start, stop, step }], ..Selection::default() };
            let slab = resolve(&selection, &[n], &[None], &[]).expect("clipping never fails");
            prop_assert_eq!(positions(&slab.axes()[0]), python_slice(start, stop, step, n as i64));
        }

        #[test]
        fn filling_takes_bounds_literally(start in bound(), stop in bound(), step in (-4_i64..5).prop_filter("0", |s| *s != 0), n in 0_u64..10) {
            let selection = Selection { dims: vec![Dim::Range { start, stop, step }], oob: OutOfBounds::Fill, ..Selection::default() };
            let slab = resolve(&selection, &[n], &[None], &[]).expect("small");
            let n = n as i64;
            let (first, last) = if step > 0 { (0, n) } else { (n - 1, -1) };
            prop_assert_eq!(positions(&slab.axes()[0]), python_range(start.unwrap_or(first), stop.unwrap_or(last), step));
        }
    }

    fn check(text: &str, shape: &[u64], answer: &[u64]) {
        let selection = Selection { dims: parse_slice(text).expect(text), ..Selection::default() };
        let slab = resolve(&selection, shape, &vec![None; shape.len()], &[]).expect(text);
        assert_eq!(slab.answer_shape(), answer, "{text}");
    }

    #[test]
    fn an_ellipsis_takes_the_axes_that_are_left() {
        check("...", &[4, 5, 6], &[4, 5, 6]);
        check("0,...,2:4", &[4, 5, 6], &[5, 2]);
        check("1:3", &[4, 5, 6], &[2, 5, 6]);
        check("0,1,2,...", &[4, 5, 6], &[]);
        check("...", &[], &[]);
        check("", &[], &[]);
    }

    #[test]
    fn positions_outside_are_refused_where_the_rules_say_so() {
        let ask = |text: &str, oob| {
            let selection = Selection { dims: parse_slice(text).expect(text), oob, ..Selection::default() };
            resolve(&selection, &[10], &[Some("t".into())], &[])
        };
        for oob in [OutOfBounds::Clip, OutOfBounds::Error, OutOfBounds::Fill] {
            assert!(matches!(ask("10", oob), Err(QueryError::OutOfRange { index: 10, .. })));
            assert!(matches!(ask("(0,-11)", oob), Err(QueryError::OutOfRange { index: -11, .. })));
        }
        assert!(ask("0:11", OutOfBounds::Clip).is_ok());
        assert!(matches!(ask("0:11", OutOfBounds::Error), Err(QueryError::OutOfRange { index: 11, .. })));
        assert!(ask("0:10", OutOfBounds::Error).is_ok());
        assert!(matches!(ask("-11:", OutOfBounds::Error), Err(QueryError::OutOfRange { .. })));
    }

    #[test]
    fn a_dimension_is_selected_once() {
        let dims = [Some("t".to_owned()), Some("y".to_owned())];
        let named = vec![("t".to_owned(), Dim::Index(0))];
        let twice = Selection { dims: vec![Dim::Index(1)], named: named.clone(), ..Selection::default() };
        assert!(matches!(resolve(&twice, &[4, 4], &dims, &[]), Err(QueryError::ConstrainedTwice { .. })));
        let once = Selection { dims: vec![Dim::ALL, Dim::Index(1)], named, ..Selection::default() };
        assert_eq!(resolve(&once, &[4, 4], &dims, &[]).map(|slab| slab.answer_shape()), Ok(vec![]));
        let unknown = Selection { named: vec![("z".into(), Dim::ALL)], ..Selection::default() };
        assert!(matches!(resolve(&unknown, &[4, 4], &dims, &[]), Err(QueryError::UnknownDimension { .. })));
    }
}
