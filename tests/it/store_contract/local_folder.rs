//! What only a folder can do wrong: links, pipes, other programs writing into it.

use std::fs;
use std::os::unix::fs::symlink;
use std::sync::Arc;
use std::time::Duration;

use futures::{StreamExt, TryStreamExt};
use wicker4dx::model::ByteRange;
use wicker4dx::store::{ListRequest, LocalStore, PutOptions, Store, StoreError};

use super::{body, local, put, read};

async fn listed(store: &dyn Store) -> Vec<String> {
    let request = ListRequest { max_keys: 1000, ..ListRequest::default() };
    store.list(&request).await.unwrap().objects.into_iter().map(|(key, _)| key).collect()
}

async fn is_absent(store: &dyn Store, key: &str) -> bool {
    let answer = tokio::time::timeout(Duration::from_secs(5), store.get(key, ByteRange::Whole, None));
    matches!(answer.await.expect("an answer in time"), Err(StoreError::NotFound { .. }))
}

#[tokio::test]
async fn links_are_followed_only_beneath_the_folder() {
    let outside = tempfile::tempdir().unwrap();
    fs::write(outside.path().join("secret"), b"secret").unwrap();
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("dir")).unwrap();
    fs::write(folder.path().join("dir/file"), b"inside").unwrap();
    let root = folder.path();
    symlink("dir/file", root.join("to-file")).unwrap();
    symlink("../dir", root.join("dir/self")).unwrap();
    symlink("dir", root.join("to-dir")).unwrap();
    symlink(outside.path(), root.join("out")).unwrap();
    symlink(outside.path().join("secret"), root.join("out-file")).unwrap();
    symlink("../../../../../../../etc/passwd", root.join("climb")).unwrap();
    symlink("/proc/self/exe", root.join("magic")).unwrap();
    symlink("loop", root.join("loop")).unwrap();
    let store = local(&folder);
    assert_eq!(read(store.as_ref(), "to-file").await.unwrap(), "inside");
    assert_eq!(read(store.as_ref(), "to-dir/file").await.unwrap(), "inside");
    for key in ["out/secret", "out-file", "climb", "magic", "loop", "../secret", "dir/../dir/file", "out"] {
        assert!(is_absent(store.as_ref(), key).await, "{key}");
    }
    assert_eq!(listed(store.as_ref()).await, ["dir/file", "to-dir/file", "to-file"]);
    let error = store.put("out/new", body("x"), PutOptions::default()).await.unwrap_err();
    assert!(matches!(error, StoreError::InvalidKey { .. }), "{error:?}");
    assert!(!outside.path().join("new").exists());
    store.delete("out/secret").await.unwrap();
    store.delete("out-file").await.unwrap();
    assert!(outside.path().join("secret").exists() && root.join("out-file").is_symlink());
}

#[tokio::test]
async fn pipes_and_sockets_are_no_objects_and_do_not_hang() {
    let folder = tempfile::tempdir().unwrap();
    let made = std::process::Command::new("mkfifo").arg(folder.path().join("pipe")).status().unwrap();
    assert!(made.success());
    let _socket = std::os::unix::net::UnixListener::bind(folder.path().join("socket")).unwrap();
    let store = local(&folder);
    assert!(is_absent(store.as_ref(), "pipe").await);
    assert!(is_absent(store.as_ref(), "socket").await);
    assert!(listed(store.as_ref()).await.is_empty());
    store.delete("pipe").await.unwrap();
    assert!(folder.path().join("pipe").exists());
}

#[tokio::test]
async fn a_key_that_no_path_can_hold_is_absent_and_cannot_be_stored() {
    let folder = tempfile::tempdir().unwrap();
    let store = local(&folder);
    let long = "x".repeat(256);
    for key in ["", "a//b", "/a", "a/", ".", "a/../b", "nul\0", ".w4dx-tmp/x", &long] {
        assert!(is_absent(store.as_ref(), key).await, "{key:?}");
        let error = store.put(key, body("x"), PutOptions::default()).await.unwrap_err();
        assert!(matches!(error, StoreError::InvalidKey { .. }), "{key:?}: {error:?}");
        store.delete(key).await.unwrap();
    }
    put(store.as_ref(), "file", "x").await;
    put(store.as_ref(), "dir/file", "x").await;
    for key in ["file/beneath", "dir"] {
        for if_absent in [false, true] {
            let options = PutOptions { if_absent, ..PutOptions::default() };
            let error = store.put(key, body("x"), options).await.unwrap_err();
            assert!(matches!(error, StoreError::InvalidKey { .. }), "{key}: {error:?}");
        }
    }
    assert_eq!(listed(store.as_ref()).await, ["dir/file", "file"]);
}

#[tokio::test]
async fn a_file_that_grows_or_shrinks_while_it_streams_ends_the_stream_with_an_error() {
    for change in ["append", "truncate", "rewrite"] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("k");
        fs::write(&path, vec![7; 8 << 20]).unwrap();
        let store = local(&folder);
        let mut stream = store.stream("k", ByteRange::Whole, None).await.unwrap();
        let first = stream.body.try_next().await.unwrap().unwrap();
        assert!(first.len() >= 1 << 20, "few large pieces");
        // Past the tick of the file system's clock.
        tokio::time::sleep(Duration::from_millis(30)).await;
        match change {
            "append" => fs::OpenOptions::new().append(true).open(&path).unwrap().set_len(9 << 20).unwrap(),
            "truncate" => fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(1 << 20).unwrap(),
            _ => fs::write(&path, vec![8; 8 << 20]).unwrap(),
        }
        let rest: Vec<_> = stream.body.collect().await;
        assert!(matches!(rest.last(), Some(Err(StoreError::Changed { .. }))), "{change}: {:?}", rest.last());
        assert_eq!(rest.iter().filter(|piece| piece.is_err()).count(), 1, "{change}");
    }
}

#[tokio::test]
async fn a_reader_keeps_the_old_version_while_the_object_is_replaced_or_removed() {
    let folder = tempfile::tempdir().unwrap();
    let store = local(&folder);
    for remove in [false, true] {
        put(store.as_ref(), "k", vec![1; 8 << 20]).await;
        let stream = store.stream("k", ByteRange::Whole, None).await.unwrap();
        tokio::time::sleep(Duration::from_millis(30)).await;
        if remove {
            store.delete("k").await.unwrap();
        } else {
            put(store.as_ref(), "k", vec![2; 8 << 20]).await;
        }
        let bytes = stream.body.try_collect::<Vec<_>>().await.unwrap().concat();
        assert!(bytes.len() == 8 << 20 && bytes.iter().all(|byte| *byte == 1), "remove: {remove}");
    }
}

#[tokio::test]
async fn a_write_by_another_program_gives_another_version() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("k");
    fs::write(&path, b"aaaa").unwrap();
    let store = local(&folder);
    let before = store.head("k").await.unwrap();
    assert_eq!(before.version, store.head("k").await.unwrap().version);
    tokio::time::sleep(Duration::from_millis(30)).await;
    fs::write(&path, b"bbbb").unwrap();
    let result = store.get("k", ByteRange::Whole, Some(&before.version)).await;
    assert!(matches!(result, Err(StoreError::Changed { .. })), "{result:?}");
    // A tool that keeps the time of the last write still moves ctime.
    let changed = store.head("k").await.unwrap();
    tokio::time::sleep(Duration::from_millis(30)).await;
    fs::write(&path, b"cccc").unwrap();
    fs::File::options().write(true).open(&path).unwrap().set_modified(changed.last_modified).unwrap();
    assert_eq!(store.head("k").await.unwrap().last_modified, changed.last_modified);
    assert_ne!(store.head("k").await.unwrap().version, changed.version);
}

#[tokio::test]
async fn removing_the_last_object_of_a_folder_removes_the_folder() {
    let folder = tempfile::tempdir().unwrap();
    let store = local(&folder);
    put(store.as_ref(), "a/b/c/one", "x").await;
    put(store.as_ref(), "a/two", "x").await;
    store.delete("a/b/c/one").await.unwrap();
    assert!(!folder.path().join("a/b").exists() && folder.path().join("a/two").exists());
    store.delete("a/two").await.unwrap();
    assert!(!folder.path().join("a").exists() && folder.path().exists());
    put(store.as_ref(), "a", "now a file").await;
}

#[tokio::test]
async fn uploads_that_end_early_leave_nothing_behind() {
    let folder = tempfile::tempdir().unwrap();
    let store = local(&folder);
    let endless = futures::stream::iter([Ok("half".into())]).chain(futures::stream::pending()).boxed();
    let upload = store.put("k", endless, PutOptions::default());
    assert!(tokio::time::timeout(Duration::from_millis(200), upload).await.is_err());
    let uploads = folder.path().join(".w4dx-tmp");
    for _ in 0..100 {
        if fs::read_dir(&uploads).unwrap().next().is_none() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert!(fs::read_dir(&uploads).unwrap().next().is_none());
    assert!(listed(store.as_ref()).await.is_empty());
    fs::write(uploads.join("left-by-a-killed-process"), b"x").unwrap();
    let _again = local(&folder);
    assert!(fs::read_dir(&uploads).unwrap().next().is_none());
}

#[tokio::test]
async fn opening_again_does_not_take_away_an_upload_under_way() {
    let folder = tempfile::tempdir().unwrap();
    let store = local(&folder);
    let (send, receive) = tokio::sync::mpsc::channel::<Result<bytes::Bytes, StoreError>>(1);
    let pieces = futures::stream::unfold(receive, |mut receive| async { Some((receive.recv().await?, receive)) });
    let task = {
        let store = Arc::clone(&store);
        tokio::spawn(async move { store.put("k", pieces.boxed(), PutOptions::default()).await })
    };
    send.send(Ok(vec![1; 2 << 20].into())).await.unwrap();
    let uploads = folder.path().join(".w4dx-tmp");
    while !uploads.exists() || fs::read_dir(&uploads).unwrap().next().is_none() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let _again = local(&folder);
    drop(send);
    task.await.unwrap().unwrap();
    assert_eq!(store.head("k").await.unwrap().size, 2 << 20);
}

#[tokio::test]
async fn a_folder_that_is_not_there_is_one_clear_line() {
    let folder = tempfile::tempdir().unwrap();
    let error = LocalStore::open(folder.path().join("none")).unwrap_err().to_string();
    assert!(error.contains("none") && error.contains("does not exist") && !error.contains('\n'), "{error}");
    fs::write(folder.path().join("file"), b"x").unwrap();
    let error = LocalStore::open(folder.path().join("file")).unwrap_err().to_string();
    assert!(error.contains("is not a folder"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn of_many_conditional_writes_at_once_one_wins() {
    let folder = tempfile::tempdir().unwrap();
    let store = local(&folder);
    for round in 0..10 {
        let version = match round % 2 {
            0 => None,
            _ => Some(put(store.as_ref(), "old", "x").await.version),
        };
        let key = if version.is_some() { "old".to_owned() } else { format!("new-{round}") };
        let tasks: Vec<_> = (0..16)
            .map(|i| {
                let options =
                    PutOptions { if_absent: version.is_none(), if_match: version.clone(), ..PutOptions::default() };
                let (store, key) = (Arc::clone(&store), key.clone());
                tokio::spawn(async move { store.put(&key, body(format!("{i}")), options).await.is_ok() })
            })
            .collect();
        let won = futures::future::join_all(tasks).await.into_iter().filter(|won| *won.as_ref().unwrap()).count();
        assert_eq!(won, 1, "round {round}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn writes_survive_deletes_that_prune_their_folder() {
    let folder = tempfile::tempdir().unwrap();
    let store = local(&folder);
    let churn = {
        let store = Arc::clone(&store);
        tokio::spawn(async move {
            for _ in 0..200 {
                put(store.as_ref(), "a/b/churn", "x").await;
                store.delete("a/b/churn").await.unwrap();
            }
        })
    };
    for i in 0..200 {
        let key = format!("a/b/{i}");
        put(store.as_ref(), &key, "x").await;
        store.delete(&key).await.unwrap();
    }
    churn.await.unwrap();
    assert!(listed(store.as_ref()).await.is_empty());
}
