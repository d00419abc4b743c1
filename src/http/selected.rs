//! A request resolved against its array, and the version of what it selects.

use std::sync::Arc;
use std::time::SystemTime;

use ::http::header;
use ::http::{HeaderMap, Method};
use bytes::Bytes;

use super::SliceRequest;
use super::error::Problem;
use super::etag::{self, ObjectVersion};
use super::gateway::Gateway;
use crate::cache::ObjectState;
use crate::dataset::{Array, Learning, Snapshot, Whereabouts};
use crate::format::{ArrayMeta, zarr};
use crate::model::{Details, ErrorKind, Hyperslab, Piece, shape};
use crate::plan::{self, Survey};
use crate::query::{self, Found, Request};
use crate::wire::{self, Description, Format};

/// Bytes of elements that are assembled at once. An answer streams in such bands: large enough that planning one is
/// nothing beside filling it, small enough that the first byte leaves soon and a slow client holds little.
const BAND_BYTES: u64 = 8 << 20;

/// A band grows to this where it would otherwise cut chunks, which would then be read for two bands.
const LARGEST_BAND_BYTES: u64 = 64 << 20;

/// Largest answer, in bytes of its elements, in a format that is built whole: these do not stream.
const WHOLE_BYTES: u64 = 256 << 20;

/// Objects that are listed for an ETag at all. Beyond it a list alone would hold up the first byte.
const LISTED_OBJECTS: usize = 20_000;

/// Objects whose versions are looked up for an ETag. Beyond it no ETag is sent, rather than one that can stay equal
/// while data change.
const VERSIONED_OBJECTS: usize = 1000;

/// A request resolved against its array: what to send, before any version is known.
pub(super) struct Selected {
    pub(super) array: Array,
    pub(super) slab: Hyperslab,
    /// What the whole selection touches, where it is answered at once; bands survey their own parts.
    survey: Option<Survey>,
    /// Keys of the objects that it touches, relative to the array; `None` for too many to list.
    objects: Option<Vec<String>>,
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
        found: &[Found],
    ) -> Result<Self, Problem> {
        let meta = &array.meta;
        let slab = query::resolve(&request.selection, &meta.shape, &meta.dims, found)?;
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
        plan::check(meta, &slab, &gateway.limits)?;
        let (head, body_len) = if format.streams() {
            (wire::head(format, &description)?, Some(wire::body_len(format, &description)?))
        } else {
            let elements = shape::elements(&shape).unwrap_or(u64::MAX);
            if format == Format::Json && elements > gateway.json_elements {
                return Err(too_many_for_json(elements, gateway.json_elements));
            }
            let bytes = elements.saturating_mul(element_bytes(meta));
            if bytes > WHOLE_BYTES {
                return Err(too_large_for_whole(format, bytes));
            }
            (Vec::new(), None)
        };
        let size = element_bytes(meta);
        let bytes = shape::bytes(&shape, size as usize).unwrap_or(u64::MAX);
        let one_band = bytes <= BAND_BYTES && plan::decoded_at_most(meta, &slab) <= gateway.part_bytes;
        let survey = one_band.then(|| plan::survey(meta, &slab, &gateway.limits)).transpose()?;
        let objects = match &survey {
            Some(survey) => Some(survey.objects.clone()),
            None => plan::objects(meta, &slab, LISTED_OBJECTS),
        };
        Ok(Self { slab, survey, objects, shape, dims, format, outside, head: head.into(), body_len, array })
    }

    /// What `slab`, a part of the selection, touches.
    pub(super) fn survey(&self, gateway: &Gateway, slab: &Hyperslab) -> Result<Survey, Problem> {
        match &self.survey {
            Some(survey) if *slab == self.slab => Ok(survey.clone()),
            Some(_) | None => Ok(plan::survey(&self.array.meta, slab, &gateway.limits)?),
        }
    }

    /// The slice's ETag and date, from versions that are known or looked up; no chunk is read.
    pub(super) async fn version(
        &self,
        gateway: &Gateway,
        asked: &SliceRequest,
        snapshot: &Snapshot,
    ) -> Result<Versioned, Problem> {
        // Nor a date that can stay equal: the AWS CLI wants one, so it is now.
        let unknown = || Versioned { etag: Etag::Unknown, last_modified: SystemTime::now(), found: None };
        let Some(objects) = &self.objects else { return Ok(unknown()) };
        if gateway.datasets.untrusted(&self.array, objects, snapshot) > VERSIONED_OBJECTS {
            return Ok(unknown());
        }
        if let Some(survey) = self.survey.as_ref().filter(|_| !asked.headers.contains_key(header::RANGE)) {
            // All indexes are needed anyway, and reading one tells its shard's version.
            let learn = asked.method == Method::GET && !conditional(&asked.headers);
            let learning = if learn { Learning::OnRead } else { Learning::Before };
            let found = gateway.datasets.locate(&self.array, survey, learning, snapshot).await?;
            let states: Option<Vec<ObjectVersion<'_>>> = found.facts.iter().map(ObjectVersion::of).collect();
            let etag = match states {
                Some(states) => Etag::Known(self.etag(objects, states.into_iter())),
                None => Etag::Learned,
            };
            let last_modified = found.last_modified.map_or(self.sources_modified(), |m| m.max(self.sources_modified()));
            return Ok(Versioned { etag, last_modified, found: Some(found) });
        }
        self.known_version(gateway, snapshot).await
    }

    /// The version, once every object's state is known or can be asked for.
    pub(super) async fn known_version(&self, gateway: &Gateway, snapshot: &Snapshot) -> Result<Versioned, Problem> {
        let objects = self.objects.as_deref().unwrap_or_default();
        let states = gateway.datasets.states(&self.array, objects, snapshot).await?;
        let modified = states.iter().filter_map(|state| match state {
            ObjectState::Absent => None,
            ObjectState::Present { last_modified, .. } => Some(*last_modified),
        });
        let last_modified = modified.fold(self.sources_modified(), SystemTime::max);
        let etag = self.etag(objects, states.iter().map(ObjectVersion::from));
        Ok(Versioned { etag: Etag::Known(etag), last_modified, found: None })
    }

    fn etag<'a>(&self, objects: &'a [String], states: impl Iterator<Item = ObjectVersion<'a>>) -> String {
        let objects = objects.iter().map(String::as_str).zip(states);
        etag::of_slice(&self.array.name, &self.array.sources, objects, &self.slab, &self.outside, self.format)
    }

    fn sources_modified(&self) -> SystemTime {
        let modified = self.array.sources.iter().filter_map(crate::dataset::Source::last_modified);
        modified.max().unwrap_or(SystemTime::UNIX_EPOCH)
    }

    /// Bytes of one element, or of its header where elements vary.
    pub(super) fn element_bytes(&self) -> u64 {
        element_bytes(&self.array.meta)
    }

    /// The pieces that hold the elements beneath `bytes` of the body.
    pub(super) fn pieces(&self, gateway: &Gateway, bytes: &std::ops::Range<u64>) -> Vec<Piece> {
        let (size, head) = (self.element_bytes(), self.head.len() as u64);
        if size == 0 || bytes.end <= head {
            return Vec::new();
        }
        let first = bytes.start.saturating_sub(head) / size;
        let last = (bytes.end - head).div_ceil(size);
        self.cut(gateway, first..last)
    }

    /// Elements of the selection in pieces that may be held at once.
    fn cut(&self, gateway: &Gateway, elements: std::ops::Range<u64>) -> Vec<Piece> {
        let meta = &self.array.meta;
        let most = self.band_elements(self.element_bytes().max(1));
        // The last first: a piece is taken from the end.
        let mut left = self.slab.pieces(elements, most, meta.chunk_shape());
        left.reverse();
        let mut pieces = Vec::with_capacity(left.len());
        while let Some(piece) = left.pop() {
            let fits = plan::decoded_at_most(meta, &piece.slab) <= gateway.part_bytes;
            match if fits { None } else { piece.halves() } {
                Some([first, second]) => left.extend([second, first]),
                None => pieces.push(piece),
            }
        }
        pieces
    }

    /// Whether the whole selection is too large for the cache: keeping its chunks would push out what is hot, and the
    /// first of them would be gone before the last is read.
    pub(super) fn is_scan(&self, gateway: &Gateway) -> bool {
        let bytes = shape::bytes(&self.shape, self.element_bytes() as usize).unwrap_or(u64::MAX);
        bytes > gateway.fetcher.cache().capacity_bytes() / 2
    }

    /// All of the selection in pieces, whatever its format.
    pub(super) fn all_pieces(&self, gateway: &Gateway) -> Vec<Piece> {
        self.cut(gateway, 0..self.slab.elements().unwrap_or(0))
    }

    /// Elements of a band: whole chunks along the axis that it is cut on, where these are not too many.
    fn band_elements(&self, size: u64) -> u64 {
        let most = (BAND_BYTES / size).max(1);
        let strides = shape::strides(&self.slab.counts());
        let cut = strides.iter().zip(self.array.meta.chunk_shape()).find(|(stride, _)| **stride <= most);
        let whole_chunks = cut.map_or(most, |(stride, chunk)| stride.saturating_mul(*chunk));
        if whole_chunks > most && whole_chunks <= LARGEST_BAND_BYTES / size { whole_chunks } else { most }
    }
}

fn element_bytes(meta: &ArrayMeta) -> u64 {
    meta.dtype.size_bytes().unwrap_or(std::mem::size_of::<Box<[u8]>>()) as u64
}

/// What is known of a slice's version.
pub(super) struct Versioned {
    pub(super) etag: Etag,
    pub(super) last_modified: SystemTime,
    /// Where the chunks are, where that was found out on the way, for a selection that is answered at once.
    pub(super) found: Option<Whereabouts>,
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

fn too_large_for_whole(format: Format, bytes: u64) -> Problem {
    let name = format.name();
    let message = format!("{name} is built whole, of at most {WHOLE_BYTES} bytes; the answer has {bytes}; ask for npy");
    let details = Details { valid: Some(format!("at most {WHOLE_BYTES} bytes")), ..Details::default() };
    Problem::new(ErrorKind::SliceTooLarge, message).at(details)
}

fn too_many_for_json(elements: u64, limit: u64) -> Problem {
    let message =
        format!("json holds at most {limit} elements here, the answer has {elements}; ask for less, or for npy");
    let mut problem = Problem::new(ErrorKind::SliceTooLarge, message);
    problem.details = Box::new(Details { valid: Some(format!("at most {limit} elements")), ..Details::default() });
    problem
}

/// `fill=` as one element: a Zarr fill value of the array's type.
pub(super) fn fill_value(text: &str, array: &Array) -> Result<Vec<u8>, Problem> {
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
