//! GetObject without the SDK's orchestration: signed by the SDK's own signer, sent over its own HTTP client.
//!
//! To prepare and follow one call the SDK takes 0.2 ms of CPU, a crop of cold chunks makes three, and nothing in them
//! differs but key, range and version. What the SDK decides for a bucket (host, form of the path, region, kind of
//! signature) it is asked once, by presigning a URL. Whatever is not an ordinary answer or an ordinary refusal is left to
//! the SDK, which is asked again and has the last word.

use std::time::{Duration, SystemTime};

use aws_sdk_s3::Client;
use aws_sdk_s3::config::http::{HttpRequest, HttpResponse};
use aws_sdk_s3::config::{Credentials, ProvideCredentials as _, SharedCredentialsProvider};
use aws_sdk_s3::operation::get_object::GetObjectOutput;
use aws_sdk_s3::presigning::PresigningConfig;
use aws_sdk_s3::primitives::{ByteStream, DateTime, DateTimeFormat};
use aws_sigv4::http_request::{
    PayloadChecksumKind, PercentEncodingMode, SignableBody, SignableRequest, SigningSettings, UriPathNormalizationMode,
    sign,
};
use aws_sigv4::sign::v4;
use aws_smithy_runtime_api::client::http::{HttpConnector as _, HttpConnectorSettings, SharedHttpConnector};
use aws_smithy_runtime_api::client::result::ConnectorError;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use tokio::sync::Mutex;

use super::connect::S3Settings;
use crate::store::StoreError;

/// Bytes of a key that stand for themselves in a path: RFC 3986's unreserved ones, and the slash.
const IN_PATH: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~').remove(b'/');

/// The key that a URL is presigned for, to learn how URLs look.
const PROBE: &str = "k";

/// For how long credentials are used without asking for them again, when they name no end of their own.
const CREDENTIALS_FOR: Duration = Duration::from_secs(600);

/// So long before their end they are asked for again.
const BEFORE_THE_END: Duration = Duration::from_secs(300);

/// Most bytes read of a refusal: so that the connection can be used again, and to tell a missing bucket from a missing key.
const REFUSAL_BYTES: usize = 64 << 10;

/// What became of a direct read.
pub(super) enum Direct {
    /// The object.
    Found(Box<GetObjectOutput>),
    /// As the SDK would tell it.
    Failed(StoreError),
    /// Something for the SDK.
    Unsure,
}

/// Reads of one bucket.
#[derive(Debug)]
pub(super) struct DirectReads {
    connector: SharedHttpConnector,
    credentials: SharedCredentialsProvider,
    bucket: String,
    known: Mutex<Known>,
}

#[derive(Debug, Default)]
struct Known {
    place: Place,
    credentials: Option<(Credentials, SystemTime)>,
}

#[derive(Debug, Default, Clone)]
enum Place {
    #[default]
    Unasked,
    /// What stands before a key in a URL, and the region to sign for.
    At { before: String, region: String },
    /// Not of the plain kind: left to the SDK.
    Special,
}

impl DirectReads {
    /// `None` where only the SDK knows how to ask: without credentials, or through a proxy.
    pub(super) fn new(settings: &S3Settings, credentials: Option<SharedCredentialsProvider>) -> Option<Self> {
        const PROXIES: [&str; 6] = ["HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"];
        let proxied = PROXIES.iter().any(|name| std::env::var_os(name).is_some_and(|value| !value.is_empty()));
        if settings.anonymous || proxied {
            return None;
        }
        let timeouts = HttpConnectorSettings::builder()
            .connect_timeout(settings.connect_timeout)
            .read_timeout(settings.read_timeout)
            .build();
        Some(Self {
            connector: aws_smithy_http_client::default_connector(&timeouts, None)?,
            credentials: credentials?,
            bucket: settings.bucket.clone(),
            known: Mutex::default(),
        })
    }

    /// Reads `range`, a Range header's value, of an object, if it still has the ETag `if_match`. One attempt.
    pub(super) async fn get(&self, client: &Client, key: &str, range: Option<&str>, if_match: Option<&str>) -> Direct {
        let Some((before, region, credentials)) = self.known(client).await else { return Direct::Unsure };
        let uri = format!("{before}{}", utf8_percent_encode(key, IN_PATH));
        let headers: Vec<(&str, &str)> =
            [("range", range), ("if-match", if_match)].into_iter().filter_map(|(name, v)| Some((name, v?))).collect();
        let Some(request) = signed(&uri, &headers, &region, credentials) else { return Direct::Unsure };
        match self.connector.call(request).await {
            Ok(response) => self.judge(key, response).await,
            Err(error) => failure(key, &error),
        }
    }

    async fn known(&self, client: &Client) -> Option<(String, String, Credentials)> {
        let mut known = self.known.lock().await;
        if matches!(known.place, Place::Unasked) {
            known.place = place(client, &self.bucket).await?;
        }
        let Place::At { before, region } = known.place.clone() else { return None };
        let now = SystemTime::now();
        if let Some((credentials, until)) = &known.credentials
            && now < *until
        {
            return Some((before, region, credentials.clone()));
        }
        let credentials = self.credentials.provide_credentials().await.ok()?;
        let until = match credentials.expiry() {
            Some(end) => end.checked_sub(BEFORE_THE_END).unwrap_or(now),
            None => now + CREDENTIALS_FOR,
        };
        known.credentials = Some((credentials.clone(), until));
        Some((before, region, credentials))
    }

    async fn judge(&self, key: &str, response: HttpResponse) -> Direct {
        let key = key.to_owned();
        match response.status().as_u16() {
            200 | 206 => found(response).map_or(Direct::Unsure, |output| Direct::Found(Box::new(output))),
            404 => match refusal(response).await {
                Some(words) if !words.contains("NoSuchBucket") => Direct::Failed(StoreError::NotFound { key }),
                Some(_) | None => Direct::Unsure,
            },
            412 => {
                refusal(response).await;
                Direct::Failed(StoreError::Changed { key })
            }
            416 => {
                let told = response.headers().get("content-range");
                let size = told.and_then(|value| value.rsplit('/').next()?.trim().parse().ok()).unwrap_or(0);
                refusal(response).await;
                Direct::Failed(StoreError::RangeNotSatisfiable { key, size })
            }
            429 | 503 => {
                refusal(response).await;
                Direct::Failed(StoreError::Throttled)
            }
            408 | 504 => Direct::Failed(StoreError::Timeout { key }),
            status @ (500 | 502) => {
                let words = refusal(response).await.unwrap_or_default();
                let reason = format!("status {status}: {}", words.chars().take(500).collect::<String>());
                Direct::Failed(StoreError::Interrupted { operation: "read", key, reason })
            }
            status => {
                // The credentials may have been taken back before their time.
                if matches!(status, 400 | 401 | 403) {
                    self.known.lock().await.credentials = None;
                }
                Direct::Unsure
            }
        }
    }
}

/// Asks the SDK how it would ask. `None` when it cannot say now.
async fn place(client: &Client, bucket: &str) -> Option<Place> {
    let config = PresigningConfig::expires_in(Duration::from_secs(60)).ok()?;
    let presigned = client.get_object().bucket(bucket).key(PROBE).presigned(config).await.ok()?;
    let plain = presigned.headers().next().is_none();
    Some(place_of(presigned.uri()).filter(|_| plain).unwrap_or(Place::Special))
}

/// What a presigned URL of the probe says of the bucket's place.
fn place_of(presigned: &str) -> Option<Place> {
    let (url, query) = presigned.split_once('?')?;
    let before = url.strip_suffix(PROBE)?;
    let value = |name: &str| query.split('&').find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='));
    let scope = percent_decode_str(value("X-Amz-Credential")?).decode_utf8().ok()?;
    let scope: Vec<&str> = scope.rsplitn(5, '/').collect();
    let ["aws4_request", "s3", region, _date, _access_key] = scope[..] else { return None };
    let plain = value("X-Amz-Algorithm") == Some("AWS4-HMAC-SHA256") && value("X-Amz-S3session-Token").is_none();
    (plain && before.ends_with('/')).then(|| Place::At { before: before.to_owned(), region: region.to_owned() })
}

/// A GET with these headers and a signature.
fn signed(uri: &str, headers: &[(&str, &str)], region: &str, credentials: Credentials) -> Option<HttpRequest> {
    let mut settings = SigningSettings::default();
    // As S3 wants it: <https://docs.aws.amazon.com/AmazonS3/latest/API/sig-v4-header-based-auth.html>.
    settings.percent_encoding_mode = PercentEncodingMode::Single;
    settings.payload_checksum_kind = PayloadChecksumKind::XAmzSha256;
    settings.uri_path_normalization_mode = UriPathNormalizationMode::Disabled;
    let identity = credentials.into();
    let params = v4::SigningParams::builder()
        .identity(&identity)
        .region(region)
        .name("s3")
        .time(SystemTime::now())
        .settings(settings)
        .build()
        .ok()?
        .into();
    let signable = SignableRequest::new("GET", uri, headers.iter().copied(), SignableBody::empty()).ok()?;
    let (instructions, _signature) = sign(signable, &params).ok()?.into_parts();
    let mut request = HttpRequest::get(uri).ok()?;
    let out = request.headers_mut();
    for (name, value) in headers {
        out.try_insert((*name).to_owned(), (*value).to_owned()).ok()?;
    }
    let (signing, _no_parameters) = instructions.into_parts();
    for header in signing {
        out.try_insert(header.name(), header.value().to_owned()).ok()?;
    }
    out.try_insert("user-agent", concat!("w4dx/", env!("CARGO_PKG_VERSION"))).ok()?;
    Some(request)
}

/// The answer as the SDK would give it; `None` where a header is not what it should be.
fn found(response: HttpResponse) -> Option<GetObjectOutput> {
    const METADATA: &str = "x-amz-meta-";
    let mut output = GetObjectOutput::builder();
    let headers = response.headers();
    let text = |name: &str| headers.get(name).map(str::to_owned);
    output = output
        .set_content_length(headers.get("content-length").map(str::parse).transpose().ok()?)
        .set_content_range(text("content-range"))
        .set_e_tag(text("etag"))
        .set_content_type(text("content-type"))
        .set_cache_control(text("cache-control"))
        .set_content_disposition(text("content-disposition"))
        .set_content_encoding(text("content-encoding"))
        .set_content_language(text("content-language"))
        .set_expires_string(text("expires"));
    if let Some(date) = headers.get("last-modified") {
        output = output.last_modified(DateTime::from_str(date, DateTimeFormat::HttpDate).ok()?);
    }
    for (name, value) in headers {
        if let Some(name) = name.strip_prefix(METADATA) {
            output = output.metadata(name, value);
        }
    }
    Some(output.body(ByteStream::new(response.into_body())).build())
}

/// The body of a refusal, if it is a short one.
async fn refusal(response: HttpResponse) -> Option<String> {
    let mut body = ByteStream::new(response.into_body());
    let mut words = Vec::new();
    while let Some(piece) = body.try_next().await.ok()? {
        if words.len() + piece.len() > REFUSAL_BYTES {
            return None;
        }
        words.extend_from_slice(&piece);
    }
    Some(String::from_utf8_lossy(&words).into_owned())
}

fn failure(key: &str, error: &ConnectorError) -> Direct {
    let key = key.to_owned();
    if error.is_timeout() {
        return Direct::Failed(StoreError::Timeout { key });
    }
    if error.is_io() {
        let reason = aws_sdk_s3::error::DisplayErrorContext(error).to_string();
        return Direct::Failed(StoreError::Interrupted { operation: "read", key, reason });
    }
    Direct::Unsure
}

#[cfg(test)]
mod tests {
    use super::*;

    fn url(host_and_path: &str, algorithm: &str, scope: &str, more: &str) -> String {
        format!("https://{host_and_path}?x-id=GetObject&X-Amz-Algorithm={algorithm}&X-Amz-Credential={scope}{more}")
    }

    #[test]
    fn the_place_of_a_bucket_is_read_from_a_presigned_url() {
        let scope = "AKIA%2F20261201%2Feu-west-1%2Fs3%2Faws4_request";
        for before in ["b.s3.eu-west-1.amazonaws.com/", "127.0.0.1:8333/b/"] {
            let told = place_of(&url(&format!("{before}k"), "AWS4-HMAC-SHA256", scope, ""));
            let Some(Place::At { before: found, region }) = told else { panic!("{before}: {told:?}") };
            assert_eq!((found, region.as_str()), (format!("https://{before}"), "eu-west-1"));
        }
        // Directory buckets, access points of many regions, and what is not a URL of the probe.
        for special in [
            url("b--x-s3.s3express.amazonaws.com/k", "AWS4-HMAC-SHA256", scope, "&X-Amz-S3session-Token=t"),
            url(
                "m.accesspoint.s3-global.amazonaws.com/k",
                "AWS4-ECDSA-P256-SHA256",
                "AKIA%2F20261201%2Fs3%2Faws4_request",
                "",
            ),
            url("b.s3.amazonaws.com/other", "AWS4-HMAC-SHA256", scope, ""),
            "https://b.s3.amazonaws.com/k".to_owned(),
        ] {
            assert!(place_of(&special).is_none(), "{special}");
        }
    }

    #[test]
    fn keys_of_any_kind_are_escaped_as_s3_signs_them() {
        let path = utf8_percent_encode("a b/ü+%2F(1)~._-'*", IN_PATH).to_string();
        assert_eq!(path, "a%20b/%C3%BC%2B%252F%281%29~._-%27%2A");
    }
}
