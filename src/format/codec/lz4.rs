//! LZ4 as numcodecs stores it: the decoded size as a little-endian u32, then one LZ4 block.

use bytes::Bytes;

use super::bytes_stage::Expected;
use super::error::CodecError;

const CODEC: &str = "lz4";

/// The most that one byte of an LZ4 block can add to the output: a run-length byte of 255.
const MAX_RATIO: usize = 255;

/// Decodes the block. The size in front is believed only after it agrees with what is expected.
pub(super) fn decode(stored: &[u8], expected: Expected) -> Result<Bytes, CodecError> {
    let Some((size, block)) = stored.split_first_chunk::<4>() else {
        return Err(CodecError::invalid(CODEC, stored.len(), "no size in front"));
    };
    let size = u32::from_le_bytes(*size) as usize;
    expected.check(CODEC, stored.len(), size)?;
    if size > block.len().saturating_mul(MAX_RATIO) {
        return Err(CodecError::invalid(CODEC, stored.len(), format!("cannot hold {size} bytes")));
    }
    let mut out = vec![0; size];
    let written =
        lz4_flex::block::decompress_into(block, &mut out).map_err(|e| CodecError::invalid(CODEC, stored.len(), e))?;
    if written != size {
        return Err(CodecError::Length { codec: CODEC, expected: size as u64, got: written as u64 });
    }
    Ok(out.into())
}
