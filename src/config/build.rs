//! From a configuration to buckets that can be served.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use super::file::bucket_name_fault;
use super::{Backend, Config, ConfigError};
use crate::metrics::Metrics;
use crate::store::{
    AnonymousAccess, AzureSettings, Bucket, Buckets, DefaultBuckets, Freshness, GcsSettings, LocalStore, MeteredStore,
    Prefixed, S3Settings, S3Store, Store, azure_store, gcs_store, memory_store,
};

/// For how long versions from an upstream are trusted when a bucket does not say.
const UPSTREAM_FRESHNESS: Duration = Duration::from_secs(10);

impl Config {
    /// Opens the stores and puts the buckets in front of them, counted in `metrics`. Makes no request to an upstream.
    ///
    /// # Errors
    /// [`ConfigError`], one line, for a folder that cannot be served or settings that contradict each other.
    pub async fn build_buckets(&self, metrics: &Metrics) -> Result<Buckets, ConfigError> {
        let mut stores: BTreeMap<&str, Arc<dyn Store>> = BTreeMap::new();
        for (name, store) in &self.stores {
            stores.insert(name, self.open(name, &store.backend).await?);
        }
        let mut buckets = Vec::new();
        for (name, bucket) in &self.buckets {
            let store = stores.get(bucket.store.as_str()).ok_or_else(|| ConfigError::Store {
                store: bucket.store.clone(),
                reason: format!("bucket `{name}` lies in it, but it is not configured"),
            })?;
            // Also without a prefix: it keeps keys with `..` from anything on the way to the store.
            let part = Arc::new(Prefixed::new(Arc::clone(store), &bucket.prefix));
            buckets.push(Bucket {
                name: name.as_str().into(),
                store_name: bucket.store.as_str().into(),
                store: Arc::new(MeteredStore::new(part, metrics, name)),
                freshness: bucket.freshness.unwrap_or_else(|| default_freshness(store.as_ref())),
                anonymous: bucket.anonymous,
                writable: bucket.writable,
                in_key_form: bucket.in_key_form,
            });
        }
        let buckets = Buckets::new(buckets);
        let default = self.stores.iter().find(|(_, store)| store.default);
        let Some((store, name)) = default.and_then(|(name, _)| Some((stores.get(name.as_str())?, name))) else {
            return Ok(buckets);
        };
        // One label for all of them: names come from clients, and must not make the metrics grow.
        let metered = Arc::new(MeteredStore::new(Arc::clone(store), metrics, &format!("default:{name}")));
        Ok(buckets.with_default(DefaultBuckets {
            store_name: name.as_str().into(),
            store: metered,
            freshness: default_freshness(store.as_ref()),
            anonymous: AnonymousAccess::None,
            is_name: |name| bucket_name_fault(name).is_none(),
        }))
    }

    async fn open(&self, name: &str, backend: &Backend) -> Result<Arc<dyn Store>, ConfigError> {
        let timeout = self.limits.upstream_timeout;
        let wrong = |reason: String| ConfigError::Store { store: name.into(), reason };
        Ok(match backend {
            Backend::Local { path } => Arc::new(open_folder(name, path)?),
            Backend::Memory => memory_store(),
            Backend::S3 { bucket, endpoint, region, profile, credentials, anonymous, path_style } => {
                let defaults = S3Settings::new(bucket, endpoint.as_deref());
                let credentials = match credentials {
                    Some((access_key, secret)) => Some((access_key.clone(), secret.secret()?.clone())),
                    None => None,
                };
                let settings = S3Settings {
                    region: region.clone(),
                    profile: profile.clone(),
                    credentials,
                    anonymous: *anonymous,
                    path_style: path_style.unwrap_or(defaults.path_style),
                    connect_timeout: defaults.connect_timeout.min(timeout),
                    read_timeout: defaults.read_timeout.min(timeout),
                    timeout,
                    ..defaults
                };
                Arc::new(S3Store::connect(settings).await)
            }
            Backend::Gcs { bucket, endpoint, service_account, anonymous } => {
                let settings = GcsSettings {
                    bucket: bucket.clone(),
                    endpoint: endpoint.clone(),
                    service_account: service_account.clone(),
                    anonymous: *anonymous,
                    timeout,
                };
                Arc::new(gcs_store(&settings).map_err(|error| wrong(error.to_string()))?)
            }
            Backend::Azure { account, container, endpoint, access_key, anonymous } => {
                let settings = AzureSettings {
                    account: account.clone(),
                    container: container.clone(),
                    access_key: access_key.as_ref().map(|source| source.secret().cloned()).transpose()?,
                    endpoint: endpoint.clone(),
                    anonymous: *anonymous,
                    timeout,
                };
                Arc::new(azure_store(&settings).map_err(|error| wrong(error.to_string()))?)
            }
        })
    }
}

fn open_folder(name: &str, path: &Path) -> Result<LocalStore, ConfigError> {
    LocalStore::open(path.to_owned()).map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => {
            ConfigError::Folder { store: name.into(), path: path.into(), reason: "does not exist".into() }
        }
        _ => ConfigError::Store { store: name.into(), reason: error.to_string() },
    })
}

fn default_freshness(store: &dyn Store) -> Freshness {
    Freshness::For(if store.is_local() { Duration::ZERO } else { UPSTREAM_FRESHNESS })
}
