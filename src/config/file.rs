//! What must hold between the tables of the file, and how a wrong one is told.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use toml::Spanned;

use super::error::nearest;
use super::tables::{
    AnonymousName, BucketTable, Bytes, FileTables, Gap, KeyTable, LimitsTable, LogName, ServerTable, StoreKind,
    StoreTable,
};
use super::{
    Backend, BucketConfig, Config, ConfigError, KeyConfig, Limits, LogFormat, SecretSource, ServerConfig, StoreConfig,
};
use crate::model::Secret;
use crate::store::AnonymousAccess;

/// A log format by its name.
pub(super) fn log_format(name: &str) -> Option<LogFormat> {
    match name {
        "human" => Some(LogFormat::Human),
        "json" => Some(LogFormat::Json),
        _ => None,
    }
}

/// Reads a file's text. `folder` is where its relative paths begin.
pub(super) fn parse(text: &str, file: &str, folder: &Path) -> Result<Config, ConfigError> {
    let source = Source { text, file, folder };
    let tables: FileTables = toml::from_str(text).map_err(|error| source.syntax(&error))?;
    let stores = tables.stores.into_iter().map(|(name, table)| {
        let store = source.store(&name, table)?;
        Ok((name, store))
    });
    let stores: BTreeMap<_, _> = stores.collect::<Result<_, ConfigError>>()?;
    let defaults: Vec<_> = stores.iter().filter(|(_, store)| store.default).map(|(name, _)| name.as_str()).collect();
    if let [first, second, ..] = defaults[..] {
        return Err(source.invalid(0, format!("both stores `{first}` and `{second}` are the default one")));
    }
    let buckets = tables.buckets.into_iter().map(|(name, table)| {
        let bucket = source.bucket(&name, table, &stores)?;
        Ok((name, bucket))
    });
    let buckets: BTreeMap<_, _> = buckets.collect::<Result<_, ConfigError>>()?;
    let has_default = !defaults.is_empty();
    let mut keys: Vec<KeyConfig> = Vec::new();
    for table in tables.keys {
        let at = table.span().start;
        let key = source.key(table, &buckets, has_default)?;
        if keys.iter().any(|other| other.access_key == key.access_key) {
            return Err(source.invalid(at, format!("access key `{}` is given twice", key.access_key)));
        }
        keys.push(key);
    }
    Ok(Config { server: server(tables.server), stores, buckets, keys, limits: limits(&tables.limits) })
}

fn server(table: ServerTable) -> ServerConfig {
    let default = ServerConfig::default();
    ServerConfig {
        listen: table.listen.map_or(default.listen, |listen| listen.0),
        admin_listen: table.admin_listen,
        request_timeout: table.request_timeout.map_or(default.request_timeout, |span| span.0),
        drain_timeout: table.drain_timeout.map_or(default.drain_timeout, |span| span.0),
        log: match table.log {
            Some(LogName::Human) | None => LogFormat::Human,
            Some(LogName::Json) => LogFormat::Json,
        },
        domains: table.domains.unwrap_or_default(),
        dataset_metrics: table.dataset_metrics.unwrap_or(default.dataset_metrics),
    }
}

fn limits(table: &LimitsTable) -> Limits {
    let default = Limits::default();
    let bytes = |given: &Option<Bytes>, default| given.as_ref().map_or(default, |bytes| bytes.0);
    Limits {
        result_bytes: bytes(&table.result_bytes, default.result_bytes),
        chunks_per_request: table.chunks_per_request.unwrap_or(default.chunks_per_request),
        inflight_bytes: bytes(&table.inflight_bytes, default.inflight_bytes),
        cache_bytes: bytes(&table.cache_bytes, default.cache_bytes),
        json_elements: table.json_elements.unwrap_or(default.json_elements),
        header_bytes: bytes(&table.header_bytes, default.header_bytes),
        body_bytes: bytes(&table.body_bytes, default.body_bytes),
        upstream_timeout: table.upstream_timeout.as_ref().map_or(default.upstream_timeout, |span| span.0),
        store_concurrency: table.store_concurrency.unwrap_or(default.store_concurrency).max(1),
        gap_bytes: match table.gap_bytes {
            Some(Gap::Bytes(bytes)) => Some(bytes),
            Some(Gap::Auto) => None,
            None => default.gap_bytes,
        },
    }
}

/// The text that is read, to tell lines from positions.
struct Source<'a> {
    text: &'a str,
    file: &'a str,
    folder: &'a Path,
}

impl Source<'_> {
    fn invalid(&self, position: usize, reason: String) -> ConfigError {
        let before = self.text.as_bytes().get(..position).unwrap_or(self.text.as_bytes());
        let line = 1 + before.iter().filter(|byte| **byte == b'\n').count();
        ConfigError::Invalid { file: self.file.into(), line, reason }
    }

    fn syntax(&self, error: &toml::de::Error) -> ConfigError {
        let position = error.span().map_or(0, |span| span.start);
        self.invalid(position, friendly(error.message()))
    }

    fn path(&self, path: PathBuf) -> PathBuf {
        if path.as_os_str().is_empty() { path } else { self.folder.join(path) }
    }

    fn store(&self, name: &str, table: Spanned<StoreTable>) -> Result<StoreConfig, ConfigError> {
        let at = table.span().start;
        let table = table.into_inner();
        let wrong = |reason: String| self.invalid(at, format!("store `{name}`: {reason}"));
        let kind = table.kind;
        let needed = |key: &str| wrong(format!("a store of kind `{}` needs `{key}`", kind.name()));
        if let Some(key) = table.given().find(|key| !kind.keys().contains(key)) {
            let known = kind.keys().join("`, `");
            return Err(wrong(format!("a store of kind `{}` has no `{key}`, only `{known}`", kind.name())));
        }
        let secret = self.secret(table.secret_key, table.secret_key_env, table.secret_key_file).map_err(wrong)?;
        let anonymous = table.anonymous.unwrap_or(false);
        let backend = match kind {
            StoreKind::Local => {
                let path = table.path.filter(|path| !path.as_os_str().is_empty()).ok_or_else(|| needed("path"))?;
                Backend::Local { path: self.path(path) }
            }
            StoreKind::Memory => Backend::Memory,
            StoreKind::S3 => Backend::S3 {
                bucket: table.bucket.ok_or_else(|| needed("bucket"))?,
                endpoint: table.endpoint,
                region: table.region,
                profile: table.profile,
                credentials: match (table.access_key, secret) {
                    (Some(access_key), Some(secret)) => Some((access_key, secret)),
                    (None, None) => None,
                    (Some(_), None) => return Err(wrong("`access_key` is given without a secret key".into())),
                    (None, Some(_)) => return Err(wrong("a secret key is given without `access_key`".into())),
                },
                anonymous,
                path_style: table.path_style,
            },
            StoreKind::Gcs => Backend::Gcs {
                bucket: table.bucket.ok_or_else(|| needed("bucket"))?,
                endpoint: table.endpoint,
                service_account: table.service_account.map(|path| self.path(path)),
                anonymous,
            },
            StoreKind::Azure => Backend::Azure {
                account: table.account.ok_or_else(|| needed("account"))?,
                container: table.container.ok_or_else(|| needed("container"))?,
                endpoint: table.endpoint,
                access_key: secret,
                anonymous,
            },
        };
        Ok(StoreConfig { default: table.default, backend })
    }

    fn bucket(
        &self,
        name: &str,
        table: Spanned<BucketTable>,
        stores: &BTreeMap<String, StoreConfig>,
    ) -> Result<BucketConfig, ConfigError> {
        let at = table.span().start;
        let table = table.into_inner();
        if let Some(reason) = bucket_name_fault(name) {
            return Err(self.invalid(at, format!("bucket `{name}`: {reason}")));
        }
        let store = table.store.get_ref();
        if !stores.contains_key(store) {
            let hint = nearest(store, stores.keys().map(String::as_str));
            let hint = hint.map_or_else(String::new, |known| format!("; did you mean `{known}`?"));
            return Err(self.invalid(table.store.span().start, format!("bucket `{name}`: no store `{store}`{hint}")));
        }
        let climbs = table.prefix.split('/').any(|segment| matches!(segment, "." | ".."));
        if table.prefix.starts_with('/') || table.prefix.contains("//") || climbs {
            let reason = format!("bucket `{name}`: prefix `{}` is not a relative path", table.prefix);
            return Err(self.invalid(at, reason));
        }
        let slash = if table.prefix.is_empty() || table.prefix.ends_with('/') { "" } else { "/" };
        Ok(BucketConfig {
            prefix: format!("{}{slash}", table.prefix),
            store: table.store.into_inner(),
            freshness: table.freshness.map(|freshness| freshness.0),
            anonymous: match table.anonymous {
                Some(AnonymousName::Read) => AnonymousAccess::Read,
                Some(AnonymousName::None) | None => AnonymousAccess::None,
            },
            writable: table.writable,
            in_key_form: table.in_key_form.unwrap_or(true),
        })
    }

    fn key(
        &self,
        table: Spanned<KeyTable>,
        buckets: &BTreeMap<String, BucketConfig>,
        has_default: bool,
    ) -> Result<KeyConfig, ConfigError> {
        let at = table.span().start;
        let table = table.into_inner();
        let access_key = table.access_key;
        let wrong = |reason: String| self.invalid(at, format!("key `{access_key}`: {reason}"));
        if access_key.is_empty() || !access_key.bytes().all(|byte| byte.is_ascii_graphic() && !b"/,=".contains(&byte)) {
            return Err(wrong("an access key is printable ASCII without `/`, `,` and `=`".into()));
        }
        let secret_key = self
            .secret(table.secret_key, table.secret_key_env, table.secret_key_file)
            .and_then(|secret| secret.ok_or_else(|| "needs `secret_key`, `secret_key_env` or `secret_key_file`".into()))
            .map_err(wrong)?;
        let scopes = |scopes: Vec<Spanned<String>>| {
            let check = |scope: Spanned<String>| {
                let bucket = scope.get_ref().split('/').next().unwrap_or_default();
                if bucket == "*" || buckets.contains_key(bucket) || (has_default && bucket_name_fault(bucket).is_none())
                {
                    return Ok(scope.into_inner());
                }
                let hint = nearest(bucket, buckets.keys().map(String::as_str));
                let hint = hint.map_or_else(String::new, |known| format!("; did you mean `{known}`?"));
                let reason = format!("key `{access_key}`: no bucket `{bucket}`{hint}");
                Err(self.invalid(scope.span().start, reason))
            };
            scopes.into_iter().map(check).collect::<Result<Vec<_>, _>>()
        };
        let (read, write) = (scopes(table.read)?, scopes(table.write)?);
        Ok(KeyConfig { access_key, secret_key, read, write })
    }

    fn secret(
        &self,
        value: Option<String>,
        variable: Option<String>,
        file: Option<PathBuf>,
    ) -> Result<Option<SecretSource>, String> {
        match (value, variable, file) {
            (None, None, None) => Ok(None),
            (Some(value), None, None) if value.is_empty() => Err("`secret_key` is empty".into()),
            (Some(value), None, None) => Ok(Some(SecretSource::Value(Secret::new(&value)))),
            (None, Some(variable), None) => Ok(Some(SecretSource::Environment(variable))),
            (None, None, Some(file)) => Ok(Some(SecretSource::File(self.path(file)))),
            _ => Err("only one of `secret_key`, `secret_key_env` and `secret_key_file` can be given".into()),
        }
    }
}

/// Why S3 clients could not address a bucket of this name.
pub(super) fn bucket_name_fault(name: &str) -> Option<&'static str> {
    let allowed = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b".-_".contains(&byte);
    if !(3..=63).contains(&name.len()) {
        Some("a bucket's name has 3 to 63 characters")
    } else if !name.bytes().all(allowed) {
        Some("a bucket's name has lower-case letters, digits, `.`, `-` and `_` only")
    } else if name.starts_with(['.', '-', '_']) || name.ends_with(['.', '-', '_']) || name.contains("..") {
        Some("a bucket's name begins and ends with a letter or digit and has no `..`")
    } else {
        None
    }
}

/// Serde's message with the nearest known name: ``unknown field `lisen`, expected one of `listen`, …``.
fn friendly(message: &str) -> String {
    let one_line = message.replace('\n', " ");
    let Some(rest) = one_line.strip_prefix("unknown field `") else {
        return match one_line.strip_prefix("unknown variant `") {
            Some(rest) => unknown("value", rest),
            None => one_line,
        };
    };
    unknown("key", rest)
}

fn unknown(what: &str, rest: &str) -> String {
    let (wrong, expected) = rest.split_once('`').unwrap_or((rest, ""));
    let known: Vec<&str> = expected.split('`').skip(1).step_by(2).collect();
    match nearest(wrong, known.iter().copied()) {
        Some(near) => format!("unknown {what} `{wrong}`; did you mean `{near}`?"),
        None if known.is_empty() => format!("unknown {what} `{wrong}`"),
        None => format!("unknown {what} `{wrong}`; known are `{}`", known.join("`, `")),
    }
}
