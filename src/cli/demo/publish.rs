//! Puts a finished bucket into its place, once: a lock against a second writer, a folder beside the place, a rename.

use std::fs::{self, File};
use std::io;
use std::path::Path;

use super::{BUCKET, DemoError, VERSION, VERSION_ATTRIBUTE};

/// What the bucket holds. The group comes last: its version is believed once everything else is in place.
const ENTRIES: [&str; 4] = ["README.txt", "frame.npy", "weights.safetensors", "clips.zarr"];
/// Where the bucket is written before it is whole.
const STAGING: &str = ".demo-writing";
/// Where a replaced file or group waits to be removed.
const REPLACED: &str = ".demo-replaced";
/// Held while writing, so that two starts on one folder do not write over each other.
const LOCK: &str = ".demo-lock";

/// Has `write` fill a new bucket within `data` unless a current one is there; true when it was written.
pub(super) fn once(data: &Path, write: impl FnOnce(&Path) -> Result<(), DemoError>) -> Result<bool, DemoError> {
    let bucket = data.join(BUCKET);
    if is_whole(&bucket)? {
        return Ok(false);
    }
    fs::create_dir_all(data).map_err(|error| DemoError::file("make", data, error))?;
    let lock_path = data.join(LOCK);
    let lock = File::create(&lock_path).map_err(|error| DemoError::file("make", &lock_path, error))?;
    lock.lock().map_err(|error| DemoError::file("lock", &lock_path, error))?;
    // Another start may have written the bucket while this one waited.
    if is_whole(&bucket)? {
        return Ok(false);
    }
    let replaced = data.join(REPLACED);
    // A replaced group that still waits means that an earlier replacement was cut short: the bucket is ours.
    let ours = is_free(&bucket)? || version(&bucket)?.is_some() || replaced.exists();
    if !ours {
        return Err(DemoError::Occupied { path: bucket });
    }
    let staging = data.join(STAGING);
    remove(&staging)?;
    fs::create_dir(&staging).map_err(|error| DemoError::file("make", &staging, error))?;
    let published = write(&staging).and_then(|()| {
        sync(&staging)?;
        publish(&staging, &bucket, &replaced)?;
        sync_folder(data)
    });
    if published.is_err() {
        // The first error is the one to tell; the next start removes what cannot be removed now.
        drop(remove(&staging));
    }
    published.map(|()| true)
}

/// Whether every entry is there and of this version.
fn is_whole(bucket: &Path) -> Result<bool, DemoError> {
    Ok(version(bucket)? == Some(VERSION) && ENTRIES.iter().all(|entry| bucket.join(entry).exists()))
}

/// The version of the demonstration in `bucket`; `None` when there is none, or something else.
fn version(bucket: &Path) -> Result<Option<u64>, DemoError> {
    let path = bucket.join("clips.zarr").join("zarr.json");
    let document = match fs::read(&path) {
        Ok(document) => document,
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            return Ok(None);
        }
        Err(error) => return Err(DemoError::file("read", &path, error)),
    };
    let Ok(document) = serde_json::from_slice::<serde_json::Value>(&document) else { return Ok(None) };
    Ok(document["attributes"][VERSION_ATTRIBUTE].as_u64())
}

/// Whether nothing lies at `bucket`, or an empty folder.
fn is_free(bucket: &Path) -> Result<bool, DemoError> {
    match fs::read_dir(bucket) {
        Ok(mut entries) => Ok(entries.next().is_none()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::NotADirectory => Ok(false),
        Err(error) => Err(DemoError::file("read", bucket, error)),
    }
}

/// Moves a whole bucket from `staging` to `bucket`. Where `bucket` exists, its entries of ours are exchanged one by
/// one and all else stays.
fn publish(staging: &Path, bucket: &Path, replaced: &Path) -> Result<(), DemoError> {
    if is_free(bucket)? {
        // An empty folder is replaced by the rename itself.
        return rename(staging, bucket);
    }
    for entry in ENTRIES {
        let place = bucket.join(entry);
        remove(replaced)?;
        if place.exists() {
            rename(&place, replaced)?;
        }
        rename(&staging.join(entry), &place)?;
    }
    remove(replaced)?;
    remove(staging)
}

fn rename(from: &Path, to: &Path) -> Result<(), DemoError> {
    fs::rename(from, to).map_err(|error| DemoError::file("move a file to", to, error))
}

/// Removes a file or a folder with all it holds, if it is there.
fn remove(path: &Path) -> Result<(), DemoError> {
    let removed = match fs::symlink_metadata(path) {
        Ok(metadata) if metadata.is_dir() => fs::remove_dir_all(path),
        Ok(_) => fs::remove_file(path),
        Err(error) => Err(error),
    };
    match removed {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(DemoError::file("remove", path, error)),
        _ => Ok(()),
    }
}

/// Brings everything beneath `folder` to disk. Without it a power failure could leave the renamed bucket with empty
/// files, which would be believed ever after.
fn sync(folder: &Path) -> Result<(), DemoError> {
    let failed = |error| DemoError::file("read", folder, error);
    for entry in fs::read_dir(folder).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        if path.is_dir() {
            sync(&path)?;
        } else {
            sync_folder(&path)?;
        }
    }
    sync_folder(folder)
}

/// Brings one file, or the list of names in one folder, to disk.
fn sync_folder(path: &Path) -> Result<(), DemoError> {
    File::open(path).and_then(|file| file.sync_all()).map_err(|error| DemoError::file("sync", path, error))
}
