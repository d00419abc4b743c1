//! placeholder (drop)
#![allow(missing_docs)]

use http_body_util::BodyExt as _;

use super::Body;
use crate::model::{Details, ErrorKind};

#[derive(Debug, Clone)]
pub struct Problem {
    pub kind: ErrorKind,
    pub message: String,
    pub details: Details,
}

pub fn status(kind: ErrorKind) -> ::http::StatusCode {
    let code = match kind {
        ErrorKind::AccessDenied => 403,
        ErrorKind::NoSuchBucket | ErrorKind::NoSuchKey | ErrorKind::NoDataInRange => 404,
        ErrorKind::MethodNotAllowed => 405,
        ErrorKind::FormatNotPossible => 406,
        ErrorKind::ArrayChanged => 409,
        ErrorKind::PreconditionFailed | ErrorKind::ShapeMismatch => 412,
        ErrorKind::InvalidRange => 416,
        ErrorKind::CorruptData | ErrorKind::Internal => 500,
        ErrorKind::NotImplemented | ErrorKind::UnsupportedCodec | ErrorKind::UnsupportedDtype => 501,
        ErrorKind::UpstreamDenied | ErrorKind::UpstreamError => 502,
        ErrorKind::SlowDown => 503,
        ErrorKind::UpstreamTimeout => 504,
        _ => 400,
    };
    ::http::StatusCode::from_u16(code).unwrap_or_default()
}

pub fn render(
    problem: &Problem,
    accepts_problem_json: bool,
    resource: &str,
    request_id: &str,
) -> ::http::Response<Body> {
    let code = problem.kind.code();
    let (content_type, body) = if accepts_problem_json {
        let body = serde_json::json!({ "type": format!("urn:w4dx:error:{code}"), "code": code,
            "detail": problem.message, "requestId": request_id });
        ("application/problem+json", body.to_string())
    } else {
        let body = format!(
            "<Error><Code>{code}</Code><Message>{}</Message><Resource>{resource}</Resource><RequestId>{request_id}</RequestId></Error>",
            problem.message.replace('&', "&amp;").replace('<', "&lt;")
        );
        ("application/xml", body)
    };
    let mut answer = ::http::Response::new(
        http_body_util::Full::new(bytes::Bytes::from(body)).map_err(|never| match never {}).boxed_unsync(),
    );
    *answer.status_mut() = status(problem.kind);
    answer.headers_mut().insert("content-type", ::http::HeaderValue::from_static(content_type));
    answer
}
