//! The floats of 8 bits and fewer, by their definitions (OCP Microscaling 1.0, OCP FP8 1.0, and the `fnuz` forms).

/// What the codes beyond the finite numbers mean.
#[derive(Clone, Copy)]
enum Specials {
    /// IEEE: the highest exponent is infinity (mantissa 0) or NaN.
    Ieee,
    /// `fn`: all bits but the sign set is NaN; no infinity.
    AllOnesIsNan,
    /// `fn` of 4 and 6 bits: neither NaN nor infinity.
    None,
    /// `fnuz`: minus zero's code is NaN; no infinity.
    MinusZeroIsNan,
}

/// The value of every byte in the type named `name` (a Zarr name), or `None` for an unknown name.
///
/// Types of 4 and 6 bits lie in a byte's low bits; the bits above are ignored.
pub(super) fn values(name: &str) -> Option<[f64; 256]> {
    let (exponent_bits, mantissa_bits, bias, specials) = match name {
        "float4_e2m1fn" => (2, 1, 1, Specials::None),
        "float6_e2m3fn" => (2, 3, 1, Specials::None),
        "float6_e3m2fn" => (3, 2, 3, Specials::None),
        "float8_e3m4" => (3, 4, 3, Specials::Ieee),
        "float8_e4m3" => (4, 3, 7, Specials::Ieee),
        "float8_e4m3b11fnuz" => (4, 3, 11, Specials::MinusZeroIsNan),
        "float8_e4m3fn" => (4, 3, 7, Specials::AllOnesIsNan),
        "float8_e4m3fnuz" => (4, 3, 8, Specials::MinusZeroIsNan),
        "float8_e5m2" => (5, 2, 15, Specials::Ieee),
        "float8_e5m2fnuz" => (5, 2, 16, Specials::MinusZeroIsNan),
        "float8_e8m0fnu" => return Some(std::array::from_fn(power_of_two)),
        _ => return None,
    };
    Some(std::array::from_fn(|code| value(code as u32, exponent_bits, mantissa_bits, bias, specials)))
}

/// `float8_e8m0fnu`: a bare exponent with bias 127; 255 is NaN.
fn power_of_two(code: usize) -> f64 {
    if code == 255 { f64::NAN } else { 2_f64.powi(code as i32 - 127) }
}

fn value(code: u32, exponent_bits: u32, mantissa_bits: u32, bias: i32, specials: Specials) -> f64 {
    let magnitude_bits = exponent_bits + mantissa_bits;
    let magnitude = code & ((1 << magnitude_bits) - 1);
    let negative = code >> magnitude_bits & 1 == 1;
    let mantissa = magnitude & ((1 << mantissa_bits) - 1);
    let exponent = magnitude >> mantissa_bits;
    let sign = if negative { -1.0 } else { 1.0 };
    match specials {
        Specials::Ieee if exponent == (1 << exponent_bits) - 1 => {
            return if mantissa == 0 { sign * f64::INFINITY } else { f64::NAN };
        }
        Specials::AllOnesIsNan if magnitude == (1 << magnitude_bits) - 1 => return f64::NAN,
        Specials::MinusZeroIsNan if negative && magnitude == 0 => return f64::NAN,
        Specials::Ieee | Specials::AllOnesIsNan | Specials::None | Specials::MinusZeroIsNan => {}
    }
    // Exponent 0 marks a subnormal: no leading one, and the exponent of the smallest normal number.
    let (significand, exponent) =
        if exponent == 0 { (mantissa, 1) } else { (mantissa + (1 << mantissa_bits), exponent as i32) };
    sign * f64::from(significand) * 2_f64.powi(exponent - bias - mantissa_bits as i32)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::SMALL_FLOATS;

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
            let codes = if name.starts_with("float4") { 16 } else if name.starts_with("float6") { 64 } else { 256 };
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
