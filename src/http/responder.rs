//! The answer to a resolved and versioned slice: conditions, Range, headers, body.

use std::sync::Arc;
use std::time::Duration;

use ::http::header::{self, HeaderValue};
use ::http::{HeaderMap, Method, Response, StatusCode};
use bytes::Bytes;

use super::bands::{SliceBands, fetch};
use super::byte_range::Asked;
use super::conditions::{Conditions, Verdict};
use super::contents::{Contents, Version};
use super::error::Problem;
use super::gateway::Gateway;
use super::headers;
use super::selected::Etag;
use super::{Body, SliceRequest, full};
use crate::dataset::Snapshot;
use crate::fetch::Reservation;
use crate::format::Storage;
use crate::model::{ChunkData, Details, ErrorKind};
use crate::tensor::Tensor;
use crate::wire;

/// Everything that writing the answer needs.
pub(super) struct Responder<'a> {
    pub(super) gateway: &'a Arc<Gateway>,
    pub(super) asked: &'a Arc<SliceRequest>,
    pub(super) contents: Arc<Contents>,
    pub(super) snapshot: &'a Arc<Snapshot>,
    pub(super) version: Version,
    /// How long it took to know what is where.
    pub(super) located: Duration,
}

impl Responder<'_> {
    pub(super) async fn answer(mut self) -> Result<Response<Body>, Problem> {
        let conditions = Conditions::of(&self.asked.headers);
        // The date of one file is its version too; that of many objects is not.
        let dated = self.contents.single().is_some_and(|one| matches!(one.array.meta.storage, Storage::Dense { .. }));
        let conditions = if dated { conditions } else { conditions.without_dates() };
        let known = self.version.etag.known();
        match conditions.judge(known, self.version.last_modified) {
            Verdict::Failed => {
                return Err(Problem::new(ErrorKind::PreconditionFailed, "the slice has another version"));
            }
            Verdict::NotModified => return Ok(self.finish(StatusCode::NOT_MODIFIED, full(Bytes::new()), None)),
            Verdict::Proceed => {}
        }
        let ranged = conditions.range_applies(known, self.version.last_modified);
        let asked_range = ranged.then(|| range_header(&self.asked.headers)).flatten();
        let whole = self.contents.made.is_some() || !self.contents.format.streams();
        if whole { self.whole(asked_range).await } else { self.stream(asked_range).await }
    }

    /// A body of known length: bands, each read when the one before has left.
    async fn stream(&mut self, asked_range: Option<Asked>) -> Result<Response<Body>, Problem> {
        let len = self.contents.body_len.unwrap_or(0);
        let (status, range) = satisfy(asked_range, len)?;
        if self.asked.method == Method::HEAD {
            return Ok(self.finish(status, full(Bytes::new()), Some((&range, len))));
        }
        let found = std::mem::take(&mut self.version.found);
        let source = SliceBands {
            gateway: Arc::clone(self.gateway),
            asked: Arc::clone(self.asked),
            contents: Arc::clone(&self.contents),
            snapshot: Arc::clone(self.snapshot),
            bytes: range.clone(),
        };
        let mut bands = source.bands(found);
        // What fails before the headers leave has a status of its own.
        let first = bands.first().await?;
        if matches!(self.version.etag, Etag::Learned) {
            self.version = self.contents.known_version(self.gateway, self.snapshot).await?;
        }
        let body = match first {
            None => full(Bytes::new()),
            Some(first) => bands.into_body(first),
        };
        Ok(self.finish(status, body, Some((&range, len))))
    }

    /// A body that is built whole before its length is known.
    async fn whole(&mut self, asked_range: Option<Asked>) -> Result<Response<Body>, Problem> {
        let kept = self.version.etag.known().and_then(|etag| self.gateway.bodies.get(etag));
        let body = match kept {
            Some(body) => body,
            None => {
                let (tensor, reservation) = self.tensor().await?;
                let contents = Arc::clone(&self.contents);
                let encode = move || {
                    let (name, dims) = match (&contents.made, &contents.parts[..]) {
                        (Some(made), _) => (made.description().name.to_owned(), made.dims.clone()),
                        (None, [one, ..]) => (one.selected.array.name.clone(), one.selected.dims.clone()),
                        (None, []) => Default::default(),
                    };
                    let body = wire::encode(contents.format, &name, &tensor, &dims);
                    drop(reservation);
                    body
                };
                Bytes::from(self.gateway.fetcher.pool().run(encode).await??)
            }
        };
        if matches!(self.version.etag, Etag::Learned) {
            self.version = self.contents.known_version(self.gateway, self.snapshot).await?;
        }
        if let Some(etag) = self.version.etag.known() {
            self.gateway.bodies.insert(etag, body.clone());
        }
        let len = body.len() as u64;
        let (status, range) = satisfy(asked_range, len)?;
        let part = body.slice(range.start as usize..range.end as usize);
        let part = if self.asked.method == Method::HEAD { Bytes::new() } else { part };
        Ok(self.finish(status, full(part), Some((&range, len))))
    }

    /// All elements of the one selection that such a body holds, with the memory that they were promised.
    async fn tensor(&mut self) -> Result<(Tensor, Reservation), Problem> {
        let (gateway, principal) = (self.gateway, &self.asked.principal);
        if let Some(made) = &self.contents.made {
            let bytes = match &made.tensor.data {
                ChunkData::Fixed(bytes) => bytes.len() as u64,
                ChunkData::Variable(_) => 0,
            };
            return Ok((made.tensor.clone(), gateway.fetcher.reserve(principal.name(), bytes).await?));
        }
        let selected = &self.contents.parts[0].selected;
        let mut pieces = selected.all_pieces(gateway).into_iter();
        let (first, second) = (pieces.next(), pieces.next());
        let Some(second) = second else {
            let found = self.version.found.first_mut().and_then(Option::take);
            let slab = first.as_ref().map_or(&selected.slab, |piece| &piece.slab);
            let found = found.filter(|_| *slab == selected.slab);
            let fetched = fetch(gateway, principal, selected, self.snapshot, slab, found).await?;
            return Ok((fetched.tensor, fetched.reservation));
        };
        let reservation = gateway.fetcher.reserve(principal.name(), selected.bytes()).await?;
        let (mut fixed, mut variable) = (Vec::new(), Vec::new());
        for piece in first.into_iter().chain([second]).chain(pieces) {
            let fetched = fetch(gateway, principal, selected, self.snapshot, &piece.slab, None).await?;
            match fetched.tensor.data {
                ChunkData::Fixed(bytes) => fixed.extend_from_slice(&bytes),
                ChunkData::Variable(values) => variable.extend(values),
            }
        }
        let dtype = selected.array.meta.dtype.clone();
        let is_fixed = dtype.size_bytes().is_some();
        let data = if is_fixed { ChunkData::Fixed(fixed.into()) } else { ChunkData::Variable(variable) };
        Ok((Tensor { shape: selected.shape.clone(), dtype, data }, reservation))
    }

    fn finish(&self, status: StatusCode, body: Body, sent: Option<(&std::ops::Range<u64>, u64)>) -> Response<Body> {
        let mut response = Response::new(body);
        *response.status_mut() = status;
        let out = response.headers_mut();
        // All of ours and the server's at once: a map that grows rehashes what it holds.
        out.reserve(24);
        let age = self.snapshot.oldest().map_or(0, |oldest| oldest.elapsed().as_secs());
        let (contents, version) = (&self.contents, &self.version);
        let array = contents.single().map(|selected| &selected.array);
        headers::describe_version(out, array, version.etag.known(), version.last_modified, age, &self.asked.principal);
        if let Some((range, len)) = sent {
            match contents.elements() {
                Some(elements) => headers::describe_elements(out, &elements),
                None => headers::set(out, "x-w4dx-layout", &headers::ascii(&contents.layout().to_string())),
            }
            out.insert(header::CONTENT_TYPE, HeaderValue::from_static(contents.format.media_type()));
            headers::set(out, "content-length", &(range.end - range.start).to_string());
            if status == StatusCode::PARTIAL_CONTENT {
                let last = range.end.saturating_sub(1);
                headers::set(out, "content-range", &format!("bytes {}-{last}/{len}", range.start));
            }
            let located = self.located.as_secs_f64() * 1e3;
            headers::set(out, "server-timing", &format!("locate;dur={located:.2}"));
        }
        response
    }
}

/// The bytes that a Range header asks for; malformed ones are ignored, as S3 does.
fn range_header(headers: &HeaderMap) -> Option<Asked> {
    headers.get(header::RANGE).and_then(|value| value.to_str().ok()).and_then(Asked::parse)
}

/// The status and the bytes of a body of `len` that are sent.
fn satisfy(asked: Option<Asked>, len: u64) -> Result<(StatusCode, std::ops::Range<u64>), Problem> {
    let Some(asked) = asked else { return Ok((StatusCode::OK, 0..len)) };
    match asked.within(len) {
        // A suffix of an empty body is satisfied, but Content-Range cannot say so.
        Some(range) if range.is_empty() => Ok((StatusCode::OK, 0..len)),
        Some(range) => Ok((StatusCode::PARTIAL_CONTENT, range)),
        None => {
            let mut problem =
                Problem::new(ErrorKind::InvalidRange, format!("the range lies outside the body of {len} bytes"));
            problem.details = Box::new(Details { valid: Some(len.to_string()), ..Details::default() });
            Err(problem)
        }
    }
}
