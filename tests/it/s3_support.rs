//! A gateway on loopback over test doubles of stores, and clients to drive it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use aws_sdk_s3::config::{BehaviorVersion, Credentials, Region};
use aws_sigv4::http_request::{PayloadChecksumKind, PercentEncodingMode, SignableRequest, SigningSettings};
use aws_sigv4::http_request::{UriPathNormalizationMode, sign};
use aws_sigv4::sign::v4;
use bytes::Bytes;
use futures::StreamExt as _;

pub(crate) use aws_sigv4::http_request::SignableBody;
use wicker4dx::auth::{Key, Policy, Scope};
use wicker4dx::http::{Gateway, GatewaySettings};
use wicker4dx::metrics::Metrics;
use wicker4dx::model::{ByteRange, Version};
use wicker4dx::store::{
    AnonymousAccess, Bucket, Buckets, Fetched, Freshness, ListPage, ListRequest, ObjectInfo, ObjectStream, PutOptions,
    Store, StoreError, UploadStream,
};

/// When every object of the double was last written: a second and a bit, so that rounding shows.
pub(crate) const WRITTEN: &str = "Tue, 01 Dec 2026 10:00:00 GMT";

/// Test double: a store in memory that follows the contract, with a few keys that misbehave:
/// `denied` and `failing` refuse, `cut` ends its stream early, `restless` changes at every read.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    objects: Mutex<BTreeMap<String, (Bytes, ObjectInfo)>>,
    /// The operations asked for, as `get key`.
    pub(crate) log: Mutex<Vec<String>>,
}

impl Memory {
    pub(crate) fn add(&self, key: &str, bytes: impl Into<Bytes>, headers: &[(&str, &str)]) {
        let (bytes, mut headers): (Bytes, BTreeMap<String, String>) =
            (bytes.into(), headers.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect());
        let info = ObjectInfo {
            size: bytes.len() as u64,
            version: version_of(&bytes),
            last_modified: httpdate::parse_http_date(WRITTEN).unwrap() + Duration::from_millis(345),
            settled: true,
            content_type: headers.remove("content-type"),
            headers,
        };
        self.objects.lock().unwrap().insert(key.to_owned(), (bytes, info));
    }

    pub(crate) fn content(&self, key: &str) -> Option<(Bytes, ObjectInfo)> {
        self.objects.lock().unwrap().get(key).cloned()
    }

    fn find(&self, operation: &'static str, key: &str) -> Result<(Bytes, ObjectInfo), StoreError> {
        self.log.lock().unwrap().push(format!("{operation} {key}"));
        let key = key.to_owned();
        let reason = "upstream-secret-words".to_owned();
        match key.as_str() {
            "denied" => Err(StoreError::Denied { operation, key, reason }),
            "failing" => Err(StoreError::Failed { operation, key, reason }),
            "slow" => Err(StoreError::Timeout { key }),
            "busy" => Err(StoreError::Throttled),
            _ => self.content(&key).ok_or(StoreError::NotFound { key }),
        }
    }
}

fn version_of(bytes: &[u8]) -> Version {
    Version::new(&blake3::hash(bytes).to_hex()[..32])
}

#[async_trait::async_trait]
impl Store for Memory {
    async fn head(&self, key: &str) -> Result<ObjectInfo, StoreError> {
        self.find("head", key).map(|(_, info)| info)
    }

    async fn get(&self, key: &str, range: ByteRange, if_match: Option<&Version>) -> Result<Fetched, StoreError> {
        let mut stream = self.stream(key, range, if_match).await?;
        let mut bytes = Vec::new();
        while let Some(piece) = stream.body.next().await {
            bytes.extend_from_slice(&piece?);
        }
        Ok(Fetched { info: stream.info, start: stream.start, bytes: bytes.into() })
    }

    async fn stream(
        &self,
        key: &str,
        range: ByteRange,
        if_match: Option<&Version>,
    ) -> Result<ObjectStream, StoreError> {
        let (bytes, info) = self.find("stream", key)?;
        if if_match.is_some_and(|version| *version != info.version || key == "restless") {
            return Err(StoreError::Changed { key: key.to_owned() });
        }
        let size = info.size;
        let range = match range {
            ByteRange::Whole => 0..size,
            ByteRange::Suffix(len) => size.saturating_sub(len)..size,
            ByteRange::From(start) if start < size => start..size,
            ByteRange::Bounded(range) if range.start < size => range.start..range.end.min(size),
            ByteRange::From(_) | ByteRange::Bounded(_) => {
                return Err(StoreError::RangeNotSatisfiable { key: key.to_owned(), size });
            }
        };
        let part = bytes.slice(range.start as usize..range.end as usize);
        let half = part.len() / 2;
        let mut pieces = vec![Ok(part.slice(..half))];
        pieces.push(if key == "cut" {
            Err(StoreError::Truncated { key: key.to_owned(), got: half as u64, expected: part.len() as u64 })
        } else {
            Ok(part.slice(half..))
        });
        Ok(ObjectStream {
            info,
            start: range.start,
            len: range.end - range.start,
            body: futures::stream::iter(pieces).boxed(),
        })
    }

    async fn list(&self, request: &ListRequest) -> Result<ListPage, StoreError> {
        let objects = self.objects.lock().unwrap();
        let mut page = ListPage::default();
        let mut last: Option<String> = None;
        for (key, (_, info)) in objects.iter().filter(|(key, _)| key.starts_with(&request.prefix)) {
            let rest = &key[request.prefix.len()..];
            let rolled =
                request.delimiter.as_deref().and_then(|delimiter| rest.find(delimiter).map(|at| at + delimiter.len()));
            let name = rolled.map_or(key.as_str(), |at| &key[..request.prefix.len() + at]).to_owned();
            if request.start_after.as_deref().is_some_and(|start| name.as_str() <= start)
                || last.as_ref() == Some(&name)
            {
                continue;
            }
            if page.objects.len() + page.prefixes.len() == request.max_keys {
                page.next = last;
                break;
            }
            match rolled {
                Some(_) => page.prefixes.push(name.clone()),
                None => page.objects.push((name.clone(), info.clone())),
            }
            last = Some(name);
        }
        Ok(page)
    }

    async fn put(&self, key: &str, mut body: UploadStream, options: PutOptions) -> Result<ObjectInfo, StoreError> {
        let held = self.content(key).map(|(_, info)| info.version);
        if (options.if_absent && held.is_some()) || (options.if_match.is_some() && options.if_match != held) {
            return Err(StoreError::PreconditionFailed { key: key.to_owned() });
        }
        let mut bytes = Vec::new();
        // Like a real store, takes what was announced and does not look further.
        while (bytes.len() as u64) < options.content_length.unwrap_or(u64::MAX) {
            match body.next().await {
                Some(piece) => bytes.extend_from_slice(&piece?),
                None => break,
            }
        }
        let headers: Vec<(&str, &str)> =
            options.headers.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        self.add(key, bytes, &headers);
        self.head(key).await
    }

    async fn delete(&self, key: &str) -> Result<(), StoreError> {
        self.objects.lock().unwrap().remove(key);
        Ok(())
    }

    async fn ready(&self) -> Result<(), StoreError> {
        Ok(())
    }
}

/// Names and values of headers.
pub(crate) type Pairs<'a> = &'a [(&'a str, &'a str)];

/// A running gateway. Buckets: `open` (anyone reads), `shut` (keys only), `fixed` (keys only, read-only).
/// Keys, each with the secret `secret`: `FULL` (everything), `PART` (reads `shut/a/`), `READER` (reads everything).
pub(crate) struct Served {
    pub(crate) address: std::net::SocketAddr,
    pub(crate) open: Arc<Memory>,
    pub(crate) shut: Arc<Memory>,
    server: tokio::task::JoinHandle<()>,
}

impl Drop for Served {
    fn drop(&mut self) {
        self.server.abort();
    }
}

/// The only place that builds a gateway for these tests.
fn gateway(buckets: Buckets, policy: Policy) -> Arc<Gateway> {
    Gateway::new(buckets, policy, Metrics::new(), &GatewaySettings::default()).unwrap()
}

pub(crate) async fn serve() -> Served {
    let (open, shut, fixed) = (Arc::<Memory>::default(), Arc::<Memory>::default(), Arc::<Memory>::default());
    fixed.add("k", "fixed", &[]);
    let bucket = |name: &str, store: &Arc<Memory>, anonymous, writable| Bucket {
        name: name.into(),
        store_name: name.into(),
        store: Arc::clone(store) as Arc<dyn Store>,
        freshness: Freshness::For(Duration::ZERO),
        anonymous,
        writable,
        in_key_form: true,
    };
    let buckets = Buckets::new([
        bucket("open", &open, AnonymousAccess::Read, true),
        bucket("shut", &shut, AnonymousAccess::None, true),
        bucket("fixed", &fixed, AnonymousAccess::None, false),
    ]);
    let scope = |bucket: &str, prefix: &str| Scope { bucket: bucket.into(), prefix: prefix.into() };
    let policy = Policy::new(vec![
        Key::full("FULL", "secret"),
        Key { read: vec![scope("shut", "a/")], ..Key::full("PART", "secret") },
        Key { read: vec![scope("*", "")], ..Key::full("READER", "secret") },
    ]);
    let edge = wicker4dx::s3::service(gateway(buckets, policy), vec!["s3.test".to_owned()]);
    let name_request = axum::middleware::map_request(|mut request: axum::extract::Request| async move {
        request.headers_mut().insert(wicker4dx::s3::REQUEST_ID, "request-7".parse().unwrap());
        request
    });
    let app = axum::Router::new().fallback_service(edge).layer(name_request);
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let server = tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
    Served { address, open, shut, server }
}

impl Served {
    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// The AWS SDK with one of the keys.
    pub(crate) fn sdk(&self, access_key: &str) -> aws_sdk_s3::Client {
        let config = aws_sdk_s3::Config::builder()
            .behavior_version(BehaviorVersion::latest())
            .region(Region::new("eu-central-1"))
            .endpoint_url(self.url(""))
            .force_path_style(true)
            .credentials_provider(Credentials::new(access_key, "secret", None, None, "test"))
            .build();
        aws_sdk_s3::Client::from_conf(config)
    }

    /// An unsigned request.
    pub(crate) async fn send(&self, method: &str, path: &str, headers: &[(&str, &str)]) -> Answer {
        let request = self.request(method, path, headers);
        Answer::of(reqwest::Client::new().execute(request).await.unwrap()).await
    }

    pub(crate) async fn get(&self, path: &str, headers: &[(&str, &str)]) -> Answer {
        self.send("GET", path, headers).await
    }

    fn request(&self, method: &str, path: &str, headers: &[(&str, &str)]) -> reqwest::Request {
        let mut request = reqwest::Request::new(method.parse().unwrap(), self.url(path).parse().unwrap());
        for (name, value) in headers {
            let name: http::HeaderName = name.parse().unwrap();
            request.headers_mut().append(name, value.parse().unwrap());
        }
        request
    }

    /// A request signed by `FULL` in its headers.
    pub(crate) async fn signed(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        payload: SignableBody<'_>,
        body: impl Into<Bytes>,
    ) -> Answer {
        self.signed_at(SystemTime::now(), method, path, (headers, &[]), payload, body).await
    }

    /// A request signed at some time, with headers that are signed and headers that are added afterwards.
    pub(crate) async fn signed_at(
        &self,
        time: SystemTime,
        method: &str,
        path: &str,
        (headers, unsigned): (Pairs<'_>, Pairs<'_>),
        payload: SignableBody<'_>,
        body: impl Into<Bytes>,
    ) -> Answer {
        let identity = Credentials::new("FULL", "secret", None, None, "test").into();
        let mut settings = SigningSettings::default();
        settings.percent_encoding_mode = PercentEncodingMode::Single;
        settings.payload_checksum_kind = PayloadChecksumKind::XAmzSha256;
        settings.uri_path_normalization_mode = UriPathNormalizationMode::Disabled;
        let params = v4::SigningParams::builder()
            .identity(&identity)
            .region("us-east-1")
            .name("s3")
            .time(time)
            .settings(settings)
            .build()
            .unwrap()
            .into();
        let url = self.url(path);
        let signable = SignableRequest::new(method, url.as_str(), headers.iter().copied(), payload).unwrap();
        let (instructions, _) = sign(signable, &params).unwrap().into_parts();
        let added: Vec<(String, String)> =
            instructions.headers().map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        let mut request = self.request(method, path, headers);
        for (name, value) in
            added.iter().map(|(name, value)| (name.as_str(), value.as_str())).chain(unsigned.iter().copied())
        {
            request.headers_mut().append(name.parse::<http::HeaderName>().unwrap(), value.parse().unwrap());
        }
        *request.body_mut() = Some(body.into().into());
        Answer::of(reqwest::Client::new().execute(request).await.unwrap()).await
    }
}

/// An answer, read to its end.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: http::HeaderMap,
    pub(crate) text: String,
}

impl Answer {
    pub(crate) async fn of(response: reqwest::Response) -> Self {
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        let text = response.bytes().await.map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
        Self { status, headers, text: text.unwrap() }
    }

    /// A header, or "-".
    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("-", |value| value.to_str().unwrap())
    }

    /// The code in an error's XML, or "-".
    pub(crate) fn code(&self) -> &str {
        let code = self.text.split_once("<Code>").and_then(|(_, rest)| rest.split_once("</Code>"));
        code.map_or("-", |(code, _)| code)
    }
}
