//! gzip and zlib. Both end with a checksum of their own, which is verified.

use bytes::Bytes;
use flate2::bufread::{MultiGzDecoder, ZlibDecoder};

use super::bytes_stage::{Expected, read_bounded};
use super::error::CodecError;

/// Decodes one or more gzip members, joined.
pub(super) fn gzip(stored: &[u8], expected: Expected) -> Result<Bytes, CodecError> {
    read_bounded("gzip", MultiGzDecoder::new(stored), stored.len(), expected)
}

/// Decodes one zlib stream.
pub(super) fn zlib(stored: &[u8], expected: Expected) -> Result<Bytes, CodecError> {
    read_bounded("zlib", ZlibDecoder::new(stored), stored.len(), expected)
}
