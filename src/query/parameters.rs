//! The names of the query contract, and the two ways to spell them: in the query string, and in the key.
//!
//! In-key form, for S3 clients that cannot add query parameters: a last path segment `@NAME…` holds the same
//! parameters joined by `;`, with a format suffix: `data.zarr/video/@slice=0:16,...,0:3.npy`.

use percent_encoding::percent_decode_str;

use super::QueryError;

/// Parameters that are served.
pub const NAMES: &[&str] = &[
    "slice",
    "isel",
    "array",
    "oob",
    "fill",
    "keepdims",
    "expect_shape",
    "format",
    "describe",
    "explain",
    "limit",
    "token",
    "prefetch",
    "batch",
    "stack",
    "on_error",
    "subset",
    "bbox",
    "datetime",
    "sel",
    "count",
    "closed",
    "fields",
    "pad",
    "filter",
    "select",
    "values",
];

/// Parameters of features that are not built yet; they answer 501.
pub const RESERVED: &[&str] = &["reduce"];

/// Parameters that may be given more than once.
const REPEATABLE: &[&str] = &["isel", "subset", "sel", "count"];

/// Endings of the in-key form that choose a format.
pub const SUFFIXES: &[&str] = &["npy", "raw", "bin", "safetensors", "json", "png", "arrow"];

/// S3 parameters that cannot stand beside ours: they would change which bytes are meant.
const S3_PARAMETERS: &[&str] = &[
    "versionId",
    "partNumber",
    "acl",
    "attributes",
    "cors",
    "legal-hold",
    "lifecycle",
    "location",
    "policy",
    "retention",
    "tagging",
    "torrent",
    "uploadId",
    "uploads",
    "versions",
    "versioning",
    "website",
    "restore",
];

/// The plain name of one of our parameters, served or reserved: `slice` for `slice` and for `x-slice`.
fn plain(name: &str) -> Option<&'static str> {
    let name = name.strip_prefix("x-").unwrap_or(name);
    NAMES.iter().chain(RESERVED).find(|known| **known == name).copied()
}

/// The last segment of a key in in-key form: `Some((array path, segment without "@"))`.
fn in_key(key: &str) -> Option<(&str, &str)> {
    let (path, segment) = key.rsplit_once('/').unwrap_or(("", key));
    let rest = segment.strip_prefix('@')?;
    let end = rest.find(['=', ';', '.']).unwrap_or(rest.len());
    plain(&rest[..end])?;
    Some((path, rest))
}

/// Whether an object key is in in-key form. Nothing can be stored under such a key.
pub fn is_reserved_key(key: &str) -> bool {
    in_key(key).is_some()
}

/// Whether a read of `key` with these decoded query pairs is a slice (or describe, or explain) rather than plain S3.
pub fn concerns(key: &str, pairs: &[(String, String)], in_key_form: bool) -> bool {
    (in_key_form && is_reserved_key(key)) || pairs.iter().any(|(name, _)| plain(name).is_some())
}

/// Whether a POST with these decoded query pairs is a batch.
pub fn is_batch(pairs: &[(String, String)]) -> bool {
    pairs.iter().any(|(name, _)| plain(name) == Some("batch"))
}

/// Parameters in the order given, by plain name, from both spellings; and the key they are about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Parameters {
    pub(super) path: String,
    pub(super) pairs: Vec<(&'static str, String)>,
    pub(super) suffix: Option<&'static str>,
}

/// Collects and checks the names. Values are not looked at.
///
/// # Errors
/// [`QueryError`] for unknown, repeated, reserved or misplaced names.
pub(super) fn collect(key: &str, query: &[(String, String)], in_key_form: bool) -> Result<Parameters, QueryError> {
    let mut found = Parameters { path: key.to_owned(), pairs: Vec::new(), suffix: None };
    for (name, value) in query {
        if let Some(plain) = plain(name) {
            found.pairs.push((plain, value.clone()));
        } else if S3_PARAMETERS.contains(&name.as_str()) {
            return Err(QueryError::NotWithSlice { name: name.clone() });
        } else if !passes_by(name) {
            return Err(unknown(name));
        }
    }
    if let Some((path, segment)) = in_key(key).filter(|_| in_key_form) {
        found.path = path.to_owned();
        let explicit_format = found.pairs.iter().any(|(name, _)| *name == "format")
            || segment.split(';').any(|item| matches!(item.split_once('='), Some(("format" | "x-format", _))));
        let mut segment = segment;
        if !explicit_format {
            let suffix = segment
                .rsplit_once('.')
                .and_then(|(rest, ending)| SUFFIXES.iter().find(|known| **known == ending).map(|known| (rest, *known)));
            if let Some((rest, known)) = suffix {
                segment = rest;
                found.suffix = Some(known);
            }
        }
        for item in segment.split(';') {
            let (name, value) = item.split_once('=').unwrap_or((item, ""));
            let name = decode(name)?;
            let plain = plain(&name).ok_or_else(|| unknown(&name))?;
            found.pairs.push((plain, decode(value)?));
        }
    }
    for (i, (name, _)) in found.pairs.iter().enumerate() {
        if !REPEATABLE.contains(name) && found.pairs[..i].iter().any(|(earlier, _)| earlier == name) {
            return Err(QueryError::Repeated { name: (*name).to_owned() });
        }
        if RESERVED.contains(name) {
            return Err(QueryError::Reserved { name: (*name).to_owned() });
        }
    }
    Ok(found)
}

/// Names that S3 clients add by themselves and that change nothing here.
fn passes_by(name: &str) -> bool {
    name == "x-id"
        || name.get(..6).is_some_and(|start| start.eq_ignore_ascii_case("x-amz-"))
        || name.starts_with("response-")
}

/// The second decoding of the in-key form: `%2F %3B %25` for `/ ; %`.
fn decode(text: &str) -> Result<String, QueryError> {
    percent_decode_str(text).decode_utf8().map(std::borrow::Cow::into_owned).map_err(|_| QueryError::InvalidValue {
        parameter: "key".to_owned(),
        reason: format!("`{text}` is not UTF-8 once decoded"),
        valid: None,
    })
}

fn unknown(name: &str) -> QueryError {
    let bare = name.strip_prefix("x-").unwrap_or(name);
    let nearest = NAMES
        .iter()
        .map(|known| (strsim::damerau_levenshtein(bare, known), *known))
        .filter(|(distance, known)| *distance <= 2.max(known.len() / 3))
        .min()
        .map(|(_, known)| known.to_owned());
    QueryError::UnknownParameter { name: name.chars().take(64).collect(), nearest }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(key: &str, query: &[(&str, &str)]) -> Result<Parameters, QueryError> {
        let query: Vec<_> = query.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect();
        collect(key, &query, true)
    }

    #[test]
    fn the_in_key_form_holds_the_same_parameters() {
        let found = ask("d.zarr/video/@slice=0:16,...,0:3;keepdims.npy", &[]).expect("valid");
        assert_eq!(found.path, "d.zarr/video");
        assert_eq!(found.pairs, [("slice", "0:16,...,0:3".to_owned()), ("keepdims", String::new())]);
        assert_eq!(found.suffix, Some("npy"));
    }

    #[test]
    fn a_suffix_is_stripped_once_and_only_without_format() {
        let found = ask("m/@array=x.npy;format=raw", &[]).expect("valid");
        assert_eq!((found.pairs[0].1.as_str(), found.suffix), ("x.npy", None));
        let found = ask("m/@array=x.npy.raw", &[]).expect("valid");
        assert_eq!((found.pairs[0].1.as_str(), found.suffix), ("x.npy", Some("raw")));
        let found = ask("m/@slice=....npy", &[]).expect("valid");
        assert_eq!((found.pairs[0].1.as_str(), found.suffix), ("...", Some("npy")));
        assert_eq!(ask("m/@slice", &[]).expect("valid").pairs, [("slice", String::new())]);
    }

    #[test]
    fn only_known_names_reserve_a_key() {
        assert!(is_reserved_key("a/@slice"));
        assert!(is_reserved_key("@slice=0"));
        assert!(is_reserved_key("a/@batch;x"));
        assert!(!is_reserved_key("a/@sliced"));
        assert!(!is_reserved_key("a/@home=1"));
        assert!(!is_reserved_key("a/slice=1"));
        assert!(!is_reserved_key("a/@slice=1/b"));
    }

    #[test]
    fn values_of_the_in_key_form_are_decoded_once_more() {
        assert_eq!(ask("m/@array=a%2Fb%3Bc%25.raw", &[]).expect("valid").pairs[0].1, "a/b;c%");
    }

    #[test]
    fn names_are_checked() {
        let unknown = ask("a", &[("slise", "0"), ("format", "npy")]);
        assert!(matches!(unknown, Err(QueryError::UnknownParameter { nearest: Some(n), .. }) if n == "slice"));
        assert!(matches!(ask("a", &[("slice", "0"), ("x-slice", "1")]), Err(QueryError::Repeated { .. })));
        assert!(matches!(ask("a/@slice=0", &[("slice", "1")]), Err(QueryError::Repeated { .. })));
        assert!(matches!(ask("a", &[("slice", "0"), ("versionId", "1")]), Err(QueryError::NotWithSlice { .. })));
        assert!(matches!(ask("a", &[("reduce", "mean")]), Err(QueryError::Reserved { .. })));
        assert!(
            ask("a", &[("slice", "0"), ("x-id", "GetObject"), ("X-Amz-Date", "x"), ("response-expires", "x")]).is_ok()
        );
        assert!(ask("a", &[("isel", "t=0"), ("x-isel", "y=1")]).is_ok());
    }
}
