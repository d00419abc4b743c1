use std::collections::BTreeMap;
use std::fs;

use zarrs::array::Array;
use zarrs::filesystem::FilesystemStore;

use super::*;

const SMALL: Size = Size { samples: 2, frames: 4, height: 64, width: 64 };

/// Every file beneath `folder` by its relative path.
fn files(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    let mut folders = vec![folder.to_path_buf()];
    while let Some(next) = folders.pop() {
        for path in fs::read_dir(next).expect("a folder").map(|entry| entry.expect("an entry").path()) {
            if path.is_dir() {
                folders.push(path);
            } else {
                let content = fs::read(&path).expect("a file");
                found.insert(path.strip_prefix(folder).expect("beneath").to_path_buf(), content);
            }
        }
    }
    found
}

fn open(bucket: &Path, name: &str) -> Array<FilesystemStore> {
    let store = FilesystemStore::new(bucket.join("clips.zarr")).expect("a store");
    Array::open(store.into(), &format!("/{name}")).expect("an array")
}

#[test]
fn two_buckets_are_equal_byte_for_byte() {
    let (one, two) = (tempfile::tempdir().expect("a folder"), tempfile::tempdir().expect("a folder"));
    for data in [&one, &two] {
        assert!(ensure_size(data.path(), &SMALL, true).expect("written"));
    }
    let content = files(&one.path().join(BUCKET));
    assert!(content.keys().any(|path| path.starts_with("clips.zarr/video/c/1")));
    assert!(content == files(&two.path().join(BUCKET)));
}

#[test]
fn arrays_have_the_shapes_dimensions_and_rates_that_are_promised() {
    let data = tempfile::tempdir().expect("a folder");
    ensure_size(data.path(), &SMALL, true).expect("written");
    let bucket = data.path().join(BUCKET);
    let check = |name: &str, shape: &[u64], dims: &[&str]| {
        let array = open(&bucket, name);
        assert_eq!(array.shape(), shape, "{name}");
        let names: Vec<_> = array.dimension_names().iter().flatten().flatten().map(String::as_str).collect();
        assert_eq!(names, dims, "{name}");
        array.attributes().clone()
    };
    let points = (cloud::count(0) + cloud::count(1)) as u64;
    let tokens = (clip::Clip::new(0, 4).caption() + &clip::Clip::new(1, 4).caption()).len() as u64;
    assert_eq!(check("video", &[2, 4, 64, 64, 3], &["sample", "time", "y", "x", "channel"])["fps"], 25);
    assert_eq!(check("audio", &[2, 2560], &["sample", "time"])["sample_rate"], 16_000);
    assert_eq!(check("points", &[points, 4], &["point", "column"])["units"], "m");
    assert_eq!(check("tokens", &[tokens], &["token"])["ragged"]["index"], "tokens_offsets");
    check("points_offsets", &[3], &["offset"]);
    check("tokens_offsets", &[3], &["offset"]);
    check("label", &[2], &["sample"]);
}

/// zarr-python 3.1.6 does not know the short form of a codec, a name alone.
#[test]
fn codecs_are_written_in_the_form_that_every_reader_knows() {
    let data = tempfile::tempdir().expect("a folder");
    ensure_size(data.path(), &SMALL, true).expect("written");
    for name in ["video", "audio", "tokens", "tokens_offsets", "points", "points_offsets", "label"] {
        let path = data.path().join(BUCKET).join("clips.zarr").join(name).join("zarr.json");
        let document: serde_json::Value = serde_json::from_slice(&fs::read(path).expect("a file")).expect("JSON");
        let inner = &document["codecs"][0]["configuration"];
        let chains = [&document["codecs"], &inner["codecs"], &inner["index_codecs"]];
        let codecs: Vec<_> = chains.into_iter().filter_map(|chain| chain.as_array()).flatten().collect();
        assert!(!codecs.is_empty() && codecs.iter().all(|codec| codec.is_object()), "{name}: {codecs:?}");
    }
}

#[test]
fn stored_values_are_those_that_were_rendered() {
    let data = tempfile::tempdir().expect("a folder");
    ensure_size(data.path(), &SMALL, true).expect("written");
    let bucket = data.path().join(BUCKET);
    let video: Vec<u8> = open(&bucket, "video").retrieve_chunk(&[1, 0, 0, 0, 0]).expect("a shard");
    let frame = clip::Clip::new(1, 4).scene(2.0 / 25.0).render(64, 64);
    assert!(video[2 * frame.len()..3 * frame.len()] == frame);

    let offsets: Vec<i64> = open(&bucket, "tokens_offsets").retrieve_chunk(&[0]).expect("a chunk");
    let tokens: Vec<i32> = open(&bucket, "tokens").retrieve_chunk(&[0]).expect("a chunk");
    let caption: Vec<u8> = tokens[offsets[1] as usize..].iter().map(|token| *token as u8).collect();
    assert_eq!(String::from_utf8(caption).expect("text"), clip::Clip::new(1, 4).caption());
}

#[test]
fn progress_ends_at_the_total() {
    let folder = tempfile::tempdir().expect("a folder");
    let highest = std::sync::Mutex::new((0, 0));
    write(folder.path(), &SMALL, &|done, total| {
        let mut highest = highest.lock().expect("not poisoned");
        *highest = (highest.0.max(done), total);
    })
    .expect("written");
    let (done, total) = *highest.lock().expect("not poisoned");
    assert_eq!(done, total);
    assert!(total > 2 * 4 * 64 * 64 * 3);
}

#[test]
fn a_second_start_writes_nothing() {
    let data = tempfile::tempdir().expect("a folder");
    assert!(ensure_size(data.path(), &SMALL, true).expect("written"));
    let frame = data.path().join("demo/frame.npy");
    fs::write(&frame, "changed by the user").expect("written");
    assert!(!ensure_size(data.path(), &SMALL, true).expect("found"));
    assert_eq!(fs::read(&frame).expect("a file"), b"changed by the user");
}

#[test]
fn what_an_interrupted_start_left_is_removed() {
    let data = tempfile::tempdir().expect("a folder");
    let left = data.path().join(".demo-writing/clips.zarr");
    fs::create_dir_all(&left).expect("made");
    fs::write(left.join("zarr.json"), "{\"attr").expect("written");
    assert!(ensure_size(data.path(), &SMALL, true).expect("written"));
    assert!(!data.path().join(".demo-writing").exists());
    assert!(data.path().join("demo/clips.zarr/label/zarr.json").exists());
}

#[test]
fn a_failed_write_leaves_no_bucket_and_the_next_start_makes_it() {
    let data = tempfile::tempdir().expect("a folder");
    let failed = publish::once(data.path(), |staging| {
        fs::write(staging.join("frame.npy"), "half").expect("written");
        Err(DemoError::file("write", staging, io::Error::from(io::ErrorKind::StorageFull)))
    });
    assert!(matches!(failed, Err(DemoError::File { .. })));
    assert!(!data.path().join("demo").exists() && !data.path().join(".demo-writing").exists());
    assert!(ensure_size(data.path(), &SMALL, true).expect("written"));
}

#[test]
fn an_older_version_is_replaced_and_foreign_objects_stay() {
    let data = tempfile::tempdir().expect("a folder");
    ensure_size(data.path(), &SMALL, true).expect("written");
    let bucket = data.path().join(BUCKET);
    let group = bucket.join("clips.zarr/zarr.json");
    let document = fs::read_to_string(&group).expect("a document");
    fs::write(&group, document.replace("\"w4dx_demo_version\": 1", "\"w4dx_demo_version\": 0")).expect("written");
    fs::write(bucket.join("mine.txt"), "mine").expect("written");
    fs::write(bucket.join("clips.zarr/obsolete"), "old").expect("written");

    assert!(ensure_size(data.path(), &SMALL, true).expect("replaced"));
    assert_eq!(fs::read_to_string(&group).expect("a document"), document);
    assert_eq!(fs::read(bucket.join("mine.txt")).expect("a file"), b"mine");
    assert!(!bucket.join("clips.zarr/obsolete").exists());
    assert!(!ensure_size(data.path(), &SMALL, true).expect("found"));
}

#[test]
fn a_folder_of_someone_else_is_never_touched() {
    let data = tempfile::tempdir().expect("a folder");
    let theirs = data.path().join("demo/clips.zarr");
    fs::create_dir_all(&theirs).expect("made");
    fs::write(theirs.join("zarr.json"), "{\"zarr_format\": 3, \"node_type\": \"group\"}").expect("written");
    let before = files(&data.path().join(BUCKET));
    let refused = ensure_size(data.path(), &SMALL, true);
    assert!(matches!(refused, Err(DemoError::Occupied { .. })));
    assert!(before == files(&data.path().join(BUCKET)));
}
