//! The version of a slice: a strong hash of everything that its bytes depend on, and of nothing else.

use crate::cache::ObjectState;
use crate::dataset::Source;
use crate::model::{Axis, ChunkData, Hyperslab};
use crate::plan::ObjectFacts;
use crate::wire::{Description, ENCODER_VERSION, Format};

/// Version and size of an object; `None` for an absent one.
#[derive(Debug, Clone, Copy)]
pub(super) struct ObjectVersion<'a>(Option<(&'a str, u64)>);

impl<'a> ObjectVersion<'a> {
    /// What a plan knows of an object, if it knows its version.
    pub(super) fn of(facts: &'a ObjectFacts) -> Option<Self> {
        match facts {
            ObjectFacts::Absent => Some(Self(None)),
            ObjectFacts::Present { version, size } => Some(Self(Some((version.as_str(), *size)))),
            ObjectFacts::LearnOnRead => None,
        }
    }
}

impl<'a> From<&'a ObjectState> for ObjectVersion<'a> {
    fn from(state: &'a ObjectState) -> Self {
        match state {
            ObjectState::Absent => Self(None),
            ObjectState::Present { version, size, .. } => Self(Some((version.as_str(), *size))),
        }
    }
}

/// The ETag of a slice, without quotes. Every gateway computes the same.
///
/// `objects` are the touched objects, keys relative to the array, each with its state; `shape` is the answer's; `outside`
/// is the value of positions outside the array.
pub(super) fn of_slice<'a>(
    name: &str,
    sources: &[Source],
    objects: impl Iterator<Item = (&'a str, ObjectVersion<'a>)>,
    slab: &Hyperslab,
    shape: &[u64],
    outside: &[u8],
    format: Format,
) -> String {
    let mut hash = Fields::new("w4dx slice 3");
    hash.text(name);
    hash.text(format.name());
    hash.number(u64::from(ENCODER_VERSION));
    // The canonical form of a resolved selection: `query::resolve` gives equal selections equal hyperslabs.
    hash.slab(slab);
    hash.number(shape.len() as u64);
    shape.iter().for_each(|length| hash.number(*length));
    hash.bytes(outside);
    for source in sources {
        hash.object(&source.key, ObjectVersion::from(&source.state));
    }
    hash.number(u64::MAX);
    for (key, state) in objects {
        hash.object(key, state);
    }
    hash.finish()
}

/// The ETag of several tensors in one body, without quotes, from those of their slices, and from the bytes of those that
/// were computed.
pub(super) fn of_fields<'a>(
    etags: impl Iterator<Item = (&'a str, &'a str)>,
    computed: impl Iterator<Item = (&'a str, &'a [u8])>,
) -> String {
    let mut hash = Fields::new("w4dx fields 1");
    for (name, etag) in etags {
        hash.text(name);
        hash.text(etag);
    }
    for (name, bytes) in computed {
        hash.text(name);
        hash.bytes(bytes);
    }
    hash.finish()
}

/// The ETag of a tensor that was made for its answer, without quotes.
pub(super) fn of_made(tensor: &Description<'_>, data: &ChunkData, format: Format) -> String {
    let mut hash = Fields::new("w4dx made 1");
    hash.text(tensor.name);
    hash.text(format.name());
    hash.number(u64::from(ENCODER_VERSION));
    hash.text(&tensor.dtype.name());
    hash.number(tensor.shape.len() as u64);
    tensor.shape.iter().for_each(|length| hash.number(*length));
    match data {
        ChunkData::Fixed(bytes) => hash.bytes(bytes),
        ChunkData::Variable(values) => values.iter().for_each(|value| hash.bytes(value)),
    }
    hash.finish()
}

/// The ETag of a description, without quotes.
pub(super) fn of_description(sources: &[Source], rest: &str) -> String {
    let mut hash = Fields::new("w4dx describe 1");
    hash.text(rest);
    for source in sources {
        hash.object(&source.key, ObjectVersion::from(&source.state));
    }
    hash.finish()
}

/// Hashes fields so that their borders count.
struct Fields(blake3::Hasher);

impl Fields {
    fn new(purpose: &str) -> Self {
        let mut fields = Self(blake3::Hasher::new());
        fields.text(purpose);
        fields
    }

    fn number(&mut self, number: u64) {
        self.0.update(&number.to_le_bytes());
    }

    fn bytes(&mut self, bytes: &[u8]) {
        self.number(bytes.len() as u64);
        self.0.update(bytes);
    }

    fn text(&mut self, text: &str) {
        self.bytes(text.as_bytes());
    }

    fn slab(&mut self, slab: &Hyperslab) {
        self.number(slab.axes().len() as u64);
        for (axis, kept) in slab.axes().iter().zip(slab.kept()) {
            self.number(u64::from(*kept));
            match axis {
                Axis::Range { start, step, count } => {
                    self.number(0);
                    self.bytes(&[start.to_le_bytes(), step.to_le_bytes(), count.to_le_bytes()].concat());
                }
                Axis::List(positions) => {
                    self.number(1);
                    self.number(positions.len() as u64);
                    positions.iter().for_each(|position| self.number(*position));
                }
            }
        }
    }

    fn object(&mut self, key: &str, version: ObjectVersion<'_>) {
        self.text(key);
        match version.0 {
            None => self.number(0),
            Some((version, size)) => {
                self.number(1);
                self.text(version);
                self.number(size);
            }
        }
    }

    fn finish(self) -> String {
        self.0.finalize().to_hex()[..32].to_owned()
    }
}
