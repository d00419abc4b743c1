//! A part of a shard's index that can be trusted alone.

use bytes::Bytes;

/// Consecutive entries of one shard's index, in their stored form: no second copy of a large index is made, and an
/// entry is parsed when it is asked for.
///
/// Made only by [`super::IndexLayout::page`], so that a checksummed index is here whole and verified or not at all.
/// How many bytes there are is checked too; what the entries say is not, and is checked whenever one is read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IndexPage(Bytes);

/// Bytes of one entry.
pub(super) const ENTRY_BYTES: u64 = 16;

impl IndexPage {
    /// `entries` are whole pairs, without a checksum behind them.
    pub(super) fn new(entries: Bytes) -> Self {
        Self(entries)
    }

    /// Offset and length as stored at `position` of this page; `None` past its end.
    pub(super) fn entry(&self, position: u64, big_endian: bool) -> Option<(u64, u64)> {
        let (pairs, _) = self.0.as_chunks::<{ ENTRY_BYTES as usize }>();
        let pair = pairs.get(usize::try_from(position).ok()?)?;
        let (words, _) = pair.as_chunks::<8>();
        let word = |at: usize| if big_endian { u64::from_be_bytes(words[at]) } else { u64::from_le_bytes(words[at]) };
        Some((word(0), word(1)))
    }

    /// Bytes that the entries occupy in memory.
    pub fn weight_bytes(&self) -> u64 {
        self.0.len() as u64
    }
}
