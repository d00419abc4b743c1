//! A slice, from its target to its answer: one call a stage.

use std::sync::Arc;
use std::time::Instant;

use ::http::header;
use ::http::{HeaderMap, Method, Response};
use bytes::Bytes;

use super::contents::{Contents, PartPiece};
use super::coordinates::Finder;
use super::dry::{self, Part};
use super::elements::Taken;
use super::error::{self, Problem};
use super::gateway::Gateway;
use super::headers;
use super::made::Made;
use super::responder::Responder;
use super::samples::{Resolved, check_pad};
use super::selected::Selected;
use super::target::{self, Target, Targets};
use super::{Body, SliceRequest, describe, full, set_kind};
use crate::dataset::{Array, Snapshot};
use crate::filter::FilterError;
use crate::metrics::RequestKind;
use crate::model::{Details, ErrorKind};
use crate::plan;
use crate::query::{Predicate, Request, Select, What};

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
    let targets = target::authorise(gateway, asked).inspect_err(|_| set_kind(RequestKind::Slice))?;
    let request = targets.request().ok_or_else(|| Problem::new(ErrorKind::Internal, "a request about nothing"))?;
    if request.batch.is_some() {
        let details = Details { parameter: Some("batch".into()), valid: Some("POST".into()), ..Details::default() };
        return Err(Problem::new(ErrorKind::InvalidParameter, "batch: a batch is sent by POST").at(details));
    }
    let mut replanned = false;
    loop {
        let snapshot = snapshot(asked, replanned);
        let attempt = match (request.what, &targets) {
            (What::Describe, Targets::One(target)) => {
                set_kind(RequestKind::Describe);
                describe::describe(gateway, asked, target, &snapshot).await
            }
            (What::Explain, _) => {
                set_kind(RequestKind::Explain);
                explain(gateway, asked, &targets, &snapshot).await
            }
            (What::Prefetch, _) => {
                set_kind(RequestKind::Prefetch);
                prefetch(gateway, asked, &targets, &snapshot).await
            }
            (What::Slice | What::Describe, _) => {
                set_kind(RequestKind::Slice);
                slice(gateway, asked, &targets, &snapshot).await
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
    targets: &Targets,
    snapshot: &Arc<Snapshot>,
) -> Result<Response<Body>, Problem> {
    let started = Instant::now();
    let contents = select(&Finder::new(gateway, asked, snapshot), targets).await?;
    let path = contents.single().map(|selected| Arc::clone(&selected.array.path));
    let about = |problem: Problem| match &path {
        Some(path) => problem.about(path),
        None => problem,
    };
    let version = contents.version(gateway, asked, snapshot).await.map_err(about)?;
    let located = started.elapsed();
    let respond = Responder { gateway, asked, contents: Arc::new(contents), snapshot, version, located };
    respond.answer().await.map_err(about)
}

/// The selection, tied to its array; or one of several fields, each tied to its own.
async fn select(finder: &Finder<'_>, targets: &Targets) -> Result<Contents, Problem> {
    let &Finder { gateway, asked, snapshot, .. } = finder;
    match targets {
        Targets::One(target) => {
            let array = target::array(gateway, asked, target, snapshot).await?;
            let path = Arc::clone(&array.path);
            let about = |problem: Problem| problem.about(&path);
            let request = &target.request;
            let (pad, predicate) = (request.pad.as_ref().map(|(to, _)| *to), request.filter.as_ref());
            let resolved = finder.resolve(&array, &request.selection, pad, predicate).await.map_err(about)?;
            check_pad(pad, resolved.samples.is_some())?;
            filtered(finder, request, array, &resolved).await.map_err(about)
        }
        Targets::Fields(fields) => {
            let arrays = fields.iter().map(|(name, target)| async move {
                let array = target::array(gateway, asked, target, snapshot).await;
                array.map(|array| (name.as_str(), array)).map_err(|problem| problem.in_field(Some(name)))
            });
            let arrays = futures::future::try_join_all(arrays).await?;
            let Some((_, Target { request, .. })) = fields.first() else {
                return Err(Problem::new(ErrorKind::Internal, "a request about no field"));
            };
            let of: Vec<_> = arrays.iter().map(|(name, array)| (*name, array)).collect();
            let pad = request.pad.as_ref().map(|(to, _)| *to);
            let predicate = request.filter.as_ref();
            if let Some(Predicate { select: select @ (Select::Mask | Select::Indices), .. }) = predicate {
                let what =
                    format!("select={} of several fields", if *select == Select::Mask { "mask" } else { "indices" });
                return Err(FilterError::Unsupported { what }.into());
            }
            let aligned = finder.aligned(&of, &request.selection, pad, predicate).await?;
            check_pad(pad, aligned.iter().any(|resolved| resolved.samples.is_some()))?;
            let mut parts = Vec::with_capacity(arrays.len());
            for ((name, array), resolved) in arrays.into_iter().zip(aligned) {
                let path = Arc::clone(&array.path);
                let selected = Selected::new(gateway, request, &resolved, array);
                let selected = selected.map_err(|problem| problem.about(&path).in_field(Some(name)))?;
                parts.push((name.to_owned(), selected));
            }
            Contents::fields(gateway, asked, request, parts)
        }
    }
}

/// A selection as its predicate narrows it, or what a filter's answer is made of instead.
async fn filtered(
    finder: &Finder<'_>,
    request: &Request,
    array: Array,
    resolved: &Resolved<'_>,
) -> Result<Contents, Problem> {
    let &Finder { gateway, asked, .. } = finder;
    let select = request.filter.as_ref().map_or(Select::Values, |predicate| predicate.select);
    let one = |selected: Selected| Contents::one(gateway, asked, request, selected);
    let Some(narrowed) = &resolved.narrowed else { return one(Selected::new(gateway, request, resolved, array)?) };
    // A plan is that of reading what is left to read.
    if request.what != What::Slice {
        return one(Selected::new(gateway, request, resolved, array)?);
    }
    let slab = resolved.slab(&array)?;
    let made = match (&narrowed.elements, select) {
        (None, Select::Values | Select::Box) => return one(Selected::new(gateway, request, resolved, array)?),
        (None, Select::Mask | Select::Indices) => {
            let before = Resolved { narrowed: None, ..resolved.clone() }.slab(&array)?;
            Made::of_axis(&array, &before, narrowed, select)?
        }
        (Some((filter, properties)), select) => {
            plan::check(&array.meta, &slab, &gateway.limits)?;
            match finder.elements(&array, &slab, filter, properties, select).await? {
                Taken::Box(slab) => return one(Selected::of(gateway, request, slab, None, array)?),
                taken => Made::of_elements(&array, &slab, taken)
                    .ok_or_else(|| Problem::new(ErrorKind::Internal, "a box is a slice"))?,
            }
        }
    };
    request.check_shape(&made.tensor.shape)?;
    Contents::made(gateway, asked, request, made)
}

/// The plan of a slice as JSON. Reads indexes, coordinates and the properties of a filter, and no other chunk.
async fn explain(
    gateway: &Gateway,
    asked: &SliceRequest,
    targets: &Targets,
    snapshot: &Snapshot,
) -> Result<Response<Body>, Problem> {
    let finder = Finder::new(gateway, asked, snapshot);
    let contents = select(&finder, targets).await?;
    let pieces = contents.all_pieces(gateway);
    let mut body = dry::plan_of(gateway, snapshot, &parts(&contents, &pieces)).await?;
    let selection = |selected: &Selected| {
        serde_json::json!({
            "shape": selected.shape, "dims": selected.dims, "dtype": selected.array.meta.dtype.name(),
            "slice": selected.slab.text(), "coordinates": finder.told(&selected.array),
            "samples": finder.told_samples(&selected.array),
        })
    };
    if let Some(body) = body.as_object_mut() {
        body.insert("v".into(), 1.into());
        body.insert("format".into(), contents.format.name().into());
        body.insert("body_bytes".into(), contents.body_len.into());
        if let Some(predicate) = targets.request().and_then(|request| request.filter.as_ref()) {
            body.insert("filter".into(), predicate.filter.to_json());
        }
        match contents.single() {
            Some(selected) => {
                body.insert("array".into(), (*selected.array.path).into());
                body.insert("selection".into(), selection(selected));
            }
            None => {
                let fields = contents.parts.iter().map(|part| {
                    let name = part.name.clone().unwrap_or_default();
                    let mut selection = selection(&part.selected);
                    selection["array"] = (*part.selected.array.path).into();
                    (name, selection)
                });
                body.insert("fields".into(), fields.collect::<serde_json::Map<_, _>>().into());
            }
        }
    }
    Ok(describe::json(&body, None, asked))
}

/// The chunks of a slice into the cache, band by band.
async fn prefetch(
    gateway: &Gateway,
    asked: &SliceRequest,
    targets: &Targets,
    snapshot: &Snapshot,
) -> Result<Response<Body>, Problem> {
    let contents = select(&Finder::new(gateway, asked, snapshot), targets).await?;
    let pieces = contents.all_pieces(gateway);
    dry::prefetch(gateway, asked, snapshot, &parts(&contents, &pieces)).await
}

/// Pieces of a selection, each read by itself.
fn parts<'a>(contents: &'a Contents, pieces: &'a [PartPiece]) -> Vec<Part<'a>> {
    let pieces = pieces.iter().enumerate().map(|(window, PartPiece { part, piece })| {
        let array = &contents.parts[*part].selected.array;
        Part { array, slab: &piece.slab, window }
    });
    let empty = contents.parts.iter().filter(|part| part.selected.slab.elements() == Some(0));
    let empty = empty.map(|part| Part { array: &part.selected.array, slab: &part.selected.slab, window: 0 });
    pieces.chain(empty).collect()
}

/// `Cache-Control: no-cache` asks for versions to be looked up, whatever the freshness.
fn wants_revalidation(headers: &HeaderMap) -> bool {
    let values = headers.get_all(header::CACHE_CONTROL);
    values
        .iter()
        .filter_map(|value| value.to_str().ok())
        .any(|value| value.split(',').any(|directive| directive.trim().eq_ignore_ascii_case("no-cache")))
}
