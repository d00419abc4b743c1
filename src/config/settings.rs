//! From a configuration to the small structs that the parts are made with.

use std::net::{SocketAddr, ToSocketAddrs as _};

use super::{Config, ConfigError};
use crate::auth::{Key, Scope};
use crate::fetch::FetcherSettings;
use crate::http::GatewaySettings;
use crate::metrics::Metrics;
use crate::plan;
use crate::server::ServerSettings;

impl Config {
    /// The access keys with what they reach.
    ///
    /// # Errors
    /// [`ConfigError::Secret`] for a secret that was never fetched.
    pub fn access_keys(&self) -> Result<Vec<Key>, ConfigError> {
        let keys = self.keys.iter().map(|key| {
            Ok(Key {
                access_key: key.access_key.clone(),
                secret: key.secret_key.secret()?.clone(),
                read: key.read.iter().map(|text| scope(text)).collect(),
                write: key.write.iter().map(|text| scope(text)).collect(),
            })
        });
        keys.collect()
    }

    /// What is counted, before anything is.
    pub fn metrics(&self) -> Metrics {
        Metrics::with_datasets(self.server.dataset_metrics)
    }

    /// How the server is run.
    ///
    /// # Errors
    /// [`ConfigError::Address`] for an address that cannot be resolved.
    pub fn server_settings(&self) -> Result<ServerSettings, ConfigError> {
        let listen = self.server.listen.iter().map(|text| address(text)).collect::<Result<Vec<_>, _>>()?;
        Ok(ServerSettings {
            listen,
            admin_listen: self.server.admin_listen.as_deref().map(address).transpose()?,
            request_timeout: self.server.request_timeout,
            drain_timeout: self.server.drain_timeout,
            header_bytes: self.limits.header_bytes,
            domains: self.server.domains.clone(),
            ..ServerSettings::default()
        })
    }

    /// How requests are answered.
    pub fn gateway_settings(&self) -> GatewaySettings {
        let defaults = GatewaySettings::default();
        let limits = &self.limits;
        GatewaySettings {
            limits: plan::Limits {
                result_bytes: limits.result_bytes,
                chunks: limits.chunks_per_request,
                ..defaults.limits
            },
            json_elements: limits.json_elements,
            upload_bytes: limits.body_bytes,
            cache_bytes: limits.cache_bytes,
            inflight_bytes: limits.inflight_bytes,
            fetch: FetcherSettings {
                store_concurrency: limits.store_concurrency,
                gap_bytes: limits.gap_bytes,
                read_time: self.server.request_timeout,
                ..defaults.fetch
            },
            ..defaults
        }
    }
}

/// `BUCKET`, `BUCKET/PREFIX`, or `*`.
fn scope(text: &str) -> Scope {
    let (bucket, prefix) = text.split_once('/').unwrap_or((text, ""));
    Scope { bucket: bucket.to_owned(), prefix: prefix.to_owned() }
}

fn address(text: &str) -> Result<SocketAddr, ConfigError> {
    let wrong = |reason: String| ConfigError::Address { address: text.to_owned(), reason };
    let mut found = text.to_socket_addrs().map_err(|error| wrong(error.to_string()))?;
    found.next().ok_or_else(|| wrong("it has no address".to_owned()))
}
