//! Element types by their Zarr names.

use serde_json::Value;

use super::json::{kind, malformed};
use crate::format::FormatError;
use crate::format::numpy::{ELEMENT_BYTES_MAX, parse_descr, shown};
use crate::model::{DType, FloatKind, TimeUnit};

const DOCUMENT: &str = "zarr.json";

/// A Zarr v3 `data_type`: a name, or an object with `name` and `configuration`.
pub(super) fn parse_v3(value: &Value) -> Result<DType, FormatError> {
    let (name, configuration) = match value {
        Value::String(name) => (name.as_str(), None),
        Value::Object(map) => match map.get("name") {
            Some(Value::String(name)) => (name.as_str(), map.get("configuration")),
            Some(_) | None => return Err(malformed(DOCUMENT, "`data_type` has no name")),
        },
        other => return Err(malformed(DOCUMENT, format!("`data_type` is {}", kind(other)))),
    };
    let field = |key: &str| configuration.and_then(|c| c.get(key));
    let length = || match field("length_bytes").and_then(Value::as_u64) {
        Some(n @ 1..) if n <= u64::from(ELEMENT_BYTES_MAX) => Ok(n as u32),
        Some(n @ 1..) => Err(FormatError::Dtype {
            name: name.into(),
            hint: format!(": its elements have {n} bytes, more than {ELEMENT_BYTES_MAX}"),
        }),
        Some(0) | None => Err(malformed(DOCUMENT, format!("`{name}` needs `length_bytes` of at least 1"))),
    };
    match name {
        "numpy.datetime64" | "numpy.timedelta64" => {
            let unit = field("unit")
                .and_then(Value::as_str)
                .and_then(TimeUnit::from_code)
                .ok_or_else(|| malformed(DOCUMENT, format!("`{name}` needs a `unit` of time")))?;
            let scale = match field("scale_factor") {
                None => 1,
                Some(n) => n
                    .as_u64()
                    .and_then(|n| u32::try_from(n).ok())
                    .filter(|&n| n >= 1)
                    .ok_or_else(|| malformed(DOCUMENT, format!("`scale_factor` of `{name}` is {n}")))?,
            };
            let datetime = name == "numpy.datetime64";
            Ok(if datetime { DType::DateTime64 { unit, scale } } else { DType::TimeDelta64 { unit, scale } })
        }
        "fixed_length_utf32" => {
            let bytes = length()?;
            if bytes % 4 != 0 {
                return Err(malformed(DOCUMENT, format!("`{name}` of {bytes} bytes, not a multiple of 4")));
            }
            Ok(DType::FixedUtf32(bytes / 4))
        }
        "null_terminated_bytes" => Ok(DType::FixedBytes(length()?)),
        "raw_bytes" => Ok(DType::RawBits(length()?)),
        "structured" | "struct" => {
            Err(FormatError::Dtype { name: name.into(), hint: ": it has several fields".into() })
        }
        _ => by_name(name).ok_or_else(|| FormatError::Dtype { name: shown(name), hint: String::new() }),
    }
}

/// A type without parameters, by its v3 name or an alias.
pub(super) fn by_name(name: &str) -> Option<DType> {
    let bits = |rest: &str| match rest {
        "2" | "4" | "8" | "16" | "32" | "64" => rest.parse::<u8>().ok(),
        _ => None,
    };
    match name {
        "bool" => return Some(DType::Bool),
        "complex64" => return Some(DType::Complex(FloatKind::F32)),
        "complex128" => return Some(DType::Complex(FloatKind::F64)),
        "string" => return Some(DType::String),
        "bytes" | "binary" | "variable_length_bytes" => return Some(DType::Bytes),
        _ => {}
    }
    if let Some(kind) = FloatKind::from_name(name) {
        return Some(DType::Float(kind));
    }
    if let Some(bits) = name.strip_prefix("int").and_then(bits) {
        return Some(DType::Int(bits));
    }
    if let Some(bits) = name.strip_prefix("uint").and_then(bits) {
        return Some(DType::UInt(bits));
    }
    if let Some(kind) = name.strip_prefix("complex_").and_then(FloatKind::from_name) {
        return Some(DType::Complex(kind));
    }
    let bits: u64 = name.strip_prefix('r').filter(|s| s.bytes().all(|b| b.is_ascii_digit()))?.parse().ok()?;
    let bytes = u32::try_from(bits / 8).ok().filter(|&n| (1..=ELEMENT_BYTES_MAX).contains(&n))?;
    bits.is_multiple_of(8).then_some(DType::RawBits(bytes))
}

/// A type in Zarr v2 metadata or a numcodecs configuration: a numpy type string, or a name that tensorstore and
/// others write for types that numpy has not (`bfloat16`). Also whether its words are big-endian.
pub(super) fn parse_numpy(value: &Value) -> Result<(DType, bool), FormatError> {
    match value {
        Value::String(name) => match by_name(name) {
            Some(dtype) if dtype.size_bytes().is_some() => Ok((dtype, false)),
            Some(_) | None => parse_descr(name),
        },
        Value::Array(_) => {
            Err(FormatError::Dtype { name: shown(&value.to_string()), hint: ": it has several fields".into() })
        }
        other => Err(malformed(".zarray", format!("a data type is {}", kind(other)))),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_name_of_the_model_is_read_back() {
        let mut names: Vec<String> = crate::model::SMALL_FLOATS.iter().map(|s| (*s).to_owned()).collect();
        names.extend(
            ["bool", "int2", "uint4", "int64", "float16", "bfloat16", "complex64", "complex128"].map(Into::into),
        );
        names.extend(["complex_float16", "complex_bfloat16", "r8", "r24", "string", "bytes"].map(Into::into));
        for name in names {
            assert_eq!(parse_v3(&json!(name)).unwrap().name(), name);
        }
        assert_eq!(parse_v3(&json!("complex_float32")).unwrap().name(), "complex64");
    }

    #[test]
    fn parameters_are_read_and_checked() {
        let check = |name: &str, configuration: Value| {
            parse_v3(&json!({ "name": name, "configuration": configuration })).map(|d| d.name())
        };
        assert_eq!(
            check("numpy.datetime64", json!({"unit": "ms", "scale_factor": 10})).unwrap(),
            "numpy.datetime64[10ms]"
        );
        assert_eq!(check("fixed_length_utf32", json!({"length_bytes": 16})).unwrap(), "fixed_length_utf32[4]");
        assert_eq!(check("null_terminated_bytes", json!({"length_bytes": 5})).unwrap(), "null_terminated_bytes[5]");
        assert_eq!(check("raw_bytes", json!({"length_bytes": 3})).unwrap(), "r24");
        assert!(check("raw_bytes", json!({"length_bytes": 0})).is_err());
        assert!(check("fixed_length_utf32", json!({"length_bytes": 6})).is_err());
        assert!(check("numpy.timedelta64", json!({"unit": "fortnight"})).is_err());
        assert!(check("numpy.timedelta64", json!({"unit": "s", "scale_factor": 0})).is_err());
    }

    #[test]
    fn unknown_types_are_named() {
        for name in ["float128", "r12", "r0", "int3", "structured", "complex_int8"] {
            let expected = FormatError::Dtype { name: name.into(), hint: String::new() };
            match parse_v3(&json!(name)) {
                Err(FormatError::Dtype { name: got, .. }) => assert_eq!(got, name),
                other => panic!("{name}: {other:?}, not {expected:?}"),
            }
        }
    }
}
