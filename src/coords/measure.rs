//! What the numbers of an axis mean.

use crate::model::exact::{Exact, integer, text};
use crate::model::instant::{instant, is_gregorian};
use crate::model::{Measure, Unit};
use crate::query::Mark;

/// What the numbers of an axis mean.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Measured {
    /// Multiples of a unit that converts.
    In(Unit, String),
    /// Multiples of a unit of time since an instant, in seconds since 1970.
    Since(Unit, Exact),
    /// A unit that is only a name.
    Named(String),
    /// Bare numbers.
    Bare,
}

/// Where a mark lies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// In numbers of the axis.
    At(Exact),
    /// In positions: cell 3 begins at 3.
    Position(Exact),
}

impl Place {
    /// Whether it lies at or below `other`; `None` where they cannot be compared.
    pub(super) fn is_at_most(&self, other: &Self) -> Option<bool> {
        match (self, other) {
            (Self::At(a), Self::At(b)) | (Self::Position(a), Self::Position(b)) => Some(a <= b),
            (Self::At(_), Self::Position(_)) | (Self::Position(_), Self::At(_)) => None,
        }
    }
}

impl Measured {
    /// From the text of a `units` attribute, and that of `calendar` where CF gives one.
    ///
    /// # Errors
    /// The reason why times cannot be told: another calendar, units without a length.
    pub fn parse(units: Option<&str>, calendar: Option<&str>) -> Result<Self, String> {
        let Some(units) = units.map(str::trim).filter(|units| !units.is_empty()) else { return Ok(Self::Bare) };
        if let Some((unit, since)) = units.split_once(" since ") {
            let unit = unit.trim();
            let parsed = Unit::parse(unit).filter(|unit| unit.measure == Measure::Time);
            let Some(parsed) = parsed else { return Err(format!("`{unit} since` has no fixed length of time")) };
            let epoch = instant(since).ok_or_else(|| format!("`{since}` is no date"))?;
            match calendar.unwrap_or("standard").to_ascii_lowercase().as_str() {
                "proleptic_gregorian" => {}
                "standard" | "gregorian" if is_gregorian(&epoch) => {}
                "standard" | "gregorian" => {
                    return Err(format!("`{since}` lies before the Gregorian calendar, which `standard` leaves there"));
                }
                other => return Err(format!("the calendar `{other}` is not the Gregorian one")),
            }
            return Ok(Self::Since(parsed, epoch));
        }
        Ok(match Unit::parse(units) {
            Some(unit) => Self::In(unit, units.to_owned()),
            None if units == "1" => Self::Bare,
            None => Self::Named(units.to_owned()),
        })
    }

    /// The unit, where it converts.
    pub fn unit(&self) -> Option<&Unit> {
        match self {
            Self::In(unit, _) | Self::Since(unit, _) => Some(unit),
            Self::Named(_) | Self::Bare => None,
        }
    }

    /// Where a mark lies, `None` for an open end.
    ///
    /// # Errors
    /// Why it lies nowhere.
    pub fn place(&self, mark: &Mark) -> Result<Option<Place>, String> {
        let value = match mark {
            Mark::Open => return Ok(None),
            Mark::Instant(seconds) => match self {
                Self::Since(unit, epoch) => (seconds - epoch) / &unit.factor,
                Self::In(..) | Self::Named(_) | Self::Bare => {
                    return Err("a date has no place on an axis that does not say since when it counts".to_owned());
                }
            },
            Mark::Number { value, unit: None } => value.clone(),
            Mark::Number { value, unit: Some(asked) } => match (Unit::parse(asked), self) {
                (_, Self::Named(own)) | (_, Self::In(_, own)) if own == asked => value.clone(),
                (Some(unit), _) if unit.measure == Measure::Position => {
                    return Ok(Some(Place::Position(value.clone())));
                }
                (Some(unit), Self::In(own, _) | Self::Since(own, _)) => {
                    let factor = unit.in_units_of(own);
                    value * factor.ok_or_else(|| format!("`{asked}` does not measure what the axis does"))?
                }
                (Some(_), Self::Named(_) | Self::Bare) | (None, _) => {
                    return Err(format!("the unit `{asked}` has no relation to the axis"));
                }
            },
        };
        Ok(Some(Place::At(value)))
    }

    /// What numbers are accepted, for errors.
    pub(super) fn in_words(&self) -> String {
        match self {
            Self::In(_, name) | Self::Named(name) => format!("numbers in `{name}`"),
            Self::Since(_, epoch) => {
                format!("dates and times, or numbers since {} s after 1970-01-01T00:00Z", text(epoch))
            }
            Self::Bare => "numbers without a unit, or a number of `frames`".to_owned(),
        }
    }

    /// An extent, for errors.
    pub(super) fn text(&self, lo: &Exact, hi: &Exact) -> String {
        let unit = match self {
            Self::In(_, name) | Self::Named(name) => name.as_str(),
            Self::Since(..) | Self::Bare => "",
        };
        format!("{}{unit}:{}{unit}", text(lo), text(hi))
    }

    /// The unit as it is shown.
    pub(super) fn name(&self) -> Option<String> {
        match self {
            Self::In(_, name) | Self::Named(name) => Some(name.clone()),
            Self::Since(unit, epoch) => {
                let (factor, epoch) = (text(&unit.factor), text(epoch));
                Some(if unit.factor == integer(1) {
                    format!("s since 1970-01-01T00:00Z + {epoch} s")
                } else {
                    format!("{factor} s since 1970-01-01T00:00Z + {epoch} s")
                })
            }
            Self::Bare => None,
        }
    }
}
