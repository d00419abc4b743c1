//! What can go wrong between a path and the places of its chunks.

use std::sync::Arc;

use crate::format::FormatError;
use crate::index::IndexError;
use crate::model::{Details, ErrorKind, Fault};
use crate::store::StoreError;

/// Why a path cannot be opened, or its chunks not be found.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum DatasetError {
    /// Nothing is stored at the path.
    #[error("`{path}` does not exist")]
    Nothing {
        /// The path within the bucket.
        path: String,
    },
    /// The path holds several arrays, or an array where a group was needed.
    #[error("`{path}` is {what}{}", listing(.arrays))]
    NotAnArray {
        /// The path within the bucket.
        path: String,
        /// What it is.
        what: &'static str,
        /// The arrays in it.
        arrays: Vec<String>,
    },
    /// The object at the path is of no format that we know.
    #[error("`{path}` is neither a Zarr array, a .npy nor a .safetensors file")]
    UnknownFormat {
        /// The path within the bucket.
        path: String,
    },
    /// A metadata document or file header is unusable.
    #[error("`{key}`: {source}")]
    Format {
        /// The object's key within the bucket.
        key: String,
        /// Why.
        #[source]
        source: FormatError,
    },
    /// A shard's index is unusable.
    #[error("`{key}`: {source}")]
    Index {
        /// The shard's key within the bucket.
        key: String,
        /// Why.
        #[source]
        source: IndexError,
    },
    /// The store failed.
    #[error("{0}")]
    Store(#[from] Arc<StoreError>),
    /// The store answered with fewer bytes than the object has.
    #[error("`{key}`: {got} bytes came where {expected} were asked for")]
    Short {
        /// The object's key within the bucket.
        key: String,
        /// Bytes received.
        got: u64,
        /// Bytes asked for.
        expected: u64,
    },
}

fn listing(arrays: &[String]) -> String {
    const SHOWN: usize = 20;
    if arrays.is_empty() {
        return String::new();
    }
    let shown = arrays.iter().take(SHOWN).map(String::as_str).collect::<Vec<_>>().join(", ");
    let more = if arrays.len() > SHOWN { ", …" } else { "" };
    format!("; its arrays are {shown}{more}")
}

impl Fault for DatasetError {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::Nothing { .. } => ErrorKind::NoSuchKey,
            Self::NotAnArray { .. } | Self::UnknownFormat { .. } => ErrorKind::NotAnArray,
            Self::Format { source, .. } => source.kind(),
            Self::Index { source, .. } => source.kind(),
            Self::Store(source) => source.kind(),
            Self::Short { .. } => ErrorKind::CorruptData,
        }
    }

    fn details(&self) -> Details {
        match self {
            Self::Nothing { path } | Self::UnknownFormat { path } => {
                Details { array: Some(path.clone()), ..Details::default() }
            }
            Self::NotAnArray { path, arrays, .. } => Details {
                array: Some(path.clone()),
                parameter: Some("array".to_owned()),
                valid: (!arrays.is_empty()).then(|| arrays.iter().take(100).cloned().collect::<Vec<_>>().join(", ")),
                ..Details::default()
            },
            Self::Format { key, .. } | Self::Index { key, .. } | Self::Short { key, .. } => {
                Details { array: Some(key.clone()), ..Details::default() }
            }
            Self::Store(_) => Details::default(),
        }
    }
}
