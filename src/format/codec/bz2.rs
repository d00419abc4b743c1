//! bzip2.

use bytes::Bytes;
use bzip2::bufread::MultiBzDecoder;

use super::bytes_stage::{Expected, read_bounded};
use super::error::CodecError;

/// Decodes one or more bzip2 streams, joined.
pub(super) fn decode(stored: &[u8], expected: Expected) -> Result<Bytes, CodecError> {
    read_bounded("bz2", MultiBzDecoder::new(stored), stored.len(), expected)
}
