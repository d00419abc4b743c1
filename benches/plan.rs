//! What does it cost to know which bytes a crop needs, and does that depend on how many chunks there are?
//!
//! From the text of a slice to joined reads, stage by stage, on the bench's video of 4,096 chunks and on one of 10^8
//! chunks in shards of 10^6, whose indexes have no checksum. A crop touches 8 to 27 chunks in both. No byte is read.

mod workload;

use std::hint::black_box;
use std::ops::Range;

use bytes::Bytes;
use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use wicker4dx::format::{ArrayMeta, Storage, zarr};
use wicker4dx::index::{IndexLayout, IndexPage, Nesting};
use wicker4dx::model::{Hyperslab, Version};
use wicker4dx::plan::{Limits, Located, ObjectFacts, ReadPlan, Survey, coalesce, survey};
use wicker4dx::query::{Request, resolve};

const LIMITS: Limits = Limits { result_bytes: 1 << 30, chunks: 1000, chunk_bytes: 1 << 20 };

/// Stored bytes of a chunk: what zstd makes of the bench's.
const STORED: u64 = 32 << 10;

/// A video of `clips`, as its metadata tell it.
fn video(clips: usize, shard: [usize; 5], checked: bool) -> ArrayMeta {
    let index = if checked {
        r#"{"name":"bytes","configuration":{"endian":"little"}},{"name":"crc32c"}"#
    } else {
        r#"{"name":"bytes","configuration":{"endian":"little"}}"#
    };
    let metadata = format!(
        r#"{{"zarr_format":3,"node_type":"array","shape":[{clips},16,256,256,3],"data_type":"uint8","fill_value":0,
        "chunk_grid":{{"name":"regular","configuration":{{"chunk_shape":{shard:?}}}}},
        "chunk_key_encoding":{{"name":"default"}},
        "codecs":[{{"name":"sharding_indexed","configuration":{{"chunk_shape":{:?},"index_location":"end",
        "codecs":[{{"name":"bytes"}},{{"name":"zstd","configuration":{{"level":1,"checksum":false}}}}],
        "index_codecs":[{index}]}}}}]}}"#,
        workload::CHUNK
    );
    match zarr::parse_v3(metadata.as_bytes()).expect("metadata") {
        zarr::Node::Array(array) => *array,
        zarr::Node::Group { .. } => unreachable!("an array"),
    }
}

/// One shard's index, all of it: every chunk behind the one before.
fn pages(layout: &IndexLayout) -> Vec<IndexPage> {
    let entries = layout.index_bytes() / 16;
    let mut index: Vec<u8> = (0..entries).flat_map(|n| [n * STORED, STORED]).flat_map(u64::to_le_bytes).collect();
    if layout.is_checked() {
        let sum = crc32c::crc32c(&index);
        index.extend(sum.to_le_bytes());
    }
    let index = Bytes::from(index);
    (0..=layout.page_of(entries - 1))
        .map(|page| {
            let Range { start, end } = layout.page_range(page);
            layout.page(page, index.slice(start as usize..end as usize)).expect("a page")
        })
        .collect()
}

fn plan(criterion: &mut Criterion) {
    let arrays = [
        ("4096", video(64, [1, 16, 256, 256, 3], true)),
        // 15,625 clips of 64 chunks in a shard: 10^6 entries.
        ("1e8", video(1_562_500, [15_625, 16, 256, 256, 3], false)),
    ];
    let mut group = criterion.benchmark_group("plan");
    for (name, array) in &arrays {
        let Storage::Grid(grid) = &array.storage else { unreachable!("a grid") };
        let nesting = Nesting::new(grid);
        let layout = nesting.layouts().remove(0);
        let pages = pages(&layout);
        let container = layout.index_bytes() + layout.index_bytes() / 16 * STORED;
        let crops: Vec<_> = workload::crops(5, 1024).into_iter().map(workload::slice).collect();
        let parse = |text: &str| -> Hyperslab {
            let pairs = [("slice".to_owned(), text.to_owned())];
            let request = Request::parse("video", &pairs, true).expect("valid");
            resolve(&request.selection, &array.shape, &array.dims, &[]).expect("inside")
        };
        let look_up = |survey: &Survey| -> Vec<Located> {
            let of = |entry| layout.find(&pages[layout.page_of(entry) as usize], entry, container).expect("inside");
            let chunks = survey.chunks.iter().map(|chunk| of(layout.entry_of(&chunk.coord)));
            chunks.map(|range| range.map_or(Located::Absent, Located::Range)).collect()
        };
        let plan = |survey: Survey, located: Vec<Located>| {
            let facts = ObjectFacts::Present { version: Version::new("v"), size: container };
            let facts = vec![facts; survey.objects.len()];
            ReadPlan::new(array, "video", survey, facts, located, None).expect("sound")
        };
        let slabs: Vec<_> = crops.iter().map(|text| parse(text)).collect();
        let surveys: Vec<_> = slabs.iter().map(|slab| survey(array, slab, &LIMITS).expect("small")).collect();
        let plans: Vec<_> = surveys.iter().map(|survey| plan(survey.clone(), look_up(survey))).collect();
        let mut at = 0;
        let mut next = || {
            at = (at + 1) % crops.len();
            at
        };
        group.bench_function(BenchmarkId::new("parse", name), |bencher| {
            bencher.iter(|| black_box(parse(&crops[next()])));
        });
        group.bench_function(BenchmarkId::new("survey", name), |bencher| {
            bencher.iter(|| black_box(survey(array, &slabs[next()], &LIMITS)));
        });
        group.bench_function(BenchmarkId::new("index", name), |bencher| {
            bencher.iter(|| black_box(look_up(&surveys[next()])));
        });
        group.bench_function(BenchmarkId::new("coalesce", name), |bencher| {
            bencher.iter(|| {
                let chunks = plans[next()].chunks.iter().filter_map(|chunk| chunk.extent.as_ref());
                let ranges: Vec<_> = chunks.map(|extent| extent.range.clone()).collect();
                black_box(coalesce(&ranges, 128 << 10, 8 << 20))
            });
        });
        group.bench_function(BenchmarkId::new("all", name), |bencher| {
            bencher.iter(|| {
                let survey = survey(array, &parse(&crops[next()]), &LIMITS).expect("small");
                let located = look_up(&survey);
                black_box(plan(survey, located))
            });
        });
    }
    group.finish();
}

criterion_group!(benches, plan);
criterion_main!(benches);
