//! GetObject and HeadObject.
//!
//! One store request where possible: the object is looked at first only when a condition must be judged, and is
//! then read at exactly the version that was judged.

use bytes::Bytes;
use futures::stream::{BoxStream, StreamExt as _};
use http::header::{self, HeaderName};
use http::{HeaderMap, HeaderValue, Response, StatusCode};
use http_body_util::StreamBody;
use s3s::{Body, S3ErrorCode};

use super::failure::Failure;
use crate::auth::{Action, Principal};
use crate::http::Gateway;
use crate::http::byte_range::Asked;
use crate::http::conditions::{Conditions, Verdict};
use crate::http::wire_time;
use crate::model::{ByteRange, ErrorKind};
use crate::store::{Bucket, ObjectInfo, ObjectStream, StoreError};

/// What S3 says of an object without a Content-Type.
const DEFAULT_CONTENT_TYPE: &str = "binary/octet-stream";

/// How often an object may change between the look and the read before that is told to the client.
const ATTEMPTS: u32 = 3;

/// A read of one object.
pub(super) struct Read<'a> {
    pub(super) head: bool,
    pub(super) principal: Principal,
    pub(super) bucket: String,
    pub(super) key: String,
    pub(super) pairs: &'a [(String, String)],
    pub(super) headers: &'a HeaderMap,
    pub(super) request_id: &'a str,
}

/// Which bytes are wanted, and whether a partial answer was asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wanted {
    Whole,
    /// `partNumber=1`: the whole of an object that was not uploaded in parts, as a 206.
    FirstPart,
    Range(Asked),
}

/// Answers a read.
pub(super) async fn answer(gateway: &Gateway, read: &Read<'_>) -> Result<Response<Body>, Failure> {
    let allowed = gateway.policy.authorise(&read.principal, Action::Read, &gateway.buckets, &read.bucket, &read.key)?;
    let overrides = overrides(read)?;
    let wanted = wanted(read)?;
    let conditions = Conditions::of(read.headers);
    let mut attempts_left = ATTEMPTS;
    let outcome = loop {
        attempts_left -= 1;
        match attempt(allowed.bucket(), read, wanted, &conditions).await {
            Err(Stop::Store(StoreError::Changed { .. })) if attempts_left > 0 => {}
            outcome => break outcome,
        }
    };
    match outcome {
        Ok(mut answer) => {
            if answer.status().is_success() {
                answer.headers_mut().extend(overrides);
            }
            Ok(answer)
        }
        Err(Stop::Store(StoreError::NotFound { key })) => {
            if gateway.policy.may_list(&read.principal, &gateway.buckets, &read.bucket, &read.key) {
                Err(StoreError::NotFound { key }.into())
            } else {
                Err(Failure::kind(ErrorKind::AccessDenied, "access denied"))
            }
        }
        Err(Stop::Store(error)) => Err(error.into()),
        Err(Stop::Refused(failure)) => Err(failure),
    }
}

/// Why an attempt gave no answer.
enum Stop {
    Store(StoreError),
    Refused(Failure),
}

impl From<StoreError> for Stop {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

async fn attempt(
    bucket: &Bucket,
    read: &Read<'_>,
    mut wanted: Wanted,
    conditions: &Conditions,
) -> Result<Response<Body>, Stop> {
    let mut judged = None;
    let never_satisfied = wanted == Wanted::Range(Asked::Suffix(0));
    if read.head || never_satisfied || conditions.need_a_look() {
        let info = bucket.store.head(&read.key).await?;
        match conditions.judge(Some(info.version.as_str()), info.last_modified) {
            Verdict::Proceed => {}
            Verdict::NotModified => return Ok(not_modified(&info)),
            Verdict::Failed => return Err(StoreError::PreconditionFailed { key: read.key.clone() }.into()),
        }
        if matches!(wanted, Wanted::Range(_))
            && !conditions.range_applies(Some(info.version.as_str()), info.last_modified)
        {
            wanted = Wanted::Whole;
        }
        judged = Some(info);
    }
    let unsatisfiable = |size| StoreError::RangeNotSatisfiable { key: read.key.clone(), size };
    let range = match wanted {
        Wanted::Whole | Wanted::FirstPart => ByteRange::Whole,
        Wanted::Range(asked) => match (asked.for_store(), &judged) {
            (Some(range), _) => range,
            (None, Some(info)) => return Err(unsatisfiable(info.size).into()),
            (None, None) => return Err(unsatisfiable(0).into()),
        },
    };
    if read.head {
        let Some(info) = judged else { return Err(unsatisfiable(0).into()) };
        let bytes = match wanted {
            Wanted::Whole | Wanted::FirstPart => 0..info.size,
            Wanted::Range(asked) => asked.within(info.size).ok_or_else(|| unsatisfiable(info.size))?,
        };
        refuse_unknown_parts(wanted, &info)?;
        return Ok(found(&info, bytes.start, bytes.end - bytes.start, wanted, Body::empty()));
    }
    let version = judged.as_ref().map(|info| &info.version);
    let ObjectStream { info, start, len, body } = bucket.store.stream(&read.key, range, version).await?;
    refuse_unknown_parts(wanted, &info)?;
    let body = Body::http_body_unsync(StreamBody::new(
        exactly(body, len, read).map(|piece| piece.map(http_body::Frame::data)),
    ));
    Ok(found(&info, start, len, wanted, body))
}

/// The borders of an upload's parts are not known here: better no answer than the wrong bytes.
fn refuse_unknown_parts(wanted: Wanted, info: &ObjectInfo) -> Result<(), Stop> {
    let in_parts = info
        .version
        .as_str()
        .rsplit_once('-')
        .is_some_and(|(_, parts)| !parts.is_empty() && parts.bytes().all(|byte| byte.is_ascii_digit()));
    if wanted == Wanted::FirstPart && in_parts {
        let message = "partNumber is not implemented for objects that were uploaded in parts";
        return Err(Stop::Refused(Failure::not_implemented(message)));
    }
    Ok(())
}

/// A body of exactly the announced length, or an error: an early end must abort the connection, never look whole.
fn exactly(
    body: BoxStream<'static, Result<Bytes, StoreError>>,
    len: u64,
    read: &Read<'_>,
) -> BoxStream<'static, Result<Bytes, std::io::Error>> {
    let name = format!("{}/{}", read.bucket, read.key);
    let state = Some((body, len, name, read.request_id.to_owned()));
    futures::stream::unfold(state, |state| async move {
        let (mut body, left, name, request_id) = state?;
        let problem = match body.next().await {
            Some(Ok(piece)) => match left.checked_sub(piece.len() as u64) {
                Some(left) => return Some((Ok(piece), Some((body, left, name, request_id)))),
                None => "the store sent more bytes than it announced".to_owned(),
            },
            Some(Err(error)) => error.to_string(),
            None if left == 0 => return None,
            None => format!("the store's body ended {left} bytes early"),
        };
        tracing::warn!(%request_id, object = %name, %problem, "an object's body failed after its headers were sent");
        Some((Err(std::io::Error::other(problem)), None))
    })
    .boxed()
}

/// 200 or 206 with everything that is known of the object.
fn found(info: &ObjectInfo, start: u64, len: u64, wanted: Wanted, body: Body) -> Response<Body> {
    let mut answer = Response::new(body);
    let headers = answer.headers_mut();
    describe(info, headers);
    headers.insert(header::ACCEPT_RANGES, HeaderValue::from_static("bytes"));
    headers.insert(header::CONTENT_LENGTH, HeaderValue::from(len));
    // An empty range cannot be written as a Content-Range; it only arises on an empty object.
    if let (Wanted::Range(_) | Wanted::FirstPart, Some(last)) = (wanted, (start + len).checked_sub(1))
        && len > 0
    {
        insert(headers, header::CONTENT_RANGE, &format!("bytes {start}-{last}/{}", info.size));
        *answer.status_mut() = StatusCode::PARTIAL_CONTENT;
    }
    answer
}

fn describe(info: &ObjectInfo, headers: &mut HeaderMap) {
    let content_type = info.content_type.as_deref().unwrap_or(DEFAULT_CONTENT_TYPE);
    insert(headers, header::CONTENT_TYPE, content_type);
    for (name, value) in &info.headers {
        if let Ok(name) = HeaderName::from_bytes(name.as_bytes()) {
            insert(headers, name, value);
        }
    }
    insert(headers, header::ETAG, &format!("\"{}\"", info.version));
    insert(headers, header::LAST_MODIFIED, &httpdate::fmt_http_date(wire_time(info.last_modified)));
}

/// 304 with what RFC 9110 wants repeated.
fn not_modified(info: &ObjectInfo) -> Response<Body> {
    let mut all = HeaderMap::new();
    describe(info, &mut all);
    let mut answer = Response::new(Body::empty());
    *answer.status_mut() = StatusCode::NOT_MODIFIED;
    for name in [header::ETAG, header::LAST_MODIFIED, header::CACHE_CONTROL, header::EXPIRES] {
        if let Some(value) = all.remove(&name) {
            answer.headers_mut().insert(name, value);
        }
    }
    answer
}

/// Sets a header, unless the value cannot be one.
fn insert(headers: &mut HeaderMap, name: HeaderName, value: &str) {
    if let Ok(value) = HeaderValue::from_bytes(value.as_bytes()) {
        headers.insert(name, value);
    }
}

/// The headers that the query overrides. They are honoured only under a signature: else anyone could make a link to
/// somebody's bucket that answers with any Content-Type.
fn overrides(read: &Read<'_>) -> Result<HeaderMap, Failure> {
    let mut headers = HeaderMap::new();
    for (name, value) in read.pairs {
        let name = match name.as_str() {
            "response-content-type" => header::CONTENT_TYPE,
            "response-content-language" => header::CONTENT_LANGUAGE,
            "response-expires" => header::EXPIRES,
            "response-cache-control" => header::CACHE_CONTROL,
            "response-content-disposition" => header::CONTENT_DISPOSITION,
            "response-content-encoding" => header::CONTENT_ENCODING,
            _ => continue,
        };
        if read.principal == Principal::Anonymous {
            let message = "response headers cannot be overridden without a signature";
            return Err(Failure::kind(ErrorKind::InvalidRequest, message));
        }
        let value = HeaderValue::from_bytes(value.as_bytes()).map_err(|_| {
            Failure::code(S3ErrorCode::InvalidArgument, format!("response-{name} cannot be a header value"))
        })?;
        headers.insert(name, value);
    }
    Ok(headers)
}

/// Reads Range, `partNumber`, and what is not implemented.
fn wanted(read: &Read<'_>) -> Result<Wanted, Failure> {
    let value_of = |name: &str| read.pairs.iter().find(|(given, _)| given == name).map(|(_, value)| value.as_str());
    if value_of("versionId").is_some_and(|version| version != "null") {
        return Err(Failure::not_implemented("versions of objects are not implemented"));
    }
    if read.headers.keys().any(|name| name.as_str().starts_with("x-amz-server-side-encryption-customer-")) {
        return Err(Failure::not_implemented("server-side encryption with a customer's key is not implemented"));
    }
    let range = read.headers.get(header::RANGE).and_then(|value| value.to_str().ok()).and_then(Asked::parse);
    match (value_of("partNumber"), range) {
        (None, None) => Ok(Wanted::Whole),
        (None, Some(range)) => Ok(Wanted::Range(range)),
        (Some(_), Some(_)) => {
            Err(Failure::kind(ErrorKind::InvalidRequest, "Range and partNumber cannot be used together"))
        }
        (Some(part), None) => match part.parse::<u16>() {
            Ok(1) => Ok(Wanted::FirstPart),
            Ok(2..=10_000) => Err(Failure::code_with_status(
                "InvalidPartNumber",
                StatusCode::RANGE_NOT_SATISFIABLE,
                "the object has no such part",
            )),
            Ok(_) | Err(_) => {
                Err(Failure::code(S3ErrorCode::InvalidArgument, "partNumber must be a number from 1 to 10000"))
            }
        },
    }
}
