//! A slice, from its target to its answer: one call a stage.

use std::sync::Arc;
use std::time::Instant;

use ::http::header;
use ::http::{HeaderMap, Method, Response};
use bytes::Bytes;

use super::coordinates::Finder;
use super::dry::{self, Part};
use super::error::{self, Problem};
use super::gateway::Gateway;
use super::headers;
use super::responder::Responder;
use super::selected::Selected;
use super::target::{self, Target};
use super::{Body, SliceRequest, describe, full, set_kind};
use crate::dataset::Snapshot;
use crate::metrics::RequestKind;
use crate::model::{Details, ErrorKind, Piece};
use crate::query::What;

/// Answers a request about an array. Failures are answers too.
pub async fn answer(gateway: Arc<Gateway>, request: SliceRequest) -> Response<Body> {
    let request = Arc::new(request);
    match respond(&gateway, &request).await {
        Ok(response) => response,
        Err(problem) => failure(&request, &problem),
    }
}

/// The answer to a request that failed.
pub(super) fn failure(asked: &SliceRequest, problem: &Problem) -> Response<Body> {
    if error::status(problem.kind).is_server_error() {
        tracing::warn!(request_id = %asked.request_id, code = problem.kind.code(), cause = %problem.cause, "slice failed");
    }
    let problem_json = error::accepts_problem_json(&asked.headers);
    let resource = format!("/{}/{}", asked.bucket, asked.key);
    let mut response = error::render(problem, problem_json, &resource, &asked.request_id);
    if let Some(len) = problem.details.valid.as_deref().filter(|_| problem.kind == ErrorKind::InvalidRange) {
        headers::set(response.headers_mut(), "content-range", &format!("bytes */{len}"));
    }
    if asked.method == Method::HEAD {
        *response.body_mut() = full(Bytes::new());
    }
    response
}

/// What a request goes by: nothing that earlier requests learned when it is planned anew, or asks so.
pub(super) fn snapshot(asked: &SliceRequest, replanned: bool) -> Arc<Snapshot> {
    let revalidate = replanned || wants_revalidation(&asked.headers);
    Arc::new(if revalidate { Snapshot::revalidating() } else { Snapshot::new() })
}

/// The stages of a request: authorised target, opened array, selection, version, bytes.
async fn respond(gateway: &Arc<Gateway>, asked: &Arc<SliceRequest>) -> Result<Response<Body>, Problem> {
    let target = target::authorise(gateway, asked).inspect_err(|_| set_kind(RequestKind::Slice))?;
    if target.request.batch.is_some() {
        let details = Details { parameter: Some("batch".into()), valid: Some("POST".into()), ..Details::default() };
        return Err(Problem::new(ErrorKind::InvalidParameter, "batch: a batch is sent by POST").at(details));
    }
    let mut replanned = false;
    loop {
        let snapshot = snapshot(asked, replanned);
        let attempt = match target.request.what {
            What::Describe => {
                set_kind(RequestKind::Describe);
                describe::describe(gateway, asked, &target, &snapshot).await
            }
            What::Explain => {
                set_kind(RequestKind::Explain);
                explain(gateway, asked, &target, &snapshot).await
            }
            What::Prefetch => {
                set_kind(RequestKind::Prefetch);
                prefetch(gateway, asked, &target, &snapshot).await
            }
            What::Slice => {
                set_kind(RequestKind::Slice);
                slice(gateway, asked, &target, &snapshot).await
            }
        };
        match attempt {
            // An object changed between its index and its chunk: once, the whole plan is made anew.
            Err(problem) if problem.kind == ErrorKind::ArrayChanged && !replanned => {
                replanned = true;
            }
            answer => return answer,
        }
    }
}

async fn slice(
    gateway: &Arc<Gateway>,
    asked: &Arc<SliceRequest>,
    target: &Target,
    snapshot: &Arc<Snapshot>,
) -> Result<Response<Body>, Problem> {
    let started = Instant::now();
    let selected = select(&Finder::new(gateway, asked, snapshot), target).await?;
    let path = Arc::clone(&selected.array.path);
    let about = |problem: Problem| problem.about(&path);
    let versioned = selected.version(gateway, asked, snapshot).await.map_err(about)?;
    let located = started.elapsed();
    let respond = Responder { gateway, asked, selected: Arc::new(selected), snapshot, versioned, located };
    respond.answer().await.map_err(about)
}

/// The selection, tied to its array.
async fn select(finder: &Finder<'_>, target: &Target) -> Result<Selected, Problem> {
    let &Finder { gateway, asked, snapshot, .. } = finder;
    let array = target::array(gateway, asked, target, snapshot).await?;
    let path = Arc::clone(&array.path);
    let about = |problem: Problem| problem.about(&path);
    let found = finder.positions(&array, &target.request.selection).await.map_err(about)?;
    Selected::new(gateway, asked, &target.request, array, &found).map_err(about)
}

/// The plan of a slice as JSON. Reads indexes, never chunk data.
async fn explain(
    gateway: &Gateway,
    asked: &SliceRequest,
    target: &Target,
    snapshot: &Snapshot,
) -> Result<Response<Body>, Problem> {
    let finder = Finder::new(gateway, asked, snapshot);
    let selected = select(&finder, target).await?;
    let about = |problem: Problem| problem.about(&selected.array.path);
    let pieces = selected.all_pieces(gateway);
    let mut body = dry::plan_of(gateway, snapshot, &parts(&selected, &pieces)).await.map_err(about)?;
    let meta = &selected.array.meta;
    if let Some(body) = body.as_object_mut() {
        body.insert("v".into(), 1.into());
        body.insert("array".into(), (*selected.array.path).into());
        body.insert("format".into(), selected.format.name().into());
        body.insert("body_bytes".into(), selected.body_len.into());
        body.insert(
            "selection".into(),
            serde_json::json!({
                "shape": selected.shape, "dims": selected.dims, "dtype": meta.dtype.name(),
                "slice": selected.slab.text(), "coordinates": finder.told(&selected.array),
            }),
        );
    }
    Ok(describe::json(&body, None, asked))
}

/// The chunks of a slice into the cache, band by band.
async fn prefetch(
    gateway: &Gateway,
    asked: &SliceRequest,
    target: &Target,
    snapshot: &Snapshot,
) -> Result<Response<Body>, Problem> {
    let selected = select(&Finder::new(gateway, asked, snapshot), target).await?;
    let about = |problem: Problem| problem.about(&selected.array.path);
    let pieces = selected.all_pieces(gateway);
    dry::prefetch(gateway, asked, snapshot, &parts(&selected, &pieces)).await.map_err(about)
}

/// Pieces of a selection, each read by itself.
fn parts<'a>(selected: &'a Selected, pieces: &'a [Piece]) -> Vec<Part<'a>> {
    if pieces.is_empty() {
        return vec![Part { array: &selected.array, slab: &selected.slab, window: 0 }];
    }
    let pieces = pieces.iter().enumerate();
    pieces.map(|(window, piece)| Part { array: &selected.array, slab: &piece.slab, window }).collect()
}

/// `Cache-Control: no-cache` asks for versions to be looked up, whatever the freshness.
fn wants_revalidation(headers: &HeaderMap) -> bool {
    let values = headers.get_all(header::CACHE_CONTROL);
    values
        .iter()
        .filter_map(|value| value.to_str().ok())
        .any(|value| value.split(',').any(|directive| directive.trim().eq_ignore_ascii_case("no-cache")))
}
