//! The Range header of a plain read, as S3 reads it: one range of bytes, anything else ignored.

use std::ops::Range;

use crate::model::ByteRange;

/// One range of bytes as asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Asked {
    /// From a first byte to a last one, both inclusive.
    Bounded(u64, u64),
    /// From a first byte to the end.
    From(u64),
    /// So many bytes at the end.
    Suffix(u64),
}

impl Asked {
    /// Reads a header value. `None` is a header to ignore: malformed, another unit, a last byte before the first,
    /// or several ranges.
    pub(super) fn parse(value: &str) -> Option<Self> {
        let spec = value.strip_prefix("bytes=")?;
        let (first, last) = spec.split_once('-')?;
        match (first, last) {
            ("", last) => Some(Self::Suffix(number(last)?)),
            (first, "") => Some(Self::From(number(first)?)),
            (first, last) => {
                let (first, last) = (number(first)?, number(last)?);
                (first <= last).then_some(Self::Bounded(first, last))
            }
        }
    }

    /// The same for a store, or `None` for `bytes=-0`, which no object satisfies.
    pub(super) fn for_store(self) -> Option<ByteRange> {
        match self {
            Self::Bounded(first, last) => Some(ByteRange::Bounded(first..last.saturating_add(1))),
            Self::From(first) => Some(ByteRange::From(first)),
            Self::Suffix(0) => None,
            Self::Suffix(len) => Some(ByteRange::Suffix(len)),
        }
    }

    /// The bytes of an object of `size` that are meant, or `None` when there are none (416). A suffix of an empty
    /// object is the empty range: it is satisfied, but only by a 200, since Content-Range cannot express it.
    pub(super) fn within(self, size: u64) -> Option<Range<u64>> {
        match self {
            Self::Bounded(first, last) => (first < size).then(|| first..last.saturating_add(1).min(size)),
            Self::From(first) => (first < size).then_some(first..size),
            Self::Suffix(0) => None,
            Self::Suffix(len) => Some(size.saturating_sub(len)..size),
        }
    }
}

/// Decimal digits; what exceeds 64 bits is past every object's end, not malformed.
fn number(digits: &str) -> Option<u64> {
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    Some(digits.parse().unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(value: &str, size: u64, bytes: Option<Range<u64>>) {
        assert_eq!(Asked::parse(value).expect(value).within(size), bytes, "{value} of {size}");
    }

    #[test]
    fn ranges_are_inclusive_and_clipped_to_the_object() {
        check("bytes=0-0", 10, Some(0..1));
        check("bytes=2-5", 10, Some(2..6));
        check("bytes=2-99", 10, Some(2..10));
        check("bytes=9-", 10, Some(9..10));
        check("bytes=-3", 10, Some(7..10));
        check("bytes=-30", 10, Some(0..10));
        check("bytes=3-99999999999999999999999", 10, Some(3..10));
    }

    #[test]
    fn ranges_past_the_end_are_not_satisfiable() {
        check("bytes=10-", 10, None);
        check("bytes=10-12", 10, None);
        check("bytes=99999999999999999999999-", 10, None);
        check("bytes=0-", 0, None);
        check("bytes=-0", 10, None);
        check("bytes=-5", 0, Some(0..0));
    }

    #[test]
    fn malformed_ranges_are_ignored() {
        for value in
            ["", "bytes", "bytes=", "bytes=-", "bytes=9-3", "bytes=a-b", "bytes=0-1,3-4", "items=0-1", "bytes=+1-2"]
        {
            assert_eq!(Asked::parse(value), None, "{value}");
        }
        assert_eq!(Asked::parse("bytes=0 - 1"), None);
    }
}
