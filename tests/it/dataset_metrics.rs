//! Hits and misses of the cache by dataset, as requests count them.

use std::time::Duration;

use wicker4dx::store::{Freshness, memory_store};

use crate::served::{Served, put, serve};

/// Hits and misses of one dataset.
fn asked(served: &Served, dataset: &str) -> (u64, u64) {
    let counter =
        |outcome| served.counter(&format!("w4dx_dataset_chunks_total{{dataset=\"{dataset}\",outcome=\"{outcome}\"}}"));
    (counter("hit"), counter("miss"))
}

#[tokio::test]
async fn each_chunk_counts_for_its_dataset_and_once_for_a_batch() {
    let store = memory_store();
    for array in ["x", "y", "z"] {
        let metadata = r#"{"zarr_format":3,"node_type":"array","shape":[8],"data_type":"uint8",
            "chunk_grid":{"name":"regular","configuration":{"chunk_shape":[2]}},
            "chunk_key_encoding":{"name":"default"},"fill_value":9,"codecs":[{"name":"bytes"}]}"#;
        put(&*store, &format!("a/{array}/zarr.json"), metadata).await;
        for chunk in 0..3 {
            put(&*store, &format!("a/{array}/c/{chunk}"), vec![1, 2]).await;
        }
    }
    put(&*store, "a/zarr.json", r#"{"zarr_format":3,"node_type":"group"}"#).await;
    let served = serve(store, Freshness::For(Duration::from_secs(60)));
    // The items of a field share a chunk; that at 6 is absent.
    let body = r#"{"v":1,"fields":{"x":[{"slice":"0:4"},{"slice":"2:8"}],"y":[{"slice":"0:1"},{"slice":"0:1"}]}}"#;
    assert_eq!(served.batch(body).await, 200);
    let first = [asked(&served, "b/a/x"), asked(&served, "b/a/y")];
    assert_eq!(first.map(|(hits, misses)| hits + misses).iter().sum::<u64>(), total(&served));
    assert_eq!(served.batch(body).await, 200);
    assert_eq!(asked(&served, "b/a/x").0 - first[0].0, 3, "all hits: {first:?}");
    assert_eq!(asked(&served, "b/a/y").0 - first[1].0, 1, "all hits: {first:?}");
    // Beyond the two that are told apart.
    assert_eq!(served.batch(r#"{"v":1,"fields":{"z":[{"slice":"0:4"}]}}"#).await, 200);
    assert_eq!(asked(&served, "other"), (0, 2));
    assert_eq!(asked(&served, "b/a/z"), (0, 0));
}

/// Chunks asked of the cache by all requests.
fn total(served: &Served) -> u64 {
    served.counter("w4dx_cache_hits_total") + served.counter("w4dx_cache_misses_total")
}
