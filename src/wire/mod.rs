//! Tensors to response bodies: npy, raw, safetensors, json, png.
//!
//! Pure: no I/O, no clock, no async. The invariant: a body holds exactly the elements asked for. What a format
//! cannot hold is refused with the reason, never converted, scaled or rounded.
//!
//! Streaming formats are a [`head`] followed by the elements as they lie in memory, so that their length is known
//! before anything is read. The others are built whole by [`encode`]. Limits on sizes are the caller's.

mod accept;
pub mod batch;
mod error;
mod json;
mod npy;
mod png;
mod raw;
mod safetensors;

pub use accept::Accept;
pub use error::WireError;

use crate::model::{ChunkData, DType, shape};
use crate::tensor::Tensor;

/// Part of every slice's ETag: raised when any encoder's bytes change for the same tensor, a new version of the
/// `png` crate included.
pub const ENCODER_VERSION: u32 = 1;

/// The form of a response body.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Format {
    /// numpy's `.npy`.
    Npy,
    /// The elements only.
    Raw,
    /// One tensor in a `.safetensors` file.
    Safetensors,
    /// Nested lists.
    Json,
    /// A picture.
    Png,
}

impl Format {
    /// Every format.
    pub const ALL: &'static [Format] = &[Self::Npy, Self::Raw, Self::Safetensors, Self::Json, Self::Png];

    /// The format that `format=` names. `arrow` is reserved and left to the caller.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|format| format.name() == name)
    }

    /// The format that an in-key suffix (without its dot) names; `bin` is raw.
    pub fn from_suffix(suffix: &str) -> Option<Self> {
        if suffix == "bin" { Some(Self::Raw) } else { Self::from_name(suffix) }
    }

    /// The value of `format=`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Npy => "npy",
            Self::Raw => "raw",
            Self::Safetensors => "safetensors",
            Self::Json => "json",
            Self::Png => "png",
        }
    }

    /// The `Content-Type`.
    pub fn media_type(self) -> &'static str {
        match self {
            Self::Npy => "application/x-npy",
            Self::Raw => "application/octet-stream",
            Self::Safetensors => "application/vnd.safetensors",
            Self::Json => "application/json",
            Self::Png => "image/png",
        }
    }

    /// The format of an answer whose request names none: npy, else what can hold the type.
    ///
    /// ```
    /// # use wicker4dx::{model::{DType, FloatKind}, wire::Format};
    /// assert_eq!(Format::default_for(&DType::UInt(8)), Format::Npy);
    /// assert_eq!(Format::default_for(&DType::Float(FloatKind::BF16)), Format::Safetensors);
    /// assert_eq!(Format::default_for(&DType::String), Format::Json);
    /// assert_eq!(Format::default_for(&DType::Int(4)), Format::Raw);
    /// ```
    pub fn default_for(dtype: &DType) -> Self {
        match dtype {
            DType::String | DType::Bytes | DType::FixedUtf32(_) | DType::FixedBytes(_) => Self::Json,
            DType::Bool
            | DType::Int(_)
            | DType::UInt(_)
            | DType::Float(_)
            | DType::Complex(_)
            | DType::RawBits(_)
            | DType::DateTime64 { .. }
            | DType::TimeDelta64 { .. } => {
                if dtype.numpy_descr().is_some() {
                    Self::Npy
                } else if dtype.safetensors_name().is_some() {
                    Self::Safetensors
                } else {
                    Self::Raw
                }
            }
        }
    }

    /// Whether the body is a [`head`] and then the elements, so that its length is known before reading.
    pub fn streams(self) -> bool {
        match self {
            Self::Npy | Self::Raw | Self::Safetensors => true,
            Self::Json | Self::Png => false,
        }
    }
}

/// What a body is to hold, known before any element is read.
#[derive(Debug, Clone, Copy)]
pub struct Description<'a> {
    /// The array's last path segment: the tensor's name in safetensors.
    pub name: &'a str,
    /// The element type.
    pub dtype: &'a DType,
    /// Elements per axis of the answer.
    pub shape: &'a [u64],
    /// Names of the answer's axes, as far as they are named.
    pub dims: &'a [Option<String>],
}

/// Checks that `format` can hold the answer.
///
/// # Errors
/// [`WireError::NotPossible`], which says why and which formats can.
pub fn check(format: Format, tensors: &[Description<'_>]) -> Result<(), WireError> {
    obstacle(format, tensors).map_or(Ok(()), |reason| {
        let possible = Format::ALL.iter().copied().filter(|f| obstacle(*f, tensors).is_none()).collect();
        Err(WireError::NotPossible { format, reason, possible })
    })
}

/// Why `format` cannot hold the answer, if it cannot.
fn obstacle(format: Format, tensors: &[Description<'_>]) -> Option<String> {
    let obstacle = match format {
        Format::Npy => npy::obstacle,
        Format::Raw => raw::obstacle,
        Format::Safetensors => safetensors::obstacle,
        Format::Json => json::obstacle,
        Format::Png => png::obstacle,
    };
    match (format, tensors) {
        (_, [tensor]) => obstacle(tensor),
        (Format::Raw | Format::Safetensors, _) => tensors.iter().find_map(obstacle),
        (Format::Npy | Format::Json | Format::Png, _) => Some(format!("{} holds one array", format.name())),
    }
}

/// The bytes before the elements of a streaming format.
///
/// # Errors
/// [`WireError::NotPossible`] as [`check`] says; [`WireError::NotStreamed`] for json and png;
/// [`WireError::TooLong`] when the length does not fit 64 bits.
pub fn head(format: Format, tensors: &[Description<'_>]) -> Result<Vec<u8>, WireError> {
    check(format, tensors)?;
    match (format, tensors) {
        (Format::Npy, [tensor]) => npy::head(tensor),
        (Format::Raw, _) => Ok(Vec::new()),
        (Format::Safetensors, _) => safetensors::head(tensors),
        (Format::Npy | Format::Json | Format::Png, _) => Err(WireError::NotStreamed { format }),
    }
}

/// Where the elements of each tensor of a streaming format begin in its body, and where the last of them end: they
/// follow the head, and each other, without a gap.
///
/// # Errors
/// As [`head`].
pub fn places(head: &[u8], tensors: &[Description<'_>]) -> Result<Vec<u64>, WireError> {
    let mut places = vec![head.len() as u64];
    let mut end = head.len() as u64;
    for tensor in tensors {
        end = end.checked_add(elements_len(tensor)?).ok_or(WireError::TooLong)?;
        places.push(end);
    }
    Ok(places)
}

/// Bytes of the elements.
fn elements_len(description: &Description<'_>) -> Result<u64, WireError> {
    // A streaming format was checked to hold the type, so that its size is known.
    let size = description.dtype.size_bytes().ok_or(WireError::TooLong)?;
    shape::bytes(description.shape, size).ok_or(WireError::TooLong)
}

/// The whole body, in any format.
///
/// JSON: nested lists; 0-d a bare value; integers exact; a real as the decimal that reads, as a binary64, as exactly
/// the element; `"NaN"`, `"Infinity"`, `"-Infinity"`; complex as `[re,im]`; datetime64 and timedelta64 as their
/// integer counts, NaT as `null`; text without trailing zeros; raw bits and byte strings as base64.
///
/// PNG: uint8 and uint16 at their own depth, bool at a depth of one bit.
///
/// # Errors
/// [`WireError::NotPossible`] as [`check`] says; [`WireError::Text`] when a text element is not Unicode;
/// [`WireError::Inconsistent`] when the tensor's data are not its shape's.
pub fn encode(format: Format, name: &str, tensor: &Tensor, dims: &[Option<String>]) -> Result<Vec<u8>, WireError> {
    let description = Description { name, dtype: &tensor.dtype, shape: &tensor.shape, dims };
    check(format, &[description])?;
    agree(tensor)?;
    match (format, &tensor.data) {
        (Format::Json, _) => json::encode(tensor),
        (Format::Png, ChunkData::Fixed(bytes)) => png::encode(tensor, bytes),
        (Format::Npy | Format::Raw | Format::Safetensors, ChunkData::Fixed(bytes)) => {
            let mut body = head(format, &[description])?;
            body.extend_from_slice(bytes);
            Ok(body)
        }
        (Format::Npy | Format::Raw | Format::Safetensors | Format::Png, ChunkData::Variable(_)) => {
            Err(WireError::Inconsistent { dtype: tensor.dtype.clone(), expected: 0, found: 0 })
        }
    }
}

/// Checks that a tensor's data are as long as its shape and type say.
fn agree(tensor: &Tensor) -> Result<(), WireError> {
    let elements = shape::elements(&tensor.shape).ok_or(WireError::TooLong)?;
    let (expected, found) = match (&tensor.data, tensor.dtype.size_bytes()) {
        (ChunkData::Fixed(bytes), Some(size)) => {
            (elements.checked_mul(size as u64).ok_or(WireError::TooLong)?, bytes.len() as u64)
        }
        (ChunkData::Variable(values), None) => (elements, values.len() as u64),
        (ChunkData::Fixed(bytes), None) => (elements, bytes.len() as u64),
        (ChunkData::Variable(values), Some(_)) => (elements, values.len() as u64),
    };
    let matches = matches!(
        (&tensor.data, tensor.dtype.size_bytes()),
        (ChunkData::Fixed(_), Some(_)) | (ChunkData::Variable(_), None)
    );
    if matches && expected == found {
        Ok(())
    } else {
        Err(WireError::Inconsistent { dtype: tensor.dtype.clone(), expected, found })
    }
}
