//! One array, as its metadata describes it, in one form for all source formats.

use serde_json::{Map, Value};

use super::blocks;
use super::codec::ChunkCodec;
use crate::model::{ChunkCoord, DType, PerAxis, shape};

/// Where an array's description came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SourceFormat {
    /// `zarr.json`.
    ZarrV3,
    /// `.zarray`.
    ZarrV2,
    /// A numpy `.npy` file.
    Npy,
    /// One tensor of a `.safetensors` file.
    Safetensors,
}

impl SourceFormat {
    /// The name shown by `describe`.
    pub fn name(self) -> &'static str {
        match self {
            Self::ZarrV3 => "zarr3",
            Self::ZarrV2 => "zarr2",
            Self::Npy => "npy",
            Self::Safetensors => "safetensors",
        }
    }
}

/// An array's shape, elements and storage. Made only by the parsers of this layer, which check that
/// ranks agree, that chunk axes are at least 1, that inner chunks divide their shards, and that sizes of
/// chunks fit checked arithmetic.
#[derive(Debug, Clone)]
pub struct ArrayMeta {
    /// Elements per axis.
    pub shape: Vec<u64>,
    /// The element type.
    pub dtype: DType,
    /// The value of absent chunks: one element, little-endian, or the bytes of one variable-size value.
    pub fill: Vec<u8>,
    /// Names of the axes, as far as they are named.
    pub dims: Vec<Option<String>>,
    /// The user attributes.
    pub attributes: Map<String, Value>,
    /// Where this description came from.
    pub format: SourceFormat,
    /// Where the chunks are.
    pub storage: Storage,
    /// How an innermost chunk's bytes become elements.
    pub codec: ChunkCodec,
    /// The codecs as the metadata spells them, for `describe`: outermost first.
    pub stored_codecs: Value,
}

/// Where an array's chunks are.
#[derive(Debug, Clone)]
pub enum Storage {
    /// One object per cell of a regular grid, possibly sharded.
    Grid(GridStorage),
    /// All elements in one run of uncompressed bytes within one object. Chunks are virtual:
    /// blocks that are contiguous in the file, clipped at the array's edge.
    Dense {
        /// Where the first element lies, in bytes.
        offset: u64,
        /// Axes from slowest to fastest in the file: `0..n` for C order, reversed for Fortran order.
        order: Vec<usize>,
        /// The block's elements per axis.
        block: Vec<u64>,
    },
}

/// A regular grid of objects.
#[derive(Debug, Clone)]
pub struct GridStorage {
    /// Elements per axis of one object: the shard's shape where the array is sharded.
    pub object_shape: Vec<u64>,
    /// How an object's key is made.
    pub keys: ChunkKeys,
    /// Sharding levels, outermost first; empty when each object is one chunk.
    pub shards: Vec<ShardLevel>,
    /// Elements per axis of the blocks that innermost chunks are read in: virtual chunks, contiguous in the stored one,
    /// which they divide. `None` where chunks are read whole, because they are small, or do not decode in parts.
    pub block: Option<Vec<u64>>,
}

impl GridStorage {
    /// A grid of objects, with the blocks that suit its chunks, which hold elements of `dtype` and decode by `codec`.
    pub(super) fn new(
        object_shape: Vec<u64>,
        keys: ChunkKeys,
        shards: Vec<ShardLevel>,
        dtype: &DType,
        codec: &ChunkCodec,
    ) -> Self {
        let mut grid = Self { object_shape, keys, shards, block: None };
        let size = dtype.size_bytes().filter(|_| codec.is_packed());
        grid.block = size.and_then(|size| blocks::dividing(grid.stored_chunk_shape(), size));
        grid
    }

    /// Elements per axis of the smallest unit by which callers count: a block, where chunks are cut into such, else an
    /// innermost chunk.
    pub fn chunk_shape(&self) -> &[u64] {
        self.block.as_deref().unwrap_or_else(|| self.stored_chunk_shape())
    }

    /// Elements per axis of an innermost chunk as it is stored.
    pub fn stored_chunk_shape(&self) -> &[u64] {
        self.shards.last().map_or(&self.object_shape, |level| &level.inner_shape)
    }
}

/// How a grid cell's key follows the array's own key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ChunkKeys {
    /// Zarr v3 `default`: `c/0/1`, `c` for an array without axes.
    Default {
        /// `/` or `.`.
        separator: char,
    },
    /// Zarr v2: `0.1`, `0` for an array without axes.
    V2 {
        /// `/` or `.`.
        separator: char,
    },
}

impl ChunkKeys {
    /// The key of the object at `coord`, relative to the array.
    pub fn key(&self, coord: &[u64]) -> String {
        let (mut key, separator) = match self {
            Self::Default { separator } => (String::from("c"), *separator),
            Self::V2 { separator } => (String::new(), *separator),
        };
        if coord.is_empty() && key.is_empty() {
            return "0".into();
        }
        for c in coord {
            if !key.is_empty() {
                key.push(separator);
            }
            key.push_str(&c.to_string());
        }
        key
    }
}

/// One level of the `sharding_indexed` codec.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShardLevel {
    /// Elements per axis of the inner chunks.
    pub inner_shape: Vec<u64>,
    /// How the index is stored.
    pub index: ShardIndexFormat,
    /// Where the index is stored.
    pub location: IndexLocation,
}

/// The stored form of a shard index: pairs (offset, nbytes) of u64, of known length.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ShardIndexFormat {
    /// Numbers are big-endian.
    pub big_endian: bool,
    /// A CRC-32C of the pairs follows them, little-endian.
    pub crc32c: bool,
}

impl ShardIndexFormat {
    /// Bytes of the index of a shard with `chunks` inner chunks, or `None` when absurd.
    pub fn len_bytes(self, chunks: u64) -> Option<u64> {
        chunks.checked_mul(16)?.checked_add(if self.crc32c { 4 } else { 0 })
    }
}

/// Which end of a shard its index is at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IndexLocation {
    /// Its first bytes.
    Start,
    /// Its last bytes.
    End,
}

impl ArrayMeta {
    /// Elements per axis of a chunk: the smallest unit that is read, decoded and cached. That is an innermost chunk, or
    /// a block of one that is large and uncompressed, or a block of dense storage (before clipping).
    pub fn chunk_shape(&self) -> &[u64] {
        match &self.storage {
            Storage::Grid(grid) => grid.chunk_shape(),
            Storage::Dense { block, .. } => block,
        }
    }

    /// Bytes that every stored chunk has, where chunks are read in blocks.
    pub fn cut_chunk_bytes(&self) -> Option<u64> {
        match &self.storage {
            Storage::Grid(grid) if grid.block.is_some() => {
                shape::bytes(grid.stored_chunk_shape(), self.dtype.size_bytes()?)
            }
            Storage::Grid(_) | Storage::Dense { .. } => None,
        }
    }

    /// The shape that the chunk at `coord` decodes to: grid chunks are always whole, dense blocks end with the array.
    pub fn decoded_shape(&self, coord: &ChunkCoord) -> PerAxis<u64> {
        match &self.storage {
            Storage::Grid(_) => PerAxis::from_slice(self.chunk_shape()),
            Storage::Dense { block, .. } => {
                coord.0.iter().zip(block).zip(&self.shape).map(|((c, b), n)| (*b).min(n - c * b)).collect()
            }
        }
    }

    /// Bytes of one decoded chunk, or `None` when elements vary in length or the size is absurd.
    pub fn chunk_bytes(&self) -> Option<u64> {
        shape::bytes(self.chunk_shape(), self.dtype.size_bytes()?)
    }

    /// Axis `axis` by its name, or by its position where it has none.
    pub fn axis_label(&self, axis: usize) -> String {
        self.dims.get(axis).cloned().flatten().unwrap_or_else(|| axis.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_follow_both_conventions() {
        let v3 = ChunkKeys::Default { separator: '/' };
        let v2 = ChunkKeys::V2 { separator: '.' };
        assert_eq!([v3.key(&[1, 2]), v3.key(&[]), v2.key(&[1, 2]), v2.key(&[])], ["c/1/2", "c", "1.2", "0"]);
    }
}
