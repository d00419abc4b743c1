//! The client for one bucket.

use std::time::Duration;

use aws_config::environment::EnvironmentVariableRegionProvider;
use aws_config::meta::region::RegionProviderChain;
use aws_config::retry::RetryConfig;
use aws_config::timeout::TimeoutConfig;
use aws_config::{BehaviorVersion, Region};
use aws_sdk_s3::Client;
use aws_sdk_s3::config::{
    Credentials, RequestChecksumCalculation, ResponseChecksumValidation, StalledStreamProtectionConfig,
};

use super::direct::DirectReads;
use super::listing::KeyOrder;
use crate::model::Secret;

/// Where a bucket is and how it is asked.
#[derive(Debug, Clone)]
pub struct S3Settings {
    /// The bucket's name at the store.
    pub bucket: String,
    /// `http(s)://HOST[:PORT]` of a store that is not AWS.
    pub endpoint: Option<String>,
    /// The region; else the environment's or the profile's, else `us-east-1`.
    pub region: Option<String>,
    /// A profile of the AWS configuration files.
    pub profile: Option<String>,
    /// Access key and secret key; else the AWS credential chain (environment, profile, SSO, instance).
    pub credentials: Option<(String, Secret)>,
    /// Requests are not signed: a public bucket.
    pub anonymous: bool,
    /// `HOST/BUCKET/KEY` and not `BUCKET.HOST/KEY`.
    pub path_style: bool,
    /// Longest wait for a connection.
    pub connect_timeout: Duration,
    /// Longest wait for the first or the next bytes of an answer.
    pub read_timeout: Duration,
    /// Longest time for a whole call, all attempts and the body included; a stream's body has only `read_timeout`.
    pub timeout: Duration,
    /// How often a call is tried at most; at least once. The SDK does it, with its own back-off, for every call but
    /// `get_once`: there the caller does, and the SDK tries once.
    pub attempts: u32,
}

impl S3Settings {
    /// A bucket at AWS, or at `endpoint` and then in path style, with the credential chain and ordinary timeouts.
    pub fn new(bucket: &str, endpoint: Option<&str>) -> Self {
        Self {
            bucket: bucket.into(),
            endpoint: endpoint.map(str::to_owned),
            region: None,
            profile: None,
            credentials: None,
            anonymous: false,
            path_style: endpoint.is_some(),
            connect_timeout: Duration::from_secs(5),
            read_timeout: Duration::from_secs(15),
            timeout: Duration::from_secs(30),
            attempts: 3,
        }
    }
}

/// The ways to ask a bucket.
pub(super) struct Clients {
    /// Tries as often as the settings say.
    pub(super) client: Client,
    /// Tries once.
    pub(super) once: Client,
    /// Reads past the SDK's orchestration, where that is possible.
    pub(super) direct: Option<DirectReads>,
}

/// The clients of a bucket.
pub(super) async fn clients(settings: &S3Settings, order: &KeyOrder) -> Clients {
    let timeouts = TimeoutConfig::builder()
        .connect_timeout(settings.connect_timeout)
        .read_timeout(settings.read_timeout)
        .operation_timeout(settings.timeout)
        .build();
    let region = RegionProviderChain::first_try(settings.region.clone().map(Region::new));
    let region = match settings.endpoint {
        // The default chain may wait for an instance's metadata service, which says nothing about another store.
        Some(_) => region.or_else(EnvironmentVariableRegionProvider::new()),
        None => region.or_default_provider(),
    };
    let mut loader = aws_config::defaults(BehaviorVersion::latest())
        .region(region.or_else("us-east-1"))
        .timeout_config(timeouts)
        .retry_config(RetryConfig::standard().with_max_attempts(settings.attempts.max(1)))
        // Our own deadlines tell a stalled body from a short one.
        .stalled_stream_protection(StalledStreamProtectionConfig::disabled());
    if let Some(profile) = &settings.profile {
        loader = loader.profile_name(profile);
    }
    if settings.anonymous {
        loader = loader.no_credentials();
    } else if let Some((access_key, secret_key)) = &settings.credentials {
        loader = loader.credentials_provider(Credentials::new(access_key, secret_key.expose(), None, None, "w4dx"));
    }
    let shared = loader.load().await;
    let mut config = aws_sdk_s3::config::Builder::from(&shared)
        .force_path_style(settings.path_style)
        .interceptor(order.clone())
        // A stored checksum covers the whole object, so it says nothing about a range of it.
        .request_checksum_calculation(RequestChecksumCalculation::WhenRequired)
        .response_checksum_validation(ResponseChecksumValidation::WhenRequired);
    if let Some(endpoint) = &settings.endpoint {
        config = config.endpoint_url(endpoint);
    }
    let once = config.clone().retry_config(RetryConfig::disabled());
    Clients {
        client: Client::from_conf(config.build()),
        once: Client::from_conf(once.build()),
        direct: DirectReads::new(settings, shared.credentials_provider()),
    }
}
