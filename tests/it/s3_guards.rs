//! What a signature must cover, and for how long: the holes of s3s that were closed stay closed.

use std::time::{Duration, SystemTime};

use aws_sdk_s3::presigning::PresigningConfig;

use crate::s3_support::{Answer, Served, SignableBody, serve};

/// A URL to GET `shut/a/k`, signed by `FULL`.
async fn presigned(served: &Served, start: SystemTime, life: Duration) -> String {
    let config = PresigningConfig::builder().start_time(start).expires_in(life).build().unwrap();
    let request = served.sdk("FULL").get_object().bucket("shut").key("a/k").presigned(config).await.unwrap();
    request.uri().to_owned()
}

async fn fetch(method: &str, url: &str, headers: &[(&str, &str)]) -> Answer {
    let mut request = reqwest::Client::new().request(method.parse().unwrap(), url);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    Answer::of(request.send().await.unwrap()).await
}

const MINUTE: Duration = Duration::from_secs(60);

#[tokio::test]
async fn a_presigned_url_is_good_for_what_it_was_signed_for_and_nothing_else() {
    let served = serve().await;
    served.shut.add("a/k", "text", &[]);
    served.shut.add("a/l", "text", &[]);
    let url = presigned(&served, SystemTime::now(), MINUTE).await;
    let got = fetch("GET", &url, &[]).await;
    assert_eq!((got.status, got.text.as_str()), (200, "text"));
    assert_eq!(fetch("GET", &url, &[("range", "bytes=0-0")]).await.status, 206);

    let refused = async |method: &str, url: &str, headers: &[(&str, &str)], code: &str| {
        let got = fetch(method, url, headers).await;
        assert_eq!(got.status, 403, "{method} {url} {headers:?}");
        if method != "HEAD" {
            assert_eq!(got.code(), code, "{method} {url} {headers:?}");
        }
    };
    refused("HEAD", &url, &[], "-").await;
    refused("PUT", &url, &[], "SignatureDoesNotMatch").await;
    refused("GET", &url.replace("/a/k", "/a/l"), &[], "SignatureDoesNotMatch").await;
    refused("GET", &url, &[("host", "shut.s3.test")], "SignatureDoesNotMatch").await;
    refused("GET", &format!("{url}&slice=0:4"), &[], "SignatureDoesNotMatch").await;
    refused("GET", &format!("{url}&response-content-type=text/html"), &[], "SignatureDoesNotMatch").await;
    refused("GET", &url.replace("SignedHeaders=host", "SignedHeaders=range"), &[], "AccessDenied").await;
    refused("GET", &url, &[("x-amz-copy-source", "open/k")], "AccessDenied").await;
    refused("GET", &url, &[("x-amz-content-sha256", "UNSIGNED-PAYLOAD")], "AccessDenied").await;
}

#[tokio::test]
async fn a_presigned_url_lives_from_its_date_to_its_expiry() {
    let served = serve().await;
    served.shut.add("a/k", "text", &[]);
    let now = SystemTime::now();
    let check = async |start: SystemTime, life: Duration, status: u16, code: &str| {
        let got = fetch("GET", &presigned(&served, start, life).await, &[]).await;
        assert_eq!((got.status, got.code()), (status, code));
    };
    check(now - 10 * MINUTE, 11 * MINUTE, 200, "-").await;
    check(now - 10 * MINUTE, 9 * MINUTE, 403, "AccessDenied").await;
    check(now + 14 * MINUTE, MINUTE, 200, "-").await;
    check(now + 16 * MINUTE, MINUTE, 403, "RequestTimeTooSkewed").await;
    check(now - 6 * 24 * 60 * MINUTE, Duration::from_secs(604_800), 200, "-").await;
    let url = presigned(&served, now, MINUTE).await;
    for life in ["0", "604801", "-5", "x"] {
        let got = fetch("GET", &url.replace("Expires=60", &format!("Expires={life}")), &[]).await;
        assert_eq!((got.status, got.code()), (400, "AuthorizationQueryParametersError"), "{life}");
    }
}

#[tokio::test]
async fn a_signed_header_is_good_for_a_quarter_of_an_hour_either_way() {
    let served = serve().await;
    served.shut.add("a/k", "text", &[]);
    let now = SystemTime::now();
    for (time, status, code) in [
        (now - 14 * MINUTE, 200, "-"),
        (now + 14 * MINUTE, 200, "-"),
        (now - 16 * MINUTE, 403, "RequestTimeTooSkewed"),
        (now + 16 * MINUTE, 403, "RequestTimeTooSkewed"),
    ] {
        let got = served.signed_at(time, "GET", "/shut/a/k", (&[], &[]), SignableBody::Bytes(b""), "").await;
        assert_eq!((got.status, got.code()), (status, code));
    }
}

#[tokio::test]
async fn unsigned_x_amz_headers_beside_a_signature_are_refused() {
    let served = serve().await;
    served.shut.add("a/secret", "secret", &[]);
    for (name, value) in [
        ("x-amz-copy-source", "shut/a/secret"),
        ("x-amz-meta-added", "v"),
        ("x-amz-checksum-crc32", "AAAAAA=="),
        ("x-amz-acl", "public-read"),
    ] {
        let now = SystemTime::now();
        let put =
            served.signed_at(now, "PUT", "/open/k", (&[], &[(name, value)]), SignableBody::Bytes(b"x"), "x").await;
        assert_eq!((put.status, put.code()), (403, "AccessDenied"), "{name}");
        assert!(put.text.contains(name), "the answer names the header: {}", put.text);
    }
    assert!(served.open.content("k").is_none());
    // The same headers, signed, are looked at.
    let put = served.signed("PUT", "/open/k", &[("x-amz-meta-added", "v")], SignableBody::Bytes(b"x"), "x").await;
    assert_eq!(put.status, 200);
}

#[tokio::test]
async fn the_query_that_was_signed_is_the_query_that_is_read() {
    let served = serve().await;
    served.shut.add("a/k", "text", &[]);
    // What a client must sign: the percent-encoded form.
    let path = "/shut/a/k?slice=0%3A4%2C%3A&note=a%20b%2Bc";
    let got = served.signed("GET", path, &[], SignableBody::Bytes(b""), "").await;
    assert_ne!(got.code(), "SignatureDoesNotMatch");
    // A repeated parameter is signed in the order of its values, whatever the order of the URI.
    let path = "/shut/a/k?isel=time%3D0%3A4&isel=channel%3D1&explain&isel=y%3D%7E";
    let got = served.signed("GET", path, &[], SignableBody::Bytes(b""), "").await;
    assert_ne!(got.code(), "SignatureDoesNotMatch");
    // Signed raw, it is refused with an explanation.
    let url = presigned(&served, SystemTime::now(), MINUTE).await;
    let got = fetch("GET", &format!("{url}&slice=0:4"), &[]).await;
    assert!(got.text.contains("slice=0%3A4%2C%3A"), "{}", got.text);
}

#[tokio::test]
async fn signature_version_2_is_refused() {
    let served = serve().await;
    served.open.add("k", "text", &[]);
    let header = served.get("/open/k", &[("authorization", "AWS FULL:c2lnbmF0dXJl"), ("date", "x")]).await;
    assert_eq!((header.status, header.code()), (400, "InvalidRequest"));
    let query = served.get("/open/k?AWSAccessKeyId=FULL&Expires=4102444800&Signature=c2ln", &[]).await;
    assert_eq!((query.status, query.code()), (400, "InvalidRequest"));
}

#[tokio::test]
async fn a_wrong_secret_or_an_unknown_key_reads_nothing_not_even_what_anyone_may() {
    let served = serve().await;
    served.open.add("k", "text", &[]);
    let url = presigned(&served, SystemTime::now(), MINUTE).await;
    let got = fetch("GET", &url.replace("=FULL", "=READER").replace("/shut/a/k", "/open/k"), &[]).await;
    assert_eq!((got.status, got.code()), (403, "SignatureDoesNotMatch"));
    let got = fetch("GET", &url.replace("=FULL", "=NOBODY").replace("/shut/a/k", "/open/k"), &[]).await;
    assert_eq!((got.status, got.code()), (403, "InvalidAccessKeyId"));
}

#[tokio::test]
async fn browser_uploads_are_refused() {
    let served = serve().await;
    let got = served.send("POST", "/open", &[("content-type", "multipart/form-data; boundary=x")]).await;
    assert_eq!((got.status, got.code()), (501, "NotImplemented"));
}
