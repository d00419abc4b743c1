//! Tensors in the safetensors form: a length, a JSON header, the elements.
//!
//! Specification: <https://github.com/huggingface/safetensors#format>. The header's `__metadata__` (text to text)
//! holds `dims`, the axis names as JSON, and `dtype`, the Zarr name of the element type.

use serde_json::{Map, Value, json};

use super::{Description, WireError};

/// The reserved key of the header.
const METADATA: &str = "__metadata__";

/// Why safetensors cannot hold the answer, if it cannot.
pub(super) fn obstacle(description: &Description<'_>) -> Option<String> {
    let missing = description.dtype.safetensors_name().is_none();
    missing.then(|| format!("safetensors has no type for {}", description.dtype))
}

/// The header's length in 8 bytes, and the header, padded with spaces to a multiple of 8.
///
/// Of several tensors `dims` and `dtype` are objects by their names.
pub(super) fn head(tensors: &[Description<'_>]) -> Result<Vec<u8>, WireError> {
    // A tensor cannot take the reserved key, and an array at the root of a bucket has no name of its own.
    let name = |tensor: &Description<'_>| match tensor.name {
        "" | METADATA => "array".to_owned(),
        name => name.to_owned(),
    };
    let dims = |tensor: &Description<'_>| Value::from(tensor.dims.to_vec());
    let metadata = match tensors {
        [tensor] => json!({ "dims": dims(tensor).to_string(), "dtype": tensor.dtype.name() }),
        _ => {
            let each = |of: &dyn Fn(&Description<'_>) -> Value| {
                tensors.iter().map(|tensor| (name(tensor), of(tensor))).collect::<Map<_, _>>()
            };
            let dtypes = each(&|tensor| tensor.dtype.name().into());
            json!({ "dims": Value::from(each(&dims)).to_string(), "dtype": Value::from(dtypes).to_string() })
        }
    };
    let mut header = Map::new();
    header.insert(METADATA.to_owned(), metadata);
    let places = super::places(&[], tensors)?;
    for (tensor, place) in tensors.iter().zip(places.windows(2)) {
        let entry = json!({
            "dtype": tensor.dtype.safetensors_name(),
            "shape": tensor.shape,
            "data_offsets": place,
        });
        header.insert(name(tensor), entry);
    }
    let mut header = Value::from(header).to_string().into_bytes();
    header.resize(header.len().next_multiple_of(8), b' ');
    let mut head = Vec::with_capacity(8 + header.len());
    head.extend_from_slice(&(header.len() as u64).to_le_bytes());
    head.append(&mut header);
    Ok(head)
}

#[cfg(test)]
mod tests {
    use crate::model::{DType, FloatKind};
    use crate::wire::{Description, Format, check, head, places};

    #[test]
    fn the_header_names_the_tensor_and_its_axes() {
        let dims = [Some("time".to_owned()), None];
        let dtype = DType::Float(FloatKind::BF16);
        let description = Description { name: "w\"te", dtype: &dtype, shape: &[3, 2], dims: &dims };
        let head = head(Format::Safetensors, &[description]).expect("possible");
        let count = u64::from_le_bytes(head[..8].try_into().expect("eight bytes")) as usize;
        assert_eq!((head.len(), count % 8), (8 + count, 0));
        assert_eq!(
            String::from_utf8_lossy(&head[8..]).trim_end(),
            r#"{"__metadata__":{"dims":"[\"time\",null]","dtype":"bfloat16"},"w\"te":{"dtype":"BF16","shape":[3,2],"data_offsets":[0,12]}}"#
        );
        let start = head.len() as u64;
        assert_eq!(places(&head, &[description]).ok(), Some(vec![start, start + 12]));
    }

    #[test]
    fn several_tensors_follow_each_other() {
        let (float, byte) = (DType::Float(FloatKind::F32), DType::UInt(8));
        let dims = [Some("t".to_owned())];
        let of = |name, dtype, shape| Description { name, dtype, shape, dims: &dims };
        let tensors = [of("audio", &float, &[3]), of("a/video", &byte, &[5])];
        let head = head(Format::Safetensors, &tensors).expect("possible");
        let header: serde_json::Value = serde_json::from_slice(&head[8..]).expect("JSON");
        assert_eq!(header["audio"]["data_offsets"], serde_json::json!([0, 12]));
        assert_eq!(header["a/video"]["data_offsets"], serde_json::json!([12, 17]));
        assert_eq!(header["__metadata__"]["dims"], r#"{"audio":["t"],"a/video":["t"]}"#);
        assert!(check(Format::Npy, &tensors).is_err() && check(Format::Raw, &tensors).is_ok());
    }

    #[test]
    fn the_reserved_name_is_not_given_to_a_tensor() {
        for name in ["__metadata__", ""] {
            let description = Description { name, dtype: &DType::Bool, shape: &[], dims: &[] };
            let head = head(Format::Safetensors, &[description]).expect("possible");
            let header: serde_json::Value = serde_json::from_slice(&head[8..]).expect("JSON");
            assert_eq!(header["array"]["data_offsets"], serde_json::json!([0, 1]));
            assert_eq!(header["__metadata__"]["dims"], "[]");
        }
    }

    #[test]
    fn the_ieee_like_e4m3_is_not_passed_off_as_the_finite_one() {
        let with = |name| {
            let dtype = DType::Float(FloatKind::from_name(name).expect("a small float"));
            check(Format::Safetensors, &[Description { name: "a", dtype: &dtype, shape: &[1], dims: &[] }])
        };
        assert!(with("float8_e4m3fn").is_ok());
        assert!(with("float8_e4m3").is_err());
    }
}
