//! Points of time as ISO 8601 and CF write them, as seconds since 1970-01-01T00:00Z.
//!
//! The calendar is the proleptic Gregorian one. A time without an offset is UTC, as CF has it.

use super::exact::{Exact, decimal, integer};

/// The first day of the Gregorian calendar: what CF calls `standard` is another calendar before it.
const GREGORIAN_FROM: (i64, u32, u32) = (1582, 10, 15);

/// A date, or a date and a time: `2024-01-31`, `2024-01-31T12:30`, `2024-01-31 12:30:05.25Z`, `…+02:00`. Numbers need no
/// leading zeros: CF files have `1970-1-1 0:0:0`.
pub fn instant(text: &str) -> Option<Exact> {
    let text = text.trim();
    if text.len() > 64 || !text.is_ascii() {
        return None;
    }
    let (date, rest) = match text.find(['T', 't', ' ']) {
        Some(at) => (&text[..at], Some(text[at + 1..].trim())),
        None => (text.strip_suffix(['Z', 'z']).unwrap_or(text), None),
    };
    let days = days(date)?;
    let midnight = integer(i128::from(days) * 86_400);
    let Some(rest) = rest.filter(|rest| !rest.is_empty()) else { return Some(midnight) };
    let (time, offset) = split_offset(rest)?;
    Some(midnight + seconds_of_day(time.trim())? - integer(i128::from(offset) * 60))
}

/// Whether a date of CF's `standard` calendar is a Gregorian one.
pub fn is_gregorian(seconds: &Exact) -> bool {
    let (year, month, day) = GREGORIAN_FROM;
    *seconds >= integer(i128::from(days_from_civil(year, month, day)) * 86_400)
}

fn days(date: &str) -> Option<i64> {
    let (sign, digits) = match date.strip_prefix('-') {
        Some(rest) => (-1, rest),
        None => (1, date.strip_prefix('+').unwrap_or(date)),
    };
    let mut parts = digits.split('-');
    let mut number = |most: usize| {
        let part = parts.next()?;
        ((1..=most).contains(&part.len()) && part.bytes().all(|b| b.is_ascii_digit()))
            .then(|| part.parse::<u32>().ok())?
    };
    let (year, month, day) = (number(6)?, number(2)?, number(2)?);
    let year = sign * i64::from(year);
    if parts.next().is_some() || !(1..=12).contains(&month) || day == 0 || day > days_in_month(year, month) {
        return None;
    }
    Some(days_from_civil(year, month, day))
}

fn days_in_month(year: i64, month: u32) -> u32 {
    let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    match month {
        4 | 6 | 9 | 11 => 30,
        2 => 28 + u32::from(leap),
        _ => 31,
    }
}

/// Days since 1970-01-01, by counting in eras of 400 years that begin with March.
fn days_from_civil(year: i64, month: u32, day: u32) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let of_era = year.rem_euclid(400);
    let day_of_year = (153 * ((i64::from(month) + 9) % 12) + 2) / 5 + i64::from(day) - 1;
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + day_of_year - 719_468
}

/// The time, and its offset from UTC in minutes.
fn split_offset(text: &str) -> Option<(&str, i64)> {
    if let Some(time) = text.strip_suffix(['Z', 'z']) {
        return Some((time, 0));
    }
    if let Some(time) = text.strip_suffix("UTC") {
        return Some((time, 0));
    }
    let Some(at) = text.find(['+', '-']) else { return Some((text, 0)) };
    let sign = if text.as_bytes()[at] == b'-' { -1 } else { 1 };
    let offset = &text[at + 1..];
    let (hours, minutes) = match offset.split_once(':') {
        Some((hours, minutes)) => (hours, minutes),
        None if offset.len() == 4 => offset.split_at(2),
        None => (offset, "0"),
    };
    let number = |part: &str, below: i64| {
        let digits = (1..=2).contains(&part.len()) && part.bytes().all(|b| b.is_ascii_digit());
        digits.then(|| part.parse::<i64>().ok())?.filter(|value| *value < below)
    };
    Some((&text[..at], sign * (number(hours, 24)? * 60 + number(minutes, 60)?)))
}

fn seconds_of_day(time: &str) -> Option<Exact> {
    let mut parts = time.split(':');
    let mut whole = |below: i128| -> Option<i128> {
        let part = parts.next()?;
        let digits = (1..=2).contains(&part.len()) && part.bytes().all(|b| b.is_ascii_digit());
        digits.then(|| part.parse().ok())?.filter(|value| *value < below)
    };
    let hours = whole(24)?;
    let minutes = if time.contains(':') { whole(60)? } else { 0 };
    let seconds = match parts.next() {
        None => integer(0),
        // A leap second has no place on a line of seconds of equal length.
        Some(part) if part.starts_with(|c: char| c.is_ascii_digit()) && !part.contains(['e', 'E']) => {
            decimal(part).filter(|seconds| *seconds < integer(60))?
        }
        Some(_) => return None,
    };
    parts.next().is_none().then(|| integer(hours * 3600 + minutes * 60) + seconds)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, seconds: &str) {
        assert_eq!(instant(text), Some(decimal(seconds).expect(seconds)), "{text}");
    }

    #[test]
    fn times_are_read_as_they_are_written() {
        check("1970-01-01", "0");
        check("1970-1-1 0:0:0", "0");
        check("2024-02-29T12:30:05.25Z", "1709209805.25");
        check("2024-02-29T12:30:05.25+02:00", "1709202605.25");
        check("2024-02-29 12:30 -0530", "1709229600");
        check("1969-12-31T23:59:59.9", "-0.1");
        check("0000-03-01", "-62162035200");
        check("2000-01-01T00Z", "946684800");
        check("1900-01-01 00:00:00.0 UTC", "-2208988800");
    }

    #[test]
    fn what_is_no_time_is_none() {
        for text in [
            "",
            "2024",
            "2024-01",
            "2024-13-01",
            "2024-02-30",
            "2023-02-29",
            "1900-02-29",
            "2024-01-01T24:00",
            "2024-01-01T12:60",
            "2024-01-01T12:00:60",
            "2024-01-01T12:00:1e1",
            "2024-01-01T12:00+25:00",
            "2024-01-01Tx",
            "20240101",
            "2024-01-01-01",
            "2024-01-01T1:2:3:4",
            "2024-01-01T\u{b5}",
        ] {
            assert_eq!(instant(text), None, "{text}");
        }
    }
}
