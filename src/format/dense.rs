//! Arrays that are one run of uncompressed bytes within a file: the virtual chunks that they are read in.

use serde_json::json;

use super::blocks::BLOCK_BYTES;
use super::codec::ChunkCodec;
use super::{ArrayMeta, FormatError, SourceFormat, Storage};
use crate::model::{DType, shape};

/// One array within a file, as its header describes it.
pub(super) struct DenseArray {
    /// Elements per axis.
    pub(super) shape: Vec<u64>,
    /// The element type.
    pub(super) dtype: DType,
    /// Its words are big-endian.
    pub(super) big_endian: bool,
    /// The first axis is the fastest in the file.
    pub(super) fortran: bool,
    /// Where the first element lies, in bytes.
    pub(super) offset: u64,
}

impl DenseArray {
    /// The array's description; axes have no names and there are no attributes.
    pub(super) fn meta(self, document: &'static str, format: SourceFormat) -> Result<ArrayMeta, FormatError> {
        let Self { shape, dtype, big_endian, fortran, offset } = self;
        let malformed = |reason: String| FormatError::Malformed { document, reason };
        let size = dtype.size_bytes().ok_or_else(|| malformed(format!("elements of `{dtype}` vary in length")))?;
        let mut order: Vec<usize> = (0..shape.len()).collect();
        if fortran {
            order.reverse();
        }
        let block = block(&shape, &order, size as u64);
        let codec =
            ChunkCodec::dense(dtype.clone(), &block, &order, big_endian).map_err(|e| malformed(e.to_string()))?;
        let endian = if big_endian { "big" } else { "little" };
        Ok(ArrayMeta {
            fill: vec![0; size],
            dims: vec![None; shape.len()],
            attributes: Default::default(),
            format,
            storage: Storage::Dense { offset, order, block },
            codec,
            stored_codecs: json!([{ "name": "bytes", "configuration": { "endian": endian } }]),
            shape,
            dtype,
        })
    }

    /// Bytes of all elements, or `None` when they pass 2^64.
    pub(super) fn len_bytes(&self) -> Option<u64> {
        shape::bytes(&self.shape, self.dtype.size_bytes()?)
    }
}

/// The shape of blocks of about [`BLOCK_BYTES`] that are contiguous in the file: one axis is cut, those faster in the
/// file are whole, those slower have length 1. Every entry is at least 1, also on axes of length 0.
fn block(shape: &[u64], order: &[usize], size: u64) -> Vec<u64> {
    let mut block = vec![1; shape.len()];
    let mut bytes = size.max(1);
    for &axis in order.iter().rev() {
        let fits = (BLOCK_BYTES / bytes).max(1);
        block[axis] = shape[axis].clamp(1, fits);
        if block[axis] < shape[axis] {
            break;
        }
        bytes = bytes.saturating_mul(block[axis]);
    }
    block
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(shape: &[u64], order: &[usize], size: u64, expected: &[u64]) {
        assert_eq!(block(shape, order, size), expected, "{shape:?} in {order:?}");
    }

    #[test]
    fn blocks_are_contiguous_and_near_a_quarter_mebibyte() {
        check(&[1000, 256, 256], &[0, 1, 2], 4, &[1, 256, 256]);
        check(&[1000, 256, 256], &[2, 1, 0], 4, &[1000, 65, 1]);
        check(&[1 << 30], &[0], 1, &[1 << 18]);
        check(&[3, 5], &[0, 1], 8, &[3, 5]);
        check(&[2, 1 << 40], &[0, 1], 1, &[1, 1 << 18]);
    }

    #[test]
    fn degenerate_shapes_have_blocks_of_at_least_one() {
        check(&[], &[], 8, &[]);
        check(&[0, 7], &[0, 1], 4, &[1, 7]);
        check(&[7, 0], &[0, 1], 4, &[7, 1]);
        check(&[4], &[0], 1 << 30, &[1]);
    }
}
