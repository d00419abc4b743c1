//! The array that every bench reads, its crops, and the CPU clock.
//!
//! uint8 video `[64,16,256,256,3]`, inner chunks `(1,4,64,64,3)` in shards `(1,16,256,256,3)`, zstd level 1 and crc32c:
//! moving gradients under noise, which zstd makes about 1.5 times smaller. Crops are 8 frames of 112 × 112.

#![allow(dead_code, reason = "each bench uses its part")]

use std::path::{Path, PathBuf};
use std::time::Duration;

/// Elements per axis.
pub(crate) const SHAPE: [usize; 5] = [64, 16, 256, 256, 3];
/// Elements per axis of an inner chunk.
pub(crate) const CHUNK: [usize; 5] = [1, 4, 64, 64, 3];
/// Inner chunks per axis.
pub(crate) const GRID: [usize; 5] = [64, 4, 4, 4, 1];
/// Bytes of a decoded chunk.
pub(crate) const CHUNK_BYTES: usize = 4 * 64 * 64 * 3;
/// Elements per axis of a crop.
pub(crate) const CROP: [usize; 5] = [1, 8, 112, 112, 3];
/// Bytes of a crop.
pub(crate) const CROP_BYTES: usize = 8 * 112 * 112 * 3;

/// A sequence of numbers that a seed repeats (SplitMix64).
#[derive(Clone)]
pub(crate) struct Random(pub(crate) u64);

impl Random {
    /// The next number.
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `n`.
    pub(crate) fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }
}

/// The first position of a crop.
pub(crate) type Corner = [usize; 4];

/// Random crops.
pub(crate) fn crops(seed: u64, count: usize) -> Vec<Corner> {
    let mut random = Random(seed);
    (0..count).map(|_| [random.below(64), random.below(9), random.below(145), random.below(145)]).collect()
}

/// A crop as the `slice` parameter has it.
pub(crate) fn slice([b, t, y, x]: Corner) -> String {
    format!("{b},{t}:{},{y}:{},{x}:{}", t + 8, y + 112, x + 112)
}

/// The decoded bytes of inner chunk `(b, t, y, x)` of the grid.
pub(crate) fn chunk(b: usize, t: usize, y: usize, x: usize) -> Vec<u8> {
    let mut random = Random((b * 64 + t * 16 + y * 4 + x) as u64);
    let mut bytes = Vec::with_capacity(CHUNK_BYTES);
    for frame in t * 4..t * 4 + 4 {
        for row in y * 64..y * 64 + 64 {
            for column in x * 64..x * 64 + 64 {
                let noise = random.next();
                for (channel, base) in
                    [column + frame * 3 + b, row + frame * 2, row + column + frame].iter().enumerate()
                {
                    let noise = (noise >> (channel * 8)) as u8 & 31;
                    bytes.push(((base % 256) as f32 * 0.6) as u8 + noise);
                }
            }
        }
    }
    bytes
}

/// A chunk as it is stored.
pub(crate) fn encode(chunk: &[u8]) -> Vec<u8> {
    let mut stored = zstd::bulk::compress(chunk, 1).expect("zstd encodes");
    stored.extend(crc32c::crc32c(&stored).to_le_bytes());
    stored
}

/// The folder that holds the array `video.zarr`, written once.
pub(crate) fn folder() -> PathBuf {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/bench-data");
    let array = folder.join("video.zarr");
    if array.join("zarr.json").exists() {
        return folder;
    }
    for b in 0..SHAPE[0] {
        let shard = array.join(format!("c/{b}/0/0/0"));
        std::fs::create_dir_all(&shard).expect("a folder");
        std::fs::write(shard.join("0"), encode_shard(b)).expect("a shard");
    }
    let metadata = r#"{"zarr_format":3,"node_type":"array","shape":[64,16,256,256,3],"data_type":"uint8",
        "chunk_grid":{"name":"regular","configuration":{"chunk_shape":[1,16,256,256,3]}},
        "chunk_key_encoding":{"name":"default"},"fill_value":0,"codecs":[{"name":"sharding_indexed","configuration":{
            "chunk_shape":[1,4,64,64,3],"index_location":"end","index_codecs":[{"name":"bytes","configuration":
            {"endian":"little"}},{"name":"crc32c"}],"codecs":[{"name":"bytes"},{"name":"zstd","configuration":
            {"level":1,"checksum":false}},{"name":"crc32c"}]}}]}"#;
    // Last: a folder without it is written anew.
    std::fs::write(array.join("zarr.json"), metadata).expect("the metadata");
    folder
}

fn encode_shard(b: usize) -> Vec<u8> {
    let (mut shard, mut index) = (Vec::new(), Vec::new());
    for t in 0..GRID[1] {
        for y in 0..GRID[2] {
            for x in 0..GRID[3] {
                let stored = encode(&chunk(b, t, y, x));
                index.extend((shard.len() as u64).to_le_bytes());
                index.extend((stored.len() as u64).to_le_bytes());
                shard.extend(stored);
            }
        }
    }
    index.extend(crc32c::crc32c(&index).to_le_bytes());
    shard.extend(index);
    shard
}

/// CPU time of all threads of this process so far.
pub(crate) fn cpu() -> Duration {
    let tasks = std::fs::read_dir("/proc/self/task").expect("Linux").flatten();
    let nanos = tasks.filter_map(|task| {
        let text = std::fs::read_to_string(task.path().join("schedstat")).ok()?;
        text.split_whitespace().next()?.parse::<u64>().ok()
    });
    Duration::from_nanos(nanos.sum())
}
