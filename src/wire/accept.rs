//! The `Accept` header: which formats a client takes, and how gladly.

use super::{Description, Format, WireError, obstacle};

/// Media ranges read; more are ignored, so that a hostile header costs little.
const MOST_RANGES: usize = 32;

/// What an `Accept` header asks for, by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Accept {
    /// This format first.
    Format(Format),
    /// Anything, so the default of the element type.
    Default,
    /// None of our formats.
    NotAcceptable,
}

/// How a header ranks one format. The derived order is the preference: compared field by field.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Rank {
    /// The q-value in thousandths.
    quality: u16,
    /// 0 for `*/*`, 1 for `type/*`, 2 for the media type itself.
    specificity: u8,
    /// Ranges that follow in the header: the earlier of two equals wins.
    earliness: usize,
}

/// One media range, lower case.
struct MediaRange {
    kind: String,
    subtype: String,
    quality: u16,
}

impl Format {
    /// The first choice of an `Accept` header, before it is known which formats can hold the answer.
    ///
    /// An explicit `q=0` excludes; equal q-values are decided by specificity, then by order. `*/*` and
    /// `application/*` mean the default. Types of error bodies (XML, problem+json) say nothing about tensors and are
    /// skipped; a header that names only such, or nothing, means the default.
    pub fn from_accept(accept: &str) -> Accept {
        let ranges = parse(accept);
        if ranges.is_empty() {
            return Accept::Default;
        }
        let best = Self::ALL.iter().filter_map(|f| rank(*f, &ranges).map(|rank| (rank, *f))).max_by_key(|(r, _)| *r);
        match best {
            None => Accept::NotAcceptable,
            // `image/*` admits one format only; the other wildcards admit the default.
            Some((rank, format)) if rank.specificity == 2 || format == Self::Png && rank.specificity == 1 => {
                Accept::Format(format)
            }
            Some(_) => Accept::Default,
        }
    }

    /// The format that an `Accept` header prefers among those that can hold the answer.
    ///
    /// As [`Format::from_accept`], but a browser's `image/png, */*;q=0.8` gets a picture where there is one and the
    /// default elsewhere.
    ///
    /// # Errors
    /// [`WireError::NotAcceptable`] when the header admits none of them.
    pub fn negotiate(accept: &str, tensors: &[Description<'_>]) -> Result<Self, WireError> {
        let default = match tensors {
            [tensor] => Self::default_for(tensor.dtype),
            _ => Self::Safetensors,
        };
        let ranges = parse(accept);
        if ranges.is_empty() {
            return Ok(default);
        }
        let possible = || Self::ALL.iter().copied().filter(|f| obstacle(*f, tensors).is_none());
        // Of equals the last wins: reversed, the first of the list.
        let best = possible()
            .rev()
            .filter_map(|format| rank(format, &ranges).map(|rank| (rank, format == default, format)))
            .max_by_key(|(rank, is_default, _)| (*rank, *is_default));
        best.map(|(_, _, format)| format).ok_or_else(|| WireError::NotAcceptable {
            accept: accept.chars().take(200).collect(),
            possible: possible().collect(),
        })
    }
}

/// The rank of `format`, or `None` when the header excludes it. The most specific range that matches decides.
fn rank(format: Format, ranges: &[MediaRange]) -> Option<Rank> {
    let (kind, subtype) = format.media_type().split_once('/')?;
    let rank = ranges
        .iter()
        .enumerate()
        .filter_map(|(i, range)| {
            let specificity = match (range.kind.as_str(), range.subtype.as_str()) {
                ("*", "*") => 0,
                (k, "*") if k == kind => 1,
                (k, s) if k == kind && s == subtype => 2,
                (_, _) => return None,
            };
            Some(Rank { quality: range.quality, specificity, earliness: ranges.len() - i })
        })
        .max_by_key(|rank| (rank.specificity, rank.earliness))?;
    (rank.quality > 0).then_some(rank)
}

/// The media ranges that concern tensors. Malformed ones are skipped, as HTTP servers do.
fn parse(accept: &str) -> Vec<MediaRange> {
    let ranges = accept.split(',').map(str::trim).filter(|range| !range.is_empty()).take(MOST_RANGES);
    ranges.filter_map(parse_range).filter(|range| !names_errors(range)).collect()
}

fn parse_range(range: &str) -> Option<MediaRange> {
    let mut parts = range.split(';').map(str::trim);
    let name = parts.next()?.to_ascii_lowercase();
    // Java's URLConnection sends a lone `*`.
    let (kind, subtype) = if name == "*" { ("*", "*") } else { name.split_once('/')? };
    let mut quality = 1000;
    for part in parts {
        if let Some((key, value)) = part.split_once('=')
            && key.trim().eq_ignore_ascii_case("q")
        {
            quality = parse_quality(value.trim())?;
        }
    }
    Some(MediaRange { kind: kind.into(), subtype: subtype.into(), quality })
}

/// A q-value in thousandths; more digits than the three of RFC 9110 are cut.
fn parse_quality(text: &str) -> Option<u16> {
    let value: f32 = text.parse().ok()?;
    (0.0..=1.0).contains(&value).then_some((value * 1000.0) as u16)
}

/// Whether a range asks for a form of error body.
fn names_errors(range: &MediaRange) -> bool {
    matches!((range.kind.as_str(), range.subtype.as_str()), ("application", "problem+json" | "xml") | ("text", "xml"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{DType, FloatKind};

    fn first(accept: &str) -> Accept {
        Format::from_accept(accept)
    }

    #[test]
    fn an_open_header_means_the_default() {
        for open in ["", "*/*", "*", " , ", "application/*", "application/problem+json", "text/html, */*;q=0.1", "x"] {
            assert_eq!(first(open), Accept::Default, "{open}");
        }
    }

    #[test]
    fn the_highest_quality_wins_then_the_order() {
        let cases = [
            ("application/json", Format::Json),
            ("APPLICATION/X-NPY ; Q=0.5 , application/json;q=0.4", Format::Npy),
            ("application/json;q=0.4, image/png;q=0.6", Format::Png),
            ("application/json, image/png", Format::Json),
            ("image/png, application/json", Format::Png),
            ("*/*, application/octet-stream", Format::Raw),
            ("image/*", Format::Png),
            ("application/vnd.safetensors;v=1, application/problem+json", Format::Safetensors),
        ];
        for (accept, format) in cases {
            assert_eq!(first(accept), Accept::Format(format), "{accept}");
        }
    }

    #[test]
    fn what_is_not_ours_is_not_acceptable() {
        for accept in ["text/html", "application/json;q=0", "image/jpeg, image/png;q=0.0"] {
            assert_eq!(first(accept), Accept::NotAcceptable, "{accept}");
        }
    }

    #[test]
    fn a_browser_gets_a_picture_only_where_there_is_one() {
        let firefox = "text/html,application/xhtml+xml,application/xml;q=0.9,image/webp,image/png,*/*;q=0.8";
        let with = |shape: &[u64], dtype: &DType, accept: &str| {
            Format::negotiate(accept, &[Description { name: "a", dtype, shape, dims: &[] }])
        };
        assert_eq!(with(&[4, 5, 3], &DType::UInt(8), firefox).ok(), Some(Format::Png));
        assert_eq!(with(&[4, 5, 3, 2], &DType::UInt(8), firefox).ok(), Some(Format::Npy));
        assert_eq!(with(&[4], &DType::Float(FloatKind::BF16), firefox).ok(), Some(Format::Safetensors));
        assert_eq!(with(&[4], &DType::Int(8), "application/x-npy;q=0, */*").ok(), Some(Format::Raw));
        let refused = with(&[4], &DType::String, "application/x-npy, image/*").unwrap_err().to_string();
        assert!(refused.ends_with("possible: application/json"), "{refused}");
    }
}
