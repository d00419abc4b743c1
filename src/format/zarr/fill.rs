//! Fill values: one element from its JSON form.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde_json::Value;

use super::json::malformed;
use crate::format::FormatError;
use crate::format::numpy::shown;
use crate::model::{DType, FloatKind, small_float};

/// The bytes of one element of `dtype`, little-endian, from its JSON form in Zarr metadata; for strings and byte
/// strings the bytes of the value.
///
/// Numbers, booleans, `"NaN"`, `"Infinity"`, `"-Infinity"`, `"0x…"` (the bits of a float), pairs for complex numbers,
/// base64 or lists of bytes for raw bytes, plain text for text, integers or `"NaT"` for times.
///
/// # Errors
/// [`FormatError::Malformed`] when the value is not one of `dtype`.
pub fn parse_fill_value(dtype: &DType, value: &Value) -> Result<Vec<u8>, FormatError> {
    fill(dtype, value)
        .ok_or_else(|| malformed("fill value", format!("{} is not a value of `{dtype}`", shown(&value.to_string()))))
}

/// The value that `null` and absence stand for in Zarr v2.
pub(super) fn zero(dtype: &DType) -> Vec<u8> {
    vec![0; dtype.size_bytes().unwrap_or(0)]
}

fn fill(dtype: &DType, value: &Value) -> Option<Vec<u8>> {
    match dtype {
        DType::Bool => match (value.as_bool(), value.as_u64()) {
            (Some(b), _) => Some(vec![u8::from(b)]),
            (None, Some(n @ (0 | 1))) => Some(vec![n as u8]),
            (None, _) => None,
        },
        DType::Int(bits) => {
            let n = integer(value)?;
            let half = 1_i128 << (bits - 1);
            (-half..half).contains(&n).then(|| n.to_le_bytes()[..usize::from(*bits).div_ceil(8)].to_vec())
        }
        DType::UInt(bits) => {
            let n = integer(value)?;
            (0..1_i128 << bits).contains(&n).then(|| n.to_le_bytes()[..usize::from(*bits).div_ceil(8)].to_vec())
        }
        DType::Float(kind) => float(*kind, value),
        DType::Complex(kind) => match value {
            Value::Array(parts) => match parts.as_slice() {
                [re, im] => Some([float(*kind, re)?, float(*kind, im)?].concat()),
                _ => None,
            },
            real => Some([float(*kind, real)?, vec![0; kind.size_bytes()]].concat()),
        },
        DType::DateTime64 { .. } | DType::TimeDelta64 { .. } => match value {
            Value::String(nat) if nat == "NaT" => Some(i64::MIN.to_le_bytes().to_vec()),
            other => i64::try_from(integer(other)?).ok().map(|n| n.to_le_bytes().to_vec()),
        },
        DType::RawBits(len) => match bytes(value)? {
            // zarr-python 2 writes 0 for raw bytes too.
            Raw::Zero => Some(vec![0; *len as usize]),
            Raw::Bytes(bytes) => (bytes.len() == *len as usize).then_some(bytes),
        },
        DType::FixedBytes(len) => match bytes(value)? {
            Raw::Zero => Some(vec![0; *len as usize]),
            Raw::Bytes(bytes) => padded(bytes, *len as usize),
        },
        DType::FixedUtf32(len) => {
            let text = if value.as_u64() == Some(0) { "" } else { value.as_str()? };
            padded(text.chars().flat_map(|c| u32::from(c).to_le_bytes()).collect(), *len as usize * 4)
        }
        DType::String => {
            let text = if value.as_u64() == Some(0) { "" } else { value.as_str()? };
            Some(text.as_bytes().to_vec())
        }
        DType::Bytes => match bytes(value)? {
            Raw::Zero => Some(Vec::new()),
            Raw::Bytes(bytes) => Some(bytes),
        },
    }
}

enum Raw {
    Zero,
    Bytes(Vec<u8>),
}

/// Base64, a list of bytes, or the number 0.
fn bytes(value: &Value) -> Option<Raw> {
    match value {
        Value::String(text) => BASE64_STANDARD.decode(text).ok().map(Raw::Bytes),
        Value::Array(list) => {
            let bytes = list.iter().map(|n| n.as_u64().and_then(|n| u8::try_from(n).ok()));
            bytes.collect::<Option<_>>().map(Raw::Bytes)
        }
        Value::Number(n) if n.as_u64() == Some(0) => Some(Raw::Zero),
        Value::Number(_) | Value::Null | Value::Bool(_) | Value::Object(_) => None,
    }
}

fn padded(mut bytes: Vec<u8>, len: usize) -> Option<Vec<u8>> {
    (bytes.len() <= len).then(|| {
        bytes.resize(len, 0);
        bytes
    })
}

/// An integer, also one written as `5.0`.
fn integer(value: &Value) -> Option<i128> {
    let number = value.as_number()?;
    if let Some(n) = number.as_i64() {
        return Some(n.into());
    }
    if let Some(n) = number.as_u64() {
        return Some(n.into());
    }
    // Floats name integers exactly only up to 2^53.
    number.as_f64().filter(|f| f.fract() == 0.0 && f.abs() <= 9_007_199_254_740_992.0).map(|f| f as i128)
}

fn float(kind: FloatKind, value: &Value) -> Option<Vec<u8>> {
    let x = match value {
        Value::Number(n) => n.as_f64()?,
        Value::String(text) => match text.as_str() {
            "NaN" => f64::NAN,
            "Infinity" => f64::INFINITY,
            "-Infinity" => f64::NEG_INFINITY,
            hex => {
                let digits = hex.strip_prefix("0x").filter(|d| d.bytes().all(|b| b.is_ascii_hexdigit()))?;
                let size = kind.size_bytes();
                let bits = (digits.len() <= 2 * size).then(|| u64::from_str_radix(digits, 16).ok()).flatten()?;
                return Some(bits.to_le_bytes()[..size].to_vec());
            }
        },
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => return None,
    };
    Some(match kind {
        FloatKind::F16 => half::f16::from_f64(x).to_le_bytes().to_vec(),
        FloatKind::BF16 => half::bf16::from_f64(x).to_le_bytes().to_vec(),
        FloatKind::F32 => (x as f32).to_le_bytes().to_vec(),
        FloatKind::F64 => x.to_le_bytes().to_vec(),
        FloatKind::Small(name) => vec![small_float::encode(name, x)?],
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::model::TimeUnit;

    #[test]
    fn values_of_every_kind() {
        let check = |dtype: DType, value: Value, expected: &[u8]| {
            assert_eq!(parse_fill_value(&dtype, &value).as_deref(), Ok(expected), "{dtype} {value}");
        };
        let f32s = DType::Float(FloatKind::F32);
        let f64s = DType::Float(FloatKind::F64);
        let time = DType::DateTime64 { unit: TimeUnit::Second, scale: 1 };
        check(DType::Bool, json!(true), &[1]);
        check(DType::Int(4), json!(-8), &[0xf8]);
        check(DType::Int(64), json!(i64::MIN), &i64::MIN.to_le_bytes());
        check(DType::UInt(64), json!(u64::MAX), &u64::MAX.to_le_bytes());
        check(DType::Int(16), json!(5.0), &[5, 0]);
        check(f32s.clone(), json!("NaN"), &f32::NAN.to_le_bytes());
        check(f32s.clone(), json!("-Infinity"), &f32::NEG_INFINITY.to_le_bytes());
        check(f32s, json!("0x7fc00001"), &0x7fc0_0001_u32.to_le_bytes());
        check(f64s, serde_json::from_str("9.969209968386869e+36").unwrap(), &9.969209968386869e36_f64.to_le_bytes());
        check(DType::Float(FloatKind::BF16), json!(1.5), &[0xc0, 0x3f]);
        check(DType::Float(FloatKind::Small("float8_e5m2")), json!("0x3e"), &[0x3e]);
        check(DType::Float(FloatKind::Small("float8_e4m3fn")), json!(1), &[0x38]);
        check(
            DType::Complex(FloatKind::F32),
            json!([1.0, "NaN"]),
            &[[0, 0, 0x80, 0x3f], f32::NAN.to_le_bytes()].concat(),
        );
        check(time.clone(), json!("NaT"), &i64::MIN.to_le_bytes());
        check(time, json!(-1), &[0xff; 8]);
        check(DType::RawBits(2), json!([1, 255]), &[1, 255]);
        check(DType::RawBits(2), json!("Af8="), &[1, 255]);
        check(DType::FixedBytes(4), json!("aGk="), b"hi\0\0");
        check(DType::FixedUtf32(2), json!("é"), &[0xe9, 0, 0, 0, 0, 0, 0, 0]);
        check(DType::String, json!("é"), "é".as_bytes());
        check(DType::Bytes, json!(0), b"");
    }

    #[test]
    fn values_of_another_type_are_refused() {
        let check = |dtype: DType, value: Value| assert!(parse_fill_value(&dtype, &value).is_err(), "{dtype} {value}");
        check(DType::Bool, json!(2));
        check(DType::Int(8), json!(128));
        check(DType::UInt(8), json!(-1));
        check(DType::UInt(2), json!(4));
        check(DType::Int(8), json!(0.5));
        check(DType::Int(8), json!("NaN"));
        check(DType::Float(FloatKind::F16), json!("0x12345"));
        check(DType::Float(FloatKind::F32), json!(null));
        check(DType::Float(FloatKind::F32), json!("0x+1"));
        check(DType::Complex(FloatKind::F64), json!([1]));
        check(DType::RawBits(2), json!([1]));
        check(DType::RawBits(1), json!([256]));
        check(DType::FixedBytes(1), json!("aGk="));
        check(DType::FixedUtf32(1), json!("ab"));
        check(DType::Float(FloatKind::Small("float4_e2m1fn")), json!("NaN"));
    }
}
