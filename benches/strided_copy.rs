//! What does cropping cost beside the bare copy of the same bytes?
//!
//! Both read the same decoded chunks, which lie in 200 MB so that caches are as cold as in a server, and write one
//! answer after another into the same buffer. CPU time a crop.

mod workload;

use std::hint::black_box;
use std::sync::Arc;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use wicker4dx::format::zarr;
use wicker4dx::model::{ChunkData, Version};
use wicker4dx::plan::{Limits, Located, ObjectFacts, ReadPlan, survey};
use wicker4dx::query::{Request, resolve};
use wicker4dx::tensor::{Chunk, assemble};

use workload::{CHUNK, CHUNK_BYTES, CROP, CROP_BYTES, Corner, GRID};

/// Rows of the crop, straight from the chunks: the least that any answer costs.
fn bare_copy(pool: &[Vec<u8>], [b, t, y, x]: Corner, out: &mut [u8]) {
    let row = CROP[3] * 3;
    for frame in t..t + CROP[1] {
        for line in y..y + CROP[2] {
            let to = ((frame - t) * CROP[2] + (line - y)) * row;
            let mut column = x;
            while column < x + CROP[3] {
                let end = ((column / CHUNK[3] + 1) * CHUNK[3]).min(x + CROP[3]);
                let chunk =
                    ((b * GRID[1] + frame / CHUNK[1]) * GRID[2] + line / CHUNK[2]) * GRID[3] + column / CHUNK[3];
                let from = ((frame % CHUNK[1] * CHUNK[2] + line % CHUNK[2]) * CHUNK[3] + column % CHUNK[3]) * 3;
                let (at, len) = (to + (column - x) * 3, (end - column) * 3);
                out[at..at + len].copy_from_slice(&pool[chunk][from..from + len]);
                column = end;
            }
        }
    }
}

fn strided_copy(criterion: &mut Criterion) {
    let pool: Vec<Vec<u8>> = (0..64 * 64).map(|n| workload::chunk(n / 64, n / 16 % 4, n / 4 % 4, n % 4)).collect();
    let folder = workload::folder();
    let metadata = std::fs::read(folder.join("video.zarr/zarr.json")).expect("the metadata");
    let zarr::Node::Array(array) = zarr::parse_v3(&metadata).expect("an array") else { unreachable!("an array") };
    let limits = Limits { result_bytes: 1 << 30, chunks: 1000, chunk_bytes: 1 << 20 };
    let crops = workload::crops(1, 4096);
    let plan = |corner: Corner| {
        let pairs = [("slice".to_owned(), workload::slice(corner))];
        let request = Request::parse("video", &pairs, true).expect("valid");
        let slab = resolve(&request.selection, &array.shape, &array.dims, &[]).expect("inside");
        let survey = survey(&array, &slab, &limits).expect("small");
        let facts = vec![ObjectFacts::Present { version: Version::new("v"), size: 1 << 30 }; survey.objects.len()];
        let located = vec![Located::Range(0..1); survey.chunks.len()];
        ReadPlan::new(&array, "video", survey, facts, located, None).expect("sound")
    };
    let shared: Vec<Arc<ChunkData>> =
        pool.iter().map(|chunk| Arc::new(ChunkData::Fixed(chunk.clone().into()))).collect();
    let gather = |plan: &ReadPlan| -> Vec<Option<Chunk>> {
        let of = |c: &[u64]| ((c[0] * 4 + c[1]) * 4 + c[2]) * 4 + c[3];
        plan.chunks.iter().map(|chunk| Some(Chunk::Decoded(Arc::clone(&shared[of(&chunk.coord.0) as usize])))).collect()
    };
    // Equal before fast.
    let (mut one, mut other) = (vec![0; CROP_BYTES], vec![1; CROP_BYTES]);
    for &corner in &crops[..50] {
        bare_copy(&pool, corner, &mut one);
        let plan = plan(corner);
        assemble(&array, &plan, &gather(&plan), &mut other).expect("fits");
        assert_eq!(one, other);
    }
    assert_eq!(pool[0].len(), CHUNK_BYTES);

    let mut group = criterion.benchmark_group("strided_copy");
    group.throughput(Throughput::Bytes(CROP_BYTES as u64));
    let mut at = 0;
    let mut next = || {
        at = (at + 1) % crops.len();
        crops[at]
    };
    group.bench_function("bare", |bencher| {
        let mut out = vec![0; CROP_BYTES];
        bencher.iter(|| bare_copy(&pool, next(), black_box(&mut out)));
    });
    let plans: Vec<ReadPlan> = crops.iter().map(|&corner| plan(corner)).collect();
    let mut number = 0;
    group.bench_function("assemble", |bencher| {
        let mut out = vec![0; CROP_BYTES];
        bencher.iter(|| {
            number = (number + 1) % plans.len();
            let chunks = gather(&plans[number]);
            assemble(&array, &plans[number], &chunks, black_box(&mut out)).expect("fits");
        });
    });
    group.finish();
}

criterion_group!(benches, strided_copy);
criterion_main!(benches);
