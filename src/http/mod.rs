//! The edge: slices over HTTP. Status codes stand only in [`error`]'s table.
//!
//! [`mod@slice`] is the table of contents: a request's path from its target to its answer, one call a stage. Signatures
//! are verified before (`s3`); everything that a request reads is authorised here.

mod bands;
pub mod batch;
pub(crate) mod byte_range;
pub(crate) mod conditions;
mod contents;
mod coordinates;
mod describe;
pub mod docs;
mod dry;
mod elements;
pub mod error;
mod etag;
mod gateway;
pub(crate) mod headers;
mod made;
mod predicate;
mod responder;
mod samples;
mod selected;
pub mod slice;
mod target;

use std::time::{Duration, SystemTime};

pub use gateway::{Gateway, GatewaySettings};

use crate::auth::Principal;

/// A response body. An error in it aborts the connection or resets the stream.
pub type Body = http_body_util::combinators::UnsyncBoxBody<bytes::Bytes, std::io::Error>;

/// A verified request about an array.
#[derive(Debug)]
pub struct SliceRequest {
    /// GET or HEAD; POST for a batch.
    pub method: ::http::Method,
    /// Who asks.
    pub principal: Principal,
    /// The bucket.
    pub bucket: String,
    /// The key, decoded once.
    pub key: String,
    /// The query's pairs, decoded, in order.
    pub pairs: Vec<(String, String)>,
    /// All headers.
    pub headers: ::http::HeaderMap,
    /// The request's id, for errors and logs.
    pub request_id: String,
}

tokio::task_local! {
    /// What a request turned out to be, for metrics: set by whoever knows, read by the outermost layer.
    pub(crate) static KIND: std::cell::Cell<crate::metrics::RequestKind>;
}

/// Says what the current request turned out to be; outside of a request it does nothing.
pub(crate) fn set_kind(kind: crate::metrics::RequestKind) {
    // Only tests call a route without the layer that would count it.
    let _ = KIND.try_with(|cell| cell.set(kind));
}

/// A body of these bytes.
pub(crate) fn full(bytes: impl Into<bytes::Bytes>) -> Body {
    use http_body_util::BodyExt as _;
    http_body_util::Full::new(bytes.into()).map_err(|never| match never {}).boxed_unsync()
}

/// A time as the wire can hold it: whole seconds from 1970 to 9999. Files may bear any date.
pub(crate) fn wire_time(time: SystemTime) -> SystemTime {
    const END_OF_9999: u64 = 253_402_300_799;
    let seconds = time.duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs());
    SystemTime::UNIX_EPOCH + Duration::from_secs(seconds.min(END_OF_9999))
}
