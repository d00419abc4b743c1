//! Where the blocks of a large uncompressed chunk lie within it.

use std::ops::Range;

use crate::format::{ArrayMeta, Storage};
use crate::model::{ChunkCoord, shape};

/// The blocks that an array's stored chunks are read in: contiguous in their chunk, and dividing it, so that a block's
/// place in the array tells its chunk and its bytes.
#[derive(Debug, Clone)]
pub struct BlockLayout {
    axes: Box<[BlockAxis]>,
    block_bytes: u64,
    chunk_bytes: u64,
}

#[derive(Debug, Clone, Copy)]
struct BlockAxis {
    /// Blocks to one chunk.
    blocks: u64,
    /// Bytes between neighbours along this axis.
    stride: u64,
}

impl BlockLayout {
    /// The layout of an array whose chunks are read in blocks; `None` for any other.
    pub fn of(array: &ArrayMeta) -> Option<Self> {
        let (Storage::Grid(grid), Some(chunk_bytes)) = (&array.storage, array.cut_chunk_bytes()) else { return None };
        let (chunk, block, size) = (grid.stored_chunk_shape(), grid.chunk_shape(), array.dtype.size_bytes()? as u64);
        let strides = shape::strides(chunk);
        let axes = chunk.iter().zip(block).zip(&strides);
        Some(Self {
            axes: axes.map(|((n, b), stride)| BlockAxis { blocks: n / b, stride: b * stride * size }).collect(),
            block_bytes: array.chunk_bytes()?,
            chunk_bytes,
        })
    }

    /// Bytes of a stored chunk: exactly so many.
    pub fn chunk_bytes(&self) -> u64 {
        self.chunk_bytes
    }

    /// The stored chunk that holds a block, by its place in the grid of stored chunks.
    pub fn chunk_of(&self, block: &ChunkCoord) -> ChunkCoord {
        ChunkCoord(block.0.iter().zip(&self.axes).map(|(place, axis)| place / axis.blocks).collect())
    }

    /// The bytes of a block, counted from the start of its stored chunk.
    pub fn range_of(&self, block: &ChunkCoord) -> Range<u64> {
        let start = block.0.iter().zip(&self.axes).map(|(place, axis)| place % axis.blocks * axis.stride).sum();
        start..start + self.block_bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::zarr::{Node, parse_v3};

    fn layout(chunk_shape: &str, inner: &str) -> Option<BlockLayout> {
        let document = format!(
            r#"{{"zarr_format":3,"node_type":"array","shape":[100,2000,1000],"data_type":"uint16",
            "chunk_grid":{{"name":"regular","configuration":{{"chunk_shape":{chunk_shape}}}}},
            "chunk_key_encoding":{{"name":"default"}},"fill_value":0,"codecs":[{inner}]}}"#
        );
        let Ok(Node::Array(array)) = parse_v3(document.as_bytes()) else { panic!("{document}") };
        BlockLayout::of(&array)
    }

    fn coord(place: [u64; 3]) -> ChunkCoord {
        ChunkCoord(place.as_slice().into())
    }

    #[test]
    fn blocks_tile_their_chunk_in_the_order_of_its_bytes() {
        // Blocks of [1, 125, 1000]: eight to a plane.
        let layout = layout("[4,1000,1000]", r#"{"name":"bytes","configuration":{"endian":"big"}}"#).expect("cut");
        assert_eq!(layout.chunk_bytes(), 8_000_000);
        let mut end = 0;
        for plane in 0..4 {
            for row in 0..8 {
                let block = coord([8 + plane, 8 + row, 0]);
                assert_eq!(layout.chunk_of(&block), coord([2, 1, 0]));
                let range = layout.range_of(&block);
                assert_eq!((range.start, range.end - range.start), (end, 250_000));
                end = range.end;
            }
        }
        assert_eq!(end, layout.chunk_bytes());
    }

    #[test]
    fn what_does_not_decode_in_parts_has_no_blocks() {
        let little = r#"{"name":"bytes","configuration":{"endian":"little"}}"#;
        assert!(layout("[4,100,100]", little).is_none(), "small");
        assert!(layout("[4,1000,1000]", &format!(r#"{little},{{"name":"crc32c"}}"#)).is_none(), "a checksum");
        assert!(layout("[4,1000,1000]", &format!(r#"{little},{{"name":"zstd"}}"#)).is_none(), "compressed");
        let turned = r#"{"name":"transpose","configuration":{"order":[2,1,0]}}"#;
        assert!(layout("[4,1000,1000]", &format!("{turned},{little}")).is_none(), "transposed");
    }
}
