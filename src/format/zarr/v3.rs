//! `zarr.json`.

use serde_json::{Map, Value};

use super::group::consolidated_v3;
use super::json::{attributes, chunk_lengths, lengths, malformed, member, object};
use super::{GroupMeta, Node, codecs_v3, dtype, parse_fill_value};
use crate::format::numpy::shown;
use crate::format::{ArrayMeta, ChunkKeys, FormatError, GridStorage, SourceFormat, Storage};

const DOCUMENT: &str = "zarr.json";

/// Fields of an array document that we know. Others must be marked as ignorable.
const ARRAY_FIELDS: &[&str] = &[
    "zarr_format",
    "node_type",
    "shape",
    "data_type",
    "chunk_grid",
    "chunk_key_encoding",
    "fill_value",
    "codecs",
    "attributes",
    "storage_transformers",
    "dimension_names",
];

/// Parses a `zarr.json`.
///
/// # Errors
/// [`FormatError::Malformed`] when the document contradicts the format, [`FormatError::Codec`] and
/// [`FormatError::Dtype`] for a codec or element type that is not supported, [`FormatError::Feature`] for another
/// chunk grid, storage transformers, or an extension that must be understood.
///
/// # Example
/// ```
/// use wicker4dx::format::zarr::{Node, parse_v3};
/// let document = br#"{"zarr_format": 3, "node_type": "array", "shape": [100, 4], "data_type": "uint8",
///     "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [10, 4]}},
///     "chunk_key_encoding": {"name": "default"}, "fill_value": 0,
///     "codecs": ["bytes", {"name": "zstd", "configuration": {"level": 3}}]}"#;
/// let Node::Array(array) = parse_v3(document)? else { panic!("a group") };
/// assert_eq!(array.chunk_shape(), [10, 4]);
/// # Ok::<(), wicker4dx::format::FormatError>(())
/// ```
pub fn parse_v3(bytes: &[u8]) -> Result<Node, FormatError> {
    parse_map(object(DOCUMENT, bytes)?)
}

/// Parses the document once it is JSON.
pub(super) fn parse_map(mut map: Map<String, Value>) -> Result<Node, FormatError> {
    if map.get("zarr_format").and_then(Value::as_u64) != Some(3) {
        return Err(malformed(DOCUMENT, "`zarr_format` is not 3"));
    }
    match map.get("node_type").and_then(Value::as_str) {
        Some("array") => array(map).map(|array| Node::Array(Box::new(array))),
        Some("group") => {
            let consolidated = map.remove("consolidated_metadata").and_then(consolidated_v3);
            let attributes = attributes(DOCUMENT, map.remove("attributes"))?;
            Ok(Node::Group(GroupMeta { attributes, consolidated }))
        }
        Some(other) => Err(malformed(DOCUMENT, format!("`node_type` is `{}`", shown(other)))),
        None => Err(malformed(DOCUMENT, "`node_type` is missing")),
    }
}

fn array(mut map: Map<String, Value>) -> Result<ArrayMeta, FormatError> {
    for (key, value) in &map {
        let ignorable = value.is_null() || value.get("must_understand") == Some(&Value::Bool(false));
        if !ARRAY_FIELDS.contains(&key.as_str()) && !ignorable {
            return Err(FormatError::Feature { feature: format!("the array metadata field `{}`", shown(key)) });
        }
    }
    if let Some(Value::Array(list)) = map.get("storage_transformers")
        && let Some(first) = list.first()
    {
        let name = first.get("name").or(Some(first)).and_then(Value::as_str).unwrap_or("?");
        return Err(FormatError::Feature { feature: format!("storage transformer `{}`", shown(name)) });
    }
    let shape = lengths(DOCUMENT, "shape", member(DOCUMENT, &map, "shape")?)?;
    let dtype = dtype::parse_v3(member(DOCUMENT, &map, "data_type")?)?;
    let object_shape = chunk_grid(member(DOCUMENT, &map, "chunk_grid")?, &shape)?;
    let keys = chunk_keys(member(DOCUMENT, &map, "chunk_key_encoding")?)?;
    let fill = parse_fill_value(&dtype, member(DOCUMENT, &map, "fill_value")?)?;
    let (shards, codec) = codecs_v3::parse(member(DOCUMENT, &map, "codecs")?, &dtype, &object_shape, &fill)?;
    let dims = dimension_names(map.get("dimension_names"), shape.len())?;
    let grid = GridStorage::new(object_shape, keys, shards, &dtype, &codec);
    Ok(ArrayMeta {
        dims,
        attributes: attributes(DOCUMENT, map.remove("attributes"))?,
        stored_codecs: map.remove("codecs").unwrap_or_default(),
        shape,
        dtype,
        fill,
        format: SourceFormat::ZarrV3,
        storage: Storage::Grid(grid),
        codec,
    })
}

/// A name, and its configuration where there is one.
type Extension<'a> = (&'a str, Option<&'a Map<String, Value>>);

/// The name of an extension point and its configuration; a bare string is a name.
fn extension<'a>(key: &str, value: &'a Value) -> Result<Extension<'a>, FormatError> {
    match value {
        Value::String(name) => Ok((name, None)),
        Value::Object(map) => match map.get("name") {
            Some(Value::String(name)) => Ok((name, map.get("configuration").and_then(Value::as_object))),
            Some(_) | None => Err(malformed(DOCUMENT, format!("`{key}` has no name"))),
        },
        other => Err(malformed(DOCUMENT, format!("`{key}` is {}", super::json::kind(other)))),
    }
}

fn chunk_grid(value: &Value, shape: &[u64]) -> Result<Vec<u64>, FormatError> {
    let (name, configuration) = extension("chunk_grid", value)?;
    if name != "regular" {
        return Err(FormatError::Feature { feature: format!("chunk grid `{}`", shown(name)) });
    }
    let chunk_shape = configuration
        .and_then(|c| c.get("chunk_shape"))
        .ok_or_else(|| malformed(DOCUMENT, "`chunk_grid` has no `chunk_shape`"))?;
    chunk_lengths(DOCUMENT, "chunk_shape", chunk_shape, shape)
}

fn chunk_keys(value: &Value) -> Result<ChunkKeys, FormatError> {
    let (name, configuration) = extension("chunk_key_encoding", value)?;
    let separator = match configuration.and_then(|c| c.get("separator")) {
        None | Some(Value::Null) => None,
        Some(Value::String(s)) if s == "/" => Some('/'),
        Some(Value::String(s)) if s == "." => Some('.'),
        Some(other) => return Err(malformed(DOCUMENT, format!("`separator` is {}", shown(&other.to_string())))),
    };
    match name {
        "default" => Ok(ChunkKeys::Default { separator: separator.unwrap_or('/') }),
        "v2" => Ok(ChunkKeys::V2 { separator: separator.unwrap_or('.') }),
        other => Err(FormatError::Feature { feature: format!("chunk key encoding `{}`", shown(other)) }),
    }
}

fn dimension_names(value: Option<&Value>, rank: usize) -> Result<Vec<Option<String>>, FormatError> {
    let list = match value {
        None | Some(Value::Null) => return Ok(vec![None; rank]),
        Some(Value::Array(list)) => list,
        Some(other) => {
            return Err(malformed(DOCUMENT, format!("`dimension_names` is {}", super::json::kind(other))));
        }
    };
    if list.len() != rank {
        return Err(malformed(DOCUMENT, format!("{} `dimension_names` for {rank} axes", list.len())));
    }
    list.iter()
        .map(|name| match name {
            Value::Null => Ok(None),
            Value::String(name) => Ok(Some(name.clone())),
            other => Err(malformed(DOCUMENT, format!("a dimension name is {}", super::json::kind(other)))),
        })
        .collect()
}
