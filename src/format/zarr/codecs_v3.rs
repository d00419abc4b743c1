//! Zarr v3 codec chains: shards first, then the chain of the innermost chunks.

use std::sync::LazyLock;

use serde_json::{Map, Value};

use super::codecs::{
    ChainBuilder, Named, big_endian, check_chunk_size, list, packs_bits, reshape, transpose, unsupported,
};
use super::json::{chunk_lengths, malformed, member};
use crate::format::codec::{ArrayStage, ChunkCodec, ShardCodec, ToBytes, ZarrsChain};
use crate::format::numpy::shown;
use crate::format::{FormatError, IndexLocation, ShardIndexFormat, ShardLevel};
use crate::model::{DType, shape};

const DOCUMENT: &str = "zarr.json";

/// The most sharding levels, in codecs within codecs too. Two are rare.
const SHARD_LEVELS_MAX: usize = 8;

/// The most bytes of the index of a shard that is read in parts: 64 Gi inner chunks, in a part of what S3 takes as one
/// object. How much of it is read at once is limited by who reads it.
const PARTIAL_INDEX_BYTES_MAX: u64 = 1 << 40;

/// The most bytes of the index of a shard that is decoded whole: 16 Mi inner chunks.
const INDEX_BYTES_MAX: u64 = 256 << 20;

static NO_CONFIGURATION: LazyLock<Map<String, Value>> = LazyLock::new(Map::new);

/// Sharding levels, outermost first, and the chain of the innermost chunks.
pub(super) fn parse(
    codecs: &Value,
    dtype: &DType,
    object_shape: &[u64],
    fill: &[u8],
) -> Result<(Vec<ShardLevel>, ChunkCodec), FormatError> {
    let mut codecs = list(DOCUMENT, "codecs", codecs)?;
    let mut shards: Vec<ShardLevel> = Vec::new();
    let mut chunk_shape = object_shape.to_vec();
    // A shard can be read in parts only when nothing else works on it.
    while let [only] = codecs {
        let codec = named(only)?;
        if codec.name != "sharding_indexed" {
            break;
        }
        if shards.len() == SHARD_LEVELS_MAX {
            return Err(FormatError::Feature { feature: format!("sharding on more than {SHARD_LEVELS_MAX} levels") });
        }
        let (level, inner) = parse_shard(&codec, &chunk_shape, PARTIAL_INDEX_BYTES_MAX)?;
        chunk_shape.clone_from(&level.inner_shape);
        shards.push(level);
        codecs = inner;
    }
    let codec = chain(codecs, dtype, &chunk_shape, fill, shards.len())?;
    Ok((shards, codec))
}

/// A codec's name and configuration; a bare string is a name.
fn named(value: &Value) -> Result<Named<'_>, FormatError> {
    let (name, configuration) = match value {
        Value::String(name) => (name.as_str(), None),
        Value::Object(map) => {
            let name = map.get("name").and_then(Value::as_str);
            (name.ok_or_else(|| malformed(DOCUMENT, "a codec has no name"))?, map.get("configuration"))
        }
        other => return Err(malformed(DOCUMENT, format!("a codec is {}", super::json::kind(other)))),
    };
    let configuration = match configuration {
        None | Some(Value::Null) => &*NO_CONFIGURATION,
        Some(Value::Object(map)) => map,
        Some(_) => return Err(malformed(DOCUMENT, format!("codec `{}`: its configuration is no object", shown(name)))),
    };
    let short = name.strip_prefix("numcodecs.").unwrap_or(name);
    Ok(Named { stored_name: name, name: short, configuration, document: DOCUMENT })
}

/// A sharding level of chunks of `outer_shape`, and its inner codecs.
fn parse_shard<'a>(
    codec: &Named<'a>,
    outer_shape: &[u64],
    most_index_bytes: u64,
) -> Result<(ShardLevel, &'a [Value]), FormatError> {
    let inner_shape =
        chunk_lengths(DOCUMENT, "chunk_shape", member(DOCUMENT, codec.configuration, "chunk_shape")?, outer_shape)?;
    if outer_shape.iter().zip(&inner_shape).any(|(outer, inner)| !outer.is_multiple_of(*inner)) {
        let reason = format!("inner chunks of shape {inner_shape:?} do not divide shards of shape {outer_shape:?}");
        return Err(malformed(DOCUMENT, reason));
    }
    let location = match codec.configuration.get("index_location").unwrap_or(&Value::Null) {
        Value::Null => IndexLocation::End,
        Value::String(s) if s == "end" => IndexLocation::End,
        Value::String(s) if s == "start" => IndexLocation::Start,
        other => return Err(malformed(DOCUMENT, format!("`index_location` is {}", shown(&other.to_string())))),
    };
    let index = index_format(list(DOCUMENT, "index_codecs", member(DOCUMENT, codec.configuration, "index_codecs")?)?)?;
    let grid: Vec<u64> = outer_shape.iter().zip(&inner_shape).map(|(outer, inner)| outer / inner).collect();
    let index_bytes = shape::elements(&grid).and_then(|n| index.len_bytes(n));
    if index_bytes.is_none_or(|n| n > most_index_bytes) {
        return Err(FormatError::Feature {
            feature: format!("a shard of {grid:?} inner chunks (an index of more than {most_index_bytes} bytes)"),
        });
    }
    let inner = list(DOCUMENT, "codecs", member(DOCUMENT, codec.configuration, "codecs")?)?;
    Ok((ShardLevel { inner_shape, index, location }, inner))
}

/// The stored form of an index. Its length must be known, so compressors cannot be there.
fn index_format(codecs: &[Value]) -> Result<ShardIndexFormat, FormatError> {
    let Some((first, rest)) = codecs.split_first() else {
        return Err(malformed(DOCUMENT, "`index_codecs` is empty"));
    };
    let first = named(first)?;
    if !matches!(first.name, "bytes" | "endian") {
        return Err(unsupported(first.stored_name, ": not in a shard index"));
    }
    let big_endian = big_endian(&first, &DType::UInt(64))?;
    let crc32c = match rest {
        [] => false,
        [only] => {
            let codec = named(only)?;
            let at_start = codec.configuration.get("location").is_some_and(|l| l == "start");
            if codec.name != "crc32c" || at_start {
                return Err(unsupported(codec.stored_name, ": not in a shard index"));
            }
            true
        }
        [_, second, ..] => return Err(unsupported(named(second)?.stored_name, ": not in a shard index")),
    };
    Ok(ShardIndexFormat { big_endian, crc32c })
}

/// The chain of chunks of `chunk_shape`; `depth` counts the sharding levels around it.
fn chain(
    codecs: &[Value],
    dtype: &DType,
    chunk_shape: &[u64],
    fill: &[u8],
    depth: usize,
) -> Result<ChunkCodec, FormatError> {
    check_chunk_size(dtype, chunk_shape)?;
    let mut chain = ChainBuilder::new(DOCUMENT, dtype.clone(), false, chunk_shape);
    // The chunk's shape where array → array codecs have changed it.
    let mut current_shape = chunk_shape.to_vec();
    for value in codecs {
        let codec = named(value)?;
        let name = codec.stored_name;
        if let Some(stage) = codec.bytes_stage()? {
            if !chain.in_bytes() {
                return Err(malformed(
                    DOCUMENT,
                    format!("codec `{name}` works on bytes, but stands before the codec that makes them"),
                ));
            }
            chain.push_bytes(stage)?;
            continue;
        }
        match name {
            "bytes" | "endian" => {
                let big_endian = big_endian(&codec, &chain.current)?;
                chain.set_to_bytes(name, ToBytes::Bytes { big_endian })?;
            }
            "transpose" => {
                push_shaping(&mut chain, name, transpose(&codec, current_shape.len())?, &mut current_shape)?;
            }
            "squeeze" | "zarrs.squeeze" => {
                push_shaping(&mut chain, name, ArrayStage::Squeeze, &mut current_shape)?;
            }
            "reshape" => {
                push_shaping(&mut chain, name, reshape(&codec)?, &mut current_shape)?;
            }
            "vlen-utf8" | "vlen-bytes" | "numcodecs.vlen-utf8" | "numcodecs.vlen-bytes" => chain.push_vlen(&codec)?,
            "pcodec" | "numcodecs.pcodec" => chain.push_pcodec(&codec)?,
            "sharding_indexed" => {
                if depth == SHARD_LEVELS_MAX {
                    let feature = format!("sharding on more than {SHARD_LEVELS_MAX} levels");
                    return Err(FormatError::Feature { feature });
                }
                if chain.changes_elements() {
                    return Err(unsupported(name, ": not behind codecs that change elements"));
                }
                let (level, inner) = parse_shard(&codec, &current_shape, INDEX_BYTES_MAX)?;
                let inner = self::chain(inner, &chain.current, &level.inner_shape, fill, depth + 1)?;
                let shard = ShardCodec { level, inner, fill: fill.to_vec() };
                chain.set_to_bytes(name, ToBytes::Shard(Box::new(shard)))?;
            }
            "packbits" => {
                if !packs_bits(&chain.current) {
                    return Err(unsupported(name, format!(": not on elements of `{}`", chain.current)));
                }
                let zarrs = ZarrsChain::new(value, &chain.current).map_err(|e| unsupported(name, format!(": {e}")))?;
                chain.set_to_bytes(name, ToBytes::Zarrs(zarrs))?;
            }
            "zarrs.vlen" => {
                // zarrs would allocate what a compressor inside claims.
                for key in ["index_codecs", "data_codecs"] {
                    let inner = list(DOCUMENT, key, member(DOCUMENT, codec.configuration, key)?)?;
                    for value in inner {
                        let inner = named(value)?;
                        if !matches!(inner.name, "bytes" | "crc32c") {
                            return Err(unsupported(inner.stored_name, format!(": not inside `{name}`")));
                        }
                    }
                }
                let zarrs = ZarrsChain::new(value, &chain.current).map_err(|e| unsupported(name, format!(": {e}")))?;
                chain.set_to_bytes(name, ToBytes::Zarrs(zarrs))?;
            }
            _ if chain.push_numcodecs(&codec)? => {}
            _ if value.get("must_understand") == Some(&Value::Bool(false)) => {}
            _ => return Err(unsupported(name, "")),
        }
    }
    chain.build()
}

/// Adds a stage that changes the shape, and changes `shape` likewise.
fn push_shaping(
    chain: &mut ChainBuilder,
    name: &str,
    stage: ArrayStage,
    shape: &mut Vec<u64>,
) -> Result<(), FormatError> {
    let decoded = crate::format::codec::Repr { shape: std::mem::take(shape), dtype: chain.current.clone() };
    let encoded = stage.encoded(&decoded).map_err(|e| malformed(DOCUMENT, e.to_string()))?;
    *shape = encoded.shape;
    chain.push_array(name, stage)
}
