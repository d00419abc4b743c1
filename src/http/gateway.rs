//! The state that all requests share.

use std::sync::Arc;
use std::time::Duration;

use crate::auth::Policy;
use crate::cache::{BodyCache, ChunkCache, ParsedCache, RecentBytes};
use crate::coords::{Listed, Offsets};
use crate::dataset::Datasets;
use crate::fetch::{Budget, DecodePool, Fetcher, FetcherSettings};
use crate::metrics::Metrics;
use crate::plan::Limits;
use crate::store::Buckets;

/// Of a cache, the bytes for stored bytes that were read last: enough for the clips that a few loaders are at, and a small
/// part of a large cache. `benches/encoded_tier.rs` tells what other shares do.
fn recent_bytes(cache_bytes: u64) -> u64 {
    const FEW_READS: u64 = 16 << 20;
    (cache_bytes / 32).max(FEW_READS.min(cache_bytes / 8))
}

/// What a gateway is made with, beside buckets and keys.
#[derive(Debug, Clone)]
pub struct GatewaySettings {
    /// What one request may ask for.
    pub limits: Limits,
    /// Elements of a JSON answer.
    pub json_elements: u64,
    /// Selections of a batch, over all its fields.
    pub batch_items: usize,
    /// Bytes of one upload.
    pub upload_bytes: u64,
    /// Bytes of chunks kept: decoded ones, and a little of what was read last as it is stored.
    pub cache_bytes: u64,
    /// Bytes of shard indexes kept.
    pub index_cache_bytes: u64,
    /// Bytes that all requests together may hold while they are answered.
    pub inflight_bytes: u64,
    /// How long a request waits for its part of these.
    pub patience: Duration,
    /// Threads that decode.
    pub decode_threads: usize,
    /// How plans are run.
    pub fetch: FetcherSettings,
}

impl Default for GatewaySettings {
    fn default() -> Self {
        Self {
            limits: Limits { result_bytes: 64 << 30, chunks: 1_000_000, chunk_bytes: 512 << 20 },
            json_elements: 1_000_000,
            batch_items: 100_000,
            upload_bytes: 5 << 30,
            cache_bytes: 1 << 30,
            index_cache_bytes: 128 << 20,
            inflight_bytes: 1 << 30,
            patience: Duration::from_secs(20),
            decode_threads: std::thread::available_parallelism().map_or(2, std::num::NonZero::get),
            fetch: FetcherSettings {
                gap_bytes: None,
                read_bytes: 16 << 20,
                store_concurrency: 64,
                read_time: Duration::from_secs(120),
            },
        }
    }
}

/// The gateway: buckets, rights, and what is known of arrays.
#[derive(Debug)]
pub struct Gateway {
    /// The buckets.
    pub buckets: Buckets,
    /// Who may do what.
    pub policy: Policy,
    /// What is counted.
    pub metrics: Metrics,
    /// Opened arrays and versions.
    pub datasets: Datasets,
    /// Runs plans.
    pub fetcher: Fetcher,
    /// What one request may ask for.
    pub limits: Limits,
    /// Elements of a JSON answer.
    pub json_elements: u64,
    /// Selections of a batch, over all its fields.
    pub batch_items: usize,
    /// Bytes of decoded chunks that are held at once for a part of an answer: an answer of few bytes from many large
    /// chunks is made in more parts.
    pub part_bytes: u64,
    /// Bytes of one upload.
    pub upload_bytes: u64,
    /// Bodies built whole, kept briefly.
    pub bodies: BodyCache,
    /// Coordinate arrays.
    pub coordinates: ParsedCache<Listed>,
    /// Where the samples of ragged arrays lie.
    pub offsets: ParsedCache<Offsets>,
}

impl Gateway {
    /// A gateway in front of `buckets`.
    ///
    /// # Errors
    /// When the operating system gives no threads.
    pub fn new(
        buckets: Buckets,
        policy: Policy,
        metrics: Metrics,
        settings: &GatewaySettings,
    ) -> std::io::Result<Arc<Self>> {
        let recent_bytes = recent_bytes(settings.cache_bytes);
        let cache = ChunkCache::new(settings.cache_bytes - recent_bytes, metrics.clone());
        let recent = RecentBytes::new(recent_bytes, metrics.clone());
        let pool = DecodePool::new(settings.decode_threads)?;
        let budget = Budget::new(settings.inflight_bytes, settings.patience, metrics.clone());
        Ok(Arc::new(Self {
            buckets,
            policy,
            datasets: Datasets::new(settings.index_cache_bytes),
            fetcher: Fetcher::new(cache, recent, pool, budget, settings.fetch, metrics.clone()),
            metrics,
            limits: settings.limits,
            json_elements: settings.json_elements,
            batch_items: settings.batch_items,
            // Two parts of a streaming answer are held at once, and other requests have their turn.
            part_bytes: settings.inflight_bytes / 4,
            upload_bytes: settings.upload_bytes,
            bodies: BodyCache::new(),
            coordinates: ParsedCache::new(),
            offsets: ParsedCache::new(),
        }))
    }

    /// Forgets what is known of an object, because it was written or removed through this gateway.
    pub fn invalidate(&self, bucket: &str, key: &str) {
        self.datasets.invalidate(&bucket.into(), key);
        self.fetcher.invalidate(bucket, key);
    }
}
