//! PutObject and DeleteObject: nothing is published that was not verified.

use aws_sdk_s3::error::ProvideErrorMetadata as _;
use aws_sdk_s3::primitives::ByteStream;
use aws_sdk_s3::types::ChecksumAlgorithm;

use crate::s3_support::{Answer, Served, SignableBody, serve};

/// PUTs `open/k` in aws-chunked framing with unsigned chunks.
async fn put_framed(served: &Served, trailer: &str, length: u64, body: impl Into<bytes::Bytes>) -> Answer {
    let length = length.to_string();
    let headers = [
        ("content-encoding", "gzip,aws-chunked"),
        ("x-amz-decoded-content-length", length.as_str()),
        ("x-amz-trailer", trailer),
    ];
    served.signed("PUT", "/open/k", &headers, SignableBody::StreamingUnsignedPayloadTrailer, body).await
}

#[tokio::test]
async fn the_sdk_writes_with_every_checksum_it_knows() {
    let served = serve().await;
    let client = served.sdk("FULL");
    let data: Vec<u8> = (0..3_000_000_u32).map(|at| (at ^ (at >> 7)) as u8).collect();
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), &data).unwrap();
    for algorithm in [
        ChecksumAlgorithm::Crc32,
        ChecksumAlgorithm::Crc32C,
        ChecksumAlgorithm::Crc64Nvme,
        ChecksumAlgorithm::Sha1,
        ChecksumAlgorithm::Sha256,
    ] {
        for streamed in [false, true] {
            let key = format!("{algorithm}-{streamed}");
            // A file goes as aws-chunked with a trailer, bytes go with a header.
            let body = if streamed {
                ByteStream::from_path(file.path()).await.unwrap()
            } else {
                ByteStream::from(data.clone())
            };
            let put = client.put_object().bucket("shut").key(&key).checksum_algorithm(algorithm.clone());
            let put = put.content_type("a/b").metadata("who", "ü").body(body).send().await.unwrap();
            let (bytes, info) = served.shut.content(&key).unwrap();
            assert!(bytes == data, "{key}");
            assert_eq!(put.e_tag(), Some(&*format!("\"{}\"", info.version)), "{key}");
            assert_eq!(info.content_type.as_deref(), Some("a/b"));
            assert_eq!(info.headers.get("content-encoding"), None, "{key}: aws-chunked is stripped");
        }
    }
}

#[tokio::test]
async fn a_wrong_checksum_in_header_or_trailer_publishes_nothing() {
    let served = serve().await;
    for (name, value, code) in [
        ("x-amz-checksum-crc32", "AAAAAA==", "BadDigest"),
        ("x-amz-checksum-sha256", "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=", "BadDigest"),
        ("content-md5", "AAAAAAAAAAAAAAAAAAAAAA==", "BadDigest"),
        ("content-md5", "AAAA", "InvalidDigest"),
    ] {
        let got = served.signed("PUT", "/open/k", &[(name, value)], SignableBody::Bytes(b"hello"), "hello").await;
        assert_eq!((got.status, got.code()), (400, code), "{name}");
    }
    let payload = SignableBody::Precomputed("0".repeat(64));
    let got = served.signed("PUT", "/open/k", &[], payload, "hello").await;
    assert_eq!((got.status, got.code()), (400, "XAmzContentSHA256Mismatch"));

    let crc32 = "x-amz-checksum-crc32";
    for (body, code) in [
        ("5\r\nhello\r\n0\r\nx-amz-checksum-crc32:AAAAAA==\r\n\r\n", "BadDigest"),
        ("5\r\nhello\r\n0\r\nx-amz-checksum-crc32:bad\r\n\r\n", "InvalidRequest"),
        ("5\r\nhello\r\n0\r\n\r\n", "InvalidRequest"),
        ("5\r\nhello\r\n", "IncompleteBody"),
        ("5\r\nhel", "IncompleteBody"),
        ("4\r\nhell\r\n0\r\nx-amz-checksum-crc32:NhCmhg==\r\n\r\n", "IncompleteBody"),
        ("6\r\nhello!\r\n0\r\nx-amz-checksum-crc32:NhCmhg==\r\n\r\n", "InvalidRequest"),
        ("zz\r\nhello\r\n0\r\n\r\n", "InvalidRequest"),
    ] {
        let got = put_framed(&served, crc32, 5, body).await;
        assert_eq!((got.status, got.code()), (400, code), "{body:?}: {}", got.text);
    }
    assert!(served.open.content("k").is_none(), "nothing was published");

    let got = put_framed(&served, crc32, 5, "5\r\nhello\r\n0\r\nx-amz-checksum-crc32:NhCmhg==\r\n\r\n").await;
    assert_eq!((got.status, got.header(crc32)), (200, "NhCmhg=="));
    let (bytes, info) = served.open.content("k").unwrap();
    assert_eq!(&bytes[..], b"hello");
    assert_eq!(info.headers["content-encoding"], "gzip");
}

#[tokio::test]
async fn an_empty_upload_with_a_wrong_trailer_publishes_nothing() {
    let served = serve().await;
    let got = put_framed(&served, "x-amz-checksum-crc32", 0, "0\r\nx-amz-checksum-crc32:AAAAAQ==\r\n\r\n").await;
    assert_eq!((got.status, got.code()), (400, "BadDigest"));
    assert!(served.open.content("k").is_none());
    let got = put_framed(&served, "x-amz-checksum-crc32", 0, "0\r\nx-amz-checksum-crc32:AAAAAA==\r\n\r\n").await;
    assert_eq!(got.status, 200);
}

#[tokio::test]
async fn one_unsigned_chunk_of_any_size_is_taken_a_signed_one_is_bounded() {
    let served = serve().await;
    let size = 20 * 1024 * 1024;
    let mut body = format!("{size:x}\r\n").into_bytes();
    body.resize(body.len() + size, b'z');
    let crc = base64::Engine::encode(
        &base64::engine::general_purpose::STANDARD,
        crc32c::crc32c(&vec![b'z'; size]).to_be_bytes(),
    );
    body.extend_from_slice(format!("\r\n0\r\nx-amz-checksum-crc32c:{crc}\r\n\r\n").as_bytes());
    let got = put_framed(&served, "x-amz-checksum-crc32c", size as u64, body).await;
    assert_eq!(got.status, 200, "{}", got.text);
    assert_eq!(served.open.content("k").unwrap().0.len(), size);

    let length = size.to_string();
    let headers = [("x-amz-decoded-content-length", length.as_str())];
    let payload = || SignableBody::Precomputed("STREAMING-AWS4-HMAC-SHA256-PAYLOAD".into());
    let head = format!("{size:x};chunk-signature={}\r\nzzzz", "0".repeat(64));
    let got = served.signed("PUT", "/open/l", &headers, payload(), head).await;
    assert_eq!((got.status, got.code()), (400, "EntityTooLarge"));
    // A small one with a wrong signature is refused for that.
    let headers = [("x-amz-decoded-content-length", "4")];
    let body = format!("4;chunk-signature={0}\r\nzzzz\r\n0;chunk-signature={0}\r\n\r\n", "0".repeat(64));
    let got = served.signed("PUT", "/open/l", &headers, payload(), body).await;
    assert_eq!((got.status, got.code()), (403, "SignatureDoesNotMatch"));
    assert!(served.open.content("l").is_none());
}

#[tokio::test]
async fn framing_that_would_not_be_decoded_is_not_stored_as_data() {
    let served = serve().await;
    let body = "5\r\nhello\r\n0\r\n\r\n";
    let headers = [("content-encoding", "aws-chunked")];
    let got = served.signed("PUT", "/open/k", &headers, SignableBody::UnsignedPayload, body).await;
    assert_eq!((got.status, got.code()), (400, "InvalidRequest"));
    assert!(served.open.content("k").is_none());
}

#[tokio::test]
async fn conditions_on_writes_hold() {
    let served = serve().await;
    let client = served.sdk("FULL");
    let put = || client.put_object().bucket("shut").key("k").body(ByteStream::from_static(b"x"));
    let first = put().if_none_match("*").send().await.unwrap();
    assert_eq!(put().if_none_match("*").send().await.unwrap_err().code(), Some("PreconditionFailed"));
    assert_eq!(put().if_match("\"other\"").send().await.unwrap_err().code(), Some("PreconditionFailed"));
    put().if_match(first.e_tag().unwrap()).send().await.unwrap();
    assert_eq!(put().if_none_match("\"tag\"").send().await.unwrap_err().code(), Some("NotImplemented"));
}

#[tokio::test]
async fn slices_cannot_be_written() {
    let served = serve().await;
    served.open.add("k", "text", &[]);
    let put = async |path: &str| served.signed("PUT", path, &[], SignableBody::Bytes(b"x"), "x").await;
    let got = put("/open/data.zarr/%40slice%3D0%3A4.npy").await;
    assert_eq!((got.status, got.code()), (400, "InvalidArgument"));
    let got = put("/open/k?slice=0%3A4").await;
    assert_eq!((got.status, got.code()), (400, "InvalidParameter"));
    let got = served.signed("DELETE", "/open/k?slice=0%3A4", &[], SignableBody::Bytes(b""), "").await;
    assert_eq!((got.status, got.code()), (400, "InvalidParameter"));
    assert_eq!(&served.open.content("k").unwrap().0[..], b"text");
    assert_eq!(put("/open/notes@home.txt").await.status, 200);
}

#[tokio::test]
async fn what_would_not_be_kept_is_refused() {
    let served = serve().await;
    for (name, value) in [
        ("x-amz-acl", "public-read"),
        ("x-amz-server-side-encryption", "AES256"),
        ("x-amz-tagging", "a=b"),
        ("x-amz-storage-class", "GLACIER"),
        ("x-amz-object-lock-mode", "COMPLIANCE"),
    ] {
        let got = served.signed("PUT", "/open/k", &[(name, value)], SignableBody::Bytes(b"x"), "x").await;
        assert_eq!((got.status, got.code()), (501, "NotImplemented"), "{name}");
    }
    let long = "v".repeat(2100);
    let got = served.signed("PUT", "/open/k", &[("x-amz-meta-a", &long)], SignableBody::Bytes(b"x"), "x").await;
    assert_eq!((got.status, got.code()), (400, "MetadataTooLarge"));
}

#[tokio::test]
async fn writes_need_rights_and_a_writable_bucket() {
    let served = serve().await;
    let code = async |who: &str, bucket: &str| {
        let put = served.sdk(who).put_object().bucket(bucket).key("a/k").body(ByteStream::from_static(b"x"));
        put.send().await.err().and_then(|error| error.code().map(str::to_owned)).unwrap_or_default()
    };
    assert_eq!(code("FULL", "open").await, "");
    assert_eq!(code("FULL", "fixed").await, "AccessDenied");
    assert_eq!(code("FULL", "nowhere").await, "NoSuchBucket");
    assert_eq!(code("READER", "open").await, "AccessDenied");
    assert_eq!(code("PART", "shut").await, "AccessDenied");
    assert_eq!(served.send("PUT", "/open/k", &[("content-length", "0")]).await.code(), "AccessDenied");
    assert_eq!(served.send("DELETE", "/open/a/k", &[]).await.code(), "AccessDenied");
}

#[tokio::test]
async fn a_large_upload_that_is_refused_early_learns_why() {
    let served = serve().await;
    let client = served.sdk("FULL");
    for size in [100_000, 5_000_000, 50_000_000] {
        let put = client.put_object().bucket("fixed").key("k").body(ByteStream::from(vec![7; size]));
        let refused = put.send().await.unwrap_err();
        assert_eq!(refused.code(), Some("AccessDenied"), "{size}: {refused:?}");
    }
}

#[tokio::test]
async fn a_refusal_comes_before_the_client_is_asked_for_its_body() {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let served = serve().await;
    let mut connection = tokio::net::TcpStream::connect(served.address).await.unwrap();
    let request = "PUT /shut/k HTTP/1.1\r\nHost: h\r\nContent-Length: 9999\r\nExpect: 100-continue\r\n\r\n";
    connection.write_all(request.as_bytes()).await.unwrap();
    let mut answer = [0; 12];
    connection.read_exact(&mut answer).await.unwrap();
    assert_eq!(&answer, b"HTTP/1.1 403");
}

#[tokio::test]
async fn deleting_succeeds_whether_or_not_the_object_is_there() {
    let served = serve().await;
    served.shut.add("k", "text", &[]);
    let client = served.sdk("FULL");
    for _ in 0..2 {
        client.delete_object().bucket("shut").key("k").send().await.unwrap();
        assert!(served.shut.content("k").is_none());
    }
    let versioned = client.delete_object().bucket("shut").key("k").version_id("v").send().await.unwrap_err();
    assert_eq!(versioned.code(), Some("NotImplemented"));
}
