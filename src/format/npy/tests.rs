use proptest::prelude::*;

use super::*;
use crate::format::Storage;

fn file(version: u8, header: &str, data: usize) -> Vec<u8> {
    let mut bytes = MAGIC.to_vec();
    bytes.extend_from_slice(&[version, 0]);
    if version == 1 {
        bytes.extend_from_slice(&(header.len() as u16).to_le_bytes());
    } else {
        bytes.extend_from_slice(&(header.len() as u32).to_le_bytes());
    }
    bytes.extend_from_slice(header.as_bytes());
    bytes.resize(bytes.len() + data, 0);
    bytes
}

fn header(descr: &str, fortran: &str, shape: &str) -> String {
    format!("{{'descr': {descr}, 'fortran_order': {fortran}, 'shape': {shape}, }}          \n")
}

fn parsed(bytes: &[u8]) -> Result<ArrayMeta, FormatError> {
    match parse(bytes, bytes.len() as u64)? {
        Parsed::Array(array) => Ok(array),
        Parsed::NeedBytes(n) => panic!("{n} bytes wanted of {}", bytes.len()),
    }
}

#[test]
fn every_version_is_read() {
    for version in 1..=3 {
        let bytes = file(version, &header("'<f4'", "False", "(2, 3)"), 24);
        let array = parsed(&bytes).unwrap();
        assert_eq!((array.shape.as_slice(), array.dtype.name().as_str()), (&[2, 3][..], "float32"));
        let Storage::Dense { offset, order, block } = &array.storage else { panic!("dense") };
        assert_eq!((*offset, order.as_slice(), block.as_slice()), (bytes.len() as u64 - 24, &[0, 1][..], &[2, 3][..]));
        assert!(array.codec.is_raw());
    }
    let future = parse(&file(4, &header("'<f4'", "False", "()"), 4), 1000);
    assert!(matches!(future, Err(FormatError::Feature { .. })));
}

#[test]
fn fortran_order_and_byte_order_reach_the_codec() {
    let array = parsed(&file(1, &header("'>i2'", "True", "(2, 3)"), 12)).unwrap();
    assert!(!array.codec.is_raw());
    // Columns first, most significant byte first: the element at [i, j] is 3 i + j.
    let stored: Vec<u8> = [0_i16, 3, 1, 4, 2, 5].iter().flat_map(|n| n.to_be_bytes()).collect();
    let expected: Vec<u8> = (0_i16..6).flat_map(i16::to_le_bytes).collect();
    let decoded = array.codec.decode(stored.into(), &[2, 3]).unwrap();
    assert_eq!(decoded, crate::model::ChunkData::Fixed(expected.into()));
}

#[test]
fn a_prefix_says_how_much_is_missing() {
    for version in 1..=2 {
        let bytes = file(version, &header("'<f4'", "False", "(2,)"), 8);
        let header_end = bytes.len() - 8;
        for cut in 0..header_end {
            let Parsed::NeedBytes(n) = parse(&bytes[..cut], bytes.len() as u64).unwrap() else { panic!("at {cut}") };
            assert!(n > cut as u64 && n <= header_end as u64, "{n} at {cut}");
            assert!(parse(&bytes[..cut], cut as u64).is_err(), "an object of {cut} bytes");
        }
        assert!(matches!(parse(&bytes[..header_end], bytes.len() as u64), Ok(Parsed::Array(_))));
    }
}

#[test]
fn an_object_too_short_for_its_elements_is_malformed() {
    let bytes = file(1, &header("'<f8'", "False", "(4,)"), 31);
    assert!(matches!(parsed(&bytes), Err(FormatError::Malformed { .. })));
    let absurd = file(1, &header("'<f8'", "False", "(9223372036854775807, 9)"), 31);
    assert!(matches!(parsed(&absurd), Err(FormatError::Malformed { .. })));
    assert!(parsed(&file(1, &header("'<f8'", "False", "(0, 5)"), 0)).is_ok());
    assert!(parsed(&file(1, &header("'<f8'", "False", "()"), 8)).is_ok());
}

#[test]
fn types_with_fields_and_objects_are_named() {
    for descr in ["[('x', '<f4'), ('y', '<i4')]", "'|O'", "'<f16'", "('<f4', (2,))"] {
        let result = parsed(&file(1, &header(descr, "False", "(1,)"), 100));
        assert!(matches!(result, Err(FormatError::Dtype { .. })), "{descr}: {result:?}");
    }
}

#[test]
fn headers_that_numpy_does_not_write_are_malformed() {
    let check = |header: &str| {
        let result = parsed(&file(1, header, 100));
        assert!(matches!(result, Err(FormatError::Malformed { .. })), "{header}: {result:?}");
    };
    check("{'descr': '<f4', 'fortran_order': False}");
    check("{'descr': '<f4', 'shape': (1,)}");
    check("{'fortran_order': False, 'shape': (1,)}");
    check("{'descr': '<f4', 'fortran_order': 0, 'shape': (1,)}");
    check("{'descr': '<f4', 'fortran_order': False, 'shape': 1}");
    check("{'descr': '<f4', 'fortran_order': False, 'shape': (1,), 'extra': 1}");
    check("{'descr': '<f4', 'descr': '<f8', 'fortran_order': False, 'shape': (1,)}");
    check(&header("'<f4'", "False", &format!("({})", "1,".repeat(33))));
    assert!(parse(b"PK\x03\x04", 1000).is_err());
    let mut long = file(2, "", 0);
    long[8..12].copy_from_slice(&u32::MAX.to_le_bytes());
    assert!(parse(&long, u64::MAX).is_err());
}

proptest! {
    #[test]
    fn broken_headers_never_panic(flips in prop::collection::vec((0_usize..120, any::<u8>()), 0..5), cut in 0_usize..140) {
        let mut bytes = file(1, &header("'<f4'", "False", "(2, 3)"), 24);
        for (at, value) in flips {
            let len = bytes.len();
            bytes[at % len] ^= value;
        }
        bytes.truncate(cut);
        let _ = parse(&bytes, bytes.len() as u64);
        let _ = parse(&bytes, 1000);
    }
}
