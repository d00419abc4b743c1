//! Would a second tier, of encoded chunks, make crops cheaper than the same memory spent on decoded chunks alone?
//!
//! Crops of the bench's video are planned and their reads joined by the code that serves them, the tiers are caches of
//! the kind that serves them (moka, TinyLFU), and stored bytes, reads and decodes are counted. No store is asked: what a
//! read and a byte cost is the record's (`benches/README.md`), what a decode costs is measured here. The table is what
//! it prints; `cargo bench --bench encoded_tier` takes a minute.

mod workload;

use std::ops::Range;
use std::time::{Duration, Instant};

use moka::policy::EvictionPolicy;
use moka::sync::Cache;
use wicker4dx::plan::coalesce;

use workload::{CHUNK, CHUNK_BYTES, CROP, Corner, GRID, Random};

/// CPU of gateway and store for a read and for a MiB of it, where SeaweedFS is asked: of `cold`, 3.2 reads of 0.3 MiB.
const READ_MS: f64 = 0.9;
const MIB_MS: f64 = 2.3;

/// Chunks are taken to be so much smaller than they are, which is 1.15 times smaller than decoded: 1.5 times, as those of
/// the comparison.
const SMALLER: (u64, u64) = (10, 13);

/// Holes up to this are read through, as the gateway does beside a store of these prices.
const GAP: u64 = 128 << 10;

/// Crops whose requests are counted, behind as many that fill the tiers.
const CROPS: usize = 8000;

/// What the memory holds.
#[derive(Clone, Copy, PartialEq)]
enum Tiers {
    /// Decoded chunks alone.
    Decoded,
    /// A share of the memory for chunks that were read through and not asked for.
    OverRead(f64),
    /// A share of the memory for all that was read.
    AllRead(f64),
    /// A share of the memory for what was read last: kept in the order of use, whatever was asked for how often.
    Recent(f64),
}

/// What a crop takes, on average.
#[derive(Default)]
struct Cost {
    reads: f64,
    mib: f64,
    decodes: f64,
}

/// Stored chunks, one after the other in 64 shards.
struct Stored {
    /// Where each lies in its shard, by number.
    places: Vec<Range<u64>>,
    bytes: u64,
}

const CHUNKS_A_SHARD: usize = GRID[1] * GRID[2] * GRID[3];

/// A tier of `bytes`; `Cache` holds nothing at a capacity of 0.
fn tier(bytes: f64, policy: EvictionPolicy) -> Cache<usize, u32> {
    Cache::builder().max_capacity(bytes as u64).weigher(|_, len: &u32| *len).eviction_policy(policy).build()
}

/// Numbers of the chunks that a crop touches, ascending.
fn touched([b, t, y, x]: Corner) -> Vec<usize> {
    let span = |from: usize, axis: usize| from / CHUNK[axis]..(from + CROP[axis]).div_ceil(CHUNK[axis]);
    let mut chunks = Vec::new();
    for t in span(t, 1) {
        for y in span(y, 2) {
            for x in span(x, 3) {
                chunks.push(((b * GRID[1] + t) * GRID[2] + y) * GRID[3] + x);
            }
        }
    }
    chunks
}

fn run(stored: &Stored, crops: &[Corner], memory: f64, tiers: Tiers) -> Cost {
    let share = match tiers {
        Tiers::Decoded => 0.0,
        Tiers::OverRead(share) | Tiers::AllRead(share) | Tiers::Recent(share) => share,
    };
    let of_encoded = if matches!(tiers, Tiers::Recent(_)) { EvictionPolicy::lru() } else { EvictionPolicy::tiny_lfu() };
    let decoded = tier(memory * (1.0 - share), EvictionPolicy::tiny_lfu());
    let encoded = tier(memory * share, of_encoded);
    let len = |chunk: usize| (stored.places[chunk].end - stored.places[chunk].start) as u32;
    let mut cost = Cost::default();
    for (number, corner) in crops.iter().enumerate() {
        let mut missing = Vec::new();
        let mut decodes = 0;
        for chunk in touched(*corner) {
            if decoded.get(&chunk).is_some() {
                continue;
            }
            decodes += 1;
            if encoded.get(&chunk).is_none() {
                missing.push(chunk);
            } else if matches!(tiers, Tiers::OverRead(_)) {
                encoded.invalidate(&chunk);
            }
            decoded.insert(chunk, CHUNK_BYTES as u32);
        }
        let extents: Vec<_> = missing.iter().map(|chunk| stored.places[*chunk].clone()).collect();
        let reads = coalesce(&extents, GAP, 16 << 20);
        if share > 0.0 {
            let shard = corner[0] * CHUNKS_A_SHARD;
            for chunk in shard..shard + CHUNKS_A_SHARD {
                let place = &stored.places[chunk];
                let read = reads.iter().any(|read| read.range.start <= place.start && place.end <= read.range.end);
                let kept = match tiers {
                    Tiers::AllRead(_) | Tiers::Recent(_) => true,
                    _ => missing.binary_search(&chunk).is_err() && !decoded.contains_key(&chunk),
                };
                if read && kept {
                    encoded.insert(chunk, len(chunk));
                }
            }
        }
        if number >= crops.len() / 2 {
            cost.reads += reads.len() as f64;
            cost.mib += reads.iter().map(|read| read.range.end - read.range.start).sum::<u64>() as f64 / 1_048_576.0;
            cost.decodes += f64::from(decodes);
        }
    }
    let counted = crops.len().div_ceil(2) as f64;
    Cost { reads: cost.reads / counted, mib: cost.mib / counted, decodes: cost.decodes / counted }
}

/// Orders in which crops are asked for.
fn orders() -> [(&'static str, Vec<Corner>); 4] {
    let mut random = Random(11);
    let anywhere = |random: &mut Random, clip| [clip, random.below(9), random.below(145), random.below(145)];
    let count = 2 * CROPS;
    let uniform = (0..count)
        .map(|_| {
            let clip = random.below(64);
            anywhere(&mut random, clip)
        })
        .collect();
    // The clip of rank r is asked for 1/r times as often as the first.
    let total: f64 = (1..=64).map(|rank| 1.0 / f64::from(rank)).sum();
    let mut ranked = || {
        let mut left = random.below(1 << 20) as f64 / f64::from(1 << 20) * total;
        (0..63)
            .find(|rank| {
                left -= 1.0 / (*rank as f64 + 1.0);
                left < 0.0
            })
            .unwrap_or(63)
    };
    let clips: Vec<usize> = (0..count).map(|_| ranked()).collect();
    let skewed = clips.into_iter().map(|clip| anywhere(&mut random, clip)).collect();
    // An epoch after the other: each clip once, in a new order, by eight crops.
    let mut epochs = Vec::with_capacity(count);
    while epochs.len() < count {
        let mut clips: Vec<usize> = (0..64).collect();
        for last in (1..64).rev() {
            clips.swap(last, random.below(last + 1));
        }
        for clip in clips {
            epochs.extend((0..8).map(|_| anywhere(&mut random, clip)));
        }
    }
    epochs.truncate(count);
    // A window that slides over each clip by a frame and a few pixels.
    let mut windows = Vec::with_capacity(count);
    while windows.len() < count {
        let [clip, _, y, x] = {
            let clip = random.below(64);
            anywhere(&mut random, clip)
        };
        windows.extend((0..9).map(|t| [clip, t, (y + 4 * t).min(144), (x + 4 * t).min(144)]));
    }
    windows.truncate(count);
    [
        ("anywhere", uniform),
        ("skewed to few clips", skewed),
        ("epochs, 8 crops a clip", epochs),
        ("sliding windows", windows),
    ]
}

/// Milliseconds of zstd and crc32c for one chunk.
fn decode_ms(chunks: &[Vec<u8>]) -> f64 {
    let mut context = zstd::bulk::Decompressor::new().expect("a context");
    let mut out = Vec::with_capacity(CHUNK_BYTES);
    let mut times: Vec<Duration> = (0..9)
        .map(|_| {
            let started = Instant::now();
            for chunk in chunks {
                let (data, sum) = chunk.split_at(chunk.len() - 4);
                assert_eq!(crc32c::crc32c(data).to_le_bytes(), sum, "a sound chunk");
                context.decompress_to_buffer(data, &mut out).expect("zstd decodes");
            }
            started.elapsed()
        })
        .collect();
    times.sort();
    times[times.len() / 2].as_secs_f64() * 1e3 / chunks.len() as f64
}

#[allow(clippy::print_stdout, reason = "the table is what the bench is for")]
fn main() {
    let chunks: Vec<Vec<u8>> = (0..GRID[0] * CHUNKS_A_SHARD)
        .map(|n| workload::encode(&workload::chunk(n / 64, n / 16 % 4, n / 4 % 4, n % 4)))
        .collect();
    let mut places = Vec::with_capacity(chunks.len());
    let mut bytes = 0;
    for shard in chunks.chunks(CHUNKS_A_SHARD) {
        let mut at = 0;
        for chunk in shard {
            let len = chunk.len() as u64 * SMALLER.0 / SMALLER.1;
            places.push(at..at + len);
            at += len;
        }
        bytes += at;
    }
    let stored = Stored { places, bytes };
    let decode = decode_ms(&chunks[..512]);
    let whole = (chunks.len() * CHUNK_BYTES) as f64;
    println!(
        "{:.0} MiB decoded, {:.0} MiB stored; a decode {:.3} ms, a read {READ_MS} ms and {MIB_MS} ms a MiB (CPU)",
        whole / 1_048_576.0,
        stored.bytes as f64 / 1_048_576.0,
        decode
    );
    println!(
        "{:<24} {:>7} {:<18} {:>6} {:>6} {:>8} {:>7} {:>6}",
        "crops", "memory", "tiers", "reads", "MiB", "decodes", "CPU ms", "ratio"
    );
    let tiers = [
        ("decoded", Tiers::Decoded),
        ("over-read 1/8", Tiers::OverRead(0.125)),
        ("recent 1/32", Tiers::Recent(1.0 / 32.0)),
        ("recent 1/8", Tiers::Recent(0.125)),
        ("all read 1/4", Tiers::AllRead(0.25)),
        ("all read 1/2", Tiers::AllRead(0.5)),
        ("encoded alone", Tiers::AllRead(1.0)),
    ];
    for (order, crops) in orders() {
        for memory in [0.125, 0.25, 0.5, 0.75] {
            let mut alone = None;
            for (name, tiers) in tiers {
                let cost = run(&stored, &crops, memory * whole, tiers);
                let cpu = cost.reads * READ_MS + cost.mib * MIB_MS + cost.decodes * decode;
                let alone = *alone.get_or_insert(cpu);
                println!(
                    "{order:<24} {:>6.1}% {name:<18} {:>6.2} {:>6.3} {:>8.2} {cpu:>7.3} {:>6.3}",
                    memory * 100.0,
                    cost.reads,
                    cost.mib,
                    cost.decodes,
                    cpu / alone
                );
            }
        }
    }
}
