//! The service around s3s: guards before it, request id and resource on its answers.

use std::convert::Infallible;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use bytes::Bytes;
use futures::future::BoxFuture;
use futures::stream::{StreamExt as _, TryStreamExt as _};
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode, Uri, Version, header};
use http_body_util::{BodyExt, BodyStream, StreamBody};
use s3s::Body;
use s3s::service::S3Service;

use super::failure::{Caller, Failure, Rendered};
use super::framing::{Framing, FramingError};
use super::{REQUEST_ID, guards, target};
use crate::model::ErrorKind;

/// The S3 service of a gateway. Made by [`super::service`]; cheap to clone.
#[derive(Debug, Clone)]
pub struct S3Edge {
    inner: S3Service,
}

/// What was wrong with the framing of an upload, for the operation that reads it: s3s passes on only words.
#[derive(Debug, Clone, Default)]
pub(super) struct FramingFault(Arc<Mutex<Option<FramingError>>>);

impl FramingFault {
    fn set(&self, error: FramingError) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
    }

    /// The fault, if there was one.
    pub(super) fn get(&self) -> Option<FramingError> {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl S3Edge {
    pub(super) fn new(inner: S3Service) -> Self {
        Self { inner }
    }

    async fn answer<B>(self, mut request: Request<B>) -> Response<Body>
    where
        B: http_body::Body<Data = Bytes> + Send + 'static,
        B::Error: std::error::Error + Send + Sync + 'static,
    {
        name_host(&mut request);
        if let Some(sorted) = target::in_signing_order(request.uri()) {
            let original = std::mem::replace(request.uri_mut(), sorted);
            request.extensions_mut().insert(target::Original(original));
        }
        let caller = caller(request.uri(), request.headers());
        let pairs = target::pairs(request.uri());
        let answer = match guards::check(request.method(), &pairs, request.headers()) {
            Err(failure) => failure.into_answer(&caller),
            Ok(()) => match self.inner.call(bound_framing(request)).await {
                Ok(answer) => told_again(answer, &caller).await,
                Err(error) => {
                    let error: s3s::StdError = error.into();
                    tracing::error!(request_id = %caller.request_id, %error, "s3s could not answer");
                    Failure::kind(ErrorKind::Internal, "the answer could not be written").into_answer(&caller)
                }
            },
        };
        with_request_id(answer, &caller)
    }
}

impl<B> tower::Service<Request<B>> for S3Edge
where
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: std::error::Error + Send + Sync + 'static,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let edge = self.clone();
        Box::pin(async move { Ok(edge.answer(request).await) })
    }
}

/// HTTP/2 names the host in `:authority`. s3s copies it to `Host`; done here first, guards and targets see the same.
fn name_host<B>(request: &mut Request<B>) {
    if request.headers().contains_key(header::HOST) || request.version() < Version::HTTP_2 {
        return;
    }
    let host = request.uri().authority().and_then(|authority| HeaderValue::from_str(authority.as_str()).ok());
    if let Some(host) = host {
        request.headers_mut().insert(header::HOST, host);
    }
}

/// The request with its body boxed for s3s, and an aws-chunked body bounded.
fn bound_framing<B>(mut request: Request<B>) -> Request<Body>
where
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: std::error::Error + Send + Sync + 'static,
{
    if !guards::is_aws_chunked(request.headers()) {
        return request.map(Body::http_body_unsync);
    }
    let text = |name| request.headers().get(name).and_then(|value: &HeaderValue| value.to_str().ok());
    let signed = text("x-amz-content-sha256") != Some("STREAMING-UNSIGNED-PAYLOAD-TRAILER");
    let declared = text("x-amz-decoded-content-length").and_then(|length| length.parse().ok());
    let fault = FramingFault::default();
    request.extensions_mut().insert(fault.clone());
    request.map(|body| {
        let data = BodyStream::new(body).try_filter_map(|frame| async move { Ok(frame.into_data().ok()) }).boxed();
        let framed = Framing::new(signed, declared).wrap(data, move |error| fault.set(error));
        Body::http_body_unsync(StreamBody::new(framed.map_ok(http_body::Frame::data)))
    })
}

/// An error answer of s3s with resource and request id, as problem+json where that was asked for.
async fn told_again(answer: Response<Body>, caller: &Caller) -> Response<Body> {
    let failed = answer.status().is_client_error() || answer.status().is_server_error();
    if !failed || answer.extensions().get::<Rendered>().is_some() {
        return answer;
    }
    let (parts, body) = answer.into_parts();
    match BodyExt::collect(body).await {
        Ok(body) => Failure::from_answer(parts.status, &parts.headers, &body.to_bytes()).into_answer(caller),
        Err(error) => {
            tracing::error!(request_id = %caller.request_id, %error, "s3s' error could not be read");
            Failure::kind(ErrorKind::Internal, "the error could not be read").into_answer(caller)
        }
    }
}

fn with_request_id(mut answer: Response<Body>, caller: &Caller) -> Response<Body> {
    if let Ok(id) = HeaderValue::from_str(&caller.request_id)
        && !id.is_empty()
    {
        answer.headers_mut().insert("x-amz-request-id", id);
    }
    if answer.status() == StatusCode::NO_CONTENT {
        answer.headers_mut().remove(header::CONTENT_TYPE);
    }
    answer
}

/// What an error answer to this request repeats of it.
pub(super) fn caller(uri: &Uri, headers: &HeaderMap) -> Caller {
    let problem_json = headers.get_all(header::ACCEPT).iter().any(|accept| {
        accept.to_str().is_ok_and(|accept| accept.to_ascii_lowercase().contains("application/problem+json"))
    });
    let request_id = headers.get(REQUEST_ID).and_then(|id| id.to_str().ok()).unwrap_or_default();
    Caller { problem_json, resource: uri.path().to_owned(), request_id: request_id.to_owned() }
}
