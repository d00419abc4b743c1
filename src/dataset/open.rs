//! What a path holds: an array, a group, or a file with one or several arrays.
//!
//! The order of lookups is part of the query contract: `.npy` by its name, then `zarr.json`, then `.zarray`, then an
//! object at exactly that key, known by its first bytes. An unreadable node is an error, never "nothing there".

use std::sync::Arc;

use bytes::Bytes;
use futures::StreamExt as _;
use serde_json::{Map, Value};

use super::{DatasetError, Datasets, Snapshot, Source};
use crate::cache::ObjectState;
use crate::format::{ArrayMeta, FormatError, Storage, npy, safetensors, zarr};
use crate::model::key::{beneath, join};
use crate::model::{ByteRange, Version};
use crate::store::{Bucket, ListRequest};

/// First bytes read of a file to find its header. Most headers fit; longer ones cost a second read.
const HEAD_BYTES: u64 = 64 << 10;

/// Metadata documents read at once for one listing.
const MEMBERS_AT_ONCE: usize = 16;

/// An opened array.
#[derive(Debug, Clone)]
pub struct Array {
    /// Its bucket.
    pub bucket: Bucket,
    /// Its key: the prefix of its chunks, or the file that holds it.
    pub path: Arc<str>,
    /// Its name: the last segment, or the tensor's name in its file.
    pub name: String,
    /// Its description.
    pub meta: Arc<ArrayMeta>,
    /// The objects that the description was made from; of a file, the file itself.
    pub sources: Arc<[Source]>,
}

impl Array {
    /// The version of its metadata, or of the file that holds it.
    pub fn version(&self) -> Option<&str> {
        self.sources.iter().find_map(|source| match &source.state {
            ObjectState::Present { version, .. } => Some(version.as_str()),
            ObjectState::Absent => None,
        })
    }
}

/// An opened group.
#[derive(Debug, Clone)]
pub struct Group {
    /// Its key.
    pub path: String,
    /// `zarr3` or `zarr2`.
    pub format: &'static str,
    /// Its attributes.
    pub attributes: Map<String, Value>,
    /// Its members by consolidated metadata, if it has such.
    pub consolidated: Option<Arc<[GroupMember]>>,
    /// The objects that the description was made from.
    pub sources: Arc<[Source]>,
}

/// One node of a group.
#[derive(Debug, Clone)]
pub struct GroupMember {
    /// Its name relative to the group.
    pub name: String,
    /// Its description; `Ok(None)` for a group, the reason where it cannot be read.
    pub node: Result<Option<Arc<ArrayMeta>>, String>,
}

/// One array of a file: its name, and its description or why it cannot be served.
pub type FileArray = (String, Result<Arc<ArrayMeta>, FormatError>);

/// An opened file with named arrays.
#[derive(Debug, Clone)]
pub struct OpenedFile {
    /// Its key.
    pub path: Arc<str>,
    /// `safetensors`.
    pub format: &'static str,
    /// Its arrays by name, in the order of the file; the reason where one cannot be served.
    pub arrays: Arc<[FileArray]>,
    /// The file itself.
    pub sources: Arc<[Source]>,
}

/// What a path holds.
#[derive(Debug, Clone)]
pub enum Opened {
    /// One array.
    Array(Array),
    /// A Zarr group.
    Group(Group),
    /// A file with named arrays.
    File(OpenedFile),
}

/// A cached finding, valid while its sources are unchanged.
#[derive(Debug)]
pub(super) struct OpenedEntry {
    pub(super) sources: Arc<[Source]>,
    pub(super) opened: Opened,
}

impl Datasets {
    /// Opens what `path` holds. `permitted` says which keys the requesting principal may read; others are
    /// not looked up, whatever is cached.
    ///
    /// # Errors
    /// [`DatasetError::Nothing`] only when the store says that nothing is there.
    pub async fn open(
        &self,
        bucket: &Bucket,
        path: &str,
        permitted: &(dyn Fn(&str) -> bool + Sync),
        snapshot: &Snapshot,
    ) -> Result<Opened, DatasetError> {
        if let Some(entry) = self.opened.get(&bucket.name, path)
            && permitted(&entry.opened.rights())
            && self.unchanged(bucket, &entry.sources, snapshot).await?
        {
            return Ok(entry.opened.clone());
        }
        let (opened, complete) = self.look(bucket, path, permitted, snapshot).await?;
        if complete && !snapshot.is_unsettled() {
            let sources = match &opened {
                Opened::Array(array) => &array.sources,
                Opened::Group(group) => &group.sources,
                Opened::File(file) => &file.sources,
            };
            let entry = OpenedEntry { sources: Arc::clone(sources), opened: opened.clone() };
            self.opened.insert(&bucket.name, path, Arc::new(entry));
        }
        Ok(opened)
    }

    async fn unchanged(&self, bucket: &Bucket, sources: &[Source], snapshot: &Snapshot) -> Result<bool, DatasetError> {
        let now = futures::future::try_join_all(sources.iter().map(|source| self.state(bucket, &source.key, snapshot)))
            .await?;
        Ok(now.iter().zip(sources).all(|(entry, source)| entry.state == source.state))
    }

    /// Looks `path` up in the contract's order. The flag is false when rights kept some places unseen.
    async fn look(
        &self,
        bucket: &Bucket,
        path: &str,
        permitted: &(dyn Fn(&str) -> bool + Sync),
        snapshot: &Snapshot,
    ) -> Result<(Opened, bool), DatasetError> {
        if path.ends_with(".npy") {
            return Ok((self.file(bucket, path, snapshot).await?.ok_or_else(|| nothing(path))?, true));
        }
        let (v3_key, v2_key) = (join(path, "zarr.json"), join(path, ".zarray"));
        let (inside, itself) = (permitted(&beneath(path)), permitted(path));
        if !inside {
            return Ok((self.file(bucket, path, snapshot).await?.ok_or_else(|| nothing(path))?, false));
        }
        let (v3, v2, object) =
            tokio::join!(self.document(bucket, &v3_key, snapshot), self.document(bucket, &v2_key, snapshot), async {
                if itself { Some(self.state(bucket, path, snapshot).await) } else { None }
            });
        let (v3_source, v3) = v3?;
        if let Some(bytes) = v3 {
            return Ok((zarr_v3(bucket, path, v3_source, &bytes)?, itself));
        }
        let (v2_source, v2) = v2?;
        if let Some(bytes) = v2 {
            let (attributes_source, attributes) = self.document(bucket, &join(path, ".zattrs"), snapshot).await?;
            let meta = zarr::parse_v2_array(&bytes, attributes.as_deref())
                .map_err(|source| DatasetError::Format { key: v2_key, source })?;
            let sources = [v3_source, v2_source, attributes_source].into();
            return Ok((Opened::Array(zarr_array(bucket, path, meta, sources)), itself));
        }
        if let Some(entry) = object
            && matches!(entry?.state, ObjectState::Present { .. })
        {
            return Ok((self.file(bucket, path, snapshot).await?.ok_or_else(|| nothing(path))?, true));
        }
        let group = self.zarr_v2_group(bucket, path, [v3_source, v2_source], snapshot).await?;
        Ok((Opened::Group(group.ok_or_else(|| nothing(path))?), itself))
    }

    async fn zarr_v2_group(
        &self,
        bucket: &Bucket,
        path: &str,
        absent: [Source; 2],
        snapshot: &Snapshot,
    ) -> Result<Option<Group>, DatasetError> {
        let (group_key, attributes_key) = (join(path, ".zgroup"), join(path, ".zattrs"));
        let consolidated_key = join(path, ".zmetadata");
        let (group, attributes, consolidated) = tokio::join!(
            self.document(bucket, &group_key, snapshot),
            self.document(bucket, &attributes_key, snapshot),
            self.document(bucket, &consolidated_key, snapshot)
        );
        let (group_source, group) = group?;
        let Some(bytes) = group else { return Ok(None) };
        let (attributes_source, attributes) = attributes?;
        let (consolidated_source, consolidated) = consolidated?;
        let meta = zarr::parse_v2_group(&bytes, attributes.as_deref())
            .map_err(|source| DatasetError::Format { key: group_key, source })?;
        let consolidated = match consolidated {
            Some(bytes) => zarr::parse_v2_consolidated(&bytes)
                .map_err(|source| DatasetError::Format { key: consolidated_key, source })?
                .consolidated
                .map(members),
            None => None,
        };
        let [v3, v2] = absent;
        let sources = [v3, v2, group_source, attributes_source, consolidated_source].into();
        Ok(Some(Group { path: path.to_owned(), format: "zarr2", attributes: meta.attributes, consolidated, sources }))
    }

    /// The file at exactly `path`; `None` when there is none.
    async fn file(&self, bucket: &Bucket, path: &str, snapshot: &Snapshot) -> Result<Option<Opened>, DatasetError> {
        let state = self.state(bucket, path, snapshot).await?.state;
        let ObjectState::Present { version, size, .. } = &state else { return Ok(None) };
        let sources: Arc<[Source]> = [Source { key: path.to_owned(), state: state.clone() }].into();
        let format = |source| DatasetError::Format { key: path.to_owned(), source };
        let unknown = || DatasetError::UnknownFormat { path: path.to_owned() };
        if *size == 0 {
            return Err(unknown());
        }
        let mut head = self.head_of(bucket, path, HEAD_BYTES, version, snapshot).await?;
        if head.starts_with(b"\x93NUMPY") {
            let meta = loop {
                match npy::parse(&head, *size).map_err(format)? {
                    npy::Parsed::Array(meta) => break meta,
                    npy::Parsed::NeedBytes(bytes) => {
                        head = self.longer_head(bucket, path, bytes, version, &head, snapshot).await?
                    }
                }
            };
            let name = last_segment(path).trim_end_matches(".npy").to_owned();
            let array = Array { bucket: bucket.clone(), path: path.into(), name, meta: Arc::new(meta), sources };
            return Ok(Some(Opened::Array(array)));
        }
        if head.get(8) != Some(&b'{') {
            return Err(unknown());
        }
        let file = loop {
            match safetensors::parse(&head, *size).map_err(format)? {
                safetensors::Parsed::File(file) => break file,
                safetensors::Parsed::NeedBytes(bytes) => {
                    head = self.longer_head(bucket, path, bytes, version, &head, snapshot).await?;
                }
            }
        };
        let arrays = file.tensors.into_iter().map(|(name, meta)| (name, meta.map(Arc::new))).collect();
        Ok(Some(Opened::File(OpenedFile { path: path.into(), format: "safetensors", arrays, sources })))
    }

    async fn head_of(
        &self,
        bucket: &Bucket,
        path: &str,
        bytes: u64,
        version: &Version,
        snapshot: &Snapshot,
    ) -> Result<Bytes, DatasetError> {
        let range = ByteRange::Bounded(0..bytes);
        let fetched =
            self.read(bucket, path, range, Some(version.clone()), snapshot).await?.ok_or_else(|| nothing(path))?;
        Ok(fetched.bytes.clone())
    }

    /// More of a file's first bytes, or an error when the file has no more.
    async fn longer_head(
        &self,
        bucket: &Bucket,
        path: &str,
        bytes: u64,
        version: &Version,
        known: &Bytes,
        snapshot: &Snapshot,
    ) -> Result<Bytes, DatasetError> {
        let head = self.head_of(bucket, path, bytes, version, snapshot).await?;
        if head.len() <= known.len() {
            return Err(DatasetError::Short { key: path.to_owned(), got: head.len() as u64, expected: bytes });
        }
        Ok(head)
    }

    /// A page of a group's members, at most `limit`, beginning after the name `after`; and whether more follow.
    /// Consolidated metadata serves where there is some.
    ///
    /// # Errors
    /// The store's. A member that cannot be read is listed with the reason.
    pub async fn members(
        &self,
        bucket: &Bucket,
        group: &Group,
        limit: usize,
        after: Option<&str>,
        snapshot: &Snapshot,
    ) -> Result<(Vec<GroupMember>, bool), DatasetError> {
        if let Some(consolidated) = &group.consolidated {
            let mut page: Vec<GroupMember> = consolidated
                .iter()
                .filter(|member| after.is_none_or(|after| member.name.as_str() > after))
                .take(limit + 1)
                .cloned()
                .collect();
            let more = page.len() > limit;
            page.truncate(limit);
            return Ok((page, more));
        }
        let base = beneath(&group.path);
        // Chunk folders of sibling arrays are not members: only folders with a metadata document are.
        let request = ListRequest {
            prefix: base.clone(),
            delimiter: Some("/".to_owned()),
            start_after: after.map(|after| format!("{base}{after}/")),
            max_keys: limit + 1,
        };
        let page = bucket.store.list(&request).await.map_err(Arc::new)?;
        let more = page.next.is_some() || page.prefixes.len() > limit;
        let names: Vec<String> = page
            .prefixes
            .iter()
            .take(limit)
            .filter_map(|prefix| Some(prefix.strip_prefix(&base)?.trim_end_matches('/').to_owned()))
            .collect();
        let found = futures::stream::iter(names.into_iter().map(|name| {
            let path = join(&group.path, &name);
            async move {
                let opened = self.open(bucket, &path, &|_| true, snapshot).await;
                Some(match opened {
                    Ok(Opened::Array(array)) => GroupMember { name, node: Ok(Some(array.meta)) },
                    Ok(Opened::Group(_)) => GroupMember { name, node: Ok(None) },
                    Ok(Opened::File(_)) | Err(DatasetError::Nothing { .. }) => return None,
                    Err(error) => GroupMember { name, node: Err(error.to_string()) },
                })
            }
        }))
        .buffered(MEMBERS_AT_ONCE)
        .filter_map(|member| async { member })
        .collect()
        .await;
        Ok((found, more))
    }
}

impl Opened {
    /// What a principal must be allowed to read to be answered from it: all beneath the path, or the file.
    fn rights(&self) -> String {
        match self {
            Self::Array(array) => match array.meta.storage {
                Storage::Grid(_) => beneath(&array.path),
                Storage::Dense { .. } => array.path.to_string(),
            },
            Self::Group(group) => beneath(&group.path),
            Self::File(file) => file.path.to_string(),
        }
    }

    /// The array that `name` means here: the array itself, or one of a file's.
    ///
    /// # Errors
    /// [`DatasetError::NotAnArray`] for a file of several without a name; [`DatasetError::Nothing`] for a name
    /// that the file lacks. A group is the caller's to descend into.
    pub fn array(self, bucket: &Bucket, name: Option<&str>) -> Result<Array, DatasetError> {
        match (self, name) {
            (Self::Array(array), None) => Ok(array),
            (Self::Array(array), Some(_)) => Err(DatasetError::NotAnArray {
                path: array.path.to_string(),
                what: "an array itself, without members",
                arrays: vec![],
            }),
            (Self::Group(group), _) => {
                Err(DatasetError::NotAnArray { path: group.path, what: "a group", arrays: vec![] })
            }
            (Self::File(file), name) => file.array(bucket, name),
        }
    }
}

impl OpenedFile {
    fn array(&self, bucket: &Bucket, name: Option<&str>) -> Result<Array, DatasetError> {
        let names = || self.arrays.iter().map(|(name, _)| name.clone()).collect();
        let found = match (name, &*self.arrays) {
            (Some(name), arrays) => arrays.iter().find(|(known, _)| known == name),
            (None, [only]) => Some(only),
            (None, _) => {
                let what = "a file with several arrays";
                return Err(DatasetError::NotAnArray { path: self.path.to_string(), what, arrays: names() });
            }
        };
        let (name, meta) =
            found.ok_or_else(|| nothing(&format!("{}?array={}", self.path, name.unwrap_or_default())))?;
        let meta = meta.clone().map_err(|source| DatasetError::Format { key: self.path.to_string(), source })?;
        Ok(Array {
            bucket: bucket.clone(),
            path: Arc::clone(&self.path),
            name: name.clone(),
            meta,
            sources: Arc::clone(&self.sources),
        })
    }
}

fn nothing(path: &str) -> DatasetError {
    DatasetError::Nothing { path: path.to_owned() }
}

pub(crate) fn last_segment(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

fn zarr_array(bucket: &Bucket, path: &str, meta: ArrayMeta, sources: Arc<[Source]>) -> Array {
    let name = last_segment(path).to_owned();
    Array { bucket: bucket.clone(), path: path.into(), name, meta: Arc::new(meta), sources }
}

fn zarr_v3(bucket: &Bucket, path: &str, source: Source, bytes: &[u8]) -> Result<Opened, DatasetError> {
    let key = source.key.clone();
    let node = zarr::parse_v3(bytes).map_err(|source| DatasetError::Format { key, source })?;
    let sources: Arc<[Source]> = [source].into();
    Ok(match node {
        zarr::Node::Array(meta) => Opened::Array(zarr_array(bucket, path, *meta, sources)),
        zarr::Node::Group(group) => Opened::Group(Group {
            path: path.to_owned(),
            format: "zarr3",
            attributes: group.attributes,
            consolidated: group.consolidated.map(members),
            sources,
        }),
    })
}

/// Consolidated entries as members, by name.
fn members(consolidated: Vec<(String, zarr::Member)>) -> Arc<[GroupMember]> {
    let mut members: Vec<GroupMember> = consolidated
        .into_iter()
        .map(|(name, node)| {
            let node = match node {
                zarr::Member::Array(meta) => Ok(Some(Arc::new(*meta))),
                zarr::Member::Group(_) => Ok(None),
                zarr::Member::Unreadable(error) => Err(error.to_string()),
            };
            GroupMember { name, node }
        })
        .collect();
    members.sort_by(|a, b| a.name.cmp(&b.name));
    members.into()
}
