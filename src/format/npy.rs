//! numpy's `.npy` files, versions 1.0, 2.0 and 3.0.
//!
//! The header is a Python dict literal. It is read by a parser of exactly what numpy writes; nothing is evaluated,
//! and pickled objects are never read.

use super::dense::DenseArray;
use super::npy_header::{self, Literal};
use super::numpy::{parse_descr, shown};
use super::{ArrayMeta, FormatError, SourceFormat};

const DOCUMENT: &str = "npy header";

/// Every file's first bytes.
const MAGIC: &[u8] = b"\x93NUMPY";

/// The most bytes of a header. numpy's own are a few hundred; only structured types reach kilobytes.
const HEADER_BYTES_MAX: u64 = 1 << 20;

/// What the start of a file tells.
#[derive(Debug, Clone)]
#[allow(clippy::large_enum_variant, reason = "one value an opened file, moved once")]
pub enum Parsed {
    /// The header is longer: parse again with at least this many bytes, counted from the file's start.
    /// More than were given, and never more than the object has.
    NeedBytes(u64),
    /// The array.
    Array(ArrayMeta),
}

/// Parses the first bytes of a `.npy` object that has `object_len` bytes in all.
///
/// `head` may be any prefix of the object; a few hundred bytes hold most headers.
///
/// # Errors
/// [`FormatError::Malformed`] when it is no `.npy` file, its header is not what numpy writes, or the object is too
/// short for the elements; [`FormatError::Dtype`] for structured, object and other types without a counterpart;
/// [`FormatError::Feature`] for a format version after 3.
pub fn parse(head: &[u8], object_len: u64) -> Result<Parsed, FormatError> {
    let need = |bytes: u64| {
        if bytes > object_len {
            return Err(malformed(format!("the object ends after {object_len} bytes, within the header")));
        }
        Ok(Parsed::NeedBytes(bytes))
    };
    let known = head.len().min(MAGIC.len());
    if head[..known] != MAGIC[..known] {
        return Err(malformed("the object does not start as a `.npy` file".into()));
    }
    let Some(&[major, minor]) = head.get(6..8).and_then(<[u8]>::first_chunk) else { return need(12) };
    let (header_start, header_len) = match major {
        1 => match head.get(8..10).and_then(<[u8]>::first_chunk) {
            Some(len) => (10, u64::from(u16::from_le_bytes(*len))),
            None => return need(10),
        },
        2 | 3 => match head.get(8..12).and_then(<[u8]>::first_chunk) {
            Some(len) => (12, u64::from(u32::from_le_bytes(*len))),
            None => return need(12),
        },
        _ => return Err(FormatError::Feature { feature: format!("npy version {major}.{minor}") }),
    };
    if header_len > HEADER_BYTES_MAX {
        return Err(malformed(format!("a header of {header_len} bytes, more than {HEADER_BYTES_MAX}")));
    }
    let offset = header_start + header_len;
    let Some(header) = usize::try_from(offset).ok().and_then(|end| head.get(header_start as usize..end)) else {
        return need(offset);
    };
    // Versions 1 and 2 are Latin-1, which for the ASCII that numpy writes is UTF-8.
    let text = std::str::from_utf8(header).map_err(|e| malformed(format!("not text: {e}")))?;
    let array = array(text, offset)?;
    let needed = array.len_bytes().and_then(|len| len.checked_add(offset));
    if needed.is_none_or(|needed| needed > object_len) {
        let shape = &array.shape;
        return Err(malformed(format!(
            "the object has {object_len} bytes, too few for shape {shape:?} of `{}` from byte {offset}",
            array.dtype
        )));
    }
    array.meta(DOCUMENT, SourceFormat::Npy).map(Parsed::Array)
}

fn malformed(reason: String) -> FormatError {
    FormatError::Malformed { document: DOCUMENT, reason }
}

fn array(text: &str, offset: u64) -> Result<DenseArray, FormatError> {
    let mut descr = None;
    let mut fortran = None;
    let mut shape = None;
    for (key, value) in npy_header::parse(text).map_err(malformed)? {
        let slot = match key.as_str() {
            "descr" => &mut descr,
            "fortran_order" => &mut fortran,
            "shape" => &mut shape,
            other => return Err(malformed(format!("unknown key `{}`", shown(other)))),
        };
        if slot.replace(value).is_some() {
            return Err(malformed(format!("`{key}` appears twice")));
        }
    }
    let (dtype, big_endian) = match descr {
        Some(Literal::Text(descr)) => parse_descr(&descr)?,
        Some(other @ (Literal::List(_) | Literal::Tuple(_))) => {
            return Err(FormatError::Dtype { name: shown(&other.to_string()), hint: ": it has several fields".into() });
        }
        Some(other) => return Err(malformed(format!("`descr` is {other}"))),
        None => return Err(malformed("`descr` is missing".into())),
    };
    let fortran = match fortran {
        Some(Literal::Bool(fortran)) => fortran,
        Some(other) => return Err(malformed(format!("`fortran_order` is {}", shown(&other.to_string())))),
        None => return Err(malformed("`fortran_order` is missing".into())),
    };
    let Some(Literal::Tuple(axes)) = shape else { return Err(malformed("`shape` is not a tuple".into())) };
    // numpy allows 64 axes since 2.0; other documents here have at most 32.
    if axes.len() > 32 {
        return Err(malformed(format!("{} axes, more than 32", axes.len())));
    }
    let shape = axes
        .iter()
        .map(|axis| match axis {
            Literal::Int(n) if *n < 1 << 63 => Ok(*n),
            other => Err(malformed(format!("`shape` holds {}", shown(&other.to_string())))),
        })
        .collect::<Result<_, _>>()?;
    Ok(DenseArray { shape, dtype, big_endian, fortran, offset })
}

#[cfg(test)]
mod tests;
