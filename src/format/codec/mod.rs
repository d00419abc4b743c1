//! How a chunk's stored bytes become elements: a chain of codecs, checked when the metadata was parsed.
//!
//! The one invariant: a decoded chunk has exactly the length that its shape and element type demand, whatever
//! the stored bytes claim about themselves. Every stage knows how many bytes it may give before it runs.
//! Encoding is deliberately absent. Pure: no I/O, no async.

mod array_stage;
mod blosc;
mod bytes_stage;
mod bz2;
mod checksum;
mod deflate;
mod endian;
mod error;
mod lz4;
mod numeric;
mod packbits;
mod pcodec;
mod shard;
mod shuffle;
mod transpose;
mod vlen;
mod zarrs_chain;
mod zstd;

use std::sync::Arc;

use bytes::Bytes;

use crate::model::{ChunkData, DType};

pub(crate) use array_stage::{ArrayStage, Repr, ReshapedAxis};
pub(crate) use bytes_stage::BytesStage;
use bytes_stage::Expected;
pub(crate) use checksum::{Algorithm, Place};
pub use error::CodecError;
pub(crate) use numeric::is_number;
pub(crate) use pcodec::holds as pcodec_holds;
pub(crate) use shard::ShardCodec;
pub(crate) use zarrs_chain::ZarrsChain;

/// The most bytes that a chunk with elements of varying length may take, at any stage. Its shape does not
/// bound it, and something must.
pub(crate) const VARIABLE_CHUNK_BYTES_MAX: usize = 1 << 30;

/// How an innermost chunk's bytes become elements. Cheap to clone.
#[derive(Debug, Clone)]
pub struct ChunkCodec(Arc<Chain>);

#[derive(Debug)]
struct Chain {
    dtype: DType,
    array: Vec<ArrayStage>,
    to_bytes: ToBytes,
    bytes: Vec<BytesStage>,
    fingerprint: [u8; 16],
}

/// The array → bytes codec of a chain.
#[derive(Debug, Clone)]
pub(crate) enum ToBytes {
    /// Packed elements.
    Bytes {
        /// Most significant byte first.
        big_endian: bool,
    },
    /// Elements behind their lengths.
    Vlen {
        /// They are text.
        utf8: bool,
    },
    /// pcodec's standalone format.
    Pcodec,
    /// A whole shard.
    Shard(Box<ShardCodec>),
    /// A codec of zarrs.
    Zarrs(ZarrsChain),
}

impl ToBytes {
    fn name(&self) -> &'static str {
        match self {
            Self::Bytes { .. } => "bytes",
            Self::Vlen { utf8: true } => "vlen-utf8",
            Self::Vlen { utf8: false } => "vlen-bytes",
            Self::Pcodec => "pcodec",
            Self::Shard(_) => "sharding_indexed",
            Self::Zarrs(_) => "zarrs",
        }
    }

    /// How many bytes a chunk of `repr` takes once encoded.
    fn encoded(&self, repr: &Repr) -> Result<Expected, CodecError> {
        let misfit = || CodecError::Shape { codec: self.name(), shape: repr.shape.clone() };
        let fixed = || match repr.dtype.size_bytes() {
            Some(_) => repr.len_bytes().ok_or_else(misfit),
            None => Ok(VARIABLE_CHUNK_BYTES_MAX),
        };
        match self {
            Self::Bytes { .. } => repr.len_bytes().map(Expected::Exactly).ok_or_else(misfit),
            Self::Vlen { .. } => Ok(Expected::AtMost(VARIABLE_CHUNK_BYTES_MAX)),
            Self::Pcodec | Self::Zarrs(_) => Ok(Expected::Exactly(fixed()?).loosened()),
            Self::Shard(shard) => shard.most_bytes(repr).map(Expected::AtMost).ok_or_else(misfit),
        }
    }

    fn decode(&self, stored: Bytes, repr: &Repr) -> Result<ChunkData, CodecError> {
        let name = self.name();
        match self {
            Self::Bytes { big_endian } => {
                self.encoded(repr)?.check(name, stored.len(), stored.len())?;
                let word = if *big_endian { repr.dtype.word_bytes() } else { 1 };
                Ok(ChunkData::Fixed(endian::swap(stored, word)))
            }
            Self::Vlen { utf8 } => vlen::decode(&stored, repr.elements(name)?, *utf8).map(ChunkData::Variable),
            Self::Pcodec => {
                let len =
                    repr.len_bytes().ok_or_else(|| CodecError::Shape { codec: name, shape: repr.shape.clone() })?;
                pcodec::decode(&stored, &repr.dtype, len).map(|out| ChunkData::Fixed(out.into()))
            }
            Self::Shard(shard) => shard.decode(&stored, repr),
            Self::Zarrs(chain) => chain.decode(&stored, repr),
        }
    }
}

impl ChunkCodec {
    /// A chain, stages in the order in which they encode, for chunks of `chunk_shape` elements of `dtype`.
    ///
    /// # Errors
    /// [`CodecError::Shape`] when a stage does not fit the shape or type that the stages before it leave.
    pub(crate) fn new(
        dtype: DType,
        chunk_shape: &[u64],
        array: Vec<ArrayStage>,
        to_bytes: ToBytes,
        bytes: Vec<BytesStage>,
    ) -> Result<Self, CodecError> {
        // In memory only: it keys the cache of one process, so the derived form is canonical enough.
        let description = format!("{dtype:?} {chunk_shape:?} {array:?} {to_bytes:?} {bytes:?}");
        let mut fingerprint = [0; 16];
        fingerprint.copy_from_slice(&blake3::hash(description.as_bytes()).as_bytes()[..16]);
        let codec = Self(Arc::new(Chain { dtype, array, to_bytes, bytes, fingerprint }));
        codec.reprs(chunk_shape)?;
        Ok(codec)
    }

    /// Packed elements of a known byte order, axes stored in `order`: what dense files hold.
    pub(crate) fn dense(
        dtype: DType,
        chunk_shape: &[u64],
        order: &[usize],
        big_endian: bool,
    ) -> Result<Self, CodecError> {
        let in_order = order.iter().enumerate().all(|(i, &axis)| i == axis);
        let array = if in_order { Vec::new() } else { vec![ArrayStage::Transpose(order.to_vec())] };
        Self::new(dtype, chunk_shape, array, ToBytes::Bytes { big_endian }, Vec::new())
    }

    /// Decodes the stored bytes of a chunk of `shape`: row-major elements, little-endian and packed,
    /// exactly as many as the shape has.
    ///
    /// `shape` is the array's chunk shape, or for dense storage that of a block clipped at the edge, or that of a block
    /// of a chunk that [`ChunkCodec::is_packed`].
    /// Raw chunks come back uncopied.
    ///
    /// # Errors
    /// [`CodecError`] when a codec refuses its input, a checksum is wrong, or the length is not the shape's.
    pub fn decode(&self, stored: Bytes, shape: &[u64]) -> Result<ChunkData, CodecError> {
        let chain = &*self.0;
        let reprs = self.reprs(shape)?;
        let last = &reprs[reprs.len() - 1];
        let mut expected = vec![chain.to_bytes.encoded(last)?];
        for stage in &chain.bytes {
            expected.push(stage.encoded(expected[expected.len() - 1]));
        }
        let mut bytes = stored;
        for (stage, &expected) in chain.bytes.iter().zip(&expected).rev() {
            bytes = stage.decode(bytes, expected)?;
        }
        let mut data = chain.to_bytes.decode(bytes, last)?;
        for (stage, repr) in chain.array.iter().zip(&reprs).rev() {
            data = stage.decode(data, repr)?;
        }
        check_length(&data, &reprs[0])?;
        Ok(data)
    }

    /// Decodes as [`ChunkCodec::decode`] does, into `out`, which has exactly the bytes of `shape`.
    ///
    /// zstd and uncompressed chunks, checksummed or not, come without a copy in between.
    ///
    /// # Errors
    /// As [`ChunkCodec::decode`]; `out` then holds anything.
    pub fn decode_into(&self, stored: Bytes, shape: &[u64], out: &mut [u8]) -> Result<(), CodecError> {
        let chain = &*self.0;
        let codec = "chain";
        let repr = Repr { shape: shape.to_vec(), dtype: chain.dtype.clone() };
        let expected = repr.len_bytes().ok_or_else(|| CodecError::Shape { codec, shape: shape.to_vec() })?;
        let length = |got: usize| CodecError::Length { codec, expected: expected as u64, got: got as u64 };
        if out.len() != expected {
            return Err(length(out.len()));
        }
        let decoded = match &chain.bytes[..] {
            [inner, outer @ ..] if self.leaves_elements() => {
                let mut bounds = vec![inner.encoded(Expected::Exactly(expected))];
                for stage in outer {
                    bounds.push(stage.encoded(bounds[bounds.len() - 1]));
                }
                let mut bytes = stored;
                for (stage, &bound) in outer.iter().zip(&bounds).rev() {
                    bytes = stage.decode(bytes, bound)?;
                }
                match inner {
                    BytesStage::Zstd => return zstd::decode_into(&bytes, out),
                    _ => inner.decode(bytes, Expected::Exactly(expected))?,
                }
            }
            [] if self.leaves_elements() => stored,
            _ => match self.decode(stored, shape)? {
                ChunkData::Fixed(bytes) => bytes,
                ChunkData::Variable(values) => return Err(length(values.len())),
            },
        };
        if decoded.len() != expected {
            return Err(length(decoded.len()));
        }
        out.copy_from_slice(&decoded);
        Ok(())
    }

    /// Whether a checksum codec covers the stored bytes, so that nothing may be used before all is read.
    pub fn has_checksum(&self) -> bool {
        let chain = &*self.0;
        chain.bytes.iter().any(BytesStage::is_checksum)
            || match &chain.to_bytes {
                ToBytes::Shard(shard) => shard.inner.has_checksum(),
                ToBytes::Bytes { .. } | ToBytes::Vlen { .. } | ToBytes::Pcodec | ToBytes::Zarrs(_) => false,
            }
    }

    /// Identifies chain, element type and chunk shape within this process: a part of the chunk cache's key.
    pub fn fingerprint(&self) -> [u8; 16] {
        self.0.fingerprint
    }

    /// Whether stored bytes are the elements themselves: packed, little-endian, row-major.
    pub fn is_raw(&self) -> bool {
        self.leaves_elements() && self.0.bytes.is_empty()
    }

    /// Whether what the bytes stages leave are the elements themselves.
    fn leaves_elements(&self) -> bool {
        let in_order = match &self.0.to_bytes {
            ToBytes::Bytes { big_endian } => !big_endian || self.0.dtype.word_bytes() == 1,
            ToBytes::Vlen { .. } | ToBytes::Pcodec | ToBytes::Shard(_) | ToBytes::Zarrs(_) => false,
        };
        in_order && self.0.array.is_empty()
    }

    /// Whether stored bytes are packed elements in row-major order, of either byte order, and nothing else: then a run
    /// of them decodes alone. No checksum covers them.
    pub fn is_packed(&self) -> bool {
        self.0.bytes.is_empty() && self.0.array.is_empty() && matches!(self.0.to_bytes, ToBytes::Bytes { .. })
    }

    /// Shape and type before the first array stage, between the stages, and after the last.
    fn reprs(&self, shape: &[u64]) -> Result<Vec<Repr>, CodecError> {
        let mut reprs = vec![Repr { shape: shape.to_vec(), dtype: self.0.dtype.clone() }];
        for stage in &self.0.array {
            reprs.push(stage.encoded(&reprs[reprs.len() - 1])?);
        }
        Ok(reprs)
    }
}

/// The last word on every chain: the number of elements is the shape's.
fn check_length(data: &ChunkData, repr: &Repr) -> Result<(), CodecError> {
    let codec = "chain";
    let (got, expected) = match data {
        ChunkData::Fixed(bytes) => (bytes.len(), repr.len_bytes()),
        ChunkData::Variable(values) => {
            (values.len(), repr.dtype.size_bytes().is_none().then(|| repr.elements(codec)).transpose()?)
        }
    };
    match expected {
        Some(expected) if expected == got => Ok(()),
        Some(expected) => Err(CodecError::Length { codec, expected: expected as u64, got: got as u64 }),
        None => Err(CodecError::Shape { codec, shape: repr.shape.clone() }),
    }
}

#[cfg(test)]
mod tests;
