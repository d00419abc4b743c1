//! What does a cold crop cost beside the bare decoding of its chunks?
//!
//! The gateway answers in this process, without HTTP: parameters, rights, plan, reads of a local bucket from the page
//! cache, checksums, zstd, copies. The chunk cache is off, versions are trusted, indexes warm. Beside it zstd alone, of
//! the same stored bytes, with one context and one buffer. CPU time of all threads a crop.

mod workload;

use std::sync::Arc;
use std::time::Duration;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use http_body_util::BodyExt as _;
use wicker4dx::auth::{Policy, Principal};
use wicker4dx::http::{Gateway, GatewaySettings, SliceRequest, slice};
use wicker4dx::metrics::Metrics;
use wicker4dx::store::{AnonymousAccess, Bucket, Buckets, Freshness, LocalStore};

use workload::{CHUNK, CHUNK_BYTES, CROP, CROP_BYTES, Corner};

fn gateway(cache_bytes: u64) -> Arc<Gateway> {
    let bucket = Bucket {
        store_name: "disk".into(),
        name: "b".into(),
        store: Arc::new(LocalStore::open(workload::folder()).expect("the folder")),
        freshness: Freshness::Immutable,
        anonymous: AnonymousAccess::Read,
        writable: false,
        in_key_form: true,
    };
    let settings = GatewaySettings { cache_bytes, ..GatewaySettings::default() };
    Gateway::new(Buckets::new([bucket]), Policy::new(vec![]), Metrics::new(), &settings).expect("threads")
}

async fn answer(gateway: &Arc<Gateway>, corner: Corner) -> usize {
    let pairs = [("slice", workload::slice(corner)), ("format", "raw".to_owned())];
    let request = SliceRequest {
        method: http::Method::GET,
        principal: Principal::Anonymous,
        bucket: "b".into(),
        key: "video.zarr".into(),
        pairs: pairs.into_iter().map(|(name, value)| (name.to_owned(), value)).collect(),
        headers: http::HeaderMap::new(),
        request_id: "bench".into(),
    };
    let answer = slice::answer(Arc::clone(gateway), request).await;
    assert_eq!(answer.status(), 200);
    let mut body = answer.into_body();
    let mut len = 0;
    while let Some(frame) = body.frame().await {
        len += frame.expect("a frame").into_data().map_or(0, |data| data.len());
    }
    len
}

/// The stored bytes of the chunks that a crop touches, without their checksums.
fn touched(stored: &[Vec<u8>], [b, t, y, x]: Corner) -> Vec<&[u8]> {
    let span = |from: usize, len: usize, chunk: usize| from / chunk..(from + len).div_ceil(chunk);
    let mut chunks = Vec::new();
    for t in span(t, CROP[1], CHUNK[1]) {
        for y in span(y, CROP[2], CHUNK[2]) {
            for x in span(x, CROP[3], CHUNK[3]) {
                let stored = &stored[((b * 4 + t) * 4 + y) * 4 + x];
                chunks.push(&stored[..stored.len() - 4]);
            }
        }
    }
    chunks
}

fn cold_crop(criterion: &mut Criterion) {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime");
    let crops = workload::crops(2, 4096);
    let stored: Vec<Vec<u8>> =
        (0..64 * 64).map(|n| workload::encode(&workload::chunk(n / 64, n / 16 % 4, n / 4 % 4, n % 4))).collect();
    let mut group = criterion.benchmark_group("cold_crop");
    group.throughput(Throughput::Bytes(CROP_BYTES as u64)).sample_size(20).measurement_time(Duration::from_secs(8));
    let mut at = 0;
    let mut next = || {
        at = (at + 1) % crops.len();
        crops[at]
    };
    group.bench_function("bare_zstd", |bencher| {
        let mut context = zstd::bulk::Decompressor::new().expect("a context");
        let mut out = Vec::with_capacity(CHUNK_BYTES);
        bencher.iter(|| {
            for chunk in touched(&stored, next()) {
                context.decompress_to_buffer(chunk, &mut out).expect("zstd decodes");
            }
        });
    });
    for (name, cache_bytes) in [("gateway", 0), ("gateway_warm", 1 << 30)] {
        let gateway = gateway(cache_bytes);
        // Indexes, and with a cache the chunks.
        for corner in &crops {
            assert_eq!(runtime.block_on(answer(&gateway, *corner)), CROP_BYTES);
        }
        group.bench_function(name, |bencher| {
            bencher.iter_custom(|rounds| {
                let before = workload::cpu();
                runtime.block_on(async {
                    for _ in 0..rounds {
                        answer(&gateway, next()).await;
                    }
                });
                workload::cpu() - before
            });
        });
    }
    group.finish();
}

criterion_group!(benches, cold_crop);
criterion_main!(benches);
