//! Sizes and durations as people write them.

use std::time::Duration;

/// A number of bytes: `4096`, `64KiB`, `512 MiB`, `1.5GiB`, `2GB` (KiB counts 1024, KB 1000).
///
/// # Errors
/// What was expected, in words.
pub fn parse_size(text: &str) -> Result<u64, String> {
    let wrong = || format!("`{text}` is not a size such as `512MiB`");
    let text_trimmed = text.trim();
    let digits = text_trimmed.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text_trimmed.len());
    let (number, unit) = text_trimmed.split_at(digits);
    let factor: u64 = match unit.trim().to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "kb" => 1000,
        "mb" => 1_000_000,
        "gb" => 1_000_000_000,
        "tb" => 1_000_000_000_000,
        "kib" | "k" => 1 << 10,
        "mib" | "m" => 1 << 20,
        "gib" | "g" => 1 << 30,
        "tib" | "t" => 1 << 40,
        _ => return Err(wrong()),
    };
    let too_large = || format!("`{text}` is more bytes than can be counted");
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let whole: u64 = whole.parse().map_err(|_| wrong())?;
    let bytes = whole.checked_mul(factor).ok_or_else(too_large)?;
    if fraction.is_empty() {
        return if number.contains('.') { Err(wrong()) } else { Ok(bytes) };
    }
    // Exact: tenths and thousandths of a unit are whole bytes more often than a float says.
    if factor == 1 || fraction.len() > 9 || fraction.contains('.') {
        return Err(wrong());
    }
    let parts: u64 = fraction.parse().map_err(|_| wrong())?;
    let extra = u128::from(parts) * u128::from(factor) / 10_u128.pow(fraction.len() as u32);
    u64::try_from(extra).ok().and_then(|extra| bytes.checked_add(extra)).ok_or_else(too_large)
}

/// A duration: `0s`, `250ms`, `10s`, `1m 30s`.
///
/// # Errors
/// What was expected, in words.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    humantime::parse_duration(text.trim()).map_err(|_| format!("`{text}` is not a duration such as `10s`"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_exact() {
        for (text, bytes) in [
            ("0", 0),
            ("4096", 4096),
            ("64KiB", 65_536),
            ("512 MiB", 512 << 20),
            ("1.5GiB", 3 << 29),
            ("2GB", 2_000_000_000),
            ("1mib", 1 << 20),
            ("10 B", 10),
        ] {
            assert_eq!(parse_size(text), Ok(bytes), "{text}");
        }
        for text in ["", "MiB", "1.", "1.5", "x", "1 MiBs", "-1", "99999999999TiB", "1.2.3MiB", "18446744073709551616"]
        {
            assert!(parse_size(text).is_err(), "{text}");
        }
    }

    #[test]
    fn durations_have_units() {
        assert_eq!(parse_duration("0s"), Ok(Duration::ZERO));
        assert_eq!(parse_duration(" 250ms "), Ok(Duration::from_millis(250)));
        assert!(parse_duration("10").is_err());
        assert!(parse_duration("soon").is_err());
    }
}
