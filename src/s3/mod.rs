//! The S3 protocol in front of the buckets: s3s verifies signatures and speaks XML, the rest is decided here.
//!
//! A request passes `guards` (what s3s' signature check lets through), s3s (signature, then dispatch), and then
//! either the route, which serves every GET and HEAD of an object (a slice through [`crate::http::slice`], else the
//! object itself), or one of the few operations. Plain reads go through the route and not through s3s' `GetObject`
//! because s3s answers 400 where S3 does not: to a malformed Range, to a list of entity tags, to an unreadable date.
//!
//! Invariants: no bucket is reached but through [`crate::auth::Policy`]; no upload is published before its length
//! and checksums are verified; every answer carries the request's id. Deliberately absent: limits, CORS and logging,
//! which wrap this service in `server`.

mod access;
mod edge;
mod failure;
mod framing;
mod guards;
mod listing;
mod operations;
mod read;
mod route;
pub mod target;
mod upload;
mod verify;

use std::sync::Arc;

use s3s::service::S3ServiceBuilder;

pub use edge::S3Edge;

use crate::http::Gateway;
use target::Domains;

/// The request header in which the layer outside hands over the request's id. A client's own value must have been
/// replaced by then.
pub const REQUEST_ID: &str = "x-w4dx-request-id";

/// The S3 service: a `tower::Service` that answers every request and never fails, to be used as a fallback behind
/// the gateway's own routes.
///
/// `domains` are the base domains of host-style requests; a host under none of them is path style.
pub fn service(gateway: Arc<Gateway>, domains: Vec<String>) -> S3Edge {
    let domains = Domains::new(domains);
    let mut builder = S3ServiceBuilder::new(operations::Operations(Arc::clone(&gateway)));
    builder.set_host(domains.clone());
    builder.set_auth(access::Keys(Arc::clone(&gateway)));
    builder.set_access(access::ServedOnly);
    builder.set_route(route::Reads { gateway, domains });
    S3Edge::new(builder.build())
}
