//! What lay between wanted chunks is kept as it was stored, and found by who wants it next.

use wicker4dx::http::GatewaySettings;
use wicker4dx::store::{Fault, Freshness, Store, memory_store};

use crate::served::{Served, put, serve_with};

/// A shard of four chunks of ten elements, chunk n filled with `first` + n, each followed by its checksum.
async fn put_array(store: &dyn Store, first: u8) {
    let metadata = r#"{"zarr_format":3,"node_type":"array","shape":[40],"data_type":"uint8",
        "chunk_grid":{"name":"regular","configuration":{"chunk_shape":[40]}},
        "chunk_key_encoding":{"name":"default"},"fill_value":9,"codecs":[{"name":"sharding_indexed","configuration":{
            "chunk_shape":[10],"codecs":[{"name":"bytes"},{"name":"crc32c"}],"index_codecs":[{"name":"bytes",
            "configuration":{"endian":"little"}},{"name":"crc32c"}],"index_location":"end"}}]}"#;
    let (mut shard, mut index) = (Vec::new(), Vec::new());
    for n in 0..4_u8 {
        let chunk = [first + n; 10];
        index.extend([shard.len() as u64, 14].into_iter().flat_map(u64::to_le_bytes));
        shard.extend(chunk);
        shard.extend(crc32c::crc32c(&chunk).to_le_bytes());
    }
    index.extend(crc32c::crc32c(&index).to_le_bytes());
    put(store, "a/c/0", [shard, index].concat()).await;
    put(store, "a/zarr.json", metadata).await;
}

async fn served() -> Served {
    let store = memory_store();
    put_array(store.as_ref(), 1).await;
    let served = serve_with(store, Freshness::Immutable, &GatewaySettings::default());
    // Metadata and the shard's index, which take no part here.
    assert_eq!(served.raw("0:0").await.0, 200);
    assert_eq!(served.raw("15").await, (200, vec![2]));
    served
}

#[tokio::test]
async fn a_chunk_that_was_read_through_is_not_read_again() {
    let served = served().await;
    // Chunks 0 and 3: the hole between them is shorter than any gap, and chunk 1 is decoded already.
    let (answer, cost) = served.cost("a/c/0", served.raw("(0,39)")).await;
    assert_eq!((answer, cost.gets), ((200, vec![1, 4]), 1));
    let decoded = served.counter("w4dx_chunks_decoded_total");
    let (answer, cost) = served.cost("a/c/0", served.raw("20:30")).await;
    assert_eq!((answer, cost.gets, cost.bytes), ((200, vec![3; 10]), 0, 0));
    assert_eq!(served.counter("w4dx_recent_hits_total"), 1);
    assert_eq!(served.counter("w4dx_chunks_decoded_total"), decoded + 1, "nothing is decoded unasked");
    // From here on it is a decoded chunk as any.
    assert_eq!(served.cost("a/c/0", served.raw("20:30")).await.1.gets, 0);
    assert_eq!(served.counter("w4dx_recent_hits_total"), 1);
}

#[tokio::test]
async fn bytes_that_broke_on_their_way_are_read_again() {
    let served = served().await;
    served.store.next("a/c/0", 1, Fault::FlipByte(30));
    assert_eq!(served.raw("(0,39)").await, (200, vec![1, 4]));
    let (answer, cost) = served.cost("a/c/0", served.raw("20:30")).await;
    assert_eq!((answer, cost.gets), ((200, vec![3; 10]), 1));
}

#[tokio::test]
async fn bytes_of_one_version_are_not_those_of_another() {
    let store = memory_store();
    put_array(store.as_ref(), 1).await;
    let served = serve_with(store, Freshness::For(std::time::Duration::ZERO), &GatewaySettings::default());
    assert_eq!(served.raw("(0,39)").await, (200, vec![1, 4]));
    put_array(served.store.as_ref(), 101).await;
    assert_eq!(served.raw("20:30").await, (200, vec![103; 10]));
}

#[tokio::test]
async fn a_gateway_that_keeps_nothing_keeps_no_bytes() {
    let store = memory_store();
    put_array(store.as_ref(), 1).await;
    let settings = GatewaySettings { cache_bytes: 0, ..GatewaySettings::default() };
    let served = serve_with(store, Freshness::Immutable, &settings);
    assert_eq!(served.raw("(0,39)").await, (200, vec![1, 4]));
    assert_eq!(served.cost("a/c/0", served.raw("20:30")).await.1.gets, 1);
    assert_eq!(served.counter("w4dx_recent_bytes"), 0);
}
