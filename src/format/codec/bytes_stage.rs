//! Bytes → bytes codecs, and how many bytes each may give.

use bytes::Bytes;

use super::checksum::{self, Algorithm, Place};
use super::error::CodecError;
use super::{blosc, bz2, deflate, lz4, shuffle, zstd};

/// How many bytes a stage must give, known before it runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Expected {
    /// This many, no more, no fewer.
    Exactly(usize),
    /// Up to this many: another compressor, or elements of variable length, follow.
    AtMost(usize),
}

impl Expected {
    /// The most bytes.
    pub(super) fn most(self) -> usize {
        match self {
            Self::Exactly(n) | Self::AtMost(n) => n,
        }
    }

    /// `n` bytes more.
    fn plus(self, n: usize) -> Self {
        match self {
            Self::Exactly(len) => Self::Exactly(len.saturating_add(n)),
            Self::AtMost(len) => Self::AtMost(len.saturating_add(n)),
        }
    }

    /// The same bounds for a codec that may take fewer bytes, or a few more: `packbits`, pcodec.
    pub(super) fn loosened(self) -> Self {
        self.compressed()
    }

    /// What a compressor makes of these bytes at worst. Real ones add under 1 % and a header; a quarter
    /// and 64 KiB leave room for odd encoders and still bound what a hostile stage can ask for.
    fn compressed(self) -> Self {
        let most = self.most();
        Self::AtMost(most.saturating_add(most / 4).saturating_add(64 * 1024))
    }

    /// Checks that `len` bytes are as expected of `codec`.
    pub(super) fn check(self, codec: &'static str, stored: usize, len: usize) -> Result<(), CodecError> {
        match self {
            Self::Exactly(expected) if len != expected => {
                Err(CodecError::Length { codec, expected: expected as u64, got: len as u64 })
            }
            Self::AtMost(limit) if len > limit => Err(CodecError::TooLong { codec, len: stored, limit: limit as u64 }),
            Self::Exactly(_) | Self::AtMost(_) => Ok(()),
        }
    }
}

/// One bytes → bytes codec.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum BytesStage {
    /// Zstandard frames.
    Zstd,
    /// RFC 1952 members.
    Gzip,
    /// An RFC 1950 stream.
    Zlib,
    /// bzip2.
    Bz2,
    /// numcodecs' LZ4: a little-endian u32 size, then one block.
    Lz4,
    /// Blosc 1 container.
    Blosc,
    /// numcodecs' byte shuffle.
    Shuffle {
        /// Bytes an element.
        size: usize,
    },
    /// A checksum beside the bytes.
    Checksum {
        /// Which.
        algorithm: Algorithm,
        /// Where.
        place: Place,
    },
}

impl BytesStage {
    /// The bounds of this stage's encoded form, given those of its decoded form.
    pub(super) fn encoded(&self, decoded: Expected) -> Expected {
        match self {
            Self::Zstd | Self::Gzip | Self::Zlib | Self::Bz2 | Self::Lz4 | Self::Blosc => decoded.compressed(),
            Self::Shuffle { .. } => decoded,
            Self::Checksum { .. } => decoded.plus(checksum::LEN),
        }
    }

    /// Whether the stage holds a checksum of its own that covers every byte.
    pub(super) fn is_checksum(&self) -> bool {
        match self {
            Self::Checksum { .. } => true,
            Self::Zstd | Self::Gzip | Self::Zlib | Self::Bz2 | Self::Lz4 | Self::Blosc | Self::Shuffle { .. } => false,
        }
    }

    /// Undoes the stage. Never holds more than `expected` bytes of output.
    pub(super) fn decode(&self, stored: Bytes, expected: Expected) -> Result<Bytes, CodecError> {
        match self {
            Self::Zstd => zstd::decode(&stored, expected),
            Self::Gzip => deflate::gzip(&stored, expected),
            Self::Zlib => deflate::zlib(&stored, expected),
            Self::Bz2 => bz2::decode(&stored, expected),
            Self::Lz4 => lz4::decode(&stored, expected),
            Self::Blosc => blosc::decode(&stored, expected),
            Self::Shuffle { size } => shuffle::decode(stored, *size),
            Self::Checksum { algorithm, place } => checksum::strip(stored, *algorithm, *place),
        }
    }
}

/// Reads all of `reader`, which decompresses `stored` bytes, and no more than `expected` allows.
pub(super) fn read_bounded(
    codec: &'static str,
    reader: impl std::io::Read,
    stored: usize,
    expected: Expected,
) -> Result<Bytes, CodecError> {
    use std::io::Read;

    // A known size is allocated at once (the allocator maps it lazily); an upper bound grows with the data.
    let capacity = match expected {
        Expected::Exactly(n) => n,
        Expected::AtMost(n) => n.min(stored.saturating_mul(4)),
    };
    let mut out = Vec::with_capacity(capacity);
    reader
        .take((expected.most() as u64).saturating_add(1))
        .read_to_end(&mut out)
        .map_err(|e| CodecError::invalid(codec, stored, e))?;
    if out.len() > expected.most() {
        return Err(CodecError::TooLong { codec, len: stored, limit: expected.most() as u64 });
    }
    expected.check(codec, stored, out.len())?;
    Ok(out.into())
}
