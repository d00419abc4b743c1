//! The S3 operations that are not reads of objects. Each authorises what it names; that is how it gets to a bucket.

use std::sync::Arc;

use s3s::dto::{
    Bucket, DeleteObjectInput, DeleteObjectOutput, GetBucketLocationInput, GetBucketLocationOutput, HeadBucketInput,
    HeadBucketOutput, ListBucketsInput, ListBucketsOutput, ListObjectsInput, ListObjectsOutput, ListObjectsV2Input,
    ListObjectsV2Output, PutObjectInput, PutObjectOutput, Timestamp,
};
use s3s::{S3, S3ErrorCode, S3Request, S3Response, S3Result};

use super::access::principal;
use super::failure::Failure;
use super::{listing, upload};
use crate::auth::Principal;
use crate::http::Gateway;
use crate::model::ErrorKind;

/// The operations of a gateway.
pub(super) struct Operations(pub(super) Arc<Gateway>);

impl Operations {
    /// The buckets that a principal may see, in the order of their names.
    fn buckets(&self, principal: &Principal, input: ListBucketsInput) -> Result<ListBucketsOutput, Failure> {
        let most = match input.max_buckets {
            None => usize::MAX,
            Some(most) => usize::try_from(most).ok().filter(|most| (1..=10_000).contains(most)).ok_or_else(|| {
                Failure::code(S3ErrorCode::InvalidArgument, "max-buckets must be a number from 1 to 10000")
            })?,
        };
        let prefix = input.prefix.as_deref().unwrap_or_default();
        let after = input.continuation_token.as_deref().unwrap_or_default();
        let mut visible = self
            .0
            .buckets
            .iter()
            .map(|bucket| &*bucket.name)
            .filter(|name| name.starts_with(prefix) && *name > after)
            .filter(|name| self.0.policy.see(principal, &self.0.buckets, name).is_ok())
            .peekable();
        let names: Vec<String> = visible.by_ref().take(most).map(str::to_owned).collect();
        if names.is_empty() && *principal == Principal::Anonymous {
            return Err(Failure::kind(ErrorKind::AccessDenied, "access denied"));
        }
        let continuation_token = visible.peek().and(names.last()).cloned();
        let bucket = |name| Bucket {
            name: Some(name),
            // Not known, but the AWS CLI cannot list a bucket without a date.
            creation_date: Some(Timestamp::from(std::time::SystemTime::UNIX_EPOCH)),
            ..Bucket::default()
        };
        Ok(ListBucketsOutput {
            buckets: Some(names.into_iter().map(bucket).collect()),
            owner: Some(listing::owner()),
            prefix: input.prefix,
            continuation_token,
        })
    }

    fn see<T>(&self, request: &S3Request<T>, bucket: &str) -> Result<(), Failure> {
        let principal = principal(request.credentials.as_ref());
        self.0.policy.see(&principal, &self.0.buckets, bucket)?;
        Ok(())
    }
}

#[async_trait::async_trait]
impl S3 for Operations {
    async fn list_buckets(&self, req: S3Request<ListBucketsInput>) -> S3Result<S3Response<ListBucketsOutput>> {
        let principal = principal(req.credentials.as_ref());
        Ok(S3Response::new(self.buckets(&principal, req.input)?))
    }

    async fn head_bucket(&self, req: S3Request<HeadBucketInput>) -> S3Result<S3Response<HeadBucketOutput>> {
        self.see(&req, &req.input.bucket)?;
        Ok(S3Response::new(HeadBucketOutput::default()))
    }

    async fn get_bucket_location(
        &self,
        req: S3Request<GetBucketLocationInput>,
    ) -> S3Result<S3Response<GetBucketLocationOutput>> {
        self.see(&req, &req.input.bucket)?;
        // No constraint: any region in a signature is accepted.
        Ok(S3Response::new(GetBucketLocationOutput::default()))
    }

    async fn list_objects(&self, req: S3Request<ListObjectsInput>) -> S3Result<S3Response<ListObjectsOutput>> {
        let principal = principal(req.credentials.as_ref());
        Ok(S3Response::new(listing::v1(&self.0, &principal, req.input).await?))
    }

    async fn list_objects_v2(&self, req: S3Request<ListObjectsV2Input>) -> S3Result<S3Response<ListObjectsV2Output>> {
        let principal = principal(req.credentials.as_ref());
        Ok(S3Response::new(listing::v2(&self.0, &principal, req.input).await?))
    }

    async fn put_object(&self, req: S3Request<PutObjectInput>) -> S3Result<S3Response<PutObjectOutput>> {
        Ok(S3Response::new(upload::put(&self.0, req).await?))
    }

    async fn delete_object(&self, req: S3Request<DeleteObjectInput>) -> S3Result<S3Response<DeleteObjectOutput>> {
        upload::delete(&self.0, &req).await?;
        Ok(S3Response::new(DeleteObjectOutput::default()))
    }
}
