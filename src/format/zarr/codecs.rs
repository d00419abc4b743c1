//! What Zarr v2 and v3 share about codecs: names, configurations, and the growing chain.

use serde_json::{Map, Value};

use super::dtype::parse_numpy;
use super::json::{kind, malformed};
use crate::format::FormatError;
use crate::format::codec::{
    Algorithm, ArrayStage, BytesStage, ChunkCodec, Place, ReshapedAxis, ToBytes, is_number, pcodec_holds,
};
use crate::format::numpy::shown;
use crate::model::{DType, FloatKind, shape};

/// The most bytes of one decoded chunk. Larger ones would not fit beside each other in any budget.
const CHUNK_BYTES_MAX: u64 = 2 << 30;

/// The most elements of one chunk whose elements vary in length: 16 bytes each are held beside the values.
const VARIABLE_ELEMENTS_MAX: u64 = CHUNK_BYTES_MAX / 16;

/// The most codecs of one chain. Real chains have five.
const STAGES_MAX: usize = 32;

/// A codec is not supported.
pub(super) fn unsupported(name: &str, hint: impl Into<String>) -> FormatError {
    FormatError::Codec { name: shown(name), hint: hint.into() }
}

/// Checks that a chunk of `chunk_shape` elements is small enough to decode.
pub(super) fn check_chunk_size(dtype: &DType, chunk_shape: &[u64]) -> Result<(), FormatError> {
    let too_large = |size: String, limit: u64| FormatError::Feature {
        feature: format!("a chunk of shape {chunk_shape:?} with {size} (the most is {limit})"),
    };
    let counted = |n: Option<u64>, unit: &str| n.map_or(format!("2^64 {unit} or more"), |n| format!("{n} {unit}"));
    match dtype.size_bytes() {
        Some(size) => {
            let bytes = shape::bytes(chunk_shape, size);
            let fits = bytes.is_some_and(|n| n <= CHUNK_BYTES_MAX);
            fits.then_some(()).ok_or_else(|| too_large(counted(bytes, "bytes"), CHUNK_BYTES_MAX))
        }
        None => {
            let elements = shape::elements(chunk_shape);
            let fits = elements.is_some_and(|n| n <= VARIABLE_ELEMENTS_MAX);
            fits.then_some(()).ok_or_else(|| too_large(counted(elements, "elements"), VARIABLE_ELEMENTS_MAX))
        }
    }
}

/// A codec's name and configuration.
pub(super) struct Named<'a> {
    /// The name as stored.
    pub(super) stored_name: &'a str,
    /// The name without numcodecs' prefix.
    pub(super) name: &'a str,
    /// The configuration: v3 `configuration`, v2 the object itself.
    pub(super) configuration: &'a Map<String, Value>,
    /// Which document, for messages.
    pub(super) document: &'static str,
}

impl Named<'_> {
    fn malformed(&self, reason: impl std::fmt::Display) -> FormatError {
        malformed(self.document, format!("codec `{}`: {reason}", shown(self.stored_name)))
    }

    /// A configured type, or `None` when the key is absent or null.
    fn dtype(&self, key: &str) -> Result<Option<(DType, bool)>, FormatError> {
        match self.configuration.get(key) {
            None | Some(Value::Null) => Ok(None),
            Some(value) => parse_numpy(value).map(Some),
        }
    }

    fn number(&self, key: &str) -> Result<f64, FormatError> {
        self.configuration
            .get(key)
            .and_then(Value::as_f64)
            .ok_or_else(|| self.malformed(format_args!("`{key}` is not a number")))
    }

    fn place(&self, default: Place) -> Result<Place, FormatError> {
        match self.configuration.get("location") {
            None | Some(Value::Null) => Ok(default),
            Some(Value::String(s)) if s == "start" => Ok(Place::Start),
            Some(Value::String(s)) if s == "end" => Ok(Place::End),
            Some(other) => Err(self.malformed(format_args!("`location` is {}", shown(&other.to_string())))),
        }
    }

    /// The bytes → bytes stage of this name, or `None` when it is no such codec.
    pub(super) fn bytes_stage(&self) -> Result<Option<BytesStage>, FormatError> {
        let checksum = |algorithm, default| Ok(BytesStage::Checksum { algorithm, place: self.place(default)? });
        Ok(Some(match self.name {
            "zstd" => BytesStage::Zstd,
            "gzip" => BytesStage::Gzip,
            "zlib" => BytesStage::Zlib,
            "bz2" => BytesStage::Bz2,
            "lz4" => BytesStage::Lz4,
            "blosc" => BytesStage::Blosc,
            "shuffle" => {
                let size = match self.configuration.get("elementsize") {
                    None => 4,
                    Some(n) => n
                        .as_u64()
                        .filter(|&n| n <= 1 << 16)
                        .ok_or_else(|| self.malformed(format_args!("`elementsize` is {n}")))?,
                };
                BytesStage::Shuffle { size: size as usize }
            }
            // numcodecs puts the two checksums of zlib in front and the others behind.
            "crc32" => checksum(Algorithm::Crc32, Place::Start)?,
            "adler32" => checksum(Algorithm::Adler32, Place::Start)?,
            "crc32c" => checksum(Algorithm::Crc32c, Place::End)?,
            "fletcher32" => BytesStage::Checksum { algorithm: Algorithm::Fletcher32, place: Place::End },
            _ => return Ok(None),
        }))
    }

    /// The array → array stage of numcodecs of this name, or `None` when it is no such codec; with the stage whether
    /// the encoded words are big-endian.
    fn numcodecs_stage(&self, current: &DType, big_endian: bool) -> Result<Option<(Stage, bool)>, FormatError> {
        let pair = |from: &str, to: &str| -> Result<(DType, DType, bool), FormatError> {
            let (decoded, decoded_big) =
                self.dtype(from)?.ok_or_else(|| self.malformed(format_args!("`{from}` is missing")))?;
            let (encoded, encoded_big) = self.dtype(to)?.unwrap_or((decoded.clone(), decoded_big));
            if decoded != *current
                || (self.document == ".zarray" && decoded_big != big_endian && decoded.word_bytes() > 1)
            {
                return Err(self.malformed(format_args!("`{from}` is `{decoded}`, the elements are `{current}`")));
            }
            for dtype in [&decoded, &encoded] {
                if !is_number(dtype) {
                    return Err(unsupported(self.stored_name, format!(": not on elements of `{dtype}`")));
                }
            }
            Ok((decoded, encoded, encoded_big))
        };
        Ok(Some(match self.name {
            "delta" => {
                let (decoded, encoded, big) = pair("dtype", "astype")?;
                (Stage::Array(ArrayStage::Delta { decoded, encoded }), big)
            }
            "fixedscaleoffset" => {
                let (decoded, encoded, big) = pair("dtype", "astype")?;
                let (scale, offset) = (self.number("scale")?, self.number("offset")?);
                (Stage::Array(ArrayStage::ScaleOffset { decoded, encoded, scale, offset }), big)
            }
            "quantize" => {
                let (decoded, encoded, big) = pair("dtype", "astype")?;
                (Stage::Array(ArrayStage::Cast { decoded, encoded }), big)
            }
            "astype" => {
                let (decoded, encoded, big) = pair("decode_dtype", "encode_dtype")?;
                (Stage::Array(ArrayStage::Cast { decoded, encoded }), big)
            }
            // Rounding away mantissa bits needs no undoing.
            "bitround" => (Stage::Identity, big_endian),
            "packbits" if *current == DType::Bool => (Stage::Array(ArrayStage::PackedBools), false),
            "packbits" => return Err(unsupported(self.stored_name, format!(": not on elements of `{current}`"))),
            _ => return Ok(None),
        }))
    }
}

/// What a codec adds to a chain.
enum Stage {
    Array(ArrayStage),
    Identity,
}

/// A chain while its codecs are read, in the order in which they encode.
pub(super) struct ChainBuilder {
    dtype: DType,
    chunk_shape: Vec<u64>,
    /// The element type after the stages so far.
    pub(super) current: DType,
    /// Whether the words are big-endian after the stages so far: Zarr v2 and numcodecs keep it in type strings.
    pub(super) big_endian: bool,
    array: Vec<ArrayStage>,
    to_bytes: Option<ToBytes>,
    bytes: Vec<BytesStage>,
    document: &'static str,
}

impl ChainBuilder {
    pub(super) fn new(document: &'static str, dtype: DType, big_endian: bool, chunk_shape: &[u64]) -> Self {
        Self {
            current: dtype.clone(),
            dtype,
            chunk_shape: chunk_shape.to_vec(),
            big_endian,
            array: Vec::new(),
            to_bytes: None,
            bytes: Vec::new(),
            document,
        }
    }

    /// Whether the array → bytes codec has been seen.
    pub(super) fn in_bytes(&self) -> bool {
        self.to_bytes.is_some()
    }

    /// Whether some stage before changes the elements, rather than their places.
    pub(super) fn changes_elements(&self) -> bool {
        self.array.iter().any(|stage| match stage {
            ArrayStage::Delta { .. } | ArrayStage::ScaleOffset { .. } | ArrayStage::Cast { .. } => true,
            ArrayStage::PackedBools => true,
            ArrayStage::Transpose(_) | ArrayStage::Squeeze | ArrayStage::Reshape(_) => false,
        })
    }

    pub(super) fn push_array(&mut self, name: &str, stage: ArrayStage) -> Result<(), FormatError> {
        self.room()?;
        if self.in_bytes() {
            return Err(malformed(self.document, format!("codec `{}` works on elements, not on bytes", shown(name))));
        }
        self.array.push(stage);
        Ok(())
    }

    pub(super) fn set_to_bytes(&mut self, name: &str, to_bytes: ToBytes) -> Result<(), FormatError> {
        if self.in_bytes() {
            return Err(malformed(self.document, format!("codec `{}` works on elements, not on bytes", shown(name))));
        }
        self.to_bytes = Some(to_bytes);
        Ok(())
    }

    pub(super) fn push_bytes(&mut self, stage: BytesStage) -> Result<(), FormatError> {
        self.room()?;
        self.bytes.push(stage);
        Ok(())
    }

    fn room(&self) -> Result<(), FormatError> {
        if self.array.len() + self.bytes.len() >= STAGES_MAX {
            return Err(malformed(self.document, format!("more than {STAGES_MAX} codecs")));
        }
        Ok(())
    }

    /// Adds a codec of numcodecs that works on elements; `false` when the name is none of them.
    pub(super) fn push_numcodecs(&mut self, codec: &Named<'_>) -> Result<bool, FormatError> {
        let Some((stage, big_endian)) = codec.numcodecs_stage(&self.current, self.big_endian)? else {
            return Ok(false);
        };
        match stage {
            Stage::Identity => {}
            Stage::Array(stage) => {
                self.current = match &stage {
                    ArrayStage::Delta { encoded, .. }
                    | ArrayStage::ScaleOffset { encoded, .. }
                    | ArrayStage::Cast { encoded, .. } => encoded.clone(),
                    ArrayStage::PackedBools => DType::UInt(8),
                    ArrayStage::Transpose(_) | ArrayStage::Squeeze | ArrayStage::Reshape(_) => self.current.clone(),
                };
                self.push_array(codec.stored_name, stage)?;
            }
        }
        self.big_endian = big_endian;
        Ok(true)
    }

    /// Adds pcodec.
    pub(super) fn push_pcodec(&mut self, codec: &Named<'_>) -> Result<(), FormatError> {
        if !pcodec_holds(&self.current) {
            return Err(unsupported(codec.stored_name, format!(": not on elements of `{}`", self.current)));
        }
        self.set_to_bytes(codec.stored_name, ToBytes::Pcodec)
    }

    /// Adds `vlen-utf8` or `vlen-bytes`.
    pub(super) fn push_vlen(&mut self, codec: &Named<'_>) -> Result<(), FormatError> {
        let (utf8, dtype) = match codec.name {
            "vlen-utf8" => (true, DType::String),
            _ => (false, DType::Bytes),
        };
        if self.current != dtype {
            return Err(codec.malformed(format_args!("not on elements of `{}`", self.current)));
        }
        self.set_to_bytes(codec.stored_name, ToBytes::Vlen { utf8 })
    }

    /// The chain.
    pub(super) fn build(self) -> Result<ChunkCodec, FormatError> {
        let Some(to_bytes) = self.to_bytes else {
            return Err(malformed(self.document, "no codec turns the elements into bytes"));
        };
        if matches!(to_bytes, ToBytes::Bytes { .. }) && self.current.size_bytes().is_none() {
            let reason = format!("codec `bytes` cannot hold elements of `{}`, which vary in length", self.current);
            return Err(malformed(self.document, reason));
        }
        ChunkCodec::new(self.dtype, &self.chunk_shape, self.array, to_bytes, self.bytes)
            .map_err(|e| malformed(self.document, e.to_string()))
    }
}

/// The `shape` of the `reshape` codec: lengths, one -1, and lists of input axes.
pub(super) fn reshape(codec: &Named<'_>) -> Result<ArrayStage, FormatError> {
    let wrong = || codec.malformed("`shape` is not a list of lengths, -1 (once) and lists of axes");
    let list = codec.configuration.get("shape").and_then(Value::as_array).ok_or_else(wrong)?;
    let mut axes = Vec::with_capacity(list.len());
    for entry in list {
        axes.push(match entry {
            Value::Number(n) if n.as_i64() == Some(-1) => ReshapedAxis::Rest,
            Value::Number(n) => ReshapedAxis::Size(n.as_u64().filter(|&n| n >= 1).ok_or_else(wrong)?),
            Value::Array(list) => ReshapedAxis::Axes(
                list.iter().map(|n| n.as_u64().map(|n| n as usize)).collect::<Option<_>>().ok_or_else(wrong)?,
            ),
            Value::Null | Value::Bool(_) | Value::String(_) | Value::Object(_) => return Err(wrong()),
        });
    }
    let rests = axes.iter().filter(|axis| **axis == ReshapedAxis::Rest).count();
    if rests > 1 || axes.len() > super::json::RANK_MAX {
        return Err(wrong());
    }
    Ok(ArrayStage::Reshape(axes))
}

/// The `order` of the `transpose` codec: a permutation of `rank` axes, or the older `"C"` and `"F"`.
pub(super) fn transpose(codec: &Named<'_>, rank: usize) -> Result<ArrayStage, FormatError> {
    let wrong = || codec.malformed(format_args!("`order` is not a permutation of {rank} axes"));
    let order: Vec<usize> = match codec.configuration.get("order") {
        Some(Value::String(s)) if s == "C" => (0..rank).collect(),
        Some(Value::String(s)) if s == "F" => (0..rank).rev().collect(),
        Some(Value::Array(list)) => {
            list.iter().map(|n| n.as_u64().map(|n| n as usize)).collect::<Option<_>>().ok_or_else(wrong)?
        }
        Some(_) | None => return Err(wrong()),
    };
    let mut sorted = order.clone();
    sorted.sort_unstable();
    if !sorted.iter().copied().eq(0..rank) {
        return Err(wrong());
    }
    Ok(ArrayStage::Transpose(order))
}

/// The byte order of the `bytes` codec: required where elements have words of several bytes.
pub(super) fn big_endian(codec: &Named<'_>, dtype: &DType) -> Result<bool, FormatError> {
    match codec.configuration.get("endian") {
        Some(Value::String(s)) if s == "little" => Ok(false),
        Some(Value::String(s)) if s == "big" => Ok(true),
        None | Some(Value::Null) if dtype.word_bytes() == 1 => Ok(false),
        None | Some(Value::Null) => Err(codec.malformed(format_args!("no `endian` for elements of `{dtype}`"))),
        Some(other) => Err(codec.malformed(format_args!("`endian` is {}", shown(&other.to_string())))),
    }
}

/// Whether zarrs' `packbits` is safe and meant for `dtype`.
pub(super) fn packs_bits(dtype: &DType) -> bool {
    match dtype {
        DType::Bool | DType::Int(_) | DType::UInt(_) => true,
        DType::Float(FloatKind::Small(_)) => true,
        DType::Float(_)
        | DType::Complex(_)
        | DType::RawBits(_)
        | DType::DateTime64 { .. }
        | DType::TimeDelta64 { .. }
        | DType::FixedUtf32(_)
        | DType::FixedBytes(_)
        | DType::String
        | DType::Bytes => false,
    }
}

/// The list of codecs in a document.
pub(super) fn list<'a>(document: &'static str, key: &str, value: &'a Value) -> Result<&'a [Value], FormatError> {
    match value {
        Value::Array(list) => Ok(list),
        other => Err(malformed(document, format!("`{key}` is {}, not a list", kind(other)))),
    }
}
