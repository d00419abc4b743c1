//! The version of a slice: a strong hash of everything that its bytes depend on, and of nothing else.

use crate::cache::ObjectState;
use crate::dataset::Source;
use crate::model::Hyperslab;
use crate::wire::{ENCODER_VERSION, Format};

/// The ETag of a slice, without quotes. Every gateway computes the same.
///
/// `objects` are the touched objects, keys relative to the array, each with its state; `outside` is the value of
/// positions outside the array.
pub(super) fn of_slice<'a>(
    name: &str,
    sources: &[Source],
    objects: impl Iterator<Item = (&'a str, &'a ObjectState)>,
    slab: &Hyperslab,
    outside: &[u8],
    format: Format,
) -> String {
    let mut hash = Fields::new("w4dx slice 1");
    hash.text(name);
    hash.text(format.name());
    hash.number(u64::from(ENCODER_VERSION));
    // The canonical form of a resolved selection: `query::resolve` gives equal selections equal hyperslabs.
    hash.text(&format!("{:?}{:?}", slab.axes(), slab.kept()));
    hash.bytes(outside);
    for source in sources {
        hash.object(&source.key, &source.state);
    }
    hash.number(u64::MAX);
    for (key, state) in objects {
        hash.object(key, state);
    }
    hash.finish()
}

/// The ETag of a description, without quotes.
pub(super) fn of_description(sources: &[Source], rest: &str) -> String {
    let mut hash = Fields::new("w4dx describe 1");
    hash.text(rest);
    for source in sources {
        hash.object(&source.key, &source.state);
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

    fn object(&mut self, key: &str, state: &ObjectState) {
        self.text(key);
        match state {
            ObjectState::Absent => self.number(0),
            ObjectState::Present { version, size, .. } => {
                self.number(1);
                self.text(version.as_str());
                self.number(*size);
            }
        }
    }

    fn finish(self) -> String {
        self.0.finalize().to_hex()[..32].to_owned()
    }
}
