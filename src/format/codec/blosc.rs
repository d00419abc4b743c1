//! Blosc 1 containers, decoded by c-blosc through zarrs, which keeps `unsafe` out of this crate.

use bytes::Bytes;
use zarrs::array::codec::{blosc_decompress_bytes, blosc_validate};

use super::bytes_stage::Expected;
use super::error::CodecError;

const CODEC: &str = "blosc";

/// Bytes of a container's header.
const HEADER: usize = 16;

/// Decodes one container. c-blosc trusts the lengths in the header, so they are compared with the truth first.
pub(super) fn decode(stored: &[u8], expected: Expected) -> Result<Bytes, CodecError> {
    let len = stored.len();
    if len < HEADER {
        return Err(CodecError::invalid(CODEC, len, "shorter than the header"));
    }
    let word = |at: usize| u32::from_le_bytes([stored[at], stored[at + 1], stored[at + 2], stored[at + 3]]) as usize;
    let (decoded, container) = (word(4), word(12));
    if container != len {
        return Err(CodecError::invalid(CODEC, len, format!("the header claims {container} bytes")));
    }
    expected.check(CODEC, len, decoded)?;
    if decoded == 0 {
        return Ok(Bytes::new());
    }
    if blosc_validate(stored) != Some(decoded) {
        return Err(CodecError::invalid(CODEC, len, "the header is invalid"));
    }
    let out = blosc_decompress_bytes(stored, decoded, 1).map_err(|e| CodecError::invalid(CODEC, len, e))?;
    if out.len() != decoded {
        return Err(CodecError::Length { codec: CODEC, expected: decoded as u64, got: out.len() as u64 });
    }
    Ok(out.into())
}
