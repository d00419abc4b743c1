//! GetObject and HeadObject, as plain HTTP clients and the AWS SDK see them.

use aws_sdk_s3::error::{ProvideErrorMetadata as _, SdkError};

use crate::s3_support::{SignableBody, WRITTEN, serve};

const TEXT: &str = "0123456789abcdef";

#[tokio::test]
async fn an_object_comes_with_everything_that_is_known_of_it() {
    let served = serve().await;
    let headers = [
        ("content-type", "text/plain"),
        ("content-encoding", "gzip"),
        ("cache-control", "max-age=9"),
        ("x-amz-meta-lens", "35 mm"),
    ];
    served.shut.add("a/k ü+1.txt", TEXT, &headers);
    let got = served.sdk("FULL").get_object().bucket("shut").key("a/k ü+1.txt").send().await.unwrap();
    assert_eq!(got.content_type(), Some("text/plain"));
    assert_eq!(got.content_encoding(), Some("gzip"));
    assert_eq!(got.cache_control(), Some("max-age=9"));
    assert_eq!(got.accept_ranges(), Some("bytes"));
    assert_eq!(got.content_length(), Some(16));
    assert_eq!(got.last_modified().unwrap().secs(), 1_796_119_200);
    assert_eq!(got.metadata().unwrap()["lens"], "35 mm");
    let etag = served.shut.content("a/k ü+1.txt").unwrap().1.version;
    assert_eq!(got.e_tag(), Some(&*format!("\"{etag}\"")));
    assert_eq!(got.body.collect().await.unwrap().to_vec(), TEXT.as_bytes());
    assert_eq!(*served.shut.log.lock().unwrap(), ["stream a/k ü+1.txt"], "one store request");
}

#[tokio::test]
async fn ranges_are_answered_as_s3_does() {
    let served = serve().await;
    served.open.add("k", TEXT, &[]);
    served.open.add("empty", "", &[]);
    for head in [false, true] {
        let check = async |path: &str, range: &str, status: u16, content_range: &str, body: &str| {
            let method = if head { "HEAD" } else { "GET" };
            let got = served.send(method, path, &[("range", range)]).await;
            assert_eq!((got.status, got.header("content-range")), (status, content_range), "{method} {path} {range}");
            if status < 400 {
                assert_eq!(got.header("content-length"), body.len().to_string(), "{method} {path} {range}");
                assert_eq!(got.text, if head { "" } else { body }, "{method} {path} {range}");
            } else if !head {
                assert_eq!(got.code(), "InvalidRange");
            }
        };
        check("/open/k", "bytes=0-3", 206, "bytes 0-3/16", "0123").await;
        check("/open/k", "bytes=0-", 206, "bytes 0-15/16", TEXT).await;
        check("/open/k", "bytes=10-99", 206, "bytes 10-15/16", "abcdef").await;
        check("/open/k", "bytes=-2", 206, "bytes 14-15/16", "ef").await;
        check("/open/k", "bytes=-99", 206, "bytes 0-15/16", TEXT).await;
        check("/open/k", "bytes=16-", 416, "bytes */16", "").await;
        check("/open/k", "bytes=-0", 416, "bytes */16", "").await;
        check("/open/k", "bytes=9-3", 200, "-", TEXT).await;
        check("/open/k", "bytes=0-1,4-5", 200, "-", TEXT).await;
        check("/open/k", "lines=0-1", 200, "-", TEXT).await;
        check("/open/empty", "bytes=0-", 416, "bytes */0", "").await;
        check("/open/empty", "bytes=-5", 200, "-", "").await;
    }
}

#[tokio::test]
async fn conditions_are_answered_with_the_headers_that_caches_need() {
    let served = serve().await;
    served.open.add("k", TEXT, &[("cache-control", "max-age=9")]);
    let etag = format!("\"{}\"", served.open.content("k").unwrap().1.version);
    for method in ["GET", "HEAD"] {
        let status = async |headers: &[(&str, &str)]| served.send(method, "/open/k", headers).await.status;
        assert_eq!(status(&[("if-match", &etag)]).await, 200);
        assert_eq!(status(&[("if-match", "\"other\"")]).await, 412);
        assert_eq!(status(&[("if-none-match", "\"other\"")]).await, 200);
        assert_eq!(status(&[("if-unmodified-since", "Tue, 01 Dec 2026 09:00:00 GMT")]).await, 412);
        assert_eq!(status(&[("if-modified-since", "garbage")]).await, 200);
        assert_eq!(status(&[("if-none-match", &format!("\"a\", W/{etag}"))]).await, 304);
        let got = served.send(method, "/open/k", &[("if-modified-since", WRITTEN)]).await;
        assert_eq!((got.status, got.text.as_str()), (304, ""));
        assert_eq!(
            (got.header("etag"), got.header("last-modified"), got.header("cache-control")),
            (etag.as_str(), WRITTEN, "max-age=9")
        );
        assert_eq!(got.header("x-amz-request-id"), "request-7");
    }
    let got = served.get("/open/k", &[("if-match", "\"other\"")]).await;
    assert_eq!(got.code(), "PreconditionFailed");
}

#[tokio::test]
async fn if_range_falls_back_to_the_whole_object() {
    let served = serve().await;
    served.open.add("k", TEXT, &[]);
    let etag = format!("\"{}\"", served.open.content("k").unwrap().1.version);
    let check = async |if_range: &str, status: u16, body: &str| {
        let got = served.get("/open/k", &[("range", "bytes=0-3"), ("if-range", if_range)]).await;
        assert_eq!((got.status, got.text.as_str()), (status, body), "{if_range}");
    };
    check(&etag, 206, "0123").await;
    check(WRITTEN, 206, "0123").await;
    check("\"other\"", 200, TEXT).await;
    check("Tue, 01 Dec 2026 10:00:01 GMT", 200, TEXT).await;
}

#[tokio::test]
async fn parts_and_versions_are_answered_or_refused_never_guessed() {
    let served = serve().await;
    served.open.add("k", TEXT, &[]);
    let check = async |query: &str, range: &[(&str, &str)], status: u16, code: &str| {
        let got = served.get(&format!("/open/k?{query}"), range).await;
        assert_eq!((got.status, got.code()), (status, code), "{query}");
        got
    };
    let got = check("partNumber=1", &[], 206, "-").await;
    assert_eq!((got.header("content-range"), got.text.as_str()), ("bytes 0-15/16", TEXT));
    check("partNumber=2", &[], 416, "InvalidPartNumber").await;
    check("partNumber=x", &[], 400, "InvalidArgument").await;
    check("partNumber=1", &[("range", "bytes=0-1")], 400, "InvalidRequest").await;
    check("versionId=null", &[], 200, "-").await;
    check("versionId=3HL4kqtJ", &[], 501, "NotImplemented").await;
}

#[tokio::test]
async fn response_headers_are_overridden_only_under_a_signature() {
    let served = serve().await;
    served.open.add("k", TEXT, &[]);
    let client = served.sdk("FULL");
    let get = client.get_object().bucket("open").key("k").response_content_type("text/x; a=b c");
    let got = get.response_content_disposition("attachment; filename=\"a b.txt\"").send().await.unwrap();
    assert_eq!(got.content_type(), Some("text/x; a=b c"));
    assert_eq!(got.content_disposition(), Some("attachment; filename=\"a b.txt\""));
    let got = served.get("/open/k?response-content-type=text/html", &[]).await;
    assert_eq!((got.status, got.code()), (400, "InvalidRequest"));
}

#[tokio::test]
async fn absence_is_told_only_to_who_may_list() {
    let served = serve().await;
    served.shut.add("b/k", TEXT, &[]);
    let code = async |who: &str, bucket: &str, key: &str| match served
        .sdk(who)
        .get_object()
        .bucket(bucket)
        .key(key)
        .send()
        .await
    {
        Ok(_) => "ok".to_owned(),
        Err(error) => error.code().unwrap_or_default().to_owned(),
    };
    assert_eq!(code("FULL", "shut", "none").await, "NoSuchKey");
    assert_eq!(code("FULL", "nowhere", "none").await, "NoSuchBucket");
    assert_eq!(code("PART", "shut", "a/none").await, "NoSuchKey");
    assert_eq!(code("PART", "shut", "b/k").await, "AccessDenied");
    assert_eq!(code("PART", "shut", "b/none").await, "AccessDenied");
    assert_eq!(code("PART", "nowhere", "k").await, "AccessDenied");
    assert_eq!(code("NOBODY", "open", "k").await, "InvalidAccessKeyId");
    for path in ["/shut/b/k", "/shut/none", "/nowhere/none"] {
        let got = served.get(path, &[]).await;
        assert_eq!((got.status, got.code()), (403, "AccessDenied"), "{path}");
    }
    assert_eq!(served.get("/open/none", &[]).await.code(), "NoSuchKey");
    assert_eq!(served.send("HEAD", "/open/none", &[]).await.status, 404);
}

#[tokio::test]
async fn errors_carry_resource_and_request_id_in_either_form() {
    let served = serve().await;
    for path in ["/open/none", "/-/x", "/shut?list-type=2", "/open/k?tagging"] {
        let got = served.get(path, &[]).await;
        let resource = path.split('?').next().unwrap();
        assert!(got.text.contains(&format!("<Resource>{resource}</Resource>")), "{path}: {}", got.text);
        assert!(got.text.contains("<RequestId>request-7</RequestId>"), "{path}: {}", got.text);
        assert_eq!(got.header("content-type"), "application/xml");
        assert_eq!(got.header("x-amz-request-id"), "request-7");
        let got = served.get(path, &[("accept", "application/problem+json")]).await;
        assert_eq!(got.header("content-type"), "application/problem+json", "{path}");
        let problem: serde_json::Value = serde_json::from_str(&got.text).unwrap();
        assert!(problem["type"].as_str().unwrap().starts_with("urn:w4dx:error:"), "{problem}");
    }
}

#[tokio::test]
async fn a_store_that_refuses_the_gateway_is_no_fault_of_the_client() {
    let served = serve().await;
    let check = async |key: &str, status: u16, code: &str| {
        let got = served.get(&format!("/open/{key}"), &[]).await;
        assert_eq!((got.status, got.code()), (status, code), "{key}");
        assert!(!got.text.contains("upstream-secret-words"), "{}", got.text);
    };
    check("denied", 502, "UpstreamDenied").await;
    check("failing", 502, "UpstreamError").await;
    check("slow", 504, "UpstreamTimeout").await;
    check("busy", 503, "SlowDown").await;
}

#[tokio::test]
async fn an_object_that_never_rests_is_a_conflict_not_a_mixture() {
    let served = serve().await;
    served.open.add("restless", TEXT, &[]);
    let got = served.get("/open/restless", &[("if-none-match", "\"x\"")]).await;
    assert_eq!((got.status, got.code()), (409, "ArrayChanged"));
}

#[tokio::test]
async fn a_body_that_fails_halfway_never_ends_cleanly() {
    let served = serve().await;
    // Large enough that the headers leave before the body fails.
    served.open.add("cut", vec![0; 8 << 20], &[]);
    let http1 = reqwest::Client::new();
    let http2 = reqwest::Client::builder().http2_prior_knowledge().build().unwrap();
    for client in [http1, http2] {
        // The stream may be reset before its headers are seen, which is as good.
        let whole = async { client.get(served.url("/open/cut")).send().await?.bytes().await };
        assert!(whole.await.is_err());
    }
}

#[tokio::test]
async fn host_style_and_http2_address_the_same_objects() {
    let served = serve().await;
    served.open.add("k", TEXT, &[]);
    let got = served.get("/k", &[("host", "open.s3.test:9000")]).await;
    assert_eq!((got.status, got.text.as_str()), (200, TEXT));
    let got = served.get("/open/k", &[("host", "some.where.else")]).await;
    assert_eq!(got.status, 200);
    let http2 =
        reqwest::Client::builder().http2_prior_knowledge().resolve("open.s3.test", served.address).build().unwrap();
    let url = format!("http://open.s3.test:{}/k", served.address.port());
    let got = http2.get(url).send().await.unwrap();
    assert_eq!((got.status().as_u16(), got.version()), (200, http::Version::HTTP_2));
}

#[tokio::test]
async fn slices_are_not_answered_with_the_object() {
    let served = serve().await;
    served.open.add("k", TEXT, &[]);
    for path in ["/open/k?slice=0:4", "/open/k?x-slice=0:4", "/open/k/@slice=0:4.raw", "/open/k?slice=0:4&acl"] {
        let got = served.get(path, &[]).await;
        assert_ne!(got.text, TEXT, "{path}");
        assert_ne!(got.code(), "NoSuchKey", "{path}: a slice is not looked up as a key of that name");
        assert_eq!(got.header("x-amz-request-id"), "request-7");
    }
}

#[tokio::test]
async fn operations_that_are_not_served_say_so() {
    let served = serve().await;
    let client = served.sdk("FULL");
    let code = |error: Option<&str>| error.unwrap_or_default().to_owned();
    let tagging = client.get_object_tagging().bucket("open").key("k").send().await.unwrap_err();
    assert_eq!(code(tagging.code()), "NotImplemented");
    assert!(tagging.message().unwrap().contains("GetObjectTagging"));
    let create = client.create_bucket().bucket("new-bucket").send().await.unwrap_err();
    assert_eq!(code(create.code()), "NotImplemented");
    let copy = client.copy_object().bucket("open").key("c").copy_source("shut/b").send().await.unwrap_err();
    assert_eq!(code(copy.code()), "NotImplemented");
    let upload = client.create_multipart_upload().bucket("open").key("c").send().await.unwrap_err();
    assert!(matches!(&upload, SdkError::ServiceError(error) if error.raw().status().as_u16() == 501));
    let post = served.signed("POST", "/open?delete", &[], SignableBody::Bytes(b"x"), "x").await;
    assert_eq!((post.status, post.code()), (501, "NotImplemented"));
}
