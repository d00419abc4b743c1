//! Arithmetic on shapes: elements per axis, row-major. Checked, since shapes come from files and requests.

use super::PerAxis;

/// The number of elements of `shape`, or `None` beyond 2^64 - 1. A shape without axes holds one.
pub fn elements(shape: &[u64]) -> Option<u64> {
    if shape.contains(&0) {
        return Some(0);
    }
    shape.iter().try_fold(1_u64, |n, &d| n.checked_mul(d))
}

/// The number of bytes of `shape` with elements of `size` bytes, or `None` when it does not fit.
pub fn bytes(shape: &[u64], size: usize) -> Option<u64> {
    elements(shape)?.checked_mul(size as u64)
}

/// Row-major strides in elements: the last axis moves fastest. Saturates for absurd shapes, which no
/// caller indexes: their sizes are refused first.
pub fn strides(shape: &[u64]) -> PerAxis<u64> {
    let mut strides = PerAxis::from_elem(1_u64, shape.len());
    for axis in (0..shape.len().saturating_sub(1)).rev() {
        strides[axis] = strides[axis + 1].saturating_mul(shape[axis + 1].max(1));
    }
    strides
}

/// The row-major position `linear` of `shape` as coordinates.
///
/// Every axis must be at least 1 long and `linear` below the number of elements.
pub fn unravel(mut linear: u64, shape: &[u64]) -> Vec<u64> {
    let mut coord = vec![0; shape.len()];
    for axis in (0..shape.len()).rev() {
        coord[axis] = linear % shape[axis];
        linear /= shape[axis];
    }
    coord
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shape_without_axes_holds_one_element() {
        assert_eq!(elements(&[]), Some(1));
    }

    #[test]
    fn a_zero_axis_beats_an_absurd_one() {
        assert_eq!(elements(&[u64::MAX, 0, u64::MAX]), Some(0));
        assert_eq!(elements(&[u64::MAX, 2]), None);
    }

    #[test]
    fn unravel_inverts_the_strides() {
        let shape = [3, 4, 5];
        let strides = strides(&shape);
        for linear in 0..60 {
            let coord = unravel(linear, &shape);
            let back: u64 = coord.iter().zip(&strides).map(|(c, s)| c * s).sum();
            assert_eq!(back, linear);
        }
    }
}
