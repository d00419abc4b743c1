//! Selections in coordinate space, as written: not yet tied to an axis.
//!
//! ```text
//! subset   = name "(" mark [":" mark] [";n=" int] ")"
//! mark     = "*" / number [unit] / instant / DQUOTE instant DQUOTE
//! bbox     = mark "," mark "," mark "," mark / six of them         ; x, y[, z] of one corner, then of the other
//! datetime = instant / (instant / "..") "/" (instant / "..")
//! sel      = name "=" [("nearest" / "ffill" / "bfill") "::"] mark
//! count    = name ":" int
//! ```
//!
//! `subset` and its `*` are OGC's, `bbox` and `datetime` those of OGC API, the methods of `sel` pandas'.

use percent_encoding::percent_decode_str;

use super::QueryError;
use crate::model::exact::{Exact, decimal, decimal_len};
use crate::model::instant::instant;

/// One end of an interval, or one place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Mark {
    /// As far as the data go.
    Open,
    /// A number, in the axis' own unit or in another.
    Number {
        /// The number.
        value: Exact,
        /// The unit as written.
        unit: Option<String>,
    },
    /// A point of time, in seconds since 1970-01-01T00:00Z.
    Instant(Exact),
}

/// What is taken along an axis, in its coordinates.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Interval {
    /// The lower end.
    pub lo: Mark,
    /// The upper end; `None` for the one cell at `lo`, or for the cells from there.
    pub hi: Option<Mark>,
    /// Exactly so many cells, from the one that contains `lo`.
    pub cells: Option<u64>,
}

/// An axis by what it is called, or by what it means.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OnAxis {
    /// By its name.
    Named(String),
    /// By its role.
    Role(Role),
}

/// What an axis means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names say it")]
pub enum Role {
    X,
    Y,
    Z,
    Time,
}

/// An interval of an axis.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Subset {
    /// `subset`, `bbox` or `datetime`.
    pub parameter: &'static str,
    /// Of which axis.
    pub axis: OnAxis,
    /// What of it.
    pub interval: Interval,
}

/// How a label that is not there finds one that is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Method {
    /// Not at all.
    Exact,
    /// The nearest; of two, the larger.
    Nearest,
    /// The last at or before it.
    Forward,
    /// The first at or after it.
    Backward,
}

/// One position by its coordinate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Label {
    /// Of which axis.
    pub dimension: String,
    /// How it is found.
    pub method: Method,
    /// The coordinate.
    pub mark: Mark,
}

/// What the ends of an interval take.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Closed {
    /// Points at both ends, and every cell whose interior the interval meets.
    #[default]
    Both,
    /// Points at the lower end only, and every cell that begins within: windows that meet share nothing.
    Left,
}

/// Longest name of a unit.
const UNIT_BYTES: usize = 32;

/// Parses one `subset`.
///
/// # Errors
/// [`QueryError::Grammar`] with the byte offset.
pub(super) fn parse_subset(text: &str) -> Result<Subset, QueryError> {
    let fail = |position: usize, reason: &str| grammar("subset", position, reason);
    let open = text.find('(').ok_or_else(|| fail(text.len(), "expected NAME(LOW:HIGH), such as t(12s:14s)"))?;
    let name = name("subset", text[..open].trim())?;
    let end = text.trim_end().len();
    let inner = text[..end].strip_suffix(')').filter(|inner| inner.len() > open).map(|inner| &inner[open + 1..]);
    let inner = inner.ok_or_else(|| fail(end, "expected `)` at the end"))?;
    let (marks, cells) = match inner.rsplit_once(';') {
        Some((marks, option)) => {
            let at = open + 1 + marks.len() + 1;
            let count =
                option.trim().strip_prefix("n=").ok_or_else(|| fail(at, "expected `n=` and a number of cells"))?;
            (marks, Some(parse_cells("subset", count, at + 2)?))
        }
        None => (inner, None),
    };
    let parts = split_marks(marks).ok_or_else(|| fail(open + 1, "an opened quote is not closed"))?;
    let mark = |at: usize, part: &str| parse_mark("subset", part, open + 1 + at);
    let (lo, hi) = match parts[..] {
        [(at, lo)] => (mark(at, lo)?, None),
        [(at, lo), (then, hi)] => (mark(at, lo)?, Some(mark(then, hi)?)),
        _ => {
            return Err(fail(
                open + 1,
                "more than one `:`; a time of day stands in quotes: t(\"2024-01-31T12:00Z\":*)",
            ));
        }
    };
    if cells.is_some() && lo == Mark::Open {
        return Err(fail(open + 1, "`n=` counts from a lower end, which is open"));
    }
    if hi.is_none() && lo == Mark::Open {
        return Err(fail(open + 1, "expected a place, or an interval such as *:14s"));
    }
    Ok(Subset { parameter: "subset", axis: OnAxis::Named(name), interval: Interval { lo, hi, cells } })
}

/// Parses `bbox`: an interval for x, y and, of six numbers, z.
///
/// # Errors
/// [`QueryError::Grammar`] with the byte offset.
pub(super) fn parse_bbox(text: &str) -> Result<Vec<Subset>, QueryError> {
    let mut at = 0;
    let mut marks = Vec::new();
    for part in text.split(',') {
        marks.push(parse_mark("bbox", part, at)?);
        at += part.len() + 1;
        if marks.len() > 6 {
            break;
        }
    }
    let roles: &[Role] = match marks.len() {
        4 => &[Role::X, Role::Y],
        6 => &[Role::X, Role::Y, Role::Z],
        _ => return Err(grammar("bbox", 0, "expected 4 numbers, x0,y0,x1,y1, or 6 with z")),
    };
    let high = marks.split_off(roles.len());
    let intervals = roles.iter().zip(marks.into_iter().zip(high));
    let subsets = intervals.map(|(role, (lo, hi))| Subset {
        parameter: "bbox",
        axis: OnAxis::Role(*role),
        interval: Interval { lo, hi: Some(hi), cells: None },
    });
    Ok(subsets.collect())
}

/// Parses `datetime`.
///
/// # Errors
/// [`QueryError::Grammar`] with the byte offset.
pub(super) fn parse_datetime(text: &str) -> Result<Subset, QueryError> {
    let end = |at: usize, part: &str| match part.trim() {
        "" | ".." | "*" => Ok(Mark::Open),
        other => instant(other).map(Mark::Instant).ok_or_else(|| {
            grammar("datetime", at, "expected a date and time such as 2024-01-31T12:00:00Z, or `..` for an open end")
        }),
    };
    let (lo, hi) = match text.split_once('/') {
        Some((lo, hi)) => (end(0, lo)?, Some(end(lo.len() + 1, hi)?)),
        None => (end(0, text)?, None),
    };
    if lo == Mark::Open && hi.as_ref().is_none_or(|hi| *hi == Mark::Open) {
        return Err(grammar("datetime", 0, "expected a time, or an interval with an end that is not open"));
    }
    Ok(Subset { parameter: "datetime", axis: OnAxis::Role(Role::Time), interval: Interval { lo, hi, cells: None } })
}

/// Parses one `sel`.
///
/// # Errors
/// [`QueryError::Grammar`] with the byte offset.
pub(super) fn parse_label(text: &str) -> Result<Label, QueryError> {
    let (written, value) = text
        .split_once('=')
        .ok_or_else(|| grammar("sel", text.len(), "expected NAME=VALUE, such as t=nearest::12.4"))?;
    let mut at = written.len() + 1;
    let dimension = name("sel", written.trim())?;
    let (method, value) = match value.split_once("::") {
        None => (Method::Exact, value),
        Some((method, rest)) => {
            let found = match method.trim() {
                "nearest" => Method::Nearest,
                "ffill" => Method::Forward,
                "bfill" => Method::Backward,
                _ => return Err(grammar("sel", at, "expected nearest, ffill or bfill before `::`")),
            };
            at += method.len() + 2;
            (found, rest)
        }
    };
    match parse_mark("sel", value, at)? {
        Mark::Open => Err(grammar("sel", at, "expected a value")),
        mark => Ok(Label { dimension, method, mark }),
    }
}

/// Parses `count`: a name and a number of cells.
///
/// # Errors
/// [`QueryError::Grammar`] with the byte offset.
pub(super) fn parse_count(text: &str) -> Result<(String, u64), QueryError> {
    let (written, cells) =
        text.rsplit_once(':').ok_or_else(|| grammar("count", text.len(), "expected NAME:CELLS, such as t:50"))?;
    Ok((name("count", written.trim())?, parse_cells("count", cells, written.len() + 1)?))
}

fn parse_cells(parameter: &'static str, text: &str, at: usize) -> Result<u64, QueryError> {
    let cells = text.trim().parse().ok().filter(|cells| (1..=i64::MAX as u64).contains(cells));
    cells.ok_or_else(|| grammar(parameter, at, "expected a number of cells, at least 1"))
}

fn name(parameter: &'static str, text: &str) -> Result<String, QueryError> {
    if text.is_empty() {
        return Err(grammar(parameter, 0, "expected the name of a dimension"));
    }
    let decoded = percent_decode_str(text).decode_utf8();
    Ok(decoded.map_err(|_| grammar(parameter, 0, "the name is not UTF-8 once decoded"))?.into_owned())
}

/// Parts between colons that stand outside quotes, with their offsets.
fn split_marks(text: &str) -> Option<Vec<(usize, &str)>> {
    let (mut parts, mut from, mut quoted) = (Vec::new(), 0, false);
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            b'"' => quoted = !quoted,
            b':' if !quoted => {
                parts.push((from, &text[from..at]));
                from = at + 1;
            }
            _ => {}
        }
    }
    parts.push((from, &text[from..]));
    (!quoted).then_some(parts)
}

fn parse_mark(parameter: &'static str, text: &str, at: usize) -> Result<Mark, QueryError> {
    let at = at + (text.len() - text.trim_start().len());
    let text = text.trim();
    if text == "*" {
        return Ok(Mark::Open);
    }
    if let Some(quoted) = text.strip_prefix('"') {
        let inner = quoted.strip_suffix('"').and_then(instant);
        return inner.map(Mark::Instant).ok_or_else(|| {
            grammar(parameter, at, "expected a date and time in the quotes, such as \"2024-01-31T12:00:00Z\"")
        });
    }
    if let Some((value, unit)) = number_and_unit(text) {
        return Ok(Mark::Number { value, unit });
    }
    instant(text).map(Mark::Instant).ok_or_else(|| {
        grammar(parameter, at, "expected a number with or without a unit (12, 0.5s, 3mm), a date and time, or `*`")
    })
}

fn number_and_unit(text: &str) -> Option<(Exact, Option<String>)> {
    let end = decimal_len(text);
    let value = decimal(&text[..end])?;
    let unit = text[end..].trim_start();
    if unit.is_empty() {
        return Some((value, None));
    }
    let fits = unit.len() <= UNIT_BYTES
        && unit.starts_with(|c: char| c.is_alphabetic() || matches!(c, '\u{b5}' | '\u{b0}' | '%'))
        && !unit.contains([':', ';', ',', '(', ')', '"']);
    fits.then(|| (value, Some(unit.to_owned())))
}

fn grammar(parameter: &'static str, position: usize, reason: &str) -> QueryError {
    QueryError::Grammar { parameter, reason: reason.to_owned(), position }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::exact::integer;
    use proptest::prelude::*;

    fn number(text: &str, unit: Option<&str>) -> Mark {
        Mark::Number { value: decimal(text).expect(text), unit: unit.map(str::to_owned) }
    }

    fn check(text: &str, lo: Mark, hi: Option<Mark>, cells: Option<u64>) {
        let subset = parse_subset(text).expect(text);
        assert_eq!((subset.axis, subset.interval), (OnAxis::Named("t".into()), Interval { lo, hi, cells }), "{text}");
    }

    #[test]
    fn intervals_are_read_as_they_are_written() {
        check("t(12s:14s)", number("12", Some("s")), Some(number("14", Some("s"))), None);
        check(" t ( 12 : * ) ", number("12", None), Some(Mark::Open), None);
        check("t(-1e3ms;n=50)", number("-1000", Some("ms")), None, Some(50));
        check("t(0.5 \u{3bc}s)", number("0.5", Some("\u{3bc}s")), None, None);
        check("t(1e:2e)", number("1", Some("e")), Some(number("2", Some("e"))), None);
        let day = |n: i128| Mark::Instant(integer(n * 86_400));
        check("t(1970-01-02:1970-01-03)", day(1), Some(day(2)), None);
        check("t(\"1970-01-02T00:00Z\":\"1970-01-03\")", day(1), Some(day(2)), None);
        assert_eq!(parse_subset("a%28b(1)").expect("valid").axis, OnAxis::Named("a(b".into()));
    }

    #[test]
    fn what_is_no_interval_is_told_where() {
        for text in [
            "",
            "t",
            "t(",
            "t()",
            "t(1",
            "t1)",
            "(1:2)",
            "t(1:2:3)",
            "t(1;m=2)",
            "t(1;n=0)",
            "t(1;n=-1)",
            "t(*;n=2)",
            "t(*)",
            "t(a:b)",
            "t(\"1\")",
            "t(\"2024-01-01:2)",
            "t(1s2)x",
            "t(1:2;n=)",
            "t(1 :2 ;n=9999999999999999999)",
            "t(1%(:2)",
            ")t(",
        ] {
            let error = parse_subset(text).expect_err(text);
            assert!(matches!(error, QueryError::Grammar { position, .. } if position <= text.len()), "{text}: {error}");
        }
    }

    #[test]
    fn a_box_has_two_corners() {
        let of = |text| {
            parse_bbox(text).map(|subsets| subsets.into_iter().map(|s| (s.axis, s.interval.lo)).collect::<Vec<_>>())
        };
        let role = OnAxis::Role;
        assert_eq!(of("1,2,3,4"), Ok(vec![(role(Role::X), number("1", None)), (role(Role::Y), number("2", None))]));
        assert_eq!(of("1,2m,3,4,5,6").map(|found| found.len()), Ok(3));
        for text in ["", "1,2,3", "1,2,3,4,5", "1,2,3,4,5,6,7", "a,b,c,d"] {
            assert!(of(text).is_err(), "{text}");
        }
    }

    #[test]
    fn times_and_labels() {
        let day = |n: i128| Mark::Instant(integer(n * 86_400));
        let interval = |text| parse_datetime(text).map(|subset| (subset.interval.lo, subset.interval.hi));
        assert_eq!(interval("1970-01-02/.."), Ok((day(1), Some(Mark::Open))));
        assert_eq!(interval("../1970-01-02T00:00:00Z"), Ok((Mark::Open, Some(day(1)))));
        assert_eq!(interval("1970-01-02"), Ok((day(1), None)));
        for text in ["", "..", "../..", "/", "x", "1970-01-02/x", "12s/14s"] {
            assert!(interval(text).is_err(), "{text}");
        }
        let label = |text| parse_label(text).map(|label| (label.dimension, label.method, label.mark));
        assert_eq!(label("t=nearest::12.4"), Ok(("t".into(), Method::Nearest, number("12.4", None))));
        assert_eq!(label("t=bfill::1970-01-02T00:00"), Ok(("t".into(), Method::Backward, day(1))));
        assert_eq!(label("a%3Db=3s"), Ok(("a=b".into(), Method::Exact, number("3", Some("s")))));
        for text in ["", "t", "t=", "t=*", "t=linear::3", "t=nearest::", "=3"] {
            assert!(label(text).is_err(), "{text}");
        }
        assert_eq!(parse_count("t:50"), Ok(("t".into(), 50)));
        assert!(parse_count("t").is_err() && parse_count("t:0").is_err());
    }

    proptest! {
        #[test]
        fn no_text_does_harm(text in "[ -~\u{b5}]{0,40}") {
            let _ = (parse_subset(&text), parse_bbox(&text), parse_datetime(&text), parse_label(&text), parse_count(&text));
            let _ = parse_subset(&format!("t({text})"));
        }
    }
}
