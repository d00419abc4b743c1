//! A request resolved against its array, and the version of what it selects.

use std::sync::Arc;
use std::time::SystemTime;

use ::http::header;
use ::http::{HeaderMap, Method};
use bytes::Bytes;

use super::error::Problem;
use super::gateway::Gateway;
use super::{SliceRequest, etag};
use crate::cache::ObjectState;
use crate::dataset::{Array, Learning, Snapshot};
use crate::format::zarr;
use crate::model::{Details, ErrorKind, Hyperslab, Piece, shape};
use crate::plan::{ObjectFacts, Survey, survey};
use crate::query::{self, Request};
use crate::wire::{self, Description, Format};

/// Bytes of elements that are assembled at once. An answer streams in such bands.
const BAND_BYTES: u64 = 32 << 20;

/// Objects whose versions are looked up for an ETag. Beyond it no ETag is sent, rather than one that can stay equal
/// while data change.
const VERSIONED_OBJECTS: usize = 1000;

/// A request resolved against its array: what to send, before any version is known.
pub(super) struct Selected {
    pub(super) array: Array,
    pub(super) slab: Hyperslab,
    pub(super) survey: Survey,
    pub(super) shape: Vec<u64>,
    pub(super) dims: Vec<Option<String>>,
    pub(super) format: Format,
    /// The value of positions outside the array.
    pub(super) outside: Arc<[u8]>,
    /// Bytes before the elements.
    pub(super) head: Bytes,
    /// Bytes of the body, where they are known before reading.
    pub(super) body_len: Option<u64>,
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
    pub(super) async fn version(
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

    pub(super) async fn known_version(&self, gateway: &Gateway, snapshot: &Snapshot) -> Result<Versioned, Problem> {
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
    pub(super) fn element_bytes(&self) -> u64 {
        self.array.meta.dtype.size_bytes().unwrap_or(std::mem::size_of::<Box<[u8]>>()) as u64
    }

    fn fits_one_band(&self) -> bool {
        let bytes = shape::bytes(&self.shape, self.element_bytes() as usize).unwrap_or(u64::MAX);
        !self.format.streams() || bytes <= BAND_BYTES
    }

    /// The pieces that hold the elements beneath `bytes` of the body.
    pub(super) fn pieces(&self, bytes: &std::ops::Range<u64>) -> Vec<Piece> {
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
pub(super) struct Versioned {
    pub(super) etag: Etag,
    pub(super) last_modified: SystemTime,
}

pub(super) enum Etag {
    /// Computed.
    Known(String),
    /// Known once the only band is read.
    Learned,
    /// Too many objects.
    Unknown,
}

fn conditional(headers: &HeaderMap) -> bool {
    [header::IF_MATCH, header::IF_NONE_MATCH, header::IF_MODIFIED_SINCE, header::IF_UNMODIFIED_SINCE, header::IF_RANGE]
        .iter()
        .any(|name| headers.contains_key(name))
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
