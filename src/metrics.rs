//! What the gateway counts, in the Prometheus text format.
//!
//! Methods are named for what happened. Labels come from closed lists and from the configuration, never from a
//! request, so that no client can make the table grow. Only names of datasets come from elsewhere: so many of them as
//! the configuration allows, which is none unless it says so.

mod datasets;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use prometheus_client::encoding::{EncodeLabelSet, EncodeLabelValue, LabelValueEncoder};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use self::datasets::DatasetTable;

/// Upper bounds of the latency buckets, in seconds: from a cache hit to a request that ran into its timeout.
const SECONDS: [f64; 14] = [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 30.0];

/// What a request was for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RequestKind {
    /// A slice of an array.
    Slice,
    /// A description of an array.
    Describe,
    /// The plan of a slice or batch.
    Explain,
    /// Many slices at once.
    Batch,
    /// Chunks into the cache.
    Prefetch,
    /// A plain S3 operation.
    S3,
    /// Health, metrics, documentation.
    Admin,
}

impl RequestKind {
    fn label(self) -> &'static str {
        match self {
            Self::Slice => "slice",
            Self::Describe => "describe",
            Self::Explain => "explain",
            Self::Batch => "batch",
            Self::Prefetch => "prefetch",
            Self::S3 => "s3",
            Self::Admin => "admin",
        }
    }
}

/// What was asked of a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum StoreOperation {
    /// Bytes of an object.
    Get,
    /// The description of an object.
    Head,
    /// A page of keys.
    List,
    /// An upload.
    Put,
    /// A removal.
    Delete,
}

impl StoreOperation {
    fn label(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::Head => "head",
            Self::List => "list",
            Self::Put => "put",
            Self::Delete => "delete",
        }
    }
}

impl EncodeLabelValue for RequestKind {
    fn encode(&self, encoder: &mut LabelValueEncoder<'_>) -> Result<(), fmt::Error> {
        EncodeLabelValue::encode(&self.label(), encoder)
    }
}

impl EncodeLabelValue for StoreOperation {
    fn encode(&self, encoder: &mut LabelValueEncoder<'_>) -> Result<(), fmt::Error> {
        EncodeLabelValue::encode(&self.label(), encoder)
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RequestLabels {
    kind: RequestKind,
    status: u16,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct KindLabels {
    kind: RequestKind,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StoreRequestLabels {
    bucket: Arc<str>,
    op: StoreOperation,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct BucketLabels {
    bucket: Arc<str>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StoreErrorLabels {
    bucket: Arc<str>,
    kind: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StoreLabels {
    store: Arc<str>,
}

/// A gauge of a quantity that is no whole number.
type RealGauge = Gauge<f64, AtomicU64>;

/// All counters of one gateway. Cheap to clone; clones count together.
#[derive(Debug, Clone)]
pub struct Metrics(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    registry: Registry,
    requests: Family<RequestLabels, Counter>,
    request_seconds: Family<KindLabels, Histogram>,
    client_bytes: Counter,
    store_requests: Family<StoreRequestLabels, Counter>,
    store_bytes: Family<BucketLabels, Counter>,
    store_errors: Family<StoreErrorLabels, Counter>,
    store_gap_bytes: Family<StoreLabels, Gauge>,
    store_latency_seconds: Family<StoreLabels, RealGauge>,
    store_bandwidth_bytes: Family<StoreLabels, RealGauge>,
    store_hedges: Family<StoreLabels, Counter>,
    store_retries: Family<StoreLabels, Counter>,
    store_throttled: Family<StoreLabels, Counter>,
    cache_hits: Counter,
    cache_misses: Counter,
    cache_evictions: Counter,
    cache_bytes: Gauge,
    recent_hits: Counter,
    recent_bytes: Gauge,
    chunks_decoded: Counter,
    inflight_bytes: Gauge,
    datasets: Option<DatasetTable>,
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

impl Metrics {
    /// Counters at zero.
    pub fn new() -> Self {
        Self::with_datasets(0)
    }

    /// Counters at zero, which also tell the first `most` datasets apart.
    pub fn with_datasets(most: usize) -> Self {
        let mut inner = Inner {
            registry: Registry::default(),
            requests: Family::default(),
            request_seconds: Family::new_with_constructor(|| Histogram::new(SECONDS)),
            client_bytes: Counter::default(),
            store_requests: Family::default(),
            store_bytes: Family::default(),
            store_errors: Family::default(),
            store_gap_bytes: Family::default(),
            store_latency_seconds: Family::default(),
            store_bandwidth_bytes: Family::default(),
            store_hedges: Family::default(),
            store_retries: Family::default(),
            store_throttled: Family::default(),
            cache_hits: Counter::default(),
            cache_misses: Counter::default(),
            cache_evictions: Counter::default(),
            cache_bytes: Gauge::default(),
            recent_hits: Counter::default(),
            recent_bytes: Gauge::default(),
            chunks_decoded: Counter::default(),
            inflight_bytes: Gauge::default(),
            datasets: (most > 0).then(|| DatasetTable::new(most)),
        };
        inner.register();
        Self(Arc::new(inner))
    }

    /// A request was answered with this status, so long after it arrived.
    pub fn request_finished(&self, kind: RequestKind, status: u16, elapsed: Duration) {
        self.0.requests.get_or_create(&RequestLabels { kind, status }).inc();
        self.0.request_seconds.get_or_create(&KindLabels { kind }).observe(elapsed.as_secs_f64());
    }

    /// Bytes of bodies went to clients.
    pub fn client_bytes_sent(&self, bytes: u64) {
        self.0.client_bytes.inc_by(bytes);
    }

    /// The counters of one bucket's store, found once so that counting takes no lock.
    pub fn store_meter(&self, bucket: &str) -> StoreMeter {
        let bucket: Arc<str> = bucket.into();
        let requests =
            |op| self.0.store_requests.get_or_create_owned(&StoreRequestLabels { bucket: bucket.clone(), op });
        StoreMeter {
            get: requests(StoreOperation::Get),
            head: requests(StoreOperation::Head),
            list: requests(StoreOperation::List),
            put: requests(StoreOperation::Put),
            delete: requests(StoreOperation::Delete),
            bytes: self.0.store_bytes.get_or_create_owned(&BucketLabels { bucket: bucket.clone() }),
            metrics: self.clone(),
            bucket,
        }
    }

    /// What is counted and measured of the ranged reads of one configured store, found once.
    pub fn read_meter(&self, store: &str) -> ReadMeter {
        let labels = StoreLabels { store: store.into() };
        ReadMeter {
            gap_bytes: self.0.store_gap_bytes.get_or_create_owned(&labels),
            latency_seconds: self.0.store_latency_seconds.get_or_create_owned(&labels),
            bandwidth_bytes: self.0.store_bandwidth_bytes.get_or_create_owned(&labels),
            hedges: self.0.store_hedges.get_or_create_owned(&labels),
            retries: self.0.store_retries.get_or_create_owned(&labels),
            throttled: self.0.store_throttled.get_or_create_owned(&labels),
        }
    }

    /// So many chunks of one plan were found in the cache, and so many were not.
    pub fn cache_asked(&self, hits: u64, misses: u64) {
        self.0.cache_hits.inc_by(hits);
        self.0.cache_misses.inc_by(misses);
    }

    /// Whether datasets are told apart, so that [`Metrics::dataset_asked`] counts.
    pub fn tells_datasets(&self) -> bool {
        self.0.datasets.is_some()
    }

    /// Of the chunks of [`Metrics::cache_asked`], so many are those of the array at `path` in `bucket`.
    pub fn dataset_asked(&self, bucket: &Arc<str>, path: &Arc<str>, hits: u64, misses: u64) {
        if let Some(datasets) = &self.0.datasets {
            datasets.asked(bucket, path, hits, misses);
        }
    }

    /// So many chunks left the cache to make room.
    pub fn cache_evicted(&self, chunks: u64) {
        self.0.cache_evictions.inc_by(chunks);
    }

    /// The cache now holds so many bytes.
    pub fn cache_holds(&self, bytes: u64) {
        self.0.cache_bytes.set(i64::try_from(bytes).unwrap_or(i64::MAX));
    }

    /// Of the chunks that were not found in the cache, so many were found among the bytes read last.
    pub fn recent_found(&self, chunks: u64) {
        self.0.recent_hits.inc_by(chunks);
    }

    /// So many bytes of what was read last are kept.
    pub fn recent_holds(&self, bytes: u64) {
        self.0.recent_bytes.set(i64::try_from(bytes).unwrap_or(i64::MAX));
    }

    /// So many chunks were decoded.
    pub fn chunks_decoded(&self, chunks: u64) {
        self.0.chunks_decoded.inc_by(chunks);
    }

    /// Requests now hold so many bytes that are not yet sent.
    pub fn inflight_bytes(&self, bytes: u64) {
        self.0.inflight_bytes.set(i64::try_from(bytes).unwrap_or(i64::MAX));
    }

    /// Everything in the Prometheus text format (`application/openmetrics-text; version=1.0.0; charset=utf-8`).
    pub fn encode(&self) -> String {
        let mut text = String::new();
        match prometheus_client::encoding::text::encode(&mut text, &self.0.registry) {
            Ok(()) => text,
            // Writing into a string fails only when a label's encoder does; what was written before still counts.
            Err(fmt::Error) => text,
        }
    }
}

impl Inner {
    /// Names without `_total`: the encoder adds it to every counter.
    fn register(&mut self) {
        let registry = &mut self.registry;
        registry.register("w4dx_requests", "Requests answered, by kind and status", self.requests.clone());
        registry.register(
            "w4dx_request_seconds",
            "Time from a request's arrival to the end of its answer, in seconds",
            self.request_seconds.clone(),
        );
        registry.register("w4dx_client_bytes", "Bytes of bodies sent to clients", self.client_bytes.clone());
        registry.register("w4dx_store_requests", "Requests to stores, by bucket", self.store_requests.clone());
        registry.register("w4dx_store_bytes", "Bytes of objects read from stores", self.store_bytes.clone());
        registry.register("w4dx_store_errors", "Failures of stores, by kind", self.store_errors.clone());
        registry.register(
            "w4dx_store_gap_bytes",
            "Largest hole that is read through instead of sending a second request, by store",
            self.store_gap_bytes.clone(),
        );
        registry.register(
            "w4dx_store_latency_seconds",
            "Measured time that a read takes beside its bytes, usually; 0 until measured",
            self.store_latency_seconds.clone(),
        );
        registry.register(
            "w4dx_store_bandwidth_bytes",
            "Measured bytes a second of all reads together; 0 until measured",
            self.store_bandwidth_bytes.clone(),
        );
        registry.register(
            "w4dx_store_hedges",
            "Second reads sent because the first was slow, by store",
            self.store_hedges.clone(),
        );
        registry.register(
            "w4dx_store_retries",
            "Reads sent again after a failure, by store",
            self.store_retries.clone(),
        );
        registry.register(
            "w4dx_store_throttled",
            "Reads that the store refused or did not answer in time, each of which lowers the limit of reads",
            self.store_throttled.clone(),
        );
        registry.register("w4dx_cache_hits", "Chunks found in the cache", self.cache_hits.clone());
        registry.register("w4dx_cache_misses", "Chunks not found in the cache", self.cache_misses.clone());
        registry.register("w4dx_cache_evictions", "Chunks that left the cache", self.cache_evictions.clone());
        registry.register("w4dx_cache_bytes", "Bytes that the cache holds", self.cache_bytes.clone());
        let help = "Chunks not in the cache, found in stored bytes that were read last";
        registry.register("w4dx_recent_hits", help, self.recent_hits.clone());
        registry.register(
            "w4dx_recent_bytes",
            "Stored bytes that were read last and are kept",
            self.recent_bytes.clone(),
        );
        registry.register("w4dx_chunks_decoded", "Chunks decoded", self.chunks_decoded.clone());
        registry.register("w4dx_inflight_bytes", "Bytes that requests under way hold", self.inflight_bytes.clone());
        if let Some(datasets) = &self.datasets {
            let help = "Chunks found in the cache and not found in it, by dataset";
            registry.register("w4dx_dataset_chunks", help, datasets.chunks());
        }
    }
}

/// What is counted and measured of the ranged reads of one configured store.
#[derive(Debug, Clone)]
pub struct ReadMeter {
    gap_bytes: Gauge,
    latency_seconds: RealGauge,
    bandwidth_bytes: RealGauge,
    hedges: Counter,
    retries: Counter,
    throttled: Counter,
}

impl ReadMeter {
    /// Holes of so many bytes are read through now.
    pub fn gap(&self, bytes: u64) {
        self.gap_bytes.set(i64::try_from(bytes).unwrap_or(i64::MAX));
    }

    /// The store was measured.
    pub fn measured(&self, latency: Duration, bytes_per_second: f64) {
        self.latency_seconds.set(latency.as_secs_f64());
        self.bandwidth_bytes.set(bytes_per_second);
    }

    /// A second read was sent because the first was slow.
    pub fn hedged(&self) {
        self.hedges.inc();
    }

    /// A read was sent again after a failure.
    pub fn retried(&self) {
        self.retries.inc();
    }

    /// The store refused a read, or did not answer it in time.
    pub fn throttled(&self) {
        self.throttled.inc();
    }
}

/// The counters of one bucket's store.
#[derive(Debug, Clone)]
pub struct StoreMeter {
    get: Counter,
    head: Counter,
    list: Counter,
    put: Counter,
    delete: Counter,
    bytes: Counter,
    metrics: Metrics,
    bucket: Arc<str>,
}

impl StoreMeter {
    /// A request went to the store.
    pub fn requested(&self, operation: StoreOperation) {
        match operation {
            StoreOperation::Get => &self.get,
            StoreOperation::Head => &self.head,
            StoreOperation::List => &self.list,
            StoreOperation::Put => &self.put,
            StoreOperation::Delete => &self.delete,
        }
        .inc();
    }

    /// Bytes came from the store.
    pub fn read(&self, bytes: u64) {
        self.bytes.inc_by(bytes);
    }

    /// The store failed; `kind` is from a closed list.
    pub fn failed(&self, kind: &'static str) {
        let labels = StoreErrorLabels { bucket: self.bucket.clone(), kind };
        self.metrics.0.store_errors.get_or_create(&labels).inc();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_end_in_total_once() {
        let metrics = Metrics::new();
        metrics.request_finished(RequestKind::Slice, 200, Duration::from_millis(3));
        metrics.store_meter("b").requested(StoreOperation::Get);
        metrics.store_meter("b").failed("denied");
        metrics.client_bytes_sent(7);
        metrics.cache_holds(5);
        let text = metrics.encode();
        for line in [
            "w4dx_requests_total{kind=\"slice\",status=\"200\"} 1",
            "w4dx_request_seconds_count{kind=\"slice\"} 1",
            "w4dx_request_seconds_bucket{le=\"0.005\",kind=\"slice\"} 1",
            "w4dx_client_bytes_total 7",
            "w4dx_store_requests_total{bucket=\"b\",op=\"get\"} 1",
            "w4dx_store_requests_total{bucket=\"b\",op=\"delete\"} 0",
            "w4dx_store_errors_total{bucket=\"b\",kind=\"denied\"} 1",
            "w4dx_cache_hits_total 0",
            "w4dx_cache_bytes 5",
            "w4dx_inflight_bytes 0",
            "# EOF",
        ] {
            assert!(text.contains(line), "{line}\nin\n{text}");
        }
        assert!(!text.contains("_total_total"));
    }
}
