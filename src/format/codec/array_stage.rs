//! Array → array codecs. Elements between the stages are row-major and little-endian.

use super::error::CodecError;
use super::{numeric, packbits, transpose};
use crate::model::{ChunkData, DType, shape};

/// Shape and type of a chunk at one place of the chain.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Repr {
    /// Elements per axis.
    pub(crate) shape: Vec<u64>,
    /// The element type.
    pub(crate) dtype: DType,
}

impl Repr {
    /// Bytes of the elements, or `None` when they vary in length or the size is absurd.
    pub(super) fn len_bytes(&self) -> Option<usize> {
        shape::bytes(&self.shape, self.dtype.size_bytes()?)?.try_into().ok()
    }

    /// Elements, or an error that blames `codec`.
    pub(super) fn elements(&self, codec: &'static str) -> Result<usize, CodecError> {
        shape::elements(&self.shape)
            .and_then(|n| n.try_into().ok())
            .ok_or_else(|| CodecError::Shape { codec, shape: self.shape.clone() })
    }
}

/// One axis of a reshaped chunk.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum ReshapedAxis {
    /// So many elements.
    Size(u64),
    /// What the other axes leave.
    Rest,
    /// The product of these axes of the decoded shape.
    Axes(Vec<usize>),
}

/// One array → array codec.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum ArrayStage {
    /// Axis `i` of the encoded array is axis `order[i]` of the decoded one.
    Transpose(Vec<usize>),
    /// Differences of neighbours in row-major order (numcodecs).
    Delta {
        /// Element type before encoding.
        decoded: DType,
        /// Element type of the differences.
        encoded: DType,
    },
    /// `(x - offset) * scale`, rounded (numcodecs).
    ScaleOffset {
        /// Element type before encoding.
        decoded: DType,
        /// Element type after.
        encoded: DType,
        /// The factor.
        scale: f64,
        /// What is subtracted first.
        offset: f64,
    },
    /// Another element type.
    Cast {
        /// Element type before encoding.
        decoded: DType,
        /// Element type after.
        encoded: DType,
    },
    /// numcodecs' `packbits`: a count of padding bits, then bits, first element in the highest bit.
    PackedBools,
    /// Axes of length 1 are left out.
    Squeeze,
    /// Another shape over the same elements.
    Reshape(Vec<ReshapedAxis>),
}

impl ArrayStage {
    /// The codec's name.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Transpose(_) => "transpose",
            Self::Delta { .. } => "delta",
            Self::ScaleOffset { .. } => "fixedscaleoffset",
            Self::Cast { .. } => "astype",
            Self::PackedBools => "packbits",
            Self::Squeeze => "squeeze",
            Self::Reshape(_) => "reshape",
        }
    }

    /// What a chunk is after this stage has encoded it, or an error when it does not fit.
    pub(crate) fn encoded(&self, decoded: &Repr) -> Result<Repr, CodecError> {
        let misfit = || CodecError::Shape { codec: self.name(), shape: decoded.shape.clone() };
        match self {
            Self::Transpose(order) => {
                if order.len() != decoded.shape.len() {
                    return Err(misfit());
                }
                Ok(Repr {
                    shape: order.iter().map(|&axis| decoded.shape[axis]).collect(),
                    dtype: decoded.dtype.clone(),
                })
            }
            Self::Delta { encoded, .. } | Self::ScaleOffset { encoded, .. } | Self::Cast { encoded, .. } => {
                Ok(Repr { shape: decoded.shape.clone(), dtype: encoded.clone() })
            }
            Self::PackedBools => {
                let bits = shape::elements(&decoded.shape).ok_or_else(misfit)?;
                Ok(Repr { shape: vec![1 + bits.div_ceil(8)], dtype: DType::UInt(8) })
            }
            Self::Squeeze => Ok(Repr {
                shape: decoded.shape.iter().copied().filter(|&n| n != 1).collect(),
                dtype: decoded.dtype.clone(),
            }),
            Self::Reshape(axes) => {
                let shape = reshaped(axes, &decoded.shape).ok_or_else(misfit)?;
                Ok(Repr { shape, dtype: decoded.dtype.clone() })
            }
        }
    }

    /// Undoes the stage: `data` has the shape and type of `encoded(decoded)`.
    pub(super) fn decode(&self, data: ChunkData, decoded: &Repr) -> Result<ChunkData, CodecError> {
        match (self, data) {
            (Self::Transpose(order), data) => transpose::decode(data, order, decoded),
            (Self::Squeeze | Self::Reshape(_), data) => Ok(data),
            (Self::Delta { decoded: to, encoded }, ChunkData::Fixed(bytes)) => {
                numeric::integrate(&bytes, encoded, to).map(|out| ChunkData::Fixed(out.into()))
            }
            (Self::ScaleOffset { decoded: to, encoded, scale, offset }, ChunkData::Fixed(bytes)) => {
                numeric::unscale(&bytes, encoded, to, *scale, *offset).map(|out| ChunkData::Fixed(out.into()))
            }
            (Self::Cast { decoded: to, encoded }, ChunkData::Fixed(bytes)) => {
                numeric::cast(&bytes, encoded, to).map(|out| ChunkData::Fixed(out.into()))
            }
            (Self::PackedBools, ChunkData::Fixed(bytes)) => {
                packbits::decode(&bytes, decoded.elements("packbits")?).map(|out| ChunkData::Fixed(out.into()))
            }
            (
                Self::Delta { .. } | Self::ScaleOffset { .. } | Self::Cast { .. } | Self::PackedBools,
                ChunkData::Variable(values),
            ) => Err(CodecError::invalid(self.name(), values.len(), "elements vary in length")),
        }
    }
}

/// The shape that `axes` make of `shape`, or `None` when the elements do not fit.
fn reshaped(axes: &[ReshapedAxis], shape: &[u64]) -> Option<Vec<u64>> {
    let total = shape::elements(shape)?;
    let mut out = Vec::with_capacity(axes.len());
    let mut rest = None;
    for (i, axis) in axes.iter().enumerate() {
        out.push(match axis {
            ReshapedAxis::Size(n) => *n,
            ReshapedAxis::Rest => {
                rest = Some(i);
                1
            }
            ReshapedAxis::Axes(list) => list.iter().try_fold(1_u64, |n, &axis| n.checked_mul(*shape.get(axis)?))?,
        });
    }
    let known = shape::elements(&out)?;
    if let Some(axis) = rest {
        out[axis] = total.checked_div(known)?;
    }
    (shape::elements(&out)? == total).then_some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reshaped_axis_takes_what_the_others_leave() {
        use ReshapedAxis::{Axes, Rest, Size};
        assert_eq!(reshaped(&[Axes(vec![0, 1]), Rest], &[2, 3, 4]), Some(vec![6, 4]));
        assert_eq!(reshaped(&[Size(5), Rest], &[2, 3, 4]), None);
        assert_eq!(reshaped(&[Axes(vec![7])], &[2]), None);
    }
}
