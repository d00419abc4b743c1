//! Pictures: H×W or H×W×{1,3,4} of uint8 and uint16 at their own depth, H×W or H×W×1 of bool at one bit.
//!
//! No scaling: a pixel is the element. Axis 0 counts rows from the top, axis 1 columns from the left.

use png::{BitDepth, ColorType, Compression, Encoder};

use super::{Description, WireError};
use crate::model::DType;
use crate::tensor::Tensor;

/// The longest side, by the PNG specification.
const MOST_PIXELS: u64 = (1 << 31) - 1;

/// How a tensor lies in a picture.
struct Layout {
    width: u32,
    height: u32,
    color: ColorType,
    depth: BitDepth,
}

/// Why a picture cannot hold the answer, if it cannot.
pub(super) fn obstacle(description: &Description<'_>) -> Option<String> {
    layout(description.dtype, description.shape).err()
}

fn layout(dtype: &DType, shape: &[u64]) -> Result<Layout, String> {
    let depth = match dtype {
        DType::Bool => BitDepth::One,
        DType::UInt(8) => BitDepth::Eight,
        DType::UInt(16) => BitDepth::Sixteen,
        other => return Err(format!("pixels are uint8, uint16 or bool, the elements are {other}")),
    };
    let (height, width, channels) = match *shape {
        [height, width] => (height, width, 1),
        [height, width, channels] => (height, width, channels),
        _ => return Err(format!("a picture has 2 or 3 axes (row, column, channel), the answer has {}", shape.len())),
    };
    let color = match channels {
        1 => ColorType::Grayscale,
        3 => ColorType::Rgb,
        4 => ColorType::Rgba,
        n => return Err(format!("a picture has 1, 3 or 4 channels on its third axis, the answer has {n}")),
    };
    if depth == BitDepth::One && color != ColorType::Grayscale {
        return Err(format!("bool pixels have 1 channel, the answer has {channels}"));
    }
    if height == 0 || width == 0 {
        return Err(format!("a picture has at least one pixel, the answer is {height} by {width}"));
    }
    let side = |n: u64| {
        u32::try_from(n)
            .ok()
            .filter(|_| n <= MOST_PIXELS)
            .ok_or_else(|| format!("a side of a picture has at most {MOST_PIXELS} pixels, the answer has {n}"))
    };
    Ok(Layout { width: side(width)?, height: side(height)?, color, depth })
}

/// The picture. `bytes` are the tensor's elements, as many as its shape says.
pub(super) fn encode(tensor: &Tensor, bytes: &[u8]) -> Result<Vec<u8>, WireError> {
    let layout = layout(&tensor.dtype, &tensor.shape).map_err(|reason| WireError::NotPossible {
        format: super::Format::Png,
        reason,
        possible: Vec::new(),
    })?;
    let mut body = Vec::new();
    let mut encoder = Encoder::new(&mut body, layout.width, layout.height);
    encoder.set_color(layout.color);
    encoder.set_depth(layout.depth);
    // An answer is made once and read once: time to the first byte counts for more than the last tenth of size.
    encoder.set_compression(Compression::Fast);
    let mut writer = encoder.write_header()?;
    match layout.depth {
        BitDepth::One => writer.write_image_data(&pack_bits(bytes, layout.width as usize))?,
        BitDepth::Sixteen => writer.write_image_data(&swap_pairs(bytes))?,
        BitDepth::Two | BitDepth::Four | BitDepth::Eight => writer.write_image_data(bytes)?,
    }
    writer.finish()?;
    Ok(body)
}

/// Rows of one byte a pixel to rows of one bit a pixel, the leftmost in the highest bit.
fn pack_bits(bytes: &[u8], width: usize) -> Vec<u8> {
    let mut packed = Vec::with_capacity(bytes.len().div_ceil(8));
    for row in bytes.chunks(width) {
        packed.extend(row.chunks(8).map(|pixels| {
            pixels.iter().enumerate().fold(0_u8, |bits, (i, &pixel)| bits | u8::from(pixel != 0) << (7 - i))
        }));
    }
    packed
}

/// Little-endian pairs to the big-endian ones of PNG.
fn swap_pairs(bytes: &[u8]) -> Vec<u8> {
    bytes.chunks_exact(2).flat_map(|pair| [pair[1], pair[0]]).collect()
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use bytes::Bytes;

    use super::*;
    use crate::model::ChunkData;
    use crate::wire::{Format, check, encode};

    fn tensor(dtype: DType, shape: &[u64], bytes: &[u8]) -> Tensor {
        Tensor { shape: shape.to_vec(), dtype, data: ChunkData::Fixed(Bytes::copy_from_slice(bytes)) }
    }

    /// Encodes, then decodes by the crate's own decoder, without its conversions.
    fn round_trip(tensor: &Tensor) -> (u32, u32, ColorType, BitDepth, Vec<u8>) {
        let body = encode(Format::Png, "a", tensor, &[]).expect("possible");
        let mut reader = png::Decoder::new(Cursor::new(body)).read_info().expect("a PNG");
        let mut pixels = vec![0; reader.output_buffer_size().expect("a small picture")];
        let info = reader.next_frame(&mut pixels).expect("a frame");
        pixels.truncate(info.buffer_size());
        (info.width, info.height, info.color_type, info.bit_depth, pixels)
    }

    #[test]
    fn bytes_are_pixels() {
        let bytes: Vec<u8> = (0..24).map(|n| n * 10).collect();
        for (channels, color) in [(1, ColorType::Grayscale), (3, ColorType::Rgb), (4, ColorType::Rgba)] {
            let (height, width) = (2, 12 / channels);
            let picture = round_trip(&tensor(DType::UInt(8), &[height, width, channels], &bytes));
            assert_eq!(picture, (width as u32, height as u32, color, BitDepth::Eight, bytes.clone()));
        }
    }

    #[test]
    fn sixteen_bits_are_big_endian_in_the_file() {
        let picture = round_trip(&tensor(DType::UInt(16), &[1, 2], &[0x01, 0x02, 0x03, 0x04]));
        assert_eq!(picture, (2, 1, ColorType::Grayscale, BitDepth::Sixteen, vec![0x02, 0x01, 0x04, 0x03]));
    }

    #[test]
    fn bool_is_one_bit_and_each_row_starts_a_byte() {
        let mut pixels = [0_u8; 20];
        for i in [0, 9, 10, 18] {
            pixels[i] = 1;
        }
        let picture = round_trip(&tensor(DType::Bool, &[2, 10], &pixels));
        let rows = vec![0b1000_0000, 0b0100_0000, 0b1000_0000, 0b1000_0000];
        assert_eq!(picture, (10, 2, ColorType::Grayscale, BitDepth::One, rows));
    }

    #[test]
    fn what_is_no_picture_is_refused_with_the_reason() {
        let cases: [(DType, &[u64], &str); 7] = [
            (DType::Int(8), &[2, 2], "the elements are int8"),
            (DType::UInt(8), &[2], "the answer has 1"),
            (DType::UInt(8), &[2, 2, 2], "the answer has 2"),
            (DType::UInt(8), &[2, 2, 3, 1], "the answer has 4"),
            (DType::UInt(8), &[0, 2], "0 by 2"),
            (DType::UInt(8), &[1 << 31, 1], "2147483648"),
            (DType::Bool, &[2, 2, 3], "bool pixels have 1 channel"),
        ];
        for (dtype, shape, reason) in cases {
            let description = Description { name: "a", dtype: &dtype, shape, dims: &[] };
            let message = check(Format::Png, &[description]).unwrap_err().to_string();
            assert!(message.contains(reason), "{message}");
        }
    }
}
