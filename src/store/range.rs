//! Ranges against a known size.

use std::ops::Range;

use crate::model::ByteRange;

/// The bytes that a range means in an object of `size` bytes, or `None` when it starts at or past the end.
pub(super) fn resolve(range: &ByteRange, size: u64) -> Option<Range<u64>> {
    match *range {
        ByteRange::Whole => Some(0..size),
        ByteRange::Suffix(length) => Some(size.saturating_sub(length)..size),
        ByteRange::From(start) => (start < size).then_some(start..size),
        ByteRange::Bounded(Range { start, end }) => (start < size).then(|| start..end.clamp(start, size)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_end_where_the_object_ends() {
        for (range, size, expected) in [
            (ByteRange::Whole, 0, Some(0..0)),
            (ByteRange::Whole, 5, Some(0..5)),
            (ByteRange::Suffix(3), 5, Some(2..5)),
            (ByteRange::Suffix(9), 5, Some(0..5)),
            (ByteRange::Suffix(9), 0, Some(0..0)),
            (ByteRange::From(4), 5, Some(4..5)),
            (ByteRange::From(5), 5, None),
            (ByteRange::From(0), 0, None),
            (ByteRange::Bounded(1..3), 5, Some(1..3)),
            (ByteRange::Bounded(1..u64::MAX), 5, Some(1..5)),
            (ByteRange::Bounded(5..6), 5, None),
            (ByteRange::Bounded(3..3), 5, Some(3..3)),
        ] {
            assert_eq!(resolve(&range, size), expected, "{range:?} of {size}");
        }
    }
}
