//! Listings equal those of an ordered map.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use proptest::prelude::*;
use wicker4dx::store::{ListRequest, Store, memory_store};

use super::{local, put};

/// Page after page until the end: entries in order, common prefixes marked.
async fn walk(store: &dyn Store, first: &ListRequest) -> Vec<(String, bool)> {
    let mut request = first.clone();
    let mut entries = Vec::new();
    loop {
        let page = store.list(&request).await.unwrap();
        assert!(page.objects.len() + page.prefixes.len() <= request.max_keys, "{request:?}");
        assert!(page.objects.is_sorted_by(|a, b| a.0 < b.0) && page.prefixes.is_sorted_by(|a, b| a < b));
        let mut these: Vec<_> = page.objects.into_iter().map(|(key, _)| (key, false)).collect();
        these.extend(page.prefixes.into_iter().map(|prefix| (prefix, true)));
        these.sort();
        if let Some(next) = &page.next {
            assert_eq!(these.last().map(|entry| &entry.0), Some(next), "{request:?}");
            assert_eq!(these.len(), request.max_keys, "a page that is not the last is full: {request:?}");
        }
        entries.extend(these);
        match page.next {
            Some(next) => {
                assert!(request.start_after.as_ref() < Some(&next), "no progress after {request:?}");
                request.start_after = Some(next);
            }
            None => return entries,
        }
    }
}

fn oracle(keys: &BTreeSet<String>, request: &ListRequest) -> Vec<(String, bool)> {
    let mut entries = BTreeMap::new();
    for key in keys {
        let Some(rest) = key.strip_prefix(&request.prefix) else { continue };
        let common = request.delimiter.as_deref().and_then(|delimiter| {
            rest.find(delimiter).map(|at| format!("{}{}", request.prefix, &rest[..at + delimiter.len()]))
        });
        let is_common = common.is_some();
        entries.insert(common.unwrap_or_else(|| key.clone()), is_common);
    }
    let after = request.start_after.as_deref();
    entries.into_iter().filter(|(name, _)| after.is_none_or(|after| name.as_str() > after)).collect()
}

fn segment() -> impl Strategy<Value = String> {
    prop_oneof![Just("a"), Just("b"), Just("ab"), Just("a.b"), Just("a-"), Just("a0"), Just("é"), Just("c d")]
        .prop_map(str::to_owned)
}

/// Keys that can be files together: none is a folder of another.
fn keys() -> impl Strategy<Value = BTreeSet<String>> {
    let key = prop::collection::vec(segment(), 1..4).prop_map(|segments| segments.join("/"));
    prop::collection::btree_set(key, 0..14).prop_map(|keys| {
        let is_folder = |key: &String| keys.iter().any(|other| other.starts_with(&format!("{key}/")));
        keys.iter().filter(|key| !is_folder(key)).cloned().collect()
    })
}

fn text() -> impl Strategy<Value = String> {
    prop_oneof![
        Just(String::new()),
        "[ab./0-]{1,4}",
        prop::collection::vec(segment(), 1..3).prop_map(|segments| segments.join("/")),
        prop::collection::vec(segment(), 1..3).prop_map(|segments| segments.join("/") + "/"),
    ]
}

fn requests() -> impl Strategy<Value = ListRequest> {
    let delimiter = prop_oneof![
        3 => Just(None),
        4 => Just(Some("/")),
        1 => Just(Some("a")),
        1 => Just(Some("/a")),
        1 => Just(Some(".")),
    ];
    (text(), delimiter, prop::option::of(text()), 1_usize..6).prop_map(|(prefix, delimiter, start_after, max_keys)| {
        ListRequest { prefix, delimiter: delimiter.map(str::to_owned), start_after, max_keys }
    })
}

fn check(runtime: &tokio::runtime::Runtime, store: Arc<dyn Store>, keys: &BTreeSet<String>, requests: &[ListRequest]) {
    runtime.block_on(async {
        for key in keys {
            put(store.as_ref(), key, "x").await;
        }
        for request in requests {
            assert_eq!(walk(store.as_ref(), request).await, oracle(keys, request), "{request:?} on {keys:?}");
        }
    });
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_listing_equals_that_of_an_ordered_map(keys in keys(), requests in prop::collection::vec(requests(), 12)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        check(&runtime, memory_store(), &keys, &requests);
        let folder = tempfile::tempdir().unwrap();
        check(&runtime, local(&folder), &keys, &requests);
        let folder = tempfile::tempdir().unwrap();
        let part = wicker4dx::store::Prefixed::new(local(&folder), "a");
        check(&runtime, Arc::new(part), &keys, &requests);
    }
}

#[tokio::test]
async fn a_folder_of_many_files_is_listed_page_by_page() {
    let folder = tempfile::tempdir().unwrap();
    let mut keys = BTreeSet::new();
    for i in 0..2500 {
        let key = format!("big/{i}");
        std::fs::create_dir_all(folder.path().join("big")).unwrap();
        std::fs::write(folder.path().join(&key), b"x").unwrap();
        keys.insert(key);
    }
    std::fs::create_dir_all(folder.path().join("big/empty/deeper")).unwrap();
    let store = local(&folder);
    for (delimiter, max_keys) in [(None, 7), (Some("/"), 1000), (None, 3000)] {
        let delimiter = delimiter.map(str::to_owned);
        let request = ListRequest { prefix: "big/".into(), delimiter, start_after: None, max_keys };
        assert_eq!(walk(store.as_ref(), &request).await, oracle(&keys, &request), "{request:?}");
    }
    let none = ListRequest { max_keys: 0, ..ListRequest::default() };
    let page = store.list(&none).await.unwrap();
    assert!(page.objects.is_empty() && page.next.is_none());
}

#[tokio::test]
async fn s3_upstream_lists_as_an_ordered_map() {
    let store = super::upstream::store("listing/").await;
    let keys: BTreeSet<String> =
        ["a.b", "a/b", "a/c/d", "a0", "b c", "b+c", "é/x", "z/1", "z/2", "z/3/4"].map(str::to_owned).into();
    for key in &keys {
        put(store.as_ref(), key, "x").await;
    }
    for prefix in ["", "a", "a/", "z/", "none"] {
        for delimiter in [None, Some("/"), Some("b")] {
            for start_after in [None, Some("a/b"), Some("a/"), Some("b+c"), Some("z/2")] {
                for max_keys in [1, 2, 3, 100] {
                    let request = ListRequest {
                        prefix: prefix.into(),
                        delimiter: delimiter.map(str::to_owned),
                        start_after: start_after.map(str::to_owned),
                        max_keys,
                    };
                    assert_eq!(walk(store.as_ref(), &request).await, oracle(&keys, &request), "{request:?}");
                }
            }
        }
    }
}
