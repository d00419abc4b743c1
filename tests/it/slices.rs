//! Slices through the gateway's route, in this process, over a memory store with injected faults.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt as _;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Response};
use http_body_util::BodyExt as _;
use wicker4dx::auth::{Policy, Principal};
use wicker4dx::http::{Body, Gateway, GatewaySettings, SliceRequest, slice};
use wicker4dx::metrics::Metrics;
use wicker4dx::store::{
    AnonymousAccess, Bucket, Buckets, Fault, FaultyStore, Freshness, PutOptions, Store, memory_store,
};

struct Served {
    gateway: Arc<Gateway>,
    store: Arc<FaultyStore>,
}

fn serve(freshness: Freshness) -> Served {
    serve_with(freshness, &GatewaySettings::default())
}

fn serve_with(freshness: Freshness, settings: &GatewaySettings) -> Served {
    let store = Arc::new(FaultyStore::new(memory_store()));
    let bucket = Bucket {
        name: "b".into(),
        store_name: "b".into(),
        store: Arc::clone(&store) as Arc<dyn Store>,
        freshness,
        anonymous: AnonymousAccess::Read,
        writable: true,
        in_key_form: true,
    };
    let gateway = Gateway::new(Buckets::new([bucket]), Policy::new(vec![]), Metrics::new(), settings).unwrap();
    Served { gateway, store }
}

impl Served {
    async fn put(&self, key: &str, bytes: impl Into<Bytes>) {
        let body = futures::stream::iter([Ok(bytes.into())]).boxed();
        self.store.put(key, body, PutOptions::default()).await.unwrap();
    }

    /// An uncompressed uint8 array of 4 x 4 in chunks of 2 x 2, chunk n filled with `first` + n.
    async fn put_array(&self, path: &str, first: u8) {
        let metadata = r#"{"zarr_format":3,"node_type":"array","shape":[4,4],"data_type":"uint8",
            "chunk_grid":{"name":"regular","configuration":{"chunk_shape":[2,2]}},
            "chunk_key_encoding":{"name":"default"},"fill_value":9,"codecs":[{"name":"bytes"}]}"#;
        self.put(&format!("{path}/zarr.json"), metadata).await;
        for n in 0..4_u8 {
            self.put(&format!("{path}/c/{}/{}", n / 2, n % 2), vec![first + n; 4]).await;
        }
    }

    async fn ask(&self, key: &str, query: &[(&str, &str)], headers: &[(&str, &str)]) -> Response<Body> {
        let headers: HeaderMap =
            headers.iter().map(|(name, value)| (name.parse::<HeaderName>().unwrap(), value.parse().unwrap())).collect();
        let request = SliceRequest {
            method: Method::GET,
            principal: Principal::Anonymous,
            bucket: "b".into(),
            key: key.into(),
            pairs: query.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect(),
            headers,
            request_id: "test".into(),
        };
        slice::answer(Arc::clone(&self.gateway), request).await
    }

    async fn raw(&self, key: &str, slice: &str) -> (u16, Vec<u8>) {
        let answer = self.ask(key, &[("slice", slice), ("format", "raw")], &[]).await;
        let status = answer.status().as_u16();
        (status, answer.into_body().collect().await.unwrap().to_bytes().to_vec())
    }
}

fn etag(answer: &Response<Body>) -> String {
    answer.headers()["etag"].to_str().unwrap().to_owned()
}

#[tokio::test]
async fn tensors_of_one_file_that_differ_only_in_place_are_told_apart() {
    let served = serve(Freshness::Immutable);
    let header =
        r#"{"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},"b":{"dtype":"U8","shape":[4],"data_offsets":[4,8]}}"#;
    let mut file = (header.len() as u64).to_le_bytes().to_vec();
    file.extend(header.as_bytes());
    file.extend([1, 2, 3, 4, 5, 6, 7, 8]);
    served.put("m.safetensors", file).await;
    for (name, expected) in [("a", [1, 2, 3, 4]), ("b", [5, 6, 7, 8]), ("a", [1, 2, 3, 4])] {
        let query = [("array", name), ("slice", ""), ("format", "raw")];
        let body = served.ask("m.safetensors", &query, &[]).await.into_body().collect().await.unwrap().to_bytes();
        assert_eq!(body[..], expected, "{name}");
    }
}

#[tokio::test]
async fn a_chunk_that_changes_before_it_is_read_is_read_anew() {
    let served = serve(Freshness::For(Duration::from_secs(60)));
    served.put_array("a", 10).await;
    assert_eq!(served.raw("a", "0").await, (200, vec![10, 10, 11, 11]));
    // Another program overwrites a chunk within the freshness; its old version is decoded and cached.
    served.put("a/c/1/0", vec![77; 4]).await;
    assert_eq!(served.raw("a", "2").await, (200, vec![77, 77, 13, 13]));
}

#[tokio::test]
async fn a_file_that_keeps_changing_is_a_conflict_and_no_mixture() {
    let served = serve(Freshness::For(Duration::from_secs(60)));
    let header = "{'descr': '|u1', 'fortran_order': False, 'shape': (4,), }\n";
    let mut file = b"\x93NUMPY\x01\x00".to_vec();
    file.extend((header.len() as u16).to_le_bytes());
    file.extend(header.as_bytes());
    file.extend([1, 2, 3, 4]);
    served.put("x.npy", file).await;
    assert_eq!(served.raw("x.npy", "").await, (200, vec![1, 2, 3, 4]));
    served.store.operation("get", "x.npy", 1, Fault::Changed);
    let (status, body) = served.raw("x.npy", "::-1").await;
    assert_eq!((status, body), (200, vec![4, 3, 2, 1]), "once, the plan is made anew");
    served.store.always("x.npy", Fault::Changed);
    let answer = served.ask("x.npy", &[("slice", "1:")], &[("cache-control", "no-cache")]).await;
    let (status, body) = answer.into_parts();
    let text = body.collect().await.unwrap().to_bytes();
    assert_eq!(status.status, 409, "{}", String::from_utf8_lossy(&text));
}

#[tokio::test]
async fn a_write_through_the_gateway_is_seen_by_the_next_request() {
    let served = serve(Freshness::For(Duration::from_secs(60)));
    served.put_array("a", 10).await;
    for value in 20..30 {
        served.put("a/c/0/0", vec![value; 4]).await;
        served.gateway.invalidate("b", "a/c/0/0");
        assert_eq!(served.raw("a", "0,0").await, (200, vec![value]));
    }
}

#[tokio::test]
async fn a_removed_chunk_changes_the_entity_tag_and_is_no_304_by_date() {
    let served = serve(Freshness::For(Duration::ZERO));
    served.put_array("a", 10).await;
    let before = served.ask("a", &[("slice", ":2")], &[]).await;
    let (tag, date) = (etag(&before), before.headers()["last-modified"].to_str().unwrap().to_owned());
    let same = served.ask("a", &[("slice", ":2")], &[("if-none-match", &tag)]).await;
    assert_eq!(same.status(), 304);
    served.store.delete("a/c/0/1").await.unwrap();
    let after = served.ask("a", &[("slice", ":2")], &[("if-none-match", &tag)]).await;
    assert_eq!(after.status(), 200);
    assert_ne!(etag(&after), tag);
    assert_eq!(served.ask("a", &[("slice", ":2")], &[("if-modified-since", &date)]).await.status(), 200);
    assert_eq!(served.raw("a", "0").await, (200, vec![10, 10, 9, 9]));
    // What the slice does not touch does not change its tag.
    let untouched = served.ask("a", &[("slice", "2:")], &[]).await;
    served.put("a/c/0/0", vec![1; 4]).await;
    let again = served.ask("a", &[("slice", "2:")], &[("if-none-match", &etag(&untouched))]).await;
    assert_eq!(again.status(), 304);
}

#[tokio::test]
async fn a_truncated_chunk_and_a_refused_one_are_errors_and_not_fill() {
    let served = serve(Freshness::For(Duration::ZERO));
    served.put_array("a", 10).await;
    served.put("a/c/0/0", vec![10; 3]).await;
    let (status, body) = served.raw("a", "0").await;
    let text = String::from_utf8_lossy(&body);
    assert!(status == 500 && text.contains("<Code>CorruptData</Code>") && text.contains("[0,0]"), "{status} {text}");
    served.store.always("a/c/1/1", Fault::Status(403));
    let (status, body) = served.raw("a", "3").await;
    let text = String::from_utf8_lossy(&body);
    assert!(status == 502 && text.contains("<Code>UpstreamDenied</Code>"), "{status} {text}");
    served.store.heal();
    assert_eq!(served.raw("a", "3").await, (200, vec![12, 12, 13, 13]), "an error is not kept");
}

#[tokio::test]
async fn a_store_that_passes_a_read_by_is_asked_again_and_its_client_in_the_end() {
    let served = serve(Freshness::For(Duration::from_secs(60)));
    served.put_array("a", 10).await;
    served.store.next("a/c/0/0", 1, Fault::Status(503));
    served.store.next("a/c/0/1", 2, Fault::Reset);
    assert_eq!(served.raw("a", "0").await, (200, vec![10, 10, 11, 11]));
    served.store.always("a/c/1/0", Fault::Status(503));
    let answer = served.ask("a", &[("slice", "2"), ("format", "raw")], &[]).await;
    assert_eq!((answer.status().as_u16(), &answer.headers()["retry-after"]), (503, &HeaderValue::from_static("1")));
    let text = served.gateway.metrics.encode();
    assert!(text.contains("w4dx_store_throttled_total{store=\"b\"} 5"), "{text}");
}

#[tokio::test]
async fn a_spent_budget_of_memory_is_answered_with_when_to_come_back() {
    let patience = Duration::from_millis(20);
    let settings = GatewaySettings { inflight_bytes: 1, patience, ..GatewaySettings::default() };
    let served = serve_with(Freshness::For(Duration::from_secs(60)), &settings);
    served.put_array("a", 10).await;
    served.store.operation("get", "a/c/", 0, Fault::Latency(Duration::from_millis(300)));
    let (top, bottom) = ([("slice", "0"), ("format", "raw")], [("slice", "2"), ("format", "raw")]);
    let (one, other) = futures::join!(served.ask("a", &top, &[]), served.ask("a", &bottom, &[]));
    let (answered, refused) = if one.status() == 200 { (one, other) } else { (other, one) };
    assert_eq!((answered.status().as_u16(), refused.status().as_u16()), (200, 503));
    assert_eq!(refused.headers().get_all("retry-after").iter().collect::<Vec<_>>(), ["1"]);
}

#[tokio::test]
async fn an_empty_axis_does_not_hide_the_chunks_of_the_others() {
    let served = serve(Freshness::For(Duration::ZERO));
    let metadata = r#"{"zarr_format":3,"node_type":"array","shape":[0,1000000000],"data_type":"uint8",
        "chunk_grid":{"name":"regular","configuration":{"chunk_shape":[1,1]}},
        "chunk_key_encoding":{"name":"default"},"fill_value":0,"codecs":[{"name":"bytes"}]}"#;
    served.put("a/zarr.json", metadata).await;
    let answer = served.ask("a", &[("slice", "0:1,:"), ("oob", "fill")], &[]).await;
    let text = answer.into_body().collect().await.unwrap().to_bytes();
    assert!(String::from_utf8_lossy(&text).contains("SliceTooLarge"));
}

#[tokio::test]
async fn many_identical_cold_requests_read_each_object_once() {
    let served = serve(Freshness::For(Duration::from_secs(60)));
    served.put_array("a", 10).await;
    served.store.always("a/", Fault::Latency(Duration::from_millis(20)));
    served.store.forget_calls();
    let all = futures::future::join_all((0..64).map(|_| served.raw("a", ":"))).await;
    assert!(all.iter().all(|(status, body)| *status == 200 && body == &all[0].1));
    let calls = served.store.calls();
    let reads = calls.iter().filter(|call| call.operation == "get" && call.key.contains("/c/")).count();
    assert_eq!(reads, 4, "{calls:?}");
}
