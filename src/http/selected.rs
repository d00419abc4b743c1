//! A selection of one array: what it touches, its version, and how it is cut into bands.

use std::sync::Arc;
use std::time::SystemTime;

use super::error::Problem;
use super::etag::{self, ObjectVersion};
use super::gateway::Gateway;
use super::samples::{Resolved, Samples};
use crate::cache::ObjectState;
use crate::dataset::{Array, Learning, Snapshot, Whereabouts};
use crate::format::{ArrayMeta, zarr};
use crate::model::{Details, ErrorKind, Hyperslab, Piece, shape};
use crate::plan::{self, Survey};
use crate::query::Request;
use crate::wire::{Description, Format};

/// Bytes of elements that are assembled at once. An answer streams in such bands: large enough that planning one is
/// nothing beside filling it, small enough that the first byte leaves soon and a slow client holds little.
pub(super) const BAND_BYTES: u64 = 8 << 20;

/// A band grows to this where it would otherwise cut chunks, which would then be read for two bands.
const LARGEST_BAND_BYTES: u64 = 64 << 20;

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
    /// The value of positions outside the array, or behind its samples.
    pub(super) outside: Arc<[u8]>,
    /// Of a ragged array, the samples that are taken.
    pub(super) samples: Option<Samples>,
}

impl Selected {
    pub(super) fn new(
        gateway: &Gateway,
        request: &Request,
        resolved: &Resolved<'_>,
        array: Array,
    ) -> Result<Self, Problem> {
        let slab = resolved.slab(&array)?;
        Self::of(gateway, request, slab, resolved.samples.clone(), array)
    }

    /// Of positions that are found otherwise.
    pub(super) fn of(
        gateway: &Gateway,
        request: &Request,
        slab: Hyperslab,
        samples: Option<Samples>,
        array: Array,
    ) -> Result<Self, Problem> {
        let meta = &array.meta;
        let mut shape = slab.answer_shape();
        let mut dims: Vec<Option<String>> =
            meta.dims.iter().zip(slab.kept()).filter(|(_, kept)| **kept).map(|(dim, _)| dim.clone()).collect();
        if let Some(Samples { dimension, lengths, one: false, padded: Some(padded) }) = &samples {
            // The flat axis, which comes first, in two: samples as long as each other.
            shape.splice(..1, [lengths.len() as u64, *padded]);
            dims.insert(0, Some(dimension.clone()));
        }
        request.check_shape(&shape)?;
        let outside: Arc<[u8]> = outside(request, &array)?.into();
        plan::check(meta, &slab, &gateway.limits)?;
        let size = element_bytes(meta);
        let bytes = shape::bytes(&shape, size as usize).unwrap_or(u64::MAX);
        let one_band = bytes <= BAND_BYTES && plan::decoded_at_most(meta, &slab) <= gateway.part_bytes;
        let survey = one_band.then(|| plan::survey(meta, &slab, &gateway.limits)).transpose()?;
        let objects = match &survey {
            Some(survey) => Some(survey.objects.clone()),
            None => plan::objects(meta, &slab, LISTED_OBJECTS),
        };
        Ok(Self { slab, survey, objects, shape, dims, outside, samples, array })
    }

    /// What `slab`, a part of the selection, touches.
    pub(super) fn survey(&self, gateway: &Gateway, slab: &Hyperslab) -> Result<Survey, Problem> {
        match &self.survey {
            Some(survey) if *slab == self.slab => Ok(survey.clone()),
            Some(_) | None => Ok(plan::survey(&self.array.meta, slab, &gateway.limits)?),
        }
    }

    /// What an element is of.
    pub(super) fn description<'a>(&'a self, name: &'a str) -> Description<'a> {
        Description { name, dtype: &self.array.meta.dtype, shape: &self.shape, dims: &self.dims }
    }

    /// The slice's ETag and date, from versions that are known or looked up; no chunk is read. With
    /// [`Learning::OnRead`] versions that reading will tell are not looked up. `indexes` says whether all indexes that
    /// the selection touches are read anyway.
    pub(super) async fn version(
        &self,
        gateway: &Gateway,
        snapshot: &Snapshot,
        format: Format,
        learning: Learning,
        indexes: bool,
    ) -> Result<Versioned, Problem> {
        // Nor a date that can stay equal: the AWS CLI wants one, so it is now.
        let unknown = || Versioned { etag: Etag::Unknown, last_modified: SystemTime::now(), found: None };
        let Some(objects) = &self.objects else { return Ok(unknown()) };
        if gateway.datasets.untrusted(&self.array, objects, snapshot) > VERSIONED_OBJECTS {
            return Ok(unknown());
        }
        if let Some(survey) = self.survey.as_ref().filter(|_| indexes) {
            // Reading an index tells its shard's version.
            let found = gateway.datasets.locate(&self.array, survey, learning, snapshot).await?;
            let states: Option<Vec<ObjectVersion<'_>>> = found.facts.iter().map(ObjectVersion::of).collect();
            let etag = match states {
                Some(states) => Etag::Known(self.etag(objects, states.into_iter(), format)),
                None => Etag::Learned,
            };
            let last_modified = found.last_modified.map_or(self.sources_modified(), |m| m.max(self.sources_modified()));
            return Ok(Versioned { etag, last_modified, found: Some(found) });
        }
        self.known_version(gateway, snapshot, format).await
    }

    /// The version, once every object's state is known or can be asked for.
    pub(super) async fn known_version(
        &self,
        gateway: &Gateway,
        snapshot: &Snapshot,
        format: Format,
    ) -> Result<Versioned, Problem> {
        let objects = self.objects.as_deref().unwrap_or_default();
        let states = gateway.datasets.states(&self.array, objects, snapshot).await?;
        let modified = states.iter().filter_map(|state| match state {
            ObjectState::Absent => None,
            ObjectState::Present { last_modified, .. } => Some(*last_modified),
        });
        let last_modified = modified.fold(self.sources_modified(), SystemTime::max);
        let etag = self.etag(objects, states.iter().map(ObjectVersion::from), format);
        Ok(Versioned { etag: Etag::Known(etag), last_modified, found: None })
    }

    fn etag<'a>(
        &self,
        objects: &'a [String],
        states: impl Iterator<Item = ObjectVersion<'a>>,
        format: Format,
    ) -> String {
        let objects = objects.iter().map(String::as_str).zip(states);
        etag::of_slice(&self.array.name, &self.array.sources, objects, &self.slab, &self.shape, &self.outside, format)
    }

    fn sources_modified(&self) -> SystemTime {
        let modified = self.array.sources.iter().filter_map(crate::dataset::Source::last_modified);
        modified.max().unwrap_or(SystemTime::UNIX_EPOCH)
    }

    /// Bytes of one element, or of its header where elements vary.
    pub(super) fn element_bytes(&self) -> u64 {
        element_bytes(&self.array.meta)
    }

    /// Bytes of the elements.
    pub(super) fn bytes(&self) -> u64 {
        shape::bytes(&self.shape, self.element_bytes() as usize).unwrap_or(u64::MAX)
    }

    /// The pieces that hold `bytes` of the elements.
    pub(super) fn pieces(&self, gateway: &Gateway, bytes: &std::ops::Range<u64>) -> Vec<Piece> {
        let size = self.element_bytes();
        if size == 0 || bytes.is_empty() {
            return Vec::new();
        }
        self.cut(gateway, bytes.start / size..bytes.end.div_ceil(size))
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
        self.bytes() > gateway.fetcher.cache().capacity_bytes() / 2
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

impl Etag {
    /// If it is computed.
    pub(super) fn known(&self) -> Option<&str> {
        match self {
            Self::Known(etag) => Some(etag),
            Self::Learned | Self::Unknown => None,
        }
    }
}

pub(super) enum Etag {
    /// Computed.
    Known(String),
    /// Known once the only band is read.
    Learned,
    /// Too many objects.
    Unknown,
}

/// The value of positions outside the array (`fill`), or behind its samples (`pad`): only one of them is given.
pub(super) fn outside(request: &Request, array: &Array) -> Result<Vec<u8>, Problem> {
    match (&request.pad, &request.fill) {
        (Some((_, Some(text))), _) => fill_value("pad", text, array),
        (_, Some(text)) => fill_value("fill", text, array),
        _ => Ok(array.meta.fill.clone()),
    }
}

/// One element: a Zarr fill value of the array's type.
fn fill_value(parameter: &str, text: &str, array: &Array) -> Result<Vec<u8>, Problem> {
    let dtype = &array.meta.dtype;
    // A bare word such as NaN or 0x7fc0 is a string in JSON.
    let value = serde_json::from_str(text).unwrap_or_else(|_| serde_json::Value::String(text.to_owned()));
    zarr::parse_fill_value(dtype, &value).map_err(|_| {
        let message = format!("{parameter}: `{text}` is not a fill value of {dtype}");
        let mut problem = Problem::new(ErrorKind::InvalidParameter, message);
        let valid = format!("a Zarr fill value of {dtype}");
        problem.details =
            Box::new(Details { parameter: Some(parameter.into()), valid: Some(valid), ..Details::default() });
        problem
    })
}
