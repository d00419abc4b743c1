//! A slice, from its target to its answer.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use ::http::header::{self, HeaderValue};
use ::http::{HeaderMap, Method, Response, StatusCode};
use bytes::Bytes;
use futures::StreamExt as _;
use http_body_util::{BodyExt as _, StreamBody};

use super::byte_range::Asked;
use super::conditions::{Conditions, Verdict};
use super::error::{self, Problem};
use super::gateway::Gateway;
use super::headers::{self, Elements};
use super::target::{self, Target};
use super::{Body, SliceRequest, describe, etag, full, set_kind};
use crate::cache::ObjectState;
use crate::dataset::{Array, DatasetError, Learning, Snapshot};
use crate::fetch::{FetchError, Fetched};
use crate::format::{Storage, zarr};
use crate::metrics::RequestKind;
use crate::model::{ChunkData, Details, ErrorKind, Hyperslab, Piece, shape};
use crate::plan::{ObjectFacts, ReadPlan, Survey, survey};
use crate::query::{self, Request, What};
use crate::store::StoreError;
use crate::wire::{self, Description, Format};

/// Bytes of elements that are assembled at once. An answer streams in such bands.
const BAND_BYTES: u64 = 32 << 20;

/// Objects whose versions are looked up for an ETag. Beyond it no ETag is sent, rather than one that can stay equal
/// while data change.
const VERSIONED_OBJECTS: usize = 1000;

/// Answers a request about an array. Failures are answers too.
pub async fn answer(gateway: Arc<Gateway>, request: SliceRequest) -> Response<Body> {
    let problem_json = error::accepts_problem_json(&request.headers);
    let resource = format!("/{}/{}", request.bucket, request.key);
    let request = Arc::new(request);
    match respond(&gateway, &request).await {
        Ok(response) => response,
        Err(problem) => {
            if error::status(problem.kind).is_server_error() {
                tracing::warn!(request_id = %request.request_id, code = problem.kind.code(), cause = %problem.cause, "slice failed");
            }
            let mut response = error::render(&problem, problem_json, &resource, &request.request_id);
            if let Some(len) = problem.details.valid.as_deref().filter(|_| problem.kind == ErrorKind::InvalidRange) {
                headers::set(response.headers_mut(), "content-range", &format!("bytes */{len}"));
            }
            if request.method == Method::HEAD {
                *response.body_mut() = full(Bytes::new());
            }
            response
        }
    }
}

/// The stages of a request: authorised target, opened array, selection, version, bytes.
async fn respond(gateway: &Arc<Gateway>, asked: &Arc<SliceRequest>) -> Result<Response<Body>, Problem> {
    let target = target::authorise(gateway, asked).inspect_err(|_| set_kind(RequestKind::Slice))?;
    let mut replanned = false;
    loop {
        let revalidate = replanned || wants_revalidation(&asked.headers);
        let snapshot = Arc::new(if revalidate { Snapshot::revalidating() } else { Snapshot::new() });
        let attempt = match target.request.what {
            What::Describe => {
                set_kind(RequestKind::Describe);
                describe::describe(gateway, asked, &target, &snapshot).await
            }
            What::Explain => {
                set_kind(RequestKind::Explain);
                explain(gateway, asked, &target, &snapshot).await
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
    let array = target::array(gateway, asked, target, snapshot).await?;
    let about = |problem: Problem| problem.about(&array.path);
    let selected = Selected::new(gateway, asked, &target.request, array.clone()).map_err(about)?;
    let versioned = selected.version(gateway, asked, snapshot).await.map_err(about)?;
    let located = started.elapsed();
    let respond = Responder { gateway, asked, selected: Arc::new(selected), snapshot, versioned, located };
    respond.answer().await.map_err(about)
}

/// A request resolved against its array: what to send, before any version is known.
pub(super) struct Selected {
    pub(super) array: Array,
    pub(super) slab: Hyperslab,
    pub(super) survey: Survey,
    shape: Vec<u64>,
    dims: Vec<Option<String>>,
    format: Format,
    outside: Arc<[u8]>,
    /// Bytes before the elements.
    head: Bytes,
    /// Bytes of the body, where they are known before reading.
    body_len: Option<u64>,
}

impl Selected {
    pub(super) fn new(
        gateway: &Gateway,
        asked: &SliceRequest,
        request: &Request,
        array: Array,
    ) -> Result<Self, Problem> {
        let meta = &array.meta;
        let slab = query::resolve(&request.selection, &meta.shape, &meta.dims)?;
        let shape = slab.answer_shape();
        request.check_shape(&shape)?;
        let dims: Vec<Option<String>> =
            meta.dims.iter().zip(slab.kept()).filter(|(_, kept)| **kept).map(|(dim, _)| dim.clone()).collect();
        let outside: Arc<[u8]> = match &request.fill {
            Some(text) => fill_value(text, &array)?.into(),
            None => meta.fill.as_slice().into(),
        };
        let description = Description { name: &array.name, dtype: &meta.dtype, shape: &shape, dims: &dims };
        let format = choose_format(asked, request, &description)?;
        let survey = survey(meta, &slab, &gateway.limits)?;
        let (head, body_len) = if format.streams() {
            (wire::head(format, &description)?, Some(wire::body_len(format, &description)?))
        } else {
            let elements = shape::elements(&shape).unwrap_or(u64::MAX);
            if format == Format::Json && elements > gateway.json_elements {
                return Err(too_many_for_json(elements, gateway.json_elements));
            }
            (Vec::new(), None)
        };
        Ok(Self { slab, survey, shape, dims, format, outside, head: head.into(), body_len, array })
    }

    /// The slice's ETag and date, from versions that are known or looked up; no chunk is read.
    async fn version(
        &self,
        gateway: &Gateway,
        asked: &SliceRequest,
        snapshot: &Snapshot,
    ) -> Result<Versioned, Problem> {
        let objects = &self.survey.objects;
        if gateway.datasets.untrusted(&self.array, objects, snapshot) > VERSIONED_OBJECTS {
            // Nor a date that can stay equal: the AWS CLI wants one, so it is now.
            return Ok(Versioned { etag: Etag::Unknown, last_modified: SystemTime::now() });
        }
        let learn = self.fits_one_band() && asked.method == Method::GET && !conditional(&asked.headers);
        if self.fits_one_band() && !asked.headers.contains_key(header::RANGE) {
            // All indexes are needed anyway, and reading one tells its shard's version.
            let learning = if learn { Learning::OnRead } else { Learning::Before };
            let found = gateway.datasets.locate(&self.array, &self.survey, learning, snapshot).await?;
            if found.facts.contains(&ObjectFacts::LearnOnRead) {
                return Ok(Versioned { etag: Etag::Learned, last_modified: self.sources_modified() });
            }
        }
        self.known_version(gateway, snapshot).await
    }

    async fn known_version(&self, gateway: &Gateway, snapshot: &Snapshot) -> Result<Versioned, Problem> {
        let states = gateway.datasets.states(&self.array, &self.survey.objects, snapshot).await?;
        let modified = states.iter().filter_map(|state| match state {
            ObjectState::Absent => None,
            ObjectState::Present { last_modified, .. } => Some(*last_modified),
        });
        let last_modified = modified.fold(self.sources_modified(), SystemTime::max);
        let objects = self.survey.objects.iter().map(String::as_str).zip(&states);
        let etag =
            etag::of_slice(&self.array.name, &self.array.sources, objects, &self.slab, &self.outside, self.format);
        Ok(Versioned { etag: Etag::Known(etag), last_modified })
    }

    fn sources_modified(&self) -> SystemTime {
        let modified = self.array.sources.iter().filter_map(crate::dataset::Source::last_modified);
        modified.max().unwrap_or(SystemTime::UNIX_EPOCH)
    }

    /// Bytes of one element, or of its header where elements vary.
    fn element_bytes(&self) -> u64 {
        self.array.meta.dtype.size_bytes().unwrap_or(std::mem::size_of::<Box<[u8]>>()) as u64
    }

    fn fits_one_band(&self) -> bool {
        let bytes = shape::bytes(&self.shape, self.element_bytes() as usize).unwrap_or(u64::MAX);
        !self.format.streams() || bytes <= BAND_BYTES
    }

    /// The pieces that hold the elements beneath `bytes` of the body.
    fn pieces(&self, bytes: &std::ops::Range<u64>) -> Vec<Piece> {
        let (size, head) = (self.element_bytes(), self.head.len() as u64);
        if size == 0 || bytes.end <= head {
            return Vec::new();
        }
        let first = bytes.start.saturating_sub(head) / size;
        let last = (bytes.end - head).div_ceil(size);
        self.slab.pieces(first..last, BAND_BYTES / size, self.array.meta.chunk_shape())
    }
}

/// What is known of a slice's version.
struct Versioned {
    etag: Etag,
    last_modified: SystemTime,
}

enum Etag {
    /// Computed.
    Known(String),
    /// Known once the only band is read.
    Learned,
    /// Too many objects.
    Unknown,
}

/// Everything that writing the answer needs.
struct Responder<'a> {
    gateway: &'a Arc<Gateway>,
    asked: &'a Arc<SliceRequest>,
    selected: Arc<Selected>,
    snapshot: &'a Arc<Snapshot>,
    versioned: Versioned,
    located: Duration,
}

impl Responder<'_> {
    async fn answer(mut self) -> Result<Response<Body>, Problem> {
        let conditions = match self.selected.array.meta.storage {
            Storage::Grid(_) => Conditions::of(&self.asked.headers).without_dates(),
            Storage::Dense { .. } => Conditions::of(&self.asked.headers),
        };
        let known = match &self.versioned.etag {
            Etag::Known(etag) => Some(etag.as_str()),
            Etag::Learned | Etag::Unknown => None,
        };
        match conditions.judge(known, self.versioned.last_modified) {
            Verdict::Failed => {
                return Err(Problem::new(ErrorKind::PreconditionFailed, "the slice has another version"));
            }
            Verdict::NotModified => return Ok(self.finish(StatusCode::NOT_MODIFIED, full(Bytes::new()), None)),
            Verdict::Proceed => {}
        }
        let ranged = conditions.range_applies(known, self.versioned.last_modified);
        let asked_range = ranged.then(|| range_header(&self.asked.headers)).flatten();
        if self.selected.format.streams() { self.stream(asked_range).await } else { self.whole(asked_range).await }
    }

    /// A body of known length: bands, each read when the one before has left.
    async fn stream(&mut self, asked_range: Option<Asked>) -> Result<Response<Body>, Problem> {
        let len = self.selected.body_len.unwrap_or(0);
        let (status, range) = satisfy(asked_range, len)?;
        if self.asked.method == Method::HEAD {
            return Ok(self.finish(status, full(Bytes::new()), Some((&range, len))));
        }
        let mut bands = Bands::new(self.gateway, self.asked, &self.selected, self.snapshot, range.clone());
        // What fails before the headers leave has a status of its own.
        let first = bands.next().await.transpose()?;
        if matches!(self.versioned.etag, Etag::Learned) {
            self.versioned = self.selected.known_version(self.gateway, self.snapshot).await?;
        }
        let body = match first {
            None => full(Bytes::new()),
            Some(first) if bands.is_done() => hold(first),
            Some(first) => bands.into_body(first),
        };
        Ok(self.finish(status, body, Some((&range, len))))
    }

    /// A body that is built whole before its length is known.
    async fn whole(&mut self, asked_range: Option<Asked>) -> Result<Response<Body>, Problem> {
        let kept = match &self.versioned.etag {
            Etag::Known(etag) => self.gateway.bodies.get(etag),
            Etag::Learned | Etag::Unknown => None,
        };
        let body = match kept {
            Some(body) => body,
            None => {
                let fetched = fetch(self.gateway, &self.selected, self.snapshot, &self.selected.slab).await?;
                let selected = Arc::clone(&self.selected);
                let encode = move || {
                    let body = wire::encode(selected.format, &selected.array.name, &fetched.tensor, &selected.dims);
                    drop(fetched.reservation);
                    body
                };
                Bytes::from(self.gateway.fetcher.pool().run(encode).await??)
            }
        };
        if matches!(self.versioned.etag, Etag::Learned) {
            self.versioned = self.selected.known_version(self.gateway, self.snapshot).await?;
        }
        if let Etag::Known(etag) = &self.versioned.etag {
            self.gateway.bodies.insert(etag, body.clone());
        }
        let len = body.len() as u64;
        let (status, range) = satisfy(asked_range, len)?;
        let part = body.slice(range.start as usize..range.end as usize);
        let part = if self.asked.method == Method::HEAD { Bytes::new() } else { part };
        Ok(self.finish(status, full(part), Some((&range, len))))
    }

    fn finish(&self, status: StatusCode, body: Body, sent: Option<(&std::ops::Range<u64>, u64)>) -> Response<Body> {
        let mut response = Response::new(body);
        *response.status_mut() = status;
        let out = response.headers_mut();
        let etag = match &self.versioned.etag {
            Etag::Known(etag) => Some(etag.as_str()),
            Etag::Learned | Etag::Unknown => None,
        };
        let age = self.snapshot.oldest().map_or(0, |oldest| oldest.elapsed().as_secs());
        let selected = &self.selected;
        headers::describe_version(out, &selected.array, etag, self.versioned.last_modified, age, &self.asked.principal);
        if let Some((range, len)) = sent {
            let elements = Elements { shape: &selected.shape, dims: &selected.dims, dtype: &selected.array.meta.dtype };
            headers::describe_elements(out, &elements);
            out.insert(header::CONTENT_TYPE, HeaderValue::from_static(selected.format.media_type()));
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

/// The bands of one body, read one after the other.
struct Bands {
    gateway: Arc<Gateway>,
    asked: Arc<SliceRequest>,
    selected: Arc<Selected>,
    snapshot: Arc<Snapshot>,
    bytes: std::ops::Range<u64>,
    pieces: std::vec::IntoIter<Piece>,
    head_sent: bool,
}

/// Bytes of a body, with the memory they were promised.
struct Band {
    parts: Vec<Bytes>,
    reservation: Option<crate::fetch::Reservation>,
}

impl Bands {
    fn new(
        gateway: &Arc<Gateway>,
        asked: &Arc<SliceRequest>,
        selected: &Arc<Selected>,
        snapshot: &Arc<Snapshot>,
        bytes: std::ops::Range<u64>,
    ) -> Self {
        let pieces = if bytes.is_empty() { Vec::new() } else { selected.pieces(&bytes) };
        Self {
            gateway: Arc::clone(gateway),
            asked: Arc::clone(asked),
            selected: Arc::clone(selected),
            snapshot: Arc::clone(snapshot),
            bytes,
            pieces: pieces.into_iter(),
            head_sent: false,
        }
    }

    fn is_done(&self) -> bool {
        self.head_sent && self.pieces.as_slice().is_empty()
    }

    /// The next band. The header's bytes, as far as they are asked for, come with the first.
    async fn next(&mut self) -> Option<Result<Band, Problem>> {
        if self.bytes.is_empty() || self.is_done() {
            return None;
        }
        let head = &self.selected.head;
        let mut parts = Vec::with_capacity(2);
        if !self.head_sent {
            self.head_sent = true;
            let (start, end) = (self.bytes.start.min(head.len() as u64), self.bytes.end.min(head.len() as u64));
            if start < end {
                parts.push(head.slice(start as usize..end as usize));
            }
        }
        let Some(piece) = self.pieces.next() else {
            return Some(Ok(Band { parts, reservation: None }));
        };
        match fetch(&self.gateway, &self.selected, &self.snapshot, &piece.slab).await {
            Ok(Fetched { tensor, reservation, .. }) => match tensor.data {
                ChunkData::Fixed(elements) => {
                    let (size, head) = (self.selected.element_bytes(), head.len() as u64);
                    let (from, to) = (head + piece.elements.start * size, head + piece.elements.end * size);
                    let (start, end) = (self.bytes.start.max(from) - from, self.bytes.end.min(to) - from);
                    parts.push(elements.slice(start as usize..end as usize));
                    Some(Ok(Band { parts, reservation: Some(reservation) }))
                }
                ChunkData::Variable(_) => {
                    Some(Err(Problem::new(ErrorKind::Internal, "elements of varying length cannot be streamed")))
                }
            },
            Err(problem) => Some(Err(problem)),
        }
    }

    /// The rest of the body behind its first band. A failure from here on aborts the connection.
    fn into_body(self, first: Band) -> Body {
        let rest = futures::stream::unfold(Some(self), |bands| async move {
            let mut bands = bands?;
            match bands.next().await? {
                Ok(band) => Some((Ok(band), Some(bands))),
                Err(problem) => {
                    tracing::warn!(
                        request_id = %bands.asked.request_id,
                        code = problem.kind.code(),
                        cause = %problem.cause,
                        "slice failed after its headers; the connection is aborted"
                    );
                    Some((Err(std::io::Error::other(problem.message)), None))
                }
            }
        });
        let bands = futures::stream::iter([Ok(first)]).chain(rest);
        let frames = bands.flat_map(|band| match band {
            Ok(band) => futures::stream::iter(frames(band)).left_stream(),
            Err(error) => futures::stream::iter([Err(error)]).right_stream(),
        });
        StreamBody::new(frames).boxed_unsync()
    }
}

type Frame = Result<http_body::Frame<Bytes>, std::io::Error>;

/// The frames of a band. Its memory is given back when the last has been taken: the next band waits for that.
fn frames(band: Band) -> impl Iterator<Item = Frame> + Send {
    let Band { parts, reservation } = band;
    let mut held = Some(reservation);
    let last = parts.len().saturating_sub(1);
    parts.into_iter().enumerate().map(move |(i, part)| {
        if i == last {
            held.take();
        }
        Ok(http_body::Frame::data(part))
    })
}

/// A body of one band.
fn hold(band: Band) -> Body {
    StreamBody::new(futures::stream::iter(frames(band))).boxed_unsync()
}

/// Surveys, locates, plans and runs a part of the selection, and remembers what reading told.
async fn fetch(
    gateway: &Gateway,
    selected: &Selected,
    snapshot: &Snapshot,
    slab: &Hyperslab,
) -> Result<Fetched, Problem> {
    let array = &selected.array;
    let plan = plan(gateway, selected, snapshot, slab, Learning::OnRead).await?;
    let plan = Arc::new(plan.0);
    let moment = gateway.datasets.moment();
    let run = gateway.fetcher.run(&array.bucket, &array.meta, Arc::clone(&plan), slab.kept().to_vec());
    let fetched = run.await.inspect_err(|error| {
        if let FetchError::Store(error) = error
            && let StoreError::Changed { key } = &**error
        {
            gateway.datasets.invalidate(&array.bucket.name, key);
        }
    })?;
    for (object, info) in &fetched.learned {
        let key = &plan.objects[*object].key;
        let told = info.as_ref().map_or(ObjectState::Absent, crate::dataset::state_of);
        if gateway.datasets.learn(moment, &array.bucket, key, info.as_ref(), snapshot) != told {
            return Err(DatasetError::from(Arc::new(StoreError::Changed { key: key.to_string() })).into());
        }
    }
    Ok(fetched)
}

/// Surveys, locates and plans a part of the selection. Also says how many indexes were read.
async fn plan(
    gateway: &Gateway,
    selected: &Selected,
    snapshot: &Snapshot,
    slab: &Hyperslab,
    learning: Learning,
) -> Result<(ReadPlan, u64), Problem> {
    let array = &selected.array;
    let survey =
        if *slab == selected.slab { selected.survey.clone() } else { survey(&array.meta, slab, &gateway.limits)? };
    let found = gateway.datasets.locate(array, &survey, learning, snapshot).await?;
    let outside = Some(Arc::clone(&selected.outside));
    let plan = ReadPlan::new(&array.meta, &array.path, survey, found.facts, found.located, outside)?;
    Ok((plan, found.index_reads))
}

/// The plan of a slice as JSON. Reads indexes, never chunk data.
async fn explain(
    gateway: &Gateway,
    asked: &SliceRequest,
    target: &Target,
    snapshot: &Snapshot,
) -> Result<Response<Body>, Problem> {
    let array = target::array(gateway, asked, target, snapshot).await?;
    let path = array.path.clone();
    let selected = Selected::new(gateway, asked, &target.request, array).map_err(|problem| problem.about(&path))?;
    let (plan, index_reads) = plan(gateway, &selected, snapshot, &selected.slab, Learning::Before).await?;
    let meta = &selected.array.meta;
    let cached = gateway.fetcher.cached(&selected.array.bucket, meta, &plan);
    let settings = gateway.fetcher.settings();
    let grid: Vec<u64> = meta.shape.iter().zip(meta.chunk_shape()).map(|(n, chunk)| n.div_ceil(*chunk)).collect();
    let total = shape::elements(&grid).unwrap_or(u64::MAX);
    let mut body = crate::plan::explain(&plan, &cached, settings.gap_bytes, settings.read_bytes, total);
    if let Some(body) = body.as_object_mut() {
        body.insert("v".into(), 1.into());
        body.insert("array".into(), selected.array.path.clone().into());
        body.insert("index_reads".into(), index_reads.into());
        body.insert("format".into(), selected.format.name().into());
        body.insert("body_bytes".into(), selected.body_len.into());
        body.insert(
            "selection".into(),
            serde_json::json!({ "shape": selected.shape, "dims": selected.dims, "dtype": meta.dtype.name() }),
        );
    }
    Ok(describe::json(&body, None, asked))
}

/// `Cache-Control: no-cache` asks for versions to be looked up, whatever the freshness.
fn wants_revalidation(headers: &HeaderMap) -> bool {
    let values = headers.get_all(header::CACHE_CONTROL);
    values
        .iter()
        .filter_map(|value| value.to_str().ok())
        .any(|value| value.split(',').any(|directive| directive.trim().eq_ignore_ascii_case("no-cache")))
}

fn conditional(headers: &HeaderMap) -> bool {
    [header::IF_MATCH, header::IF_NONE_MATCH, header::IF_MODIFIED_SINCE, header::IF_UNMODIFIED_SINCE, header::IF_RANGE]
        .iter()
        .any(|name| headers.contains_key(name))
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

fn choose_format(asked: &SliceRequest, request: &Request, description: &Description<'_>) -> Result<Format, Problem> {
    let format = match &request.format {
        Some(name) => match Format::from_suffix(name) {
            Some(format) => format,
            None => return Err(unknown_format(name)),
        },
        None => {
            let accept = asked.headers.get(header::ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or("*/*");
            Format::negotiate(accept, description)?
        }
    };
    wire::check(format, description)?;
    Ok(format)
}

fn unknown_format(name: &str) -> Problem {
    let (kind, message) = if name == "arrow" {
        (ErrorKind::NotImplemented, "format `arrow` is reserved and not implemented yet".to_owned())
    } else {
        (ErrorKind::InvalidParameter, format!("format `{name}` is unknown"))
    };
    let mut problem = Problem::new(kind, message);
    problem.details = Box::new(Details {
        parameter: Some("format".into()),
        valid: Some(Format::ALL.iter().map(|format| format.name()).collect::<Vec<_>>().join(", ")),
        ..Details::default()
    });
    problem
}

fn too_many_for_json(elements: u64, limit: u64) -> Problem {
    let message =
        format!("json holds at most {limit} elements here, the answer has {elements}; ask for less, or for npy");
    let mut problem = Problem::new(ErrorKind::SliceTooLarge, message);
    problem.details = Box::new(Details { valid: Some(format!("at most {limit} elements")), ..Details::default() });
    problem
}

/// `fill=` as one element: a Zarr fill value of the array's type.
fn fill_value(text: &str, array: &Array) -> Result<Vec<u8>, Problem> {
    let dtype = &array.meta.dtype;
    // A bare word such as NaN or 0x7fc0 is a string in JSON.
    let value = serde_json::from_str(text).unwrap_or_else(|_| serde_json::Value::String(text.to_owned()));
    zarr::parse_fill_value(dtype, &value).map_err(|_| {
        let message = format!("fill: `{text}` is not a fill value of {dtype}");
        let mut problem = Problem::new(ErrorKind::InvalidParameter, message);
        let valid = format!("a Zarr fill value of {dtype}");
        problem.details =
            Box::new(Details { parameter: Some("fill".into()), valid: Some(valid), ..Details::default() });
        problem
    })
}
