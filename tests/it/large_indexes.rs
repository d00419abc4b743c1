//! Arrays of a hundred million chunks, and shards whose indexes are larger than what is wanted of them: what a slice
//! costs is bounded by what it touches. Bounds are on requests and bytes, never on time.

use std::collections::BTreeMap;
use std::io::{Seek as _, SeekFrom, Write as _};
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use proptest::prelude::*;
use wicker4dx::model::ByteRange;
use wicker4dx::store::{Fault, Freshness, LocalStore, Store, memory_store};

use crate::served::{put, serve};

/// Bytes of a page of an index without checksum.
const PAGE: u64 = 64 << 10;

/// How an index is stored.
#[derive(Debug, Clone, Copy)]
struct Form {
    crc32c: bool,
    big_endian: bool,
    start: bool,
}

impl Form {
    fn all() -> impl Iterator<Item = Self> {
        (0..8_u8).map(|bits| Self { crc32c: bits & 1 != 0, big_endian: bits & 2 != 0, start: bits & 4 != 0 })
    }

    fn index_bytes(self, entries: u64) -> u64 {
        entries * 16 + if self.crc32c { 4 } else { 0 }
    }
}

/// The metadata of a uint8 array of one axis with fill value 9: objects of `object` elements, then the inner chunks
/// of each level of sharding.
fn metadata(len: u64, object: u64, inner: &[u64], form: Form) -> String {
    let endian = if form.big_endian { "big" } else { "little" };
    let crc32c = if form.crc32c { r#",{"name":"crc32c"}"# } else { "" };
    let location = if form.start { "start" } else { "end" };
    let chain = inner.iter().rev().fold(r#"{"name":"bytes"}"#.to_owned(), |chain, inner| {
        format!(
            r#"{{"name":"sharding_indexed","configuration":{{"chunk_shape":[{inner}],"codecs":[{chain}],
            "index_codecs":[{{"name":"bytes","configuration":{{"endian":"{endian}"}}}}{crc32c}],
            "index_location":"{location}"}}}}"#
        )
    });
    format!(
        r#"{{"zarr_format":3,"node_type":"array","shape":[{len}],"data_type":"uint8",
        "chunk_grid":{{"name":"regular","configuration":{{"chunk_shape":[{object}]}}}},
        "chunk_key_encoding":{{"name":"default"}},"fill_value":9,"codecs":[{chain}]}}"#
    )
}

/// A shard with room for `entries` inner chunks, of which these are stored.
fn shard(form: Form, entries: u64, stored: &BTreeMap<u64, Vec<u8>>) -> Vec<u8> {
    let mut index = vec![0xff; entries as usize * 16];
    let mut data = Vec::new();
    let begin = if form.start { form.index_bytes(entries) } else { 0 };
    for (&entry, bytes) in stored {
        let words = [begin + data.len() as u64, bytes.len() as u64];
        let words = words.map(|n| if form.big_endian { n.to_be_bytes() } else { n.to_le_bytes() });
        index[entry as usize * 16..][..16].copy_from_slice(&words.concat());
        data.extend(bytes);
    }
    if form.crc32c {
        index.extend(crc32c::crc32c(&index).to_le_bytes());
    }
    if form.start { [index, data].concat() } else { [data, index].concat() }
}

/// An array of 10^9 elements in 100 shards of 10^6 chunks of 10. Only shard 3 is stored, and in it a chunk filled with
/// its own number for every `stored`.
async fn put_hundred_million_chunks(store: &dyn Store, form: Form, stored: &[u64]) {
    put(store, "a/zarr.json", metadata(1_000_000_000, 10_000_000, &[10], form)).await;
    let stored = stored.iter().map(|&entry| (entry, vec![entry as u8; 10])).collect();
    put(store, "a/c/3", shard(form, 1_000_000, &stored)).await;
}

#[tokio::test]
async fn an_array_of_a_hundred_million_objects_costs_what_is_touched_of_it() {
    let folder = tempfile::tempdir().unwrap();
    let local: Arc<dyn Store> = Arc::new(LocalStore::open(folder.path().into()).unwrap());
    for inner in [memory_store(), local] {
        let form = Form { crc32c: false, big_endian: false, start: false };
        put(&*inner, "a/zarr.json", metadata(1_000_000_000, 10, &[], form)).await;
        for chunk in [0_u8, 2] {
            put(&*inner, &format!("a/c/{chunk}"), vec![chunk; 10]).await;
        }
        let served = serve(inner, Freshness::For(Duration::from_secs(60)));
        let (answer, cost) = served.cost("a/c/", served.raw("5:25")).await;
        assert_eq!(answer, (200, [vec![0; 5], vec![9; 10], vec![2; 5]].concat()));
        assert!(cost.gets <= 3 && cost.heads <= 3 && cost.bytes < 2000, "{cost:?}");
        let (answer, cost) = served.cost("a/c/", served.raw("999999980:")).await;
        assert_eq!(answer, (200, vec![9; 20]));
        assert!(cost.gets + cost.heads <= 4, "{cost:?}");
        let (description, cost) = served.cost("", served.json(&[("describe", "1")])).await;
        assert_eq!(description["stored_bytes"], 20);
        assert!(cost.lists <= 2 && cost.bytes < 2000, "{cost:?}");
        let (plan, cost) = served.cost("a/c/", served.json(&[("explain", "1"), ("slice", "5:25")])).await;
        assert_eq!(plan["chunks"]["total"], 100_000_000);
        assert_eq!((&plan["chunks"]["touched"], &plan["chunks"]["absent"]), (&3.into(), &1.into()));
        assert!(cost.gets == 0 && cost.bytes < 1000, "{cost:?}");
        // All of it is refused by arithmetic.
        let (failure, cost) = served.cost("a/c/", served.failure(":")).await;
        assert_eq!(failure, (400, "SliceTooLarge".to_owned()));
        assert!(cost.gets + cost.heads == 0 && cost.bytes < 1000, "{cost:?}");
    }
}

#[tokio::test]
async fn a_cold_slice_of_a_large_shard_reads_a_page_of_an_unchecked_index_and_all_of_a_checked_one() {
    for form in Form::all() {
        let inner = memory_store();
        put_hundred_million_chunks(&*inner, form, &[7, 8, 500_000]).await;
        let served = serve(inner, Freshness::For(Duration::from_secs(60)));
        let (answer, cost) = served.cost("a/c/", served.raw("30000065:30000095")).await;
        assert_eq!(answer, (200, [vec![9; 5], vec![7; 10], vec![8; 10], vec![9; 5]].concat()), "{form:?}");
        let index = if form.crc32c { 16_000_004 } else { PAGE };
        // Where an unchecked index ends with its shard, the shard's size must be known before.
        let heads = usize::from(!form.crc32c && !form.start);
        assert_eq!((cost.gets, cost.heads), (2, heads), "{form:?}");
        assert!(cost.bytes < index + 2000, "{form:?} {cost:?}");

        // What lies nearby costs no index any more, and nothing at all where nothing is stored.
        let (answer, cost) = served.cost("", served.raw("30000090:30010000")).await;
        assert_eq!(answer, (200, vec![9; 9910]));
        assert_eq!((cost.gets, cost.heads, cost.bytes), (0, 0, 0), "{form:?}");
        // Another page; one read for the index, one for the chunk.
        let (answer, cost) = served.cost("a/c/", served.raw("34999995:35000005")).await;
        assert_eq!(answer, (200, [vec![9; 5], vec![500_000_u64 as u8; 5]].concat()));
        assert_eq!((cost.gets, cost.heads), (1 + usize::from(!form.crc32c), 0), "{form:?}");
        assert!(cost.bytes <= 2 * PAGE, "{form:?} {cost:?}");

        let (description, cost) = served.cost("", served.json(&[("describe", "1")])).await;
        assert_eq!(description["stored_bytes"], form.index_bytes(1_000_000) + 30);
        assert!(cost.gets == 0 && cost.lists == 1, "{form:?} {cost:?}");
        let query = [("explain", "1"), ("slice", "30000065:30000095")];
        let (plan, cost) = served.cost("", served.json(&query)).await;
        assert_eq!((&plan["chunks"]["total"], &plan["index_reads"]), (&100_000_000.into(), &0.into()));
        assert_eq!((cost.gets, cost.heads), (0, 0), "{form:?}");
    }
}

#[tokio::test]
async fn many_chunks_of_one_index_take_few_reads_of_it() {
    for form in Form::all().filter(|form| !form.crc32c) {
        let inner = memory_store();
        put_hundred_million_chunks(&*inner, form, &[]).await;
        let served = serve(inner, Freshness::For(Duration::from_secs(60)));
        // One element of every fifth chunk: 20,000 chunks in 25 neighbouring pages.
        let ((status, body), cost) = served.cost("a/c/", served.raw("30000000:31000000:50")).await;
        assert_eq!((status, body), (200, vec![9; 20_000]));
        assert!(cost.gets <= 2 && cost.bytes <= 26 * PAGE, "{form:?} {cost:?}");
        // One element of every 50,000th chunk: pages far apart, each by itself, none twice.
        let served = serve(Arc::clone(&served.store) as Arc<dyn Store>, Freshness::For(Duration::from_secs(60)));
        let ((status, body), cost) = served.cost("a/c/", served.raw("30000000:40000000:500000")).await;
        assert_eq!((status, body), (200, vec![9; 20]));
        assert!(cost.gets <= 20 && cost.bytes <= 21 * PAGE, "{form:?} {cost:?}");
        // Of all 245 pages: more than are held at once.
        let served = serve(Arc::clone(&served.store) as Arc<dyn Store>, Freshness::For(Duration::from_secs(60)));
        let ((status, body), cost) = served.cost("a/c/", served.raw("30000000:40000000:4000")).await;
        assert_eq!((status, body), (200, vec![9; 2500]));
        assert!(cost.gets <= 7 && cost.bytes <= 246 * PAGE, "{form:?} {cost:?}");
    }
}

#[tokio::test]
async fn a_small_unchecked_index_is_read_whole_at_the_first_contact() {
    for start in [false, true] {
        let form = Form { crc32c: false, big_endian: false, start };
        let inner = memory_store();
        put(&*inner, "a/zarr.json", metadata(20_000, 20_000, &[1], form)).await;
        put(&*inner, "a/c/0", shard(form, 20_000, &BTreeMap::new())).await;
        let served = serve(inner, Freshness::For(Duration::from_secs(60)));
        let (_, cost) = served.cost("a/c/", served.raw("3")).await;
        assert_eq!((cost.gets, cost.heads), (1, 0));
        let (_, cost) = served.cost("a/c/", served.raw("::1000")).await;
        assert_eq!((cost.gets, cost.heads), (0, 0));
    }
}

#[tokio::test]
async fn beyond_the_freshness_a_head_saves_the_index_that_is_here() {
    for form in Form::all() {
        let inner = memory_store();
        put_hundred_million_chunks(&*inner, form, &[7]).await;
        let served = serve(inner, Freshness::For(Duration::ZERO));
        assert_eq!(served.raw("30000070:30000072").await, (200, vec![7, 7]));
        let (answer, cost) = served.cost("a/c/", served.raw("30000070:30000072")).await;
        assert_eq!(answer, (200, vec![7, 7]));
        assert_eq!((cost.gets, cost.heads), (0, 1), "{form:?}");
        put(&*served.store, "a/c/3", shard(form, 1_000_000, &BTreeMap::from([(7, vec![8; 10])]))).await;
        assert_eq!(served.raw("30000070:30000072").await, (200, vec![8, 8]), "{form:?}");
        served.store.delete("a/c/3").await.unwrap();
        assert_eq!(served.raw("30000070:30000072").await, (200, vec![9, 9]), "{form:?}");
    }
}

#[tokio::test]
async fn a_checked_index_too_long_to_be_verified_is_refused_and_its_array_described() {
    let form = Form { crc32c: true, big_endian: false, start: false };
    let inner = memory_store();
    put(&*inner, "a/zarr.json", metadata(1_000_000_000, 100_000_000, &[10], form)).await;
    let served = serve(inner, Freshness::For(Duration::from_secs(60)));
    let (description, cost) = served.cost("a/c/", served.json(&[("describe", "1")])).await;
    assert_eq!((&description["chunk_shape"][0], &description["stored_bytes"]), (&10.into(), &0.into()));
    let (failure, refused) = served.cost("a/c/", served.failure("5")).await;
    assert_eq!(failure, (501, "NotImplemented".to_owned()));
    assert_eq!(cost.gets + cost.heads + refused.gets + refused.heads, 0);
}

#[tokio::test]
async fn a_hundred_million_chunks_in_one_file_are_read_page_by_page() {
    const ENTRIES: u64 = 100_000_000;
    let folder = tempfile::tempdir().unwrap();
    for start in [false, true] {
        let form = Form { crc32c: false, big_endian: false, start };
        let name = folder.path().join(if start { "s" } else { "e" });
        std::fs::create_dir_all(name.join("a/c")).unwrap();
        std::fs::write(name.join("a/zarr.json"), metadata(ENTRIES * 10, ENTRIES * 10, &[10], form)).unwrap();
        // A file with holes: entries that are not written place their chunks nowhere, at zero.
        let mut file = std::fs::File::create(name.join("a/c/0")).unwrap();
        file.set_len(ENTRIES * 16 + 10).unwrap();
        let (index, data) = if start { (0, ENTRIES * 16) } else { (10, 0) };
        let entry = ENTRIES - 70_000;
        file.seek(SeekFrom::Start(index + entry * 16)).unwrap();
        file.write_all(&[data.to_le_bytes(), 10_u64.to_le_bytes(), [0xff; 8], [0xff; 8]].concat()).unwrap();
        file.seek(SeekFrom::Start(data)).unwrap();
        file.write_all(&[77; 10]).unwrap();
        let served = serve(Arc::new(LocalStore::open(name).unwrap()), Freshness::For(Duration::ZERO));
        let at = entry * 10;
        let (answer, cost) = served.cost("a/c/", served.raw(&format!("{}:{}", at + 5, at + 20))).await;
        assert_eq!(answer, (200, [vec![77; 5], vec![9; 10]].concat()));
        // The file changed a moment ago, so that nothing is kept from stage to stage.
        assert!(cost.gets <= 4 && cost.bytes <= 4 * PAGE, "{cost:?}");
    }
}

#[tokio::test]
async fn however_many_want_a_page_the_store_is_asked_once() {
    for form in Form::all() {
        let inner = memory_store();
        put_hundred_million_chunks(&*inner, form, &[]).await;
        let served = serve(inner, Freshness::For(Duration::from_secs(60)));
        served.store.always("a/", Fault::Latency(Duration::from_millis(20)));
        let slices: Vec<String> = (0..32).map(|i| format!("{}:{}", 30_000_000 + i * 10, 30_000_100 + i * 10)).collect();
        let all = futures::future::join_all(slices.iter().map(|slice| served.raw(slice)));
        let (answers, cost) = served.cost("a/c/", all).await;
        assert!(answers.iter().all(|answer| *answer == (200, vec![9; 100])), "{form:?}");
        assert_eq!(cost.gets, 1, "{form:?} {cost:?}");
        // The next page, in a version that is known.
        let slices: Vec<String> =
            (0..32).map(|i| format!("{}:", 30_041_000 + i)).map(|from| from + "30041100").collect();
        let all = futures::future::join_all(slices.iter().map(|slice| served.raw(slice)));
        let (answers, cost) = served.cost("a/c/", all).await;
        assert!(answers.iter().all(|(status, _)| *status == 200), "{form:?}");
        assert_eq!((cost.gets, cost.heads), (usize::from(!form.crc32c), 0), "{form:?} {cost:?}");
    }
}

#[tokio::test]
async fn a_shard_too_short_for_its_index_is_corrupt() {
    for form in Form::all() {
        for entries in [100, 1_000_000] {
            for len in [0, 1, form.index_bytes(entries) - 1] {
                let inner = memory_store();
                put(&*inner, "a/zarr.json", metadata(entries, entries, &[1], form)).await;
                put(&*inner, "a/c/0", vec![0xff; len as usize]).await;
                let served = serve(inner, Freshness::For(Duration::ZERO));
                let corrupt = (500, "CorruptData".to_owned());
                assert_eq!(served.failure("0").await, corrupt, "{form:?} {entries} {len}");
                let last = (entries - 1).to_string();
                assert_eq!(served.failure(&last).await, corrupt, "{form:?} {entries} {len}, the version known");
            }
        }
    }
}

#[tokio::test]
async fn an_entry_that_leaves_its_shard_is_corrupt_in_its_page_only() {
    for form in Form::all() {
        let inner = memory_store();
        put(&*inner, "a/zarr.json", metadata(10_000, 10_000, &[1], form)).await;
        let mut bytes = shard(form, 10_000, &BTreeMap::from([(9_000, vec![1])]));
        let index = if form.start { 0 } else { bytes.len() - form.index_bytes(10_000) as usize };
        let words = [u64::MAX - 5, 10].map(|n| if form.big_endian { n.to_be_bytes() } else { n.to_le_bytes() });
        bytes[index + 50 * 16..][..16].copy_from_slice(&words.concat());
        if form.crc32c {
            let sum = crc32c::crc32c(&bytes[index..index + 160_000]);
            bytes[index + 160_000..][..4].copy_from_slice(&sum.to_le_bytes());
        }
        put(&*inner, "a/c/0", bytes).await;
        let served = serve(inner, Freshness::For(Duration::from_secs(60)));
        assert_eq!(served.failure("50").await, (500, "CorruptData".to_owned()), "{form:?}");
        assert_eq!(served.raw("9000:9002").await, (200, vec![1, 9]), "{form:?}");
    }
}

#[tokio::test]
async fn a_flipped_bit_in_a_checked_index_is_corrupt_and_not_kept() {
    for start in [false, true] {
        let form = Form { crc32c: true, big_endian: false, start };
        let inner = memory_store();
        // Large enough to be verified on a thread of its own.
        put(&*inner, "a/zarr.json", metadata(100_000, 100_000, &[1], form)).await;
        put(&*inner, "a/c/0", shard(form, 100_000, &BTreeMap::from([(3, vec![5])]))).await;
        let served = serve(inner, Freshness::For(Duration::from_secs(60)));
        served.store.always("a/c/0", Fault::FlipByte(1_000_000));
        assert_eq!(served.failure("3").await, (500, "CorruptData".to_owned()));
        served.store.heal();
        assert_eq!(served.raw("3").await, (200, vec![5]));
    }
}

#[tokio::test]
async fn a_page_that_is_cut_off_is_an_error_and_not_kept() {
    let form = Form { crc32c: false, big_endian: false, start: true };
    let inner = memory_store();
    put_hundred_million_chunks(&*inner, form, &[900_000]).await;
    let served = serve(inner, Freshness::For(Duration::from_secs(60)));
    for slice in ["30000000", "39000000"] {
        served.store.always("a/c/3", Fault::TruncateAfter(100));
        assert_eq!(served.failure(slice).await, (502, "UpstreamError".to_owned()));
        served.store.heal();
        assert_eq!(served.raw(slice).await.0, 200);
    }
    assert_eq!(served.raw("39000000").await, (200, vec![900_000_u64 as u8]));
}

#[tokio::test]
async fn a_shard_that_changes_between_two_pages_is_read_anew_or_refused() {
    for form in Form::all().filter(|form| !form.crc32c) {
        let inner = memory_store();
        put_hundred_million_chunks(&*inner, form, &[0, 900_000]).await;
        let served = serve(inner, Freshness::For(Duration::from_secs(60)));
        assert_eq!(served.raw("30000000").await, (200, vec![0]));
        // Another program writes the shard within the freshness: the page at hand is of a version that is gone.
        let stored = BTreeMap::from([(1, vec![71; 10]), (900_000, vec![72; 10])]);
        put(&*served.store, "a/c/3", shard(form, 1_000_000, &stored)).await;
        let slice = "30000000:39000001:9000000";
        assert_eq!(served.raw(slice).await, (200, vec![9, 72]), "{form:?}: both of the new version");
        assert_eq!(served.raw("30000010").await, (200, vec![71]));
        served.store.always("a/c/3", Fault::Changed);
        let slice = "34000000:38000001:4000000";
        assert_eq!(served.failure(slice).await, (409, "ArrayChanged".to_owned()), "{form:?}");
        served.store.heal();
        assert_eq!(served.raw(slice).await, (200, vec![9, 9]));
    }
}

#[tokio::test]
async fn a_page_read_at_its_version_follows_the_first_of_an_unknown_shard() {
    let form = Form { crc32c: false, big_endian: false, start: true };
    let inner = memory_store();
    put_hundred_million_chunks(&*inner, form, &[]).await;
    let served = serve(inner, Freshness::For(Duration::from_secs(60)));
    served.store.nth("a/c/3", 1, Fault::Changed);
    let (answer, cost) = served.cost("a/c/3", served.raw("30000000:39000001:9000000")).await;
    assert_eq!(answer, (200, vec![9, 9]));
    // Two pages, the second refused; then both again.
    assert!(cost.gets <= 4, "{cost:?}");
    let asked = served.store.calls().into_iter().filter(|call| call.key == "a/c/3").filter_map(|call| call.range);
    assert!(
        asked.into_iter().all(|range| matches!(range, ByteRange::Bounded(range) if range.end - range.start == PAGE))
    );
}

/// The elements of the property's arrays: `None` where their chunk is absent.
fn element(i: u64, chunk: u64) -> Option<u8> {
    (!(i / chunk).is_multiple_of(3)).then(|| (i * 7 + i / 251) as u8)
}

/// A container of `len` elements from `begin` on, for the levels `inner`; `None` when all of it is absent.
fn container(form: Form, begin: u64, len: u64, inner: &[u64]) -> Option<Vec<u8>> {
    let Some((&chunk, deeper)) = inner.split_first() else {
        return (begin..begin + len).map(|i| element(i, len)).collect();
    };
    let stored: BTreeMap<u64, Vec<u8>> = (0..len / chunk)
        .filter_map(|entry| Some((entry, container(form, begin + entry * chunk, chunk, deeper)?)))
        .collect();
    (!stored.is_empty()).then(|| shard(form, len / chunk, &stored))
}

/// A store with an array of 40,000 elements in two shards: chunks of 2 in an index of three pages, or nested shards of
/// one, or of two pages, in an outer one.
async fn stored(form: Form, inner: &[u64]) -> Arc<dyn Store> {
    let store = memory_store();
    put(&*store, "a/zarr.json", metadata(40_000, 20_000, inner, form)).await;
    for object in 0..2 {
        if let Some(bytes) = container(form, object * 20_000, 20_000, inner) {
            put(&*store, &format!("a/c/{object}"), bytes).await;
        }
    }
    store
}

#[test]
fn every_form_of_an_index_gives_what_indexing_the_elements_gives() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let nestings: [&[u64]; 4] = [&[2], &[100, 2], &[10_000, 2], &[2_000, 100, 2]];
    let arrays: Vec<_> = runtime.block_on(async {
        let forms = Form::all().flat_map(|form| nestings.map(|inner| (form, inner)));
        futures::stream::iter(forms)
            .then(|(form, inner)| async move { (form, inner, stored(form, inner).await) })
            .collect()
            .await
    });
    let selection = (0..40_000_u64, 1..2_000_u64, 1..40_u64);
    let cases = (prop::sample::select(arrays), prop::collection::vec(selection, 1..4), any::<bool>());
    proptest!(ProptestConfig::with_cases(96), |((form, inner, store) in cases.0, selections in cases.1, fresh in cases.2)| {
        let freshness = if fresh { Freshness::Immutable } else { Freshness::For(Duration::ZERO) };
        let served = serve(store, freshness);
        for (from, step, count) in selections {
            let positions: Vec<u64> = (0..count).map(|i| from + i * step).take_while(|&i| i < 40_000).collect();
            let to = positions.last().copied().unwrap_or(from) + 1;
            let expected: Vec<u8> = positions.iter().map(|&i| element(i, 2).unwrap_or(9)).collect();
            let answer = runtime.block_on(served.raw(&format!("{from}:{to}:{step}")));
            prop_assert_eq!(answer, (200, expected), "{:?} {:?}", form, inner);
        }
    });
}
