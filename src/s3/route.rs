//! GET and HEAD of objects, and batches by POST: slices and plain reads.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use http::{Extensions, HeaderMap, Method, Uri};
use http_body_util::BodyExt as _;
use s3s::route::S3Route;
use s3s::{Body, S3Request, S3Response, S3Result};

use super::access::principal;
use super::edge::caller;
use super::failure::{Failure, Rendered};
use super::read::{self, Read};
use super::target::{Domains, Original, Place, Target, target};
use crate::http::{Gateway, SliceRequest};
use crate::model::ErrorKind;
use crate::query::parameters;

/// Sub-resources of an object that a GET may name. s3s dispatches them to operations of their own.
const SUB_RESOURCES: [&str; 7] = ["attributes", "acl", "legal-hold", "retention", "tagging", "torrent", "uploadId"];

/// The route of object reads.
pub(super) struct Reads {
    pub(super) gateway: Arc<Gateway>,
    pub(super) domains: Domains,
}

impl Reads {
    fn is_slice(&self, bucket: &str, key: &str, pairs: &[(String, String)]) -> bool {
        let in_key_form = self.gateway.buckets.resolve(bucket).is_none_or(|bucket| bucket.in_key_form);
        parameters::concerns(key, pairs, in_key_form)
    }
}

#[async_trait::async_trait]
impl S3Route for Reads {
    fn is_match(&self, method: &Method, uri: &Uri, headers: &HeaderMap, extensions: &mut Extensions) -> bool {
        if !matches!(*method, Method::GET | Method::HEAD | Method::POST) {
            return false;
        }
        let uri = extensions.get::<Original>().map_or(uri, |original| &original.0);
        let Ok(target) = target(&self.domains, uri, headers) else { return false };
        let Place::Object { bucket, key } = &target.place else { return false };
        // A sub-resource beside a slice parameter is the slice's to refuse; alone it is S3's.
        let sub_resource = || target.pairs.iter().any(|(name, _)| SUB_RESOURCES.contains(&name.as_str()));
        if method == Method::POST && !parameters::is_batch(&target.pairs) {
            return false;
        }
        if method == Method::GET && sub_resource() && !self.is_slice(bucket, key, &target.pairs) {
            return false;
        }
        extensions.insert(target);
        true
    }

    /// Access is decided by whoever reads: on the resolved array for a slice, on the key for an object.
    async fn check_access(&self, _: &mut S3Request<Body>) -> S3Result<()> {
        Ok(())
    }

    async fn call(&self, mut request: S3Request<Body>) -> S3Result<S3Response<Body>> {
        let caller = caller(&request.uri, &request.headers);
        let principal = principal(request.credentials.as_ref());
        let answer = match request.extensions.remove::<Target>() {
            Some(Target { place: Place::Object { bucket, key }, pairs }) => {
                if request.method == Method::POST || self.is_slice(&bucket, &key, &pairs) {
                    let body = std::mem::take(&mut request.input);
                    let slice = SliceRequest {
                        method: request.method,
                        principal,
                        bucket,
                        key,
                        pairs,
                        headers: request.headers,
                        request_id: caller.request_id.clone(),
                    };
                    let gateway = Arc::clone(&self.gateway);
                    let answer = match slice.method {
                        Method::POST => match read_whole(body).await {
                            Ok(body) => crate::http::batch::answer(gateway, slice, body).await,
                            Err(failure) => return Ok(response(failure.into_answer(&caller))),
                        },
                        _ => crate::http::slice::answer(gateway, slice).await,
                    };
                    answer.map(Body::http_body_unsync)
                } else {
                    let read = Read {
                        head: request.method == Method::HEAD,
                        principal,
                        bucket,
                        key,
                        pairs: &pairs,
                        headers: &request.headers,
                        request_id: &caller.request_id,
                    };
                    match read::answer(&self.gateway, &read).await {
                        Ok(answer) => answer,
                        Err(failure) => failure.into_answer(&caller),
                    }
                }
            }
            // `is_match` let only objects through.
            Some(_) | None => Failure::kind(ErrorKind::Internal, "the request lost its target").into_answer(&caller),
        };
        Ok(response(answer))
    }
}

/// An answer as s3s takes it from a route.
fn response(answer: http::Response<Body>) -> S3Response<Body> {
    let (parts, body) = answer.into_parts();
    let mut response = S3Response::with_status(body, parts.status);
    response.headers = parts.headers;
    response.extensions = parts.extensions;
    response.extensions.insert(Rendered);
    response
}

/// Largest body of a batch, in bytes: some 100 for each of 100,000 selections.
const BATCH_BYTES: usize = 16 << 20;

/// So much is read, the rest thrown away, of a body that is too long: a client that is still sending would see its
/// connection break, and not why.
const DRAINED_BYTES: usize = 64 << 20;

/// The body of a batch. s3s has checked its signature and compares its bytes with the signed hash as they come.
async fn read_whole(mut body: Body) -> Result<Bytes, Failure> {
    let mut whole = BytesMut::new();
    let mut len = 0_usize;
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| {
            Failure::kind(ErrorKind::InvalidRequest, format!("the body could not be read: {error}"))
        })?;
        let Ok(data) = frame.into_data() else { continue };
        len = len.saturating_add(data.len());
        if len <= BATCH_BYTES {
            whole.extend_from_slice(&data);
        } else if len > DRAINED_BYTES {
            break;
        }
    }
    if len > BATCH_BYTES {
        let message = format!("the body of a batch has more than {BATCH_BYTES} bytes; send it in parts");
        return Err(Failure::kind(ErrorKind::SliceTooLarge, message));
    }
    Ok(whole.freeze())
}
