//! Numbers without rounding: coordinates are compared as the decimals that people and attributes write.

use num_bigint::BigInt;
use num_rational::BigRational;
use num_traits::{One as _, Signed as _, ToPrimitive as _, Zero as _};

/// A rational number of any size. Parsing bounds what clients can make of it.
pub type Exact = BigRational;

/// Longest text of a number.
const TEXT_BYTES: usize = 64;

/// Largest power of ten in a number's text: beyond that of every double.
const EXPONENT: i32 = 400;

/// A whole number.
pub fn integer(value: i128) -> Exact {
    Exact::from_integer(BigInt::from(value))
}

/// A decimal such as `-12.5`, `.5` or `1e-3`; `None` for anything else, or for an absurdly long one.
pub fn decimal(text: &str) -> Option<Exact> {
    if text.len() > TEXT_BYTES {
        return None;
    }
    let (mantissa, exponent) = match text.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, exponent.parse::<i32>().ok()?),
        None => (text, 0),
    };
    let (negative, digits) = match mantissa.as_bytes().first()? {
        b'-' => (true, &mantissa[1..]),
        b'+' => (false, &mantissa[1..]),
        _ => (false, mantissa),
    };
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let all_digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if (whole.is_empty() && fraction.is_empty()) || !all_digits(whole) || !all_digits(fraction) {
        return None;
    }
    if !(-EXPONENT..=EXPONENT).contains(&exponent) {
        return None;
    }
    let number: BigInt = format!("{whole}{fraction}").parse().ok()?;
    let number = if negative { -number } else { number };
    let power = exponent - i32::try_from(fraction.len()).ok()?;
    let scale = BigInt::from(10).pow(power.unsigned_abs());
    Some(if power < 0 { Exact::new(number, scale) } else { Exact::from_integer(number * scale) })
}

/// How many bytes of a text are the decimal that it begins with, sign included; it may still be none, as `.` is.
pub fn decimal_len(text: &str) -> usize {
    let bytes = text.as_bytes();
    let digits = |from: usize| from + bytes[from..].iter().take_while(|byte| byte.is_ascii_digit()).count();
    let mut end = digits(usize::from(text.starts_with(['+', '-'])));
    if bytes.get(end) == Some(&b'.') {
        end = digits(end + 1);
    }
    if matches!(bytes.get(end), Some(b'e' | b'E')) {
        let sign = usize::from(matches!(bytes.get(end + 1), Some(b'+' | b'-')));
        let power = digits(end + 1 + sign);
        if power > end + 1 + sign {
            end = power;
        }
    }
    end
}

/// A decimal, or a fraction of two such as `30000/1001`.
pub fn fraction(text: &str) -> Option<Exact> {
    match text.split_once('/') {
        None => decimal(text.trim()),
        Some((over, under)) => {
            let under = decimal(under.trim()).filter(|under| !under.is_zero())?;
            Some(decimal(over.trim())? / under)
        }
    }
}

/// The shortest decimal that reads back as `value`; `None` for NaN and the infinities.
pub fn shortest(value: f64) -> Option<Exact> {
    if value.is_finite() { decimal(&format!("{value:e}")) } else { None }
}

/// The same for a single-precision number: 0.1 is a tenth.
pub fn shortest_f32(value: f32) -> Option<Exact> {
    if value.is_finite() { decimal(&format!("{value:e}")) } else { None }
}

/// The integer at or below, or the nearest that an i128 holds.
pub fn floor(value: &Exact) -> i128 {
    clamped(&value.floor())
}

/// The integer at or above, or the nearest that an i128 holds.
pub fn ceil(value: &Exact) -> i128 {
    clamped(&value.ceil())
}

/// The nearest integer; of two, the even one.
pub fn round_half_even(value: &Exact) -> i128 {
    let below = value.floor();
    let rest = value - &below;
    let half = Exact::new(BigInt::one(), BigInt::from(2));
    let below = clamped(&below);
    match rest.cmp(&half) {
        std::cmp::Ordering::Less => below,
        std::cmp::Ordering::Greater => below.saturating_add(1),
        std::cmp::Ordering::Equal => below.saturating_add(below & 1),
    }
}

fn clamped(whole: &Exact) -> i128 {
    let whole = whole.to_integer();
    whole.to_i128().unwrap_or(if whole.is_negative() { i128::MIN } else { i128::MAX })
}

/// As people write it: a decimal where it is one, else a fraction.
pub fn text(value: &Exact) -> String {
    if value.is_integer() {
        return value.to_integer().to_string();
    }
    let approximate = value.to_f64().unwrap_or(f64::NAN);
    match shortest(approximate) {
        Some(same) if same == *value => approximate.to_string(),
        _ => value.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn decimals_are_exact() {
        let tenth = Exact::new(1.into(), 10.into());
        for text in ["0.1", ".1", "1e-1", "+0.10", "100E-3"] {
            assert_eq!(decimal(text), Some(tenth.clone()), "{text}");
        }
        assert_eq!(decimal("-12.5"), Some(Exact::new((-25).into(), 2.into())));
        assert_eq!(fraction("30000/1001"), Some(Exact::new(30000.into(), 1001.into())));
        for text in ["", ".", "-", "1e", "1e401", "0x1", "1/0", "nan", "inf", "1_0", "1 0", "--1", "1.2.3", "1e1e1"] {
            assert_eq!(fraction(text), None, "{text}");
        }
        assert_eq!(decimal(&"1".repeat(65)), None);
    }

    #[test]
    fn halves_round_to_even() {
        let rounded = |text: &str| round_half_even(&decimal(text).expect(text));
        assert_eq!(["0.5", "1.5", "2.5", "-0.5", "-1.5", "2.4999", "2.5001"].map(rounded), [0, 2, 2, 0, -2, 2, 3]);
    }

    proptest! {
        #[test]
        fn the_shortest_decimal_reads_back(bits in any::<u64>()) {
            let value = f64::from_bits(bits);
            let exact = shortest(value);
            prop_assert_eq!(exact.is_some(), value.is_finite());
            if let Some(exact) = exact {
                prop_assert_eq!(format!("{value:e}").parse::<f64>().ok().map(f64::to_bits), Some(value.to_bits()));
                prop_assert!(floor(&exact) <= ceil(&exact));
            }
        }

        #[test]
        fn shortest_decimals_keep_the_order(a in any::<f64>(), b in any::<f64>()) {
            if let (Some(x), Some(y)) = (shortest(a), shortest(b)) {
                prop_assert_eq!(a.partial_cmp(&b), Some(x.cmp(&y)));
            }
        }
    }
}
