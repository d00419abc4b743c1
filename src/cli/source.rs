//! Where `get` and `inspect` read: a local path, `s3://`, or a running gateway. All three answer by the same code.
//!
//! Paths and `s3://` are answered in this process by the gateway's own route. A running gateway is asked with the S3
//! client, which signs and retries, by the in-key form.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context as _, bail};
use aws_sdk_s3::Client;
use aws_sdk_s3::config::{Credentials, Region};
use bytes::Bytes;
use futures::stream::BoxStream;
use futures::{StreamExt as _, TryStreamExt as _};
use http_body_util::BodyExt as _;
use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};

use crate::auth::{Policy, Principal};
use crate::http::{Gateway, GatewaySettings, SliceRequest, slice};
use crate::metrics::Metrics;
use crate::store::{AnonymousAccess, Bucket, Buckets, Freshness, LocalStore, S3Settings, S3Store, Store};

/// Characters that the in-key form keeps for itself.
const IN_KEY: &AsciiSet = &CONTROLS.add(b'/').add(b';').add(b'%');

/// An answer: what the headers say, and the bytes.
pub(super) struct Answer {
    pub(super) len: Option<u64>,
    pub(super) shape: Option<String>,
    pub(super) dtype: Option<String>,
    pub(super) body: BoxStream<'static, anyhow::Result<Bytes>>,
}

/// A place that answers requests about one path.
pub(super) enum Source {
    /// Answered in this process.
    Here { gateway: Arc<Gateway>, bucket: String, key: String },
    /// Answered by a gateway.
    There { client: Box<Client>, bucket: String, key: String },
}

impl Source {
    /// Understands a URI: `s3://bucket/key`, `http(s)://gateway/bucket/key`, `file:///path` or a plain path.
    pub(super) async fn open(uri: &str) -> anyhow::Result<Self> {
        if let Some(rest) = uri.strip_prefix("s3://") {
            let (bucket, key) = bucket_and_key(rest).with_context(|| format!("{uri}: write s3://bucket/key"))?;
            let endpoint = ["AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"].iter().find_map(|name| std::env::var(name).ok());
            let settings = S3Settings::new(bucket, endpoint.as_deref());
            let store: Arc<dyn Store> = Arc::new(S3Store::connect(settings).await);
            return here(store, bucket, key);
        }
        if uri.starts_with("http://") || uri.starts_with("https://") {
            let url = url::Url::parse(uri).with_context(|| format!("{uri} is no URL"))?;
            let path = percent_encoding::percent_decode_str(url.path()).decode_utf8()?;
            let (bucket, key) = bucket_and_key(path.trim_start_matches('/'))
                .with_context(|| format!("{uri}: write http://gateway/bucket/key"))?;
            let client = client(url.origin().ascii_serialization()).await;
            return Ok(Self::There { client: Box::new(client), bucket: bucket.to_owned(), key: key.to_owned() });
        }
        let path = uri.strip_prefix("file://").unwrap_or(uri);
        let path = Path::new(path)
            .canonicalize()
            .with_context(|| format!("{uri} (a path; for a bucket write s3://bucket/key)"))?;
        let (Some(folder), Some(name)) = (path.parent(), path.file_name().and_then(|name| name.to_str())) else {
            bail!("{uri} names no file or folder");
        };
        // Arrays are opened from the folder around them, which nothing is written to.
        let store: Arc<dyn Store> = Arc::new(LocalStore::open(folder.to_owned())?);
        here(store, "local", name)
    }

    /// Asks about the path with these parameters.
    pub(super) async fn ask(&self, parameters: &[(&str, String)]) -> anyhow::Result<Answer> {
        match self {
            Self::Here { gateway, bucket, key } => {
                let request = SliceRequest {
                    method: http::Method::GET,
                    principal: Principal::Anonymous,
                    bucket: bucket.clone(),
                    key: key.clone(),
                    pairs: parameters.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect(),
                    headers: http::HeaderMap::from_iter([(
                        http::header::ACCEPT,
                        http::HeaderValue::from_static("application/problem+json, */*"),
                    )]),
                    request_id: "local".to_owned(),
                };
                answered(slice::answer(Arc::clone(gateway), request).await).await
            }
            Self::There { client, bucket, key } => {
                let items: Vec<String> = parameters
                    .iter()
                    .map(|(name, value)| format!("{name}={}", utf8_percent_encode(value, IN_KEY)))
                    .collect();
                // The suffix would be taken off the last value: an explicit format forbids that.
                let key = format!("{key}/@{}", items.join(";"));
                let output = client.get_object().bucket(bucket).key(key).send().await.map_err(|error| {
                    let service = error.as_service_error().and_then(aws_sdk_s3::error::ProvideErrorMetadata::message);
                    match service {
                        Some(message) => anyhow::anyhow!("{message}"),
                        None => anyhow::Error::new(error).context("the gateway did not answer"),
                    }
                })?;
                let metadata = |name: &str| output.metadata().and_then(|all| all.get(name)).cloned();
                let (shape, dtype) = (metadata("w4dx-shape"), metadata("w4dx-dtype"));
                let len = output.content_length().and_then(|len| u64::try_from(len).ok());
                let body = futures::stream::unfold(output.body, |mut body| async move {
                    let next = body.next().await?;
                    Some((next.map_err(anyhow::Error::new), body))
                });
                Ok(Answer { len, shape, dtype, body: body.boxed() })
            }
        }
    }

    /// Asks for JSON.
    pub(super) async fn ask_json(&self, parameters: &[(&str, String)]) -> anyhow::Result<serde_json::Value> {
        let answer = self.ask(parameters).await?;
        let body: Vec<Bytes> = answer.body.try_collect().await?;
        serde_json::from_slice(&body.concat()).context("the answer is no JSON")
    }
}

fn here(store: Arc<dyn Store>, bucket: &str, key: &str) -> anyhow::Result<Source> {
    let buckets = Buckets::new([Bucket {
        name: bucket.into(),
        store_name: bucket.into(),
        store,
        freshness: Freshness::Immutable,
        anonymous: AnonymousAccess::Read,
        writable: false,
        in_key_form: false,
    }]);
    let gateway = Gateway::new(buckets, Policy::new(Vec::new()), Metrics::new(), &GatewaySettings::default())?;
    Ok(Source::Here { gateway, bucket: bucket.to_owned(), key: key.to_owned() })
}

fn bucket_and_key(path: &str) -> Option<(&str, &str)> {
    let (bucket, key) = path.split_once('/')?;
    let key = key.trim_end_matches('/');
    (!bucket.is_empty() && !key.is_empty()).then_some((bucket, key))
}

/// An S3 client of a gateway, with the key pair of `W4DX_ACCESS_KEY` and `W4DX_SECRET_KEY`, else unsigned.
async fn client(endpoint: String) -> Client {
    let loader = aws_config::defaults(aws_config::BehaviorVersion::latest())
        .region(Region::new("us-east-1"))
        .endpoint_url(endpoint);
    let pair = std::env::var("W4DX_ACCESS_KEY").ok().zip(std::env::var("W4DX_SECRET_KEY").ok());
    let config = match pair {
        Some((access, secret)) => {
            loader.credentials_provider(Credentials::new(access, secret, None, None, "environment")).load().await
        }
        None => loader.no_credentials().load().await,
    };
    let builder = aws_sdk_s3::config::Builder::from(&config).force_path_style(true);
    Client::from_conf(builder.build())
}

/// A response of the route, or its problem as an error.
async fn answered(response: http::Response<crate::http::Body>) -> anyhow::Result<Answer> {
    let (head, body) = response.into_parts();
    if !head.status.is_success() {
        let body = body.collect().await.map(http_body_util::Collected::to_bytes).unwrap_or_default();
        let problem: serde_json::Value = serde_json::from_slice(&body).unwrap_or_default();
        let detail = problem["detail"].as_str().unwrap_or("no reason given").to_owned();
        match problem["valid"].as_str() {
            Some(valid) => bail!("{detail} (valid: {valid})"),
            None => bail!("{detail}"),
        }
    }
    let text = |name: &str| head.headers.get(name).and_then(|value| value.to_str().ok()).map(str::to_owned);
    Ok(Answer {
        len: text("content-length").and_then(|len| len.parse().ok()),
        shape: text("x-w4dx-shape"),
        dtype: text("x-w4dx-dtype"),
        body: body.into_data_stream().map_err(anyhow::Error::new).boxed(),
    })
}
