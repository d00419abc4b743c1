//! Listings of keys and buckets.

use aws_sdk_s3::error::ProvideErrorMetadata as _;
use aws_sdk_s3::types::EncodingType;

use crate::s3_support::serve;

/// In key order.
const KEYS: [&str; 8] = ["a b", "a%2Fb", "a+b", "a/1", "a/2/3", "a/2/4", "b", "é&<"];

#[tokio::test]
async fn pages_hold_every_key_once_and_in_order() {
    let served = serve().await;
    for key in KEYS {
        served.shut.add(key, "x", &[]);
    }
    let client = served.sdk("FULL");
    for max_keys in [1, 3, 1000] {
        let mut pages = client.list_objects_v2().bucket("shut").max_keys(max_keys).into_paginator().send();
        let (mut keys, mut token) = (Vec::new(), None);
        while let Some(page) = pages.next().await {
            let page = page.unwrap();
            assert_eq!(page.continuation_token(), token.as_deref());
            assert_eq!(page.key_count(), Some(page.contents().len() as i32));
            assert_eq!(page.is_truncated(), Some(page.next_continuation_token().is_some()));
            token = page.next_continuation_token().map(str::to_owned);
            keys.extend(page.contents().iter().map(|object| object.key().unwrap().to_owned()));
        }
        assert_eq!(keys, KEYS, "by {max_keys}");
        // Version 1 goes on from the last key.
        let (mut keys, mut marker) = (Vec::new(), String::new());
        loop {
            let page = client.list_objects().bucket("shut").max_keys(max_keys).marker(&marker).send().await.unwrap();
            keys.extend(page.contents().iter().map(|object| object.key().unwrap().to_owned()));
            if page.is_truncated() != Some(true) {
                break;
            }
            marker = keys.last().unwrap().clone();
        }
        assert_eq!(keys, KEYS, "version 1 by {max_keys}");
    }
}

#[tokio::test]
async fn common_prefixes_count_as_keys_and_are_passed_over_as_one() {
    let served = serve().await;
    for key in KEYS {
        served.shut.add(key, "x", &[]);
    }
    let client = served.sdk("FULL");
    let list = || client.list_objects_v2().bucket("shut").prefix("a").delimiter("/");
    let all = list().send().await.unwrap();
    let prefixes: Vec<_> = all.common_prefixes().iter().map(|prefix| prefix.prefix().unwrap()).collect();
    assert_eq!((prefixes, all.contents().len(), all.key_count()), (vec!["a/"], 3, Some(4)));
    assert_eq!((all.delimiter(), all.prefix(), all.max_keys()), (Some("/"), Some("a"), Some(1000)));
    let first = list().max_keys(4).send().await.unwrap();
    assert_eq!(first.is_truncated(), Some(false));
    let first = list().start_after("a%2Fb").max_keys(2).send().await.unwrap();
    assert_eq!(first.common_prefixes().len() + first.contents().len(), 2);
    let v1 = client.list_objects().bucket("shut").delimiter("/").marker("a+b").max_keys(1).send().await.unwrap();
    assert_eq!(v1.next_marker(), Some("a/"));
    let v1 = client.list_objects().bucket("shut").delimiter("/").marker("a/").send().await.unwrap();
    assert_eq!((v1.contents().len(), v1.common_prefixes().len(), v1.next_marker()), (2, 0, None));
}

#[tokio::test]
async fn encoded_names_decode_to_the_keys() {
    let served = serve().await;
    for key in KEYS {
        served.shut.add(key, "x", &[]);
    }
    let list = served.sdk("FULL").list_objects_v2().bucket("shut").prefix("a").encoding_type(EncodingType::Url);
    let page = list.send().await.unwrap();
    assert_eq!(page.encoding_type(), Some(&EncodingType::Url));
    let keys: Vec<_> = page.contents().iter().map(|object| object.key().unwrap()).collect();
    assert_eq!(keys, ["a%20b", "a%252Fb", "a%2Bb", "a/1", "a/2/3", "a/2/4"]);
}

#[tokio::test]
async fn owner_date_and_etag_are_those_of_the_object() {
    let served = serve().await;
    served.shut.add("k", "x", &[]);
    let client = served.sdk("FULL");
    let page = client.list_objects_v2().bucket("shut").send().await.unwrap();
    let object = &page.contents()[0];
    let etag = served.shut.content("k").unwrap().1.version;
    assert_eq!(object.e_tag(), Some(&*format!("\"{etag}\"")));
    assert_eq!((object.size(), object.last_modified().unwrap().secs()), (Some(1), 1_796_119_200));
    assert!(object.owner().is_none());
    let page = client.list_objects_v2().bucket("shut").fetch_owner(true).send().await.unwrap();
    assert!(page.contents()[0].owner().is_some());
}

#[tokio::test]
async fn odd_parameters_are_clamped_or_refused() {
    let served = serve().await;
    served.open.add("k", "x", &[]);
    served.open.add("l", "x", &[]);
    let check = async |query: &str, status: u16, code: &str| {
        let got = served.get(&format!("/open?{query}"), &[]).await;
        assert_eq!((got.status, got.code()), (status, code), "{query}: {}", got.text);
        got.text
    };
    let none = check("list-type=2&max-keys=0", 200, "-").await;
    assert!(none.contains("<KeyCount>0</KeyCount>") && none.contains("<IsTruncated>false</IsTruncated>"), "{none}");
    let many = check("list-type=2&max-keys=5000", 200, "-").await;
    assert!(many.contains("<MaxKeys>1000</MaxKeys>") && many.contains("<KeyCount>2</KeyCount>"), "{many}");
    check("list-type=2&max-keys=-1", 400, "InvalidArgument").await;
    check("list-type=2&max-keys=x", 400, "InvalidArgument").await;
    check("list-type=2&encoding-type=base64", 400, "InvalidArgument").await;
    check("list-type=2&continuation-token=nonsense", 400, "InvalidArgument").await;
    let plain = check("list-type=2&delimiter=", 200, "-").await;
    assert!(plain.contains("<KeyCount>2</KeyCount>"), "{plain}");
    // A token goes on with its own listing only.
    let page = check("list-type=2&max-keys=1", 200, "-").await;
    let token = page.split_once("<NextContinuationToken>").unwrap().1.split_once('<').unwrap().0;
    check(&format!("list-type=2&continuation-token={token}"), 200, "-").await;
    check(&format!("list-type=2&prefix=k&continuation-token={token}"), 400, "InvalidArgument").await;
}

#[tokio::test]
async fn listing_needs_rights_on_all_that_it_would_show() {
    let served = serve().await;
    served.shut.add("a/k", "x", &[]);
    let part = served.sdk("PART");
    let code = async |prefix: &str| match part.list_objects_v2().bucket("shut").prefix(prefix).send().await {
        Ok(page) => page.contents().len().to_string(),
        Err(error) => error.code().unwrap_or_default().to_owned(),
    };
    assert_eq!(code("a/").await, "1");
    assert_eq!(code("").await, "AccessDenied");
    assert_eq!(code("b").await, "AccessDenied");
    assert_eq!(served.get("/shut?list-type=2", &[]).await.code(), "AccessDenied");
    assert_eq!(served.get("/nowhere?list-type=2", &[]).await.code(), "AccessDenied");
    assert_eq!(served.get("/open?list-type=2", &[]).await.status, 200);
}

#[tokio::test]
async fn buckets_are_shown_to_who_has_a_right_in_them() {
    let served = serve().await;
    let names = async |who: &str| {
        let buckets = served.sdk(who).list_buckets().send().await.unwrap();
        buckets.buckets().iter().map(|bucket| bucket.name().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(names("FULL").await, ["fixed", "open", "shut"]);
    assert_eq!(names("PART").await, ["open", "shut"]);
    let anyone = served.get("/", &[]).await;
    assert!(anyone.text.contains("<Name>open</Name>") && !anyone.text.contains("shut"), "{}", anyone.text);
    let page = served.sdk("FULL").list_buckets().max_buckets(2).send().await.unwrap();
    let next = served.sdk("FULL").list_buckets().continuation_token(page.continuation_token().unwrap());
    assert_eq!(next.send().await.unwrap().buckets()[0].name(), Some("shut"));
    for (path, status) in [("/open", 200), ("/shut", 403), ("/nowhere", 403)] {
        assert_eq!(served.send("HEAD", path, &[]).await.status, status, "{path}");
    }
    let client = served.sdk("FULL");
    client.head_bucket().bucket("shut").send().await.unwrap();
    client.get_bucket_location().bucket("shut").send().await.unwrap();
    let missing = client.get_bucket_location().bucket("nowhere").send().await.unwrap_err();
    assert_eq!(missing.code(), Some("NoSuchBucket"));
}
