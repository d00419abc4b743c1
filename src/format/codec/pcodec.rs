//! pcodec's standalone format, as numcodecs writes it.

use pco::data_types::Number;
use pco::standalone::simple_decompress_into;

use super::error::CodecError;
use crate::model::{DType, FloatKind};

const CODEC: &str = "pcodec";

/// Whether pcodec has `dtype`; complex numbers are pairs of reals.
pub(crate) fn holds(dtype: &DType) -> bool {
    matches!(dtype, DType::Int(16 | 32 | 64) | DType::UInt(16 | 32 | 64))
        || matches!(
            dtype,
            DType::Float(FloatKind::F16 | FloatKind::F32 | FloatKind::F64)
                | DType::Complex(FloatKind::F32 | FloatKind::F64)
        )
}

/// Decodes exactly `len` bytes of little-endian elements.
pub(super) fn decode(stored: &[u8], dtype: &DType, len: usize) -> Result<Vec<u8>, CodecError> {
    // The library is fuzzed, but a panic in it must stay an error about one chunk.
    let run = || match dtype {
        DType::Int(16) => numbers(stored, len, i16::to_le_bytes),
        DType::Int(32) => numbers(stored, len, i32::to_le_bytes),
        DType::Int(64) => numbers(stored, len, i64::to_le_bytes),
        DType::UInt(16) => numbers(stored, len, u16::to_le_bytes),
        DType::UInt(32) => numbers(stored, len, u32::to_le_bytes),
        DType::UInt(64) => numbers(stored, len, u64::to_le_bytes),
        DType::Float(FloatKind::F16) => numbers(stored, len, half::f16::to_le_bytes),
        DType::Float(FloatKind::F32) | DType::Complex(FloatKind::F32) => numbers(stored, len, f32::to_le_bytes),
        DType::Float(FloatKind::F64) | DType::Complex(FloatKind::F64) => numbers(stored, len, f64::to_le_bytes),
        other => Err(CodecError::invalid(CODEC, stored.len(), format!("no `{other}`"))),
    };
    std::panic::catch_unwind(run).unwrap_or_else(|_| Err(CodecError::invalid(CODEC, stored.len(), "panicked")))
}

fn numbers<T: Number + Default, const N: usize>(
    stored: &[u8],
    len: usize,
    to_bytes: impl Fn(T) -> [u8; N],
) -> Result<Vec<u8>, CodecError> {
    let mut out = vec![T::default(); len / N];
    let progress = simple_decompress_into(stored, &mut out).map_err(|e| CodecError::invalid(CODEC, stored.len(), e))?;
    if progress.n_processed != out.len() || !progress.finished {
        let got = (progress.n_processed * N) as u64;
        return Err(CodecError::Length { codec: CODEC, expected: len as u64, got });
    }
    Ok(out.into_iter().flat_map(to_bytes).collect())
}
