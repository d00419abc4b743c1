//! The only function from a request's host and URI to bucket, key and query pairs.
//!
//! Invariant: it reads a request exactly as s3s does when it verifies the signature, or refuses it; otherwise one
//! object could be signed for and another one read. A property test compares the two.

use std::borrow::Cow;
use std::net::{IpAddr, SocketAddr};

use http::{HeaderMap, Uri, header};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use s3s::S3Result;
use s3s::host::{S3Host, VirtualHost};
use s3s::path::{ParseS3PathError, S3Path};

/// What a request addresses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// The gateway itself: `/`.
    Service,
    /// A bucket.
    Bucket(String),
    /// An object.
    Object {
        /// The bucket's name.
        bucket: String,
        /// The key, decoded.
        key: String,
    },
}

/// What a request addresses, and its query.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// Service, bucket or object.
    pub place: Place,
    /// The decoded pairs of the query, in the order of the URI. A name without `=` has an empty value.
    pub pairs: Vec<(String, String)>,
}

/// Why host and URI name nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TargetError {
    /// The path is not UTF-8 when decoded, or does not start with a slash.
    #[error("the path cannot be decoded")]
    Path,
    /// The `Host` header is not ASCII.
    #[error("the Host header is malformed")]
    Host,
    /// No bucket can have this name.
    #[error("the bucket name is not valid")]
    BucketName,
    /// Keys hold at most 1,024 bytes.
    #[error("the key is longer than 1,024 bytes")]
    KeyTooLong,
}

/// The base domains of host-style requests (`BUCKET.DOMAIN`). A host under none of them is path style.
#[derive(Debug, Clone, Default)]
pub struct Domains(Vec<String>);

impl Domains {
    /// Domains as configured; case, a port and a final dot do not matter.
    pub fn new(domains: impl IntoIterator<Item = String>) -> Self {
        let mut domains: Vec<String> = domains
            .into_iter()
            .map(|domain| plain_host(&domain).into_owned())
            .filter(|domain| !domain.is_empty())
            .collect();
        // `s3.a.example` before `a.example`, so that the longest one decides where the bucket's name ends.
        domains.sort_by_key(|domain| std::cmp::Reverse(domain.len()));
        Self(domains)
    }

    /// The bucket that a host names, or `None` for path style.
    fn bucket_of(&self, host: &str) -> Option<String> {
        if host.parse::<SocketAddr>().is_ok() || host.parse::<IpAddr>().is_ok() {
            return None;
        }
        let host = plain_host(host);
        self.0.iter().find_map(|domain| {
            if host == domain.as_str() {
                return Some(None);
            }
            let bucket = host.strip_suffix(domain.as_str())?.strip_suffix('.')?;
            Some(Some(bucket.to_owned()))
        })?
    }
}

/// A host in lower case, without port and final dot.
fn plain_host(host: &str) -> Cow<'_, str> {
    let bare = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        Some(_) | None => host,
    };
    let bare = bare.strip_suffix('.').unwrap_or(bare);
    if bare.bytes().any(|byte| byte.is_ascii_uppercase()) {
        Cow::Owned(bare.to_ascii_lowercase())
    } else {
        Cow::Borrowed(bare)
    }
}

impl S3Host for Domains {
    fn parse_host_header<'a>(&'a self, host: &'a str) -> S3Result<VirtualHost<'a>> {
        let virtual_host = VirtualHost::new(host);
        Ok(match self.bucket_of(host) {
            Some(bucket) => virtual_host.with_bucket(bucket),
            None => virtual_host,
        })
    }
}

/// Reads host and URI.
///
/// The path is percent-decoded once, the query as a form (`+` is a space), both as the signature code does it.
/// An HTTP/2 request must carry its authority as `Host`; [`super::S3Edge`] sees to that.
///
/// # Errors
/// [`TargetError`], in the cases in which s3s refuses the request too.
pub fn target(domains: &Domains, uri: &Uri, headers: &HeaderMap) -> Result<Target, TargetError> {
    let path = percent_encoding::percent_decode_str(uri.path()).decode_utf8().map_err(|_| TargetError::Path)?;
    let host = match headers.get(header::HOST) {
        Some(host) => Some(host.to_str().map_err(|_| TargetError::Host)?),
        None => None,
    };
    let bucket = host.and_then(|host| domains.bucket_of(host));
    let place = match s3s::path::parse_virtual_hosted_style(bucket.as_deref(), &path) {
        Ok(S3Path::Root) => Place::Service,
        Ok(S3Path::Bucket { bucket }) => Place::Bucket(bucket.into()),
        Ok(S3Path::Object { bucket, key }) => Place::Object { bucket: bucket.into(), key: key.into() },
        Err(ParseS3PathError::InvalidPath) => return Err(TargetError::Path),
        Err(ParseS3PathError::InvalidBucketName) => return Err(TargetError::BucketName),
        Err(ParseS3PathError::KeyTooLong) => return Err(TargetError::KeyTooLong),
    };
    Ok(Target { place, pairs: pairs(uri) })
}

/// The decoded pairs of a URI's query, in order.
pub(super) fn pairs(uri: &Uri) -> Vec<(String, String)> {
    url::form_urlencoded::parse(uri.query().unwrap_or_default().as_bytes()).into_owned().collect()
}

/// The URI of a request before [`in_signing_order`] rewrote it.
#[derive(Debug, Clone)]
pub(super) struct Original(pub(super) Uri);

/// The URI with repeated query names in the order of their values, or `None` when they are already.
///
/// SigV4 signs repeated names in the order of their values. s3s sorts by name alone, so that it would refuse a
/// correctly signed `isel=y=1&isel=x=2`.
pub(super) fn in_signing_order(uri: &Uri) -> Option<Uri> {
    const UNRESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');
    let query = uri.query()?;
    let mut parts: Vec<(String, String, &str)> = Vec::new();
    for part in query.split('&').filter(|part| !part.is_empty()) {
        let (name, value) = url::form_urlencoded::parse(part.as_bytes()).next()?;
        let signed = utf8_percent_encode(&value, UNRESERVED).to_string();
        parts.push((name.into_owned(), signed, part));
    }
    parts.sort_by(|(name, value, _), (other_name, other_value, _)| (name, value).cmp(&(other_name, other_value)));
    let repeated = parts.windows(2).any(|pair| matches!(pair, [(name, ..), (next, ..)] if name == next));
    if !repeated {
        return None;
    }
    let sorted: Vec<&str> = parts.into_iter().map(|(_, _, part)| part).collect();
    let mut rewritten = uri.clone().into_parts();
    rewritten.path_and_query = Some(format!("{}?{}", uri.path(), sorted.join("&")).parse().ok()?);
    Uri::from_parts(rewritten).ok()
}

/// Whether a bucket of this name can be addressed: the S3 rules (3 to 63 characters of `a-z 0-9 . -`).
pub fn is_bucket_name(name: &str) -> bool {
    s3s::path::check_bucket_name(name)
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use futures::executor::block_on;
    use proptest::prelude::*;
    use s3s::dto::{GetObjectInput, GetObjectOutput, ListBucketsInput, ListBucketsOutput};
    use s3s::dto::{ListObjectsInput, ListObjectsOutput};
    use s3s::service::S3ServiceBuilder;
    use s3s::{S3, S3Request, S3Response};

    use super::*;

    fn domains() -> Domains {
        Domains::new(["s3.example.org".to_owned(), "Data.Local:9000".to_owned(), "example.org".to_owned()])
    }

    fn headers(host: Option<&str>) -> HeaderMap {
        host.map(|host| (header::HOST, host.parse().unwrap())).into_iter().collect()
    }

    fn check(host: &str, uri: &str, place: Place) {
        let got = target(&domains(), &uri.parse().unwrap(), &headers(Some(host))).unwrap();
        assert_eq!(got.place, place, "{host} {uri}");
    }

    fn object(bucket: &str, key: &str) -> Place {
        Place::Object { bucket: bucket.into(), key: key.into() }
    }

    #[test]
    fn path_style_for_addresses_and_unknown_hosts() {
        check("127.0.0.1:9000", "/data/a%20b/c", object("data", "a b/c"));
        check("[::1]:9000", "/data", Place::Bucket("data".into()));
        check("gateway.internal", "/data/", Place::Bucket("data".into()));
        check("localhost:9000", "/", Place::Service);
        check("a.b.c.d.e", "/data//k/", object("data", "/k/"));
    }

    #[test]
    fn host_style_under_a_configured_domain() {
        check("data.s3.example.org", "/k", object("data", "k"));
        check("DATA.S3.Example.Org:443", "/", Place::Bucket("data".into()));
        check("my.dotted.s3.example.org", "/data/k", object("my.dotted", "data/k"));
        check("s3.example.org", "/data/k", object("data", "k"));
        check("vault.data.local", "/k", object("vault", "k"));
        check("vault.example.org.", "/k", object("vault", "k"));
    }

    #[test]
    fn unreadable_targets_are_refused() {
        let fails = |uri: &str| target(&domains(), &uri.parse().unwrap(), &headers(Some("h"))).unwrap_err();
        assert_eq!(fails("/data/%ff"), TargetError::Path);
        assert_eq!(fails("/-/health"), TargetError::BucketName);
        assert_eq!(fails(&format!("/data/{}", "k".repeat(1025))), TargetError::KeyTooLong);
    }

    #[test]
    fn pairs_keep_their_order_and_decode_plus_as_space() {
        let uri: Uri = "/data/k?slice=0%3A4%2C%3A&b=1+2&a&b=%2B".parse().unwrap();
        let got = target(&domains(), &uri, &HeaderMap::new()).unwrap().pairs;
        let want = [("slice", "0:4,:"), ("b", "1 2"), ("a", ""), ("b", "+")];
        assert_eq!(got, want.map(|(name, value)| (name.to_owned(), value.to_owned())));
    }

    #[test]
    fn repeated_names_are_put_into_the_order_in_which_they_are_signed() {
        let sorted = |uri: &str| in_signing_order(&uri.parse().unwrap()).map(|uri| uri.to_string());
        assert_eq!(sorted("/b/k?isel=y%3D1&a=2&isel=x%3D2").unwrap(), "/b/k?a=2&isel=x%3D2&isel=y%3D1");
        // As signed: `%` sorts before letters, whatever it stands for.
        assert_eq!(sorted("/b/k?n=a&n=%7B").unwrap(), "/b/k?n=%7B&n=a");
        assert_eq!(sorted("/b/k?b=2&a=1"), None);
        assert_eq!(sorted("/b/k"), None);
    }

    /// What s3s took a request for, and its `response-content-type`.
    type Seen = (Place, Option<String>);

    /// Test double: notes what s3s took the request for.
    #[derive(Clone, Default)]
    struct Recorder(Arc<Mutex<Option<Seen>>>);

    #[async_trait::async_trait]
    impl S3 for Recorder {
        async fn list_buckets(&self, _: S3Request<ListBucketsInput>) -> S3Result<S3Response<ListBucketsOutput>> {
            *self.0.lock().unwrap() = Some((Place::Service, None));
            Ok(S3Response::new(ListBucketsOutput::default()))
        }
        async fn list_objects(&self, req: S3Request<ListObjectsInput>) -> S3Result<S3Response<ListObjectsOutput>> {
            *self.0.lock().unwrap() = Some((Place::Bucket(req.input.bucket), None));
            Ok(S3Response::new(ListObjectsOutput::default()))
        }
        async fn get_object(&self, req: S3Request<GetObjectInput>) -> S3Result<S3Response<GetObjectOutput>> {
            let place = object(&req.input.bucket, &req.input.key);
            *self.0.lock().unwrap() = Some((place, req.input.response_content_type));
            Ok(S3Response::new(GetObjectOutput::default()))
        }
    }

    /// What s3s makes of a request, and how it decodes `response-content-type`.
    fn as_s3s_reads(host: Option<&str>, uri: &Uri) -> Option<Seen> {
        let recorder = Recorder::default();
        let mut builder = S3ServiceBuilder::new(recorder.clone());
        builder.set_host(domains());
        let mut request = http::Request::new(s3s::Body::empty());
        *request.uri_mut() = uri.clone();
        *request.headers_mut() = headers(host);
        let _ = block_on(builder.build().call(request));
        recorder.0.lock().unwrap().take()
    }

    fn paths() -> impl Strategy<Value = String> {
        let piece = prop_oneof![
            "[a-z0-9.-]{1,8}",
            "[a-zA-Z0-9@=;:,()+~!$&'*_-]{0,6}",
            "(%[0-9A-Fa-f]{2}){1,3}",
            Just("%C3%A9".to_owned()),
            Just("%2F".to_owned()),
            Just("%".to_owned()),
            Just("%4".to_owned()),
            Just("..".to_owned()),
        ];
        prop::collection::vec(prop::collection::vec(piece, 0..3).prop_map(|pieces| pieces.concat()), 0..4)
            .prop_map(|segments| format!("/{}", segments.join("/")))
    }

    fn hosts() -> impl Strategy<Value = Option<String>> {
        prop_oneof![
            Just(None),
            "[a-zA-Z0-9.-]{0,6}(\\.|)(s3\\.example\\.org|example\\.org|data\\.local|other\\.net)(:9000|:|)"
                .prop_map(Some),
            Just(Some("127.0.0.1:9000".to_owned())),
            Just(Some("[::1]".to_owned())),
        ]
    }

    proptest! {
        #[test]
        fn target_reads_a_request_as_s3s_does(
            host in hosts(),
            path in paths(),
            value in "[a-zA-Z0-9+%;=:,]{0,8}",
        ) {
            let text = format!("{path}?response-content-type={value}");
            let Ok(uri) = text.parse::<Uri>() else { return Ok(()) };
            let ours = target(&domains(), &uri, &headers(host.as_deref())).ok();
            let theirs = as_s3s_reads(host.as_deref(), &uri);
            prop_assert_eq!(
                ours.as_ref().map(|target| target.place.clone()),
                theirs.as_ref().map(|(place, _)| place.clone())
            );
            if let (Some(ours), Some((_, Some(decoded)))) = (ours, theirs) {
                prop_assert_eq!(&ours.pairs[0].1, &decoded);
            }
        }
    }
}
