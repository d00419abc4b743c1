//! Axis permutations: from the stored order of axes to row-major.

use super::array_stage::Repr;
use super::error::CodecError;
use crate::model::{ChunkData, shape};

const CODEC: &str = "transpose";

/// Edge, in elements, of the square tiles in which two axes are swapped: 32 rows of one cache line each
/// stay in the first-level cache while both sides are walked.
const TILE: usize = 32;

/// Undoes a transpose: axis `i` of `data` is axis `order[i]` of the result, whose shape is `decoded.shape`.
pub(super) fn decode(data: ChunkData, order: &[usize], decoded: &Repr) -> Result<ChunkData, CodecError> {
    if order.iter().enumerate().all(|(i, &axis)| i == axis) {
        return Ok(data);
    }
    let walk = Walk::new(order, &decoded.shape);
    let elements = decoded.elements(CODEC)?;
    match data {
        ChunkData::Variable(mut values) => {
            if values.len() != elements {
                return Err(CodecError::Length { codec: CODEC, expected: elements as u64, got: values.len() as u64 });
            }
            let mut out = vec![Box::default(); elements];
            walk.each(|to, from| std::mem::swap(&mut out[to], &mut values[from]));
            Ok(ChunkData::Variable(out))
        }
        ChunkData::Fixed(bytes) => {
            let size = decoded.dtype.size_bytes().unwrap_or(1);
            let len =
                decoded.len_bytes().ok_or_else(|| CodecError::Shape { codec: CODEC, shape: decoded.shape.clone() })?;
            if bytes.len() != len {
                return Err(CodecError::Length { codec: CODEC, expected: len as u64, got: bytes.len() as u64 });
            }
            let mut out = vec![0_u8; len];
            match size {
                1 => permute::<1>(&bytes, &mut out, &walk),
                2 => permute::<2>(&bytes, &mut out, &walk),
                4 => permute::<4>(&bytes, &mut out, &walk),
                8 => permute::<8>(&bytes, &mut out, &walk),
                16 => permute::<16>(&bytes, &mut out, &walk),
                _ => walk.each(|to, from| {
                    out[to * size..(to + 1) * size].copy_from_slice(&bytes[from * size..(from + 1) * size]);
                }),
            }
            Ok(ChunkData::Fixed(out.into()))
        }
    }
}

/// Elements of one known size, so that each move is one load and one store.
fn permute<const N: usize>(bytes: &[u8], out: &mut [u8], walk: &Walk) {
    let from_elements = bytes.as_chunks::<N>().0;
    let to_elements = out.as_chunks_mut::<N>().0;
    walk.each(|to, from| to_elements[to] = from_elements[from]);
}

/// The pairs (position in the result, position in the stored array), tile by tile.
struct Walk {
    /// The result's axes, outermost first, as (length, stride in the result, stride in the stored array).
    /// The two last are the axis that is fastest in the stored array and the one that is fastest in the result.
    axes: Vec<(usize, usize, usize)>,
}

impl Walk {
    fn new(order: &[usize], shape: &[u64]) -> Self {
        let stored_shape: Vec<u64> = order.iter().map(|&axis| shape[axis]).collect();
        let (to_strides, stored_strides) = (shape::strides(shape), shape::strides(&stored_shape));
        let mut axes: Vec<(usize, usize, usize)> = Vec::with_capacity(shape.len());
        for (axis, &n) in shape.iter().enumerate() {
            let stored_axis = order.iter().position(|&a| a == axis).unwrap_or(axis);
            let next = (n as usize, to_strides[axis] as usize, stored_strides[stored_axis] as usize);
            match axes.last_mut() {
                // Neighbours in both orders are one axis.
                Some(last) if last.1 == next.0 * next.1 && last.2 == next.0 * next.2 => {
                    *last = (last.0 * next.0, next.1, next.2);
                }
                Some(_) | None => axes.push(next),
            }
        }
        if axes.len() >= 2 {
            let fastest_stored =
                (0..axes.len() - 1).min_by_key(|&i| if axes[i].0 == 1 { usize::MAX } else { axes[i].2 });
            if let Some(i) = fastest_stored {
                let axis = axes.remove(i);
                axes.insert(axes.len() - 1, axis);
            }
        }
        Self { axes }
    }

    /// Calls `visit` once for every element.
    fn each(&self, mut visit: impl FnMut(usize, usize)) {
        if self.axes.iter().any(|axis| axis.0 == 0) {
            return;
        }
        let mut axes = self.axes.clone();
        while axes.len() < 2 {
            axes.insert(0, (1, 0, 0));
        }
        let (outer, inner) = axes.split_at(axes.len() - 2);
        let (rows, columns) = (inner[0], inner[1]);
        let mut coord = vec![0_usize; outer.len()];
        loop {
            let to: usize = coord.iter().zip(outer).map(|(c, axis)| c * axis.1).sum();
            let from: usize = coord.iter().zip(outer).map(|(c, axis)| c * axis.2).sum();
            for row0 in (0..rows.0).step_by(TILE) {
                for column0 in (0..columns.0).step_by(TILE) {
                    for row in row0..rows.0.min(row0 + TILE) {
                        for column in column0..columns.0.min(column0 + TILE) {
                            visit(to + row * rows.1 + column * columns.1, from + row * rows.2 + column * columns.2);
                        }
                    }
                }
            }
            let Some(axis) = (0..outer.len()).rev().find(|&axis| coord[axis] + 1 < outer[axis].0) else { return };
            coord[axis] += 1;
            coord[axis + 1..].fill(0);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::model::DType;

    /// The stored position of each element, one coordinate at a time.
    fn oracle(shape: &[u64], order: &[usize]) -> Vec<usize> {
        let stored: Vec<u64> = order.iter().map(|&axis| shape[axis]).collect();
        let strides = shape::strides(&stored);
        (0..shape::elements(shape).unwrap())
            .map(|i| {
                let coord = shape::unravel(i, shape);
                order.iter().zip(&strides).map(|(&axis, s)| coord[axis] * s).sum::<u64>() as usize
            })
            .collect()
    }

    fn shapes_with_orders() -> impl Strategy<Value = (Vec<u64>, Vec<usize>)> {
        (0_usize..5).prop_flat_map(|rank| {
            let axes: Vec<usize> = (0..rank).collect();
            (prop::collection::vec(1_u64..40, rank), Just(axes).prop_shuffle())
                .prop_filter("small", |(shape, _)| shape.iter().product::<u64>() < 20_000)
        })
    }

    proptest! {
        #[test]
        fn every_element_finds_its_place((shape, order) in shapes_with_orders(), size in prop::sample::select(vec![1_u32, 2, 3, 4, 8, 16])) {
            let positions = oracle(&shape, &order);
            let stored: Vec<u8> = (0..positions.len() * size as usize).map(|i| (i * 31 % 251) as u8).collect();
            let expected: Vec<u8> = positions
                .iter()
                .flat_map(|&p| stored[p * size as usize..(p + 1) * size as usize].to_vec())
                .collect();
            let repr = Repr { shape, dtype: DType::RawBits(size) };
            let data = decode(ChunkData::Fixed(stored.into()), &order, &repr).unwrap();
            prop_assert_eq!(data, ChunkData::Fixed(expected.into()));
        }
    }

    #[test]
    fn strings_move_too() {
        let values = ["a", "b", "c", "d", "e", "f"].map(|s| s.as_bytes().into()).to_vec();
        let repr = Repr { shape: vec![2, 3], dtype: DType::String };
        let data = decode(ChunkData::Variable(values), &[1, 0], &repr).unwrap();
        let expected = ["a", "c", "e", "b", "d", "f"].map(|s| s.as_bytes().into()).to_vec();
        assert_eq!(data, ChunkData::Variable(expected));
    }
}
