//! Byte order of packed elements.

use bytes::{Bytes, BytesMut};

/// Reverses every word of `word` bytes; in place where no one else holds the bytes.
///
/// The length must be a multiple of `word`; words of 1 byte need nothing.
pub(super) fn swap(bytes: Bytes, word: usize) -> Bytes {
    if word <= 1 {
        return bytes;
    }
    let mut bytes = bytes.try_into_mut().unwrap_or_else(|shared| BytesMut::from(&shared[..]));
    match word {
        2 => bytes.as_chunks_mut::<2>().0.iter_mut().for_each(|w| w.reverse()),
        4 => bytes.as_chunks_mut::<4>().0.iter_mut().for_each(|w| w.reverse()),
        8 => bytes.as_chunks_mut::<8>().0.iter_mut().for_each(|w| w.reverse()),
        _ => bytes.chunks_exact_mut(word).for_each(<[u8]>::reverse),
    }
    bytes.freeze()
}
