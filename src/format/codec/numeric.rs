//! Codecs that compute with elements: differences, scale and offset, casts. All as numpy computes them.

use super::error::CodecError;
use crate::model::{DType, FloatKind};

/// Whether these codecs can compute with elements of `dtype`.
pub(crate) fn is_number(dtype: &DType) -> bool {
    matches!(dtype, DType::Int(8 | 16 | 32 | 64) | DType::UInt(8 | 16 | 32 | 64))
        || matches!(dtype, DType::Float(FloatKind::F16 | FloatKind::F32 | FloatKind::F64))
}

/// One element: wide enough for every number type here.
#[derive(Debug, Clone, Copy)]
enum Number {
    Int(i128),
    Float(f64),
}

impl Number {
    fn float(self) -> f64 {
        match self {
            Self::Int(i) => i as f64,
            Self::Float(f) => f,
        }
    }
}

/// How to read, convert and write elements of one type.
#[derive(Debug, Clone, Copy)]
enum Layout {
    Int { bytes: usize, signed: bool },
    F16,
    F32,
    F64,
}

impl Layout {
    fn of(codec: &'static str, dtype: &DType) -> Result<Self, CodecError> {
        match dtype {
            DType::Int(bits @ (8 | 16 | 32 | 64)) => Ok(Self::Int { bytes: usize::from(*bits) / 8, signed: true }),
            DType::UInt(bits @ (8 | 16 | 32 | 64)) => Ok(Self::Int { bytes: usize::from(*bits) / 8, signed: false }),
            DType::Float(FloatKind::F16) => Ok(Self::F16),
            DType::Float(FloatKind::F32) => Ok(Self::F32),
            DType::Float(FloatKind::F64) => Ok(Self::F64),
            other => Err(CodecError::invalid(codec, 0, format!("no arithmetic on `{other}`"))),
        }
    }

    fn size(self) -> usize {
        match self {
            Self::Int { bytes, .. } => bytes,
            Self::F16 => 2,
            Self::F32 => 4,
            Self::F64 => 8,
        }
    }

    fn read(self, bytes: &[u8]) -> Number {
        let mut word = [0; 8];
        word[..bytes.len()].copy_from_slice(bytes);
        let word = u64::from_le_bytes(word);
        match self {
            Self::Int { bytes, signed: true } => {
                let shift = 64 - 8 * bytes;
                Number::Int(i128::from((word << shift) as i64 >> shift))
            }
            Self::Int { signed: false, .. } => Number::Int(i128::from(word)),
            Self::F16 => Number::Float(half::f16::from_bits(word as u16).to_f64()),
            Self::F32 => Number::Float(f64::from(f32::from_bits(word as u32))),
            Self::F64 => Number::Float(f64::from_bits(word)),
        }
    }

    /// As numpy casts: integers wrap, floats are truncated towards zero.
    fn write(self, number: Number, out: &mut Vec<u8>) {
        match self {
            Self::Int { bytes, .. } => {
                let wide = match number {
                    Number::Int(i) => i,
                    Number::Float(f) => f as i128,
                };
                out.extend_from_slice(&wide.to_le_bytes()[..bytes]);
            }
            Self::F16 => out.extend_from_slice(&half::f16::from_f64(number.float()).to_le_bytes()),
            Self::F32 => {
                let f = match number {
                    Number::Int(i) => i as f32,
                    Number::Float(f) => f as f32,
                };
                out.extend_from_slice(&f.to_le_bytes());
            }
            Self::F64 => out.extend_from_slice(&number.float().to_le_bytes()),
        }
    }

    /// The sum, in this type's own arithmetic; both are values of this type.
    fn add(self, a: Number, b: Number) -> Number {
        match (self, a, b) {
            (Self::Int { bytes, signed }, Number::Int(a), Number::Int(b)) => {
                let sum = (a + b).to_le_bytes();
                Self::Int { bytes, signed }.read(&sum[..bytes])
            }
            (Self::F16, a, b) => Number::Float(half::f16::from_f64(a.float() + b.float()).to_f64()),
            (Self::F32, a, b) => Number::Float(f64::from(a.float() as f32 + b.float() as f32)),
            (Self::F64 | Self::Int { .. }, a, b) => Number::Float(a.float() + b.float()),
        }
    }
}

fn map(bytes: &[u8], from: Layout, to: Layout, mut f: impl FnMut(Number) -> Number) -> Vec<u8> {
    let mut out = Vec::with_capacity(bytes.len() / from.size() * to.size());
    for element in bytes.chunks_exact(from.size()) {
        to.write(f(from.read(element)), &mut out);
    }
    out
}

/// Undoes numcodecs' `delta`: the running sum of the differences, computed in the decoded type.
pub(super) fn integrate(bytes: &[u8], encoded: &DType, decoded: &DType) -> Result<Vec<u8>, CodecError> {
    let (from, to) = (Layout::of("delta", encoded)?, Layout::of("delta", decoded)?);
    let mut sum = None;
    let mut one = Vec::with_capacity(8);
    Ok(map(bytes, from, to, |difference| {
        one.clear();
        to.write(difference, &mut one);
        let difference = to.read(&one);
        let next = sum.map_or(difference, |sum| to.add(sum, difference));
        sum = Some(next);
        next
    }))
}

/// Undoes numcodecs' `fixedscaleoffset`: `x / scale + offset`, in float32 for float32 and in float64 otherwise.
pub(super) fn unscale(
    bytes: &[u8],
    encoded: &DType,
    decoded: &DType,
    scale: f64,
    offset: f64,
) -> Result<Vec<u8>, CodecError> {
    let (from, to) = (Layout::of("fixedscaleoffset", encoded)?, Layout::of("fixedscaleoffset", decoded)?);
    Ok(map(bytes, from, to, |x| match from {
        Layout::F32 => Number::Float(f64::from(x.float() as f32 / scale as f32 + offset as f32)),
        Layout::F16 => {
            let half = |f: f64| half::f16::from_f64(f).to_f64();
            Number::Float(half(half(x.float() / half(scale)) + half(offset)))
        }
        Layout::F64 | Layout::Int { .. } => Number::Float(x.float() / scale + offset),
    }))
}

/// Undoes a cast.
pub(super) fn cast(bytes: &[u8], encoded: &DType, decoded: &DType) -> Result<Vec<u8>, CodecError> {
    let (from, to) = (Layout::of("astype", encoded)?, Layout::of("astype", decoded)?);
    Ok(map(bytes, from, to, |x| x))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_running_sum_wraps_in_the_decoded_type() {
        let out = integrate(&[100, 2, 0xff], &DType::Int(8), &DType::Int(16)).unwrap();
        assert_eq!(out, [100_i16, 102, 101].map(i16::to_le_bytes).concat());
        let out = integrate(&[250, 10], &DType::UInt(8), &DType::UInt(8)).unwrap();
        assert_eq!(out, [250, 4]);
    }

    #[test]
    fn scale_and_offset_are_undone() {
        let out = unscale(&[0, 9], &DType::UInt(8), &DType::Float(FloatKind::F64), 9.0, 1000.0).unwrap();
        assert_eq!(out, [1000.0_f64, 1001.0].map(f64::to_le_bytes).concat());
    }

    #[test]
    fn a_cast_to_an_integer_truncates() {
        let bytes = [-1.9_f32, 2.9].map(f32::to_le_bytes).concat();
        assert_eq!(cast(&bytes, &DType::Float(FloatKind::F32), &DType::Int(8)).unwrap(), [0xff, 2]);
    }
}
