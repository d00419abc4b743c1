//! Elements of any length (`vlen-utf8`, `vlen-bytes`): a count, then each element behind its length, all u32 little-endian.

use super::error::CodecError;

/// Splits `stored` into `count` elements; with `utf8` each must be valid UTF-8.
pub(super) fn decode(stored: &[u8], count: usize, utf8: bool) -> Result<Vec<Box<[u8]>>, CodecError> {
    let codec = if utf8 { "vlen-utf8" } else { "vlen-bytes" };
    let invalid = |reason: String| CodecError::invalid(codec, stored.len(), reason);
    let mut rest = stored;
    let mut number = || -> Option<usize> {
        let (word, tail) = rest.split_first_chunk::<4>()?;
        rest = tail;
        Some(u32::from_le_bytes(*word) as usize)
    };
    let claimed = number().ok_or_else(|| invalid("no element count".into()))?;
    if claimed != count {
        return Err(invalid(format!("holds {claimed} elements, the chunk has {count}")));
    }
    // Every element has a length of four bytes: a count that they do not allow is never allocated.
    if rest.len() / 4 < count {
        return Err(invalid(format!("too short for {count} elements")));
    }
    let mut values = Vec::with_capacity(count);
    for i in 0..count {
        let (len, tail) = rest.split_first_chunk::<4>().ok_or_else(|| invalid(format!("ends before element {i}")))?;
        let (value, tail) = tail
            .split_at_checked(u32::from_le_bytes(*len) as usize)
            .ok_or_else(|| invalid(format!("ends within element {i}")))?;
        if utf8 && std::str::from_utf8(value).is_err() {
            return Err(invalid(format!("element {i} is not UTF-8")));
        }
        values.push(value.into());
        rest = tail;
    }
    if !rest.is_empty() {
        return Err(invalid(format!("{} bytes follow the last element", rest.len())));
    }
    Ok(values)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_stand_behind_their_lengths() {
        let stored = b"\x02\0\0\0\x02\0\0\0hi\0\0\0\0";
        assert_eq!(decode(stored, 2, true).unwrap(), [Box::from(*b"hi"), Box::from(*b"")]);
        for cut in 0..stored.len() {
            assert!(decode(&stored[..cut], 2, true).is_err());
        }
        assert!(decode(b"\x01\0\0\0\x01\0\0\0\xff", 1, true).is_err());
        assert!(decode(b"\xff\xff\xff\xff", u32::MAX as usize, false).is_err());
    }
}
