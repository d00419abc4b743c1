//! The index of one shard: where each inner chunk's bytes lie.
//!
//! Format: the `sharding_indexed` codec of the Zarr v3 specification. Per inner chunk, in row-major order, a
//! pair (offset, nbytes) of u64; both 2^64 - 1 for an absent chunk; optionally followed by a CRC-32C.

use std::ops::Range;

use crate::format::ShardIndexFormat;
use crate::model::{ErrorKind, Fault};

/// A shard's index, verified.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShardIndex {
    pairs: Box<[(u64, u64)]>,
}

/// Why an index cannot be trusted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum IndexError {
    /// Fewer or more bytes than the number of chunks asks for.
    #[error("shard index has {got} bytes instead of {expected}")]
    Length {
        /// Bytes found.
        got: u64,
        /// Bytes of a whole index.
        expected: u64,
    },
    /// The checksum does not match.
    #[error("shard index fails its crc32c")]
    Checksum,
    /// An entry points outside its shard.
    #[error("shard index places inner chunk {chunk} at {offset}+{len}, outside the shard of {container} bytes")]
    Outside {
        /// The inner chunk's row-major number.
        chunk: u64,
        /// Its offset as stored.
        offset: u64,
        /// Its length as stored.
        len: u64,
        /// Bytes of the shard.
        container: u64,
    },
    /// The shard is too small to hold its index.
    #[error("shard of {container} bytes cannot hold its index of {index} bytes")]
    NoRoom {
        /// Bytes of the shard.
        container: u64,
        /// Bytes of the index.
        index: u64,
    },
}

impl Fault for IndexError {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::Length { .. } | Self::Checksum | Self::Outside { .. } | Self::NoRoom { .. } => ErrorKind::CorruptData,
        }
    }
}

impl ShardIndex {
    /// Parses the index of a shard with `chunks` inner chunks. Verifies the checksum first where there is one.
    ///
    /// # Errors
    /// [`IndexError::Length`], [`IndexError::Checksum`].
    pub fn parse(bytes: &[u8], format: ShardIndexFormat, chunks: u64) -> Result<Self, IndexError> {
        let got = bytes.len() as u64;
        let expected = format.len_bytes(chunks).unwrap_or(u64::MAX);
        if got != expected {
            return Err(IndexError::Length { got, expected });
        }
        let pairs = if format.crc32c {
            let (pairs, stored) = bytes.split_at(bytes.len() - 4);
            if crc32c::crc32c(pairs).to_le_bytes() != stored {
                return Err(IndexError::Checksum);
            }
            pairs
        } else {
            bytes
        };
        let number = |bytes: &[u8]| {
            let mut word = [0; 8];
            word.copy_from_slice(bytes);
            if format.big_endian { u64::from_be_bytes(word) } else { u64::from_le_bytes(word) }
        };
        Ok(Self { pairs: pairs.chunks_exact(16).map(|pair| (number(&pair[..8]), number(&pair[8..]))).collect() })
    }

    /// Where inner chunk `chunk` lies within a shard of `container` bytes; `None` when it is absent.
    ///
    /// # Errors
    /// [`IndexError::Outside`] when any byte of it would lie outside the shard.
    pub fn range(&self, chunk: u64, container: u64) -> Result<Option<Range<u64>>, IndexError> {
        let (offset, len) = self.pairs[chunk as usize];
        if (offset, len) == (u64::MAX, u64::MAX) {
            return Ok(None);
        }
        match offset.checked_add(len) {
            Some(end) if end <= container => Ok(Some(offset..end)),
            Some(_) | None => Err(IndexError::Outside { chunk, offset, len, container }),
        }
    }

    /// How many inner chunks the shard has room for.
    pub fn chunks(&self) -> u64 {
        self.pairs.len() as u64
    }

    /// Bytes of stored chunks, the index left out; saturating, since entries are untrusted.
    pub fn stored_bytes(&self) -> u64 {
        self.pairs.iter().filter(|pair| **pair != (u64::MAX, u64::MAX)).fold(0, |sum, pair| sum.saturating_add(pair.1))
    }

    /// Bytes that the index occupies in memory.
    pub fn weight_bytes(&self) -> u64 {
        self.pairs.len() as u64 * 16
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const PLAIN: ShardIndexFormat = ShardIndexFormat { big_endian: false, crc32c: false };
    const CHECKED: ShardIndexFormat = ShardIndexFormat { big_endian: false, crc32c: true };

    fn encode(pairs: &[(u64, u64)], crc: bool) -> Vec<u8> {
        let mut bytes: Vec<u8> = pairs.iter().flat_map(|(o, n)| [o.to_le_bytes(), n.to_le_bytes()].concat()).collect();
        if crc {
            bytes.extend(crc32c::crc32c(&bytes).to_le_bytes());
        }
        bytes
    }

    #[test]
    fn an_entry_outside_its_shard_is_an_error_and_an_absent_one_is_not() {
        let bytes = encode(&[(0, 10), (u64::MAX, u64::MAX), (u64::MAX - 1, 10), (90, 11)], true);
        let index = ShardIndex::parse(&bytes, CHECKED, 4).expect("valid");
        assert_eq!(index.range(0, 100), Ok(Some(0..10)));
        assert_eq!(index.range(1, 100), Ok(None));
        assert!(matches!(index.range(2, 100), Err(IndexError::Outside { .. })));
        assert!(matches!(index.range(3, 100), Err(IndexError::Outside { .. })));
    }

    proptest! {
        #[test]
        fn one_flipped_bit_in_a_checked_index_is_an_error(pairs in prop::collection::vec((any::<u64>(), any::<u64>()), 1..9), bit in any::<prop::sample::Index>()) {
            let mut bytes = encode(&pairs, true);
            let bit = bit.index(bytes.len() * 8);
            bytes[bit / 8] ^= 1 << (bit % 8);
            prop_assert_eq!(ShardIndex::parse(&bytes, CHECKED, pairs.len() as u64), Err(IndexError::Checksum));
        }

        #[test]
        fn lengths_are_exact(len in 0_usize..100, chunks in 0_u64..6) {
            let parsed = ShardIndex::parse(&vec![0; len], PLAIN, chunks);
            prop_assert_eq!(parsed.is_ok(), len as u64 == chunks * 16);
        }
    }
}
