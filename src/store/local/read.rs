//! Reading a file's bytes with the version that they belong to.

use std::fs::File;
use std::ops::Range;

use bytes::Bytes;
use rustix::fs::Stat;
use rustix::io::Errno;
use tokio_util::sync::CancellationToken;

use super::super::StoreError;
use super::super::range::resolve;
use super::folder::{Folder, same_bytes, size, store_error, version};
use super::key::LocalKey;
use crate::model::{ByteRange, Version};

/// Most bytes of one `pread`; between two the reader looks whether anybody still waits.
const READ_BYTES: usize = 8 << 20;

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
        let (file, stat) = folder.open_object(&path).map_err(|errno| store_error("read", key, errno))?;
        if if_match.is_some_and(|expected| *expected != version(&stat)) {
            return Err(StoreError::Changed { key: key.into() });
        }
        let range = resolve(range, size(&stat))
            .ok_or_else(|| StoreError::RangeNotSatisfiable { key: key.into(), size: size(&stat) })?;
        Ok(Self { key: key.into(), file, stat, range })
    }

    /// Reads some of the bytes.
    ///
    /// # Errors
    /// [`StoreError::Changed`] when the file is no longer what it was when it was opened: the bytes are then dropped.
    pub(super) fn read(&self, range: Range<u64>, cancel: &CancellationToken) -> Result<Bytes, StoreError> {
        let length = usize::try_from(range.end.saturating_sub(range.start))
            .map_err(|_| self.failed("the range is larger than the memory".into()))?;
        // A size comes from the file system, not from a client, yet an impossible one must not abort the process.
        Vec::<u8>::new().try_reserve_exact(length).map_err(|_| self.failed(format!("no memory for {length} bytes")))?;
        // Zeroed by the allocator: the kernel hands out zero pages, so this costs no pass over the memory.
        let mut bytes = vec![0; length];
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
        let after = rustix::fs::fstat(&self.file).map_err(|errno| store_error("read", &self.key, errno))?;
        if !same_bytes(&self.stat, &after) {
            return Err(StoreError::Changed { key: self.key.clone() });
        }
        if filled < length {
            let (got, expected) = (filled as u64, length as u64);
            return Err(StoreError::Truncated { key: self.key.clone(), got, expected });
        }
        Ok(bytes.into())
    }

    fn failed(&self, reason: String) -> StoreError {
        StoreError::Failed { operation: "read", key: self.key.clone(), reason }
    }
}
