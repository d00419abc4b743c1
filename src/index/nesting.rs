//! From a chunk's place in the array down to its place in each enclosing shard.

use std::ops::Range;

use super::IndexError;
use crate::format::{ArrayMeta, GridStorage, IndexLocation, ShardLevel};
use crate::model::{ChunkCoord, shape};

/// The grid arithmetic of one array on a grid of objects.
///
/// Inner chunks divide their shards (the parsers check it), so the grid of innermost chunks is regular over the
/// whole array, and every division here is exact.
#[derive(Debug, Clone, Copy)]
pub struct Nesting<'a> {
    grid: &'a GridStorage,
}

impl<'a> Nesting<'a> {
    /// The arithmetic of this grid.
    pub fn new(grid: &'a GridStorage) -> Self {
        Self { grid }
    }

    /// The sharding levels, outermost first.
    pub fn levels(self) -> &'a [ShardLevel] {
        &self.grid.shards
    }

    fn innermost(self) -> &'a [u64] {
        self.grid.shards.last().map_or(&self.grid.object_shape, |level| &level.inner_shape)
    }

    /// The shape of the container that `level` divides: the object, or the chunk of the level above.
    fn container_shape(self, level: usize) -> &'a [u64] {
        if level == 0 { &self.grid.object_shape } else { &self.grid.shards[level - 1].inner_shape }
    }

    /// The object that holds a chunk, as a place in the grid of objects.
    pub fn object_of(self, chunk: &ChunkCoord) -> Vec<u64> {
        let ratio = self.grid.object_shape.iter().zip(self.innermost()).map(|(object, inner)| object / inner);
        chunk.0.iter().zip(ratio).map(|(c, r)| c / r).collect()
    }

    /// Inner chunks of one container at `level`, along each axis.
    fn inner_grid(self, level: usize) -> Vec<u64> {
        let inner = &self.grid.shards[level].inner_shape;
        self.container_shape(level).iter().zip(inner).map(|(container, inner)| container / inner).collect()
    }

    /// How many inner chunks one container at `level` has.
    pub fn inner_chunks(self, level: usize) -> u64 {
        shape::elements(&self.inner_grid(level)).unwrap_or(u64::MAX)
    }

    /// The row-major number, within its container at `level`, of the inner chunk that holds `chunk`.
    pub fn number_at(self, level: usize, chunk: &ChunkCoord) -> u64 {
        let grid = self.inner_grid(level);
        let strides = shape::strides(&grid);
        let inner = &self.grid.shards[level].inner_shape;
        chunk
            .0
            .iter()
            .zip(self.innermost().iter().zip(inner))
            .zip(grid.iter().zip(&strides))
            .map(|((c, (innermost, inner)), (n, stride))| (c / (inner / innermost) % n) * stride)
            .sum()
    }

    /// Where the index lies within a container of `container` bytes at `level`.
    ///
    /// # Errors
    /// [`IndexError::NoRoom`].
    pub fn index_range(self, level: usize, container: u64) -> Result<Range<u64>, IndexError> {
        let index = self.index_bytes(level);
        match self.grid.shards[level].location {
            _ if index > container => Err(IndexError::NoRoom { container, index }),
            IndexLocation::Start => Ok(0..index),
            IndexLocation::End => Ok(container - index..container),
        }
    }

    /// Bytes of the index of a container at `level`.
    pub fn index_bytes(self, level: usize) -> u64 {
        self.grid.shards[level].index.len_bytes(self.inner_chunks(level)).unwrap_or(u64::MAX)
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
    use crate::format::{ChunkKeys, ShardIndexFormat};

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
        };
        let nesting = Nesting::new(&grid);
        let chunk = ChunkCoord(vec![5, 14].into()); // elements 10..12, 14..15
        assert_eq!(nesting.object_of(&chunk), [1, 1]);
        assert_eq!(nesting.inner_chunks(0), 4);
        assert_eq!(nesting.number_at(0, &chunk), 1); // rows 8..12, columns 12..16 of the object at 8, 8
        assert_eq!(nesting.inner_chunks(1), 8);
        assert_eq!(nesting.number_at(1, &chunk), 4 + 2);
        assert_eq!(nesting.index_range(0, 100), Ok(32..100));
        assert!(nesting.index_range(0, 67).is_err());
    }
}
