//! The two forms of a batch answer: frames one after the other, or one contiguous tensor a field.
//!
//! All numbers are little-endian. Everything begins on a multiple of [`ALIGNMENT`] bytes of the body, so that a client
//! that receives into an aligned buffer has aligned tensors.
//!
//! A frame: a header of 64 bytes, the shape as u64, padding, the payload, padding.
//!
//! | bytes | what |
//! |---|---|
//! | 0..4 | `W4DB` |
//! | 4..6 | version, 1 |
//! | 6..8 | kind: 1 an item, 2 the end |
//! | 8..12 | item, counted from 0; in the end frame the number of frames before it |
//! | 12..14 | field, in the order of the request |
//! | 14..16 | status, as in HTTP |
//! | 16..18 | element type ([`dtype_code`]) |
//! | 18..20 | axes |
//! | 20..24 | CRC-32C of the payload |
//! | 24..32 | bytes of the payload |
//! | 32..64 | zero |
//!
//! A stack: per field the items' elements, `[B, …]`, then per item and field a record of 8 bytes: status u16, zero
//! u16, CRC-32C u32 of the item's part.

use serde_json::{Map, Value, json};

use crate::model::{DType, FloatKind, SMALL_FLOATS};

/// What every part of a body is aligned to, in bytes.
pub const ALIGNMENT: usize = 64;

/// Bytes of a frame's header.
pub const HEADER_BYTES: usize = 64;

/// Bytes of a stack's record.
pub const RECORD_BYTES: usize = 8;

/// `Content-Type` of frames.
pub const FRAMED: &str = "application/vnd.w4dx.batch;v=1";

/// `Content-Type` of a stack.
pub const STACKED: &str = "application/vnd.w4dx.stack;v=1";

const MAGIC: [u8; 4] = *b"W4DB";
const VERSION: u16 = 1;

/// `len` rounded up to [`ALIGNMENT`]; `None` past the end of memory.
pub fn aligned(len: usize) -> Option<usize> {
    len.checked_next_multiple_of(ALIGNMENT)
}

/// What a frame says of its payload.
#[derive(Debug, Clone, Copy)]
pub struct Frame<'a> {
    /// The item.
    pub item: u32,
    /// The field.
    pub field: u16,
    /// As in HTTP; the payload of another status than 200 is problem JSON.
    pub status: u16,
    /// [`dtype_code`].
    pub dtype: u16,
    /// The payload's shape.
    pub shape: &'a [u64],
    /// CRC-32C of the payload.
    pub crc32c: u32,
    /// Bytes of the payload.
    pub len: u64,
}

impl Frame<'_> {
    /// Bytes before the payload.
    pub fn head_len(&self) -> usize {
        HEADER_BYTES + (self.shape.len() * 8).next_multiple_of(ALIGNMENT)
    }

    /// Header and shape, with the padding before the payload.
    pub fn head(&self) -> Vec<u8> {
        let mut head = header(1, self.item, self.field, self.status);
        head[16..18].copy_from_slice(&self.dtype.to_le_bytes());
        head[18..20].copy_from_slice(&(self.shape.len() as u16).to_le_bytes());
        head[20..24].copy_from_slice(&self.crc32c.to_le_bytes());
        head[24..32].copy_from_slice(&self.len.to_le_bytes());
        head.extend(self.shape.iter().flat_map(|n| n.to_le_bytes()));
        head.resize(self.head_len(), 0);
        head
    }
}

/// The frame that ends a body. A body without it is truncated.
pub fn end_frame(frames: u32) -> Vec<u8> {
    header(2, frames, 0, 200)
}

fn header(kind: u16, item: u32, field: u16, status: u16) -> Vec<u8> {
    let mut header = vec![0; HEADER_BYTES];
    header[0..4].copy_from_slice(&MAGIC);
    header[4..6].copy_from_slice(&VERSION.to_le_bytes());
    header[6..8].copy_from_slice(&kind.to_le_bytes());
    header[8..12].copy_from_slice(&item.to_le_bytes());
    header[12..14].copy_from_slice(&field.to_le_bytes());
    header[14..16].copy_from_slice(&status.to_le_bytes());
    header
}

/// What a stack says of one item of one field.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Record {
    /// As in HTTP; a part of another status than 200 holds the fill value.
    pub status: u16,
    /// CRC-32C of the part.
    pub crc32c: u32,
}

impl Record {
    /// Its bytes.
    pub fn bytes(self) -> [u8; RECORD_BYTES] {
        let mut bytes = [0; RECORD_BYTES];
        bytes[0..2].copy_from_slice(&self.status.to_le_bytes());
        bytes[4..8].copy_from_slice(&self.crc32c.to_le_bytes());
        bytes
    }
}

/// An element type as a number; 0 for a type whose name in `x-w4dx-layout` says more than a number could.
pub fn dtype_code(dtype: &DType) -> u16 {
    let width = |bits: u8| u16::from(bits.ilog2() as u8);
    match dtype {
        DType::Bool => 1,
        // 2, 4, 8, 16, 32, 64 bits: 2 to 7, and 8 to 13 unsigned.
        DType::Int(bits) => 1 + width(*bits),
        DType::UInt(bits) => 7 + width(*bits),
        DType::Float(FloatKind::F16) => 14,
        DType::Float(FloatKind::BF16) => 15,
        DType::Float(FloatKind::F32) => 16,
        DType::Float(FloatKind::F64) => 17,
        DType::Complex(FloatKind::F32) => 18,
        DType::Complex(FloatKind::F64) => 19,
        DType::Float(FloatKind::Small(name)) => {
            SMALL_FLOATS.iter().position(|known| known == name).map_or(0, |i| 32 + i as u16)
        }
        DType::Complex(_)
        | DType::RawBits(_)
        | DType::DateTime64 { .. }
        | DType::TimeDelta64 { .. }
        | DType::FixedUtf32(_)
        | DType::FixedBytes(_)
        | DType::String
        | DType::Bytes => 0,
    }
}

/// One field of a layout.
#[derive(Debug, Clone, Copy)]
pub struct LayoutField<'a> {
    /// Its name.
    pub name: &'a str,
    /// The element type.
    pub dtype: &'a DType,
    /// Names of an item's axes.
    pub dims: &'a [Option<String>],
    /// The version of the array's metadata.
    pub source_etag: Option<&'a str>,
    /// In a stack: its shape with the items in front, its place in the body and its bytes.
    pub stacked: Option<(&'a [u64], u64, u64)>,
}

/// The value of `x-w4dx-layout`: what the body's parts are. `records` is their place in a stack, and their bytes.
pub fn layout(items: usize, fields: &[LayoutField<'_>], records: Option<(u64, u64)>) -> Value {
    let fields: Vec<Value> = fields
        .iter()
        .map(|field| {
            let mut entry = Map::new();
            entry.insert("name".to_owned(), field.name.into());
            entry.insert("dtype".to_owned(), field.dtype.name().into());
            entry.insert("dims".to_owned(), field.dims.to_vec().into());
            if let Some(etag) = field.source_etag {
                entry.insert("source_etag".to_owned(), etag.into());
            }
            if let Some((shape, offset, len)) = field.stacked {
                entry.insert("shape".to_owned(), shape.to_vec().into());
                entry.insert("offset".to_owned(), offset.into());
                entry.insert("len".to_owned(), len.into());
            }
            Value::Object(entry)
        })
        .collect();
    let mut layout = json!({ "v": 1, "items": items, "fields": fields });
    if let (Some((offset, len)), Some(layout)) = (records, layout.as_object_mut()) {
        layout.insert("records".to_owned(), json!({ "offset": offset, "len": len }));
    }
    layout
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_is_laid_out_as_documented() {
        let frame = Frame { item: 7, field: 2, status: 200, dtype: 10, shape: &[3, 4], crc32c: 0x0102_0304, len: 12 };
        let head = frame.head();
        assert_eq!(head.len(), 128);
        assert_eq!(&head[..8], b"W4DB\x01\0\x01\0");
        assert_eq!(&head[8..20], &[7, 0, 0, 0, 2, 0, 200, 0, 10, 0, 2, 0]);
        assert_eq!(&head[20..32], &[4, 3, 2, 1, 12, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(&head[64..80], &[3, 0, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0, 0, 0, 0, 0]);
        assert!(head[32..64].iter().chain(&head[80..]).all(|&byte| byte == 0));
        let scalar = Frame { shape: &[], ..frame };
        assert_eq!(scalar.head().len(), HEADER_BYTES);
        assert_eq!(&end_frame(9)[..16], b"W4DB\x01\0\x02\0\x09\0\0\0\0\0\xc8\0");
    }

    #[test]
    fn codes_of_types_differ() {
        let mut types: Vec<DType> = vec![DType::Bool, DType::Complex(FloatKind::F32), DType::Complex(FloatKind::F64)];
        types.extend([2, 4, 8, 16, 32, 64].map(DType::Int));
        types.extend([2, 4, 8, 16, 32, 64].map(DType::UInt));
        types.extend([FloatKind::F16, FloatKind::BF16, FloatKind::F32, FloatKind::F64].map(DType::Float));
        types.extend(SMALL_FLOATS.iter().map(|name| DType::Float(FloatKind::Small(name))));
        let mut codes: Vec<u16> = types.iter().map(dtype_code).collect();
        codes.sort_unstable();
        assert!(codes[0] > 0);
        codes.dedup();
        assert_eq!(codes.len(), types.len());
        assert_eq!(dtype_code(&DType::UInt(8)), 10);
    }

    #[test]
    fn a_record_is_eight_bytes() {
        assert_eq!(Record { status: 500, crc32c: 1 }.bytes(), [0xf4, 1, 0, 0, 1, 0, 0, 0]);
    }
}
