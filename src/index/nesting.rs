//! From a chunk's place in the array down to its place in each enclosing shard.

use std::ops::Range;

use super::IndexLayout;
use crate::format::{ArrayMeta, GridStorage};
use crate::model::{ChunkCoord, shape};

/// The grid arithmetic of one array on a grid of objects.
///
/// Inner chunks divide their shards (the parsers check it), and blocks their chunks, so the grid of these is regular
/// over the whole array, and every division here is exact.
#[derive(Debug, Clone, Copy)]
pub struct Nesting<'a> {
    grid: &'a GridStorage,
}

impl<'a> Nesting<'a> {
    /// The arithmetic of this grid.
    pub fn new(grid: &'a GridStorage) -> Self {
        Self { grid }
    }

    /// The layouts of the indexes, outermost first; none where each object is one chunk.
    pub fn layouts(self) -> Vec<IndexLayout> {
        let shards = &self.grid.shards;
        let container =
            |level: usize| if level == 0 { &self.grid.object_shape } else { &shards[level - 1].inner_shape };
        let levels = shards.iter().enumerate();
        levels.map(|(i, level)| IndexLayout::new(level, container(i), self.grid.chunk_shape())).collect()
    }

    /// The object that holds a chunk, as a place in the grid of objects.
    pub fn object_of(self, chunk: &ChunkCoord) -> Vec<u64> {
        let ratio = self.grid.object_shape.iter().zip(self.grid.chunk_shape()).map(|(object, inner)| object / inner);
        chunk.0.iter().zip(ratio).map(|(c, r)| c / r).collect()
    }
}

/// Where the virtual chunk at `coord` of a dense array lies in its object, in bytes.
///
/// `offset`, `order` and `block` are those of [`crate::format::Storage::Dense`]; `size` is the element's size in bytes.
/// The parsers checked that the whole array lies inside its object.
pub fn dense_range(
    array: &ArrayMeta,
    coord: &ChunkCoord,
    offset: u64,
    order: &[usize],
    block: &[u64],
    size: u64,
) -> Range<u64> {
    let stored: Vec<u64> = order.iter().map(|&axis| array.shape[axis]).collect();
    let strides = shape::strides(&stored);
    let first: u64 = order.iter().zip(&strides).map(|(&axis, stride)| coord.0[axis] * block[axis] * stride).sum();
    let count = shape::elements(&array.decoded_shape(coord)).unwrap_or(0);
    let start = offset + first * size;
    start..start + count * size
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::{ChunkKeys, IndexLocation, ShardIndexFormat, ShardLevel};

    fn level(inner: &[u64]) -> ShardLevel {
        ShardLevel {
            inner_shape: inner.to_vec(),
            index: ShardIndexFormat { big_endian: false, crc32c: true },
            location: IndexLocation::End,
        }
    }

    #[test]
    fn a_chunk_is_found_through_two_levels() {
        let grid = GridStorage {
            object_shape: vec![8, 8],
            keys: ChunkKeys::Default { separator: '/' },
            shards: vec![level(&[4, 4]), level(&[2, 1])],
            block: None,
        };
        let nesting = Nesting::new(&grid);
        let chunk = ChunkCoord(vec![5, 14].into()); // elements 10..12, 14..15
        assert_eq!(nesting.object_of(&chunk), [1, 1]);
        let layouts = nesting.layouts();
        assert_eq!(layouts[0].index_bytes(), 4 * 16 + 4);
        assert_eq!(layouts[0].entry_of(&chunk), 1); // rows 8..12, columns 12..16 of the object at 8, 8
        assert_eq!(layouts[1].index_bytes(), 8 * 16 + 4);
        assert_eq!(layouts[1].entry_of(&chunk), 4 + 2);
    }
}
