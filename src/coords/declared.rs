//! Coordinates that an array's own attributes declare.

use serde_json::{Map, Value};

use super::measure::Measured;
use super::{Anchor, CoordsError, Regular, role_of};
use crate::model::Unit;
use crate::model::exact::{Exact, fraction, integer, shortest};
use crate::query::Role;

/// Names of a rate, in cells a second.
pub const RATES: &[&str] = &["fps", "frame_rate", "sample_rate", "sample_rate_hz", "sampling_rate"];

/// The coordinates that an array's attributes declare of one of its axes: a rate of time, else a scale.
///
/// # Errors
/// [`CoordsError::Broken`] for attributes that are no numbers, or that disagree.
pub fn declared(
    attributes: &Map<String, Value>,
    axis: usize,
    dims: &[Option<String>],
) -> Result<Option<Regular>, CoordsError> {
    if let Some(name) = dims.get(axis).and_then(Option::as_deref)
        && let Some(regular) = rate(attributes, name)?
    {
        return Ok(Some(regular));
    }
    affine(attributes, axis, dims)
}

/// The axis of time of an array with a rate: `fps`, `sample_rate` and such, and the second `t0` at which it begins.
/// Cell k is `[t0 + k/r, t0 + (k+1)/r)`. A rate may be a fraction: `"30000/1001"` or `[30000, 1001]`.
///
/// # Errors
/// [`CoordsError::Broken`] for rates that are none, or that disagree.
pub(super) fn rate(attributes: &Map<String, Value>, dimension: &str) -> Result<Option<Regular>, CoordsError> {
    if role_of(dimension) != Some(Role::Time) {
        return Ok(None);
    }
    let mut found: Option<(&str, Exact)> = None;
    for name in RATES {
        let Some(value) = attributes.get(*name).filter(|value| !value.is_null()) else { continue };
        let rate = number(value).filter(|rate| *rate > integer(0));
        let rate = rate.ok_or_else(|| broken(name, &format!("{value} is no number of cells a second")))?;
        match &found {
            Some((first, known)) if *known != rate => {
                return Err(broken(name, &format!("{value} is not what `{first}` says")));
            }
            Some(_) => {}
            None => found = Some((name, rate)),
        }
    }
    let Some((_, rate)) = found else { return Ok(None) };
    let first = match attributes.get("t0").filter(|value| !value.is_null()) {
        None => integer(0),
        Some(value) => number(value).ok_or_else(|| broken("t0", &format!("{value} is no number of seconds")))?,
    };
    Ok(by_rate(&rate, Some(first)))
}

/// An axis of time with `rate` cells a second from the second `first` on, or 0; `None` for a rate that is none.
pub fn by_rate(rate: &Exact, first: Option<Exact>) -> Option<Regular> {
    let measured = Measured::In(Unit::seconds(), "s".to_owned());
    let first = first.unwrap_or_else(|| integer(0));
    let step = if *rate > integer(0) { rate.recip() } else { return None };
    Some(Regular { first, step, anchor: Anchor::Start, measured, source: "rate" })
}

/// An axis of pixels by the attributes `scale` and, if it does not begin at 0, `offset`; with `axis_units` for their
/// units. Each is a list with one entry an axis, or an object by the axes' names. The coordinate is the pixel's centre.
///
/// # Errors
/// [`CoordsError::Broken`] for entries that are no numbers.
fn affine(
    attributes: &Map<String, Value>,
    axis: usize,
    dims: &[Option<String>],
) -> Result<Option<Regular>, CoordsError> {
    let name = dims.get(axis).and_then(Option::as_deref);
    let of = |attribute: &str| -> Result<Option<&Value>, CoordsError> {
        let entry = match attributes.get(attribute) {
            Some(Value::Array(list)) if list.len() == dims.len() => list.get(axis),
            Some(Value::Array(_)) => return Err(broken(attribute, "the list has not one entry an axis")),
            Some(Value::Object(named)) => name.and_then(|name| named.get(name)),
            // A bare number packs values, and is about no axis.
            Some(_) | None => None,
        };
        Ok(entry.filter(|value| !value.is_null()))
    };
    let Some(scale) = of("scale")? else { return Ok(None) };
    let step = number(scale).filter(|step| *step != integer(0));
    let step = step.ok_or_else(|| broken("scale", &format!("{scale} is no distance")))?;
    let first = match of("offset")? {
        None => integer(0),
        Some(value) => number(value).ok_or_else(|| broken("offset", &format!("{value} is no number")))?,
    };
    let units = match of("axis_units")? {
        None => None,
        Some(Value::String(units)) => Some(units.as_str()),
        Some(other) => return Err(broken("axis_units", &format!("{other} is no name of a unit"))),
    };
    let measured = Measured::parse(units, None)
        .map_err(|reason| CoordsError::Unsupported { place: "attribute `axis_units`".to_owned(), reason })?;
    Ok(Some(Regular { first, step, anchor: Anchor::Centre, measured, source: "scale" }))
}

/// A number of an attribute as the decimal that it was written as: JSON's, text, or a fraction of two integers.
pub(super) fn number(value: &Value) -> Option<Exact> {
    match value {
        Value::Number(number) => match (number.as_i64(), number.as_u64()) {
            (Some(whole), _) => Some(integer(i128::from(whole))),
            (None, Some(whole)) => Some(integer(i128::from(whole))),
            (None, None) => shortest(number.as_f64()?),
        },
        Value::String(text) => fraction(text),
        Value::Array(pair) => match &pair[..] {
            [over, under] if over.is_number() && under.is_number() => {
                let under = number(under).filter(|under| *under != integer(0))?;
                Some(number(over)? / under)
            }
            _ => None,
        },
        Value::Null | Value::Bool(_) | Value::Object(_) => None,
    }
}

fn broken(attribute: &str, reason: &str) -> CoordsError {
    CoordsError::Broken { place: format!("attribute `{attribute}`"), reason: reason.to_owned() }
}
