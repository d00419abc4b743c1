//! `w4dx.toml`: stores, buckets, keys, limits, listeners, and how they are put together.
//!
//! No other module reads configuration; each is handed its own small struct. Errors are one line each and name the
//! file's line, the key, and the nearest known name. Secrets are never printed.
//!
//! ```toml
//! [server]
//! listen = "127.0.0.1:9000"
//!
//! [stores.disk]
//! kind = "local"
//! path = "data"            # relative to this file
//!
//! [buckets.vault]
//! store = "disk"
//! prefix = "vault/"
//! anonymous = "read"
//!
//! [[keys]]
//! access_key = "trainer"
//! secret_key_env = "TRAINER_SECRET"
//! read = ["vault"]
//! write = ["vault/runs"]
//! ```

mod build;
mod error;
mod file;
mod settings;
mod tables;
#[cfg(test)]
mod tests;
mod units;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

pub use self::error::ConfigError;
pub use self::units::{parse_duration, parse_size};

use crate::model::Secret;
use crate::store::{AnonymousAccess, Freshness};

/// Everything that the gateway is told before it starts.
#[derive(Debug, Clone, Default)]
pub struct Config {
    /// Listeners, timeouts, logs.
    pub server: ServerConfig,
    /// Backends by name.
    pub stores: BTreeMap<String, StoreConfig>,
    /// Buckets by name.
    pub buckets: BTreeMap<String, BucketConfig>,
    /// Access keys.
    pub keys: Vec<KeyConfig>,
    /// What a request may cost.
    pub limits: Limits,
}

/// Listeners, timeouts, logs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerConfig {
    /// Addresses that serve clients, each `HOST:PORT`; port 0 takes a free one.
    pub listen: Vec<String>,
    /// Address of `/-/metrics`; else the main listener serves it when that is loopback.
    pub admin_listen: Option<String>,
    /// Longest time for a whole request.
    pub request_timeout: Duration,
    /// Longest time that requests under way get after SIGTERM.
    pub drain_timeout: Duration,
    /// How logs look.
    pub log: LogFormat,
    /// Base domains of host-style requests.
    pub domains: Vec<String>,
    /// Most datasets that the metrics tell apart; 0 for none.
    pub dataset_metrics: usize,
}

impl Default for ServerConfig {
    fn default() -> Self {
        Self {
            listen: vec!["127.0.0.1:9000".into()],
            admin_listen: None,
            request_timeout: Duration::from_secs(300),
            drain_timeout: Duration::from_secs(30),
            log: LogFormat::Human,
            domains: Vec::new(),
            dataset_metrics: 0,
        }
    }
}

/// How logs look.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum LogFormat {
    /// For people.
    #[default]
    Human,
    /// One JSON object a line.
    Json,
}

/// One backend.
#[derive(Debug, Clone)]
pub struct StoreConfig {
    /// Whether it holds every bucket that is not listed, as a prefix with the bucket's name.
    pub default: bool,
    /// Where the objects are.
    pub backend: Backend,
}

/// Where the objects of a store are.
#[derive(Debug, Clone)]
pub enum Backend {
    /// A folder.
    Local {
        /// Its path.
        path: PathBuf,
    },
    /// A bucket at AWS or at another S3 store.
    S3 {
        /// The bucket's name there.
        bucket: String,
        /// Its URL when it is not AWS.
        endpoint: Option<String>,
        /// Its region.
        region: Option<String>,
        /// A profile of the AWS configuration files.
        profile: Option<String>,
        /// Access key and secret; else the AWS credential chain.
        credentials: Option<(String, SecretSource)>,
        /// Requests are not signed.
        anonymous: bool,
        /// Path style; else true when an endpoint is given.
        path_style: Option<bool>,
    },
    /// A GCS bucket.
    Gcs {
        /// The bucket's name.
        bucket: String,
        /// Another endpoint than Google's.
        endpoint: Option<String>,
        /// A service account's JSON file; else application default credentials.
        service_account: Option<PathBuf>,
        /// Requests are not signed.
        anonymous: bool,
    },
    /// An Azure container.
    Azure {
        /// The storage account.
        account: String,
        /// The container.
        container: String,
        /// Another endpoint than Azure's.
        endpoint: Option<String>,
        /// The account's access key; else the environment's identity.
        access_key: Option<SecretSource>,
        /// Requests are not signed.
        anonymous: bool,
    },
    /// Memory, gone with the process.
    Memory,
}

/// One bucket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BucketConfig {
    /// The store's name.
    pub store: String,
    /// Where in the store its keys begin; `""` or ending with a slash.
    pub prefix: String,
    /// How long versions are trusted; else zero for a local store and ten seconds for others.
    pub freshness: Option<Freshness>,
    /// What requests without a key may do.
    pub anonymous: AnonymousAccess,
    /// Whether PutObject and DeleteObject are served.
    pub writable: bool,
    /// Whether keys with a last segment `@NAME…` are slices.
    pub in_key_form: bool,
}

/// One access key and what it may do.
#[derive(Debug, Clone)]
pub struct KeyConfig {
    /// The access key.
    pub access_key: String,
    /// Where its secret is.
    pub secret_key: SecretSource,
    /// What it may read and list: `BUCKET`, `BUCKET/PREFIX`, or `*` for everything.
    pub read: Vec<String>,
    /// What it may write and delete, in the same form.
    pub write: Vec<String>,
}

/// Where a secret is. [`Config::apply_environment`] replaces the last two by the first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SecretSource {
    /// Here.
    Value(Secret),
    /// In this environment variable.
    Environment(String),
    /// In this file; one line break at its end is not part of it.
    File(PathBuf),
}

impl SecretSource {
    /// The secret, once [`Config::apply_environment`] has fetched it.
    ///
    /// # Errors
    /// [`ConfigError::Secret`] when it was never fetched.
    pub fn secret(&self) -> Result<&Secret, ConfigError> {
        match self {
            Self::Value(secret) => Ok(secret),
            Self::Environment(name) => Err(ConfigError::Secret { place: format!("environment variable `{name}`") }),
            Self::File(path) => Err(ConfigError::Secret { place: format!("file `{}`", path.display()) }),
        }
    }

    fn fetch(&mut self, variable: &impl Fn(&str) -> Option<String>) -> Result<(), ConfigError> {
        let found = match self {
            Self::Value(_) => return Ok(()),
            Self::Environment(name) => variable(name).ok_or_else(|| ConfigError::Secret {
                place: format!("environment variable `{name}`, which is not set"),
            })?,
            Self::File(path) => std::fs::read_to_string(&path)
                .map_err(|error| ConfigError::Secret { place: format!("file `{}`: {error}", path.display()) })?,
        };
        let secret = found.strip_suffix('\n').map_or(found.as_str(), |line| line.strip_suffix('\r').unwrap_or(line));
        if secret.is_empty() {
            return Err(ConfigError::Secret { place: "an empty variable or file".into() });
        }
        *self = Self::Value(Secret::new(secret));
        Ok(())
    }
}

/// What a request may cost. Everything is decided before it is read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Largest answer to a slice, in bytes.
    pub result_bytes: u64,
    /// Most chunks that a slice may touch.
    pub chunks_per_request: u64,
    /// Bytes that all requests together may hold.
    pub inflight_bytes: u64,
    /// Bytes that the cache of decoded chunks may hold.
    pub cache_bytes: u64,
    /// Most elements of an answer in JSON.
    pub json_elements: u64,
    /// Largest head of a request, in bytes.
    pub header_bytes: u64,
    /// Largest upload, in bytes.
    pub body_bytes: u64,
    /// Longest time for one call to a store.
    pub upstream_timeout: Duration,
    /// Most reads of one store at once, whatever bucket they are for.
    pub store_concurrency: usize,
    /// Largest hole, in bytes, that is read through instead of sending a second GET; `None` measures each store.
    pub gap_bytes: Option<u64>,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            result_bytes: 64 << 30,
            chunks_per_request: 1_000_000,
            inflight_bytes: 2 << 30,
            cache_bytes: 512 << 20,
            json_elements: 1_000_000,
            header_bytes: 64 << 10,
            body_bytes: 5 << 30,
            upstream_timeout: Duration::from_secs(30),
            store_concurrency: 64,
            gap_bytes: None,
        }
    }
}

impl std::str::FromStr for Config {
    type Err = ConfigError;

    /// Reads the text of a configuration file. Relative paths stay relative to the working directory.
    fn from_str(text: &str) -> Result<Self, ConfigError> {
        file::parse(text, "w4dx.toml", Path::new(""))
    }
}

impl Config {
    /// Reads a configuration file. Relative paths in it are relative to its folder.
    ///
    /// # Errors
    /// [`ConfigError`], one line that names the file, the line and the key.
    pub fn load(path: &Path) -> Result<Self, ConfigError> {
        let name = path.display().to_string();
        let text = std::fs::read_to_string(path)
            .map_err(|error| ConfigError::Unreadable { file: name.clone(), reason: error.to_string() })?;
        file::parse(&text, &name, path.parent().unwrap_or(Path::new("")))
    }

    /// Lets the environment override: `W4DX_LISTEN`, `W4DX_ADMIN_LISTEN`, `W4DX_LOG_FORMAT`, and `W4DX_ACCESS_KEY` with
    /// `W4DX_SECRET_KEY`, a key that may do everything. Then fetches every secret that lies in a variable or a file.
    ///
    /// # Errors
    /// [`ConfigError::Environment`] for a value that cannot be, [`ConfigError::Secret`] for a secret that is not there.
    pub fn apply_environment(&mut self, variable: &impl Fn(&str) -> Option<String>) -> Result<(), ConfigError> {
        let set = |name: &str| variable(name).filter(|value| !value.is_empty());
        if let Some(listen) = set("W4DX_LISTEN") {
            self.server.listen = listen.split(',').map(|address| address.trim().to_owned()).collect();
        }
        if let Some(listen) = set("W4DX_ADMIN_LISTEN") {
            self.server.admin_listen = Some(listen);
        }
        if let Some(format) = set("W4DX_LOG_FORMAT") {
            self.server.log = file::log_format(&format).ok_or_else(|| ConfigError::Environment {
                variable: "W4DX_LOG_FORMAT",
                reason: format!("`{format}` is neither `human` nor `json`"),
            })?;
        }
        match (set("W4DX_ACCESS_KEY"), set("W4DX_SECRET_KEY")) {
            (Some(access_key), Some(secret_key)) => {
                self.keys.retain(|key| key.access_key != access_key);
                self.keys.push(KeyConfig {
                    access_key,
                    secret_key: SecretSource::Value(Secret::new(&secret_key)),
                    read: vec!["*".into()],
                    write: vec!["*".into()],
                });
            }
            (None, None) => {}
            (Some(_), None) => {
                let reason = "W4DX_ACCESS_KEY is set without it".into();
                return Err(ConfigError::Environment { variable: "W4DX_SECRET_KEY", reason });
            }
            (None, Some(_)) => {
                let reason = "W4DX_SECRET_KEY is set without it".into();
                return Err(ConfigError::Environment { variable: "W4DX_ACCESS_KEY", reason });
            }
        }
        for key in &mut self.keys {
            key.secret_key.fetch(variable)?;
        }
        for store in self.stores.values_mut() {
            match &mut store.backend {
                Backend::S3 { credentials: Some((_, secret)), .. } => secret.fetch(variable)?,
                Backend::Azure { access_key: Some(secret), .. } => secret.fetch(variable)?,
                Backend::S3 { .. }
                | Backend::Azure { .. }
                | Backend::Gcs { .. }
                | Backend::Local { .. }
                | Backend::Memory => {}
            }
        }
        Ok(())
    }
}
