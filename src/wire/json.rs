//! Nested lists. The values' forms are described at [`super::encode`].

use std::io::Write;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use half::{bf16, f16};

use super::{Description, WireError};
use crate::model::small_float;
use crate::model::{ChunkData, DType, FloatKind, shape};
use crate::tensor::Tensor;

/// Most axes: those of numpy. It bounds the brackets around one element.
const MOST_AXES: usize = 64;

/// Most lists of an answer without elements, such as the 10^12 of shape `[10^12, 0]`.
const MOST_EMPTY_LISTS: u64 = 1 << 16;

/// numpy's NaT.
const NOT_A_TIME: i64 = i64::MIN;

/// Why JSON cannot hold the answer, if it cannot.
pub(super) fn obstacle(description: &Description<'_>) -> Option<String> {
    let shape = description.shape;
    if shape.len() > MOST_AXES {
        return Some(format!("lists nest at most {MOST_AXES} deep, the answer has {} axes", shape.len()));
    }
    // Without elements the outer axes still take brackets: count them up to the first empty axis.
    let outer = shape.iter().position(|&n| n == 0).map(|first| &shape[..first])?;
    let lists = shape::elements(outer);
    let bounded = lists.is_some_and(|n| n <= MOST_EMPTY_LISTS);
    (!bounded).then(|| format!("the answer has no elements and more than {MOST_EMPTY_LISTS} empty lists"))
}

/// The body. The tensor's data are as long as its shape says.
pub(super) fn encode(tensor: &Tensor) -> Result<Vec<u8>, WireError> {
    let mut body = Vec::new();
    match &tensor.data {
        ChunkData::Fixed(bytes) => {
            let write = fixed_writer(&tensor.dtype)?;
            // A type of size 0 (`S0`) has elements too, all alike.
            let size = tensor.dtype.size_bytes().unwrap_or(0);
            nest(&mut body, &tensor.shape, |body, i| write(body, i, &bytes[i * size..(i + 1) * size]))?;
        }
        ChunkData::Variable(values) => {
            let is_text = tensor.dtype == DType::String;
            nest(&mut body, &tensor.shape, |body, i| {
                if is_text { write_text(body, i, &values[i]) } else { write_base64(body, &values[i]) }
            })?;
        }
    }
    Ok(body)
}

/// Writes the elements in order, with the brackets and commas of `shape` around them.
fn nest(
    body: &mut Vec<u8>,
    shape: &[u64],
    mut write: impl FnMut(&mut Vec<u8>, usize) -> Result<(), WireError>,
) -> Result<(), WireError> {
    // Axes past an empty one hold nothing, so the lists end there: shape [2, 0, 3] is [[],[]].
    let depth = shape.iter().position(|&n| n == 0).map_or(shape.len(), |first| first + 1);
    let shape = &shape[..depth];
    let empty = shape.last() == Some(&0);
    // The lowest lists of an empty answer take the place of elements.
    let (axes, leaves) = if empty { (&shape[..depth - 1], "[]") } else { (shape, "") };
    let mut at = vec![0_u64; axes.len()];
    body.extend(std::iter::repeat_n(b'[', axes.len()));
    let mut element = 0;
    loop {
        if empty {
            body.extend_from_slice(leaves.as_bytes());
        } else {
            write(body, element)?;
            element += 1;
        }
        // Step the innermost axis; each axis that is full closes its list and steps the one outside.
        let mut closed = 0;
        loop {
            if closed == axes.len() {
                return Ok(());
            }
            let axis = axes.len() - 1 - closed;
            at[axis] += 1;
            if at[axis] < axes[axis] {
                break;
            }
            at[axis] = 0;
            body.push(b']');
            closed += 1;
        }
        body.push(b',');
        body.extend(std::iter::repeat_n(b'[', closed));
    }
}

/// Writes one element from its bytes; the number is its position, for errors.
type Writer = Box<dyn Fn(&mut Vec<u8>, usize, &[u8]) -> Result<(), WireError>>;

/// The writer of a type of fixed size.
fn fixed_writer(dtype: &DType) -> Result<Writer, WireError> {
    Ok(match dtype {
        DType::Bool => Box::new(|body, _, bytes| {
            body.extend_from_slice(if bytes[0] == 0 { b"false" } else { b"true" });
            Ok(())
        }),
        DType::Int(_) => Box::new(|body, _, bytes| write_int(body, signed(bytes))),
        DType::UInt(_) => Box::new(|body, _, bytes| write_int(body, unsigned(bytes))),
        DType::DateTime64 { .. } | DType::TimeDelta64 { .. } => Box::new(|body, _, bytes| match signed(bytes) {
            NOT_A_TIME => {
                body.extend_from_slice(b"null");
                Ok(())
            }
            count => write_int(body, count),
        }),
        DType::Float(kind) => {
            let read = real_reader(*kind, dtype)?;
            Box::new(move |body, _, bytes| {
                write_real(body, read(bytes));
                Ok(())
            })
        }
        DType::Complex(kind) => {
            let (read, half) = (real_reader(*kind, dtype)?, kind.size_bytes());
            Box::new(move |body, _, bytes| {
                body.push(b'[');
                write_real(body, read(&bytes[..half]));
                body.push(b',');
                write_real(body, read(&bytes[half..]));
                body.push(b']');
                Ok(())
            })
        }
        DType::RawBits(_) => Box::new(|body, _, bytes| write_base64(body, bytes)),
        DType::FixedBytes(_) => Box::new(|body, _, bytes| {
            let end = bytes.iter().rposition(|&b| b != 0).map_or(0, |last| last + 1);
            write_base64(body, &bytes[..end])
        }),
        DType::FixedUtf32(_) => Box::new(write_utf32),
        DType::String | DType::Bytes => {
            return Err(WireError::Inconsistent { dtype: dtype.clone(), expected: 0, found: 0 });
        }
    })
}

/// Reads one real, exactly: every type of ours is a subset of binary64.
type RealReader = Box<dyn Fn(&[u8]) -> f64>;

fn real_reader(kind: FloatKind, dtype: &DType) -> Result<RealReader, WireError> {
    Ok(match kind {
        FloatKind::F64 => Box::new(|b| f64::from_le_bytes([b[0], b[1], b[2], b[3], b[4], b[5], b[6], b[7]])),
        FloatKind::F32 => Box::new(|b| f64::from(f32::from_le_bytes([b[0], b[1], b[2], b[3]]))),
        FloatKind::F16 => Box::new(|b| f16::from_le_bytes([b[0], b[1]]).to_f64()),
        FloatKind::BF16 => Box::new(|b| bf16::from_le_bytes([b[0], b[1]]).to_f64()),
        FloatKind::Small(name) => {
            let values = small_float::values(name).ok_or_else(|| WireError::Inconsistent {
                dtype: dtype.clone(),
                expected: 0,
                found: 0,
            })?;
            Box::new(move |b| values[usize::from(b[0])])
        }
    })
}

/// Little-endian two's complement of 1 to 8 bytes.
fn signed(bytes: &[u8]) -> i64 {
    let unused = 64 - 8 * bytes.len().min(8) as u32;
    ((unsigned(bytes) << unused) as i64) >> unused
}

/// Little-endian, of 1 to 8 bytes.
fn unsigned(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |n, &byte| n << 8 | u64::from(byte))
}

fn write_int(body: &mut Vec<u8>, n: impl std::fmt::Display) -> Result<(), WireError> {
    // A Vec takes every write.
    let _ = write!(body, "{n}");
    Ok(())
}

fn write_real(body: &mut Vec<u8>, x: f64) {
    if x.is_finite() {
        // A finite number into a Vec cannot fail.
        let _ = serde_json::to_writer(body, &x);
    } else if x.is_nan() {
        body.extend_from_slice(b"\"NaN\"");
    } else {
        body.extend_from_slice(if x > 0.0 { b"\"Infinity\"" } else { b"\"-Infinity\"" });
    }
}

fn write_base64(body: &mut Vec<u8>, bytes: &[u8]) -> Result<(), WireError> {
    body.push(b'"');
    body.extend_from_slice(BASE64.encode(bytes).as_bytes());
    body.push(b'"');
    Ok(())
}

fn write_text(body: &mut Vec<u8>, element: usize, bytes: &[u8]) -> Result<(), WireError> {
    let text = std::str::from_utf8(bytes).map_err(|_| WireError::Text { element, encoding: "UTF-8" })?;
    // Text into a Vec cannot fail.
    let _ = serde_json::to_writer(body, text);
    Ok(())
}

fn write_utf32(body: &mut Vec<u8>, element: usize, bytes: &[u8]) -> Result<(), WireError> {
    let points: Vec<u32> = bytes.chunks_exact(4).map(|b| u32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect();
    let end = points.iter().rposition(|&p| p != 0).map_or(0, |last| last + 1);
    let text: Option<String> = points[..end].iter().map(|&p| char::from_u32(p)).collect();
    let text = text.ok_or(WireError::Text { element, encoding: "UTF-32" })?;
    let _ = serde_json::to_writer(body, &text);
    Ok(())
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;
    use crate::model::{ErrorKind, Fault, TimeUnit};
    use crate::wire::{Format, check, encode};

    fn fixed(dtype: DType, shape: &[u64], bytes: &[u8]) -> Result<String, WireError> {
        let data = ChunkData::Fixed(Bytes::copy_from_slice(bytes));
        let body = encode(Format::Json, "a", &Tensor { shape: shape.to_vec(), dtype, data }, &[])?;
        Ok(String::from_utf8(body).expect("UTF-8"))
    }

    fn variable(dtype: DType, values: &[&[u8]]) -> Result<String, WireError> {
        let data = ChunkData::Variable(values.iter().map(|v| Box::from(*v)).collect());
        let tensor = Tensor { shape: vec![values.len() as u64], dtype, data };
        Ok(String::from_utf8(encode(Format::Json, "a", &tensor, &[])?).expect("UTF-8"))
    }

    fn check_fixed(dtype: DType, shape: &[u64], bytes: &[u8], expected: &str) {
        assert_eq!(fixed(dtype, shape, bytes).expect("encodes"), expected);
    }

    #[test]
    fn lists_nest_as_the_shape_says() {
        check_fixed(DType::UInt(8), &[2, 3], &[0, 1, 2, 3, 4, 5], "[[0,1,2],[3,4,5]]");
        check_fixed(DType::UInt(8), &[2, 1, 2], &[0, 1, 2, 3], "[[[0,1]],[[2,3]]]");
        check_fixed(DType::UInt(8), &[], &[7], "7");
    }

    #[test]
    fn empty_axes_leave_empty_lists() {
        check_fixed(DType::UInt(8), &[0], &[], "[]");
        check_fixed(DType::UInt(8), &[2, 0, 3], &[], "[[],[]]");
        check_fixed(DType::UInt(8), &[0, u64::MAX], &[], "[]");
    }

    #[test]
    fn a_flood_of_empty_lists_or_brackets_is_refused() {
        for shape in [vec![1 << 40, 0], vec![u64::MAX, u64::MAX, 0], vec![1; 65]] {
            let description = Description { name: "a", dtype: &DType::Bool, shape: &shape, dims: &[] };
            let kind = check(Format::Json, &[description]).unwrap_err().kind();
            assert_eq!(kind, ErrorKind::FormatNotPossible);
        }
    }

    #[test]
    fn integers_are_exact() {
        check_fixed(DType::UInt(64), &[1], &u64::MAX.to_le_bytes(), "[18446744073709551615]");
        check_fixed(DType::Int(64), &[1], &i64::MIN.to_le_bytes(), "[-9223372036854775808]");
        check_fixed(DType::Int(4), &[3], &[0xf8, 0xff, 7], "[-8,-1,7]");
        check_fixed(DType::Int(16), &[2], &[0xff, 0xff, 0x00, 0x80], "[-1,-32768]");
        check_fixed(DType::Bool, &[2], &[0, 1], "[false,true]");
    }

    #[test]
    fn reals_read_as_exactly_the_element() {
        let bytes: Vec<u8> = [0.1_f32, -0.0, f32::MIN_POSITIVE].iter().flat_map(|x| x.to_le_bytes()).collect();
        let expected = "[0.10000000149011612,-0.0,1.1754943508222875e-38]";
        check_fixed(DType::Float(FloatKind::F32), &[3], &bytes, expected);
        check_fixed(DType::Float(FloatKind::F16), &[2], &[0x00, 0x3e, 0x01, 0x00], "[1.5,5.960464477539063e-8]");
        check_fixed(DType::Float(FloatKind::BF16), &[1], &[0xc0, 0xbf], "[-1.5]");
        let small = DType::Float(FloatKind::from_name("float8_e5m2").expect("known"));
        check_fixed(small, &[4], &[0x3e, 0x7c, 0xfc, 0x7e], r#"[1.5,"Infinity","-Infinity","NaN"]"#);
    }

    #[test]
    fn complex_numbers_are_pairs_of_their_reals() {
        let bytes: Vec<u8> = [1.5_f32, f32::NAN].iter().flat_map(|x| x.to_le_bytes()).collect();
        check_fixed(DType::Complex(FloatKind::F32), &[1], &bytes, r#"[[1.5,"NaN"]]"#);
        let bytes: Vec<u8> = [0.1_f64, f64::NEG_INFINITY].iter().flat_map(|x| x.to_le_bytes()).collect();
        check_fixed(DType::Complex(FloatKind::F64), &[], &bytes, r#"[0.1,"-Infinity"]"#);
    }

    #[test]
    fn times_are_counts_and_nat_is_null() {
        let bytes: Vec<u8> = [-5_i64, i64::MIN].iter().flat_map(|x| x.to_le_bytes()).collect();
        check_fixed(DType::DateTime64 { unit: TimeUnit::Second, scale: 1 }, &[2], &bytes, "[-5,null]");
        check_fixed(DType::TimeDelta64 { unit: TimeUnit::Generic, scale: 1 }, &[2], &bytes, "[-5,null]");
    }

    #[test]
    fn text_is_trimmed_and_escaped_and_bytes_are_base64() {
        let utf32: Vec<u8> = ['é', '"', '\0', '\0'].iter().flat_map(|c| (*c as u32).to_le_bytes()).collect();
        check_fixed(DType::FixedUtf32(4), &[1], &utf32, r#"["é\""]"#);
        check_fixed(DType::FixedBytes(4), &[1], b"ab\0\0", r#"["YWI="]"#);
        check_fixed(DType::FixedBytes(0), &[2], b"", r#"["",""]"#);
        check_fixed(DType::RawBits(2), &[1], &[0, 0], r#"["AAA="]"#);
        assert_eq!(variable(DType::String, &["a\n€".as_bytes(), b""]).expect("encodes"), r#"["a\n€",""]"#);
        assert_eq!(variable(DType::Bytes, &[&[0xff], b""]).expect("encodes"), r#"["/w==",""]"#);
    }

    #[test]
    fn text_that_is_not_unicode_is_corrupt() {
        let surrogate = 0xd800_u32.to_le_bytes();
        let error = fixed(DType::FixedUtf32(1), &[1], &surrogate).unwrap_err();
        assert_eq!((error.kind(), error.to_string()), (ErrorKind::CorruptData, "element 0 is not UTF-32".into()));
        let error = variable(DType::String, &[b"a", &[0xff]]).unwrap_err();
        assert_eq!((error.kind(), error.to_string()), (ErrorKind::CorruptData, "element 1 is not UTF-8".into()));
    }

    #[test]
    fn a_tensor_whose_data_are_not_its_shapes_is_refused() {
        for (shape, bytes) in [(&[2][..], &[0_u8; 3][..]), (&[4], &[0; 3]), (&[u64::MAX, 2], &[])] {
            assert!(fixed(DType::UInt(8), shape, bytes).is_err());
        }
        assert!(fixed(DType::String, &[1], b"a").is_err());
        assert!(variable(DType::UInt(8), &[b"a"]).is_err());
    }

    /// Nested lists by recursion over JSON values: slow, and the oracle.
    fn nested(shape: &[u64], values: &mut impl Iterator<Item = Value>) -> Value {
        match shape.split_first() {
            None => values.next().expect("enough values"),
            Some((&n, rest)) => Value::Array((0..n).map(|_| nested(rest, values)).collect()),
        }
    }

    proptest! {
        #[test]
        fn lists_equal_those_made_by_recursion(
            shape in prop::collection::vec(0_u64..4, 0..5),
            numbers in prop::collection::vec(any::<f64>(), 256),
        ) {
            let n = shape::elements(&shape).unwrap_or(0) as usize;
            let numbers = &numbers[..n];
            let bytes: Vec<u8> = numbers.iter().flat_map(|x| x.to_le_bytes()).collect();
            let body = fixed(DType::Float(FloatKind::F64), &shape, &bytes)?;
            let mut values = numbers.iter().map(|x| json!(x));
            prop_assert_eq!(serde_json::from_str::<Value>(&body)?, nested(&shape, &mut values));
        }
    }
}
