//! One contract, run against memory, folders, and a real S3 store.
//!
//! The S3 tests want `W4DX_TEST_S3_ENDPOINT`, `W4DX_TEST_S3_BUCKET`, `W4DX_TEST_S3_ACCESS_KEY` and `W4DX_TEST_S3_SECRET_KEY`; their
//! names begin with `s3_upstream_`, so a run without such a store leaves them out by name, never silently.

mod listing;
mod local_folder;
mod suite;
mod upstream;

use std::sync::Arc;

use bytes::Bytes;
use futures::StreamExt;
use wicker4dx::store::{LocalStore, ObjectInfo, PutOptions, Store, StoreError, UploadStream, memory_store};

/// A body in one piece.
fn body(bytes: impl Into<Bytes>) -> UploadStream {
    futures::stream::iter([Ok(bytes.into())]).boxed()
}

async fn put(store: &dyn Store, key: &str, bytes: impl Into<Bytes>) -> ObjectInfo {
    store.put(key, body(bytes), PutOptions::default()).await.unwrap_or_else(|error| panic!("put {key}: {error}"))
}

async fn read(store: &dyn Store, key: &str) -> Result<Bytes, StoreError> {
    Ok(store.get(key, wicker4dx::model::ByteRange::Whole, None).await?.bytes)
}

fn local(folder: &tempfile::TempDir) -> Arc<dyn Store> {
    Arc::new(LocalStore::open(folder.path().into()).unwrap())
}

#[tokio::test]
async fn memory_keeps_the_contract() {
    suite::run(memory_store()).await;
}

#[tokio::test]
async fn a_folder_keeps_the_contract() {
    let folder = tempfile::tempdir().unwrap();
    suite::run(local(&folder)).await;
}

#[tokio::test]
async fn a_prefix_of_a_folder_keeps_the_contract() {
    let folder = tempfile::tempdir().unwrap();
    suite::run(Arc::new(wicker4dx::store::Prefixed::new(local(&folder), "some/where"))).await;
}

#[tokio::test]
async fn s3_upstream_keeps_the_contract() {
    suite::run(upstream::store("contract/").await).await;
}
