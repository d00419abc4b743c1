//! Answers that send no elements: the plan of a request, and its chunks brought into the cache.

use std::sync::Arc;

use ::http::Response;
use futures::{StreamExt as _, TryStreamExt as _};
use serde_json::Value;

use super::error::Problem;
use super::gateway::Gateway;
use super::{Body, SliceRequest, bands, describe};
use crate::dataset::{Array, Learning, Snapshot};
use crate::fetch::{FailedJob, Job, OnError, Wants};
use crate::model::{Details, ErrorKind, Hyperslab, shape};
use crate::plan::{self, Explained, ReadPlan};

/// A part of one array that a request is about.
#[derive(Debug, Clone, Copy)]
pub(super) struct Part<'a> {
    /// The array.
    pub(super) array: &'a Array,
    /// Its positions.
    pub(super) slab: &'a Hyperslab,
    /// Parts of one window are read together.
    pub(super) window: usize,
}

/// Parts whose chunks are located at once.
const AT_ONCE: usize = 64;

/// Bytes of decoded chunks that are brought into the cache at once.
const WINDOW_BYTES: u64 = 32 << 20;

/// The plan of parts as JSON. Reads indexes, never chunk data.
pub(super) async fn explain(
    gateway: &Gateway,
    asked: &SliceRequest,
    snapshot: &Snapshot,
    parts: &[Part<'_>],
    items: usize,
) -> Result<Response<Body>, Problem> {
    let mut body = plan_of(gateway, snapshot, parts).await?;
    if let Some(body) = body.as_object_mut() {
        body.insert("v".into(), 1.into());
        body.insert("items".into(), items.into());
    }
    Ok(describe::json(&body, None, asked))
}

/// The plan of parts: as [`plan::explain`] tells it, with the index reads that it took to make.
pub(super) async fn plan_of(gateway: &Gateway, snapshot: &Snapshot, parts: &[Part<'_>]) -> Result<Value, Problem> {
    let plans: Vec<(Job, u64)> = plans(gateway, snapshot, parts, Learning::Before).await?;
    let cached: Vec<Vec<bool>> =
        plans.iter().map(|(job, _)| gateway.fetcher.cached(&job.bucket, &job.array, &job.plan)).collect();
    let settings = gateway.fetcher.settings();
    let explained: Vec<Explained<'_>> = plans
        .iter()
        .zip(cached.iter().zip(parts))
        .map(|((job, _), (cached, part))| Explained {
            window: part.window,
            plan: &job.plan,
            cached,
            codec: job.array.codec.fingerprint(),
            gap_bytes: gateway.fetcher.gap_bytes(&job.bucket),
        })
        .collect();
    let mut arrays: Vec<&Array> = Vec::new();
    for part in parts {
        if !arrays.iter().any(|array| Arc::ptr_eq(&array.meta, &part.array.meta)) {
            arrays.push(part.array);
        }
    }
    let total = arrays.iter().map(|array| {
        let meta = &array.meta;
        let grid: Vec<u64> = meta.shape.iter().zip(meta.chunk_shape()).map(|(n, chunk)| n.div_ceil(*chunk)).collect();
        shape::elements(&grid).unwrap_or(u64::MAX)
    });
    let mut body = plan::explain(&explained, settings.read_bytes, total.fold(0, u64::saturating_add));
    let index_reads: u64 = plans.iter().map(|(_, reads)| reads).sum();
    if let Some(body) = body.as_object_mut() {
        body.insert("index_reads".into(), index_reads.into());
    }
    Ok(body)
}

/// Brings the chunks of parts into the cache, and answers how many there were.
pub(super) async fn prefetch(
    gateway: &Gateway,
    asked: &SliceRequest,
    snapshot: &Snapshot,
    parts: &[Part<'_>],
) -> Result<Response<Body>, Problem> {
    let capacity = gateway.fetcher.cache().capacity_bytes();
    let decoded = |part: &Part<'_>| plan::decoded_at_most(&part.array.meta, part.slab);
    // Chunks that parts share count for each: how many are distinct is not known before they are planned.
    let total = parts.iter().map(decoded).fold(0, u64::saturating_add);
    if total > capacity {
        return Err(too_much(total, capacity));
    }
    let mut told = Prefetched::default();
    let mut rest = parts;
    while !rest.is_empty() {
        let mut bytes = 0_u64;
        let fits = |part: &&Part<'_>| {
            bytes = bytes.saturating_add(decoded(part));
            bytes <= WINDOW_BYTES
        };
        let taken = rest.iter().take(AT_ONCE).take_while(fits).count().max(1);
        let (window, after) = rest.split_at(taken);
        told.add(gateway, asked, snapshot, window).await?;
        rest = after;
    }
    let body = serde_json::json!({
        "v": 1, "chunks": told.chunks, "absent": told.absent, "cached": told.cached, "fetched": told.fetched,
        "bytes": told.bytes,
    });
    Ok(describe::json(&body, None, asked))
}

/// What a warm-up did. A chunk that several parts touch counts for each.
#[derive(Debug, Default)]
struct Prefetched {
    chunks: u64,
    absent: u64,
    cached: u64,
    fetched: u64,
    bytes: u64,
}

impl Prefetched {
    async fn add(
        &mut self,
        gateway: &Gateway,
        asked: &SliceRequest,
        snapshot: &Snapshot,
        parts: &[Part<'_>],
    ) -> Result<(), Problem> {
        let jobs: Vec<Job> =
            plans(gateway, snapshot, parts, Learning::OnRead).await?.into_iter().map(|p| p.0).collect();
        for job in &jobs {
            let cached = gateway.fetcher.cached(&job.bucket, &job.array, &job.plan);
            let hits = cached.iter().filter(|cached| **cached).count() as u64;
            let absent = job.plan.chunks.iter().filter(|chunk| chunk.extent.is_none()).count() as u64;
            self.chunks += job.plan.chunks.len() as u64;
            self.absent += absent;
            self.cached += hits;
            self.fetched += job.plan.chunks.len() as u64 - absent - hits;
        }
        let wants = Wants::of(&jobs);
        // Held to the end: what is being read counts as memory in flight.
        let _reservation = gateway.fetcher.reserve(asked.principal.name(), wants.memory_bytes(&jobs)).await?;
        let moment = gateway.datasets.moment();
        let gathered = gateway.fetcher.gather(&jobs, wants, OnError::Fail).await;
        let gathered = gathered.map_err(|FailedJob { job, error }| {
            bands::forget_changed(gateway, &jobs[job].bucket, &error);
            Problem::from(error).about(&jobs[job].path)
        })?;
        for (job, gathered) in jobs.iter().zip(gathered) {
            let gathered = gathered?;
            bands::learn(gateway, &job.bucket, &job.plan, &gathered.learned, moment, snapshot)?;
            let decoded = job.array.chunk_bytes().unwrap_or(64 << 10);
            self.bytes += gathered.present() as u64 * decoded;
        }
        Ok(())
    }
}

fn too_much(bytes: u64, capacity: u64) -> Problem {
    let message = match capacity {
        0 => "this gateway keeps no chunks (`cache_bytes` is 0)".to_owned(),
        _ => format!("the chunks take up to {bytes} bytes decoded, the cache holds {capacity}"),
    };
    let details = Details { valid: Some(format!("at most {capacity} bytes")), ..Details::default() };
    Problem::new(ErrorKind::SliceTooLarge, message).at(details)
}

/// A job for each part, with the index reads that it took.
async fn plans(
    gateway: &Gateway,
    snapshot: &Snapshot,
    parts: &[Part<'_>],
    learning: Learning,
) -> Result<Vec<(Job, u64)>, Problem> {
    let jobs = parts.iter().map(|part| async move {
        let Part { array, slab, .. } = part;
        let about = |problem: Problem| problem.about(&array.path);
        let survey = plan::survey(&array.meta, slab, &gateway.limits).map_err(|error| about(error.into()))?;
        let found = gateway.datasets.locate(array, &survey, learning, snapshot).await.map_err(|e| about(e.into()))?;
        let plan = ReadPlan::new(&array.meta, &array.path, survey, found.facts, found.located, None);
        let plan = plan.map_err(|error| about(error.into()))?;
        let job = Job {
            bucket: array.bucket.clone(),
            path: Arc::clone(&array.path),
            array: Arc::clone(&array.meta),
            plan: Arc::new(plan),
            scan: false,
        };
        Ok::<_, Problem>((job, found.index_reads))
    });
    let jobs: Vec<_> = jobs.collect();
    futures::stream::iter(jobs).buffered(AT_ONCE).try_collect().await
}
