//! Units of coordinates, and how they convert.

use super::exact::{Exact, decimal};

/// What a unit measures.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Measure {
    /// Seconds.
    Time,
    /// Metres.
    Length,
    /// Positions along an axis: frames, samples.
    Position,
}

/// A unit that converts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unit {
    /// What it measures.
    pub measure: Measure,
    /// How many seconds, metres or positions it is.
    pub factor: Exact,
}

/// Names and symbols, each with its size in seconds, metres or positions. Those of UDUNITS-2 that coordinates of video,
/// sound and images have; `m` is the metre, `min` the minute.
const UNITS: &[(Measure, &str, &[&str])] = &[
    (Measure::Time, "1", &["s", "sec", "secs", "second", "seconds"]),
    (Measure::Time, "1e-3", &["ms", "msec", "msecs", "millisecond", "milliseconds"]),
    (Measure::Time, "1e-6", &["us", "\u{b5}s", "\u{3bc}s", "usec", "microsecond", "microseconds"]),
    (Measure::Time, "1e-9", &["ns", "nsec", "nanosecond", "nanoseconds"]),
    (Measure::Time, "1e-12", &["ps", "picosecond", "picoseconds"]),
    (Measure::Time, "60", &["min", "mins", "minute", "minutes"]),
    (Measure::Time, "3600", &["h", "hr", "hrs", "hour", "hours"]),
    (Measure::Time, "86400", &["d", "day", "days"]),
    (Measure::Length, "1", &["m", "meter", "meters", "metre", "metres"]),
    (Measure::Length, "1e-2", &["cm", "centimeter", "centimeters", "centimetre", "centimetres"]),
    (Measure::Length, "1e-3", &["mm", "millimeter", "millimeters", "millimetre", "millimetres"]),
    (
        Measure::Length,
        "1e-6",
        &["um", "\u{b5}m", "\u{3bc}m", "micron", "microns", "micrometer", "micrometers", "micrometre", "micrometres"],
    ),
    (Measure::Length, "1e-9", &["nm", "nanometer", "nanometers", "nanometre", "nanometres"]),
    (Measure::Length, "1e-10", &["angstrom", "angstroms"]),
    (Measure::Length, "1e3", &["km", "kilometer", "kilometers", "kilometre", "kilometres"]),
    (Measure::Position, "1", &["frame", "frames", "sample", "samples", "cells"]),
];

impl Unit {
    /// The unit with this name or symbol.
    pub fn parse(text: &str) -> Option<Self> {
        let (measure, factor, _) = UNITS.iter().find(|(_, _, names)| names.contains(&text))?;
        Some(Self { measure: *measure, factor: decimal(factor)? })
    }

    /// Seconds.
    pub fn seconds() -> Self {
        Self { measure: Measure::Time, factor: super::exact::integer(1) }
    }

    /// How many of `other` one of this unit is, where both measure the same.
    pub fn in_units_of(&self, other: &Self) -> Option<Exact> {
        (self.measure == other.measure).then(|| &self.factor / &other.factor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_unit_has_a_size_and_one_meaning() {
        let mut names: Vec<&str> = Vec::new();
        for (_, factor, of_unit) in UNITS {
            assert!(decimal(factor).is_some(), "{factor}");
            names.extend(*of_unit);
        }
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count);
    }

    #[test]
    fn units_convert_within_a_measure() {
        let unit = |text| Unit::parse(text).expect(text);
        assert_eq!(unit("ms").in_units_of(&unit("s")), decimal("0.001"));
        assert_eq!(unit("\u{3bc}m").in_units_of(&unit("mm")), decimal("0.001"));
        assert_eq!(unit("h").in_units_of(&unit("min")), decimal("60"));
        assert_eq!(unit("m").in_units_of(&unit("s")), None);
        assert_eq!(Unit::parse("furlong"), None);
    }
}
