//! A folder whose files are opened beneath it and nowhere else.
//!
//! Every path goes through `openat2` with `RESOLVE_BENEATH`, so neither `..` nor a link can lead out, also when the
//! folder changes meanwhile. Only regular files count as objects. Everything here blocks: it runs on the blocking pool.

use std::collections::BTreeMap;
use std::fs::File;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::fs::{CWD, FileType, Mode, OFlags, ResolveFlags, Stat};
use rustix::io::Errno;

use super::super::{ObjectInfo, StoreError};
use super::key::LocalKey;
use crate::model::Version;

/// How often a path resolution that the kernel gives up (a rename crossed a `..` in a link) is tried again.
const RESOLVE_ATTEMPTS: usize = 16;

/// File systems whose lookups wait for nothing but a disk, by the kernel's numbers (statfs(2)): ext2 to ext4, xfs,
/// btrfs, tmpfs, overlayfs, f2fs, zfs. One that asks a network is not among them.
const QUICK: [u32; 7] = [0xEF53, 0x5846_5342, 0x9123_683E, 0x0102_1994, 0x794C_7630, 0xF2F5_2010, 0x2FC1_2FC1];

/// How many keys can be committed at once without waiting for each other by chance.
const COMMIT_LOCKS: usize = 64;

/// The root of a local store.
#[derive(Debug)]
pub(super) struct Folder {
    path: PathBuf,
    root: OwnedFd,
    /// Whether its file system answers from memory what it holds in memory ([`Folder::open_cached`]).
    quick: bool,
    commits: [Mutex<()>; COMMIT_LOCKS],
}

impl Folder {
    /// Opens a folder.
    ///
    /// # Errors
    /// With the path and what is wrong with it, in words.
    pub(super) fn open(path: PathBuf) -> io::Result<Self> {
        let with_path =
            |error: io::Error| io::Error::new(error.kind(), format!("folder `{}`: {error}", path.display()));
        let root = rustix::fs::openat(CWD, &path, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
            .map_err(|errno| match errno {
                Errno::NOENT => io::Error::new(io::ErrorKind::NotFound, "does not exist"),
                Errno::NOTDIR => io::Error::new(io::ErrorKind::NotADirectory, "is not a folder"),
                Errno::ACCESS | Errno::PERM => {
                    io::Error::new(io::ErrorKind::PermissionDenied, "this user may not read it")
                }
                other => other.into(),
            })
            .map_err(with_path)?;
        let quick = rustix::fs::fstatfs(&root).is_ok_and(|stat| QUICK.contains(&(stat.f_type as u32)));
        let folder = Self { root, quick, commits: std::array::from_fn(|_| Mutex::new(())), path: path.clone() };
        // Kernels before 5.6, and some sandboxes, lack openat2. Nothing else keeps links beneath the root.
        folder.open_directory("").map_err(|errno| {
            with_path(io::Error::new(
                io::ErrorKind::Unsupported,
                format!("this system cannot open files beneath a folder (openat2, Linux 5.6): {errno}"),
            ))
        })?;
        Ok(folder)
    }

    /// Where the folder was when it was opened.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// The root.
    pub(super) fn root(&self) -> BorrowedFd<'_> {
        self.root.as_fd()
    }

    /// Opens a path beneath the root (`""` is the root itself).
    pub(super) fn open_beneath(&self, path: &str, flags: OFlags) -> Result<OwnedFd, Errno> {
        let path = if path.is_empty() { "." } else { path };
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
        let mut attempt = 1;
        loop {
            match rustix::fs::openat2(&self.root, path, flags | OFlags::CLOEXEC, Mode::empty(), resolve) {
                Err(Errno::AGAIN | Errno::INTR) if attempt < RESOLVE_ATTEMPTS => attempt += 1,
                other => return other,
            }
        }
    }

    /// Opens a folder beneath the root, to be listed or synced.
    pub(super) fn open_directory(&self, path: &str) -> Result<OwnedFd, Errno> {
        self.open_beneath(path, OFlags::RDONLY | OFlags::DIRECTORY)
    }

    /// Opens an object for reading.
    pub(super) fn open_object(&self, key: &LocalKey) -> Result<(File, Stat), Errno> {
        // O_NONBLOCK: a FIFO without a writer would hang the open for ever.
        let file = self.open_beneath(key.as_str(), OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY)?;
        let stat = rustix::fs::fstat(&file)?;
        if is_regular(&stat) { Ok((file.into(), stat)) } else { Err(Errno::NOENT) }
    }

    /// Opens an object for reading if that takes no waiting: its path is in the kernel's memory, on a file system of
    /// this machine. `None` where it may take some; the caller then opens it on the blocking pool.
    pub(super) fn open_cached(&self, key: &LocalKey) -> Option<Result<(File, Stat), Errno>> {
        if !self.quick {
            return None;
        }
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        // A folder beneath may be mounted from elsewhere.
        let resolve =
            ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS | ResolveFlags::NO_XDEV | ResolveFlags::CACHED;
        match rustix::fs::openat2(&self.root, key.as_str(), flags, Mode::empty(), resolve) {
            Ok(file) => {
                let stat = rustix::fs::fstat(&file).ok().filter(is_regular)?;
                Some(Ok((file.into(), stat)))
            }
            Err(Errno::NOENT) => Some(Err(Errno::NOENT)),
            Err(_) => None,
        }
    }

    /// Describes whatever regular file a path leads to, without the right to read it.
    pub(super) fn stat_object(&self, path: &str) -> Result<Stat, Errno> {
        let file = self.open_beneath(path, OFlags::PATH)?;
        let stat = rustix::fs::fstat(&file)?;
        if is_regular(&stat) { Ok(stat) } else { Err(Errno::NOENT) }
    }

    /// What a path leads to.
    pub(super) fn file_type(&self, path: &str) -> Result<FileType, Errno> {
        let file = self.open_beneath(path, OFlags::PATH)?;
        Ok(FileType::from_raw_mode(rustix::fs::fstat(&file)?.st_mode))
    }

    /// Held while a condition on a key is checked and the key is replaced.
    pub(super) fn commit_lock(&self, key: &LocalKey) -> MutexGuard<'_, ()> {
        let mut hasher = DefaultHasher::new();
        key.as_str().hash(&mut hasher);
        let index = (hasher.finish() % COMMIT_LOCKS as u64) as usize;
        // The lock guards no data, so a panic while it was held has broken nothing.
        self.commits[index].lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether this is a file that can be an object.
pub(super) fn is_regular(stat: &Stat) -> bool {
    FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile
}

/// The version of a file's bytes: device, inode, size, mtime and ctime in nanoseconds.
pub(super) fn version(stat: &Stat) -> Version {
    let mut hasher = blake3::Hasher::new();
    for number in [
        stat.st_dev as i128,
        stat.st_ino as i128,
        stat.st_size as i128,
        nanoseconds(stat.st_mtime, stat.st_mtime_nsec as i64),
        nanoseconds(stat.st_ctime, stat.st_ctime_nsec as i64),
    ] {
        hasher.update(&number.to_le_bytes());
    }
    let hash = hasher.finalize().to_hex();
    Version::new(&format!("l-{}", &hash[..32]))
}

/// Whether bytes read between two stats of one descriptor are those of the first.
///
/// An object that is replaced or removed while a reader holds it loses its last name, which moves ctime alone.
/// Its bytes are still the old version, whole, so such a reader goes on.
pub(super) fn same_bytes(before: &Stat, after: &Stat) -> bool {
    let same_ctime = (before.st_ctime, before.st_ctime_nsec) == (after.st_ctime, after.st_ctime_nsec);
    before.st_size == after.st_size
        && (before.st_mtime, before.st_mtime_nsec) == (after.st_mtime, after.st_mtime_nsec)
        && (same_ctime || after.st_nlink == 0)
}

/// A file as the store describes it.
pub(super) fn object_info(key: &str, stat: &Stat) -> ObjectInfo {
    ObjectInfo {
        size: size(stat),
        version: version(stat),
        last_modified: modified(stat),
        settled: settled(stat),
        content_type: content_type(key).map(str::to_owned),
        headers: BTreeMap::new(),
    }
}

/// Whether the file's last change lies so far back that a further one cannot bear the same time.
fn settled(stat: &Stat) -> bool {
    /// Coarser than the clock of any common file system (FAT: 2 s).
    const TICK_NANOS: i128 = 2_000_000_000;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as i128);
    now - nanoseconds(stat.st_ctime, stat.st_ctime_nsec as i64) > TICK_NANOS
}

/// Bytes of a file.
pub(super) fn size(stat: &Stat) -> u64 {
    u64::try_from(stat.st_size).unwrap_or(0)
}

fn modified(stat: &Stat) -> SystemTime {
    let nanos = nanoseconds(stat.st_mtime, stat.st_mtime_nsec as i64);
    let magnitude = Duration::from_nanos(u64::try_from(nanos.unsigned_abs()).unwrap_or(u64::MAX));
    let time = if nanos < 0 { UNIX_EPOCH.checked_sub(magnitude) } else { UNIX_EPOCH.checked_add(magnitude) };
    time.unwrap_or(UNIX_EPOCH)
}

fn nanoseconds(seconds: i64, nanos: i64) -> i128 {
    i128::from(seconds) * 1_000_000_000 + i128::from(nanos)
}

/// The media type that a key's ending stands for. A folder keeps no other.
fn content_type(key: &str) -> Option<&'static str> {
    let name = key.rsplit('/').next().unwrap_or(key);
    if matches!(name, ".zarray" | ".zattrs" | ".zgroup" | ".zmetadata") {
        return Some("application/json");
    }
    let (stem, extension) = name.rsplit_once('.')?;
    if stem.is_empty() {
        return None;
    }
    Some(match extension.to_ascii_lowercase().as_str() {
        "json" => "application/json",
        "npy" => "application/x-npy",
        "safetensors" => "application/vnd.safetensors",
        "png" => "image/png",
        "jpg" | "jpeg" => "image/jpeg",
        "gif" => "image/gif",
        "webp" => "image/webp",
        "svg" => "image/svg+xml",
        "tif" | "tiff" => "image/tiff",
        "txt" | "log" => "text/plain; charset=utf-8",
        "md" => "text/markdown; charset=utf-8",
        "csv" => "text/csv; charset=utf-8",
        "html" | "htm" => "text/html; charset=utf-8",
        "css" => "text/css; charset=utf-8",
        "js" => "text/javascript; charset=utf-8",
        "xml" => "application/xml",
        "yaml" | "yml" => "application/yaml",
        "toml" => "application/toml",
        "pdf" => "application/pdf",
        "zip" => "application/zip",
        "gz" => "application/gzip",
        "tar" => "application/x-tar",
        "mp4" => "video/mp4",
        "webm" => "video/webm",
        "mp3" => "audio/mpeg",
        "wav" => "audio/wav",
        "parquet" => "application/vnd.apache.parquet",
        "arrow" => "application/vnd.apache.arrow.file",
        _ => return None,
    })
}

/// A failed system call on an object, as the contract tells it.
pub(super) fn store_error(operation: &'static str, key: &str, errno: Errno) -> StoreError {
    match errno {
        // XDEV: a link leads out of the folder. NXIO, NODEV: a socket, or a device that is not there.
        Errno::NOENT
        | Errno::NOTDIR
        | Errno::LOOP
        | Errno::XDEV
        | Errno::NAMETOOLONG
        | Errno::ISDIR
        | Errno::NXIO
        | Errno::NODEV => StoreError::NotFound { key: key.into() },
        Errno::ACCESS | Errno::PERM => {
            StoreError::Denied { operation, key: key.into(), reason: format!("the file system refused: {errno}") }
        }
        other => StoreError::Failed { operation, key: key.into(), reason: reason(other) },
    }
}

/// A failed system call in words.
pub(super) fn reason(errno: Errno) -> String {
    match errno {
        Errno::NOSPC => "no space is left on the file system that holds the folder".into(),
        Errno::DQUOT => "the disk quota is used up".into(),
        Errno::ROFS => "the file system is read-only".into(),
        Errno::MFILE | Errno::NFILE => "too many files are open".into(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endings_tell_media_types() {
        for (key, expected) in [
            ("a/b.npy", Some("application/x-npy")),
            ("a/zarr.json", Some("application/json")),
            ("a/.zarray", Some("application/json")),
            ("c/0/1", None),
            ("a.npy/c", None),
            (".png", None),
            ("x.PNG", Some("image/png")),
        ] {
            assert_eq!(content_type(key), expected, "{key}");
        }
    }

    #[test]
    fn only_what_is_not_there_is_absent() {
        for errno in [Errno::NOENT, Errno::NOTDIR, Errno::LOOP, Errno::XDEV, Errno::NAMETOOLONG] {
            assert!(matches!(store_error("read", "k", errno), StoreError::NotFound { .. }), "{errno}");
        }
        for errno in [Errno::ACCESS, Errno::PERM] {
            assert!(matches!(store_error("read", "k", errno), StoreError::Denied { .. }), "{errno}");
        }
        for errno in [Errno::IO, Errno::MFILE, Errno::NOMEM, Errno::STALE, Errno::NOSPC] {
            assert!(matches!(store_error("read", "k", errno), StoreError::Failed { .. }), "{errno}");
        }
        assert!(store_error("write", "k", Errno::NOSPC).to_string().contains("no space is left"));
    }
}
