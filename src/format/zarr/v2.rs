//! `.zarray`, `.zgroup` and `.zattrs`.

use serde_json::{Map, Value};

use super::json::{chunk_lengths, lengths, malformed, member, object};
use super::{GroupMeta, codecs_v2, dtype, fill};
use crate::format::numpy::shown;
use crate::format::{ArrayMeta, ChunkKeys, FormatError, GridStorage, SourceFormat, Storage};

const DOCUMENT: &str = ".zarray";

/// Parses a `.zarray` and the `.zattrs` beside it, if there is one. xarray's `_ARRAY_DIMENSIONS` names the axes
/// (and stays an attribute); a null fill value is zero.
///
/// # Errors
/// As [`parse_v3`](super::parse_v3); structured and object types are [`FormatError::Dtype`].
pub fn parse_v2_array(zarray: &[u8], zattrs: Option<&[u8]>) -> Result<ArrayMeta, FormatError> {
    array(&object(DOCUMENT, zarray)?, attributes(zattrs)?)
}

/// Parses a `.zgroup` and the `.zattrs` beside it, if there is one.
///
/// # Errors
/// [`FormatError::Malformed`] when a document contradicts the format.
pub fn parse_v2_group(zgroup: &[u8], zattrs: Option<&[u8]>) -> Result<GroupMeta, FormatError> {
    group(&object(".zgroup", zgroup)?, attributes(zattrs)?)
}

fn attributes(zattrs: Option<&[u8]>) -> Result<Map<String, Value>, FormatError> {
    zattrs.map_or_else(|| Ok(Map::new()), |bytes| object(".zattrs", bytes))
}

fn check_version(document: &'static str, map: &Map<String, Value>) -> Result<(), FormatError> {
    match map.get("zarr_format").and_then(Value::as_u64) {
        Some(2) => Ok(()),
        Some(_) | None => Err(malformed(document, "`zarr_format` is not 2")),
    }
}

/// A group from its parsed documents.
pub(super) fn group(zgroup: &Map<String, Value>, attributes: Map<String, Value>) -> Result<GroupMeta, FormatError> {
    check_version(".zgroup", zgroup)?;
    Ok(GroupMeta { attributes, consolidated: None })
}

/// An array from its parsed documents.
pub(super) fn array(map: &Map<String, Value>, attributes: Map<String, Value>) -> Result<ArrayMeta, FormatError> {
    check_version(DOCUMENT, map)?;
    let optional = |key: &str| map.get(key).unwrap_or(&Value::Null);
    let shape = lengths(DOCUMENT, "shape", member(DOCUMENT, map, "shape")?)?;
    let object_shape = chunk_lengths(DOCUMENT, "chunks", member(DOCUMENT, map, "chunks")?, &shape)?;
    let (filters, compressor) = (optional("filters"), optional("compressor"));
    let (dtype, big_endian) = match member(DOCUMENT, map, "dtype")? {
        Value::String(name) if name == "|O" => (codecs_v2::object_dtype(filters)?, false),
        other => dtype::parse_numpy(other)?,
    };
    let fortran = match optional("order") {
        Value::Null => false,
        Value::String(s) if s == "C" => false,
        Value::String(s) if s == "F" => true,
        other => return Err(malformed(DOCUMENT, format!("`order` is {}", shown(&other.to_string())))),
    };
    let separator = match optional("dimension_separator") {
        Value::Null => '.',
        Value::String(s) if s == "." => '.',
        Value::String(s) if s == "/" => '/',
        other => return Err(malformed(DOCUMENT, format!("`dimension_separator` is {}", shown(&other.to_string())))),
    };
    let fill = match optional("fill_value") {
        Value::Null => fill::zero(&dtype),
        value => super::parse_fill_value(&dtype, value)?,
    };
    let layout = codecs_v2::Layout { dtype: dtype.clone(), big_endian, chunk_shape: &object_shape, fortran };
    let codec = codecs_v2::parse(layout, filters, compressor)?;
    let grid = GridStorage::new(object_shape, ChunkKeys::V2 { separator }, Vec::new(), &dtype, &codec);
    Ok(ArrayMeta {
        dims: dimension_names(&attributes, shape.len()),
        attributes,
        stored_codecs: codecs_v2::stored(filters, compressor),
        shape,
        dtype,
        fill,
        format: SourceFormat::ZarrV2,
        storage: Storage::Grid(grid),
        codec,
    })
}

/// The names in `_ARRAY_DIMENSIONS`. The attribute is a convention, so one that does not fit names nothing.
fn dimension_names(attributes: &Map<String, Value>, rank: usize) -> Vec<Option<String>> {
    match attributes.get("_ARRAY_DIMENSIONS") {
        Some(Value::Array(list)) if list.len() == rank => {
            list.iter().map(|name| name.as_str().map(str::to_owned)).collect()
        }
        Some(_) | None => vec![None; rank],
    }
}
