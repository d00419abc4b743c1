//! placeholder (drop): the least of `http` that `s3` needs to compile and to be tested.
#![allow(missing_docs)]

pub mod error;
pub mod slice;

use crate::auth::{Policy, Principal};
use crate::store::Buckets;

pub type Body = http_body_util::combinators::UnsyncBoxBody<bytes::Bytes, std::io::Error>;

#[derive(Debug)]
pub struct Gateway {
    pub buckets: Buckets,
    pub policy: Policy,
}

impl Gateway {
    pub fn invalidate(&self, _bucket: &str, _key: &str) {}
}

#[derive(Debug)]
pub struct SliceRequest {
    pub method: ::http::Method,
    pub principal: Principal,
    pub bucket: String,
    pub key: String,
    pub pairs: Vec<(String, String)>,
    pub headers: ::http::HeaderMap,
    pub request_id: String,
}
