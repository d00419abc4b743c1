//! A real S3 store, and servers that answer like a broken one.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use wicker4dx::model::Secret;
use wicker4dx::model::{ByteRange, Version};
use wicker4dx::store::{ListRequest, Prefixed, S3Settings, S3Store, Store, StoreError};

use super::put;

fn variable(name: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| {
        panic!(
            "{name} is not set. This test needs an S3 store: set W4DX_TEST_S3_ENDPOINT, W4DX_TEST_S3_BUCKET, \
             W4DX_TEST_S3_ACCESS_KEY and W4DX_TEST_S3_SECRET_KEY, or leave out the tests whose names hold `s3_upstream_`"
        )
    })
}

fn settings() -> S3Settings {
    let credentials = Some((variable("W4DX_TEST_S3_ACCESS_KEY"), Secret::new(&variable("W4DX_TEST_S3_SECRET_KEY"))));
    let endpoint = variable("W4DX_TEST_S3_ENDPOINT");
    S3Settings { credentials, ..S3Settings::new(&variable("W4DX_TEST_S3_BUCKET"), Some(&endpoint)) }
}

/// A part of the test bucket that is empty.
pub(super) async fn store(prefix: &str) -> Arc<dyn Store> {
    let part: Arc<dyn Store> = Arc::new(Prefixed::new(Arc::new(S3Store::connect(settings()).await), prefix));
    loop {
        let page = part.list(&ListRequest { max_keys: 1000, ..ListRequest::default() }).await.unwrap();
        if page.objects.is_empty() {
            return part;
        }
        for (key, _) in page.objects {
            part.delete(&key).await.unwrap();
        }
    }
}

#[tokio::test]
async fn s3_upstream_tells_an_absent_bucket_from_an_absent_key() {
    let absent = S3Store::connect(S3Settings { bucket: "no-such-bucket-here".into(), ..settings() }).await;
    for result in [
        absent.head("k").await.map(|_| ()),
        absent.get("k", ByteRange::Whole, None).await.map(|_| ()),
        absent.list(&ListRequest { max_keys: 1, ..ListRequest::default() }).await.map(|_| ()),
        absent.ready().await,
    ] {
        assert!(matches!(result, Err(StoreError::Failed { .. })), "{result:?}");
    }
}

#[tokio::test]
async fn s3_upstream_refusing_our_credential_is_denied() {
    let credentials = Some((variable("W4DX_TEST_S3_ACCESS_KEY"), Secret::new("not the secret")));
    let store = S3Store::connect(S3Settings { credentials, ..settings() }).await;
    for result in [store.head("k").await.map(|_| ()), store.get("k", ByteRange::Whole, None).await.map(|_| ())] {
        assert!(matches!(result, Err(StoreError::Denied { .. })), "{result:?}");
    }
}

#[tokio::test]
async fn s3_upstream_keeps_headers_and_metadata() {
    let store = store("headers/").await;
    let headers = [
        ("content-type", "application/x-npy"),
        ("cache-control", "max-age=60"),
        ("content-disposition", "attachment"),
        ("x-amz-meta-owner", "me"),
    ];
    let options = wicker4dx::store::PutOptions {
        headers: headers.map(|(name, value)| (name.into(), value.into())).into(),
        ..wicker4dx::store::PutOptions::default()
    };
    store.put("k", super::body("x"), options).await.unwrap();
    let fetched = store.get("k", ByteRange::Suffix(1), None).await.unwrap().info;
    for info in [store.head("k").await.unwrap(), fetched] {
        assert_eq!(info.content_type.as_deref(), Some("application/x-npy"));
        for (name, value) in &headers[1..] {
            assert_eq!(info.headers.get(*name).map(String::as_str), Some(*value), "{name}");
        }
    }
    put(store.as_ref(), "plain", "x").await;
}

/// Answers every connection with the same bytes, then closes it, or keeps it open for ever.
async fn server(answer: Option<String>) -> S3Store {
    counted_server(answer, 1).await.0
}

/// The same, with how many connections came. The SDK may try so often.
async fn counted_server(answer: Option<String>, attempts: u32) -> (S3Store, Arc<AtomicUsize>) {
    let connections = Arc::<AtomicUsize>::default();
    let counted = Arc::clone(&connections);
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move {
        loop {
            let Ok((mut socket, _)) = listener.accept().await else { return };
            counted.fetch_add(1, Ordering::Relaxed);
            let answer = answer.clone();
            tokio::spawn(async move {
                let mut request = vec![0; 16 << 10];
                let _ = socket.read(&mut request).await;
                match answer {
                    Some(answer) => {
                        let _ = socket.write_all(answer.as_bytes()).await;
                        let _ = socket.shutdown().await;
                    }
                    None => std::future::pending().await,
                }
            });
        }
    });
    let store = S3Store::connect(S3Settings {
        credentials: Some(("key".into(), Secret::new("secret"))),
        timeout: Duration::from_secs(if attempts > 1 { 20 } else { 2 }),
        read_timeout: Duration::from_millis(500),
        attempts,
        ..S3Settings::new("bucket", Some(&endpoint))
    })
    .await;
    (store, connections)
}

#[tokio::test]
async fn a_read_whose_caller_tries_again_is_sent_once() {
    let (store, connections) = counted_server(refusal("503 Slow Down", "SlowDown"), 2).await;
    let once = store.get_once("k", ByteRange::Bounded(0..4), None).await;
    assert!(matches!(once, Err(StoreError::Throttled)), "{once:?}");
    assert_eq!(connections.load(Ordering::Relaxed), 1);
    let tried = store.get("k", ByteRange::Bounded(0..4), None).await;
    assert!(matches!(tried, Err(StoreError::Throttled)), "{tried:?}");
    assert_eq!(connections.load(Ordering::Relaxed), 1 + 2);
}

#[tokio::test]
async fn what_only_the_sdk_can_judge_is_asked_of_it_and_nothing_else_is_asked_twice() {
    for (status, code, requests) in [
        ("403 Forbidden", "AccessDenied", 2),
        ("400 Bad Request", "ExpiredToken", 2),
        ("404 Not Found", "NoSuchBucket", 2),
        ("404 Not Found", "NoSuchKey", 1),
        ("412 Precondition Failed", "PreconditionFailed", 1),
        ("500 Internal Server Error", "InternalError", 1),
    ] {
        let (store, connections) = counted_server(refusal(status, code), 1).await;
        store.get("k", ByteRange::Bounded(0..4), None).await.unwrap_err();
        assert_eq!(connections.load(Ordering::Relaxed), requests, "{status} {code}");
    }
}

fn answer(status: &str, headers: &str, body: &str) -> Option<String> {
    Some(format!("HTTP/1.1 {status}\r\nConnection: close\r\n{headers}\r\n{body}"))
}

fn refusal(status: &str, code: &str) -> Option<String> {
    let body = format!("<Error><Code>{code}</Code><Message>because</Message><RequestId>R1</RequestId></Error>");
    answer(status, &format!("Content-Type: application/xml\r\nContent-Length: {}\r\n", body.len()), &body)
}

async fn outcome(answer: Option<String>) -> String {
    let store = server(answer).await;
    let result = store.get("k", ByteRange::Bounded(0..4), Some(&Version::new("v"))).await;
    match result {
        Ok(fetched) => format!("{:?}", fetched.bytes),
        Err(error) => format!("{error:?}"),
    }
}

#[tokio::test]
async fn each_refusal_of_an_upstream_keeps_its_meaning() {
    for (status, code, expected) in [
        ("404 Not Found", "NoSuchKey", "NotFound"),
        ("404 Not Found", "NoSuchBucket", "Failed"),
        ("403 Forbidden", "AccessDenied", "Denied"),
        ("412 Precondition Failed", "PreconditionFailed", "Changed"),
        ("503 Slow Down", "SlowDown", "Throttled"),
        ("500 Internal Server Error", "InternalError", "Interrupted"),
        ("429 Too Many Requests", "TooManyRequests", "Throttled"),
        ("400 Bad Request", "AuthorizationHeaderMalformed", "Failed"),
        ("504 Gateway Timeout", "Whatever", "Timeout"),
    ] {
        let outcome = outcome(refusal(status, code)).await;
        assert!(outcome.starts_with(expected), "{status} {code}: {outcome}");
    }
    let failed = outcome(refusal("500 Internal Server Error", "InternalError")).await;
    assert!(failed.contains("InternalError") && failed.contains("because"), "{failed}");
}

#[tokio::test]
async fn an_answer_that_contradicts_itself_is_refused() {
    let good = "Content-Length: 4\r\nContent-Range: bytes 0-3/10\r\nETag: \"v\"\r\n";
    assert_eq!(outcome(answer("206 Partial Content", good, "abcd")).await, "b\"abcd\"");
    for (status, headers, body, expected) in [
        ("206 Partial Content", good, "ab", "Truncated"),
        ("206 Partial Content", "Content-Length: 4\r\nContent-Range: bytes 0-3/10\r\n", "abcd", "Failed"),
        (
            "206 Partial Content",
            "Content-Length: 4\r\nContent-Range: bytes 1-4/10\r\nETag: \"v\"\r\n",
            "abcd",
            "Failed",
        ),
        ("206 Partial Content", "Content-Length: 2\r\nContent-Range: bytes 0-1/10\r\nETag: \"v\"\r\n", "ab", "Failed"),
        ("200 OK", "Content-Length: 10\r\nETag: \"v\"\r\n", "abcdefghij", "Failed"),
        (
            "206 Partial Content",
            "Content-Length: 4\r\nContent-Range: bytes 0-3/10\r\nETag: \"w\"\r\n",
            "abcd",
            "Changed",
        ),
    ] {
        let outcome = outcome(answer(status, headers, body)).await;
        assert!(outcome.starts_with(expected), "{headers:?}: {outcome}");
    }
}

#[tokio::test]
async fn an_upstream_that_lists_out_of_order_loses_no_key() {
    let object = |key: &str| {
        format!(
            "<Contents><Key>{key}</Key><Size>1</Size><ETag>v</ETag><LastModified>2026-01-01T00:00:00Z</LastModified></Contents>"
        )
    };
    let contents = ["a/b", "a.b", "a0"].map(object).concat();
    let body = format!("<ListBucketResult><IsTruncated>false</IsTruncated>{contents}</ListBucketResult>");
    let headers = format!("Content-Type: application/xml\r\nContent-Length: {}\r\n", body.len());
    let store = server(answer("200 OK", &headers, &body)).await;
    let mut keys = Vec::new();
    let mut request = ListRequest { max_keys: 1, ..ListRequest::default() };
    loop {
        let page = store.list(&request).await.unwrap();
        keys.extend(page.objects.into_iter().map(|(key, _)| key));
        match page.next {
            Some(next) => {
                assert!(request.start_after.as_ref() < Some(&next), "no progress after {request:?}");
                request.start_after = Some(next);
            }
            None => break,
        }
    }
    assert_eq!(keys, ["a.b", "a/b", "a0"]);
}

#[tokio::test]
async fn a_silent_or_absent_upstream_is_an_error_in_time() {
    let started = std::time::Instant::now();
    assert!(outcome(None).await.starts_with("Timeout"));
    let stalled =
        answer("206 Partial Content", "Content-Length: 4\r\nContent-Range: bytes 0-3/9\r\nETag: \"v\"\r\n", "a");
    let outcome = outcome(stalled).await;
    assert!(outcome.starts_with("Truncated"), "{outcome}");
    let nobody = S3Store::connect(S3Settings {
        credentials: Some(("key".into(), Secret::new("secret"))),
        attempts: 1,
        ..S3Settings::new("bucket", Some("http://127.0.0.1:1"))
    })
    .await;
    assert!(matches!(nobody.head("k").await, Err(StoreError::Interrupted { .. })));
    assert!(started.elapsed() < Duration::from_secs(10), "{:?}", started.elapsed());
}

#[tokio::test]
async fn settings_do_not_show_the_secret() {
    let credentials = Some(("key".to_owned(), Secret::new("hunter2")));
    let settings = S3Settings { credentials, ..S3Settings::new("bucket", None) };
    assert!(!format!("{settings:?}").contains("hunter2"));
    assert!(!format!("{:?}", S3Store::connect(settings).await).contains("hunter2"));
}
