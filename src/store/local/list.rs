//! Listing a folder in key order, with memory for a page and not for the folder.
//!
//! `a.b` sorts before `a/b` and `a/b` before `a0`, so a folder takes its place among its neighbours as `name/`. Each
//! folder on the way down keeps only the next few of its names and is read again for more. No folder stays open.

use std::collections::{BinaryHeap, HashSet};

use rustix::fs::{Dir, FileType, Stat};
use tokio_util::sync::CancellationToken;

use super::super::listing::PageBuilder;
use super::super::{ListPage, ListRequest, StoreError};
use super::folder::{Folder, object_info, store_error};
use super::key::{UPLOADS, is_folder_path};

/// Fewest names of a folder that are kept at once, so that small pages do not read folders again and again.
const BATCH_NAMES: usize = 1024;

/// One page of the keys beneath the root.
pub(super) fn list(folder: &Folder, request: &ListRequest, cancel: &CancellationToken) -> Result<ListPage, StoreError> {
    let start = request.prefix.rsplit_once('/').map_or("", |(parent, _)| parent);
    let mut page = PageBuilder::new(request);
    if request.max_keys == 0 || request.prefix.starts_with('/') || !is_folder_path(start) {
        return Ok(page.finish(false));
    }
    let batch = BATCH_NAMES.max(request.max_keys.saturating_add(1));
    let mut walk = Walk { folder, batch, cancel, levels: Vec::new() };
    walk.descend(start, &page)?;
    while let Some(entry) = walk.next(&page)? {
        let complete = match entry.kind {
            Kind::Folder if !page.wants_beneath(&entry.path) => false,
            Kind::Folder => match page.common_prefix(&entry.path).map(str::to_owned) {
                // A folder without any file holds no key, so it is no common prefix either.
                Some(common) => walk.has_object(entry.folder_path())? && page.push_prefix(common),
                None => {
                    walk.descend(entry.folder_path(), &page)?;
                    false
                }
            },
            Kind::File if !page.wants(&entry.path) => false,
            Kind::File => match folder.stat_object(&entry.path) {
                Ok(stat) => {
                    let info = object_info(&entry.path, &stat);
                    page.push_object(entry.path, info)
                }
                Err(errno) => {
                    absent_is_none(store_error("list", &entry.path, errno))?;
                    false
                }
            },
        };
        if complete {
            return Ok(page.finish(true));
        }
    }
    Ok(page.finish(false))
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Folder,
    File,
}

/// A file's key, or a folder's path with a slash at its end.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Entry {
    path: String,
    kind: Kind,
}

impl Entry {
    fn folder_path(&self) -> &str {
        self.path.trim_end_matches('/')
    }
}

/// Device and inode of a folder: a link to a folder that is already being walked is a circle.
type FolderId = (u64, u64);

/// A folder on the way down, with the next of its entries in descending order.
#[derive(Debug)]
struct Level {
    path: String,
    id: FolderId,
    entries: Vec<Entry>,
    /// Where to go on when `entries` is used up, or `None` when the folder has no more.
    resume: Option<String>,
}

/// A walk through all files in key order.
struct Walk<'a> {
    folder: &'a Folder,
    batch: usize,
    cancel: &'a CancellationToken,
    levels: Vec<Level>,
}

impl Walk<'_> {
    /// The next file or folder of the innermost folder that has one.
    fn next(&mut self, page: &PageBuilder<'_>) -> Result<Option<Entry>, StoreError> {
        while let Some(level) = self.levels.last_mut() {
            if let Some(entry) = level.entries.pop() {
                return Ok(Some(entry));
            }
            let resume = level.resume.take();
            let path = std::mem::take(&mut level.path);
            self.levels.pop();
            if let Some(resume) = resume {
                self.read_level(&path, Some(&resume), page)?;
            }
        }
        Ok(None)
    }

    /// Goes into a folder (`""` is the root).
    fn descend(&mut self, path: &str, page: &PageBuilder<'_>) -> Result<(), StoreError> {
        self.read_level(path, None, page)
    }

    fn read_level(&mut self, path: &str, after: Option<&str>, page: &PageBuilder<'_>) -> Result<(), StoreError> {
        let Some((id, dir)) = self.open(path)? else { return Ok(()) };
        if self.levels.iter().any(|level| level.id == id) {
            return Ok(());
        }
        let mut smallest = BinaryHeap::new();
        let mut more = false;
        self.read(path, dir, |entry| {
            let wanted = match entry.kind {
                Kind::Folder => page.wants_beneath(&entry.path),
                Kind::File => page.wants(&entry.path),
            };
            if wanted && after.is_none_or(|after| entry.path.as_str() > after) {
                smallest.push(entry);
                if smallest.len() > self.batch {
                    smallest.pop();
                    more = true;
                }
            }
            true
        })?;
        let mut entries = smallest.into_sorted_vec();
        let resume = entries.last().filter(|_| more).map(|entry| entry.path.clone());
        entries.reverse();
        self.levels.push(Level { path: path.into(), id, entries, resume });
        Ok(())
    }

    /// Whether any file lies beneath a folder.
    fn has_object(&self, path: &str) -> Result<bool, StoreError> {
        let mut seen = HashSet::new();
        let mut todo = vec![path.to_owned()];
        while let Some(path) = todo.pop() {
            let Some((id, dir)) = self.open(&path)? else { continue };
            if !seen.insert(id) {
                continue;
            }
            let mut found = false;
            self.read(&path, dir, |entry| {
                match entry.kind {
                    Kind::File => found = true,
                    Kind::Folder => todo.push(entry.folder_path().to_owned()),
                }
                !found
            })?;
            if found {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// A folder to read, or `None` when it is gone or was never one.
    fn open(&self, path: &str) -> Result<Option<(FolderId, Dir)>, StoreError> {
        let opened = self.folder.open_directory(path).and_then(|fd| {
            let stat: Stat = rustix::fs::fstat(&fd)?;
            Ok(((stat.st_dev, stat.st_ino), Dir::new(fd)?))
        });
        match opened {
            Ok(opened) => Ok(Some(opened)),
            Err(errno) => absent_is_none(store_error("list", path, errno)).map(|()| None),
        }
    }

    /// Hands every file and folder in a folder to `take`, in no order, until that returns false.
    ///
    /// Names that are not UTF-8 are no keys. Links that lead outside, and what is neither file nor folder, is absent.
    fn read(&self, path: &str, dir: Dir, mut take: impl FnMut(Entry) -> bool) -> Result<(), StoreError> {
        for item in dir {
            if self.cancel.is_cancelled() {
                let reason = "nobody waits for it any more".into();
                return Err(StoreError::Failed { operation: "list", key: path.into(), reason });
            }
            let item = item.map_err(|errno| store_error("list", path, errno))?;
            let Ok(name) = item.file_name().to_str() else { continue };
            if matches!(name, "." | "..") || (path.is_empty() && name == UPLOADS) {
                continue;
            }
            let mut entry_path = if path.is_empty() { name.to_owned() } else { format!("{path}/{name}") };
            let Some(kind) = self.kind(item.file_type(), &entry_path)? else { continue };
            if kind == Kind::Folder {
                entry_path.push('/');
            }
            if !take(Entry { path: entry_path, kind }) {
                return Ok(());
            }
        }
        Ok(())
    }

    fn kind(&self, file_type: FileType, path: &str) -> Result<Option<Kind>, StoreError> {
        match file_type {
            FileType::RegularFile => Ok(Some(Kind::File)),
            FileType::Directory => Ok(Some(Kind::Folder)),
            FileType::Symlink | FileType::Unknown => match self.folder.file_type(path) {
                Ok(FileType::RegularFile) => Ok(Some(Kind::File)),
                Ok(FileType::Directory) => Ok(Some(Kind::Folder)),
                Ok(_) => Ok(None),
                Err(errno) => absent_is_none(store_error("list", path, errno)).map(|()| None),
            },
            _ => Ok(None),
        }
    }
}

/// What vanished while being listed is not in the list; anything else must not look like an empty place.
fn absent_is_none(error: StoreError) -> Result<(), StoreError> {
    match error {
        StoreError::NotFound { .. } => Ok(()),
        other => Err(other),
    }
}
