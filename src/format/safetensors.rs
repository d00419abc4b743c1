//! `.safetensors` files: a length, a JSON header, and the tensors' bytes without gaps.

use std::collections::BTreeMap;

use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer};

use super::dense::DenseArray;
use super::numpy::shown;
use super::{ArrayMeta, FormatError, SourceFormat};
use crate::model::{DType, FloatKind, shape};

const DOCUMENT: &str = "safetensors header";

/// The most bytes of a header: the limit of the reference implementation.
const HEADER_BYTES_MAX: u64 = 100_000_000;

/// The most axes, as for the other formats.
const RANK_MAX: usize = 32;

/// The most tensors of one file. The largest models have some 100,000 over all their files; a header of empty
/// tensors would otherwise grow tenfold in memory.
const TENSORS_MAX: usize = 1 << 18;

/// The prefix under which `__metadata__` holds a tensor's dimension names as a JSON list: a convention of ours,
/// written by `wire`.
const DIMS_PREFIX: &str = "w4dx.dims.";

/// What the start of a file tells.
#[derive(Debug, Clone)]
pub enum Parsed {
    /// The header is longer: parse again with at least this many bytes, counted from the file's start.
    /// More than were given, and never more than the object has.
    NeedBytes(u64),
    /// The tensors.
    File(SafetensorsFile),
}

/// What a file holds.
#[derive(Debug, Clone)]
pub struct SafetensorsFile {
    /// The tensors by name. One whose type we lack does not stop the others.
    pub tensors: BTreeMap<String, Result<ArrayMeta, FormatError>>,
    /// The file's own `__metadata__`.
    pub metadata: BTreeMap<String, String>,
}

/// Parses the first bytes of a `.safetensors` object that has `object_len` bytes in all.
///
/// `head` may be any prefix of the object. A tensor gets dimension names where the metadata's key `w4dx.dims.NAME`
/// holds a JSON list of them; the metadata itself stays with the file.
///
/// # Errors
/// [`FormatError::Malformed`] when the header is no such header, or the tensors overlap, leave gaps, do not fill the
/// object, or disagree with their types and shapes.
pub fn parse(head: &[u8], object_len: u64) -> Result<Parsed, FormatError> {
    let need = |bytes: u64| {
        if bytes > object_len {
            return Err(malformed(format!("the object ends after {object_len} bytes, within the header")));
        }
        Ok(Parsed::NeedBytes(bytes))
    };
    let Some(header_len) = head.first_chunk::<8>().map(|len| u64::from_le_bytes(*len)) else { return need(8) };
    if header_len > HEADER_BYTES_MAX {
        return Err(malformed(format!("a header of {header_len} bytes, more than {HEADER_BYTES_MAX}")));
    }
    let data_start = 8 + header_len;
    let Some(header) = head.get(8..data_start as usize) else { return need(data_start) };
    let header: Header = serde_json::from_slice(header).map_err(|e| malformed(format!("not a header: {e}")))?;
    check_coverage(&header.tensors, object_len.saturating_sub(data_start))?;
    let tensors = header.tensors.into_iter().map(|(name, entry)| {
        let dims = header.metadata.get(&format!("{DIMS_PREFIX}{name}")).map(String::as_str);
        let meta =
            tensor(&entry, data_start).map(|meta| ArrayMeta { dims: dimension_names(dims, meta.shape.len()), ..meta });
        (name, meta)
    });
    let tensors = tensors.collect();
    Ok(Parsed::File(SafetensorsFile { tensors, metadata: header.metadata }))
}

fn malformed(reason: String) -> FormatError {
    FormatError::Malformed { document: DOCUMENT, reason }
}

/// One tensor's entry.
#[derive(Deserialize)]
struct Entry {
    dtype: String,
    shape: Vec<u64>,
    data_offsets: (u64, u64),
}

#[derive(Default)]
struct Header {
    metadata: BTreeMap<String, String>,
    tensors: BTreeMap<String, Entry>,
}

impl<'de> Deserialize<'de> for Header {
    /// By hand, so that a name that appears twice is an error: which of two tensors is meant cannot be told.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Entries;
        impl<'de> Visitor<'de> for Entries {
            type Value = Header;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("an object of tensors")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Header, A::Error> {
                let mut header = Header::default();
                while let Some(name) = map.next_key::<String>()? {
                    if name == "__metadata__" {
                        header.metadata = map.next_value::<Option<_>>()?.unwrap_or_default();
                    } else {
                        let entry = map.next_value()?;
                        if header.tensors.contains_key(&name) {
                            let name = shown(&name);
                            return Err(serde::de::Error::custom(format_args!("tensor `{name}` appears twice")));
                        }
                        if header.tensors.len() == TENSORS_MAX {
                            return Err(serde::de::Error::custom(format_args!("more than {TENSORS_MAX} tensors")));
                        }
                        header.tensors.insert(name, entry);
                    }
                }
                Ok(header)
            }
        }
        deserializer.deserialize_map(Entries)
    }
}

/// The format has no gaps and no overlaps, and nothing after the last tensor: a file that has them was cut or forged.
fn check_coverage(tensors: &BTreeMap<String, Entry>, data_len: u64) -> Result<(), FormatError> {
    let mut ranges: Vec<(u64, u64, &str)> =
        tensors.iter().map(|(name, entry)| (entry.data_offsets.0, entry.data_offsets.1, name.as_str())).collect();
    ranges.sort_unstable();
    let mut at = 0;
    for (start, end, name) in ranges {
        if start != at || end < start {
            return Err(malformed(format!("tensor `{}` lies at {start}..{end}, expected from {at}", shown(name))));
        }
        at = end;
    }
    if at != data_len {
        return Err(malformed(format!("the tensors take {at} bytes, the object has {data_len} for them")));
    }
    Ok(())
}

fn tensor(entry: &Entry, data_start: u64) -> Result<ArrayMeta, FormatError> {
    let dtype =
        dtype(&entry.dtype).ok_or_else(|| FormatError::Dtype { name: shown(&entry.dtype), hint: String::new() })?;
    if entry.shape.len() > RANK_MAX || entry.shape.iter().any(|&n| n >= 1 << 63) {
        return Err(malformed(format!("a shape of {} axes, or with one of 2^63 or more", entry.shape.len())));
    }
    let (start, end) = entry.data_offsets;
    let len = dtype.size_bytes().and_then(|size| shape::bytes(&entry.shape, size));
    if len != Some(end - start) {
        let reason = format!("shape {:?} of {} does not take {} bytes", entry.shape, entry.dtype, end - start);
        return Err(malformed(reason));
    }
    DenseArray { shape: entry.shape.clone(), dtype, big_endian: false, fortran: false, offset: data_start + start }
        .meta(DOCUMENT, SourceFormat::Safetensors)
}

/// The type with a name of the format. Types that pack several elements into a byte (F4, F6) are not among ours.
fn dtype(name: &str) -> Option<DType> {
    Some(match name {
        "BOOL" => DType::Bool,
        "I8" => DType::Int(8),
        "I16" => DType::Int(16),
        "I32" => DType::Int(32),
        "I64" => DType::Int(64),
        "U8" => DType::UInt(8),
        "U16" => DType::UInt(16),
        "U32" => DType::UInt(32),
        "U64" => DType::UInt(64),
        "F16" => DType::Float(FloatKind::F16),
        "BF16" => DType::Float(FloatKind::BF16),
        "F32" => DType::Float(FloatKind::F32),
        "F64" => DType::Float(FloatKind::F64),
        "F8_E4M3" => DType::Float(FloatKind::Small("float8_e4m3fn")),
        "F8_E5M2" => DType::Float(FloatKind::Small("float8_e5m2")),
        "F8_E8M0" => DType::Float(FloatKind::Small("float8_e8m0fnu")),
        "C64" => DType::Complex(FloatKind::F32),
        _ => return None,
    })
}

/// The names in a JSON list, where it fits the rank; a convention that does not fit names nothing.
fn dimension_names(list: Option<&str>, rank: usize) -> Vec<Option<String>> {
    list.and_then(|list| serde_json::from_str::<Vec<Option<String>>>(list).ok())
        .filter(|names| names.len() == rank)
        .unwrap_or_else(|| vec![None; rank])
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn file(header: &str, data: usize) -> Vec<u8> {
        let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
        bytes.extend_from_slice(header.as_bytes());
        bytes.resize(bytes.len() + data, 7);
        bytes
    }

    fn parsed(bytes: &[u8]) -> Result<SafetensorsFile, FormatError> {
        match parse(bytes, bytes.len() as u64)? {
            Parsed::File(file) => Ok(file),
            Parsed::NeedBytes(n) => panic!("{n} bytes wanted of {}", bytes.len()),
        }
    }

    const TWO: &str = r#"{"__metadata__":{"format":"pt","w4dx.dims.a":"[\"y\",null]"},
        "a":{"dtype":"F32","shape":[2,3],"data_offsets":[4,28]},"b":{"dtype":"BF16","shape":[2],"data_offsets":[0,4]}}"#;

    #[test]
    fn tensors_are_dense_arrays_in_the_file() {
        let file = parsed(&file(TWO, 28)).unwrap();
        let a = file.tensors["a"].as_ref().unwrap();
        assert_eq!((a.shape.as_slice(), a.dtype.name().as_str()), (&[2, 3][..], "float32"));
        assert_eq!(a.dims, [Some("y".into()), None]);
        assert!(a.codec.is_raw());
        let super::super::Storage::Dense { offset, .. } = a.storage else { panic!("dense") };
        assert_eq!(offset, 8 + TWO.len() as u64 + 4);
        assert_eq!(file.metadata["format"], "pt");
    }

    #[test]
    fn a_prefix_says_how_much_is_missing() {
        let bytes = file(TWO, 28);
        let header_end = 8 + TWO.len();
        for cut in 0..header_end {
            let Parsed::NeedBytes(n) = parse(&bytes[..cut], bytes.len() as u64).unwrap() else { panic!("at {cut}") };
            assert_eq!(n, if cut < 8 { 8 } else { header_end as u64 });
            assert!(parse(&bytes[..cut], cut as u64).is_err(), "an object of {cut} bytes");
        }
        assert!(matches!(parse(&bytes[..header_end], bytes.len() as u64), Ok(Parsed::File(_))));
    }

    #[test]
    fn an_unknown_type_does_not_stop_the_others() {
        let header = r#"{"x":{"dtype":"F4","shape":[2],"data_offsets":[0,1]},"y":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}}"#;
        let file = parsed(&file(header, 2)).unwrap();
        assert!(matches!(&file.tensors["x"], Err(FormatError::Dtype { name, .. }) if name == "F4"));
        assert!(file.tensors["y"].is_ok());
    }

    #[test]
    fn offsets_must_tile_the_data() {
        let check = |a: &str, b: &str, data: usize, good: bool| {
            let header = format!(
                r#"{{"a":{{"dtype":"U8","shape":[2],"data_offsets":{a}}},"b":{{"dtype":"U8","shape":[2],"data_offsets":{b}}}}}"#
            );
            assert_eq!(parsed(&file(&header, data)).is_ok(), good, "{a} {b} {data}");
        };
        check("[0,2]", "[2,4]", 4, true);
        check("[2,4]", "[0,2]", 4, true);
        check("[0,2]", "[3,5]", 5, false);
        check("[0,2]", "[1,3]", 3, false);
        check("[1,3]", "[3,5]", 5, false);
        check("[0,2]", "[2,4]", 3, false);
        check("[0,2]", "[2,4]", 5, false);
        check("[0,2]", "[4,2]", 4, false);
        let header = r#"{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"a":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}}"#;
        assert!(parsed(&file(header, 2)).is_err(), "a name twice");
    }

    #[test]
    fn a_shape_that_contradicts_its_bytes_is_that_tensors_error() {
        let header = r#"{"a":{"dtype":"F32","shape":[9223372036854775807,9],"data_offsets":[0,4]}}"#;
        assert!(parsed(&file(header, 4)).unwrap().tensors["a"].is_err());
    }

    #[test]
    fn headers_past_the_limit_are_refused_before_they_are_read() {
        let mut bytes = u64::MAX.to_le_bytes().to_vec();
        bytes.extend_from_slice(b"{}");
        assert!(parse(&bytes, u64::MAX).is_err());
    }

    proptest! {
        #[test]
        fn broken_files_never_panic(flips in prop::collection::vec((0_usize..400, any::<u8>()), 0..6), cut in 0_usize..400) {
            let mut bytes = file(TWO, 28);
            for (at, value) in flips {
                let len = bytes.len();
                bytes[at % len] ^= value;
            }
            bytes.truncate(cut.max(1));
            let _ = parse(&bytes, bytes.len() as u64);
            let _ = parse(&bytes, 400);
        }
    }
}
