//! Many slices in one request, from its body to its answer: one call a stage.

mod fields;
mod sent;

use std::sync::Arc;

use ::http::header::{self, HeaderValue};
use ::http::{HeaderMap, Response, StatusCode};
use bytes::Bytes;

use self::fields::Fields;
use self::sent::BatchBands;
use super::error::Problem;
use super::gateway::Gateway;
use super::target::{self, Target};
use super::{Body, SliceRequest, dry, full, headers, set_kind, slice};
use crate::auth::Principal;
use crate::dataset::Snapshot;
use crate::metrics::RequestKind;
use crate::model::{Details, ErrorKind};
use crate::query::{Batch, BatchOptions, Request, What};
use crate::wire::batch::{FRAMED, STACKED};

/// Answers a batch. Failures are answers too.
pub async fn answer(gateway: Arc<Gateway>, asked: SliceRequest, body: Bytes) -> Response<Body> {
    set_kind(RequestKind::Batch);
    let asked = Arc::new(asked);
    match respond(&gateway, &asked, &body).await {
        Ok(response) => response,
        Err(problem) => slice::failure(&asked, &problem),
    }
}

/// A parsed batch: an authorised target for each field.
struct Parsed {
    what: What,
    options: BatchOptions,
    batch: Batch,
    targets: Vec<Target>,
}

async fn respond(gateway: &Arc<Gateway>, asked: &Arc<SliceRequest>, body: &[u8]) -> Result<Response<Body>, Problem> {
    let parsed = parse(gateway, asked, body)?;
    let mut replanned = false;
    loop {
        let snapshot = slice::snapshot(asked, replanned);
        match attempt(gateway, asked, &parsed, &snapshot).await {
            // An object changed between its index and its chunk: once, the whole plan is made anew.
            Err(problem) if problem.kind == ErrorKind::ArrayChanged && !replanned => replanned = true,
            answer => return answer,
        }
    }
}

/// Checks rights on every field's array, then parameters and body.
fn parse(gateway: &Gateway, asked: &SliceRequest, body: &[u8]) -> Result<Parsed, Problem> {
    let in_key_form = gateway.buckets.resolve(&asked.bucket).is_none_or(|bucket| bucket.in_key_form);
    let read = || -> Result<(Request, BatchOptions, Batch), Problem> {
        let request = Request::parse(&asked.key, &asked.pairs, in_key_form)?;
        let options = request.batch.ok_or_else(|| Problem::new(ErrorKind::InvalidParameter, "POST needs `batch`"))?;
        let batch = Batch::parse(body, &request.selection, gateway.batch_items)?;
        Ok((request, options, batch))
    };
    let (request, options, batch) = match read() {
        Ok(read) => read,
        // Whoever has no rights here is told so, and nothing else.
        Err(problem) => return target::authorised(gateway, asked, Err(problem)).and_then(|_| Err(lost())),
    };
    let targets = batch.fields.iter().map(|field| {
        let request = match &field.name {
            None => Ok(request.clone()),
            Some(name) => request.for_field(name).map_err(Problem::from),
        };
        target::authorised(gateway, asked, request).map_err(|problem| problem.in_field(field.name.as_deref()))
    });
    let targets = targets.collect::<Result<_, _>>()?;
    Ok(Parsed { what: request.what, options, batch, targets })
}

/// A refused request is never authorised: [`target::authorised`] hands back the problem that it was given.
fn lost() -> Problem {
    Problem::new(ErrorKind::Internal, "the request's fault was lost")
}

async fn attempt(
    gateway: &Arc<Gateway>,
    asked: &Arc<SliceRequest>,
    parsed: &Parsed,
    snapshot: &Arc<Snapshot>,
) -> Result<Response<Body>, Problem> {
    let fields = Fields::open(gateway, asked, &parsed.targets, &parsed.batch, parsed.options, snapshot).await?;
    match parsed.what {
        What::Explain => {
            set_kind(RequestKind::Explain);
            dry::explain(gateway, asked, snapshot, &fields.parts(gateway.part_bytes), fields.items).await
        }
        What::Prefetch => {
            set_kind(RequestKind::Prefetch);
            dry::prefetch(gateway, asked, snapshot, &fields.parts(gateway.part_bytes)).await
        }
        What::Slice | What::Describe => send(gateway, asked, fields, snapshot).await,
    }
}

async fn send(
    gateway: &Arc<Gateway>,
    asked: &Arc<SliceRequest>,
    fields: Fields,
    snapshot: &Arc<Snapshot>,
) -> Result<Response<Body>, Problem> {
    let layout = fields.layout().to_string();
    let len = fields.body_len();
    let windows = fields.windows(gateway.part_bytes);
    let source = BatchBands::new(gateway, asked, fields, snapshot);
    let mut bands = source.bands(windows);
    // What fails before the headers leave has a status of its own.
    let first = bands.first().await?;
    let body = first.map_or_else(|| full(Bytes::new()), |first| bands.into_body(first));
    let mut response = Response::new(body);
    *response.status_mut() = StatusCode::OK;
    describe(response.headers_mut(), &layout, len, &asked.principal)?;
    Ok(response)
}

/// Headers of a batch answer. There is no ETag: a POST is not cached.
fn describe(out: &mut HeaderMap, layout: &str, len: Option<u64>, principal: &Principal) -> Result<(), Problem> {
    /// Longest header that common clients take.
    const LAYOUT_BYTES: usize = 60 << 10;
    let layout = headers::ascii(layout);
    if layout.len() > LAYOUT_BYTES {
        let problem = Problem::new(ErrorKind::SliceTooLarge, "the description of so many fields fits no header");
        return Err(problem.at(Details { valid: Some("fewer fields".into()), ..Details::default() }));
    }
    headers::set(out, "x-w4dx-layout", &layout);
    out.insert(header::CONTENT_TYPE, HeaderValue::from_static(if len.is_some() { STACKED } else { FRAMED }));
    if let Some(len) = len {
        headers::set(out, "content-length", &len.to_string());
    }
    out.insert(header::VARY, HeaderValue::from_static("Accept, Origin"));
    if matches!(principal, Principal::Key(_)) {
        out.insert(header::CACHE_CONTROL, HeaderValue::from_static("private"));
    }
    Ok(())
}
