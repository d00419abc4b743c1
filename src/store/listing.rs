//! Listing keys: one page, in key order, by any prefix and any delimiter.

use super::ObjectInfo;

/// What to list.
#[derive(Debug, Clone, Default)]
pub struct ListRequest {
    /// Only keys that begin with this; any string, not only whole segments.
    pub prefix: String,
    /// Keys that hold this after the prefix are rolled up into one common prefix; any non-empty string.
    pub delimiter: Option<String>,
    /// Only keys and common prefixes after this one, in byte order.
    pub start_after: Option<String>,
    /// At most so many keys and common prefixes together.
    pub max_keys: usize,
}

/// One page of a listing. Keys and prefixes are each in ascending byte order.
#[derive(Debug, Clone, Default)]
pub struct ListPage {
    /// Objects.
    pub objects: Vec<(String, ObjectInfo)>,
    /// Common prefixes, each ending with the delimiter.
    pub prefixes: Vec<String>,
    /// Where the next page starts (pass it as `start_after`), or `None` when this is the last.
    pub next: Option<String>,
}
