//! Where bytes lie, and in which version.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use serde::{Serialize, Serializer};

/// The version of a stored object: its ETag as the store gives it, quotes removed.
///
/// Every byte read is tied to one. Two equal versions of one key are the same bytes.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Version(Arc<str>);

impl Version {
    /// A version from a store's ETag, with or without quotes.
    pub fn new(etag: &str) -> Self {
        Self(etag.trim_matches('"').into())
    }

    /// The ETag without quotes.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

// By hand: deriving through an `Arc` needs serde's feature `rc`, which only the server's dependencies turn on.
impl Serialize for Version {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Version({})", self.0)
    }
}

/// A part of an object, in bytes.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum ByteRange {
    /// All of it.
    Whole,
    /// `start..end`; an object that ends before `end` is truncated for the one who planned the range.
    Bounded(Range<u64>),
    /// From an offset to the end.
    From(u64),
    /// The last so many bytes, or all of a shorter object.
    Suffix(u64),
}
