use std::io::Write;

use proptest::prelude::*;

use super::*;
use crate::model::{ErrorKind, Fault, FloatKind, shape};

/// A chain of packed little-endian bytes through `stages`.
fn chain(dtype: DType, chunk_shape: &[u64], stages: Vec<BytesStage>) -> ChunkCodec {
    ChunkCodec::new(dtype, chunk_shape, Vec::new(), ToBytes::Bytes { big_endian: false }, stages).unwrap()
}

fn bytes_of(n: u64, stage: BytesStage) -> ChunkCodec {
    chain(DType::UInt(8), &[n], vec![stage])
}

const CRC32C: BytesStage = BytesStage::Checksum { algorithm: Algorithm::Crc32c, place: Place::End };

/// Encodes with another implementation than the one that decodes, where there is one.
fn encode(stage: &BytesStage, bytes: &[u8]) -> Vec<u8> {
    match stage {
        BytesStage::Zstd => ::zstd::bulk::compress(bytes, 1).unwrap(),
        BytesStage::Gzip => {
            let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
            encoder.write_all(bytes).unwrap();
            encoder.finish().unwrap()
        }
        BytesStage::Zlib => {
            let mut encoder = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::fast());
            encoder.write_all(bytes).unwrap();
            encoder.finish().unwrap()
        }
        BytesStage::Bz2 => {
            let mut encoder = ::bzip2::write::BzEncoder::new(Vec::new(), ::bzip2::Compression::fast());
            encoder.write_all(bytes).unwrap();
            encoder.finish().unwrap()
        }
        BytesStage::Lz4 => [(bytes.len() as u32).to_le_bytes().to_vec(), lz4_flex::block::compress(bytes)].concat(),
        BytesStage::Blosc => zarrs::array::codec::blosc_compress_bytes(
            bytes,
            5.try_into().unwrap(),
            zarrs::array::codec::BloscShuffleMode::Shuffle,
            4,
            zarrs::array::codec::BloscCompressor::LZ4,
            0,
            1,
        )
        .unwrap(),
        BytesStage::Shuffle { size } => {
            let count = bytes.len() / size;
            (0..bytes.len()).map(|i| bytes[i % count * size + i / count]).collect()
        }
        BytesStage::Checksum { algorithm, place } => {
            let sum = algorithm.of(bytes).to_le_bytes();
            match place {
                Place::Start => [&sum, bytes].concat(),
                Place::End => [bytes, &sum].concat(),
            }
        }
    }
}

fn stages() -> impl Strategy<Value = BytesStage> {
    prop_oneof![
        Just(BytesStage::Zstd),
        Just(BytesStage::Gzip),
        Just(BytesStage::Zlib),
        Just(BytesStage::Bz2),
        Just(BytesStage::Lz4),
        Just(BytesStage::Blosc),
        Just(BytesStage::Shuffle { size: 4 }),
        (
            prop::sample::select(vec![Algorithm::Crc32c, Algorithm::Crc32, Algorithm::Adler32, Algorithm::Fletcher32]),
            any::<bool>()
        )
            .prop_map(|(algorithm, start)| BytesStage::Checksum {
                algorithm,
                place: if start { Place::Start } else { Place::End }
            }),
    ]
}

/// Chains in which a shuffle sees the elements, as every writer makes them.
fn chains() -> impl Strategy<Value = Vec<BytesStage>> {
    prop::collection::vec(stages(), 0..4).prop_map(|mut stages| {
        let shuffled = stages.iter().any(|s| matches!(s, BytesStage::Shuffle { .. }));
        stages.retain(|s| !matches!(s, BytesStage::Shuffle { .. }));
        if shuffled {
            stages.insert(0, BytesStage::Shuffle { size: 4 });
        }
        stages
    })
}

/// Compressible bytes with some entropy.
fn content(len: usize, seed: u64) -> Vec<u8> {
    (0..len as u64).map(|i| ((i.wrapping_mul(seed | 1) >> 3) % 23) as u8).collect()
}

/// Decodes `n` elements of four bytes in both ways, which must agree.
fn decoded(codec: &ChunkCodec, stored: Vec<u8>, n: u64) -> Result<ChunkData, CodecError> {
    let stored = bytes::Bytes::from(stored);
    let mut out = vec![0; n as usize * 4];
    let in_place = codec.decode_into(stored.clone(), &[n], &mut out);
    let alone = codec.decode(stored, &[n]);
    assert_eq!(in_place.is_ok(), alone.is_ok(), "{in_place:?} {alone:?}");
    if alone.is_ok() {
        assert_eq!(alone.as_ref().ok(), Some(&ChunkData::Fixed(out.into())));
    }
    alone
}

proptest! {
    #[test]
    fn what_was_encoded_is_decoded(stages in chains(), n in 1_u64..3000, seed in any::<u64>()) {
        let elements = content(n as usize * 4, seed);
        let stored = stages.iter().fold(elements.clone(), |bytes, stage| encode(stage, &bytes));
        let codec = chain(DType::Int(32), &[n], stages);
        prop_assert_eq!(decoded(&codec, stored, n).unwrap(), ChunkData::Fixed(elements.into()));
    }

    #[test]
    fn broken_chunks_are_errors_or_have_the_right_length(
        stages in chains(),
        n in 1_u64..200,
        flips in prop::collection::vec((any::<prop::sample::Index>(), 1_u8..), 0..4),
        cut in any::<prop::sample::Index>(),
        truncate in any::<bool>(),
    ) {
        let mut stored = stages.iter().fold(content(n as usize * 4, 77), |bytes, stage| encode(stage, &bytes));
        for (at, flip) in flips {
            let at = at.index(stored.len());
            stored[at] ^= flip;
        }
        if truncate {
            stored.truncate(cut.index(stored.len()));
        }
        let codec = chain(DType::Int(32), &[n], stages);
        if let Ok(data) = decoded(&codec, stored, n) {
            prop_assert_eq!(data.weight_bytes(), n * 4);
        }
    }

    #[test]
    fn noise_is_never_more_than_an_error(stages in chains(), noise in prop::collection::vec(any::<u8>(), 0..300)) {
        let codec = chain(DType::Int(32), &[16], stages);
        if let Ok(data) = decoded(&codec, noise, 16) {
            prop_assert_eq!(data.weight_bytes(), 64);
        }
    }

    #[test]
    fn a_flipped_bit_under_a_checksum_is_always_an_error(
        inner in stages(),
        algorithm in prop::sample::select(vec![Algorithm::Crc32c, Algorithm::Crc32, Algorithm::Fletcher32]),
        at in any::<prop::sample::Index>(),
        bit in 0_u32..8,
    ) {
        let checksum = BytesStage::Checksum { algorithm, place: Place::End };
        let mut stored = encode(&checksum, &encode(&inner, &content(400, 5)));
        let at = at.index(stored.len());
        stored[at] ^= 1 << bit;
        let codec = chain(DType::Int(32), &[100], vec![inner, checksum]);
        prop_assert!(codec.has_checksum());
        prop_assert!(decoded(&codec, stored, 100).is_err());
    }
}

#[test]
fn every_bit_of_a_crc32c_chunk_is_covered() {
    let stored = encode(&CRC32C, &encode(&BytesStage::Zstd, &content(64, 3)));
    let codec = chain(DType::UInt(8), &[64], vec![BytesStage::Zstd, CRC32C]);
    assert!(codec.decode(stored.clone().into(), &[64]).is_ok());
    for bit in 0..stored.len() * 8 {
        let mut broken = stored.clone();
        broken[bit / 8] ^= 1 << (bit % 8);
        let error = codec.decode(broken.into(), &[64]).unwrap_err();
        assert!(matches!(error, CodecError::Checksum { .. }), "bit {bit}: {error}");
        assert_eq!(error.kind(), ErrorKind::CorruptData);
    }
}

#[test]
fn a_zstd_header_that_claims_petabytes_allocates_nothing() {
    // Magic, a descriptor for an 8-byte content size in a single segment, 2^46, then an empty last block.
    let mut frame = vec![0x28, 0xb5, 0x2f, 0xfd, 0xe0];
    frame.extend_from_slice(&(1_u64 << 46).to_le_bytes());
    frame.extend_from_slice(&[1, 0, 0]);
    let codec = bytes_of(64, BytesStage::Zstd);
    assert!(codec.decode(frame.clone().into(), &[64]).is_err());
    // Under another compressor only an upper bound is known.
    let double = chain(DType::UInt(8), &[64], vec![BytesStage::Gzip, BytesStage::Zstd]);
    assert!(double.decode(frame.into(), &[64]).is_err());
}

#[test]
fn all_zstd_frames_count() {
    let frame = |bytes: &[u8]| ::zstd::bulk::compress(bytes, 1).unwrap();
    let two = [frame(b"abcd"), frame(b"efgh")].concat();
    let codec = bytes_of(8, BytesStage::Zstd);
    assert_eq!(codec.decode(two.clone().into(), &[8]).unwrap(), ChunkData::Fixed(Bytes::from_static(b"abcdefgh")));
    for n in [4, 7, 9] {
        assert!(bytes_of(n, BytesStage::Zstd).decode(two.clone().into(), &[n]).is_err(), "{n}");
    }
}

#[test]
fn a_zstd_frame_without_a_content_size_is_decoded() {
    let mut encoder = ::zstd::stream::write::Encoder::new(Vec::new(), 1).unwrap();
    encoder.include_contentsize(false).unwrap();
    encoder.write_all(&[9; 1000]).unwrap();
    let stored = encoder.finish().unwrap();
    let data = bytes_of(1000, BytesStage::Zstd).decode(stored.into(), &[1000]).unwrap();
    assert_eq!(data, ChunkData::Fixed(vec![9; 1000].into()));
}

#[test]
fn bombs_stop_at_the_chunk() {
    for stage in [BytesStage::Gzip, BytesStage::Zlib, BytesStage::Bz2, BytesStage::Zstd, BytesStage::Lz4] {
        let bomb = encode(&stage, &vec![0; 4 << 20]);
        assert!(bytes_of(100, stage.clone()).decode(bomb.into(), &[100]).is_err(), "{stage:?}");
    }
}

#[test]
fn lengths_that_contradict_the_shape_are_errors() {
    for stage in [
        BytesStage::Gzip,
        BytesStage::Zlib,
        BytesStage::Bz2,
        BytesStage::Zstd,
        BytesStage::Lz4,
        BytesStage::Blosc,
        CRC32C,
        BytesStage::Shuffle { size: 4 },
    ] {
        let stored = encode(&stage, &content(64, 3));
        for n in [1, 60, 63, 65, 68] {
            assert!(bytes_of(n, stage.clone()).decode(stored.clone().into(), &[n]).is_err(), "{stage:?} as {n}");
        }
    }
    let raw = chain(DType::UInt(16), &[4], Vec::new());
    for len in [0, 7, 9] {
        assert!(raw.decode(vec![0; len].into(), &[4]).is_err());
    }
}

#[test]
fn a_blosc_header_is_compared_with_the_truth() {
    let good = encode(&BytesStage::Blosc, &content(256, 3));
    let codec = bytes_of(256, BytesStage::Blosc);
    assert!(codec.decode(good.clone().into(), &[256]).is_ok());
    for (at, value) in [(4, u32::MAX), (4, 0), (4, 255), (8, 0), (8, u32::MAX), (12, 16), (12, u32::MAX)] {
        let mut bad = good.clone();
        bad[at..at + 4].copy_from_slice(&value.to_le_bytes());
        assert!(codec.decode(bad.into(), &[256]).is_err(), "{value} at {at}");
    }
    assert!(codec.decode(good[..15].to_vec().into(), &[256]).is_err());
}

#[test]
fn raw_chunks_are_not_copied() {
    let codec = chain(DType::Float(FloatKind::F32), &[2], Vec::new());
    assert!(codec.is_raw() && !codec.has_checksum());
    let stored = Bytes::from(vec![1_u8; 8]);
    let address = stored.as_ptr();
    let ChunkData::Fixed(bytes) = codec.decode(stored, &[2]).unwrap() else { panic!("fixed") };
    assert_eq!(bytes.as_ptr(), address);
}

#[test]
fn big_endian_words_are_swapped() {
    let check = |dtype: DType, stored: &[u8], expected: &[u8]| {
        let codec = ChunkCodec::new(dtype, &[1], Vec::new(), ToBytes::Bytes { big_endian: true }, Vec::new()).unwrap();
        let decoded = codec.decode(Bytes::copy_from_slice(stored), &[1]).unwrap();
        assert_eq!(decoded, ChunkData::Fixed(Bytes::copy_from_slice(expected)));
    };
    check(DType::UInt(16), &[1, 2], &[2, 1]);
    check(DType::Complex(FloatKind::F32), &[1, 2, 3, 4, 5, 6, 7, 8], &[4, 3, 2, 1, 8, 7, 6, 5]);
    check(DType::FixedUtf32(2), &[0, 0, 0, 65, 0, 0, 0, 66], &[65, 0, 0, 0, 66, 0, 0, 0]);
    check(DType::RawBits(3), &[1, 2, 3], &[1, 2, 3]);
}

#[test]
fn fingerprints_tell_chains_types_and_shapes_apart() {
    let all = [
        chain(DType::UInt(16), &[4, 2], Vec::new()),
        chain(DType::Int(16), &[4, 2], Vec::new()),
        chain(DType::UInt(16), &[2, 4], Vec::new()),
        chain(DType::UInt(16), &[4, 2], vec![BytesStage::Zstd]),
        chain(DType::UInt(16), &[4, 2], vec![BytesStage::Zstd, CRC32C]),
        ChunkCodec::dense(DType::UInt(16), &[4, 2], &[1, 0], false).unwrap(),
        ChunkCodec::dense(DType::UInt(16), &[4, 2], &[0, 1], true).unwrap(),
    ];
    let prints: std::collections::HashSet<_> = all.iter().map(ChunkCodec::fingerprint).collect();
    assert_eq!(prints.len(), all.len());
    assert_eq!(chain(DType::UInt(16), &[4, 2], Vec::new()).fingerprint(), all[0].fingerprint());
}

/// A shard of `[4, 6]` u16 in inner chunks `[2, 3]`, the second left out.
fn shard(location: crate::format::IndexLocation) -> (ShardCodec, Vec<u8>) {
    use crate::format::{IndexLocation, ShardIndexFormat, ShardLevel};
    let inner = chain(DType::UInt(16), &[2, 3], vec![BytesStage::Zstd, CRC32C]);
    let index = ShardIndexFormat { big_endian: false, crc32c: true };
    let index_len = index.len_bytes(4).unwrap();
    let (mut body, mut pairs) = (Vec::new(), Vec::new());
    let base = if location == IndexLocation::Start { index_len } else { 0 };
    for chunk in 0..4_u64 {
        if chunk == 1 {
            pairs.extend_from_slice(&[0xff; 16]);
            continue;
        }
        let elements: Vec<u8> = (0..6_u16).flat_map(|i| (chunk as u16 * 100 + i).to_le_bytes()).collect();
        let stored = encode(&CRC32C, &encode(&BytesStage::Zstd, &elements));
        pairs.extend_from_slice(&(base + body.len() as u64).to_le_bytes());
        pairs.extend_from_slice(&(stored.len() as u64).to_le_bytes());
        body.extend_from_slice(&stored);
    }
    let pairs = encode(&CRC32C, &pairs);
    let stored = match location {
        IndexLocation::Start => [pairs, body].concat(),
        IndexLocation::End => [body, pairs].concat(),
    };
    (ShardCodec { level: ShardLevel { inner_shape: vec![2, 3], index, location }, inner, fill: vec![7, 0] }, stored)
}

#[test]
fn a_whole_shard_decodes_with_absent_chunks_as_fill() {
    for location in [crate::format::IndexLocation::Start, crate::format::IndexLocation::End] {
        let (shard, stored) = shard(location);
        let to_bytes = ToBytes::Shard(Box::new(shard));
        let codec = ChunkCodec::new(DType::UInt(16), &[4, 6], Vec::new(), to_bytes, vec![BytesStage::Gzip]).unwrap();
        assert!(codec.has_checksum());
        let expected: Vec<u8> = (0..24_u64)
            .flat_map(|i| {
                let c = shape::unravel(i, &[4, 6]);
                let chunk = c[0] / 2 * 2 + c[1] / 3;
                let value = if chunk == 1 { 7 } else { chunk * 100 + c[0] % 2 * 3 + c[1] % 3 };
                (value as u16).to_le_bytes()
            })
            .collect();
        let gzipped = encode(&BytesStage::Gzip, &stored);
        assert_eq!(codec.decode(gzipped.into(), &[4, 6]).unwrap(), ChunkData::Fixed(expected.into()));
    }
}

#[test]
fn every_bit_of_a_shard_with_checksums_is_covered() {
    let (shard, stored) = shard(crate::format::IndexLocation::End);
    let to_bytes = ToBytes::Shard(Box::new(shard));
    let codec = ChunkCodec::new(DType::UInt(16), &[4, 6], Vec::new(), to_bytes, Vec::new()).unwrap();
    assert!(codec.decode(stored.clone().into(), &[4, 6]).is_ok());
    for bit in 0..stored.len() * 8 {
        let mut broken = stored.clone();
        broken[bit / 8] ^= 1 << (bit % 8);
        assert!(codec.decode(broken.into(), &[4, 6]).is_err(), "bit {bit}");
    }
    for cut in 0..stored.len() {
        assert!(codec.decode(stored[..cut].to_vec().into(), &[4, 6]).is_err(), "cut at {cut}");
    }
}

#[test]
fn a_chain_refuses_shapes_it_was_not_made_for() {
    let codec = ChunkCodec::dense(DType::UInt(8), &[2, 3], &[1, 0], false).unwrap();
    assert!(matches!(codec.decode(vec![0; 6].into(), &[6]), Err(CodecError::Shape { .. })));
    assert!(codec.decode(vec![0; 4].into(), &[2, 2]).is_ok(), "clipped blocks decode");
}
