//! numpy's `.npy`, byte for byte as numpy 2 writes it.
//!
//! Specification: <https://numpy.org/neps/nep-0001-npy-format.html>.

use super::{Description, WireError};

const MAGIC: &[u8] = b"\x93NUMPY";

/// The elements start at a multiple of this many bytes, so that a mapped file is aligned for any type.
const ALIGN: usize = 64;

/// numpy leaves room for the first axis to grow to so many digits in place.
const GROWTH_DIGITS: usize = 21;

/// Why `.npy` cannot hold the answer, if it cannot.
pub(super) fn obstacle(description: &Description<'_>) -> Option<String> {
    let missing = description.dtype.numpy_descr().is_none();
    missing.then(|| format!("numpy has no type for {}", description.dtype))
}

/// The magic, the version and the header, padded with spaces and ended by a line feed.
pub(super) fn head(description: &Description<'_>) -> Result<Vec<u8>, WireError> {
    let descr = description.dtype.numpy_descr().unwrap_or_default();
    let axes: Vec<String> = description.shape.iter().map(u64::to_string).collect();
    let shape = match axes.as_slice() {
        [only] => format!("({only},)"),
        axes => format!("({})", axes.join(", ")),
    };
    let mut header = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}");
    if let Some(first) = axes.first() {
        header.extend(std::iter::repeat_n(' ', GROWTH_DIGITS.saturating_sub(first.len())));
    }
    // Version 1 counts the header in 16 bits, version 2 in 32.
    let (version, count_bytes) = if padded_len(header.len(), 2) <= usize::from(u16::MAX) { (1_u8, 2) } else { (2, 4) };
    let len = padded_len(header.len(), count_bytes);
    let len_u32 = u32::try_from(len).map_err(|_| WireError::TooLong)?;
    header.extend(std::iter::repeat_n(' ', len - header.len() - 1));
    header.push('\n');

    let mut head = Vec::with_capacity(MAGIC.len() + 2 + count_bytes + len);
    head.extend_from_slice(MAGIC);
    head.extend_from_slice(&[version, 0]);
    head.extend_from_slice(&len_u32.to_le_bytes()[..count_bytes]);
    head.extend_from_slice(header.as_bytes());
    Ok(head)
}

/// Bytes of the header with padding and line feed. A header that is aligned by itself gets a full block
/// of padding, as numpy gives it.
fn padded_len(header: usize, count_bytes: usize) -> usize {
    let before = MAGIC.len() + 2 + count_bytes;
    let len = header + 1;
    len + (ALIGN - (before + len) % ALIGN)
}

#[cfg(test)]
mod tests {
    use crate::model::{DType, FloatKind, TimeUnit};
    use crate::wire::{Description, Format, check, head, places};

    fn npy(dtype: &DType, shape: &[u64]) -> Vec<u8> {
        head(Format::Npy, &[Description { name: "a", dtype, shape, dims: &[] }]).expect("possible")
    }

    /// What numpy 2.4 writes: `numpy.save` of `numpy.zeros(shape, dtype)`, spaces before the line feed counted.
    fn numpy(count: &[u8], text: &str, spaces: usize) -> Vec<u8> {
        [b"\x93NUMPY\x01\x00", count, text.as_bytes(), " ".repeat(spaces).as_bytes(), b"\n"].concat()
    }

    #[test]
    fn headers_are_numpys_own_bytes() {
        let check = |dtype: DType, shape: &[u64], count: &[u8], text: &str, spaces: usize| {
            assert_eq!(
                npy(&dtype, shape).escape_ascii().to_string(),
                numpy(count, text, spaces).escape_ascii().to_string()
            );
        };
        let time = DType::DateTime64 { unit: TimeUnit::Millisecond, scale: 10 };
        check(DType::UInt(8), &[2, 3], b"\x76\x00", "{'descr': '|u1', 'fortran_order': False, 'shape': (2, 3), }", 58);
        check(
            DType::Float(FloatKind::F64),
            &[],
            b"\x76\x00",
            "{'descr': '<f8', 'fortran_order': False, 'shape': (), }",
            62,
        );
        check(time, &[5], b"\x76\x00", "{'descr': '<M8[10ms]', 'fortran_order': False, 'shape': (5,), }", 54);
        check(
            DType::Complex(FloatKind::F64),
            &[0, 4],
            b"\x76\x00",
            "{'descr': '<c16', 'fortran_order': False, 'shape': (0, 4), }",
            57,
        );
        check(
            DType::Bool,
            &[1; 17],
            b"\xb6\x00",
            "{'descr': '|b1', 'fortran_order': False, 'shape': (1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1), }",
            77,
        );
        check(
            DType::Int(16),
            &[1; 32],
            b"\xb6\x00",
            "{'descr': '<i2', 'fortran_order': False, 'shape': (1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1), }",
            32,
        );
        check(
            DType::Float(FloatKind::F16),
            &[65535, 1],
            b"\x76\x00",
            "{'descr': '<f2', 'fortran_order': False, 'shape': (65535, 1), }",
            54,
        );
    }

    #[test]
    fn a_header_beyond_16_bits_is_version_2() {
        let head = npy(&DType::UInt(8), &[1; 40_000]);
        assert_eq!(&head[6..8], [2, 0]);
        let count = u32::from_le_bytes(head[8..12].try_into().expect("four bytes")) as usize;
        assert_eq!((head.len(), head.len() % 64), (12 + count, 0));
        assert_eq!(head.last(), Some(&b'\n'));
    }

    #[test]
    fn the_body_is_the_head_and_the_elements() {
        let dtype = DType::Complex(FloatKind::F64);
        let description = Description { name: "a", dtype: &dtype, shape: &[2, 3], dims: &[] };
        let head = head(Format::Npy, &[description]).expect("possible");
        assert_eq!(places(&head, &[description]).ok(), Some(vec![128, 128 + 96]));
        let absurd = Description { shape: &[u64::MAX, 2], ..description };
        assert!(places(&head, &[absurd]).is_err());
    }

    #[test]
    fn types_that_numpy_lacks_are_refused_with_the_ones_that_can() {
        let dtype = DType::Float(FloatKind::BF16);
        let description = Description { name: "a", dtype: &dtype, shape: &[2], dims: &[] };
        let message = check(Format::Npy, &[description]).unwrap_err().to_string();
        assert_eq!(
            message,
            "npy cannot hold this answer: numpy has no type for bfloat16; possible: raw, safetensors, json"
        );
    }
}
