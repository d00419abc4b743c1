//! What is refused before s3s sees a request: the holes in its signature check that a request could slip through.
//!
//! Invariant: whatever reaches an operation or a slice under a signature was covered by that signature, as far as
//! S3 gives it a meaning. s3s verifies the signature itself, the ±15 minutes of a signed header, and the expiry of a
//! presigned URL; `tests/it/s3_guards.rs` holds it to that too.
//!
//! All `x-amz-*` headers of a signed request must be in its SignedHeaders, `x-amz-content-sha256` included: AWS
//! SDKs sign all that they send, and one rule without exceptions cannot be got around.

use std::borrow::Cow;

use http::{HeaderMap, Method, header};
use s3s::S3ErrorCode;

use super::failure::Failure;
use crate::model::ErrorKind;

/// The longest life of a presigned URL, in seconds: one week, as S3 has it.
const MAX_EXPIRES: u32 = 604_800;

/// The largest body of one PutObject, in bytes, as S3 has it.
const MAX_UPLOAD_BYTES: u64 = 5 * 1024 * 1024 * 1024;

/// Refuses what must not reach s3s.
pub(super) fn check(method: &Method, pairs: &[(String, String)], headers: &HeaderMap) -> Result<(), Failure> {
    for name in [header::HOST, header::AUTHORIZATION] {
        // s3s takes a repeated Authorization for none, and reads the first of several hosts.
        if headers.get_all(&name).iter().count() > 1 {
            return Err(invalid(format!("the {name} header is repeated")));
        }
    }
    refuse_form_upload(method, headers)?;
    if let Some(signed) = signed_headers(pairs, headers)? {
        check_signed(&signed, headers)?;
    }
    check_lengths(headers)
}

/// POST policy uploads carry their own signature in the body, which s3s reads whole before any check of ours.
fn refuse_form_upload(method: &Method, headers: &HeaderMap) -> Result<(), Failure> {
    let form = headers.get_all(header::CONTENT_TYPE).iter().any(|value| {
        let value = value.as_bytes().trim_ascii_start();
        value.get(..19).is_some_and(|start| start.eq_ignore_ascii_case(b"multipart/form-data"))
    });
    if method == Method::POST && form {
        return Err(Failure::not_implemented("browser uploads by POST policy are not implemented; use PUT"));
    }
    Ok(())
}

/// The names in SignedHeaders, or `None` for a request without a signature.
fn signed_headers<'a>(pairs: &'a [(String, String)], headers: &'a HeaderMap) -> Result<Option<Vec<&'a str>>, Failure> {
    // s3s looks for these names as they are written here, and checks the query first.
    if has(pairs, "Signature") || has(pairs, "AWSAccessKeyId") {
        return Err(signature_v2());
    }
    let authorization = headers.get(header::AUTHORIZATION);
    match (has(pairs, "X-Amz-Signature"), authorization) {
        (true, Some(_)) => Err(Failure::code(
            S3ErrorCode::InvalidArgument,
            "only one way to sign is allowed: the Authorization header or the query",
        )),
        (true, None) => presigned(pairs).map(Some),
        (false, Some(value)) => {
            let value = value.to_str().map_err(|_| malformed("the Authorization header is not ASCII"))?;
            header_signed(value).map(Some)
        }
        (false, None) => Ok(None),
    }
}

fn presigned(pairs: &[(String, String)]) -> Result<Vec<&str>, Failure> {
    let unique = |name: &str| {
        let mut values = pairs.iter().filter(|(given, _)| given == name).map(|(_, value)| value.as_str());
        match (values.next(), values.next()) {
            (Some(value), None) => Ok(value),
            (None, _) => Err(bad_query(format!("{name} is missing"))),
            (Some(_), Some(_)) => Err(bad_query(format!("{name} is repeated"))),
        }
    };
    let expires = unique("X-Amz-Expires")?;
    let in_range = !expires.is_empty()
        && expires.bytes().all(|byte| byte.is_ascii_digit())
        && expires.parse().is_ok_and(|seconds: u32| (1..=MAX_EXPIRES).contains(&seconds));
    if !in_range {
        return Err(bad_query(format!("X-Amz-Expires must be a number of seconds from 1 to {MAX_EXPIRES}")));
    }
    check_service(unique("X-Amz-Credential")?)?;
    Ok(unique("X-Amz-SignedHeaders")?.split(';').collect())
}

fn header_signed(value: &str) -> Result<Vec<&str>, Failure> {
    let (algorithm, rest) = value.split_once(' ').unwrap_or((value, ""));
    match algorithm {
        "AWS4-HMAC-SHA256" => {}
        "AWS" => return Err(signature_v2()),
        _ => return Err(invalid("the Authorization header must use AWS4-HMAC-SHA256")),
    }
    // Exactly the three parts that s3s reads, in its order: another reading could find other SignedHeaders.
    let parts: Vec<&str> = rest.split(',').map(str::trim).collect();
    let [credential, signed, signature] = parts.as_slice() else {
        return Err(malformed("the Authorization header needs Credential, SignedHeaders and Signature"));
    };
    match (
        credential.strip_prefix("Credential="),
        signed.strip_prefix("SignedHeaders="),
        signature.strip_prefix("Signature="),
    ) {
        (Some(credential), Some(signed), Some(_)) => {
            check_service(credential)?;
            Ok(signed.split(';').collect())
        }
        _ => Err(malformed("the Authorization header needs Credential, SignedHeaders and Signature in this order")),
    }
}

/// s3s also takes signatures for `sts`, with which the payload hash may be missing.
fn check_service(credential: &str) -> Result<(), Failure> {
    let mut from_end = credential.rsplit('/');
    match (from_end.next(), from_end.next()) {
        (Some("aws4_request"), Some("s3")) => Ok(()),
        _ => Err(malformed("the credential scope must end in s3/aws4_request")),
    }
}

fn check_signed(signed: &[&str], headers: &HeaderMap) -> Result<(), Failure> {
    // Without it, a URL signed for one host-style bucket would be good for another.
    if !signed.contains(&"host") {
        return Err(denied("the Host header must be signed"));
    }
    let unsigned: Vec<&str> = headers
        .keys()
        .map(|name| name.as_str())
        .filter(|name| name.starts_with("x-amz-") && !signed.contains(name))
        .collect();
    if !unsigned.is_empty() {
        return Err(denied(format!("these headers of the request were not signed: {}", unsigned.join(", "))));
    }
    // s3s leaves values that are not UTF-8 out of what it verifies.
    let opaque = headers
        .iter()
        .find(|(name, value)| name.as_str().starts_with("x-amz-") && std::str::from_utf8(value.as_bytes()).is_err());
    match opaque {
        Some((name, _)) => Err(invalid(format!("the {name} header is not UTF-8"))),
        None => Ok(()),
    }
}

fn check_lengths(headers: &HeaderMap) -> Result<(), Failure> {
    for name in ["x-amz-decoded-content-length", "content-length"] {
        let Some(value) = headers.get(name) else { continue };
        let digits = value.as_bytes();
        // s3s reads the leading digits and ignores what follows.
        let length = std::str::from_utf8(digits).ok().filter(|_| digits.iter().all(u8::is_ascii_digit));
        let length = length.and_then(|text| text.parse::<u64>().ok());
        match length {
            None => return Err(invalid(format!("the {name} header is not a number"))),
            // The framing of aws-chunked adds to what Content-Length counts; the decoded length is the object's.
            Some(length) if name != "content-length" && length > MAX_UPLOAD_BYTES => return Err(too_large(length)),
            Some(length) if !is_aws_chunked(headers) && length > MAX_UPLOAD_BYTES => return Err(too_large(length)),
            Some(_) => {}
        }
    }
    Ok(())
}

/// Whether the body comes in aws-chunked framing that s3s will decode.
pub(super) fn is_aws_chunked(headers: &HeaderMap) -> bool {
    headers.get("x-amz-content-sha256").is_some_and(|value| value.as_bytes().starts_with(b"STREAMING-"))
}

fn has(pairs: &[(String, String)], name: &str) -> bool {
    pairs.iter().any(|(given, _)| given == name)
}

fn too_large(length: u64) -> Failure {
    let message = format!("an upload of {length} bytes exceeds the {MAX_UPLOAD_BYTES} bytes of one request");
    Failure::code(S3ErrorCode::EntityTooLarge, message)
}

fn signature_v2() -> Failure {
    invalid("signature version 2 is not supported; sign with AWS4-HMAC-SHA256")
}

fn invalid(message: impl Into<Cow<'static, str>>) -> Failure {
    Failure::kind(ErrorKind::InvalidRequest, message)
}

fn denied(message: impl Into<Cow<'static, str>>) -> Failure {
    Failure::kind(ErrorKind::AccessDenied, message)
}

fn malformed(message: &'static str) -> Failure {
    Failure::code(S3ErrorCode::AuthorizationHeaderMalformed, message)
}

fn bad_query(message: String) -> Failure {
    Failure::code(S3ErrorCode::AuthorizationQueryParametersError, message)
}

#[cfg(test)]
mod tests {
    use super::*;
    use s3s::S3Error;

    const GOOD: &str =
        "AWS4-HMAC-SHA256 Credential=AK/20261201/eu/s3/aws4_request, SignedHeaders=host;x-amz-date, Signature=ab";

    /// The code that a request is refused with, or "ok". Each header and query pair is one `name=value`.
    fn refusal(method: Method, query: &[&str], headers: &[&str]) -> String {
        let split = |text: &&str| {
            let (name, value) = text.split_once('=').unwrap_or((text, ""));
            (name.to_owned(), value.to_owned())
        };
        let pairs: Vec<_> = query.iter().map(split).collect();
        let mut map = HeaderMap::new();
        for (name, value) in headers.iter().map(split) {
            map.append(http::HeaderName::from_bytes(name.as_bytes()).unwrap(), value.parse().unwrap());
        }
        match check(&method, &pairs, &map) {
            Ok(()) => "ok".into(),
            Err(failure) => S3Error::from(failure).code().as_str().to_owned(),
        }
    }

    fn get(query: &[&str], headers: &[&str]) -> String {
        refusal(Method::GET, query, headers)
    }

    fn authorised(authorization: &str, more: &[&str]) -> String {
        let authorization = format!("authorization={authorization}");
        let mut headers = vec![authorization.as_str(), "host=h", "x-amz-date=d"];
        headers.extend(more);
        get(&[], &headers)
    }

    #[test]
    fn anonymous_and_plainly_signed_requests_pass() {
        assert_eq!(get(&["slice=0:4"], &["host=h", "x-amz-meta-a=b"]), "ok");
        assert_eq!(authorised(GOOD, &["range=bytes=0-1"]), "ok");
    }

    #[test]
    fn x_amz_headers_outside_the_signature_are_refused() {
        for name in ["x-amz-copy-source", "x-amz-content-sha256", "x-amz-security-token", "x-amz-meta-a"] {
            assert_eq!(authorised(GOOD, &[&format!("{name}=v")]), "AccessDenied", "{name}");
        }
        assert_eq!(authorised(GOOD, &["x-amzn-trace-id=v"]), "ok");
    }

    #[test]
    fn values_that_the_signature_check_cannot_see_are_refused() {
        let mut headers = HeaderMap::new();
        headers.insert("authorization", GOOD.parse().unwrap());
        headers.insert("x-amz-date", http::HeaderValue::from_bytes(b"\xff").unwrap());
        assert!(check(&Method::GET, &[], &headers).is_err());
    }

    #[test]
    fn the_host_must_be_signed() {
        assert_eq!(authorised(&GOOD.replace("host;", ""), &[]), "AccessDenied");
    }

    #[test]
    fn signature_version_2_is_refused_in_header_and_query() {
        assert_eq!(get(&[], &["authorization=AWS AK:c2ln"]), "InvalidRequest");
        assert_eq!(get(&["AWSAccessKeyId=AK", "Expires=1", "Signature=s"], &[]), "InvalidRequest");
        assert_eq!(get(&["Signature=s"], &[]), "InvalidRequest");
    }

    #[test]
    fn authorization_headers_that_could_be_read_in_two_ways_are_refused() {
        let malformed = "AuthorizationHeaderMalformed";
        assert_eq!(authorised(&format!("{GOOD}, SignedHeaders=host"), &[]), malformed);
        assert_eq!(authorised("AWS4-HMAC-SHA256 SignedHeaders=host, Credential=a, Signature=b", &[]), malformed);
        assert_eq!(authorised(&GOOD.replace("/s3/", "/sts/"), &[]), malformed);
        assert_eq!(authorised("AWS4-HMAC-SHA256", &[]), malformed);
        assert_eq!(authorised("Bearer token", &[]), "InvalidRequest");
        assert_eq!(authorised(&GOOD.replace("HMAC", "ECDSA-P256"), &[]), "InvalidRequest");
        assert_eq!(authorised(GOOD, &["authorization=x"]), "InvalidRequest");
        assert_eq!(get(&[], &["host=a", "host=b"]), "InvalidRequest");
    }

    #[test]
    fn presigned_urls_need_a_life_of_one_second_to_one_week() {
        let presigned = |expires: &str, headers: &[&str]| {
            let expires = format!("X-Amz-Expires={expires}");
            let credential = "X-Amz-Credential=AK/20261201/eu/s3/aws4_request";
            get(&["X-Amz-Signature=ab", "X-Amz-SignedHeaders=host", credential, &expires], headers)
        };
        assert_eq!(presigned("1", &["host=h"]), "ok");
        assert_eq!(presigned("604800", &["host=h"]), "ok");
        for bad in ["0", "604801", "-1", "+5", "", "9999999999999", "1h"] {
            assert_eq!(presigned(bad, &["host=h"]), "AuthorizationQueryParametersError", "{bad}");
        }
        assert_eq!(presigned("60", &["host=h", "x-amz-acl=private"]), "AccessDenied");
        assert_eq!(presigned("60", &["host=h", &format!("authorization={GOOD}")]), "InvalidArgument");
    }

    #[test]
    fn form_uploads_are_not_implemented() {
        let form = ["content-type=Multipart/Form-Data; boundary=b"];
        assert_eq!(refusal(Method::POST, &[], &form), "NotImplemented");
        assert_eq!(refusal(Method::PUT, &[], &form), "ok");
    }

    #[test]
    fn announced_lengths_are_numbers_within_the_limit() {
        let put = |headers: &[&str]| refusal(Method::PUT, &[], headers);
        assert_eq!(put(&["content-length=5368709120"]), "ok");
        assert_eq!(put(&["content-length=5368709121"]), "EntityTooLarge");
        assert_eq!(put(&["x-amz-decoded-content-length=5368709121"]), "EntityTooLarge");
        assert_eq!(put(&["x-amz-decoded-content-length=12abc"]), "InvalidRequest");
        assert_eq!(put(&["x-amz-decoded-content-length=99999999999999999999999"]), "InvalidRequest");
    }
}
