//! Storing an object whole or not at all: temporary file, check, fsync, rename, fsync of the folders.

use std::fs::File;
use std::io::Write;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use md5::{Digest, Md5};
use rustix::fs::{AtFlags, FlockOperation, Mode, OFlags, RenameFlags};
use rustix::io::Errno;

use super::super::{ObjectInfo, PutOptions, StoreError};
use super::folder::{Folder, object_info, reason, store_error, version};
use super::key::{LocalKey, UPLOADS};
use crate::model::Version;

/// How often a commit is tried again when its folder was pruned, by a concurrent delete, between mkdir and rename.
const COMMIT_ATTEMPTS: usize = 16;

/// An upload under way. Dropped before its commit it leaves nothing behind.
#[derive(Debug)]
pub(super) struct Upload {
    key: LocalKey,
    folder: Arc<Folder>,
    uploads: OwnedFd,
    name: String,
    file: File,
    digest: Md5,
    written: u64,
    committed: bool,
}

impl Upload {
    /// Begins an upload.
    pub(super) fn begin(folder: &Arc<Folder>, key: LocalKey) -> Result<Self, StoreError> {
        let failed = |errno| write_error(key.as_str(), errno);
        let uploads = uploads_folder(folder).map_err(failed)?;
        let (name, file) = create_unnamed(&uploads).map_err(failed)?;
        Ok(Self {
            key,
            folder: Arc::clone(folder),
            uploads,
            name,
            file,
            digest: Md5::new(),
            written: 0,
            committed: false,
        })
    }

    /// Adds bytes to the end.
    pub(super) fn write(mut self, pieces: &[Bytes]) -> Result<Self, StoreError> {
        for piece in pieces {
            self.file.write_all(piece).map_err(|error| self.io_failed(&error))?;
            self.digest.update(piece);
            self.written += piece.len() as u64;
        }
        Ok(self)
    }

    /// Checks length and MD5, makes the bytes durable, and puts them in the key's place.
    pub(super) fn commit(mut self, options: &PutOptions) -> Result<ObjectInfo, StoreError> {
        self.check_digest(options)?;
        self.file.sync_all().map_err(|error| self.io_failed(&error))?;
        {
            let _lock = self.folder.commit_lock(&self.key);
            self.check_version(options.if_match.as_ref())?;
            self.publish(options.if_absent)?;
        }
        self.committed = true;
        let stat = rustix::fs::fstat(&self.file).map_err(|errno| write_error(self.key.as_str(), errno))?;
        sync_parents(&self.folder, self.key.split().0).map_err(|errno| write_error(self.key.as_str(), errno))?;
        Ok(object_info(self.key.as_str(), &stat))
    }

    fn check_digest(&self, options: &PutOptions) -> Result<(), StoreError> {
        let bad = |reason| Err(StoreError::BadDigest { key: self.key.as_str().into(), reason });
        if let Some(expected) = options.content_length.filter(|expected| *expected != self.written) {
            return bad(format!("{} bytes arrived, {expected} were announced", self.written));
        }
        match options.content_md5 {
            Some(expected) if self.digest.clone().finalize()[..] != expected => {
                bad("the bytes do not have the announced Content-MD5".into())
            }
            Some(_) | None => Ok(()),
        }
    }

    fn check_version(&self, if_match: Option<&Version>) -> Result<(), StoreError> {
        let Some(expected) = if_match else { return Ok(()) };
        let key = self.key.as_str();
        match self.folder.stat_object(key) {
            Ok(stat) if version(&stat) == *expected => Ok(()),
            Ok(_) => Err(StoreError::PreconditionFailed { key: key.into() }),
            Err(errno) => match store_error("write", key, errno) {
                StoreError::NotFound { key } => Err(StoreError::PreconditionFailed { key }),
                other => Err(other),
            },
        }
    }

    fn publish(&self, if_absent: bool) -> Result<(), StoreError> {
        let key = self.key.as_str();
        let (parent, name) = self.key.split();
        let mut attempt = 1;
        loop {
            let result = make_folders(&self.folder, parent).and_then(|parent| {
                if if_absent { self.rename_if_absent(&parent, name) } else { self.rename(&parent, name) }
            });
            match result {
                Ok(()) => return Ok(()),
                Err(Errno::NOENT) if attempt < COMMIT_ATTEMPTS => attempt += 1,
                Err(Errno::EXIST) if self.folder.stat_object(key).is_ok() => {
                    return Err(StoreError::PreconditionFailed { key: key.into() });
                }
                Err(errno) => return Err(write_error(key, errno)),
            }
        }
    }

    fn rename(&self, parent: &OwnedFd, name: &str) -> Result<(), Errno> {
        rustix::fs::renameat(&self.uploads, &self.name, parent, name)
    }

    fn rename_if_absent(&self, parent: &OwnedFd, name: &str) -> Result<(), Errno> {
        match rustix::fs::renameat_with(&self.uploads, &self.name, parent, name, RenameFlags::NOREPLACE) {
            // Some file systems lack the flag. A hard link refuses an existing name just as atomically.
            Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => {
                rustix::fs::linkat(&self.uploads, &self.name, parent, name, AtFlags::empty())?;
                rustix::fs::unlinkat(&self.uploads, &self.name, AtFlags::empty())
            }
            other => other,
        }
    }

    fn io_failed(&self, error: &std::io::Error) -> StoreError {
        write_error(self.key.as_str(), Errno::from_io_error(error).unwrap_or(Errno::IO))
    }
}

impl Drop for Upload {
    fn drop(&mut self) {
        if !self.committed {
            // A name that stays is removed when the folder is opened next.
            let _ = rustix::fs::unlinkat(&self.uploads, &self.name, AtFlags::empty());
        }
    }
}

/// Removes an object, then the folders that this left empty.
pub(super) fn delete(folder: &Folder, key: &LocalKey) -> Result<(), StoreError> {
    let failed = |errno| store_error("delete", key.as_str(), errno);
    let absent_is_fine = |error| match error {
        StoreError::NotFound { .. } => Ok(()),
        other => Err(other),
    };
    let (parent, name) = key.split();
    {
        let _lock = folder.commit_lock(key);
        // Only what reads as an object may be removed as one: not a FIFO, nor a link that leads outside.
        if let Err(errno) = folder.stat_object(key.as_str()) {
            return absent_is_fine(failed(errno));
        }
        let removed = folder
            .open_directory(parent)
            .and_then(|parent| rustix::fs::unlinkat(&parent, name, AtFlags::empty()).map(|()| parent))
            .and_then(sync_folder);
        if let Err(errno) = removed {
            return absent_is_fine(failed(errno));
        }
    }
    prune(folder, parent);
    Ok(())
}

/// Removes uploads that a process which is gone left behind. Those of a living one are locked and stay.
pub(super) fn remove_leftovers(folder: &Folder) {
    let Ok(uploads) = folder.open_beneath(UPLOADS, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW) else {
        return;
    };
    let Ok(entries) = rustix::fs::Dir::read_from(&uploads) else { return };
    for entry in entries.flatten() {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let Ok(file) = rustix::fs::openat(&uploads, entry.file_name(), flags, Mode::empty()) else { continue };
        if rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok() {
            // `.` and `..` are folders, which this call does not remove.
            let _ = rustix::fs::unlinkat(&uploads, entry.file_name(), AtFlags::empty());
        }
    }
}

fn uploads_folder(folder: &Folder) -> Result<OwnedFd, Errno> {
    match rustix::fs::mkdirat(folder.root(), UPLOADS, Mode::from_raw_mode(0o700)) {
        Ok(()) | Err(Errno::EXIST) => {}
        Err(errno) => return Err(errno),
    }
    folder.open_beneath(UPLOADS, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW)
}

/// A new file in the uploads folder under a name that nobody else uses, locked so that no cleaner takes it.
fn create_unnamed(uploads: &OwnedFd) -> Result<(String, File), Errno> {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    loop {
        let name =
            format!("{}-{}-{:08x}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed), rand::random::<u32>());
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        // The user's umask decides who may read what is stored, as for any file that a program writes.
        match rustix::fs::openat(uploads, &name, flags, Mode::from_raw_mode(0o666)) {
            Ok(file) => {
                rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive)?;
                return Ok((name, file.into()));
            }
            Err(Errno::EXIST) => {}
            Err(errno) => return Err(errno),
        }
    }
}

/// Makes a folder and all above it, and opens it.
fn make_folders(folder: &Folder, path: &str) -> Result<OwnedFd, Errno> {
    match folder.open_directory(path) {
        Err(Errno::NOENT) => {}
        other => return other,
    }
    let ends = path.match_indices('/').map(|(index, _)| index).chain([path.len()]);
    let mut parent = folder.open_directory("")?;
    let mut start = 0;
    for end in ends {
        match rustix::fs::mkdirat(&parent, &path[start..end], Mode::from_raw_mode(0o777)) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(errno) => return Err(errno),
        }
        parent = folder.open_directory(&path[..end])?;
        start = end + 1;
    }
    Ok(parent)
}

/// Makes the names on the way to a folder durable, deepest first. A folder that is already clean costs little.
fn sync_parents(folder: &Folder, path: &str) -> Result<(), Errno> {
    let mut path = path;
    loop {
        match folder.open_directory(path).and_then(sync_folder) {
            // Pruned meanwhile by a delete of the very object: then nothing is left to be durable.
            Ok(()) | Err(Errno::NOENT) => {}
            Err(errno) => return Err(errno),
        }
        if path.is_empty() {
            return Ok(());
        }
        path = path.rsplit_once('/').map_or("", |(parent, _)| parent);
    }
}

fn sync_folder(folder: OwnedFd) -> Result<(), Errno> {
    match rustix::fs::fsync(folder) {
        // Not every file system can sync a folder; those that cannot need not.
        Err(Errno::INVAL | Errno::OPNOTSUPP) => Ok(()),
        other => other,
    }
}

/// Removes a folder and those above it for as long as they are empty. Links stay: rmdir does not remove them.
fn prune(folder: &Folder, path: &str) {
    let mut path = path;
    while !path.is_empty() {
        let (parent, name) = path.rsplit_once('/').unwrap_or(("", path));
        let removed =
            folder.open_directory(parent).and_then(|parent| rustix::fs::unlinkat(parent, name, AtFlags::REMOVEDIR));
        if removed.is_err() {
            return;
        }
        path = parent;
    }
}

fn write_error(key: &str, errno: Errno) -> StoreError {
    let invalid = |reason: &str| StoreError::InvalidKey { key: key.into(), reason: reason.into() };
    match errno {
        Errno::NOTDIR => invalid("a part of its path is an object, so nothing can lie beneath it"),
        Errno::ISDIR | Errno::EXIST | Errno::NOTEMPTY => {
            invalid("a folder, or another file that is no object, has this name")
        }
        Errno::LOOP => invalid("a part of its path is a link that leads outside the folder, or in a circle"),
        Errno::NAMETOOLONG => invalid("a part of its path is longer than the file system allows"),
        // Both a link that leads outside and a folder inside that is another file system's mount point.
        Errno::XDEV => invalid("a part of its path is a link that leads outside the folder, or another file system"),
        Errno::ACCESS | Errno::PERM => StoreError::Denied {
            operation: "write",
            key: key.into(),
            reason: format!("the file system refused: {errno}"),
        },
        other => StoreError::Failed { operation: "write", key: key.into(), reason: reason(other) },
    }
}
