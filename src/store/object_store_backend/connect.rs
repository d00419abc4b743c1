//! Clients for GCS and Azure.

use std::path::PathBuf;
use std::time::Duration;

use object_store::azure::MicrosoftAzureBuilder;
use object_store::gcp::GoogleCloudStorageBuilder;
use object_store::{ClientOptions, RetryConfig};

use super::error::backend_error;
use super::{NativeRanges, ObjectStoreBackend};
use crate::model::Secret;
use crate::store::StoreError;

/// Where a GCS bucket is.
#[derive(Debug, Clone)]
pub struct GcsSettings {
    /// The bucket's name.
    pub bucket: String,
    /// Another endpoint than Google's, for example an emulator's.
    pub endpoint: Option<String>,
    /// A service account's JSON file; else application default credentials.
    pub service_account: Option<PathBuf>,
    /// Requests are not signed: a public bucket.
    pub anonymous: bool,
    /// Longest time for a whole call.
    pub timeout: Duration,
}

/// Where an Azure container is.
#[derive(Debug, Clone)]
pub struct AzureSettings {
    /// The storage account.
    pub account: String,
    /// The container.
    pub container: String,
    /// The account's access key; else the environment's and the machine's identity.
    pub access_key: Option<Secret>,
    /// Another endpoint than Azure's.
    pub endpoint: Option<String>,
    /// Requests are not signed: a public container.
    pub anonymous: bool,
    /// Longest time for a whole call.
    pub timeout: Duration,
}

/// A GCS bucket. Makes no request.
///
/// # Errors
/// When the settings contradict each other or the credentials file cannot be read.
pub fn gcs_store(settings: &GcsSettings) -> Result<ObjectStoreBackend, StoreError> {
    let mut builder = GoogleCloudStorageBuilder::from_env()
        .with_bucket_name(&settings.bucket)
        .with_skip_signature(settings.anonymous)
        .with_client_options(client_options(settings.timeout, settings.endpoint.as_deref()))
        .with_retry(retries(settings.timeout));
    if let Some(endpoint) = &settings.endpoint {
        builder = builder.with_base_url(endpoint);
    }
    if let Some(file) = &settings.service_account {
        builder = builder.with_service_account_path(file.to_string_lossy());
    }
    let wrong = |error| backend_error("open", &settings.bucket, error);
    let once = builder.clone().with_retry(no_retries(settings.timeout)).build().map_err(wrong)?;
    let store = builder.build().map_err(wrong)?;
    Ok(ObjectStoreBackend::remote(store, once, NativeRanges::All, settings.timeout))
}

/// An Azure container. Makes no request.
///
/// # Errors
/// When the settings contradict each other.
pub fn azure_store(settings: &AzureSettings) -> Result<ObjectStoreBackend, StoreError> {
    let mut builder = MicrosoftAzureBuilder::from_env()
        .with_account(&settings.account)
        .with_container_name(&settings.container)
        .with_skip_signature(settings.anonymous)
        .with_client_options(client_options(settings.timeout, settings.endpoint.as_deref()))
        .with_retry(retries(settings.timeout));
    if let Some(key) = &settings.access_key {
        builder = builder.with_access_key(key.expose());
    }
    if let Some(endpoint) = &settings.endpoint {
        builder = builder.with_endpoint(endpoint.clone()).with_allow_http(endpoint.starts_with("http://"));
    }
    let wrong = |error| backend_error("open", &settings.container, error);
    let once = builder.clone().with_retry(no_retries(settings.timeout)).build().map_err(wrong)?;
    let store = builder.build().map_err(wrong)?;
    Ok(ObjectStoreBackend::remote(store, once, NativeRanges::NoSuffix, settings.timeout))
}

fn client_options(timeout: Duration, endpoint: Option<&str>) -> ClientOptions {
    ClientOptions::new()
        .with_timeout(timeout)
        .with_connect_timeout(timeout.min(Duration::from_secs(5)))
        // Only where the configuration itself names a plain endpoint, such as an emulator on loopback.
        .with_allow_http(endpoint.is_some_and(|endpoint| endpoint.starts_with("http://")))
}

/// For `get_once`: its caller tries again itself.
fn no_retries(timeout: Duration) -> RetryConfig {
    RetryConfig { max_retries: 0, ..retries(timeout) }
}

fn retries(timeout: Duration) -> RetryConfig {
    RetryConfig { max_retries: 2, retry_timeout: timeout, ..RetryConfig::default() }
}
