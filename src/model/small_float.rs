//! The floats of eight bits and fewer, by their definitions (OCP Microscaling 1.0, OCP FP8 1.0, and the `fnuz`
//! forms): the values of their codes, and the code nearest to a number.

/// How the codes of a format with infinities or not-a-numbers end.
#[derive(Clone, Copy, PartialEq)]
enum Special {
    /// Every code is a finite number.
    None,
    /// IEEE: the highest exponent holds infinity and NaN.
    Ieee,
    /// Only all ones (with either sign) is NaN; no infinity.
    OnesNan,
    /// Only the code of negative zero is NaN; no infinity.
    NegativeZeroNan,
}

/// Layout of a format: bits of exponent and mantissa, exponent bias, special codes.
struct Layout {
    exponent_bits: u32,
    mantissa_bits: u32,
    bias: i32,
    special: Special,
}

fn layout(name: &str) -> Option<Layout> {
    let (exponent_bits, mantissa_bits, bias, special) = match name {
        "float4_e2m1fn" => (2, 1, 1, Special::None),
        "float6_e2m3fn" => (2, 3, 1, Special::None),
        "float6_e3m2fn" => (3, 2, 3, Special::None),
        "float8_e3m4" => (3, 4, 3, Special::Ieee),
        "float8_e4m3" => (4, 3, 7, Special::Ieee),
        "float8_e4m3b11fnuz" => (4, 3, 11, Special::NegativeZeroNan),
        "float8_e4m3fn" => (4, 3, 7, Special::OnesNan),
        "float8_e4m3fnuz" => (4, 3, 8, Special::NegativeZeroNan),
        "float8_e5m2" => (5, 2, 15, Special::Ieee),
        "float8_e5m2fnuz" => (5, 2, 16, Special::NegativeZeroNan),
        _ => return None,
    };
    Some(Layout { exponent_bits, mantissa_bits, bias, special })
}

/// The value of a code, NaN and infinities included.
fn value(name: &str, code: u8) -> Option<f64> {
    if name == "float8_e8m0fnu" {
        return Some(if code == 0xff { f64::NAN } else { 2_f64.powi(i32::from(code) - 127) });
    }
    let Layout { exponent_bits, mantissa_bits, bias, special } = layout(name)?;
    let sign_bit = exponent_bits + mantissa_bits;
    if u32::from(code) >> (sign_bit + 1) != 0 {
        return None;
    }
    let mantissa = u32::from(code) & ((1 << mantissa_bits) - 1);
    let exponent = (u32::from(code) >> mantissa_bits) & ((1 << exponent_bits) - 1);
    let sign = if u32::from(code) >> sign_bit & 1 == 1 { -1.0 } else { 1.0 };
    let highest = exponent == (1 << exponent_bits) - 1;
    match special {
        Special::Ieee if highest && mantissa == 0 => return Some(sign * f64::INFINITY),
        Special::Ieee if highest => return Some(f64::NAN),
        Special::OnesNan if highest && mantissa == (1 << mantissa_bits) - 1 => return Some(f64::NAN),
        Special::NegativeZeroNan if u32::from(code) == 1 << sign_bit => return Some(f64::NAN),
        Special::None | Special::Ieee | Special::OnesNan | Special::NegativeZeroNan => {}
    }
    let fraction = f64::from(mantissa) / f64::from(1_u32 << mantissa_bits);
    let magnitude = if exponent == 0 {
        fraction * 2_f64.powi(1 - bias)
    } else {
        (1.0 + fraction) * 2_f64.powi(exponent as i32 - bias)
    };
    Some(sign * magnitude)
}

/// The value of every byte in the type named `name` (a Zarr name), or `None` for an unknown name.
///
/// Types of 4 and 6 bits lie in a byte's low bits; the bits above are ignored.
pub fn values(name: &str) -> Option<[f64; 256]> {
    let mask = match layout(name) {
        Some(layout) => u8::MAX >> (7 - layout.exponent_bits - layout.mantissa_bits),
        None if name == "float8_e8m0fnu" => u8::MAX,
        None => return None,
    };
    Some(std::array::from_fn(|code| value(name, code as u8 & mask).unwrap_or(f64::NAN)))
}

/// The code nearest to `x` in the format `name`, ties to the even code; `None` when the format has no such value:
/// NaN or infinity it lacks, or a number past its largest.
pub fn encode(name: &str, x: f64) -> Option<u8> {
    let codes = || (0..=u8::MAX).filter_map(|code| Some((code, value(name, code)?)));
    if x.is_nan() {
        // The quiet NaN with a clear sign, where there are several.
        return codes()
            .filter(|(_, v)| v.is_nan())
            .map(|(code, _)| code)
            .filter(|code| code & 0x7f != 0 || *code == 0x80)
            .find(|code| {
                let quiet = layout(name).filter(|l| l.special == Special::Ieee).map(|l| 1_u8 << (l.mantissa_bits - 1));
                quiet.is_none_or(|bit| code & bit != 0)
            });
    }
    if name == "float8_e8m0fnu" && x == 0.0 {
        // The type has no zero. tensorstore writes its default fill value so, and means the code of all zeros.
        return Some(0);
    }
    if x.is_infinite() {
        return codes().find(|(_, v)| *v == x).map(|(code, _)| code);
    }
    let finite = || codes().filter(|(_, v)| v.is_finite());
    let (low, high) = finite().fold((f64::MAX, f64::MIN), |(l, h), (_, v)| (l.min(v), h.max(v)));
    if x < low || x > high {
        return None;
    }
    let sign_matches = |v: f64| v != 0.0 || x != 0.0 || v.is_sign_negative() == x.is_sign_negative();
    finite()
        .min_by(|(a_code, a), (b_code, b)| {
            let distance = (a - x).abs().total_cmp(&(b - x).abs());
            distance.then(sign_matches(*b).cmp(&sign_matches(*a))).then((a_code & 1).cmp(&(b_code & 1)))
        })
        .map(|(code, _)| code)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::SMALL_FLOATS;

    #[test]
    fn every_finite_code_encodes_to_itself() {
        for name in SMALL_FLOATS {
            let mut seen = 0;
            for code in 0..=u8::MAX {
                if let Some(v) = value(name, code).filter(|v| !v.is_nan()) {
                    assert_eq!(encode(name, v), Some(code), "{name} {code:#04x} {v}");
                    seen += 1;
                }
            }
            assert!(seen >= 16, "{name} has a layout");
        }
    }

    #[test]
    fn known_codes() {
        assert_eq!(encode("float8_e4m3fn", 448.0), Some(0x7e));
        assert_eq!(encode("float8_e4m3fn", 500.0), None);
        assert_eq!(encode("float8_e4m3fn", f64::NAN), Some(0x7f));
        assert_eq!(encode("float8_e4m3fnuz", f64::NAN), Some(0x80));
        assert_eq!(encode("float8_e5m2", f64::NAN), Some(0x7e));
        assert_eq!(encode("float8_e5m2", f64::NEG_INFINITY), Some(0xfc));
        assert_eq!(encode("float8_e5m2", 1.5), Some(0x3e));
        assert_eq!(encode("float8_e8m0fnu", 1.0), Some(127));
        assert_eq!(encode("float4_e2m1fn", 6.0), Some(7));
        assert_eq!(encode("float4_e2m1fn", f64::NAN), None);
    }

    /// Written by ml_dtypes.
    const ORACLE: &str = include_str!("../../tests/fixtures/small_floats.txt");

    #[test]
    fn every_code_of_every_type_is_read_as_ml_dtypes_reads_it() {
        let mut seen = Vec::new();
        for line in ORACLE.lines().filter(|line| !line.starts_with('#')) {
            let (name, expected) = line.split_once(' ').expect("a name and values");
            let expected: Vec<f64> = expected.split(' ').map(|v| v.parse().expect("a number")).collect();
            let ours = values(name).expect("a known type");
            assert_eq!(expected.len(), 256);
            // Bytes with bits above the type's own are no codes of it; readers differ on them.
            let codes = if name.starts_with("float4") {
                16
            } else if name.starts_with("float6") {
                64
            } else {
                256
            };
            for (code, (ours, expected)) in ours.iter().zip(&expected).enumerate().take(codes) {
                let same = ours.to_bits() == expected.to_bits() || ours.is_nan() && expected.is_nan();
                assert!(same, "{name} {code:#04x}: {ours} is not {expected}");
            }
            seen.push(name);
        }
        assert_eq!(seen, SMALL_FLOATS);
    }

    #[test]
    fn an_unknown_name_has_no_values() {
        assert!(values("float8_e9m9").is_none());
    }
}
