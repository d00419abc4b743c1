//! Writes the files beside the group: a picture as `.npy`, small weights as `.safetensors`, and a text for people.

use std::path::Path;

use half::bf16;
use serde_json::{Map, json};

use super::{DemoError, clip};

/// Rows and columns of `frame.npy`.
const FRAME: [usize; 2] = [480, 640];

/// What the text in the bucket says.
const README: &str = include_str!("README.txt");

/// Writes `frame.npy`, `weights.safetensors` and `README.txt` into `folder`.
pub(super) fn write(folder: &Path) -> Result<(), DemoError> {
    let [height, width] = FRAME;
    let pixels = clip::still_life().render(height, width);
    write_file(folder, "frame.npy", &npy("|u1", &[height, width, 3], &pixels))?;
    write_file(folder, "weights.safetensors", &safetensors(&weights()))?;
    write_file(folder, "README.txt", README.as_bytes())
}

fn write_file(folder: &Path, name: &str, content: &[u8]) -> Result<(), DemoError> {
    let path = folder.join(name);
    std::fs::write(&path, content).map_err(|error| DemoError::file("write", &path, error))
}

/// A version 1.0 `.npy` file in C order.
fn npy(descr: &str, shape: &[usize], data: &[u8]) -> Vec<u8> {
    let shape: String = shape.iter().map(|length| format!("{length}, ")).collect();
    let mut header = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': ({}), }}", shape.trim_end());
    // Magic, version and length take 10 bytes; the header ends with a newline and the data start at a multiple of 64.
    let unpadded = 10 + header.len() + 1;
    header.push_str(&" ".repeat(unpadded.next_multiple_of(64) - unpadded));
    header.push('\n');
    let mut file = b"\x93NUMPY\x01\x00".to_vec();
    file.extend((header.len() as u16).to_le_bytes());
    file.extend(header.as_bytes());
    file.extend(data);
    file
}

/// One tensor of a `.safetensors` file.
struct Tensor {
    name: &'static str,
    dtype: &'static str,
    shape: Vec<usize>,
    data: Vec<u8>,
}

impl Tensor {
    fn f32(name: &'static str, shape: &[usize], value: impl Fn(usize) -> f32) -> Self {
        let count = shape.iter().product();
        let data = (0..count).flat_map(|element| value(element).to_le_bytes()).collect();
        Self { name, dtype: "F32", shape: shape.to_vec(), data }
    }

    fn bf16(name: &'static str, shape: &[usize], value: impl Fn(usize) -> f32) -> Self {
        let count = shape.iter().product();
        let data = (0..count).flat_map(|element| bf16::from_f32(value(element)).to_le_bytes()).collect();
        Self { name, dtype: "BF16", shape: shape.to_vec(), data }
    }
}

/// A toy model that would classify captions: byte embeddings and two layers. The widest elements come first, so that
/// each tensor is aligned to its element.
fn weights() -> Vec<Tensor> {
    const WIDTH: usize = 64;
    const HIDDEN: usize = 128;
    const CLASSES: usize = 8;
    // The sinusoids of position embeddings: row p, columns 2i and 2i + 1 hold sin and cos of p / 10000^(2i / WIDTH).
    let embedding = |element: usize| {
        let (row, column) = (element / WIDTH, element % WIDTH);
        let angle = row as f32 / 10_000f32.powf((column / 2 * 2) as f32 / WIDTH as f32);
        if column.is_multiple_of(2) { angle.sin() } else { angle.cos() }
    };
    let spread = |scale: f32| move |element: usize| scale * (element as f32 * 2.399_963).sin();
    vec![
        Tensor { name: "step", dtype: "I64", shape: vec![], data: 2_000i64.to_le_bytes().to_vec() },
        Tensor::f32("wte", &[256, WIDTH], embedding),
        Tensor::f32("mlp.0.bias", &[HIDDEN], spread(0.01)),
        Tensor::f32("mlp.2.bias", &[CLASSES], spread(0.01)),
        Tensor::bf16("mlp.0.weight", &[HIDDEN, WIDTH], spread(0.125)),
        Tensor::bf16("mlp.2.weight", &[CLASSES, HIDDEN], spread(0.088)),
    ]
}

/// A `.safetensors` file with the tensors in the order given.
fn safetensors(tensors: &[Tensor]) -> Vec<u8> {
    let mut header = Map::new();
    header.insert("__metadata__".into(), json!({ "title": "a toy caption classifier", "format": "pt" }));
    let mut offset = 0;
    for tensor in tensors {
        let end = offset + tensor.data.len();
        header.insert(
            tensor.name.into(),
            json!({ "dtype": tensor.dtype, "shape": tensor.shape, "data_offsets": [offset, end] }),
        );
        offset = end;
    }
    let mut header = serde_json::Value::Object(header).to_string();
    header.push_str(&" ".repeat(header.len().next_multiple_of(8) - header.len()));
    let mut file = (header.len() as u64).to_le_bytes().to_vec();
    file.extend(header.as_bytes());
    file.extend(tensors.iter().flat_map(|tensor| &tensor.data));
    file
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn npy_data_start_at_a_multiple_of_64() {
        for shape in [&[1][..], &[480, 640, 3], &[1_000_000_007, 12_345_678_901, 3]] {
            let file = npy("|u1", shape, b"data");
            assert_eq!((file.len() - 4) % 64, 0);
            assert_eq!(file[file.len() - 5], b'\n');
        }
        assert!(npy("|u1", &[7], b"").windows(13).any(|window| window == b"'shape': (7,)"));
    }

    #[test]
    fn safetensors_header_covers_the_data_without_gaps() {
        let tensors = weights();
        let file = safetensors(&tensors);
        let length = u64::from_le_bytes(file[..8].try_into().expect("eight bytes")) as usize;
        assert_eq!(length % 8, 0);
        let header: Map<String, serde_json::Value> = serde_json::from_slice(&file[8..8 + length]).expect("JSON");
        let mut end = 0;
        for tensor in &tensors {
            let entry = &header[tensor.name];
            assert_eq!(entry["data_offsets"][0], end);
            end += tensor.data.len();
            assert_eq!(entry["data_offsets"][1], end);
            let elements: usize = tensor.shape.iter().product();
            assert_eq!(tensor.data.len() % elements, 0);
        }
        assert_eq!(file.len(), 8 + length + end);
    }
}
