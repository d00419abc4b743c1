//! The tables of the file as serde reads them.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use serde::Deserialize;
use serde::de::{Deserializer, Error as _, Visitor};
use toml::Spanned;

use super::units::{parse_duration, parse_size};
use crate::store::Freshness;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct FileTables {
    #[serde(default)]
    pub(super) server: ServerTable,
    #[serde(default)]
    pub(super) stores: BTreeMap<String, Spanned<StoreTable>>,
    #[serde(default)]
    pub(super) buckets: BTreeMap<String, Spanned<BucketTable>>,
    #[serde(default)]
    pub(super) keys: Vec<Spanned<KeyTable>>,
    #[serde(default)]
    pub(super) limits: LimitsTable,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ServerTable {
    pub(super) listen: Option<OneOrMore>,
    pub(super) admin_listen: Option<String>,
    pub(super) request_timeout: Option<Span>,
    pub(super) drain_timeout: Option<Span>,
    pub(super) log: Option<LogName>,
    pub(super) domains: Option<Vec<String>>,
    pub(super) dataset_metrics: Option<usize>,
}

#[derive(Deserialize, Clone, Copy, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub(super) enum LogName {
    Human,
    Json,
}

#[derive(Deserialize, Clone, Copy, PartialEq, Eq, Debug)]
#[serde(rename_all = "lowercase")]
pub(super) enum StoreKind {
    Local,
    S3,
    Gcs,
    Azure,
    Memory,
}

/// All keys of all kinds: a table whose kind decides its keys loses the line of an error in serde.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct StoreTable {
    pub(super) kind: StoreKind,
    #[serde(default)]
    pub(super) default: bool,
    pub(super) path: Option<PathBuf>,
    pub(super) bucket: Option<String>,
    pub(super) endpoint: Option<String>,
    pub(super) region: Option<String>,
    pub(super) profile: Option<String>,
    pub(super) access_key: Option<String>,
    pub(super) secret_key: Option<String>,
    pub(super) secret_key_env: Option<String>,
    pub(super) secret_key_file: Option<PathBuf>,
    pub(super) anonymous: Option<bool>,
    pub(super) path_style: Option<bool>,
    pub(super) service_account: Option<PathBuf>,
    pub(super) account: Option<String>,
    pub(super) container: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct BucketTable {
    pub(super) store: Spanned<String>,
    #[serde(default)]
    pub(super) prefix: String,
    pub(super) freshness: Option<FreshnessText>,
    pub(super) anonymous: Option<AnonymousName>,
    #[serde(default)]
    pub(super) writable: bool,
    pub(super) in_key_form: Option<bool>,
}

#[derive(Deserialize, Clone, Copy)]
#[serde(rename_all = "lowercase")]
pub(super) enum AnonymousName {
    None,
    Read,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct KeyTable {
    pub(super) access_key: String,
    pub(super) secret_key: Option<String>,
    pub(super) secret_key_env: Option<String>,
    pub(super) secret_key_file: Option<PathBuf>,
    #[serde(default)]
    pub(super) read: Vec<Spanned<String>>,
    #[serde(default)]
    pub(super) write: Vec<Spanned<String>>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct LimitsTable {
    pub(super) result_bytes: Option<Bytes>,
    pub(super) gap_bytes: Option<Gap>,
    pub(super) chunks_per_request: Option<u64>,
    pub(super) inflight_bytes: Option<Bytes>,
    pub(super) cache_bytes: Option<Bytes>,
    pub(super) json_elements: Option<u64>,
    pub(super) header_bytes: Option<Bytes>,
    pub(super) body_bytes: Option<Bytes>,
    pub(super) upstream_timeout: Option<Span>,
    pub(super) store_concurrency: Option<usize>,
}

/// A size: a number of bytes, or text with a unit.
pub(super) struct Bytes(pub(super) u64);

impl<'de> Deserialize<'de> for Bytes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Sizes;
        impl Visitor<'_> for Sizes {
            type Value = Bytes;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a size such as `512MiB`")
            }
            fn visit_i64<E: serde::de::Error>(self, number: i64) -> Result<Bytes, E> {
                u64::try_from(number).map(Bytes).map_err(|_| E::custom("a size is not negative"))
            }
            fn visit_u64<E: serde::de::Error>(self, number: u64) -> Result<Bytes, E> {
                Ok(Bytes(number))
            }
            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Bytes, E> {
                parse_size(text).map(Bytes).map_err(E::custom)
            }
        }
        deserializer.deserialize_any(Sizes)
    }
}

/// A size that is fixed, or measured: `"auto"`.
pub(super) enum Gap {
    Bytes(u64),
    Auto,
}

impl<'de> Deserialize<'de> for Gap {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Gaps;
        impl Visitor<'_> for Gaps {
            type Value = Gap;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a size such as `128KiB`, or `auto`")
            }
            fn visit_i64<E: serde::de::Error>(self, number: i64) -> Result<Gap, E> {
                u64::try_from(number).map(Gap::Bytes).map_err(|_| E::custom("a size is not negative"))
            }
            fn visit_u64<E: serde::de::Error>(self, number: u64) -> Result<Gap, E> {
                Ok(Gap::Bytes(number))
            }
            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Gap, E> {
                if text == "auto" {
                    return Ok(Gap::Auto);
                }
                let neither = |_| E::custom(format!("`{text}` is neither a size such as `128KiB` nor `auto`"));
                parse_size(text).map(Gap::Bytes).map_err(neither)
            }
        }
        deserializer.deserialize_any(Gaps)
    }
}

/// A duration as text.
pub(super) struct Span(pub(super) Duration);

impl<'de> Deserialize<'de> for Span {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        parse_duration(&String::deserialize(deserializer)?).map(Self).map_err(D::Error::custom)
    }
}

pub(super) struct FreshnessText(pub(super) Freshness);

impl<'de> Deserialize<'de> for FreshnessText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        if text == "immutable" {
            return Ok(Self(Freshness::Immutable));
        }
        let duration = parse_duration(&text)
            .map_err(|_| D::Error::custom(format!("`{text}` is neither a duration such as `10s` nor `immutable`")))?;
        Ok(Self(Freshness::For(duration)))
    }
}

/// One text or several.
pub(super) struct OneOrMore(pub(super) Vec<String>);

impl<'de> Deserialize<'de> for OneOrMore {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Texts;
        impl<'de> Visitor<'de> for Texts {
            type Value = OneOrMore;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an address or a list of addresses")
            }
            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<OneOrMore, E> {
                Ok(OneOrMore(vec![text.to_owned()]))
            }
            fn visit_seq<A: serde::de::SeqAccess<'de>>(self, mut items: A) -> Result<OneOrMore, A::Error> {
                let mut texts = Vec::new();
                while let Some(text) = items.next_element()? {
                    texts.push(text);
                }
                if texts.is_empty() {
                    Err(A::Error::custom("an empty list of addresses"))
                } else {
                    Ok(OneOrMore(texts))
                }
            }
        }
        deserializer.deserialize_any(Texts)
    }
}

impl StoreKind {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Local => "local",
            Self::S3 => "s3",
            Self::Gcs => "gcs",
            Self::Azure => "azure",
            Self::Memory => "memory",
        }
    }

    /// The keys of a store of this kind beside `kind` and `default`.
    pub(super) fn keys(self) -> &'static [&'static str] {
        match self {
            Self::Local => &["path"],
            Self::S3 => &[
                "bucket",
                "endpoint",
                "region",
                "profile",
                "access_key",
                "secret_key",
                "secret_key_env",
                "secret_key_file",
                "anonymous",
                "path_style",
            ],
            Self::Gcs => &["bucket", "endpoint", "service_account", "anonymous"],
            Self::Azure => {
                &["account", "container", "endpoint", "secret_key", "secret_key_env", "secret_key_file", "anonymous"]
            }
            Self::Memory => &["kind"],
        }
    }
}

impl StoreTable {
    /// The keys that are given beside `kind` and `default`.
    pub(super) fn given(&self) -> impl Iterator<Item = &'static str> {
        [
            ("path", self.path.is_some()),
            ("bucket", self.bucket.is_some()),
            ("endpoint", self.endpoint.is_some()),
            ("region", self.region.is_some()),
            ("profile", self.profile.is_some()),
            ("access_key", self.access_key.is_some()),
            ("secret_key", self.secret_key.is_some()),
            ("secret_key_env", self.secret_key_env.is_some()),
            ("secret_key_file", self.secret_key_file.is_some()),
            ("anonymous", self.anonymous.is_some()),
            ("path_style", self.path_style.is_some()),
            ("service_account", self.service_account.is_some()),
            ("account", self.account.is_some()),
            ("container", self.container.is_some()),
        ]
        .into_iter()
        .filter_map(|(key, given)| given.then_some(key))
    }
}
