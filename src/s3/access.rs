//! s3s' questions about keys and operations, answered from the gateway's one policy.
//!
//! Invariant: only operations named here reach `operations`; each of them authorises its bucket and key itself,
//! because that is how it gets to the bucket. Signature guards run before s3s, in the edge.

use std::sync::Arc;

use s3s::access::{S3Access, S3AccessContext};
use s3s::auth::{Credentials, S3Auth, SecretKey};
use s3s::{S3ErrorCode, S3Result};

use super::failure::Failure;
use crate::auth::Principal;
use crate::http::Gateway;

/// Operations that are served. GetObject and HeadObject are not among them: the route serves them.
const SERVED: [&str; 7] =
    ["ListBuckets", "HeadBucket", "GetBucketLocation", "ListObjects", "ListObjectsV2", "PutObject", "DeleteObject"];

/// Secrets for s3s to verify signatures with.
pub(super) struct Keys(pub(super) Arc<Gateway>);

#[async_trait::async_trait]
impl S3Auth for Keys {
    async fn get_secret_key(&self, access_key: &str) -> S3Result<SecretKey> {
        match self.0.policy.secret_of(access_key) {
            Some(secret) => Ok(SecretKey::from(secret.expose())),
            None => Err(Failure::code(S3ErrorCode::InvalidAccessKeyId, "the access key is not known here").into()),
        }
    }
}

/// Lets the served operations through, before their bodies are read.
pub(super) struct ServedOnly;

#[async_trait::async_trait]
impl S3Access for ServedOnly {
    async fn check(&self, context: &mut S3AccessContext<'_>) -> S3Result<()> {
        let operation = context.s3_op().name();
        if SERVED.contains(&operation) {
            return Ok(());
        }
        Err(Failure::not_implemented(format!("{operation} is not implemented by this gateway")).into())
    }
}

/// Who sent a request whose signature s3s verified.
pub(super) fn principal(credentials: Option<&Credentials>) -> Principal {
    match credentials {
        Some(credentials) => Principal::Key(credentials.access_key.clone()),
        None => Principal::Anonymous,
    }
}
