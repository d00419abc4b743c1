//! Checksums of four bytes beside the bytes they cover, verified before any byte is used.

use bytes::Bytes;

use super::error::CodecError;

/// Bytes of every checksum here.
pub(super) const LEN: usize = 4;

/// Which checksum. All are stored little-endian.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Algorithm {
    /// CRC-32C (Castagnoli).
    Crc32c,
    /// CRC-32 of zlib.
    Crc32,
    /// Adler-32 of zlib.
    Adler32,
    /// Fletcher-32 as HDF5 computes it.
    Fletcher32,
}

/// At which end of the bytes the checksum is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    /// Before the bytes.
    Start,
    /// After the bytes.
    End,
}

impl Algorithm {
    /// The codec's name.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Crc32c => "crc32c",
            Self::Crc32 => "crc32",
            Self::Adler32 => "adler32",
            Self::Fletcher32 => "fletcher32",
        }
    }

    /// The checksum of `bytes`.
    pub(super) fn of(self, bytes: &[u8]) -> u32 {
        match self {
            Self::Crc32c => crc32c::crc32c(bytes),
            Self::Crc32 => {
                let mut crc = flate2::Crc::new();
                crc.update(bytes);
                crc.sum()
            }
            Self::Adler32 => simd_adler32::adler32(&bytes),
            Self::Fletcher32 => fletcher32(bytes),
        }
    }
}

/// Verifies the checksum and returns the bytes without it, uncopied.
pub(super) fn strip(stored: Bytes, algorithm: Algorithm, place: Place) -> Result<Bytes, CodecError> {
    let codec = algorithm.name();
    let body = stored.len().checked_sub(LEN).ok_or_else(|| CodecError::invalid(codec, stored.len(), "no checksum"))?;
    let (bytes, sum) = match place {
        Place::Start => (stored.slice(LEN..), &stored[..LEN]),
        Place::End => (stored.slice(..body), &stored[body..]),
    };
    let found = u32::from_le_bytes([sum[0], sum[1], sum[2], sum[3]]);
    let computed = algorithm.of(&bytes);
    if found != computed {
        return Err(CodecError::Checksum { codec, len: body, stored: found, computed });
    }
    Ok(bytes)
}

/// HDF5's `H5_checksum_fletcher32`: big-endian 16-bit words, an odd last byte as the high half of a word.
fn fletcher32(bytes: &[u8]) -> u32 {
    let fold = |sum: u32| (sum & 0xffff) + (sum >> 16);
    let (mut low, mut high) = (0_u32, 0_u32);
    // 360 words are the most that cannot overflow the sums between two folds.
    for block in bytes.chunks(720) {
        for word in block.chunks(2) {
            low += u32::from(word[0]) << 8 | word.get(1).map_or(0, |&b| u32::from(b));
            high += low;
        }
        low = fold(low);
        high = fold(high);
    }
    fold(high) << 16 | fold(low)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_answers() {
        assert_eq!(Algorithm::Crc32c.of(b"123456789"), 0xe306_9283);
        assert_eq!(Algorithm::Crc32.of(b"123456789"), 0xcbf4_3926);
        assert_eq!(Algorithm::Adler32.of(b"123456789"), 0x091e_01de);
    }

    #[test]
    fn a_checksum_in_front_is_stripped_too() {
        let mut stored = Algorithm::Crc32c.of(b"wicker").to_le_bytes().to_vec();
        stored.extend_from_slice(b"wicker");
        let bytes = strip(stored.into(), Algorithm::Crc32c, Place::Start).unwrap();
        assert_eq!(&bytes[..], b"wicker");
        assert!(strip(Bytes::from_static(b"abc"), Algorithm::Crc32c, Place::End).is_err());
    }
}
