//! Zarr metadata, versions 2 and 3: documents to [`ArrayMeta`] and [`GroupMeta`].
//!
//! What is returned has been checked: ranks agree, chunk axes are at least 1, inner chunks divide their shards,
//! one decoded chunk is at most 2 GiB, every codec is known. Fetching documents is deliberately absent.
//!
//! Documents are read by our own code rather than by zarrs: errors must name the field, fill values must be exact
//! for types that zarrs lacks, and consolidated members must fail one by one.
//!
//! Limits: a document has at most 8 MiB, an array at most 32 axes, each shorter than 2^63. The number of elements
//! may pass 2^64: such arrays can be described and sliced, so whoever multiplies lengths must check.

mod codecs;
mod codecs_v2;
mod codecs_v3;
mod dtype;
mod fill;
mod group;
mod json;
#[cfg(test)]
mod tests;
mod v2;
mod v3;

use super::ArrayMeta;
pub use fill::parse_fill_value;
pub use group::{GroupMeta, Member, parse_v2_consolidated};
pub use v2::{parse_v2_array, parse_v2_group};
pub use v3::parse_v3;

/// What a `zarr.json` describes.
#[derive(Debug, Clone)]
pub enum Node {
    /// An array.
    Array(Box<ArrayMeta>),
    /// A group.
    Group(GroupMeta),
}
