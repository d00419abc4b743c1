//! What every store must do. Starts from an empty store and leaves keys behind.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use futures::{StreamExt, TryStreamExt};
use md5::{Digest, Md5};
use wicker4dx::model::{ByteRange, Version};
use wicker4dx::store::{ObjectStream, PutOptions, Store, StoreError};

use super::{body, put, read};

pub(super) async fn run(store: Arc<dyn Store>) {
    let store = store.as_ref();
    store.ready().await.unwrap();
    absent_is_not_found(store).await;
    bytes_come_back_with_one_version(store).await;
    ranges(store).await;
    ranges_of_an_empty_object(store).await;
    conditions_on_reads(store).await;
    conditions_on_writes(store).await;
    announced_length_and_digest(store).await;
    a_failing_body_stores_nothing(store).await;
    large_objects_stream_whole(store).await;
    odd_keys(store).await;
    deletes(store).await;
}

async fn absent_is_not_found(store: &dyn Store) {
    for key in ["absent", "absent/deeper", "absent/zarr.json"] {
        assert_not_found(store, key).await;
    }
}

async fn assert_not_found(store: &dyn Store, key: &str) {
    assert!(matches!(store.head(key).await, Err(StoreError::NotFound { key: k }) if k == key), "head {key:?}");
    let result = store.get(key, ByteRange::Whole, None).await;
    assert!(matches!(result, Err(StoreError::NotFound { .. })), "get {key:?}: {result:?}");
    let result = store.get(key, ByteRange::Suffix(4), None).await;
    assert!(matches!(result, Err(StoreError::NotFound { .. })), "suffix of {key:?}: {result:?}");
    assert!(matches!(store.stream(key, ByteRange::Whole, None).await, Err(StoreError::NotFound { .. })), "{key:?}");
}

async fn bytes_come_back_with_one_version(store: &dyn Store) {
    let stored = put(store, "dir/object.npy", "first").await;
    let head = store.head("dir/object.npy").await.unwrap();
    let fetched = store.get("dir/object.npy", ByteRange::Whole, None).await.unwrap();
    assert_eq!(fetched.bytes, "first");
    assert_eq!((fetched.start, fetched.info.size), (0, 5));
    assert_eq!(stored.version, head.version);
    assert_eq!(stored.version, fetched.info.version);
    let age = SystemTime::now().duration_since(head.last_modified).unwrap_or_default();
    assert!(age < Duration::from_secs(120), "{age:?}");
    let replaced = put(store, "dir/object.npy", "other").await;
    assert_ne!(replaced.version, stored.version);
    assert_eq!(read(store, "dir/object.npy").await.unwrap(), "other");
    assert_not_found(store, "dir").await;
}

async fn ranges(store: &dyn Store) {
    put(store, "range", "0123456789").await;
    for (range, start, expected) in [
        (ByteRange::Whole, 0, "0123456789"),
        (ByteRange::Bounded(0..10), 0, "0123456789"),
        (ByteRange::Bounded(2..5), 2, "234"),
        (ByteRange::Bounded(9..10), 9, "9"),
        (ByteRange::Bounded(8..1000), 8, "89"),
        (ByteRange::Bounded(4..4), 4, ""),
        (ByteRange::From(7), 7, "789"),
        (ByteRange::From(0), 0, "0123456789"),
        (ByteRange::Suffix(3), 7, "789"),
        (ByteRange::Suffix(10), 0, "0123456789"),
        (ByteRange::Suffix(99), 0, "0123456789"),
        (ByteRange::Suffix(0), 10, ""),
    ] {
        let fetched = store.get("range", range.clone(), None).await.unwrap_or_else(|e| panic!("{range:?}: {e}"));
        assert_eq!((fetched.start, &fetched.bytes[..]), (start, expected.as_bytes()), "get {range:?}");
        assert_eq!(fetched.info.size, 10, "get {range:?}");
        let stream = store.stream("range", range.clone(), None).await.unwrap();
        assert_eq!((stream.start, stream.len, stream.info.size), (start, expected.len() as u64, 10), "{range:?}");
        assert_eq!(collect(stream).await, expected, "stream {range:?}");
    }
    for range in
        [ByteRange::Bounded(10..11), ByteRange::Bounded(10..10), ByteRange::From(10), ByteRange::From(u64::MAX)]
    {
        let error = store.get("range", range.clone(), None).await.unwrap_err();
        assert!(matches!(error, StoreError::RangeNotSatisfiable { size: 10, .. }), "{range:?}: {error:?}");
        assert!(store.stream("range", range, None).await.is_err());
    }
}

async fn ranges_of_an_empty_object(store: &dyn Store) {
    put(store, "empty", "").await;
    for range in [ByteRange::Whole, ByteRange::Suffix(8)] {
        let fetched = store.get("empty", range.clone(), None).await.unwrap_or_else(|e| panic!("{range:?}: {e}"));
        assert_eq!((fetched.start, fetched.info.size, fetched.bytes.len()), (0, 0, 0), "{range:?}");
    }
    for range in [ByteRange::Bounded(0..1), ByteRange::From(0)] {
        let error = store.get("empty", range.clone(), None).await.unwrap_err();
        assert!(matches!(error, StoreError::RangeNotSatisfiable { size: 0, .. }), "{range:?}: {error:?}");
    }
}

async fn conditions_on_reads(store: &dyn Store) {
    let old = put(store, "cond", "old bytes").await.version;
    for range in [ByteRange::Whole, ByteRange::Bounded(1..3), ByteRange::Suffix(2), ByteRange::Suffix(0)] {
        assert!(store.get("cond", range.clone(), Some(&old)).await.is_ok(), "{range:?}");
    }
    put(store, "cond", "new bytes").await;
    for range in [ByteRange::Whole, ByteRange::Bounded(1..3), ByteRange::Suffix(2), ByteRange::Suffix(0)] {
        let result = store.get("cond", range.clone(), Some(&old)).await;
        assert!(matches!(result, Err(StoreError::Changed { .. })), "{range:?}: {result:?}");
        assert!(matches!(store.stream("cond", range, Some(&old)).await, Err(StoreError::Changed { .. })));
    }
    let result = store.get("absent", ByteRange::Whole, Some(&old)).await;
    assert!(matches!(result, Err(StoreError::NotFound { .. } | StoreError::Changed { .. })), "{result:?}");
}

async fn conditions_on_writes(store: &dyn Store) {
    let if_absent = || PutOptions { if_absent: true, ..PutOptions::default() };
    let first = store.put("once", body("1"), if_absent()).await.unwrap();
    let error = store.put("once", body("2"), if_absent()).await.unwrap_err();
    assert!(matches!(error, StoreError::PreconditionFailed { .. }), "{error:?}");
    assert_eq!(read(store, "once").await.unwrap(), "1");

    let if_match = |version: &Version| PutOptions { if_match: Some(version.clone()), ..PutOptions::default() };
    let second = store.put("once", body("3"), if_match(&first.version)).await.unwrap();
    let error = store.put("once", body("4"), if_match(&first.version)).await.unwrap_err();
    assert!(matches!(error, StoreError::PreconditionFailed { .. }), "{error:?}");
    let error = store.put("never", body("5"), if_match(&second.version)).await.unwrap_err();
    assert!(matches!(error, StoreError::PreconditionFailed { .. }), "{error:?}");
    assert_eq!(read(store, "once").await.unwrap(), "3");
    assert_not_found(store, "never").await;
}

async fn announced_length_and_digest(store: &dyn Store) {
    let digest: [u8; 16] = Md5::digest("abcd").into();
    let good = PutOptions { content_length: Some(4), content_md5: Some(digest), ..PutOptions::default() };
    store.put("digest", body("abcd"), good.clone()).await.unwrap();
    for (bytes, options) in [
        ("abcd", PutOptions { content_length: Some(3), ..PutOptions::default() }),
        ("abcd", PutOptions { content_length: Some(5), ..PutOptions::default() }),
        ("abce", good),
    ] {
        let error = store.put("digest", body(bytes), options).await.unwrap_err();
        assert!(matches!(error, StoreError::BadDigest { .. }), "{error:?}");
    }
    assert_eq!(read(store, "digest").await.unwrap(), "abcd");
}

async fn a_failing_body_stores_nothing(store: &dyn Store) {
    let broken = StoreError::RequestBody { reason: "the client went away".into() };
    let pieces = futures::stream::iter([Ok(Bytes::from_static(b"half")), Err(broken)]);
    let error = store.put("half", pieces.boxed(), PutOptions::default()).await.unwrap_err();
    assert!(matches!(error, StoreError::RequestBody { .. }), "{error:?}");
    assert_not_found(store, "half").await;
}

async fn large_objects_stream_whole(store: &dyn Store) {
    // Larger than a part of a multipart upload, not a multiple of any piece, and unlike itself everywhere.
    let bytes: Bytes = (0..17_500_003_u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let pieces: Vec<_> = bytes.chunks(100_000).map(|piece| Ok(bytes.slice_ref(piece))).collect();
    let options = PutOptions { content_md5: Some(Md5::digest(&bytes).into()), ..PutOptions::default() };
    store.put("large", futures::stream::iter(pieces).boxed(), options).await.unwrap();
    let stream = store.stream("large", ByteRange::Whole, None).await.unwrap();
    assert_eq!(stream.len, bytes.len() as u64);
    assert!(collect(stream).await == bytes);
    let stream = store.stream("large", ByteRange::Bounded(999_999..5_000_001), None).await.unwrap();
    assert!(collect(stream).await == bytes.slice(999_999..5_000_001));
    assert!(store.get("large", ByteRange::From(3), None).await.unwrap().bytes == bytes.slice(3..));
}

async fn odd_keys(store: &dyn Store) {
    for key in
        ["with space", "plus+plus", "per%20cent", "ünï/日本", "a&b=c?d", "x#1", "semi;colon", "c/0/1.2", "~", "@slice"]
    {
        put(store, key, key.to_owned()).await;
        assert_eq!(read(store, key).await.unwrap(), key.as_bytes(), "{key}");
        assert_eq!(store.head(key).await.unwrap().size, key.len() as u64, "{key}");
    }
}

async fn deletes(store: &dyn Store) {
    put(store, "gone/a", "a").await;
    put(store, "gone/b", "b").await;
    store.delete("gone/a").await.unwrap();
    assert_not_found(store, "gone/a").await;
    store.delete("gone/a").await.unwrap();
    store.delete("gone").await.unwrap();
    assert_eq!(read(store, "gone/b").await.unwrap(), "b");
}

async fn collect(stream: ObjectStream) -> Bytes {
    stream.body.try_collect::<Vec<_>>().await.unwrap().concat().into()
}
