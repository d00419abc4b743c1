//! numpy's type strings (`<f4`, `|S5`, `>M8[10ms]`), which `.npy`, Zarr v2 and numcodecs share.

use super::FormatError;
use crate::model::{DType, FloatKind, TimeUnit};

/// The most bytes of one element. Text fields of tables reach a few kilobytes; one fill value an array is held, so
/// a hostile document with many arrays must not multiply gigabytes.
pub(super) const ELEMENT_BYTES_MAX: u32 = 64 * 1024;

/// The type that `descr` names, and whether its words are big-endian.
///
/// # Errors
/// [`FormatError::Dtype`] for types without a counterpart: structured, object, float128, elements of no bytes.
pub(super) fn parse_descr(descr: &str) -> Result<(DType, bool), FormatError> {
    let unsupported = |hint: &str| FormatError::Dtype { name: shown(descr), hint: hint.into() };
    let too_long = || unsupported(&format!(": its elements have more than {ELEMENT_BYTES_MAX} bytes"));
    let (big_endian, kind) = match descr.as_bytes().first() {
        Some(b'>') => (true, &descr[1..]),
        Some(b'<' | b'|' | b'=') => (false, &descr[1..]),
        Some(_) => (false, descr),
        None => return Err(unsupported(": the name is empty")),
    };
    let Some(letter) = kind.chars().next() else { return Err(unsupported("")) };
    let rest = &kind[letter.len_utf8()..];
    let number = || rest.bytes().all(|b| b.is_ascii_digit()).then(|| rest.parse::<u32>().ok()).flatten();
    let dtype = match (letter, rest) {
        ('b', "1") | ('?', "") => DType::Bool,
        ('i', "1") => DType::Int(8),
        ('i', "2") => DType::Int(16),
        ('i', "4") => DType::Int(32),
        ('i', "8") => DType::Int(64),
        ('u', "1") => DType::UInt(8),
        ('u', "2") => DType::UInt(16),
        ('u', "4") => DType::UInt(32),
        ('u', "8") => DType::UInt(64),
        ('f', "2") => DType::Float(FloatKind::F16),
        ('f', "4") => DType::Float(FloatKind::F32),
        ('f', "8") => DType::Float(FloatKind::F64),
        ('c', "8") => DType::Complex(FloatKind::F32),
        ('c', "16") => DType::Complex(FloatKind::F64),
        ('M' | 'm', _) => {
            let (unit, scale) = time_unit(rest).ok_or_else(|| unsupported(": not a unit of time"))?;
            if letter == 'M' { DType::DateTime64 { unit, scale } } else { DType::TimeDelta64 { unit, scale } }
        }
        ('S' | 'a' | 'U' | 'V', _) => match (letter, number()) {
            (_, None) => return Err(unsupported("")),
            (_, Some(0)) => return Err(unsupported(": its elements have no bytes")),
            ('U', Some(n)) if n <= ELEMENT_BYTES_MAX / 4 => DType::FixedUtf32(n),
            ('U', Some(_)) => return Err(too_long()),
            (_, Some(n)) if n > ELEMENT_BYTES_MAX => return Err(too_long()),
            ('V', Some(n)) => DType::RawBits(n),
            (_, Some(n)) => DType::FixedBytes(n),
        },
        ('O', _) => return Err(unsupported(": pickled objects are never read")),
        _ => return Err(unsupported("")),
    };
    Ok((dtype, big_endian))
}

/// `8`, `8[ms]` or `8[10ms]` as unit and scale.
fn time_unit(rest: &str) -> Option<(TimeUnit, u32)> {
    let rest = rest.strip_prefix('8')?;
    if rest.is_empty() {
        return Some((TimeUnit::Generic, 1));
    }
    let inner = rest.strip_prefix('[')?.strip_suffix(']')?;
    let digits = inner.bytes().take_while(u8::is_ascii_digit).count();
    let scale = if digits == 0 { 1 } else { inner[..digits].parse().ok().filter(|&n| n >= 1)? };
    Some((TimeUnit::from_code(&inner[digits..])?, scale))
}

/// A name from a document, cut to a length fit for a message.
pub(super) fn shown(name: &str) -> String {
    match name.char_indices().nth(80) {
        Some((cut, _)) => format!("{}…", &name[..cut]),
        None => name.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn type_strings_of_numpy() {
        let check = |descr: &str, name: &str, big| {
            let (dtype, big_endian) = parse_descr(descr).unwrap();
            assert_eq!((dtype.name().as_str(), big_endian), (name, big), "{descr}");
        };
        check("<u2", "uint16", false);
        check("|b1", "bool", false);
        check(">f8", "float64", true);
        check("<M8[ns]", "numpy.datetime64[ns]", false);
        check(">m8[10us]", "numpy.timedelta64[10us]", true);
        check("<m8", "numpy.timedelta64[generic]", false);
        check("|S5", "null_terminated_bytes[5]", false);
        check("<U4", "fixed_length_utf32[4]", false);
        check("|V3", "r24", false);
    }

    #[test]
    fn types_without_a_counterpart_are_named() {
        for descr in [
            "",
            "<",
            "|O",
            "<f16",
            "|S0",
            "<U0",
            "<U4294967295",
            "|S65537",
            "<U16385",
            "<M8[s/3]",
            "<M8[0s]",
            "<i3",
            "é",
            "<é",
        ] {
            assert!(matches!(parse_descr(descr), Err(FormatError::Dtype { .. })), "{descr}");
        }
    }
}
