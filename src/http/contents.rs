//! What an answer holds: the elements of one selection, or of several fields one after the other.

use std::time::SystemTime;

use ::http::header;
use ::http::{HeaderMap, Method};
use bytes::Bytes;

use super::SliceRequest;
use super::error::Problem;
use super::etag;
use super::gateway::Gateway;
use super::headers::Elements;
use super::made::Made;
use super::samples::Samples;
use super::selected::{Etag, Selected, Versioned};
use crate::dataset::{Learning, Snapshot, Whereabouts};
use crate::model::{DType, Details, ErrorKind, Piece};
use crate::query::Request;
use crate::wire::batch::{LayoutField, layout};
use crate::wire::{self, Description, Format};

/// Largest answer, in bytes of its elements, in a format that is built whole: these do not stream.
const WHOLE_BYTES: u64 = 256 << 20;

/// What an answer holds, before any version is known.
pub(super) struct Contents {
    /// Computed tensors: they come first in the body.
    computed: Vec<Computed>,
    /// In the order of the body.
    pub(super) parts: Vec<Part>,
    /// The tensor that is all of the answer, where none is read from an array.
    pub(super) made: Option<Made>,
    pub(super) format: Format,
    /// Bytes before the elements of the parts.
    pub(super) head: Bytes,
    /// Bytes of the body, where they are known before reading.
    pub(super) body_len: Option<u64>,
}

/// A tensor that no array holds: the lengths of samples.
struct Computed {
    name: String,
    shape: Vec<u64>,
    dims: Vec<Option<String>>,
    /// int64, so that it lies as it should where the largest elements come first.
    bytes: Vec<u8>,
}

/// One array's elements in an answer.
pub(super) struct Part {
    /// As the request names it, among `fields`.
    pub(super) name: Option<String>,
    pub(super) selected: Selected,
    /// Where its elements begin in a body whose length is known before reading.
    pub(super) place: u64,
}

/// A piece of one part.
#[derive(Clone)]
pub(super) struct PartPiece {
    /// Which part.
    pub(super) part: usize,
    pub(super) piece: Piece,
}

/// What is known of an answer's version.
pub(super) struct Version {
    pub(super) etag: Etag,
    pub(super) last_modified: SystemTime,
    /// Per part where its chunks are, where that was found out on the way, for what is answered at once.
    pub(super) found: Vec<Option<Whereabouts>>,
}

impl Contents {
    /// One selection.
    pub(super) fn one(
        gateway: &Gateway,
        asked: &SliceRequest,
        request: &Request,
        selected: Selected,
    ) -> Result<Self, Problem> {
        let parts = vec![Part { name: None, selected, place: 0 }];
        let lengths: Vec<Computed> = parts.iter().filter_map(Part::lengths).collect();
        let selected = &parts[0].selected;
        // Samples of different lengths need these beside them; those that are padded have one shape.
        let apart = selected.samples.as_ref().is_some_and(|samples| !samples.one && samples.padded.is_none());
        let tensors = descriptions(&lengths, &parts);
        let format = choose_format(asked, request, if apart { &tensors } else { &tensors[lengths.len()..] })?;
        drop(tensors);
        let lengths = if apart || format == Format::Safetensors { lengths } else { Vec::new() };
        if !format.streams() {
            let elements = selected.slab.elements().unwrap_or(u64::MAX);
            if format == Format::Json && elements > gateway.json_elements {
                return Err(too_many_for_json(elements, gateway.json_elements));
            }
            if selected.bytes() > WHOLE_BYTES {
                return Err(too_large_for_whole(format, selected.bytes()));
            }
        }
        Self::laid_out(format, lengths, parts)
    }

    /// A tensor that was made for this answer. Its body is built whole.
    pub(super) fn made(
        gateway: &Gateway,
        asked: &SliceRequest,
        request: &Request,
        made: Made,
    ) -> Result<Self, Problem> {
        let format = choose_format(asked, request, &[made.description()])?;
        let elements = made.tensor.shape.iter().product();
        if format == Format::Json && elements > gateway.json_elements {
            return Err(too_many_for_json(elements, gateway.json_elements));
        }
        let (computed, parts, head) = (Vec::new(), Vec::new(), Bytes::new());
        Ok(Self { computed, parts, made: Some(made), format, head, body_len: None })
    }

    /// Shape, axis names and element type, where the answer is one tensor.
    pub(super) fn elements(&self) -> Option<Elements<'_>> {
        if let Some(Made { dims, tensor, .. }) = &self.made {
            return Some(Elements { shape: &tensor.shape, dims, dtype: &tensor.dtype });
        }
        let Selected { shape, dims, array, .. } = self.single()?;
        Some(Elements { shape, dims, dtype: &array.meta.dtype })
    }

    /// Several fields. The types with the largest elements come first, so that each lies as its type wants it.
    pub(super) fn fields(
        gateway: &Gateway,
        asked: &SliceRequest,
        request: &Request,
        fields: Vec<(String, Selected)>,
    ) -> Result<Self, Problem> {
        let part = |(name, selected)| Part { name: Some(name), selected, place: 0 };
        let mut parts: Vec<Part> = fields.into_iter().map(part).collect();
        parts.sort_by_key(|part| std::cmp::Reverse(part.selected.element_bytes()));
        let bytes = parts.iter().map(|part| part.selected.bytes()).fold(0, u64::saturating_add);
        let computed: Vec<Computed> = parts.iter().filter_map(Part::lengths).collect();
        let format = choose_format(asked, request, &descriptions(&computed, &parts))?;
        if bytes > gateway.limits.result_bytes {
            let limit = gateway.limits.result_bytes;
            let message = format!("the fields hold {bytes} bytes together, the limit is {limit}; ask for fewer");
            let details = Details { valid: Some(format!("at most {limit} bytes")), ..Details::default() };
            return Err(Problem::new(ErrorKind::SliceTooLarge, message).at(details));
        }
        Self::laid_out(format, computed, parts)
    }

    fn laid_out(format: Format, computed: Vec<Computed>, mut parts: Vec<Part>) -> Result<Self, Problem> {
        if !format.streams() {
            return Ok(Self { computed, parts, made: None, format, head: Bytes::new(), body_len: None });
        }
        let tensors = descriptions(&computed, &parts);
        let mut head = wire::head(format, &tensors)?;
        let places = wire::places(&head, &tensors)?;
        drop(tensors);
        computed.iter().for_each(|computed| head.extend_from_slice(&computed.bytes));
        for (part, place) in parts.iter_mut().zip(&places[computed.len()..]) {
            part.place = *place;
        }
        Ok(Self { computed, parts, made: None, format, head: head.into(), body_len: places.last().copied() })
    }

    /// The selection, where it is one of a single array and nothing else.
    pub(super) fn single(&self) -> Option<&Selected> {
        match (&self.computed[..], &self.parts[..]) {
            ([], [Part { name: None, selected, .. }]) => Some(selected),
            _ => None,
        }
    }

    /// The pieces that hold `bytes` of the body.
    pub(super) fn pieces(&self, gateway: &Gateway, bytes: &std::ops::Range<u64>) -> Vec<PartPiece> {
        let mut pieces = Vec::new();
        for (number, part) in self.parts.iter().enumerate() {
            let len = part.selected.bytes();
            let within = |at: u64| at.saturating_sub(part.place).min(len);
            let of_part = part.selected.pieces(gateway, &(within(bytes.start)..within(bytes.end)));
            pieces.extend(of_part.into_iter().map(|piece| PartPiece { part: number, piece }));
        }
        pieces
    }

    /// All of it in pieces, whatever its format.
    pub(super) fn all_pieces(&self, gateway: &Gateway) -> Vec<PartPiece> {
        let parts = self.parts.iter().enumerate();
        let pieces = parts.flat_map(|(number, part)| {
            let pieces = part.selected.all_pieces(gateway).into_iter();
            pieces.map(move |piece| PartPiece { part: number, piece })
        });
        pieces.collect()
    }

    /// The ETag and date of the whole, from versions that are known or looked up; no chunk is read.
    pub(super) async fn version(
        &self,
        gateway: &Gateway,
        asked: &SliceRequest,
        snapshot: &Snapshot,
    ) -> Result<Version, Problem> {
        if let Some(made) = &self.made {
            let etag = Etag::Known(made.etag(self.format));
            return Ok(Version { etag, last_modified: made.last_modified, found: Vec::new() });
        }
        let learn = asked.method == Method::GET && !conditional(&asked.headers) && self.single().is_some();
        // Of several fields all versions are known before the first is read: it leaves alone.
        let learning = if learn { Learning::OnRead } else { Learning::Before };
        let indexes = !asked.headers.contains_key(header::RANGE);
        let each = self.parts.iter().map(|part| async move {
            let versioned = part.selected.version(gateway, snapshot, self.format, learning, indexes).await;
            versioned.map_err(|problem| part.about(problem))
        });
        Ok(self.joined(futures::future::try_join_all(each).await?))
    }

    /// The version, once every object's state is known or can be asked for.
    pub(super) async fn known_version(&self, gateway: &Gateway, snapshot: &Snapshot) -> Result<Version, Problem> {
        let each = self.parts.iter().map(|part| async move {
            let versioned = part.selected.known_version(gateway, snapshot, self.format).await;
            versioned.map_err(|problem| part.about(problem))
        });
        Ok(self.joined(futures::future::try_join_all(each).await?))
    }

    fn joined(&self, mut versions: Vec<Versioned>) -> Version {
        let last_modified =
            versions.iter().map(|version| version.last_modified).max().unwrap_or(SystemTime::UNIX_EPOCH);
        let found = versions.iter_mut().map(|version| version.found.take()).collect();
        let etag = match (self.single(), &mut versions[..]) {
            (Some(_), [version]) => std::mem::replace(&mut version.etag, Etag::Unknown),
            _ => {
                let etags: Option<Vec<&str>> = versions.iter().map(|version| version.etag.known()).collect();
                let names = self.parts.iter().map(|part| part.name.as_deref().unwrap_or_default());
                let computed = self.computed.iter().map(|computed| (computed.name.as_str(), computed.bytes.as_slice()));
                etags.map_or(Etag::Unknown, |etags| Etag::Known(etag::of_fields(names.zip(etags), computed)))
            }
        };
        Version { etag, last_modified, found }
    }

    /// The value of `x-w4dx-layout`: what lies where in a body of several fields.
    pub(super) fn layout(&self) -> serde_json::Value {
        let mut place = self.parts.first().map_or(self.head.len() as u64, |part| part.place);
        place -= self.computed.iter().map(|computed| computed.bytes.len() as u64).sum::<u64>();
        let mut fields = Vec::with_capacity(self.computed.len() + self.parts.len());
        for Computed { name, shape, dims, bytes } in &self.computed {
            let len = bytes.len() as u64;
            let stacked = Some((shape.as_slice(), place, len));
            fields.push(LayoutField { name, dtype: &LENGTHS, dims, source_etag: None, stacked });
            place += len;
        }
        fields.extend(self.parts.iter().map(|part| LayoutField {
            name: part.name(),
            dtype: &part.selected.array.meta.dtype,
            dims: &part.selected.dims,
            source_etag: part.selected.array.version(),
            stacked: Some((&part.selected.shape, part.place, part.selected.bytes())),
        }));
        layout(1, &fields, None)
    }
}

impl Part {
    fn name(&self) -> &str {
        self.name.as_deref().unwrap_or(&self.selected.array.name)
    }

    /// The lengths of the samples that it holds: `lengths`, or of a field `NAME.lengths`.
    fn lengths(&self) -> Option<Computed> {
        let Samples { dimension, lengths, one, padded } = self.selected.samples.as_ref()?;
        let name = self.name.as_ref().map_or_else(|| "lengths".to_owned(), |name| format!("{name}.lengths"));
        let bytes = lengths.iter().flat_map(|length| length.to_le_bytes()).collect();
        match (one, padded) {
            // One sample that is not padded is as long as its axis.
            (true, None) => None,
            (true, Some(_)) => Some(Computed { name, shape: Vec::new(), dims: Vec::new(), bytes }),
            (false, _) => {
                let (shape, dims) = (vec![lengths.len() as u64], vec![Some(dimension.clone())]);
                Some(Computed { name, shape, dims, bytes })
            }
        }
    }

    /// A problem as one of this part.
    pub(super) fn about(&self, problem: Problem) -> Problem {
        problem.about(&self.selected.array.path).in_field(self.name.as_deref())
    }
}

/// The element type of lengths.
const LENGTHS: DType = DType::Int(64);

fn descriptions<'a>(computed: &'a [Computed], parts: &'a [Part]) -> Vec<Description<'a>> {
    let computed =
        computed.iter().map(|Computed { name, shape, dims, .. }| Description { name, dtype: &LENGTHS, shape, dims });
    computed.chain(parts.iter().map(|part| part.selected.description(part.name()))).collect()
}

fn conditional(headers: &HeaderMap) -> bool {
    [header::IF_MATCH, header::IF_NONE_MATCH, header::IF_MODIFIED_SINCE, header::IF_UNMODIFIED_SINCE, header::IF_RANGE]
        .iter()
        .any(|name| headers.contains_key(name))
}

fn choose_format(asked: &SliceRequest, request: &Request, tensors: &[Description<'_>]) -> Result<Format, Problem> {
    let format = match &request.format {
        Some(name) => match Format::from_suffix(name) {
            Some(format) => format,
            None => return Err(unknown_format(name)),
        },
        None => {
            let accept = asked.headers.get(header::ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or("*/*");
            Format::negotiate(accept, tensors)?
        }
    };
    wire::check(format, tensors)?;
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
