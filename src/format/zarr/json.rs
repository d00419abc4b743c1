//! Small readers of JSON documents that name what is wrong.

use serde_json::{Map, Value};

use crate::format::FormatError;
use crate::format::numpy::shown;

/// The most bytes of one document. Consolidated metadata of thousands of arrays fits; a bomb does not.
pub(super) const DOCUMENT_BYTES_MAX: usize = 8 << 20;

/// The most axes: numpy's own limit was 32 for decades.
pub(super) const RANK_MAX: usize = 32;

/// The document contradicts its format.
pub(super) fn malformed(document: &'static str, reason: impl Into<String>) -> FormatError {
    FormatError::Malformed { document, reason: reason.into() }
}

/// Parses a document that must be an object.
///
/// Python's `json` writes bare `NaN`, `Infinity` and `-Infinity`; they are read as strings of that name.
pub(super) fn object(document: &'static str, bytes: &[u8]) -> Result<Map<String, Value>, FormatError> {
    if bytes.len() > DOCUMENT_BYTES_MAX {
        return Err(malformed(document, format!("{} bytes, more than {DOCUMENT_BYTES_MAX}", bytes.len())));
    }
    let parsed = serde_json::from_slice(bytes).or_else(|first| match quote_non_finite(bytes) {
        Some(quoted) => serde_json::from_slice(&quoted).map_err(|_| first),
        None => Err(first),
    });
    match parsed {
        Ok(Value::Object(map)) => Ok(map),
        Ok(other) => Err(malformed(document, format!("not an object but {}", kind(&other)))),
        Err(e) => Err(malformed(document, format!("not JSON: {e}"))),
    }
}

/// The document with bare non-finite numbers in quotes, or `None` when there are none.
fn quote_non_finite(bytes: &[u8]) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(bytes.len() + 64);
    let (mut at, mut in_string, mut found) = (0, false, false);
    while at < bytes.len() {
        let rest = &bytes[at..];
        if in_string {
            let len = if rest[0] == b'\\' { 2.min(rest.len()) } else { 1 };
            in_string = rest[0] != b'"';
            out.extend_from_slice(&rest[..len]);
            at += len;
            continue;
        }
        let token = [&b"NaN"[..], b"Infinity", b"-Infinity"].into_iter().find(|token| rest.starts_with(token));
        if let Some(token) = token {
            out.push(b'"');
            out.extend_from_slice(token);
            out.push(b'"');
            at += token.len();
            found = true;
        } else {
            in_string = rest[0] == b'"';
            out.push(rest[0]);
            at += 1;
        }
    }
    found.then_some(out)
}

/// The kind of a JSON value, in words.
pub(super) fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

/// A required member.
pub(super) fn member<'a>(
    document: &'static str,
    map: &'a Map<String, Value>,
    key: &str,
) -> Result<&'a Value, FormatError> {
    map.get(key).ok_or_else(|| malformed(document, format!("`{key}` is missing")))
}

/// A list of axis lengths: each below 2^63, so that positions fit an i64. Elements in total may overflow;
/// whoever multiplies must check.
pub(super) fn lengths(document: &'static str, key: &str, value: &Value) -> Result<Vec<u64>, FormatError> {
    let Value::Array(list) = value else {
        return Err(malformed(document, format!("`{key}` is {}, not a list", kind(value))));
    };
    if list.len() > RANK_MAX {
        return Err(malformed(document, format!("`{key}` has {} axes, more than {RANK_MAX}", list.len())));
    }
    list.iter()
        .map(|n| {
            n.as_u64().filter(|&n| n < 1 << 63).ok_or_else(|| {
                malformed(document, format!("`{key}` holds {}, not a length below 2^63", shown(&n.to_string())))
            })
        })
        .collect()
}

/// Chunk lengths of an array of `shape`: as many axes, each at least 1. A 0 on an axis of length 0 is taken for 1,
/// since old writers made such chunks and nothing is stored in them.
pub(super) fn chunk_lengths(
    document: &'static str,
    key: &str,
    value: &Value,
    shape: &[u64],
) -> Result<Vec<u64>, FormatError> {
    let mut chunk = lengths(document, key, value)?;
    if chunk.len() != shape.len() {
        let reason = format!("`{key}` has {} axes, the shape has {}", chunk.len(), shape.len());
        return Err(malformed(document, reason));
    }
    for (axis, (c, n)) in chunk.iter_mut().zip(shape).enumerate() {
        if *c == 0 && *n == 0 {
            *c = 1;
        }
        if *c == 0 {
            return Err(malformed(document, format!("`{key}` is 0 on axis {axis}")));
        }
    }
    Ok(chunk)
}

/// Attributes, absent or an object.
pub(super) fn attributes(document: &'static str, value: Option<Value>) -> Result<Map<String, Value>, FormatError> {
    match value {
        None | Some(Value::Null) => Ok(Map::new()),
        Some(Value::Object(map)) => Ok(map),
        Some(other) => Err(malformed(document, format!("attributes are {}, not an object", kind(&other)))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bare_non_finite_numbers_become_strings() {
        let map = object("x", br#"{"a": NaN, "b": [-Infinity, Infinity], "c": "NaN \" NaN"}"#).unwrap();
        assert_eq!(Value::Object(map).to_string(), r#"{"a":"NaN","b":["-Infinity","Infinity"],"c":"NaN \" NaN"}"#);
        assert!(object("x", b"{\"a\": NaNNaN}").is_err());
        assert!(object("x", b"[]").is_err());
    }
}
