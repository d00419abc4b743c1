//! Large uncompressed chunks: a slice reads the blocks that it touches, and never believes a chunk of the wrong length.
//! The oracle is arithmetic: every element follows from its position.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;
use wicker4dx::fetch::FetcherSettings;
use wicker4dx::format::ArrayMeta;
use wicker4dx::format::zarr::{Node, parse_v2_array, parse_v3};
use wicker4dx::http::GatewaySettings;
use wicker4dx::model::shape;
use wicker4dx::store::{Fault, Freshness, Store, memory_store};

use crate::served::{Served, put, serve, serve_with};

/// The value of absent chunks, in every byte of an element.
const FILL: u8 = 9;

const MINUTE: Freshness = Freshness::For(Duration::from_secs(60));

/// An uncompressed array.
#[derive(Debug, Clone)]
struct RawArray {
    shape: Vec<u64>,
    /// Elements per axis of a stored chunk.
    chunk: Vec<u64>,
    /// Per level of sharding, outermost first, inner chunks per axis.
    levels: Vec<Vec<u64>>,
    v2: bool,
    /// Bytes of an element.
    size: usize,
    big_endian: bool,
    crc32c: bool,
    index_at_start: bool,
    /// Of every so many chunks, one is absent; 0 for none.
    absent: u64,
}

impl RawArray {
    /// One axis of one object, of bytes.
    fn row(len: u64) -> Self {
        Self {
            shape: vec![len],
            chunk: vec![len],
            levels: Vec::new(),
            v2: false,
            size: 1,
            big_endian: false,
            crc32c: true,
            index_at_start: false,
            absent: 0,
        }
    }

    /// The bytes of the element at a row-major position, least significant first.
    fn element(&self, position: u64) -> [u8; 4] {
        ((position as u32).wrapping_mul(0x9E37_79B1) ^ (position as u32 >> 7)).to_le_bytes()
    }

    fn is_absent(&self, chunk: &[u64]) -> bool {
        let number = chunk.iter().fold(17_u64, |number, place| number * 31 + place);
        self.absent > 0 && number.is_multiple_of(self.absent)
            || chunk.iter().zip(&self.chunk).zip(&self.shape).any(|((place, chunk), len)| place * chunk >= *len)
    }

    /// The stored bytes of a chunk, by its place in the grid of chunks. What lies outside the array is rubbish.
    fn chunk_bytes(&self, place: &[u64]) -> Option<Vec<u8>> {
        if self.is_absent(place) {
            return None;
        }
        let strides = shape::strides(&self.shape);
        let mut bytes = Vec::with_capacity(shape::bytes(&self.chunk, self.size).unwrap() as usize);
        let rank = self.chunk.len();
        for row in 0..self.chunk[..rank - 1].iter().product() {
            let at: Vec<u64> = shape::unravel(row, &self.chunk[..rank - 1]).into_iter().chain([0]).collect();
            let at: Vec<u64> = at.iter().zip(place.iter().zip(&self.chunk)).map(|(i, (p, c))| p * c + i).collect();
            let inside = at.iter().zip(&self.shape).all(|(at, len)| at < len);
            let first: u64 = at.iter().zip(&strides).map(|(at, stride)| at * stride).sum();
            for i in 0..self.chunk[rank - 1] {
                let mut element = [0xEE; 4];
                if inside && at[rank - 1] + i < self.shape[rank - 1] {
                    element = self.element(first + i);
                }
                let element = &mut element[..self.size];
                if self.big_endian {
                    element.reverse();
                }
                bytes.extend_from_slice(element);
            }
        }
        Some(bytes)
    }

    /// Chunks per axis of one container at a level; at the last, of a chunk.
    fn chunks_of(&self, level: usize) -> Vec<u64> {
        let mut chunks = vec![1; self.chunk.len()];
        for factors in &self.levels[level..] {
            chunks.iter_mut().zip(factors).for_each(|(chunks, factor)| *chunks *= factor);
        }
        chunks
    }

    /// The stored bytes of a container at a level, by the place of its first chunk.
    fn container(&self, level: usize, first: &[u64]) -> Option<Vec<u8>> {
        let Some(factors) = self.levels.get(level) else { return self.chunk_bytes(first) };
        let (entries, inner) = (factors.iter().product::<u64>(), self.chunks_of(level + 1));
        let index_bytes = entries as usize * 16 + if self.crc32c { 4 } else { 0 };
        let (mut data, mut index) = (Vec::new(), Vec::new());
        let begin = if self.index_at_start { index_bytes } else { 0 };
        for entry in 0..entries {
            let place = shape::unravel(entry, factors);
            let place: Vec<u64> = place.iter().zip(&inner).zip(first).map(|((p, n), first)| first + p * n).collect();
            let words = match self.container(level + 1, &place) {
                None => [u64::MAX; 2],
                Some(bytes) => {
                    let words = [(begin + data.len()) as u64, bytes.len() as u64];
                    data.extend(bytes);
                    words
                }
            };
            index.extend(words.map(u64::to_le_bytes).concat());
        }
        if data.is_empty() {
            return None;
        }
        if self.crc32c {
            index.extend(crc32c::crc32c(&index).to_le_bytes());
        }
        Some(if self.index_at_start { [index, data].concat() } else { [data, index].concat() })
    }

    /// The key and the text of the metadata.
    fn metadata(&self) -> (&'static str, String) {
        let shape_at = |level: usize| -> Vec<u64> {
            self.chunks_of(level).iter().zip(&self.chunk).map(|(chunks, chunk)| chunks * chunk).collect()
        };
        let Self { shape, size, .. } = self;
        let fill = u32::from_le_bytes([FILL; 4]) >> (32 - 8 * size);
        let endian = if self.big_endian { ">" } else { "<" };
        if self.v2 {
            let dtype = if *size == 1 { "|u1".to_owned() } else { format!("{endian}u{size}") };
            let text = format!(
                r#"{{"zarr_format":2,"shape":{shape:?},"chunks":{:?},"dtype":"{dtype}","compressor":null,"filters":null,
                "order":"C","fill_value":{fill}}}"#,
                self.chunk
            );
            return ("a/.zarray", text);
        }
        let endian = if self.big_endian { "big" } else { "little" };
        let check = if self.crc32c { r#",{"name":"crc32c"}"# } else { "" };
        let location = if self.index_at_start { "start" } else { "end" };
        let mut codecs = format!(r#"{{"name":"bytes","configuration":{{"endian":"{endian}"}}}}"#);
        for level in (0..self.levels.len()).rev() {
            codecs = format!(
                r#"{{"name":"sharding_indexed","configuration":{{"chunk_shape":{:?},"codecs":[{codecs}],
                "index_codecs":[{{"name":"bytes","configuration":{{"endian":"little"}}}}{check}],
                "index_location":"{location}"}}}}"#,
                shape_at(level + 1)
            );
        }
        let text = format!(
            r#"{{"zarr_format":3,"node_type":"array","shape":{shape:?},"data_type":"uint{}","fill_value":{fill},
            "chunk_grid":{{"name":"regular","configuration":{{"chunk_shape":{:?}}}}},
            "chunk_key_encoding":{{"name":"default"}},"codecs":[{codecs}]}}"#,
            8 * size,
            shape_at(0)
        );
        ("a/zarr.json", text)
    }

    fn meta(&self) -> ArrayMeta {
        let (_, text) = self.metadata();
        if self.v2 {
            return parse_v2_array(text.as_bytes(), None).unwrap();
        }
        let Ok(Node::Array(array)) = parse_v3(text.as_bytes()) else { panic!("{text}") };
        *array
    }

    async fn put(&self, store: &dyn Store) {
        let (key, text) = self.metadata();
        put(store, key, text).await;
        let objects = self.chunks_of(0);
        let grid: Vec<u64> =
            self.shape.iter().zip(objects.iter().zip(&self.chunk)).map(|(n, (k, c))| n.div_ceil(k * c)).collect();
        for object in 0..grid.iter().product() {
            let place = shape::unravel(object, &grid);
            let first: Vec<u64> = place.iter().zip(&objects).map(|(p, n)| p * n).collect();
            if let Some(bytes) = self.container(0, &first) {
                let place: Vec<String> = place.iter().map(u64::to_string).collect();
                let key = if self.v2 { place.join(".") } else { format!("c/{}", place.join("/")) };
                put(store, &format!("a/{key}"), bytes).await;
            }
        }
    }

    /// What the array holds at the product of `positions`.
    fn expected(&self, positions: &[Vec<u64>]) -> Vec<u8> {
        let strides = shape::strides(&self.shape);
        let counts: Vec<u64> = positions.iter().map(|axis| axis.len() as u64).collect();
        let (last, rows) = (positions.len() - 1, &counts[..counts.len() - 1]);
        let mut out = Vec::new();
        for row in 0..shape::elements(rows).unwrap() {
            let mut at: Vec<u64> =
                shape::unravel(row, rows).iter().zip(positions).map(|(&i, p)| p[i as usize]).collect();
            at.push(0);
            let mut chunk: Vec<u64> = at.iter().zip(&self.chunk).map(|(at, chunk)| at / chunk).collect();
            let first: u64 = at.iter().zip(&strides).map(|(at, stride)| at * stride).sum();
            let mut known = None;
            for &position in &positions[last] {
                chunk[last] = position / self.chunk[last];
                let absent = match known {
                    Some((place, absent)) if place == chunk[last] => absent,
                    Some(_) | None => self.is_absent(&chunk),
                };
                known = Some((chunk[last], absent));
                let element = if absent { [FILL; 4] } else { self.element(first + position) };
                out.extend_from_slice(&element[..self.size]);
            }
        }
        out
    }

    /// Bytes of the blocks of stored chunks that hold `positions`, each counted once.
    fn touched_bytes(&self, positions: &[Vec<u64>]) -> u64 {
        let meta = self.meta();
        let block = meta.chunk_shape();
        let along: Vec<Vec<u64>> = positions
            .iter()
            .zip(block)
            .map(|(axis, block)| axis.iter().map(|at| at / block).collect::<BTreeSet<_>>().into_iter().collect())
            .collect();
        let counts: Vec<u64> = along.iter().map(|axis| axis.len() as u64).collect();
        let stored = (0..counts.iter().product()).filter(|&i| {
            let place = shape::unravel(i, &counts);
            let place = place.iter().zip(&along).zip(block.iter().zip(&self.chunk));
            let chunk: Vec<u64> =
                place.map(|((&i, along), (block, chunk))| along[i as usize] * block / chunk).collect();
            !self.is_absent(&chunk)
        });
        stored.count() as u64 * meta.chunk_bytes().unwrap()
    }
}

fn arrays() -> impl Strategy<Value = RawArray> {
    let chunk = prop_oneof![
        (1_u64..=64, 1_u64..=300).prop_map(|(b, c)| vec![b, c]),
        (1_u64..=300).prop_map(|c| vec![c]),
        Just(vec![]),
    ];
    let size = prop_oneof![Just(1_usize), Just(2), Just(4)];
    let levels = prop::collection::vec(prop::collection::vec(1_u64..=2, 3), 0..=2);
    (chunk, size, 300_000_u64..1_000_000, levels, (1_u64..=2, 0.0..1.0), any::<[bool; 4]>(), 0_u64..4).prop_map(
        |(inner, size, chunk_bytes, mut levels, (chunks, edge), [v2, big_endian, crc32c, index_at_start], absent)| {
            let first = (chunk_bytes / (inner.iter().product::<u64>() * size as u64)).max(1);
            let chunk = [vec![first], inner].concat();
            if v2 {
                levels.clear();
            }
            levels.iter_mut().for_each(|level| level.truncate(chunk.len()));
            // Two chunks along the first and the last axis, the last of them ragged.
            let mut shape = chunk.clone();
            for axis in [0, chunk.len() - 1] {
                shape[axis] = chunk[axis] * chunks - ((chunk[axis] - 1) as f64 * edge) as u64;
            }
            RawArray { shape, chunk, levels, v2, size, big_endian, crc32c, index_at_start, absent }
        },
    )
}

/// What is taken of an axis; places are parts of its length.
#[derive(Debug, Clone)]
enum Take {
    All,
    One(f64),
    Range(f64, f64, i64),
    List(Vec<f64>),
}

impl Take {
    /// As the query spells it, and the positions.
    fn of(&self, len: u64) -> (String, Vec<u64>) {
        let at = |part: f64| ((part * len as f64) as u64).min(len - 1);
        match self {
            Self::All => (":".into(), (0..len).collect()),
            Self::One(part) => (at(*part).to_string(), vec![at(*part)]),
            Self::Range(a, b, step) => {
                let (low, high) = (at(a.min(*b)), at(a.max(*b)));
                let each = step.unsigned_abs() as usize;
                if *step > 0 {
                    (format!("{low}:{high}:{step}"), (low..high).step_by(each).collect())
                } else {
                    (format!("{high}:{low}:{step}"), (low + 1..=high).rev().step_by(each).collect())
                }
            }
            Self::List(parts) => {
                let list: Vec<u64> = parts.iter().map(|part| at(*part)).collect();
                (format!("({})", list.iter().map(u64::to_string).collect::<Vec<_>>().join(",")), list)
            }
        }
    }
}

fn takes() -> impl Strategy<Value = Vec<Take>> {
    let part = || 0.0..1.0;
    let step = prop_oneof![Just(1_i64), 2_i64..100, -100_i64..0];
    let take = prop_oneof![
        1 => Just(Take::All),
        2 => part().prop_map(Take::One),
        3 => (part(), part(), step).prop_map(|(a, b, step)| Take::Range(a, b, step)),
        1 => prop::collection::vec(part(), 1..5).prop_map(Take::List),
    ];
    prop::collection::vec(take, 3)
}

/// The query and the positions of a selection.
fn selection(array: &RawArray, takes: &[Take]) -> (String, Vec<Vec<u64>>) {
    let axes = array.shape.iter().zip(takes).map(|(&len, take)| take.of(len));
    let (texts, positions): (Vec<String>, Vec<Vec<u64>>) = axes.unzip();
    (texts.join(","), positions)
}

/// A gateway that reads through no holes.
fn serve_exactly(store: Arc<dyn Store>, freshness: Freshness) -> Served {
    let defaults = GatewaySettings::default();
    let settings = GatewaySettings { fetch: FetcherSettings { gap_bytes: Some(0), ..defaults.fetch }, ..defaults };
    serve_with(store, freshness, &settings)
}

#[test]
fn a_slice_equals_indexing_the_dense_array_and_reads_the_blocks_that_it_touches() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    proptest!(ProptestConfig::with_cases(40), |(array in arrays(), selections in prop::collection::vec(takes(), 3))| {
        let store = memory_store();
        runtime.block_on(array.put(&*store));
        for takes in &selections {
            let (query, positions) = selection(&array, takes);
            let served = serve_exactly(Arc::clone(&store), MINUTE);
            // What is not chunks is read before; versions of unsharded chunks are left to be learned.
            let first: &[_] = if array.levels.is_empty() { &[("describe", "1")] } else { &[("explain", "1"), ("slice", &query)] };
            runtime.block_on(served.json(first));
            let (answer, cost) = runtime.block_on(served.cost("a/", served.raw(&query)));
            prop_assert!(answer == (200, array.expected(&positions)), "{query}");
            prop_assert_eq!(cost.bytes, array.touched_bytes(&positions), "{}", query);
            let (again, cost) = runtime.block_on(served.cost("a/", served.raw(&query)));
            prop_assert!(again == answer, "{query}, from the cache");
            prop_assert_eq!((cost.gets, cost.heads, cost.bytes), (0, 0, 0));
        }
        // One gateway for all selections: what is cached of one serves the others.
        let served = serve(store, MINUTE);
        for takes in &selections {
            let (query, positions) = selection(&array, takes);
            prop_assert!(runtime.block_on(served.raw(&query)) == (200, array.expected(&positions)), "{query}");
        }
    });
}

#[tokio::test]
async fn a_crop_of_a_large_chunk_costs_a_block_and_all_of_it_one_read() {
    const BLOCK: u64 = 256 << 10;
    let unsharded = RawArray { shape: vec![50, 400, 400], chunk: vec![64, 512, 512], ..RawArray::row(1) };
    let sharded = RawArray { levels: vec![vec![1, 2, 1]], ..unsharded.clone() };
    let nested = RawArray { levels: vec![vec![1, 2, 1], vec![1, 1, 1]], ..unsharded.clone() };
    for array in [unsharded, sharded, nested] {
        assert_eq!(array.meta().chunk_shape(), [1, 512, 512]);
        let store = memory_store();
        array.put(&*store).await;
        let served = serve(Arc::clone(&store), MINUTE);
        let described = served.json(&[("describe", "1")]).await;
        assert_eq!(described["chunk_shape"], serde_json::json!([64, 512, 512]), "as it is stored");
        let (answer, cost) = served.cost("a/c/", served.raw("7,100:120,200:220")).await;
        assert_eq!(answer, (200, array.expected(&[vec![7], (100..120).collect(), (200..220).collect()])));
        assert_eq!((cost.gets, cost.heads), (1 + array.levels.len(), 0));
        assert!(cost.bytes < BLOCK + 200, "a block and indexes: {cost:?}");
        // A column lies in every block: they are one read on either side of the one that is here.
        let (answer, cost) = served.cost("a/c/", served.raw(":,3,3")).await;
        assert_eq!(answer, (200, array.expected(&[(0..50).collect(), vec![3], vec![3]])));
        assert_eq!((cost.gets, cost.heads, cost.bytes), (2, 0, 49 * BLOCK));
        let plan = served.json(&[("explain", "1"), ("slice", "7,100:120,:")]).await;
        assert_eq!((&plan["chunks"]["total"], &plan["chunks"]["touched"]), (&50.into(), &1.into()));
        // All of it, for the first time.
        let served = serve(store, MINUTE);
        let (answer, cost) = served.cost("a/c/", served.raw(":,:200,:")).await;
        assert_eq!(answer, (200, array.expected(&[(0..50).collect(), (0..200).collect(), (0..400).collect()])));
        assert_eq!((cost.gets, cost.heads), (1 + array.levels.len(), 0));
        assert!(cost.bytes < 50 * BLOCK + 1000, "{cost:?}");
    }
}

#[tokio::test]
async fn a_chunk_of_the_wrong_length_is_corrupt_for_every_selection() {
    const LEN: u64 = 1 << 20;
    for levels in [vec![], vec![vec![1]], vec![vec![1], vec![1]]] {
        let array = RawArray { levels, ..RawArray::row(LEN) };
        // Through the levels of sharding, a chunk of this length.
        let object = |len: usize| {
            array.levels.iter().fold(vec![7; len], |bytes, _| {
                let mut index = [0, bytes.len() as u64].map(u64::to_le_bytes).concat();
                index.extend(crc32c::crc32c(&index).to_le_bytes());
                [bytes, index].concat()
            })
        };
        let store = memory_store();
        array.put(&*store).await;
        put(&*store, "a/c/0", object(LEN as usize)).await;
        let served = serve(Arc::clone(&store), Freshness::For(Duration::ZERO));
        assert_eq!(served.raw("5:7").await, (200, vec![7, 7]), "the right length");
        for len in [0, 1, LEN / 2, LEN - 1, LEN + 1, 2 * LEN] {
            put(&*store, "a/c/0", object(len as usize)).await;
            for slice in ["5", &(LEN - 1).to_string(), "::1000", ":"] {
                let served = serve(Arc::clone(&store), MINUTE);
                let corrupt = (500, "CorruptData".to_owned());
                assert_eq!(served.failure(slice).await, corrupt, "{len} bytes, {slice}, of which nothing is known");
                put(&*served.store, "a/c/0", object(len as usize)).await;
                let served = serve(Arc::clone(&store), Freshness::For(Duration::ZERO));
                assert_eq!(served.failure(slice).await, corrupt, "{len} bytes, {slice}");
                assert_eq!(served.failure(slice).await, corrupt, "{len} bytes, {slice}, the version known");
            }
        }
    }
}

#[tokio::test]
async fn a_chunk_that_changes_between_its_blocks_is_read_anew() {
    const LEN: u64 = 2 << 20;
    for levels in [vec![], vec![vec![1]]] {
        let array = RawArray { levels, ..RawArray::row(LEN) };
        let store = memory_store();
        array.put(&*store).await;
        let served = serve(Arc::clone(&store), MINUTE);
        assert_eq!(served.raw("3").await, (200, array.expected(&[vec![3]])));
        // Another program overwrites the object within the freshness: its first block is cached.
        let ones = vec![1; LEN as usize];
        let mut bytes = ones.clone();
        for _ in &array.levels {
            let mut index = [0, LEN].map(u64::to_le_bytes).concat();
            index.extend(crc32c::crc32c(&index).to_le_bytes());
            bytes = [bytes, index].concat();
        }
        put(&*store, "a/c/0", bytes).await;
        assert!(served.raw(":").await == (200, ones));
        assert_eq!(served.raw("3").await, (200, vec![1]));
    }
}

#[tokio::test]
async fn blocks_that_tell_two_versions_are_not_mixed() {
    const LEN: u64 = 2 << 20;
    let array = RawArray::row(LEN);
    let ends = (200, array.expected(&[vec![0, LEN - 1]]));
    let query = format!("(0,{})", LEN - 1);
    let store = memory_store();
    array.put(&*store).await;
    // The two ends of a chunk of which nothing is known are two reads; the second finds another version.
    let served = serve(Arc::clone(&store), MINUTE);
    served.store.nth("a/c/0", 1, Fault::Changed);
    let (answer, cost) = served.cost("a/c/", served.raw(&query)).await;
    assert_eq!(answer, ends);
    assert_eq!((cost.gets, cost.heads), (4, 0), "both are read anew");
    // It changes again while it is read anew.
    let served = serve(store, MINUTE);
    served.store.nth("a/c/0", 1, Fault::Changed);
    served.store.nth("a/c/0", 2, Fault::Changed);
    assert_eq!(served.failure(&query).await, (409, "ArrayChanged".to_owned()));
    served.store.heal();
    assert_eq!(served.raw(&query).await, ends, "a conflict is not kept");
}

#[tokio::test]
async fn however_many_want_blocks_of_a_chunk_the_store_is_asked_once_for_each() {
    let array = RawArray::row(4 << 20);
    let store = memory_store();
    array.put(&*store).await;
    let served = serve(store, MINUTE);
    served.json(&[("describe", "1")]).await;
    served.store.always("a/c/", Fault::Latency(Duration::from_millis(20)));
    let slices: Vec<String> = (0..32_u64).map(|i| format!("{}:{}", i * 10, (1 << 20) + i * 10)).collect();
    let all = futures::future::join_all(slices.iter().map(|slice| served.raw(slice)));
    let (answers, cost) = served.cost("a/c/", all).await;
    assert!(answers.iter().all(|(status, body)| *status == 200 && body.len() == 1 << 20));
    assert!(cost.bytes == 5 << 18 && cost.gets <= 2, "{cost:?}");
}
