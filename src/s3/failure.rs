//! How an S3 request fails on the wire: the gateway's own kinds, and the codes that only S3 clients know.
//!
//! Status and code of an [`ErrorKind`] come from `http::error`, the only table of them. What a store says of the
//! gateway's own credential or connection goes to the log, never to the client.

use std::borrow::Cow;

use bytes::Bytes;
use http::header::{self, HeaderName};
use http::{HeaderMap, HeaderValue, Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use s3s::{S3Error, S3ErrorCode};

use super::target::TargetError;
use crate::auth::AuthError;
use crate::http::error::{Problem, render, status};
use crate::model::{Details, ErrorKind, Fault};
use crate::store::StoreError;

/// Marks an answer whose body is already final, so that the edge does not render it again.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rendered;

/// What an error answer repeats of its request.
#[derive(Debug, Clone)]
pub(super) struct Caller {
    pub(super) problem_json: bool,
    pub(super) resource: String,
    pub(super) request_id: String,
}

/// A request that failed.
#[derive(Debug, Clone)]
pub(super) struct Failure {
    what: Box<What>,
    headers: Vec<(HeaderName, HeaderValue)>,
}

#[derive(Debug, Clone)]
enum What {
    Kind { kind: ErrorKind, message: Cow<'static, str>, details: Details },
    Code { code: Cow<'static, str>, status: StatusCode, message: Cow<'static, str> },
}

impl Failure {
    /// A failure of one of the gateway's kinds.
    pub(super) fn kind(kind: ErrorKind, message: impl Into<Cow<'static, str>>) -> Self {
        Self {
            what: Box::new(What::Kind { kind, message: message.into(), details: Details::default() }),
            headers: Vec::new(),
        }
    }

    /// A failure that only S3 has a code for.
    pub(super) fn code(code: S3ErrorCode, message: impl Into<Cow<'static, str>>) -> Self {
        let status = code.status_code().unwrap_or(StatusCode::BAD_REQUEST);
        Self::coded(Cow::Owned(code.as_str().to_owned()), status, message.into())
    }

    /// A failure by a code that s3s does not know the status of.
    pub(super) fn code_with_status(code: &'static str, status: StatusCode, message: &'static str) -> Self {
        Self::coded(Cow::Borrowed(code), status, Cow::Borrowed(message))
    }

    /// A failure by code and status. A code of the gateway's own table becomes that kind.
    fn coded(code: Cow<'static, str>, code_status: StatusCode, message: Cow<'static, str>) -> Self {
        let kind = ErrorKind::ALL.iter().copied().find(|kind| kind.code() == code && status(*kind) == code_status);
        match kind {
            Some(kind) => Self::kind(kind, message),
            None => Self { what: Box::new(What::Code { code, status: code_status, message }), headers: Vec::new() },
        }
    }

    /// What the gateway does not do.
    pub(super) fn not_implemented(what: impl Into<Cow<'static, str>>) -> Self {
        Self::kind(ErrorKind::NotImplemented, what)
    }

    /// With one more header on the answer.
    pub(super) fn with_header(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.headers.push((name, value));
        self
    }

    /// Reads an error answer that s3s rendered.
    pub(super) fn from_answer(code_status: StatusCode, headers: &HeaderMap, body: &[u8]) -> Self {
        let text = String::from_utf8_lossy(body);
        let code = element(&text, "Code");
        let message = element(&text, "Message").map(Cow::Owned);
        let code = code.unwrap_or_else(|| "InternalError".to_owned());
        let message =
            message.or_else(|| words(&code).map(Cow::Borrowed)).unwrap_or(Cow::Borrowed("the request failed"));
        let mut failure = Self::coded(Cow::Owned(code), code_status, message);
        let replaced = [header::CONTENT_TYPE, header::CONTENT_LENGTH, header::TRANSFER_ENCODING];
        failure.headers = headers
            .iter()
            .filter(|(name, _)| !replaced.contains(name))
            .map(|(name, value)| (name.clone(), value.clone()))
            .collect();
        failure
    }

    /// The answer, as XML or problem+json.
    pub(super) fn into_answer(self, caller: &Caller) -> Response<s3s::Body> {
        let mut answer = match *self.what {
            What::Kind { kind, message, details } => {
                let message = message.into_owned();
                let problem = Problem::new(kind, message).at(details);
                render(&problem, caller.problem_json, &caller.resource, &caller.request_id)
                    .map(s3s::Body::http_body_unsync)
            }
            What::Code { code, status, message } => {
                let (content_type, body) = if caller.problem_json {
                    ("application/problem+json", problem_json(&code, status, &message, caller))
                } else {
                    ("application/xml", xml(&code, &message, caller))
                };
                let body = Full::new(Bytes::from(body)).map_err(|never| match never {});
                let mut answer = Response::new(s3s::Body::http_body_unsync::<_>(body.map_err(no_error)));
                *answer.status_mut() = status;
                answer.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
                answer
            }
        };
        answer.headers_mut().extend(self.headers);
        answer.extensions_mut().insert(Rendered);
        answer
    }
}

/// `s3s::Body` wants an error type that it can box.
fn no_error(never: std::convert::Infallible) -> std::io::Error {
    match never {}
}

impl From<Failure> for S3Error {
    fn from(failure: Failure) -> Self {
        let (code, code_status, message) = match *failure.what {
            What::Kind { kind, message, .. } => (Cow::Borrowed(kind.code()), status(kind), message),
            What::Code { code, status, message } => (code, status, message),
        };
        let code = S3ErrorCode::from_bytes(code.as_bytes()).unwrap_or(S3ErrorCode::InternalError);
        let mut error = S3Error::with_message(code, message);
        error.set_status_code(code_status);
        error.set_headers(failure.headers.into_iter().collect());
        error
    }
}

impl From<AuthError> for Failure {
    fn from(error: AuthError) -> Self {
        Self::kind(error.kind(), error.to_string())
    }
}

impl From<TargetError> for Failure {
    fn from(error: TargetError) -> Self {
        let code = match error {
            TargetError::Path => S3ErrorCode::InvalidURI,
            TargetError::Host => S3ErrorCode::InvalidRequest,
            TargetError::BucketName => S3ErrorCode::InvalidBucketName,
            TargetError::KeyTooLong => S3ErrorCode::KeyTooLongError,
        };
        Self::code(code, error.to_string())
    }
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        let message: Cow<'static, str> = match &error {
            StoreError::Denied { .. } => "the store refused the gateway's own credential".into(),
            StoreError::Interrupted { .. } | StoreError::Failed { .. } => "the store failed".into(),
            StoreError::Truncated { key, .. } => format!("the store ended the body of `{key}` early").into(),
            StoreError::NotFound { .. }
            | StoreError::Changed { .. }
            | StoreError::RangeNotSatisfiable { .. }
            | StoreError::PreconditionFailed { .. }
            | StoreError::Timeout { .. }
            | StoreError::Throttled
            | StoreError::InvalidKey { .. }
            | StoreError::BadDigest { .. }
            | StoreError::RequestBody { .. }
            | StoreError::Unsupported { .. } => error.to_string().into(),
        };
        match error.kind() {
            ErrorKind::UpstreamDenied | ErrorKind::UpstreamError | ErrorKind::UpstreamTimeout => {
                tracing::warn!(error = %error, "a store operation failed");
            }
            _ => tracing::debug!(error = %error, "a store operation did not succeed"),
        }
        let failure = Self::kind(error.kind(), message);
        match error {
            StoreError::RangeNotSatisfiable { size, .. } => failure.with_header(
                header::CONTENT_RANGE,
                HeaderValue::from_str(&format!("bytes */{size}")).unwrap_or(HeaderValue::from_static("bytes */0")),
            ),
            StoreError::NotFound { .. }
            | StoreError::Denied { .. }
            | StoreError::Changed { .. }
            | StoreError::PreconditionFailed { .. }
            | StoreError::Truncated { .. }
            | StoreError::Timeout { .. }
            | StoreError::Throttled
            | StoreError::Interrupted { .. }
            | StoreError::Failed { .. }
            | StoreError::InvalidKey { .. }
            | StoreError::BadDigest { .. }
            | StoreError::RequestBody { .. }
            | StoreError::Unsupported { .. } => failure,
        }
    }
}

/// Messages for the codes that s3s raises without one.
fn words(code: &str) -> Option<&'static str> {
    Some(match code {
        "SignatureDoesNotMatch" => {
            "the signature does not match the request; note that the percent-encoded form of the query is signed \
             (slice=0%3A4%2C%3A, not slice=0:4,:)"
        }
        "InvalidAccessKeyId" => "the access key is not known here",
        "AccessDenied" => "access denied",
        "InvalidBucketName" => "the bucket name is not valid",
        "InvalidURI" => "the path or query cannot be decoded",
        "KeyTooLongError" => "the key is longer than 1,024 bytes",
        "MissingContentLength" => "the Content-Length header is missing",
        "MethodNotAllowed" => "the method is not allowed here",
        _ => return None,
    })
}

/// The text of the first `<name>` element.
fn element(xml: &str, name: &str) -> Option<String> {
    let (_, rest) = xml.split_once(&format!("<{name}>"))?;
    let (text, _) = rest.split_once(&format!("</{name}>"))?;
    // `&amp;` last: what it yields must not be read as another entity.
    let plain = [("&lt;", "<"), ("&gt;", ">"), ("&quot;", "\""), ("&apos;", "'"), ("&amp;", "&")]
        .iter()
        .fold(text.to_owned(), |text, (entity, plain)| text.replace(entity, plain));
    Some(plain)
}

fn xml(code: &str, message: &str, caller: &Caller) -> String {
    format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?><Error><Code>{}</Code><Message>{}</Message><Resource>{}</Resource>\
         <RequestId>{}</RequestId></Error>",
        escape(code),
        escape(message),
        escape(&caller.resource),
        escape(&caller.request_id)
    )
}

/// Text for XML 1.0: markup escaped, characters that it cannot hold replaced.
fn escape(text: &str) -> String {
    text.chars().fold(String::with_capacity(text.len()), |mut escaped, character| {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\t' | '\n' | '\r' => escaped.push(character),
            '\u{0}'..='\u{1f}' | '\u{fffe}' | '\u{ffff}' => escaped.push('\u{fffd}'),
            _ => escaped.push(character),
        }
        escaped
    })
}

fn problem_json(code: &str, status: StatusCode, message: &str, caller: &Caller) -> String {
    serde_json::json!({
        "type": format!("urn:w4dx:error:{code}"),
        "title": code,
        "status": status.as_u16(),
        "detail": message,
        "instance": caller.resource,
        "code": code,
        "requestId": caller.request_id,
    })
    .to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn caller(problem_json: bool) -> Caller {
        Caller { problem_json, resource: "/b/a&b".into(), request_id: "r-1".into() }
    }

    async fn text(answer: Response<s3s::Body>) -> String {
        let bytes = answer.into_body().collect().await.unwrap().to_bytes();
        String::from_utf8(bytes.to_vec()).unwrap()
    }

    #[tokio::test]
    async fn what_s3s_says_is_told_again_with_resource_and_request_id() {
        let body = b"<?xml?><Error><Code>RequestTimeTooSkewed</Code><Message>a &lt; b &amp;lt;</Message></Error>";
        let failure = Failure::from_answer(StatusCode::FORBIDDEN, &HeaderMap::new(), body);
        let answer = failure.clone().into_answer(&caller(false));
        assert_eq!(answer.status(), 403);
        assert_eq!(
            text(answer).await,
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?><Error><Code>RequestTimeTooSkewed</Code>\
             <Message>a &lt; b &amp;lt;</Message><Resource>/b/a&amp;b</Resource><RequestId>r-1</RequestId></Error>"
        );
        let answer = failure.into_answer(&caller(true));
        assert_eq!(answer.headers()["content-type"], "application/problem+json");
        let json: serde_json::Value = serde_json::from_str(&text(answer).await).unwrap();
        assert_eq!(json["type"], "urn:w4dx:error:RequestTimeTooSkewed");
        assert_eq!((&json["status"], &json["detail"]), (&403.into(), &"a < b &lt;".into()));
    }

    #[tokio::test]
    async fn a_bare_signature_error_explains_the_encoding() {
        let body = b"<Error><Code>SignatureDoesNotMatch</Code></Error>";
        let failure = Failure::from_answer(StatusCode::FORBIDDEN, &HeaderMap::new(), body);
        assert!(text(failure.into_answer(&caller(false))).await.contains("slice=0%3A4%2C%3A"));
    }

    #[tokio::test]
    async fn the_store_s_words_about_the_gateway_stay_in_the_log() {
        for error in [
            StoreError::Denied { operation: "get", key: "k".into(), reason: "AKIA-SECRET".into() },
            StoreError::Failed { operation: "get", key: "k".into(), reason: "host 10.0.0.7".into() },
        ] {
            let answer = Failure::from(error).into_answer(&caller(false));
            assert_eq!(answer.status(), 502);
            let text = text(answer).await;
            assert!(!text.contains("AKIA") && !text.contains("10.0.0.7"), "{text}");
        }
    }

    #[test]
    fn who_is_to_slow_down_is_told_once_for_how_long() {
        let refused = Failure::from(StoreError::Throttled);
        let again = [HeaderValue::from_static("1")];
        let told = |answer: &Response<s3s::Body>| {
            answer.headers().get_all(header::RETRY_AFTER).iter().cloned().collect::<Vec<_>>()
        };
        for as_json in [false, true] {
            let answer = refused.clone().into_answer(&caller(as_json));
            assert_eq!((answer.status().as_u16(), &told(&answer)[..]), (503, &again[..]));
        }
        // The same by the way of s3s, which renders it in between.
        let error = S3Error::from(refused);
        let headers = error.headers().cloned().unwrap_or_default();
        let body = b"<Error><Code>SlowDown</Code></Error>";
        let answer = Failure::from_answer(StatusCode::SERVICE_UNAVAILABLE, &headers, body).into_answer(&caller(false));
        assert_eq!(told(&answer), again);
    }

    #[test]
    fn store_errors_keep_their_kind_in_code_and_status() {
        let check = |error: StoreError, status: u16, code: &str| {
            let error = S3Error::from(Failure::from(error));
            assert_eq!((error.status_code().unwrap().as_u16(), error.code().as_str()), (status, code));
        };
        let key = || "k".to_owned();
        check(StoreError::NotFound { key: key() }, 404, "NoSuchKey");
        check(StoreError::PreconditionFailed { key: key() }, 412, "PreconditionFailed");
        check(StoreError::Timeout { key: key() }, 504, "UpstreamTimeout");
        check(StoreError::Throttled, 503, "SlowDown");
        check(StoreError::InvalidKey { key: key(), reason: "r".into() }, 400, "InvalidArgument");
        check(StoreError::BadDigest { key: key(), reason: "r".into() }, 400, "BadDigest");
        check(StoreError::Unsupported { operation: "put" }, 501, "NotImplemented");
        let unsatisfiable = Failure::from(StoreError::RangeNotSatisfiable { key: key(), size: 7 });
        assert_eq!(unsatisfiable.headers, [(header::CONTENT_RANGE, HeaderValue::from_static("bytes */7"))]);
    }
}
