//! How large uncompressed chunks are cut into blocks, of which a request reads those that it touches.

use crate::model::shape;

/// About how many bytes one block has. A request to an object store costs about what 256 KiB take to transfer, and
/// blocks are what the cache holds: smaller ones multiply requests, larger ones read too much for small slices.
pub(super) const BLOCK_BYTES: u64 = 256 * 1024;

/// Largest uncompressed chunk, in bytes, that is not cut. Reading half of it would save no more than [`BLOCK_BYTES`],
/// about the price of a request, and every block costs a cache entry, a lookup and a copy.
const WHOLE_BYTES: u64 = 2 * BLOCK_BYTES;

/// The shape of blocks of about [`BLOCK_BYTES`] that a chunk of packed elements of `size` bytes, stored row-major, is
/// cut into; `None` for a chunk that is better read whole.
///
/// A block is contiguous in its chunk: one axis is cut, those behind it are whole, those before it have length 1. It
/// divides the chunk, so that the blocks of all chunks are one regular grid. Every axis of the chunk is at least 1 long.
pub(super) fn dividing(chunk_shape: &[u64], size: usize) -> Option<Vec<u64>> {
    if shape::bytes(chunk_shape, size)? <= WHOLE_BYTES {
        return None;
    }
    let mut block = vec![1; chunk_shape.len()];
    let mut bytes = size as u64;
    for (axis, &len) in chunk_shape.iter().enumerate().rev() {
        block[axis] = divisor_near(len, BLOCK_BYTES / bytes);
        bytes *= block[axis];
        if block[axis] < len {
            return Some(block);
        }
    }
    None
}

/// The largest divisor of `len` up to `most`; the smallest beyond it where that one is below a quarter of `most`, which
/// would make four times as many blocks.
fn divisor_near(len: u64, most: u64) -> u64 {
    if len <= most {
        return len;
    }
    let pairs = (1..=len.isqrt()).filter(|d| len.is_multiple_of(*d));
    let (below, beyond) = pairs
        .flat_map(|d| [d, len / d])
        .fold((0, len), |(below, beyond), d| if d <= most { (below.max(d), beyond) } else { (below, beyond.min(d)) });
    if below > 0 && below >= most / 4 { below } else { beyond }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[track_caller]
    fn check(chunk_shape: &[u64], size: usize, expected: Option<&[u64]>) {
        assert_eq!(dividing(chunk_shape, size).as_deref(), expected, "{chunk_shape:?}");
    }

    #[test]
    fn blocks_are_contiguous_and_near_a_quarter_mebibyte() {
        check(&[64, 1024, 1024], 1, Some(&[1, 256, 1024]));
        check(&[1000, 256, 256], 4, Some(&[1, 256, 256]));
        check(&[1000, 100], 8, Some(&[250, 100]));
        check(&[1 << 24], 1, Some(&[1 << 18]));
        check(&[4, 3 << 20], 1, Some(&[1, 1 << 18]));
    }

    #[test]
    fn small_chunks_and_those_without_a_useful_divisor_are_read_whole() {
        check(&[512, 1024], 1, None);
        check(&[513, 1024], 1, Some(&[171, 1024]));
        check(&[1_000_003], 1, None); // a prime
        check(&[2, 1_000_003], 1, Some(&[1, 1_000_003]));
        check(&[64, 1009, 1000], 1, Some(&[1, 1009, 1000])); // single rows would be a thousand bytes
        check(&[2 * 1009, 1000], 1, Some(&[1009, 1000]));
        check(&[], 1 << 20, None);
        check(&[3], 1 << 20, Some(&[1]));
        check(&[1 << 30], 0, None);
    }

    proptest! {
        #[test]
        fn a_block_divides_its_chunk_and_is_contiguous(chunk in prop::collection::vec(1_u64..3000, 1..4), size in 1_usize..17) {
            let whole = shape::bytes(&chunk, size).expect("small");
            if let Some(block) = dividing(&chunk, size) {
                prop_assert!(chunk.iter().zip(&block).all(|(n, b)| n.is_multiple_of(*b)));
                prop_assert!(shape::bytes(&block, size).expect("smaller") * 2 <= whole);
                let cut = (0..chunk.len()).find(|&axis| block[axis] > 1).unwrap_or(chunk.len() - 1);
                prop_assert_eq!(&block[cut + 1..], &chunk[cut + 1..]);
            }
        }
    }
}
