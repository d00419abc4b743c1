//! Stored bytes to descriptions of arrays: what a metadata document or a file header says, checked.
//!
//! Pure: takes bytes, returns [`ArrayMeta`]. Fetching the bytes is `dataset`'s work.

mod array_meta;
mod blocks;
pub mod codec;
mod dense;
mod error;
pub mod npy;
mod npy_header;
mod numpy;
pub mod safetensors;
pub mod zarr;

pub use array_meta::{
    ArrayMeta, ChunkKeys, GridStorage, IndexLocation, ShardIndexFormat, ShardLevel, SourceFormat, Storage,
};
pub use error::FormatError;
