//! Samples of different lengths that lie one after the other along an axis.

use std::ops::Range;

use super::{CoordsError, Values};

/// How an index array tells where samples lie.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IndexKind {
    /// One more number than samples: where each begins, and where the last ends.
    Offsets,
    /// A number a sample: where it ends.
    Ends,
    /// A number a sample: its length. CF's contiguous ragged arrays.
    Counts,
}

impl IndexKind {
    /// By its name in the attribute `ragged`.
    pub fn from_name(name: &str) -> Option<Self> {
        match name {
            "offsets" => Some(Self::Offsets),
            "ends" => Some(Self::Ends),
            "counts" => Some(Self::Counts),
            _ => None,
        }
    }
}

/// Where samples lie: from one offset up to the next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Offsets(Vec<u64>);

impl Offsets {
    /// From the numbers of an index array, for an axis of `len` positions, all of which belong to a sample.
    ///
    /// # Errors
    /// What does not fit: numbers that fall, a first that is not 0, a last that is not `len`, or no numbers.
    pub fn new(kind: IndexKind, values: &Values, len: u64) -> Result<Self, String> {
        let number = |at: usize| values.whole(at).ok_or_else(|| format!("element {at} is no position"));
        let mut offsets: Vec<u64> = Vec::with_capacity(values.len() + 1);
        if kind != IndexKind::Offsets {
            offsets.push(0);
        }
        for at in 0..values.len() {
            let value = number(at)?;
            let last = offsets.last().copied();
            let offset = match (kind, last) {
                (IndexKind::Counts, Some(last)) => last.checked_add(value).filter(|offset| *offset <= len),
                (_, Some(last)) => Some(value).filter(|value| *value >= last),
                (_, None) => Some(value).filter(|value| *value == 0),
            };
            offsets.push(offset.ok_or_else(|| match (kind, last) {
                (IndexKind::Counts, _) => format!("the lengths up to sample {at} are more than {len}"),
                (_, Some(last)) => format!("element {at} is {value}, after {last}"),
                (_, None) => format!("the first offset is {value}, not 0"),
            })?);
        }
        match offsets.last() {
            Some(last) if *last == len => Ok(Self(offsets)),
            Some(last) => Err(format!("the samples end at {last}, the axis at {len}")),
            None => Err("it is empty".to_owned()),
        }
    }

    /// How many samples.
    pub fn samples(&self) -> u64 {
        (self.0.len() - 1) as u64
    }

    /// The positions of a sample.
    ///
    /// # Panics
    /// For a sample that is not there.
    pub fn of(&self, sample: u64) -> Range<u64> {
        self.0[sample as usize]..self.0[sample as usize + 1]
    }

    /// Bytes of memory.
    pub fn bytes(&self) -> usize {
        self.0.len() * 8
    }
}

/// What an array's attribute `ragged` declares: `{"kind": "offsets", "index": "tokens_offsets", "dimension": "sample"}`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Declared {
    /// How the index array is to be read.
    pub kind: IndexKind,
    /// Its name, beside the array.
    pub index: String,
    /// What samples are called; by default as the index array's dimension, or `sample`.
    pub dimension: Option<String>,
}

/// The attribute `ragged`, where an array has it.
///
/// # Errors
/// [`CoordsError::Broken`] for one that declares nothing.
pub fn ragged(attributes: &serde_json::Map<String, serde_json::Value>) -> Result<Option<Declared>, CoordsError> {
    let Some(found) = attributes.get("ragged").filter(|value| !value.is_null()) else { return Ok(None) };
    let text = |name: &str| found.get(name).and_then(serde_json::Value::as_str);
    let broken =
        |reason: &str| CoordsError::Broken { place: "attribute `ragged`".to_owned(), reason: reason.to_owned() };
    let kind = text("kind").and_then(IndexKind::from_name);
    let kind = kind.ok_or_else(|| broken("`kind` is not offsets, ends or counts"))?;
    let index = text("index").ok_or_else(|| broken("`index` does not name an array"))?.to_owned();
    Ok(Some(Declared { kind, index, dimension: text("dimension").map(str::to_owned) }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_three_kinds_tell_the_same(lengths in prop::collection::vec(0_u64..9, 0..12)) {
            let mut offsets = vec![0];
            offsets.extend(lengths.iter().scan(0, |sum, length| { *sum += length; Some(*sum) }));
            let total = offsets.last().copied().unwrap_or_default();
            let of = |kind, values: &[u64]| Offsets::new(kind, &Values::Natural(values.to_vec()), total);
            let expected = Ok(Offsets(offsets.clone()));
            prop_assert_eq!(&of(IndexKind::Offsets, &offsets), &expected);
            prop_assert_eq!(&of(IndexKind::Ends, &offsets[1..]), &expected);
            prop_assert_eq!(&of(IndexKind::Counts, &lengths), &expected);
            for (sample, length) in (0..).zip(&lengths) {
                prop_assert_eq!(expected.as_ref().map(|offsets| offsets.of(sample).end - offsets.of(sample).start), Ok(*length));
            }
        }
    }

    #[test]
    fn what_does_not_fit_is_told() {
        let of = |kind, values: &[i64], len| Offsets::new(kind, &Values::Whole(values.to_vec()), len);
        for (kind, values, len) in [
            (IndexKind::Offsets, &[][..], 0),
            (IndexKind::Offsets, &[1, 3], 3),
            (IndexKind::Offsets, &[0, 3, 2, 4], 4),
            (IndexKind::Offsets, &[0, 3], 4),
            (IndexKind::Offsets, &[0, 5], 4),
            (IndexKind::Ends, &[2, 1], 1),
            (IndexKind::Ends, &[2, -1], 2),
            (IndexKind::Counts, &[2, 3], 4),
            (IndexKind::Counts, &[2, -1], 1),
            (IndexKind::Counts, &[i64::MAX, i64::MAX, i64::MAX], 4),
            (IndexKind::Ends, &[], 4),
        ] {
            assert!(of(kind, values, len).is_err(), "{kind:?} {values:?} {len}");
        }
        let real = Offsets::new(IndexKind::Ends, &Values::Double(vec![1.5]), 1);
        assert!(real.is_err());
        assert_eq!(of(IndexKind::Ends, &[], 0).map(|offsets| offsets.samples()), Ok(0));
    }
}
