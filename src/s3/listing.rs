//! ListObjectsV2 and ListObjects.
//!
//! A continuation token is opaque: it carries the key to go on from, and a checksum over that and the listing it
//! belongs to, so that a token of another listing is refused instead of skipping keys. It is not a secret.

use std::borrow::Cow;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use s3s::S3ErrorCode;
use s3s::dto::{
    CommonPrefix, ETag, EncodingType, ListObjectsInput, ListObjectsOutput, ListObjectsV2Input, ListObjectsV2Output,
    Object, ObjectStorageClass, Owner, Timestamp,
};

use super::failure::Failure;
use crate::auth::{Action, Principal};
use crate::http::Gateway;
use crate::http::wire_time;
use crate::store::{ListPage, ListRequest, ObjectInfo};

/// The most keys and common prefixes of one page, as S3 has it.
const MAX_KEYS: i32 = 1000;

/// What `encoding-type=url` leaves as it is. A space becomes `%20`, which every client decodes.
const URL_SAFE: &AsciiSet =
    &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~').remove(b'/').remove(b'*');

/// What both versions of the operation ask for.
struct Listing {
    bucket: String,
    prefix: String,
    delimiter: Option<String>,
    max_keys: i32,
    encode: bool,
}

impl Listing {
    fn new(
        bucket: String,
        prefix: Option<String>,
        delimiter: Option<String>,
        max_keys: Option<i32>,
        encoding: Option<&EncodingType>,
    ) -> Result<Self, Failure> {
        let max_keys = max_keys.unwrap_or(MAX_KEYS);
        if max_keys < 0 {
            return Err(invalid("max-keys must not be negative"));
        }
        let encode = match encoding.map(EncodingType::as_str) {
            None | Some("") => false,
            Some("url") => true,
            Some(_) => return Err(invalid("encoding-type must be url")),
        };
        Ok(Self {
            bucket,
            prefix: prefix.unwrap_or_default(),
            delimiter: delimiter.filter(|delimiter| !delimiter.is_empty()),
            max_keys: max_keys.min(MAX_KEYS),
            encode,
        })
    }

    /// One page after `start_after`.
    async fn page(
        &self,
        gateway: &Gateway,
        principal: &Principal,
        start_after: Option<String>,
    ) -> Result<ListPage, Failure> {
        let allowed =
            gateway.policy.authorise(principal, Action::List, &gateway.buckets, &self.bucket, &self.prefix)?;
        // A page of none is the last one, whatever the bucket holds.
        let max_keys = usize::try_from(self.max_keys).unwrap_or(0);
        if max_keys == 0 {
            return Ok(ListPage::default());
        }
        let request = ListRequest {
            prefix: self.prefix.clone(),
            delimiter: self.delimiter.clone(),
            start_after: start_after.filter(|start| !start.is_empty()),
            max_keys,
        };
        Ok(allowed.bucket().store.list(&request).await?)
    }

    fn name(&self, text: &str) -> String {
        if self.encode { Cow::from(utf8_percent_encode(text, URL_SAFE)).into_owned() } else { text.to_owned() }
    }

    fn objects(&self, page: &ListPage, with_owner: bool) -> Vec<Object> {
        page.objects.iter().map(|(key, info)| self.object(key, info, with_owner)).collect()
    }

    fn object(&self, key: &str, info: &ObjectInfo, with_owner: bool) -> Object {
        Object {
            key: Some(self.name(key)),
            size: Some(i64::try_from(info.size).unwrap_or(i64::MAX)),
            e_tag: Some(ETag::Strong(info.version.as_str().to_owned())),
            last_modified: Some(Timestamp::from(wire_time(info.last_modified))),
            owner: with_owner.then(owner),
            storage_class: Some(ObjectStorageClass::from_static(ObjectStorageClass::STANDARD)),
            ..Object::default()
        }
    }

    fn common_prefixes(&self, page: &ListPage) -> Vec<CommonPrefix> {
        page.prefixes.iter().map(|prefix| CommonPrefix { prefix: Some(self.name(prefix)) }).collect()
    }

    fn encoding_type(&self) -> Option<EncodingType> {
        self.encode.then(|| EncodingType::from_static(EncodingType::URL))
    }

    /// A checksum of the listing and where it goes on.
    fn seal(&self, next: &str) -> [u8; 4] {
        let parts = [&*self.bucket, &*self.prefix, self.delimiter.as_deref().unwrap_or_default(), next];
        // Lengths between the parts: ("a", "bc") must not seal as ("ab", "c").
        let sealed = parts.iter().fold(0, |sum, part| {
            crc32c::crc32c_append(crc32c::crc32c_append(sum, &(part.len() as u64).to_le_bytes()), part.as_bytes())
        });
        sealed.to_le_bytes()
    }

    fn token(&self, next: &str) -> String {
        URL_SAFE_NO_PAD.encode([self.seal(next).as_slice(), next.as_bytes()].concat())
    }

    fn read_token(&self, token: &str) -> Result<String, Failure> {
        let next = || -> Option<String> {
            let bytes = URL_SAFE_NO_PAD.decode(token).ok()?;
            let (seal, next) = bytes.split_first_chunk::<4>()?;
            let next = std::str::from_utf8(next).ok()?;
            (*seal == self.seal(next)).then(|| next.to_owned())
        };
        next().ok_or_else(|| invalid("the continuation token is not one of this listing"))
    }
}

/// Answers ListObjectsV2.
pub(super) async fn v2(
    gateway: &Gateway,
    principal: &Principal,
    input: ListObjectsV2Input,
) -> Result<ListObjectsV2Output, Failure> {
    let listing =
        Listing::new(input.bucket, input.prefix, input.delimiter, input.max_keys, input.encoding_type.as_ref())?;
    let start = match &input.continuation_token {
        Some(token) => Some(listing.read_token(token)?),
        None => input.start_after.clone(),
    };
    let page = listing.page(gateway, principal, start).await?;
    let key_count = i32::try_from(page.objects.len() + page.prefixes.len()).unwrap_or(i32::MAX);
    Ok(ListObjectsV2Output {
        prefix: Some(listing.name(&listing.prefix)),
        delimiter: listing.delimiter.as_deref().map(|delimiter| listing.name(delimiter)),
        start_after: input.start_after.as_deref().map(|start| listing.name(start)),
        continuation_token: input.continuation_token,
        next_continuation_token: page.next.as_deref().map(|next| listing.token(next)),
        is_truncated: Some(page.next.is_some()),
        key_count: Some(key_count),
        max_keys: Some(listing.max_keys),
        encoding_type: listing.encoding_type(),
        contents: Some(listing.objects(&page, input.fetch_owner.unwrap_or(false))),
        common_prefixes: Some(listing.common_prefixes(&page)),
        name: Some(listing.bucket),
        ..ListObjectsV2Output::default()
    })
}

/// Answers ListObjects.
pub(super) async fn v1(
    gateway: &Gateway,
    principal: &Principal,
    input: ListObjectsInput,
) -> Result<ListObjectsOutput, Failure> {
    let listing =
        Listing::new(input.bucket, input.prefix, input.delimiter, input.max_keys, input.encoding_type.as_ref())?;
    let page = listing.page(gateway, principal, input.marker.clone()).await?;
    Ok(ListObjectsOutput {
        prefix: Some(listing.name(&listing.prefix)),
        delimiter: listing.delimiter.as_deref().map(|delimiter| listing.name(delimiter)),
        marker: Some(listing.name(input.marker.as_deref().unwrap_or_default())),
        // S3 names the next marker only with a delimiter; without one it is the last key.
        next_marker: page.next.as_deref().filter(|_| listing.delimiter.is_some()).map(|next| listing.name(next)),
        is_truncated: Some(page.next.is_some()),
        max_keys: Some(listing.max_keys),
        encoding_type: listing.encoding_type(),
        contents: Some(listing.objects(&page, true)),
        common_prefixes: Some(listing.common_prefixes(&page)),
        name: Some(listing.bucket),
        ..ListObjectsOutput::default()
    })
}

/// The one owner of everything: a gateway has no accounts.
pub(super) fn owner() -> Owner {
    Owner { id: Some("w4dx".into()), display_name: Some("w4dx".into()) }
}

fn invalid(message: &'static str) -> Failure {
    Failure::code(S3ErrorCode::InvalidArgument, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listing(bucket: &str, prefix: &str, delimiter: Option<&str>) -> Listing {
        let (prefix, delimiter) = (Some(prefix.to_owned()), delimiter.map(str::to_owned));
        Listing::new(bucket.into(), prefix, delimiter, None, None).unwrap()
    }

    #[test]
    fn a_token_belongs_to_its_listing() {
        let token = listing("b", "p/", Some("/")).token("p/ü+ 1");
        assert_eq!(listing("b", "p/", Some("/")).read_token(&token).unwrap(), "p/ü+ 1");
        for other in [listing("c", "p/", Some("/")), listing("b", "p", Some("/")), listing("b", "p/", None)] {
            assert!(other.read_token(&token).is_err());
        }
        for wrong in ["", "AAAA", "not base64!", &token[1..], &format!("{token}AA")] {
            assert!(listing("b", "p/", Some("/")).read_token(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn url_encoding_keeps_slashes_and_encodes_plus_space_and_unicode() {
        let mut listing = listing("b", "", None);
        listing.encode = true;
        assert_eq!(listing.name("a/b-c_d.e~f"), "a/b-c_d.e~f");
        assert_eq!(listing.name("a b+c%é\u{1}"), "a%20b%2Bc%25%C3%A9%01");
    }
}
