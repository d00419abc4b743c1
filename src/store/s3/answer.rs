//! Answers of the store, checked.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::time::{SystemTime, UNIX_EPOCH};

use aws_sdk_s3::operation::get_object::GetObjectOutput;
use aws_sdk_s3::operation::head_object::HeadObjectOutput;
use aws_sdk_s3::operation::list_objects_v2::ListObjectsV2Output;
use aws_sdk_s3::primitives::DateTime;

use super::super::range::resolve;
use super::super::{ObjectInfo, StoreError};
use crate::model::{ByteRange, Version};

/// What an answer to GetObject says before its body.
#[derive(Debug)]
pub(super) struct Announced {
    pub(super) info: ObjectInfo,
    pub(super) start: u64,
    pub(super) len: u64,
}

/// Reads the headers of a GetObject's answer, and checks that it answers what was asked.
pub(super) fn announced(key: &str, asked: &ByteRange, output: &GetObjectOutput) -> Result<Announced, StoreError> {
    let len = length(key, output.content_length())?;
    let (sent, size) = match output.content_range() {
        Some(text) => {
            content_range(text).ok_or_else(|| nonsense(key, format!("the answer's Content-Range is `{text}`")))?
        }
        None => (0..len, len),
    };
    if sent.end - sent.start != len {
        return Err(nonsense(key, format!("{len} bytes were announced for bytes {sent:?}")));
    }
    if resolve(asked, size) != Some(sent.clone()) {
        return Err(nonsense(key, format!("bytes {sent:?} of {size} came for the range {asked:?}")));
    }
    let headers = headers(
        [
            ("cache-control", output.cache_control()),
            ("content-disposition", output.content_disposition()),
            ("content-encoding", output.content_encoding()),
            ("content-language", output.content_language()),
            ("expires", output.expires_string()),
        ],
        output.metadata(),
    );
    let info = ObjectInfo {
        size,
        version: version(key, output.e_tag())?,
        last_modified: time(output.last_modified()),
        content_type: output.content_type().map(str::to_owned),
        headers,
    };
    Ok(Announced { info, start: sent.start, len })
}

/// Reads the answer to a HeadObject.
pub(super) fn head_info(key: &str, output: &HeadObjectOutput) -> Result<ObjectInfo, StoreError> {
    Ok(ObjectInfo {
        size: length(key, output.content_length())?,
        version: version(key, output.e_tag())?,
        last_modified: time(output.last_modified()),
        content_type: output.content_type().map(str::to_owned),
        headers: headers(
            [
                ("cache-control", output.cache_control()),
                ("content-disposition", output.content_disposition()),
                ("content-encoding", output.content_encoding()),
                ("content-language", output.content_language()),
                ("expires", output.expires_string()),
            ],
            output.metadata(),
        ),
    })
}

/// The objects, and the common prefixes (without a description), of a page of the store's, each in its order.
pub(super) type Entries = (Vec<(String, ObjectInfo)>, Vec<String>);

/// Reads the answer to a ListObjectsV2.
pub(super) fn entries(output: ListObjectsV2Output) -> Result<Entries, StoreError> {
    let objects = output.contents.unwrap_or_default().into_iter().map(|object| {
        let key = object.key.unwrap_or_default();
        let info = ObjectInfo {
            size: length(&key, object.size)?,
            version: version(&key, object.e_tag.as_deref())?,
            last_modified: time(object.last_modified.as_ref()),
            content_type: None,
            headers: BTreeMap::new(),
        };
        Ok((key, info))
    });
    let prefixes = output.common_prefixes.unwrap_or_default().into_iter().filter_map(|prefix| prefix.prefix);
    Ok((objects.collect::<Result<_, StoreError>>()?, prefixes.collect()))
}

/// `bytes A-B/N` as a half-open range and a size.
fn content_range(text: &str) -> Option<(Range<u64>, u64)> {
    let (range, size) = text.trim().strip_prefix("bytes")?.trim_start().split_once('/')?;
    let (first, last) = range.split_once('-')?;
    let (first, last): (u64, u64) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
    let size = size.trim().parse().ok()?;
    (first <= last && last < size).then(|| (first..last + 1, size))
}

fn length(key: &str, length: Option<i64>) -> Result<u64, StoreError> {
    length
        .and_then(|length| u64::try_from(length).ok())
        .ok_or_else(|| nonsense(key, format!("the answer's length is {length:?}")))
}

/// Without a version nothing that is read could be tied to the rest of the object.
fn version(key: &str, etag: Option<&str>) -> Result<Version, StoreError> {
    match etag {
        Some(etag) if !etag.is_empty() => Ok(Version::new(etag)),
        Some(_) | None => Err(nonsense(key, "the answer has no ETag".into())),
    }
}

fn time(time: Option<&DateTime>) -> SystemTime {
    time.and_then(|time| SystemTime::try_from(*time).ok()).unwrap_or(UNIX_EPOCH)
}

fn headers<const N: usize>(
    known: [(&str, Option<&str>); N],
    metadata: Option<&HashMap<String, String>>,
) -> BTreeMap<String, String> {
    let known = known.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?.to_owned())));
    let metadata = metadata.into_iter().flatten();
    let metadata = metadata.map(|(name, value)| (format!("x-amz-meta-{}", name.to_lowercase()), value.clone()));
    known.chain(metadata).collect()
}

fn nonsense(key: &str, reason: String) -> StoreError {
    StoreError::Failed { operation: "read", key: key.into(), reason }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_ranges_are_read_or_refused() {
        assert_eq!(content_range("bytes 2-5/10"), Some((2..6, 10)));
        for text in ["bytes 5-2/10", "bytes 2-10/10", "bytes */10", "2-5/10x", "bytes 2-5/*", ""] {
            assert_eq!(content_range(text), None, "{text}");
        }
    }

    fn answer(range: Option<&str>, length: i64) -> GetObjectOutput {
        GetObjectOutput::builder()
            .set_content_range(range.map(str::to_owned))
            .content_length(length)
            .e_tag("\"v\"")
            .build()
    }

    #[test]
    fn an_answer_to_another_range_is_refused() {
        let asked = ByteRange::Bounded(2..6);
        assert_eq!(announced("k", &asked, &answer(Some("bytes 2-5/10"), 4)).unwrap().len, 4);
        for (range, length) in
            [(Some("bytes 3-6/10"), 4), (Some("bytes 2-5/10"), 5), (None, 10), (Some("bytes 2-4/10"), 3)]
        {
            assert!(announced("k", &asked, &answer(range, length)).is_err(), "{range:?} {length}");
        }
    }

    #[test]
    fn an_answer_without_a_version_is_refused() {
        let output = GetObjectOutput::builder().content_length(4).build();
        assert!(announced("k", &ByteRange::Whole, &output).is_err());
    }
}
