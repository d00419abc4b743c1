//! A whole shard as one chunk: for `sharding_indexed` behind or before other codecs, where no part of it can be
//! read alone. Elsewhere a shard's index is read by itself (`index`) and this code does not run.

use bytes::Bytes;

use super::ChunkCodec;
use super::array_stage::Repr;
use super::error::CodecError;
use crate::format::{IndexLocation, ShardLevel};
use crate::model::{ChunkData, shape};

const CODEC: &str = "sharding_indexed";

/// How to decode one shard.
#[derive(Debug, Clone)]
pub(crate) struct ShardCodec {
    /// Inner chunks and the index.
    pub(crate) level: ShardLevel,
    /// Decodes an inner chunk.
    pub(crate) inner: ChunkCodec,
    /// One element, or one variable-size value: what absent inner chunks hold.
    pub(crate) fill: Vec<u8>,
}

impl ShardCodec {
    /// The most bytes that a shard of `repr` is believed to take: its elements at an encoder's worst, twice (writers
    /// may leave holes), 256 bytes of headers an inner chunk, and the index.
    pub(super) fn most_bytes(&self, repr: &Repr) -> Option<usize> {
        if repr.dtype.size_bytes().is_none() {
            return Some(super::VARIABLE_CHUNK_BYTES_MAX);
        }
        let chunks = shape::elements(&self.grid(&repr.shape)?)?;
        let elements = (repr.len_bytes()? as u64).checked_mul(5)?.div_ceil(2);
        let headers = chunks.checked_mul(256)?.checked_add(64 * 1024)?;
        let index = self.level.index.len_bytes(chunks)?;
        usize::try_from(elements.checked_add(headers)?.checked_add(index)?).ok()
    }

    /// Inner chunks per axis.
    fn grid(&self, shape: &[u64]) -> Option<Vec<u64>> {
        let inner = &self.level.inner_shape;
        (inner.len() == shape.len()).then_some(())?;
        shape.iter().zip(inner).map(|(n, c)| (n.is_multiple_of(*c)).then(|| n / c)).collect()
    }

    /// Decodes every inner chunk and puts it in its place.
    pub(super) fn decode(&self, stored: &Bytes, repr: &Repr) -> Result<ChunkData, CodecError> {
        let misfit = || CodecError::Shape { codec: CODEC, shape: repr.shape.clone() };
        let grid = self.grid(&repr.shape).ok_or_else(misfit)?;
        let chunks = shape::elements(&grid).ok_or_else(misfit)?;
        let elements = repr.elements(CODEC)?;
        let index = self.index(stored, chunks)?;
        let mut out = Assembly::new(repr, elements, &self.fill)?;
        for chunk in 0..chunks {
            let entry = &index[chunk as usize * 16..][..16];
            let word = |at: usize| entry[at..at + 8].try_into().map(u64::from_le_bytes).unwrap_or(u64::MAX);
            let (offset, len) = if self.level.index.big_endian {
                (word(0).swap_bytes(), word(8).swap_bytes())
            } else {
                (word(0), word(8))
            };
            if offset == u64::MAX && len == u64::MAX {
                continue;
            }
            let end = offset.checked_add(len).filter(|&end| end <= stored.len() as u64).ok_or_else(|| {
                let reason = format!("inner chunk {chunk} lies at {offset}, {len} bytes, past the end");
                CodecError::invalid(CODEC, stored.len(), reason)
            })?;
            let data = self.inner.decode(stored.slice(offset as usize..end as usize), &self.level.inner_shape)?;
            out.place(data, &shape::unravel(chunk, &grid), &self.level.inner_shape, &repr.shape)?;
        }
        Ok(out.data())
    }

    /// The verified index: 16 bytes a chunk.
    fn index(&self, stored: &Bytes, chunks: u64) -> Result<Bytes, CodecError> {
        let short = |len: u64| CodecError::Length { codec: CODEC, expected: len, got: stored.len() as u64 };
        let len = self.level.index.len_bytes(chunks).ok_or_else(|| short(u64::MAX))?;
        let len = usize::try_from(len).ok().filter(|&len| len <= stored.len()).ok_or_else(|| short(len))?;
        let bytes = match self.level.location {
            IndexLocation::Start => stored.slice(..len),
            IndexLocation::End => stored.slice(stored.len() - len..),
        };
        if self.level.index.crc32c {
            super::checksum::strip(bytes, super::checksum::Algorithm::Crc32c, super::checksum::Place::End)
        } else {
            Ok(bytes)
        }
    }
}

/// The shard's elements while they are put together.
enum Assembly {
    Fixed { out: Vec<u8>, size: usize },
    Variable(Vec<Box<[u8]>>),
}

impl Assembly {
    fn new(repr: &Repr, elements: usize, fill: &[u8]) -> Result<Self, CodecError> {
        match repr.dtype.size_bytes() {
            Some(size) => {
                let len = elements
                    .checked_mul(size)
                    .ok_or_else(|| CodecError::Shape { codec: CODEC, shape: repr.shape.clone() })?;
                let mut out = vec![0; len];
                if fill.len() == size && fill.iter().any(|&b| b != 0) {
                    out.chunks_exact_mut(size).for_each(|element| element.copy_from_slice(fill));
                }
                Ok(Self::Fixed { out, size })
            }
            None => Ok(Self::Variable(vec![Box::from(fill); elements])),
        }
    }

    /// Copies the rows of the inner chunk at `coord`.
    fn place(&mut self, data: ChunkData, coord: &[u64], inner: &[u64], outer: &[u64]) -> Result<(), CodecError> {
        let row = inner.last().copied().unwrap_or(1) as usize;
        let rows = &inner[..inner.len().saturating_sub(1)];
        let strides = shape::strides(outer);
        let base: u64 = coord.iter().zip(inner).zip(&strides).map(|((c, n), s)| c * n * s).sum();
        let starts = (0..shape::elements(rows).unwrap_or(0)).map(|i| {
            let at: u64 = shape::unravel(i, rows).iter().zip(&strides).map(|(c, s)| c * s).sum();
            (i as usize * row, (base + at) as usize)
        });
        match (self, data) {
            (Self::Fixed { out, size }, ChunkData::Fixed(bytes)) => {
                for (from, to) in starts {
                    let len = row * *size;
                    out[to * *size..][..len].copy_from_slice(&bytes[from * *size..][..len]);
                }
                Ok(())
            }
            (Self::Variable(out), ChunkData::Variable(mut values)) => {
                for (from, to) in starts {
                    out[to..to + row].swap_with_slice(&mut values[from..from + row]);
                }
                Ok(())
            }
            (Self::Fixed { .. }, ChunkData::Variable(_)) | (Self::Variable(_), ChunkData::Fixed(_)) => {
                Err(CodecError::Shape { codec: CODEC, shape: inner.to_vec() })
            }
        }
    }

    fn data(self) -> ChunkData {
        match self {
            Self::Fixed { out, .. } => ChunkData::Fixed(out.into()),
            Self::Variable(values) => ChunkData::Variable(values),
        }
    }
}
