//! The headers of an array answer.

use ::http::HeaderMap;
use ::http::header::{self, HeaderName, HeaderValue};
use std::time::SystemTime;

use super::wire_time;
use crate::auth::Principal;
use crate::dataset::Array;
use crate::model::DType;

/// Names of ours that browsers may read. `server` lists them in Access-Control-Expose-Headers.
pub(crate) const EXPOSED: &[&str] = &[
    "x-w4dx-shape",
    "x-w4dx-dims",
    "x-w4dx-dtype",
    "x-w4dx-layout",
    "x-w4dx-source-etag",
    "x-w4dx-protocol",
    "x-request-id",
    "x-amz-request-id",
    "x-amz-meta-w4dx-shape",
    "x-amz-meta-w4dx-dims",
    "x-amz-meta-w4dx-dtype",
    "etag",
    "last-modified",
    "content-length",
    "content-range",
    "accept-ranges",
    "age",
    "server-timing",
];

/// What describes the elements of an answer.
pub(super) struct Elements<'a> {
    pub(super) shape: &'a [u64],
    pub(super) dims: &'a [Option<String>],
    pub(super) dtype: &'a DType,
}

/// Adds the headers that say what the elements are, by our names and as object metadata, which boto3 shows.
pub(super) fn describe_elements(headers: &mut HeaderMap, elements: &Elements<'_>) {
    let shape = list(elements.shape);
    let dims = serde_json::to_string(elements.dims).unwrap_or_default();
    let described: [(&[&'static str; 2], &str); 3] = [
        (&["x-w4dx-shape", "x-amz-meta-w4dx-shape"], &shape),
        (&["x-w4dx-dims", "x-amz-meta-w4dx-dims"], &ascii(&dims)),
        (&["x-w4dx-dtype", "x-amz-meta-w4dx-dtype"], &elements.dtype.name()),
    ];
    for (names, value) in described {
        let Ok(value) = HeaderValue::from_str(value) else { continue };
        for name in names {
            headers.insert(HeaderName::from_static(name), value.clone());
        }
    }
}

/// Numbers as JSON writes a list, without spaces.
fn list(numbers: &[u64]) -> String {
    use std::fmt::Write as _;
    let mut text = String::with_capacity(2 + 8 * numbers.len());
    text.push('[');
    for (i, number) in numbers.iter().enumerate() {
        let comma = if i == 0 { "" } else { "," };
        // To a string, which cannot fail.
        let _ = write!(text, "{comma}{number}");
    }
    text.push(']');
    text
}

/// Adds what is known of versions; `array` is the one that the answer is of.
pub(super) fn describe_version(
    headers: &mut HeaderMap,
    array: Option<&Array>,
    etag: Option<&str>,
    last_modified: SystemTime,
    age_seconds: u64,
    principal: &Principal,
) {
    if let Some(etag) = etag {
        set(headers, "etag", &format!("\"{etag}\""));
    }
    set(headers, "last-modified", &httpdate::fmt_http_date(wire_time(last_modified)));
    set(headers, "age", &age_seconds.to_string());
    if let Some(version) = array.and_then(Array::version) {
        set(headers, "x-w4dx-source-etag", &format!("\"{version}\""));
    }
    headers.insert(header::VARY, HeaderValue::from_static("Accept, Origin"));
    headers.insert(header::ACCEPT_RANGES, HeaderValue::from_static("bytes"));
    if matches!(principal, Principal::Key(_)) {
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("private"));
    }
}

/// Sets a header whose value is made by us. A value that no header can hold is left out.
pub(super) fn set(headers: &mut HeaderMap, name: &'static str, value: &str) {
    if let Ok(value) = HeaderValue::from_str(value) {
        headers.insert(HeaderName::from_static(name), value);
    }
}

/// JSON in ASCII: every other character as `\uXXXX`, as JSON allows.
pub(super) fn ascii(json: &str) -> std::borrow::Cow<'_, str> {
    if json.is_ascii() {
        return json.into();
    }
    let mut ascii = String::with_capacity(json.len());
    for c in json.chars() {
        if c.is_ascii() {
            ascii.push(c);
        } else {
            let mut units = [0; 2];
            for unit in c.encode_utf16(&mut units) {
                ascii.push_str(&format!("\\u{unit:04x}"));
            }
        }
    }
    ascii.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dimension_names_beyond_ascii_survive_as_escapes() {
        let escaped = ascii("[\"größe\",\"𝑥\",null]");
        assert!(escaped.is_ascii());
        let back: Vec<Option<String>> = serde_json::from_str(&escaped).expect("JSON");
        assert_eq!(back, [Some("größe".to_owned()), Some("𝑥".to_owned()), None]);
    }
}
