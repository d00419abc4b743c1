//! Reading a file's bytes with the version that they belong to.

use std::fs::File;
use std::io::IoSliceMut;
use std::ops::Range;

use bytes::Bytes;
use rustix::fs::Stat;
use rustix::io::{Errno, ReadWriteFlags};
use tokio_util::sync::CancellationToken;

use super::super::range::resolve;
use super::super::{Buffers, StoreError};
use super::folder::{Folder, same_bytes, size, store_error, version};
use super::key::LocalKey;
use crate::model::{ByteRange, Version};

/// Most bytes of one `pread`; between two the reader looks whether anybody still waits.
const READ_BYTES: usize = 8 << 20;

/// Most bytes that are copied out of the page cache on the caller's thread: about 50 µs, less than it costs to hand the
/// copy to the blocking pool and back when the machine is busy.
const CACHED_BYTES: usize = 512 << 10;

/// An open object: the file, and what it was when it was opened.
#[derive(Debug)]
pub(super) struct OpenObject {
    pub(super) key: String,
    pub(super) file: File,
    pub(super) stat: Stat,
    /// The bytes asked for.
    pub(super) range: Range<u64>,
}

impl OpenObject {
    /// Opens an object at a version and resolves a range in it.
    pub(super) fn open(
        folder: &Folder,
        key: &str,
        range: &ByteRange,
        if_match: Option<&Version>,
    ) -> Result<Self, StoreError> {
        let path = LocalKey::parse(key).map_err(|_| StoreError::NotFound { key: key.into() })?;
        Self::opened(key, range, if_match, folder.open_object(&path))
    }

    /// The same where it takes no waiting; `None` where it may.
    pub(super) fn open_cached(
        folder: &Folder,
        key: &str,
        range: &ByteRange,
        if_match: Option<&Version>,
    ) -> Option<Result<Self, StoreError>> {
        let path = LocalKey::parse(key).ok()?;
        Some(Self::opened(key, range, if_match, folder.open_cached(&path)?))
    }

    fn opened(
        key: &str,
        range: &ByteRange,
        if_match: Option<&Version>,
        opened: Result<(File, Stat), Errno>,
    ) -> Result<Self, StoreError> {
        let (file, stat) = opened.map_err(|errno| store_error("read", key, errno))?;
        if if_match.is_some_and(|expected| *expected != version(&stat)) {
            return Err(StoreError::Changed { key: key.into() });
        }
        let range = resolve(range, size(&stat))
            .ok_or_else(|| StoreError::RangeNotSatisfiable { key: key.into(), size: size(&stat) })?;
        Ok(Self { key: key.into(), file, stat, range })
    }

    /// Reads bytes that are in the page cache; `None` where that would wait for a disk, or is much to copy.
    pub(super) fn read_cached(&self, range: Range<u64>, buffers: &Buffers) -> Option<Result<Bytes, StoreError>> {
        let length = usize::try_from(range.end.saturating_sub(range.start)).ok().filter(|len| *len <= CACHED_BYTES)?;
        let mut buffer = buffers.take(length);
        let mut filled = 0;
        while filled < length {
            let into = &mut [IoSliceMut::new(&mut buffer[filled..])];
            match rustix::io::preadv2(&self.file, into, range.start + filled as u64, ReadWriteFlags::NOWAIT) {
                Ok(0) | Err(_) => return None,
                Ok(read) => filled += read,
            }
        }
        Some(self.unchanged().map(|()| buffer.freeze(length)))
    }

    /// Reads some of the bytes.
    ///
    /// # Errors
    /// [`StoreError::Changed`] when the file is no longer what it was when it was opened: the bytes are then dropped.
    pub(super) fn read(
        &self,
        range: Range<u64>,
        buffers: &Buffers,
        cancel: &CancellationToken,
    ) -> Result<Bytes, StoreError> {
        let length = usize::try_from(range.end.saturating_sub(range.start))
            .map_err(|_| self.failed("the range is larger than the memory".into()))?;
        // A size comes from the file system, not from a client, yet an impossible one must not abort the process.
        Vec::<u8>::new().try_reserve_exact(length).map_err(|_| self.failed(format!("no memory for {length} bytes")))?;
        let mut bytes = buffers.take(length);
        let mut filled = 0;
        while filled < length {
            if cancel.is_cancelled() {
                return Err(self.failed("nobody waits for it any more".into()));
            }
            let end = length.min(filled + READ_BYTES);
            match rustix::io::pread(&self.file, &mut bytes[filled..end], range.start + filled as u64) {
                Ok(0) => break,
                Ok(read) => filled += read,
                Err(Errno::INTR) => {}
                Err(errno) => return Err(store_error("read", &self.key, errno)),
            }
        }
        self.unchanged()?;
        if filled < length {
            let (got, expected) = (filled as u64, length as u64);
            return Err(StoreError::Truncated { key: self.key.clone(), got, expected });
        }
        Ok(bytes.freeze(length))
    }

    /// Whether the file is still what it was when it was opened.
    fn unchanged(&self) -> Result<(), StoreError> {
        let after = rustix::fs::fstat(&self.file).map_err(|errno| store_error("read", &self.key, errno))?;
        if same_bytes(&self.stat, &after) { Ok(()) } else { Err(StoreError::Changed { key: self.key.clone() }) }
    }

    fn failed(&self, reason: String) -> StoreError {
        StoreError::Failed { operation: "read", key: self.key.clone(), reason }
    }
}
