//! A gateway in this process whose store is counted and fails on demand, and what a slice of the array `a` costs there.

use std::sync::Arc;

use bytes::Bytes;
use futures::StreamExt as _;
use http::{HeaderMap, Method, Response};
use http_body_util::BodyExt as _;
use serde_json::Value;
use wicker4dx::auth::{Policy, Principal};
use wicker4dx::http::{Body, Gateway, GatewaySettings, SliceRequest, batch, slice};
use wicker4dx::metrics::Metrics;
use wicker4dx::store::{AnonymousAccess, Bucket, Buckets, FaultyStore, Freshness, MeteredStore, PutOptions, Store};

/// A gateway over a store that can fail and is counted.
pub(crate) struct Served {
    gateway: Arc<Gateway>,
    pub(crate) store: Arc<FaultyStore>,
    metrics: Metrics,
}

pub(crate) fn serve(inner: Arc<dyn Store>, freshness: Freshness) -> Served {
    serve_with(inner, freshness, &GatewaySettings::default())
}

pub(crate) fn serve_with(inner: Arc<dyn Store>, freshness: Freshness, settings: &GatewaySettings) -> Served {
    let (store, metrics) = (Arc::new(FaultyStore::new(inner)), Metrics::with_datasets(2));
    let metered = MeteredStore::new(Arc::clone(&store) as Arc<dyn Store>, &metrics, "b");
    let bucket = Bucket {
        store_name: "memory".into(),
        name: "b".into(),
        store: Arc::new(metered),
        freshness,
        anonymous: AnonymousAccess::Read,
        writable: true,
        in_key_form: true,
    };
    let gateway = Gateway::new(Buckets::new([bucket]), Policy::new(vec![]), metrics.clone(), settings).unwrap();
    Served { gateway, store, metrics }
}

/// What was asked of the store for one object or more.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Cost {
    pub(crate) gets: usize,
    pub(crate) heads: usize,
    pub(crate) lists: usize,
    /// Bytes of all objects.
    pub(crate) bytes: u64,
}

pub(crate) async fn put(store: &dyn Store, key: &str, bytes: impl Into<Bytes>) {
    let body = futures::stream::iter([Ok(bytes.into())]).boxed();
    store.put(key, body, PutOptions::default()).await.unwrap();
}

impl Served {
    async fn ask(&self, query: &[(&str, &str)]) -> Response<Body> {
        slice::answer(Arc::clone(&self.gateway), Self::request(Method::GET, query)).await
    }

    /// The status of a batch.
    pub(crate) async fn batch(&self, body: &'static str) -> u16 {
        let request = Self::request(Method::POST, &[("batch", "")]);
        let answer = batch::answer(Arc::clone(&self.gateway), request, body.into()).await;
        let status = answer.status().as_u16();
        answer.into_body().collect().await.unwrap();
        status
    }

    fn request(method: Method, query: &[(&str, &str)]) -> SliceRequest {
        SliceRequest {
            method,
            principal: Principal::Anonymous,
            bucket: "b".into(),
            key: "a".into(),
            pairs: query.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect(),
            headers: HeaderMap::new(),
            request_id: "test".into(),
        }
    }

    pub(crate) async fn raw(&self, slice: &str) -> (u16, Vec<u8>) {
        let answer = self.ask(&[("slice", slice), ("format", "raw")]).await;
        let status = answer.status().as_u16();
        (status, answer.into_body().collect().await.unwrap().to_bytes().to_vec())
    }

    /// The status and the error's code of a slice that must fail.
    pub(crate) async fn failure(&self, slice: &str) -> (u16, String) {
        let (status, body) = self.raw(slice).await;
        let text = String::from_utf8_lossy(&body).into_owned();
        let code = text.split_once("<Code>").and_then(|(_, rest)| rest.split_once("</Code>"));
        (status, code.map_or_else(|| format!("no error: {text}"), |(code, _)| code.to_owned()))
    }

    pub(crate) async fn json(&self, query: &[(&str, &str)]) -> Value {
        let answer = self.ask(query).await;
        assert_eq!(answer.status(), 200, "{query:?}");
        serde_json::from_slice(&answer.into_body().collect().await.unwrap().to_bytes()).unwrap()
    }

    /// A counter by its name and labels; 0 for one that has counted nothing yet.
    pub(crate) fn counter(&self, name: &str) -> u64 {
        let text = self.metrics.encode();
        let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        value.map_or(0, |value| value.parse().unwrap())
    }

    fn bytes(&self) -> u64 {
        self.counter("w4dx_store_bytes_total{bucket=\"b\"}")
    }

    /// What `work` asks of the store: calls on keys that contain `key_part`, and bytes of all.
    pub(crate) async fn cost<T>(&self, key_part: &str, work: impl Future<Output = T>) -> (T, Cost) {
        self.store.forget_calls();
        let before = self.bytes();
        let done = work.await;
        let calls = self.store.calls();
        let count =
            |operation| calls.iter().filter(|call| call.operation == operation && call.key.contains(key_part)).count();
        let (gets, heads, lists) = (count("get"), count("head"), count("list"));
        (done, Cost { gets, heads, lists, bytes: self.bytes() - before })
    }
}
