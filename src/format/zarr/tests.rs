use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::format::{ChunkKeys, FormatError, IndexLocation, ShardIndexFormat, Storage};
use crate::model::ChunkData;

// ---- chunks of other implementations --------------------------------------------------------------------------

struct Case {
    name: String,
    document: Vec<u8>,
    version: u64,
    chunk: Bytes,
    values: ChunkData,
}

fn decoded(value: &Value) -> Vec<u8> {
    BASE64_STANDARD.decode(value.as_str().unwrap()).unwrap()
}

/// One-chunk arrays that zarr-python and tensorstore wrote; `generate.py` beside the file tells how.
fn cases() -> Vec<Case> {
    let cases: Vec<Value> = serde_json::from_str(include_str!("../../../tests/fixtures/codecs/chunks.json")).unwrap();
    let case = |case: &Value| Case {
        name: case["name"].as_str().unwrap().into(),
        document: case["document"].to_string().into_bytes(),
        version: case["document"]["zarr_format"].as_u64().unwrap(),
        chunk: decoded(&case["chunk"]).into(),
        values: match &case["values"] {
            Value::Array(list) => ChunkData::Variable(list.iter().map(|v| decoded(v).into()).collect()),
            value => ChunkData::Fixed(decoded(value).into()),
        },
    };
    cases.iter().map(case).collect()
}

fn parse(document: &[u8], version: u64) -> Result<ArrayMeta, FormatError> {
    match version {
        2 => parse_v2_array(document, None),
        _ => match parse_v3(document)? {
            Node::Array(array) => Ok(*array),
            Node::Group(_) => panic!("a group"),
        },
    }
}

#[test]
fn chunks_of_zarr_python_and_tensorstore_decode_to_their_values() {
    let cases = cases();
    assert!(cases.len() >= 90);
    let mut wrong = Vec::new();
    for case in cases {
        let result = parse(&case.document, case.version)
            .map_err(|e| e.to_string())
            .and_then(|a| a.codec.decode(case.chunk.clone(), a.chunk_shape()).map_err(|e| e.to_string()));
        if result.as_ref() != Ok(&case.values) {
            wrong.push(format!("{}: {result:?}\n  instead of {:?}", case.name, case.values));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn broken_chunks_of_any_chain_never_panic(
        which in any::<prop::sample::Index>(),
        flips in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
        cut in prop::option::of(any::<prop::sample::Index>()),
    ) {
        thread_local! {
            static CASES: Vec<(ArrayMeta, Bytes, u64)> = cases()
                .iter()
                .map(|c| (parse(&c.document, c.version).unwrap(), c.chunk.clone(), c.values.weight_bytes()))
                .collect();
        }
        CASES.with(|cases| {
            let (array, chunk, weight) = &cases[which.index(cases.len())];
            let mut broken = chunk.to_vec();
            for (at, flip) in flips {
                let at = at.index(broken.len());
                broken[at] ^= flip;
            }
            if let Some(cut) = cut {
                broken.truncate(cut.index(broken.len()));
            }
            let changed = broken != chunk[..];
            match array.codec.decode(broken.into(), array.chunk_shape()) {
                Ok(data) if array.dtype.size_bytes().is_some() => prop_assert_eq!(data.weight_bytes(), *weight),
                Ok(_) => {}
                Err(_) => prop_assert!(changed, "an unbroken chunk was refused"),
            }
            Ok(())
        })?;
    }

    #[test]
    fn broken_documents_never_panic(
        which in any::<prop::sample::Index>(),
        edits in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..5),
        cut in prop::option::of(any::<prop::sample::Index>()),
    ) {
        let cases = cases();
        let case = &cases[which.index(cases.len())];
        let mut broken = case.document.clone();
        for (at, value) in edits {
            let at = at.index(broken.len());
            broken[at] = value;
        }
        if let Some(cut) = cut {
            broken.truncate(cut.index(broken.len()));
        }
        if let Ok(array) = parse(&broken, case.version) {
            let _ = array.codec.decode(case.chunk.clone(), array.chunk_shape());
        }
    }
}

/// Replaces one value anywhere in `document` by `value`; `at` counts the places.
fn replace(document: &mut Value, at: &mut usize, value: &Value) {
    if *at == 0 {
        *document = value.clone();
        *at = usize::MAX;
        return;
    }
    *at -= 1;
    match document {
        Value::Array(list) => list.iter_mut().for_each(|v| {
            if *at != usize::MAX {
                replace(v, at, value)
            }
        }),
        Value::Object(map) => map.values_mut().for_each(|v| {
            if *at != usize::MAX {
                replace(v, at, value)
            }
        }),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

#[test]
fn documents_with_any_value_replaced_never_panic() {
    let odd = [
        json!(null),
        json!(true),
        json!(-1),
        json!(0),
        json!(u64::MAX),
        json!(i64::MAX),
        json!(1e308),
        json!(""),
        json!("é"),
        json!([]),
        json!({}),
        json!([1, 1, 1, 1, 1]),
        json!([i64::MAX, i64::MAX]),
    ];
    for case in cases() {
        let document: Value = serde_json::from_slice(&case.document).unwrap();
        for place in 1..60 {
            for value in &odd {
                let mut broken = document.clone();
                replace(&mut broken, &mut { place }, value);
                if let Ok(array) = parse(broken.to_string().as_bytes(), case.version) {
                    let _ = array.codec.decode(case.chunk.clone(), array.chunk_shape());
                }
            }
        }
    }
}

// ---- Zarr v3 documents ----------------------------------------------------------------------------------------

/// An array document with `edits` over a plain one.
fn v3(edits: Value) -> Result<ArrayMeta, FormatError> {
    let mut document = json!({
        "zarr_format": 3, "node_type": "array", "shape": [100, 64], "data_type": "uint16",
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [20, 32]}},
        "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
        "fill_value": 0, "codecs": [{"name": "bytes", "configuration": {"endian": "little"}}],
        "attributes": {"fps": 25}
    });
    for (key, value) in edits.as_object().unwrap() {
        document[key] = value.clone();
    }
    parse(document.to_string().as_bytes(), 3)
}

fn bytes_codec() -> Value {
    json!({"name": "bytes", "configuration": {"endian": "little"}})
}

fn sharding(chunk_shape: Value, codecs: Value) -> Value {
    json!({"name": "sharding_indexed", "configuration": {
        "chunk_shape": chunk_shape, "codecs": codecs, "index_codecs": [bytes_codec(), "crc32c"]
    }})
}

#[track_caller]
fn malformed(result: Result<ArrayMeta, FormatError>, part: &str) {
    match result {
        Err(e @ FormatError::Malformed { .. }) => assert!(e.to_string().contains(part), "{e}"),
        other => panic!("{other:?}, not malformed with {part}"),
    }
}

#[track_caller]
fn unsupported(result: Result<ArrayMeta, FormatError>, message: &str) {
    match result {
        Err(FormatError::Malformed { .. }) | Ok(_) => panic!("{result:?}, not {message}"),
        Err(e) => assert!(e.to_string().starts_with(message), "{e}"),
    }
}

#[test]
fn a_plain_array_is_described() {
    let array = v3(json!({"dimension_names": ["y", null]})).unwrap();
    assert_eq!((array.shape.as_slice(), array.chunk_shape()), (&[100, 64][..], &[20, 32][..]));
    assert_eq!(array.dims, [Some("y".into()), None]);
    assert_eq!(array.fill, [0, 0]);
    assert_eq!(array.attributes["fps"], 25);
    assert_eq!(array.stored_codecs, json!([bytes_codec()]));
    assert_eq!(array.chunk_bytes(), Some(1280));
    assert!(array.codec.is_raw());
}

#[test]
fn nested_shards_become_levels() {
    let inner = sharding(json!([5, 8]), json!([bytes_codec(), "zstd"]));
    let array = v3(json!({"codecs": [sharding(json!([10, 32]), json!([inner]))]})).unwrap();
    let Storage::Grid(grid) = &array.storage else { panic!("grid") };
    assert_eq!(grid.object_shape, [20, 32]);
    let shapes: Vec<_> = grid.shards.iter().map(|level| level.inner_shape.clone()).collect();
    assert_eq!(shapes, [[10, 32], [5, 8]]);
    assert_eq!(grid.shards[0].index, ShardIndexFormat { big_endian: false, crc32c: true });
    assert_eq!(grid.shards[0].location, IndexLocation::End);
    assert_eq!(array.chunk_shape(), [5, 8]);
    assert!(!array.codec.has_checksum(), "the chunk's own chain has none");
}

#[test]
fn the_index_may_be_at_the_start_and_big_endian() {
    let mut shard = sharding(json!([10, 32]), json!([bytes_codec()]));
    shard["configuration"]["index_location"] = json!("start");
    shard["configuration"]["index_codecs"] = json!([{"name": "bytes", "configuration": {"endian": "big"}}]);
    let array = v3(json!({"codecs": [shard]})).unwrap();
    let Storage::Grid(grid) = &array.storage else { panic!("grid") };
    assert_eq!(grid.shards[0].index, ShardIndexFormat { big_endian: true, crc32c: false });
    assert_eq!(grid.shards[0].location, IndexLocation::Start);
}

#[test]
fn a_shard_among_other_codecs_is_one_chunk() {
    for codecs in [
        json!([sharding(json!([10, 32]), json!([bytes_codec()])), "crc32c"]),
        json!([{"name": "transpose", "configuration": {"order": [1, 0]}}, sharding(json!([32, 10]), json!([bytes_codec()]))]),
    ] {
        let array = v3(json!({"codecs": codecs})).unwrap();
        let Storage::Grid(grid) = &array.storage else { panic!("grid") };
        assert!(grid.shards.is_empty());
        assert_eq!(array.chunk_shape(), [20, 32]);
        assert!(!array.codec.is_raw());
    }
}

#[test]
fn shards_that_cannot_be_are_refused() {
    malformed(v3(json!({"codecs": [sharding(json!([3, 32]), json!([bytes_codec()]))]})), "do not divide");
    malformed(v3(json!({"codecs": [sharding(json!([20]), json!([bytes_codec()]))]})), "axes");
    malformed(v3(json!({"codecs": [sharding(json!([0, 32]), json!([bytes_codec()]))]})), "0 on axis 0");
    malformed(v3(json!({"codecs": [sharding(json!([20, 32]), json!([]))]})), "no codec");
    let mut compressed = sharding(json!([10, 32]), json!([bytes_codec()]));
    compressed["configuration"]["index_codecs"] = json!([bytes_codec(), "zstd"]);
    unsupported(v3(json!({"codecs": [compressed]})), "codec `zstd` is not supported: not in a shard index");
    let mut deep = json!([bytes_codec()]);
    for _ in 0..9 {
        deep = json!([sharding(json!([20, 32]), deep)]);
    }
    unsupported(v3(json!({ "codecs": deep })), "sharding on more than 8 levels");
    let wide = json!({"shape": [1_u64 << 50], "codecs": [sharding(json!([1]), json!([bytes_codec()]))],
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [1_u64 << 50]}}});
    unsupported(v3(wide), "a shard of [1125899906842624] inner chunks");
}

#[test]
fn what_is_unknown_is_named() {
    unsupported(v3(json!({"codecs": [bytes_codec(), "numcodecs.lzma"]})), "codec `numcodecs.lzma` is not supported");
    unsupported(v3(json!({"codecs": ["zfp"]})), "codec `zfp` is not supported");
    unsupported(v3(json!({"data_type": "float128"})), "data type `float128` is not supported");
    let grid = json!({"name": "rectilinear", "configuration": {}});
    unsupported(v3(json!({ "chunk_grid": grid })), "chunk grid `rectilinear` is not supported");
    unsupported(v3(json!({"chunk_key_encoding": "fanout"})), "chunk key encoding `fanout` is not supported");
    unsupported(v3(json!({"storage_transformers": [{"name": "x"}]})), "storage transformer `x` is not supported");
    unsupported(v3(json!({"extra": {"a": 1}})), "the array metadata field `extra` is not supported");
}

#[test]
fn what_need_not_be_understood_is_ignored() {
    assert!(v3(json!({"extra": {"must_understand": false}, "storage_transformers": []})).is_ok());
    let codecs = json!([bytes_codec(), {"name": "comment", "must_understand": false}]);
    assert!(v3(json!({ "codecs": codecs })).unwrap().codec.is_raw());
}

#[test]
fn contradictions_are_malformed() {
    malformed(v3(json!({"zarr_format": 2})), "zarr_format");
    malformed(v3(json!({"node_type": "file"})), "node_type");
    malformed(v3(json!({"shape": [100]})), "axes");
    malformed(v3(json!({"shape": [100, -1]})), "length");
    malformed(v3(json!({"shape": [100, u64::MAX]})), "length");
    malformed(v3(json!({"shape": vec![1; 33]})), "33 axes");
    malformed(v3(json!({"fill_value": null})), "not a value");
    malformed(v3(json!({"fill_value": 65536})), "not a value");
    malformed(v3(json!({"dimension_names": ["y"]})), "for 2 axes");
    malformed(v3(json!({"codecs": []})), "no codec");
    malformed(v3(json!({"codecs": ["bytes"]})), "no `endian`");
    malformed(v3(json!({"codecs": ["zstd", bytes_codec()]})), "works on bytes");
    malformed(v3(json!({"codecs": [bytes_codec(), bytes_codec()]})), "works on elements");
    malformed(
        v3(json!({"codecs": [{"name": "transpose", "configuration": {"order": [0, 0]}}, bytes_codec()]})),
        "permutation",
    );
    malformed(v3(json!({"data_type": "string", "fill_value": "", "codecs": ["bytes"]})), "vary in length");
    malformed(v3(json!({"codecs": ["vlen-utf8"]})), "not on elements");
    malformed(parse(&vec![b' '; (8 << 20) + 1], 3), "8388608");
}

#[test]
fn absurd_shapes_are_described_but_absurd_chunks_are_not() {
    let grid = |n: u64| json!({"name": "regular", "configuration": {"chunk_shape": [n, n]}});
    let max = (1_u64 << 63) - 1;
    let array = v3(json!({"shape": [max, max]})).unwrap();
    assert_eq!(array.shape, [max, max]);
    unsupported(v3(json!({"chunk_grid": grid(1 << 20)})), "a chunk of shape");
    unsupported(v3(json!({"chunk_grid": grid(1 << 40)})), "a chunk of shape");
    let empty =
        v3(json!({"shape": [0, 64], "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [0, 64]}}}));
    assert_eq!(empty.unwrap().chunk_shape(), [1, 64]);
}

#[test]
fn key_encodings_have_their_own_separators() {
    let keys = |encoding: Value| {
        let Storage::Grid(grid) = v3(json!({ "chunk_key_encoding": encoding })).unwrap().storage else {
            panic!("grid")
        };
        grid.keys
    };
    assert_eq!(keys(json!("default")), ChunkKeys::Default { separator: '/' });
    assert_eq!(keys(json!({"name": "v2"})), ChunkKeys::V2 { separator: '.' });
    assert_eq!(keys(json!({"name": "v2", "configuration": {"separator": "/"}})), ChunkKeys::V2 { separator: '/' });
}

#[test]
fn packed_bits_are_decoded_by_zarrs() {
    let decode = |dtype: &str, fill: Value, stored: Vec<u8>| {
        let array = v3(json!({"data_type": dtype, "fill_value": fill, "codecs": ["packbits"], "shape": [3],
            "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [3]}}}))
        .unwrap();
        array.codec.decode(stored.into(), &[3])
    };
    // Least significant bit first: the Zarr codec, unlike numcodecs' codec of that name.
    assert_eq!(decode("bool", json!(false), vec![0b101]).unwrap(), ChunkData::Fixed(vec![1, 0, 1].into()));
    assert_eq!(decode("int4", json!(0), vec![0x2f, 0x08]).unwrap(), ChunkData::Fixed(vec![0xff, 2, 0xf8].into()));
    assert!(decode("bool", json!(false), vec![]).is_err());
    assert!(decode("bool", json!(false), vec![0; 9]).is_err());
    unsupported(v3(json!({"codecs": ["packbits"], "data_type": "float32"})), "codec `packbits` is not supported");
}

#[test]
fn the_vlen_codec_of_zarrs_is_decoded_by_zarrs() {
    use std::num::NonZeroU64;
    use zarrs::array::codec::CodecChain;
    use zarrs::array::codec::api::{ArrayToBytesCodecTraits, CodecOptions};
    use zarrs::array::{ArrayBytes, ArrayBytesOffsets, FillValue, data_type};

    let vlen = |data_codecs: Value| {
        json!({"name": "zarrs.vlen", "configuration": {"index_data_type": "uint32", "index_location": "end",
            "index_codecs": [bytes_codec(), "crc32c"], "data_codecs": data_codecs}})
    };
    let array = |codec: &Value| {
        v3(json!({"data_type": "string", "fill_value": "", "shape": [3], "codecs": [codec],
            "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [3]}}}))
    };
    let codec = vlen(json!(["bytes"]));
    let chain = CodecChain::from_metadata(&[serde_json::from_value(codec.clone()).unwrap()]).unwrap();
    let values = ArrayBytes::new_vlen(b"abcde".to_vec(), ArrayBytesOffsets::new(vec![0, 2, 2, 5]).unwrap()).unwrap();
    let (shape, dtype, fill) = ([NonZeroU64::new(3).unwrap()], data_type::string(), FillValue::from(""));
    let stored = chain.encode(values, &shape, &dtype, &fill, &CodecOptions::default()).unwrap().into_owned();

    let array_meta = array(&codec).unwrap();
    let expected = ["ab", "", "cde"].map(|s| s.as_bytes().into()).to_vec();
    let decode = |stored: &[u8]| array_meta.codec.decode(Bytes::copy_from_slice(stored), &[3]);
    assert_eq!(decode(&stored).unwrap(), ChunkData::Variable(expected));
    for cut in 0..stored.len() {
        assert!(decode(&stored[..cut]).is_err(), "cut at {cut}");
    }
    let text = stored.windows(5).position(|w| w == b"abcde").unwrap();
    let mut broken = stored.clone();
    broken[text] = 0xff;
    assert!(decode(&broken).is_err(), "not UTF-8");
    unsupported(array(&vlen(json!(["bytes", "zstd"]))), "codec `zstd` is not supported: not inside `zarrs.vlen`");
}

#[test]
fn reshaped_and_squeezed_chunks_keep_their_elements() {
    let codecs = json!([
        {"name": "reshape", "configuration": {"shape": [[0, 1]]}},
        {"name": "reshape", "configuration": {"shape": [2, -1]}},
        {"name": "transpose", "configuration": {"order": [1, 0]}},
        bytes_codec()
    ]);
    let array = v3(json!({"shape": [4, 3], "data_type": "uint8", "codecs": codecs,
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [4, 3]}}}))
    .unwrap();
    let stored: Vec<u8> = (0..6).flat_map(|i| [i, i + 6]).collect();
    let expected: Vec<u8> = (0..12).collect();
    assert_eq!(array.codec.decode(stored.into(), &[4, 3]).unwrap(), ChunkData::Fixed(expected.into()));
}

// ---- Zarr v2 documents ----------------------------------------------------------------------------------------

fn v2(edits: Value, attributes: Option<&str>) -> Result<ArrayMeta, FormatError> {
    let mut document = json!({
        "zarr_format": 2, "shape": [10, 6], "chunks": [5, 6], "dtype": "<f4", "compressor": null,
        "fill_value": null, "order": "C", "filters": null
    });
    for (key, value) in edits.as_object().unwrap() {
        document[key] = value.clone();
    }
    parse_v2_array(document.to_string().as_bytes(), attributes.map(str::as_bytes))
}

#[test]
fn a_v2_array_is_described() {
    let attributes = r#"{"_ARRAY_DIMENSIONS": ["time", "x"], "missing": NaN}"#;
    let array = v2(json!({"dimension_separator": "/"}), Some(attributes)).unwrap();
    assert_eq!(array.dims, [Some("time".into()), Some("x".into())]);
    assert_eq!(array.attributes["missing"], "NaN");
    assert!(array.attributes.contains_key("_ARRAY_DIMENSIONS"));
    assert_eq!(array.fill, [0; 4]);
    assert_eq!(array.stored_codecs, json!({"filters": null, "compressor": null}));
    let Storage::Grid(grid) = &array.storage else { panic!("grid") };
    assert_eq!(grid.keys, ChunkKeys::V2 { separator: '/' });
    assert!(array.codec.is_raw());
}

#[test]
fn v2_fill_values_follow_their_type() {
    let fill = |dtype: &str, value: Value| v2(json!({"dtype": dtype, "fill_value": value}), None).unwrap().fill;
    assert_eq!(fill("<f4", json!("NaN")), f32::NAN.to_le_bytes());
    assert_eq!(fill(">i2", json!(258)), [2, 1]);
    assert_eq!(fill("|S3", json!("YWI=")), b"ab\0");
    assert_eq!(fill("<M8[ns]", json!(i64::MIN)), i64::MIN.to_le_bytes());
    assert_eq!(fill("|b1", json!(1)), [1]);
    let strings = v2(json!({"dtype": "|O", "fill_value": 0, "filters": [{"id": "vlen-utf8"}]}), None).unwrap();
    assert_eq!((strings.dtype, strings.fill), (crate::model::DType::String, vec![]));
}

#[test]
fn v2_types_and_filters_without_a_counterpart_are_named() {
    unsupported(v2(json!({"dtype": [["a", "<f4"], ["b", "<i4"]]}), None), "data type `[[\"a\",\"<f4\"]");
    unsupported(v2(json!({"dtype": "|O"}), None), "data type `|O` is not supported: object arrays need");
    unsupported(v2(json!({"dtype": "|O", "filters": [{"id": "pickle"}]}), None), "data type `|O`");
    unsupported(v2(json!({"compressor": {"id": "lzma"}}), None), "codec `lzma` is not supported");
    unsupported(v2(json!({"filters": [{"id": "categorize"}]}), None), "codec `categorize` is not supported");
    let behind = json!({"filters": [{"id": "zlib"}, {"id": "delta", "dtype": "<f4"}]});
    unsupported(v2(behind, None), "codec `delta` is not supported: behind");
    malformed(v2(json!({"filters": [{"id": "delta", "dtype": "<i8"}]}), None), "the elements are");
    malformed(v2(json!({"order": "A"}), None), "order");
    malformed(v2(json!({"chunks": [5]}), None), "axes");
    malformed(v2(json!({"zarr_format": 3}), None), "zarr_format");
}

// ---- groups ---------------------------------------------------------------------------------------------------

fn members(group: &GroupMeta) -> Vec<(&str, String)> {
    let kind = |member: &Member| match member {
        Member::Array(array) => format!("array of {}", array.dtype),
        Member::Group(attributes) => format!("group of {}", attributes.len()),
        Member::Unreadable(e) => e.to_string(),
    };
    group.consolidated.iter().flatten().map(|(path, member)| (path.as_str(), kind(member))).collect()
}

#[test]
fn a_v3_group_lists_its_members_even_the_unreadable() {
    let array = json!({"zarr_format": 3, "node_type": "array", "shape": [], "data_type": "int8", "fill_value": 0,
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": []}}, "chunk_key_encoding": "default",
        "codecs": ["bytes"]});
    let mut odd = array.clone();
    odd["codecs"] = json!(["bytes", "odd"]);
    let document = json!({"zarr_format": 3, "node_type": "group", "attributes": {"a": 1}, "consolidated_metadata": {
        "kind": "inline", "must_understand": false, "metadata": {
            "x": array, "g": {"zarr_format": 3, "node_type": "group"}, "g/odd": odd, "../y": array, "n": 5
    }}});
    let Node::Group(group) = parse_v3(document.to_string().as_bytes()).unwrap() else { panic!("group") };
    assert_eq!(group.attributes["a"], 1);
    let expected = [
        ("x", "array of int8".to_owned()),
        ("g", "group of 0".to_owned()),
        ("g/odd", "codec `odd` is not supported".to_owned()),
        ("../y", "consolidated metadata: the path leaves the group".to_owned()),
        ("n", "consolidated metadata: a node is a number".to_owned()),
    ];
    assert_eq!(members(&group), expected);
}

#[test]
fn a_group_without_consolidated_metadata_has_none() {
    for consolidated in [json!(null), json!({"kind": "linked"})] {
        let document = json!({"zarr_format": 3, "node_type": "group", "consolidated_metadata": consolidated});
        let Node::Group(group) = parse_v3(document.to_string().as_bytes()).unwrap() else { panic!("group") };
        assert!(group.consolidated.is_none() && group.attributes.is_empty());
    }
    assert_eq!(parse_v2_group(br#"{"zarr_format": 2}"#, Some(b"{\"a\": 1}")).unwrap().attributes["a"], 1);
}

#[test]
fn v2_consolidated_metadata_lists_members_with_their_attributes() {
    let array = json!({"zarr_format": 2, "shape": [3], "chunks": [3], "dtype": "|u1", "compressor": null,
        "fill_value": 0, "order": "C", "filters": null});
    let document = json!({"zarr_consolidated_format": 1, "metadata": {
        ".zattrs": {"title": "t"}, ".zgroup": {"zarr_format": 2},
        "x/.zarray": array, "x/.zattrs": {"_ARRAY_DIMENSIONS": ["t"]},
        "g/.zgroup": {"zarr_format": 2}, "g/.zattrs": {"a": 1}, "g/bad/.zarray": {"zarr_format": 2}
    }});
    let group = parse_v2_consolidated(document.to_string().as_bytes()).unwrap();
    assert_eq!(group.attributes["title"], "t");
    let expected = [
        ("x", "array of uint8".to_owned()),
        ("g", "group of 1".to_owned()),
        ("g/bad", ".zarray: `shape` is missing".to_owned()),
    ];
    assert_eq!(members(&group), expected);
    let Some((_, Member::Array(x))) = group.consolidated.iter().flatten().next() else { panic!("array") };
    assert_eq!(x.dims, [Some("t".into())]);
    assert!(parse_v2_consolidated(br#"{"zarr_consolidated_format": 1, "metadata": {}}"#).is_err());
}
