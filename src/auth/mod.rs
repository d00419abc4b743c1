//! Who may do what. One policy object for S3 operations, slices, and every object read for a request.
//!
//! A principal without rights gets the same answer whether a bucket or key exists or not: rights are looked at
//! before existence, and [`Policy::may_list`] decides whether an absence may be told. Deliberately absent: how a
//! signature is verified (that is `s3`'s), and anything about HTTP.

mod error;
mod policy;

pub use error::AuthError;
pub use policy::{Key, Policy, Scope};

use crate::store::Bucket;

/// Who sends a request, as far as the signature tells.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Principal {
    /// No signature.
    Anonymous,
    /// A verified signature of this access key.
    Key(String),
}

impl Principal {
    /// A name to share things fairly by: the access key, and one empty name for all who have none.
    pub fn name(&self) -> &str {
        match self {
            Self::Anonymous => "",
            Self::Key(access_key) => access_key,
        }
    }
}

/// What a request wants to do with a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// Read an object, its metadata, or a slice of it.
    Read,
    /// List keys under a prefix.
    List,
    /// Create or replace an object.
    Write,
    /// Remove an object.
    Delete,
}

/// A bucket and a key (or prefix) in it on which an action was allowed. Only [`Policy`] makes one.
#[derive(Debug, Clone)]
pub struct Authorised {
    bucket: Bucket,
    key: String,
}

impl Authorised {
    /// The bucket.
    pub fn bucket(&self) -> &Bucket {
        &self.bucket
    }

    /// The key or prefix.
    pub fn key(&self) -> &str {
        &self.key
    }
}
