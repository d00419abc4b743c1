//! The stored form of the indexes of one sharding level: which entry a chunk has, and in which bytes it is.
//!
//! Format: the `sharding_indexed` codec of the Zarr v3 specification. Per inner chunk, in row-major order, a
//! pair (offset, nbytes) of u64; both 2^64 - 1 for an absent chunk; optionally followed by a CRC-32C.

use std::ops::Range;

use bytes::Bytes;

use super::IndexError;
use super::page::{ENTRY_BYTES, IndexPage};
use crate::format::{IndexLocation, ShardIndexFormat, ShardLevel};
use crate::model::{ChunkCoord, shape};

/// Entries of one page of an index without a checksum: 64 KiB. A ranged read costs tens of milliseconds before its
/// first byte and a millisecond for these, so that less would save nothing; more would fill the cache with entries
/// that nobody asked for, since a crop wants a few short runs of an index, a row of the shard's grid apart.
pub const PAGE_ENTRIES: u64 = 4096;

/// Where the entries of one level's indexes are.
///
/// An index is cut into pages that can be read and used alone: of [`PAGE_ENTRIES`] where it has no checksum, and one
/// page of all entries where it has one, since no entry of it may be believed before all of it is verified.
#[derive(Debug, Clone)]
pub struct IndexLayout {
    axes: Box<[AxisStep]>,
    entries: u64,
    format: ShardIndexFormat,
    location: IndexLocation,
}

/// From a chunk's place along one axis to its part of the entry's number.
#[derive(Debug, Clone, Copy)]
struct AxisStep {
    /// Innermost chunks to one inner chunk of this level.
    chunks: u64,
    /// Inner chunks of this level to one container.
    inner: u64,
    /// Entries between neighbours along this axis.
    stride: u64,
}

impl IndexLayout {
    /// The layout of `level`, which divides containers of `container_shape`; `innermost` is the shape of the chunks
    /// by which callers count.
    pub(super) fn new(level: &ShardLevel, container_shape: &[u64], innermost: &[u64]) -> Self {
        let grid: Vec<u64> = container_shape.iter().zip(&level.inner_shape).map(|(n, inner)| n / inner).collect();
        let strides = shape::strides(&grid);
        let axes = grid.iter().zip(&strides).zip(level.inner_shape.iter().zip(innermost));
        let entries = shape::elements(&grid).unwrap_or(u64::MAX);
        Self {
            axes: axes
                .map(|((&inner, &stride), (shape, innermost))| AxisStep { chunks: shape / innermost, inner, stride })
                .collect(),
            entries,
            format: level.index,
            location: level.location,
        }
    }

    /// The row-major number, within its container, of the inner chunk that holds `chunk`.
    pub fn entry_of(&self, chunk: &ChunkCoord) -> u64 {
        let axes = chunk.0.iter().zip(&self.axes);
        axes.map(|(place, axis)| (place / axis.chunks % axis.inner) * axis.stride).sum()
    }

    /// The page that holds an entry.
    pub fn page_of(&self, entry: u64) -> u64 {
        if self.is_checked() { 0 } else { entry / PAGE_ENTRIES }
    }

    /// The pages that lie wholly within these bytes, which are counted from the start of the index.
    pub fn pages_within(&self, bytes: &Range<u64>) -> Range<u64> {
        if self.is_checked() {
            return 0..u64::from(bytes.start == 0 && bytes.end >= self.index_bytes());
        }
        // The last page may be shorter than the others.
        let whole = if bytes.end >= self.index_bytes() { self.entries } else { bytes.end / ENTRY_BYTES };
        let (first, end) = (bytes.start.div_ceil(PAGE_ENTRIES * ENTRY_BYTES), whole / PAGE_ENTRIES);
        first..if whole == self.entries { self.entries.div_ceil(PAGE_ENTRIES) } else { end }
    }

    /// Whether an index must be read whole, because its checksum covers all of it.
    pub fn is_checked(&self) -> bool {
        self.format.crc32c
    }

    /// At which end of its container an index is.
    pub fn location(&self) -> IndexLocation {
        self.location
    }

    /// Bytes of one index, its checksum included.
    pub fn index_bytes(&self) -> u64 {
        self.format.len_bytes(self.entries).unwrap_or(u64::MAX)
    }

    /// Where an index begins within a container of `container` bytes.
    ///
    /// # Errors
    /// [`IndexError::NoRoom`].
    pub fn index_start(&self, container: u64) -> Result<u64, IndexError> {
        let index = self.index_bytes();
        let room = container.checked_sub(index).ok_or(IndexError::NoRoom { container, index })?;
        match self.location {
            IndexLocation::Start => Ok(0),
            IndexLocation::End => Ok(room),
        }
    }

    /// The bytes of a page, counted from the start of its index.
    pub fn page_range(&self, page: u64) -> Range<u64> {
        if self.is_checked() {
            return 0..self.index_bytes();
        }
        let end = (page + 1).saturating_mul(PAGE_ENTRIES).min(self.entries);
        page * PAGE_ENTRIES * ENTRY_BYTES..end * ENTRY_BYTES
    }

    /// A page from its bytes, which are verified here where the index has a checksum.
    ///
    /// # Errors
    /// [`IndexError::Length`], [`IndexError::Checksum`].
    pub fn page(&self, page: u64, mut bytes: Bytes) -> Result<IndexPage, IndexError> {
        let (got, range) = (bytes.len() as u64, self.page_range(page));
        let expected = range.end - range.start;
        if got != expected {
            return Err(IndexError::Length { got, expected });
        }
        if self.is_checked() {
            let stored = bytes.split_off(bytes.len() - 4);
            if crc32c::crc32c(&bytes).to_le_bytes() != stored[..] {
                return Err(IndexError::Checksum);
            }
        }
        Ok(IndexPage::new(bytes))
    }

    /// Where inner chunk `entry` lies within a container of `container` bytes; `None` when it is absent. `page` is
    /// the page that holds the entry ([`IndexLayout::page_of`]).
    ///
    /// # Errors
    /// [`IndexError::Outside`] when any byte of it would lie outside the container; [`IndexError::Length`] when the
    /// page has no such entry.
    pub fn find(&self, page: &IndexPage, entry: u64, container: u64) -> Result<Option<Range<u64>>, IndexError> {
        let position = if self.is_checked() { entry } else { entry % PAGE_ENTRIES };
        let Some((offset, len)) = page.entry(position, self.format.big_endian) else {
            let expected = (position + 1).saturating_mul(ENTRY_BYTES);
            return Err(IndexError::Length { got: page.weight_bytes(), expected });
        };
        if (offset, len) == (u64::MAX, u64::MAX) {
            return Ok(None);
        }
        match offset.checked_add(len) {
            Some(end) if end <= container => Ok(Some(offset..end)),
            Some(_) | None => Err(IndexError::Outside { chunk: entry, offset, len, container }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const LITTLE: ShardIndexFormat = ShardIndexFormat { big_endian: false, crc32c: false };
    const CHECKED: ShardIndexFormat = ShardIndexFormat { big_endian: false, crc32c: true };
    const ABSENT: (u64, u64) = (u64::MAX, u64::MAX);

    /// The layout of an index of a row of `entries` inner chunks.
    fn row(entries: u64, index: ShardIndexFormat, location: IndexLocation) -> IndexLayout {
        let level = ShardLevel { inner_shape: vec![1], index, location };
        IndexLayout::new(&level, &[entries], &[1])
    }

    fn encode(pairs: &[(u64, u64)], format: ShardIndexFormat) -> Bytes {
        let word = |n: u64| if format.big_endian { n.to_be_bytes() } else { n.to_le_bytes() };
        let mut bytes: Vec<u8> = pairs.iter().flat_map(|&(o, n)| [word(o), word(n)].concat()).collect();
        if format.crc32c {
            bytes.extend(crc32c::crc32c(&bytes).to_le_bytes());
        }
        bytes.into()
    }

    #[test]
    fn an_entry_outside_its_shard_is_an_error_and_an_absent_one_is_not() {
        let layout = row(4, CHECKED, IndexLocation::End);
        let bytes = encode(&[(0, 10), ABSENT, (u64::MAX - 1, 10), (90, 11)], CHECKED);
        let page = layout.page(0, bytes).expect("valid");
        assert_eq!(layout.find(&page, 0, 100), Ok(Some(0..10)));
        assert_eq!(layout.find(&page, 1, 100), Ok(None));
        assert!(matches!(layout.find(&page, 2, 100), Err(IndexError::Outside { chunk: 2, .. })));
        assert!(matches!(layout.find(&page, 3, 100), Err(IndexError::Outside { chunk: 3, .. })));
    }

    #[test]
    fn an_index_lies_inside_its_container_or_nowhere() {
        let layout = row(4, CHECKED, IndexLocation::End);
        assert_eq!((layout.index_bytes(), layout.index_start(100)), (68, Ok(32)));
        assert_eq!(layout.index_start(67), Err(IndexError::NoRoom { container: 67, index: 68 }));
        assert_eq!(row(4, LITTLE, IndexLocation::Start).index_start(64), Ok(0));
    }

    #[test]
    fn only_an_index_without_checksum_has_pages() {
        let plain = row(2 * PAGE_ENTRIES + 1, LITTLE, IndexLocation::End);
        let page = PAGE_ENTRIES * 16;
        assert_eq!(plain.pages_within(&(0..plain.index_bytes())), 0..3);
        assert_eq!(plain.pages_within(&(1..2 * page + 15)), 1..2);
        assert!(plain.pages_within(&(1..page)).is_empty());
        assert_eq!((plain.page_of(PAGE_ENTRIES - 1), plain.page_of(PAGE_ENTRIES)), (0, 1));
        assert_eq!(plain.page_range(2), 2 * PAGE_ENTRIES * 16..2 * PAGE_ENTRIES * 16 + 16);
        let checked = row(2 * PAGE_ENTRIES + 1, CHECKED, IndexLocation::End);
        assert_eq!((checked.page_of(2 * PAGE_ENTRIES), checked.page_range(0)), (0, 0..checked.index_bytes()));
        assert_eq!(checked.pages_within(&(0..checked.index_bytes())), 0..1);
        assert!(checked.pages_within(&(0..checked.index_bytes() - 1)).is_empty());
    }

    #[test]
    fn an_absurd_index_has_no_room_anywhere() {
        let layout = row(u64::MAX, LITTLE, IndexLocation::End);
        assert!(matches!(layout.index_start(u64::MAX - 1), Err(IndexError::NoRoom { .. })));
    }

    proptest! {
        #[test]
        fn one_flipped_bit_in_a_checked_index_is_an_error(pairs in prop::collection::vec((any::<u64>(), any::<u64>()), 1..9), bit in any::<prop::sample::Index>()) {
            let mut bytes = encode(&pairs, CHECKED).to_vec();
            let bit = bit.index(bytes.len() * 8);
            bytes[bit / 8] ^= 1 << (bit % 8);
            let layout = row(pairs.len() as u64, CHECKED, IndexLocation::End);
            prop_assert_eq!(layout.page(0, bytes.into()), Err(IndexError::Checksum));
        }

        #[test]
        fn lengths_are_exact(len in 0_usize..100, entries in 1_u64..6) {
            let page = row(entries, LITTLE, IndexLocation::Start).page(0, vec![0; len].into());
            prop_assert_eq!(page.is_ok(), len as u64 == entries * 16);
        }

        #[test]
        fn pages_and_the_whole_index_give_the_same_entries(
            entries in 1..3 * PAGE_ENTRIES, big_endian in any::<bool>(), at in prop::collection::vec(any::<prop::sample::Index>(), 1..20), seed in any::<u64>()
        ) {
            let pairs: Vec<_> = (0..entries).map(|n| match n.wrapping_mul(seed | 1) % 5 {
                0 => ABSENT,
                1 => (u64::MAX - n, n),
                rest => (n * rest, rest),
            }).collect();
            let (plain, checked) = (ShardIndexFormat { big_endian, ..LITTLE }, ShardIndexFormat { big_endian, ..CHECKED });
            let (parts, whole) = (row(entries, plain, IndexLocation::End), row(entries, checked, IndexLocation::End));
            let bytes = encode(&pairs, plain);
            let all = whole.page(0, encode(&pairs, checked)).expect("valid");
            for at in at {
                let entry = at.index(entries as usize) as u64;
                let page = parts.page_of(entry);
                let range = parts.page_range(page);
                let page = parts.page(page, bytes.slice(range.start as usize..range.end as usize)).expect("whole");
                prop_assert_eq!(parts.find(&page, entry, 5000), whole.find(&all, entry, 5000));
            }
        }
    }
}
