//! Zarr v2 filters and compressor as one chain.

use serde_json::{Value, json};

use super::codecs::{ChainBuilder, Named, check_chunk_size, unsupported};
use super::json::malformed;
use crate::format::FormatError;
use crate::format::codec::{ArrayStage, ChunkCodec, ToBytes};
use crate::model::DType;

const DOCUMENT: &str = ".zarray";

/// How a `.zarray` stores chunks, apart from the codecs.
pub(super) struct Layout<'a> {
    /// The element type.
    pub(super) dtype: DType,
    /// Its words are big-endian.
    pub(super) big_endian: bool,
    /// Elements per axis of a chunk.
    pub(super) chunk_shape: &'a [u64],
    /// Chunks are in Fortran order.
    pub(super) fortran: bool,
}

/// The chain of `filters` (first applied first) and `compressor` (applied last); either may be null.
pub(super) fn parse(layout: Layout<'_>, filters: &Value, compressor: &Value) -> Result<ChunkCodec, FormatError> {
    let Layout { dtype, big_endian, chunk_shape, fortran } = layout;
    check_chunk_size(&dtype, chunk_shape)?;
    let mut chain = ChainBuilder::new(DOCUMENT, dtype, big_endian, chunk_shape);
    if fortran && chunk_shape.len() > 1 {
        chain.push_array("order", ArrayStage::Transpose((0..chunk_shape.len()).rev().collect()))?;
    }
    for value in filter_list(filters)?.iter().chain((!compressor.is_null()).then_some(compressor)) {
        push(&mut chain, value)?;
    }
    if !chain.in_bytes() {
        let to_bytes = ToBytes::Bytes { big_endian: chain.big_endian };
        chain.set_to_bytes("bytes", to_bytes)?;
    }
    chain.build()
}

/// The element type of an `|O` array, as its filters tell it.
pub(super) fn object_dtype(filters: &Value) -> Result<DType, FormatError> {
    for value in filter_list(filters)? {
        match value.get("id").and_then(Value::as_str) {
            Some("vlen-utf8") => return Ok(DType::String),
            Some("vlen-bytes") => return Ok(DType::Bytes),
            Some(_) | None => {}
        }
    }
    let hint = match filter_list(filters)?.first().and_then(|f| f.get("id")).and_then(Value::as_str) {
        Some(id) => format!(": object arrays with the filter `{}`", crate::format::numpy::shown(id)),
        None => ": object arrays need the filter `vlen-utf8` or `vlen-bytes`".into(),
    };
    Err(FormatError::Dtype { name: "|O".into(), hint })
}

/// The codecs as `describe` shows them.
pub(super) fn stored(filters: &Value, compressor: &Value) -> Value {
    json!({ "filters": filters, "compressor": compressor })
}

fn filter_list(filters: &Value) -> Result<&[Value], FormatError> {
    match filters {
        Value::Null => Ok(&[]),
        other => super::codecs::list(DOCUMENT, "filters", other),
    }
}

fn push(chain: &mut ChainBuilder, value: &Value) -> Result<(), FormatError> {
    let Value::Object(configuration) = value else {
        return Err(malformed(DOCUMENT, format!("a codec is {}", super::json::kind(value))));
    };
    let Some(name) = configuration.get("id").and_then(Value::as_str) else {
        return Err(malformed(DOCUMENT, "a codec has no `id`"));
    };
    let codec = Named { stored_name: name, name, configuration, document: DOCUMENT };
    if let Some(stage) = codec.bytes_stage()? {
        if !chain.in_bytes() {
            let to_bytes = ToBytes::Bytes { big_endian: chain.big_endian };
            chain.set_to_bytes(name, to_bytes)?;
        }
        return chain.push_bytes(stage);
    }
    match name {
        "vlen-utf8" | "vlen-bytes" => chain.push_vlen(&codec),
        "pcodec" => chain.push_pcodec(&codec),
        // numcodecs would see raw bytes here, which none of these filters describes.
        _ if chain.in_bytes() => Err(unsupported(name, ": behind a codec that works on bytes")),
        _ if chain.push_numcodecs(&codec)? => Ok(()),
        "pickle" | "json2" | "msgpack2" => Err(unsupported(name, ": objects are never decoded")),
        _ => Err(unsupported(name, "")),
    }
}
