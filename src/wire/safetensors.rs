//! One tensor in the safetensors form: a length, a JSON header, the elements.
//!
//! Specification: <https://github.com/huggingface/safetensors#format>. The header's `__metadata__` (text to text)
//! holds `dims`, the axis names as JSON, and `dtype`, the Zarr name of the element type.

use serde_json::{Value, json};

use super::{Description, WireError, elements_len};

/// The reserved key of the header.
const METADATA: &str = "__metadata__";

/// Why safetensors cannot hold the answer, if it cannot.
pub(super) fn obstacle(description: &Description<'_>) -> Option<String> {
    let missing = description.dtype.safetensors_name().is_none();
    missing.then(|| format!("safetensors has no type for {}", description.dtype))
}

/// The header's length in 8 bytes, and the header, padded with spaces to a multiple of 8.
pub(super) fn head(description: &Description<'_>) -> Result<Vec<u8>, WireError> {
    // A tensor cannot take the reserved key, and an array at the root of a bucket has no name of its own.
    let name = match description.name {
        "" | METADATA => "array",
        name => name,
    };
    let dims = Value::from(description.dims.to_vec()).to_string();
    let header = json!({
        METADATA: { "dims": dims, "dtype": description.dtype.name() },
        name: {
            "dtype": description.dtype.safetensors_name(),
            "shape": description.shape,
            "data_offsets": [0, elements_len(description)?],
        },
    });
    let mut header = header.to_string().into_bytes();
    header.resize(header.len().next_multiple_of(8), b' ');
    let mut head = Vec::with_capacity(8 + header.len());
    head.extend_from_slice(&(header.len() as u64).to_le_bytes());
    head.append(&mut header);
    Ok(head)
}

#[cfg(test)]
mod tests {
    use crate::model::{DType, FloatKind};
    use crate::wire::{Description, Format, body_len, check, head};

    #[test]
    fn the_header_names_the_tensor_and_its_axes() {
        let dims = [Some("time".to_owned()), None];
        let dtype = DType::Float(FloatKind::BF16);
        let description = Description { name: "w\"te", dtype: &dtype, shape: &[3, 2], dims: &dims };
        let head = head(Format::Safetensors, &description).expect("possible");
        let count = u64::from_le_bytes(head[..8].try_into().expect("eight bytes")) as usize;
        assert_eq!((head.len(), count % 8), (8 + count, 0));
        assert_eq!(
            String::from_utf8_lossy(&head[8..]).trim_end(),
            r#"{"__metadata__":{"dims":"[\"time\",null]","dtype":"bfloat16"},"w\"te":{"dtype":"BF16","shape":[3,2],"data_offsets":[0,12]}}"#
        );
        assert_eq!(body_len(Format::Safetensors, &description).ok(), Some(head.len() as u64 + 12));
    }

    #[test]
    fn the_reserved_name_is_not_given_to_a_tensor() {
        for name in ["__metadata__", ""] {
            let description = Description { name, dtype: &DType::Bool, shape: &[], dims: &[] };
            let head = head(Format::Safetensors, &description).expect("possible");
            let header: serde_json::Value = serde_json::from_slice(&head[8..]).expect("JSON");
            assert_eq!(header["array"]["data_offsets"], serde_json::json!([0, 1]));
            assert_eq!(header["__metadata__"]["dims"], "[]");
        }
    }

    #[test]
    fn the_ieee_like_e4m3_is_not_passed_off_as_the_finite_one() {
        let with = |name| {
            let dtype = DType::Float(FloatKind::from_name(name).expect("a small float"));
            check(Format::Safetensors, &Description { name: "a", dtype: &dtype, shape: &[1], dims: &[] })
        };
        assert!(with("float8_e4m3fn").is_ok());
        assert!(with("float8_e4m3").is_err());
    }
}
