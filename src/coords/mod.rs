//! Where the cells of an axis lie in seconds, metres or days, and which of them an interval takes.
//!
//! Pure: attributes and the bytes of coordinate arrays become [`Coordinates`]; an [`Interval`] becomes positions. All
//! comparisons are of exact rationals: no epsilon decides which frame belongs to which second.

mod declared;
mod error;
mod listed;
mod measure;
mod ome;
mod ragged;
mod regular;
#[cfg(test)]
mod tests;

use std::sync::Arc;

pub use declared::{RATES, by_rate, declared};
pub use error::CoordsError;
pub use listed::{Limit, Listed, Order, Values};
pub use measure::{Measured, Place};
pub use ome::multiscale;
pub use ragged::{Declared, IndexKind, Offsets, ragged};
pub use regular::{Anchor, Regular};

use crate::model::Measure;
use crate::model::exact::{Exact, ceil, floor, integer, round_half_even};
use crate::query::{Closed, Interval, Label, Mark, Method};

/// The coordinates of one axis.
#[derive(Debug, Clone)]
pub enum Coordinates {
    /// Equal steps.
    Regular(Arc<Regular>),
    /// An array of numbers, one a position, or two.
    Listed(Arc<Listed>),
}

/// Positions along an axis.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Taken {
    /// From the first up to the second. Beyond the axis only where a number of cells was asked for.
    Range(i128, i128),
    /// These, ascending.
    List(Vec<u64>),
}

/// An axis while something is selected of it.
#[derive(Debug, Clone, Copy)]
pub struct Axis<'a> {
    /// Its name, for errors.
    pub name: &'a str,
    /// Its positions.
    pub len: u64,
    /// What its positions are called.
    pub coordinates: &'a Coordinates,
}

impl From<Regular> for Coordinates {
    fn from(regular: Regular) -> Self {
        Self::Regular(Arc::new(regular))
    }
}

impl Coordinates {
    fn measured(&self) -> &Measured {
        match self {
            Self::Regular(regular) => &regular.measured,
            Self::Listed(listed) => &listed.measured,
        }
    }

    /// Cells a second, a metre, or whatever the axis measures, where they are all as long.
    pub fn rate(&self) -> Option<(Option<Measure>, Exact)> {
        let Self::Regular(regular) = self else { return None };
        let unit = regular.measured.unit();
        let step = unit.map_or_else(|| regular.step.clone(), |unit| &regular.step * &unit.factor);
        let rate = if step < integer(0) { -step.recip() } else { step.recip() };
        Some((unit.map(|unit| unit.measure), rate))
    }

    /// What `describe` tells of them.
    pub fn describe(&self) -> serde_json::Value {
        match self {
            Self::Regular(regular) => regular.describe(),
            Self::Listed(listed) => listed.describe(),
        }
    }
}

impl Axis<'_> {
    fn place(&self, parameter: &'static str, mark: &Mark) -> Result<Option<Place>, CoordsError> {
        self.coordinates.measured().place(mark).map_err(|reason| CoordsError::Unit {
            parameter,
            dimension: self.name.to_owned(),
            reason,
            valid: self.coordinates.measured().in_words(),
        })
    }

    fn outside(&self, parameter: &'static str) -> CoordsError {
        let extent = match self.coordinates {
            Coordinates::Regular(regular) => regular.extent(self.len),
            Coordinates::Listed(listed) => listed.extent(),
        };
        let valid = extent.map_or_else(
            || "nothing: the axis is empty".to_owned(),
            |(lo, hi)| self.coordinates.measured().text(&lo, &hi),
        );
        CoordsError::Outside { parameter, dimension: self.name.to_owned(), valid }
    }

    /// The positions that an interval takes, in stored order.
    ///
    /// # Errors
    /// [`CoordsError`]: units without a relation, ends in the wrong order, an interval wholly outside the data.
    pub fn take(&self, parameter: &'static str, interval: &Interval, closed: Closed) -> Result<Taken, CoordsError> {
        let lo = self.place(parameter, &interval.lo)?;
        if let (Some(cells), Some(lo)) = (interval.cells, &lo) {
            return self.cells_from(parameter, lo, cells);
        }
        let Some(hi) = &interval.hi else {
            let lo = lo.ok_or_else(|| self.outside(parameter))?;
            let at = self.containing(&lo).filter(|at| (0..i128::from(self.len)).contains(at));
            return at.map(|at| Taken::Range(at, at + 1)).ok_or_else(|| self.outside(parameter));
        };
        let hi = self.place(parameter, hi)?;
        if let (Some(low), Some(high)) = (&lo, &hi)
            && !low.is_at_most(high).ok_or_else(|| CoordsError::Mixed { parameter, dimension: self.name.to_owned() })?
        {
            return Err(CoordsError::Backwards { parameter, dimension: self.name.to_owned() });
        }
        let taken = match self.coordinates {
            _ if self.len == 0 => Taken::Range(0, 0),
            Coordinates::Regular(regular) => regular.take(self.len, lo.as_ref(), hi.as_ref(), closed),
            Coordinates::Listed(listed) => listed.take(lo.as_ref(), hi.as_ref(), closed),
        };
        let wholly_outside = match self.coordinates {
            Coordinates::Regular(regular) => !regular.reaches(self.len, lo.as_ref(), hi.as_ref()),
            Coordinates::Listed(listed) => !listed.reaches(lo.as_ref(), hi.as_ref()),
        };
        if wholly_outside { Err(self.outside(parameter)) } else { Ok(taken) }
    }

    /// Exactly `cells` cells, from the one that contains `lo`, or from the first point there or after it. They may
    /// reach beyond the axis: what that means is the caller's to say.
    fn cells_from(&self, parameter: &'static str, lo: &Place, cells: u64) -> Result<Taken, CoordsError> {
        let first = match self.coordinates {
            Coordinates::Regular(_) => self.containing(lo),
            Coordinates::Listed(listed) => listed.first_from(lo).map_err(|reason| CoordsError::Unit {
                parameter,
                dimension: self.name.to_owned(),
                reason: reason.to_owned(),
                valid: "an interval with two ends".to_owned(),
            })?,
        };
        let first = first.filter(|at| (0..i128::from(self.len)).contains(at)).ok_or_else(|| self.outside(parameter))?;
        let cells = i128::from(cells);
        Ok(if self.descends() {
            Taken::Range(first - cells + 1, first + 1)
        } else {
            Taken::Range(first, first + cells)
        })
    }

    fn descends(&self) -> bool {
        match self.coordinates {
            Coordinates::Regular(regular) => regular.step < integer(0),
            Coordinates::Listed(listed) => listed.order() == Order::Descending,
        }
    }

    /// The position whose cell contains a place: cells are half-open in the direction of their numbers. Of points, the
    /// one that lies there.
    fn containing(&self, place: &Place) -> Option<i128> {
        match self.coordinates {
            Coordinates::Regular(regular) => Some(floor(&regular.position(place))),
            Coordinates::Listed(listed) => listed.containing(place),
        }
    }

    /// The position that a label names.
    ///
    /// # Errors
    /// [`CoordsError`]: no such label, or a unit without a relation.
    pub fn find(&self, label: &Label) -> Result<u64, CoordsError> {
        let place = self.place("sel", &label.mark)?.ok_or_else(|| self.outside("sel"))?;
        let found = match self.coordinates {
            _ if self.len == 0 => None,
            Coordinates::Regular(regular) => regular.find(self.len, &place, label.method),
            Coordinates::Listed(listed) => listed.find(&place, label.method).map_err(|reason| CoordsError::Unit {
                parameter: "sel",
                dimension: self.name.to_owned(),
                reason: reason.to_owned(),
                valid: "an exact label".to_owned(),
            })?,
        };
        found.ok_or_else(|| match label.method {
            Method::Exact => CoordsError::NoSuchLabel { dimension: self.name.to_owned() },
            _ => self.outside("sel"),
        })
    }
}

/// How many cells of an axis with `rate` cells a second `duration` seconds are: the nearest number, of two the even one.
pub fn cells_of(duration: &Exact, rate: &Exact) -> u64 {
    u64::try_from(round_half_even(&(duration * rate))).unwrap_or(0)
}

/// Names of axes that mean x, y, z and time, in lower case.
pub fn role_of(name: &str) -> Option<crate::query::Role> {
    use crate::query::Role;
    let roles: [(Role, &[&str]); 4] = [
        (Role::X, &["x", "lon", "longitude", "easting"]),
        (Role::Y, &["y", "lat", "latitude", "northing"]),
        (Role::Z, &["z", "lev", "level", "height", "altitude", "depth", "elevation"]),
        (Role::Time, &["t", "time", "datetime", "timestamp", "frame", "frames"]),
    ];
    let name = name.to_ascii_lowercase();
    roles.into_iter().find(|(_, names)| names.contains(&name.as_str())).map(|(role, _)| role)
}
