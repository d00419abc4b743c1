//! The conditions of a read, in the order of RFC 9110, section 13.2.2.
//!
//! If-Match beats If-Unmodified-Since, If-None-Match beats If-Modified-Since. A date that cannot be read is ignored.

use std::time::SystemTime;

use http::header::{self, HeaderName};
use http::{HeaderMap, HeaderValue};

use super::wire_time;

/// What the conditions of a request say of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Answer as without conditions.
    Proceed,
    /// 304: the caller has it already.
    NotModified,
    /// 412: the caller wants another version.
    Failed,
}

/// Entity tags of a condition.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Tags {
    Any,
    /// Each with whether it is weak.
    Listed(Vec<(bool, String)>),
}

/// The conditions of a read.
#[derive(Debug, Clone, Default)]
pub(crate) struct Conditions {
    if_match: Option<Tags>,
    if_unmodified_since: Option<SystemTime>,
    if_none_match: Option<Tags>,
    if_modified_since: Option<SystemTime>,
    if_range: Option<String>,
}

impl Conditions {
    /// Reads the conditions of a request.
    pub(crate) fn of(headers: &HeaderMap) -> Self {
        let text = |name| headers.get(name).and_then(|value: &HeaderValue| value.to_str().ok());
        let date = |name| text(name).and_then(|value| httpdate::parse_http_date(value).ok());
        Self {
            if_match: tags(headers, header::IF_MATCH),
            if_unmodified_since: date(header::IF_UNMODIFIED_SINCE),
            if_none_match: tags(headers, header::IF_NONE_MATCH),
            if_modified_since: date(header::IF_MODIFIED_SINCE),
            if_range: text(header::IF_RANGE).map(str::to_owned),
        }
    }

    /// The same for what has no date of its own. A slice of many objects is as old as the youngest of them, and that
    /// date does not move when one is removed, or replaced by an older file: only entity tags tell.
    pub(crate) fn without_dates(self) -> Self {
        let dated = |value: &String| httpdate::parse_http_date(value).is_ok();
        Self {
            if_modified_since: None,
            // A date that proves nothing must not make a range apply: no entity tag is `*`.
            if_range: self.if_range.map(|value| if dated(&value) { "*".to_owned() } else { value }),
            ..self
        }
    }

    /// Whether the object's version or date must be known before its bytes are asked for.
    pub(crate) fn need_a_look(&self) -> bool {
        self.if_match.is_some()
            || self.if_unmodified_since.is_some()
            || self.if_none_match.is_some()
            || self.if_modified_since.is_some()
            || self.if_range.is_some()
    }

    /// Judges what exists, by its entity tag, without quotes, and its date. Without an entity tag only `*` holds.
    pub(crate) fn judge(&self, etag: Option<&str>, modified: SystemTime) -> Verdict {
        let modified = wire_time(modified);
        let met = match (&self.if_match, self.if_unmodified_since) {
            (Some(tags), _) => tags.hold(etag, Compare::Strong),
            (None, Some(date)) => modified <= date,
            (None, None) => true,
        };
        if !met {
            return Verdict::Failed;
        }
        let unchanged = match (&self.if_none_match, self.if_modified_since) {
            (Some(tags), _) => tags.hold(etag, Compare::Weak),
            (None, Some(date)) => modified <= date,
            (None, None) => false,
        };
        if unchanged { Verdict::NotModified } else { Verdict::Proceed }
    }

    /// Whether a Range still applies: If-Range names this very version, or its exact date.
    pub(crate) fn range_applies(&self, etag: Option<&str>, modified: SystemTime) -> bool {
        let Some(value) = &self.if_range else { return true };
        match httpdate::parse_http_date(value) {
            Ok(date) => date == wire_time(modified),
            Err(_) => Tags::parse(value).is_some_and(|tags| match tags {
                Tags::Any => false,
                Tags::Listed(_) => tags.hold(etag, Compare::Strong),
            }),
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Compare {
    Strong,
    Weak,
}

impl Tags {
    /// Reads `*`, or tags with commas between. Like S3, a tag may come without its quotes.
    fn parse(value: &str) -> Option<Self> {
        let mut listed = Vec::new();
        let mut rest = value.trim();
        if rest == "*" {
            return Some(Self::Any);
        }
        while !rest.is_empty() {
            let (weak, tag) = match rest.strip_prefix("W/") {
                Some(tag) => (true, tag),
                None => (false, rest),
            };
            let (tag, after) = match tag.strip_prefix('"') {
                Some(quoted) => quoted.split_once('"')?,
                None => {
                    let end = tag.find(',').unwrap_or(tag.len());
                    (tag[..end].trim_end(), &tag[end..])
                }
            };
            listed.push((weak, tag.to_owned()));
            rest = after.trim_start().trim_start_matches(',').trim_start();
        }
        Some(Self::Listed(listed))
    }

    /// Whether one of the tags is this object's. The stores' own tags are strong.
    fn hold(&self, etag: Option<&str>, compare: Compare) -> bool {
        match self {
            Self::Any => true,
            Self::Listed(tags) => {
                tags.iter().any(|(weak, tag)| Some(tag.as_str()) == etag && (compare == Compare::Weak || !weak))
            }
        }
    }
}

/// All tags of a header, which may be repeated. A list that cannot be read names no version.
fn tags(headers: &HeaderMap, name: HeaderName) -> Option<Tags> {
    let values: Vec<&HeaderValue> = headers.get_all(name).iter().collect();
    if values.is_empty() {
        return None;
    }
    let mut listed = Vec::new();
    for value in values {
        match value.to_str().ok().and_then(Tags::parse) {
            Some(Tags::Any) => return Some(Tags::Any),
            Some(Tags::Listed(tags)) => listed.extend(tags),
            None => {}
        }
    }
    Some(Tags::Listed(listed))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const BEFORE: &str = "Tue, 01 Dec 2026 09:59:59 GMT";
    const EXACT: &str = "Tue, 01 Dec 2026 10:00:00 GMT";
    const AFTER: &str = "Tue, 01 Dec 2026 10:00:01 GMT";

    /// 300 ms after `EXACT`.
    fn written() -> SystemTime {
        httpdate::parse_http_date(EXACT).unwrap() + Duration::from_millis(300)
    }

    fn conditions(headers: &[(&str, &str)]) -> Conditions {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(HeaderName::from_bytes(name.as_bytes()).unwrap(), value.parse().unwrap());
        }
        Conditions::of(&map)
    }

    fn check(headers: &[(&str, &str)], verdict: Verdict) {
        assert_eq!(conditions(headers).judge(Some("v1"), written()), verdict, "{headers:?}");
    }

    #[test]
    fn entity_tags_compare_strongly_for_if_match_and_weakly_for_if_none_match() {
        use Verdict::{Failed, NotModified, Proceed};
        check(&[("if-match", "\"v1\"")], Proceed);
        check(&[("if-match", "\"v0\", \"v1\"")], Proceed);
        check(&[("if-match", "*")], Proceed);
        check(&[("if-match", "v1")], Proceed);
        check(&[("if-match", "W/\"v1\"")], Failed);
        check(&[("if-match", "\"v2\"")], Failed);
        check(&[("if-match", "\"v1")], Failed);
        check(&[("if-match", "\"v2\""), ("if-match", "\"v1\"")], Proceed);
        check(&[("if-none-match", "\"v1\"")], NotModified);
        check(&[("if-none-match", "W/\"v1\"")], NotModified);
        check(&[("if-none-match", "\"a,b\", W/\"v1\"")], NotModified);
        check(&[("if-none-match", "*")], NotModified);
        check(&[("if-none-match", "\"v2\"")], Proceed);
        check(&[("if-none-match", "")], Proceed);
    }

    #[test]
    fn dates_count_whole_seconds_and_bad_ones_are_ignored() {
        use Verdict::{Failed, NotModified, Proceed};
        check(&[("if-modified-since", BEFORE)], Proceed);
        check(&[("if-modified-since", EXACT)], NotModified);
        check(&[("if-modified-since", AFTER)], NotModified);
        check(&[("if-modified-since", "yesterday")], Proceed);
        check(&[("if-unmodified-since", BEFORE)], Failed);
        check(&[("if-unmodified-since", EXACT)], Proceed);
        check(&[("if-unmodified-since", "never")], Proceed);
    }

    #[test]
    fn tags_beat_dates_and_412_beats_304() {
        use Verdict::{Failed, NotModified, Proceed};
        check(&[("if-match", "\"v1\""), ("if-unmodified-since", BEFORE)], Proceed);
        check(&[("if-none-match", "\"v2\""), ("if-modified-since", AFTER)], Proceed);
        check(&[("if-none-match", "\"v1\""), ("if-modified-since", BEFORE)], NotModified);
        check(&[("if-match", "\"v2\""), ("if-none-match", "\"v1\"")], Failed);
        check(&[("if-match", "\"v1\""), ("if-none-match", "\"v1\"")], NotModified);
    }

    #[test]
    fn if_range_needs_this_very_version() {
        let applies = |value: &str| conditions(&[("if-range", value)]).range_applies(Some("v1"), written());
        assert!(applies("\"v1\"") && applies(EXACT));
        assert!(!applies("\"v2\"") && !applies("W/\"v1\"") && !applies(AFTER) && !applies(BEFORE) && !applies("*"));
        assert!(conditions(&[]).range_applies(Some("v1"), written()));
    }
}
