//! Extents to ranged reads: one GET for neighbours, when reading the hole between them is cheaper than a second GET.

use std::ops::Range;

/// One ranged read of one object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Read {
    /// The bytes read.
    pub range: Range<u64>,
    /// Which of the given extents it covers, by position in the input.
    pub parts: Vec<usize>,
}

/// Joins extents of one object whose holes are at most `gap_bytes`, into reads of at most `most_bytes` unless a
/// single extent is longer. Reads come in ascending order; overlapping extents are read once.
pub fn coalesce(extents: &[Range<u64>], gap_bytes: u64, most_bytes: u64) -> Vec<Read> {
    let mut order: Vec<usize> = (0..extents.len()).collect();
    order.sort_by_key(|&i| (extents[i].start, extents[i].end));
    let mut reads: Vec<Read> = Vec::new();
    for i in order {
        let extent = &extents[i];
        if let Some(last) = reads.last_mut() {
            let joined = last.range.end.max(extent.end) - last.range.start;
            let near = extent.start <= last.range.end.saturating_add(gap_bytes);
            let inside = extent.end <= last.range.end;
            if inside || (near && joined <= most_bytes) {
                last.range.end = last.range.end.max(extent.end);
                last.parts.push(i);
                continue;
            }
        }
        reads.push(Read { range: extent.clone(), parts: vec![i] });
    }
    reads
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn check(extents: &[Range<u64>], gap: u64, expected: &[Range<u64>]) {
        let ranges: Vec<_> = coalesce(extents, gap, u64::MAX).into_iter().map(|read| read.range).collect();
        assert_eq!(ranges, expected);
    }

    #[test]
    fn holes_up_to_the_gap_are_read_through() {
        check(&[0..10, 15..20, 30..40], 5, &[0..20, 30..40]);
        check(&[30..40, 0..10, 10..20], 0, &[0..20, 30..40]);
        check(&[], 5, &[]);
    }

    proptest! {
        #[test]
        fn every_extent_is_covered_by_its_read(extents in prop::collection::vec((0_u64..1000, 0_u64..100), 0..30), gap in 0_u64..50, most in 1_u64..500) {
            let extents: Vec<Range<u64>> = extents.into_iter().map(|(start, len)| start..start + len).collect();
            let reads = coalesce(&extents, gap, most);
            let mut seen = vec![false; extents.len()];
            for read in &reads {
                for &part in &read.parts {
                    prop_assert!(read.range.start <= extents[part].start && extents[part].end <= read.range.end);
                    prop_assert!(!std::mem::replace(&mut seen[part], true));
                }
                prop_assert!(read.range.end - read.range.start <= most || read.parts.iter().any(|&p| extents[p] == read.range));
            }
            prop_assert!(seen.into_iter().all(|s| s));
        }
    }
}
