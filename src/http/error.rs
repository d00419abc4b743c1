//! Failures on the wire: the one table from kind to status, and the two renderings.

use ::http::header::{self, HeaderValue};
use ::http::{Response, StatusCode};
use serde_json::json;

use super::{Body, full};
use crate::model::{Details, ErrorKind, Fault};

/// A failure as a client is told it.
#[derive(Debug, Clone)]
pub struct Problem {
    /// What went wrong.
    pub kind: ErrorKind,
    /// The fact with its values.
    pub message: String,
    /// Where.
    pub details: Box<Details>,
    /// What goes to the log beside the message: the whole chain of causes.
    pub cause: String,
}

impl Problem {
    /// A failure without a place.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        let message = message.into();
        Self { kind, cause: message.clone(), message, details: Box::default() }
    }

    /// The same with its place.
    #[must_use]
    pub fn at(self, details: Details) -> Self {
        Self { details: Box::new(details), ..self }
    }

    /// The same about a field of a batch, if it has a name and no closer place is known.
    #[must_use]
    pub fn in_field(mut self, field: Option<&str>) -> Self {
        if self.details.field.is_none() {
            self.details.field = field.map(str::to_owned);
        }
        self
    }

    /// The same about an item of a batch, in a field if that has a name.
    #[must_use]
    pub fn in_item(mut self, item: usize, field: Option<&str>) -> Self {
        self.details.item = Some(item);
        self.details.field = field.map(str::to_owned);
        let place = field.map_or_else(String::new, |field| format!(" of field `{field}`"));
        self.message = format!("item {item}{place}: {}", self.message);
        self
    }

    /// The same about an array, unless a place closer to the failure is known.
    #[must_use]
    pub fn about(mut self, array: &str) -> Self {
        self.details.array.get_or_insert_with(|| array.to_owned());
        self
    }
}

impl<F: Fault> From<F> for Problem {
    fn from(fault: F) -> Self {
        let mut cause = format!("{fault:?}");
        cause.truncate(cause.floor_char_boundary(4000));
        Self { kind: fault.kind(), message: fault.to_string(), details: Box::new(fault.details()), cause }
    }
}

/// The status of a kind. The only such table.
pub fn status(kind: ErrorKind) -> StatusCode {
    match kind {
        ErrorKind::InvalidSelection
        | ErrorKind::AmbiguousSelection
        | ErrorKind::AmbiguousValues
        | ErrorKind::InvalidParameter
        | ErrorKind::IndexOutOfRange
        | ErrorKind::SliceTooLarge
        | ErrorKind::NotAnArray
        | ErrorKind::InvalidRequest
        | ErrorKind::InvalidKey
        | ErrorKind::BadDigest
        | ErrorKind::RequestTimeout => StatusCode::BAD_REQUEST,
        ErrorKind::AccessDenied => StatusCode::FORBIDDEN,
        ErrorKind::NoSuchBucket | ErrorKind::NoSuchKey | ErrorKind::NoDataInRange => StatusCode::NOT_FOUND,
        ErrorKind::MethodNotAllowed => StatusCode::METHOD_NOT_ALLOWED,
        ErrorKind::FormatNotPossible => StatusCode::NOT_ACCEPTABLE,
        ErrorKind::ArrayChanged => StatusCode::CONFLICT,
        ErrorKind::PreconditionFailed | ErrorKind::ShapeMismatch => StatusCode::PRECONDITION_FAILED,
        ErrorKind::InvalidRange => StatusCode::RANGE_NOT_SATISFIABLE,
        ErrorKind::CorruptData | ErrorKind::Internal => StatusCode::INTERNAL_SERVER_ERROR,
        ErrorKind::NotImplemented | ErrorKind::UnsupportedCodec | ErrorKind::UnsupportedDtype => {
            StatusCode::NOT_IMPLEMENTED
        }
        ErrorKind::UpstreamDenied | ErrorKind::UpstreamError => StatusCode::BAD_GATEWAY,
        ErrorKind::SlowDown => StatusCode::SERVICE_UNAVAILABLE,
        ErrorKind::UpstreamTimeout => StatusCode::GATEWAY_TIMEOUT,
    }
}

/// Whether an `Accept` header asks for problem+json.
pub fn accepts_problem_json(headers: &::http::HeaderMap) -> bool {
    headers
        .get_all(header::ACCEPT)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .any(|range| {
            let range = range.split(';').next().unwrap_or("").trim();
            range.eq_ignore_ascii_case("application/problem+json")
        })
}

/// The response for a failure: XML as S3 has it, or problem+json (RFC 9457).
pub fn render(problem: &Problem, problem_json: bool, resource: &str, request_id: &str) -> Response<Body> {
    let (content_type, body) = if problem_json {
        ("application/problem+json", problem_body(problem, resource, request_id))
    } else {
        ("application/xml", xml_body(problem, resource, request_id))
    };
    let mut response = Response::new(full(body));
    *response.status_mut() = status(problem.kind);
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    headers.insert(header::VARY, HeaderValue::from_static("Accept, Origin"));
    if problem.kind == ErrorKind::SlowDown {
        headers.insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
    }
    response
}

/// What is known beyond the message, by the names that both renderings use.
fn fields(details: &Details) -> Vec<(&'static str, String)> {
    let Details { parameter, position, dimension, valid, array, chunk, item, field } = details;
    [
        ("Parameter", parameter.clone()),
        ("Position", position.map(|p| p.to_string())),
        ("Dimension", dimension.clone()),
        ("Valid", valid.clone()),
        ("Array", array.clone()),
        ("Chunk", chunk.clone()),
        ("Item", item.map(|item| item.to_string())),
        ("Field", field.clone()),
    ]
    .into_iter()
    .filter_map(|(name, value)| value.map(|value| (name, value)))
    .collect()
}

/// A failure as a problem+json document.
pub(super) fn problem_body(problem: &Problem, resource: &str, request_id: &str) -> String {
    let code = problem.kind.code();
    let mut body = json!({
        "type": format!("urn:w4dx:error:{code}"),
        "title": code,
        "status": status(problem.kind).as_u16(),
        "detail": problem.message,
        "code": code,
        "resource": resource,
        "request_id": request_id,
        "v": 1,
    });
    if let Some(object) = body.as_object_mut() {
        for (name, value) in fields(&problem.details) {
            let value = match name {
                "Position" => json!(problem.details.position),
                "Item" => json!(problem.details.item),
                _ => json!(value),
            };
            object.insert(name.to_lowercase(), value);
        }
    }
    body.to_string()
}

fn xml_body(problem: &Problem, resource: &str, request_id: &str) -> String {
    let mut body = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<Error>");
    let mut element = |name: &str, value: &str| {
        body.push_str(&format!("<{name}>{}</{name}>", escape(value)));
    };
    element("Code", problem.kind.code());
    element("Message", &problem.message);
    element("Resource", resource);
    element("RequestId", request_id);
    for (name, value) in fields(&problem.details) {
        element(name, &value);
    }
    body.push_str("</Error>");
    body
}

/// Text as XML 1.0 can hold it: markup escaped, characters that no XML document may contain replaced.
fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\t' | '\n' => escaped.push(c),
            c if c < ' ' || matches!(c, '\u{fffe}' | '\u{ffff}') => escaped.push('\u{fffd}'),
            c => escaped.push(c),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hostile_text_stays_text() {
        let problem = Problem::new(ErrorKind::InvalidParameter, "a <b> & \u{1}\"");
        let body = xml_body(&problem, "/b/k", "id");
        assert!(body.contains("<Message>a &lt;b&gt; &amp; \u{fffd}&quot;</Message>"), "{body}");
    }

    #[test]
    fn every_code_is_told_once() {
        let mut codes: Vec<_> = ErrorKind::ALL.iter().map(|kind| kind.code()).collect();
        codes.sort_unstable();
        codes.dedup();
        assert_eq!(codes.len(), ErrorKind::ALL.len());
    }
}
