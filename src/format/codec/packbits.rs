//! numcodecs' `packbits`: booleans as bits, the first element in the highest bit.

use super::error::CodecError;

/// Unpacks `count` booleans. The first byte says how many bits at the end are padding.
pub(super) fn decode(stored: &[u8], count: usize) -> Result<Vec<u8>, CodecError> {
    let invalid = |reason: String| CodecError::invalid("packbits", stored.len(), reason);
    let Some((&padding, bits)) = stored.split_first() else { return Err(invalid("no padding count".into())) };
    if bits.len() != count.div_ceil(8) || usize::from(padding) != bits.len() * 8 - count {
        return Err(invalid(format!("{padding} bits of padding do not leave {count} elements")));
    }
    Ok((0..count).map(|i| bits[i / 8] >> (7 - i % 8) & 1).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_are_taken_from_the_top() {
        assert_eq!(decode(&[5, 0b1010_0000], 3), Ok(vec![1, 0, 1]));
        assert!(decode(&[4, 0b1010_0000], 3).is_err());
        assert!(decode(&[], 0).is_err());
    }
}
