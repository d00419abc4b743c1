//! placeholder (drop): echoes what it was asked.
#![allow(missing_docs)]

use std::sync::Arc;

use http_body_util::BodyExt as _;

use super::{Body, Gateway, SliceRequest};

pub async fn answer(_gateway: Arc<Gateway>, request: SliceRequest) -> ::http::Response<Body> {
    let echo = format!("{} {} {} {:?}", request.method, request.bucket, request.key, request.pairs);
    ::http::Response::new(
        http_body_util::Full::new(bytes::Bytes::from(echo)).map_err(|never| match never {}).boxed_unsync(),
    )
}
