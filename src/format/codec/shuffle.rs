//! numcodecs' byte shuffle: all first bytes of the elements, then all second bytes, and so on.

use bytes::Bytes;

use super::error::CodecError;

/// Puts the bytes of each element of `size` bytes together again.
pub(super) fn decode(stored: Bytes, size: usize) -> Result<Bytes, CodecError> {
    if size <= 1 {
        return Ok(stored);
    }
    if !stored.len().is_multiple_of(size) {
        let reason = format!("not a multiple of the element size {size}");
        return Err(CodecError::invalid("shuffle", stored.len(), reason));
    }
    let count = stored.len() / size;
    let mut out = vec![0; stored.len()];
    if count > 0 {
        for (byte, plane) in stored.chunks_exact(count).enumerate() {
            for (element, value) in out.chunks_exact_mut(size).zip(plane) {
                element[byte] = *value;
            }
        }
    }
    Ok(out.into())
}
