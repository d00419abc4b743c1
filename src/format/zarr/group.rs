//! Groups, and the consolidated metadata that lists what is in them.

use serde_json::{Map, Value};

use super::json::{kind, malformed, object};
use super::{Node, v2, v3};
use crate::format::{ArrayMeta, FormatError};

/// A group.
#[derive(Debug, Clone, Default)]
pub struct GroupMeta {
    /// The user attributes.
    pub attributes: Map<String, Value>,
    /// Every node beneath the group by its relative path, in the document's order, where the group has consolidated
    /// metadata. A copy that its writer may have let grow stale: good for listing, never for reading.
    pub consolidated: Option<Vec<(String, Member)>>,
}

/// A node in consolidated metadata.
#[derive(Debug, Clone)]
pub enum Member {
    /// An array.
    Array(Box<ArrayMeta>),
    /// A group, by its attributes.
    Group(Map<String, Value>),
    /// A node that we cannot read, and why. The others can still be listed.
    Unreadable(FormatError),
}

/// The most bytes of fill values that one group's members hold together. A fill value can be large where its text
/// is short, so the document's size does not bound them.
const FILL_BYTES_MAX: usize = 64 << 20;

/// Refuses arrays once the fill values before them pass [`FILL_BYTES_MAX`].
#[derive(Default)]
struct FillBudget(usize);

impl FillBudget {
    fn admit(&mut self, node: Result<Node, FormatError>) -> Member {
        if let Ok(Node::Array(array)) = &node {
            self.0 = self.0.saturating_add(array.fill.len());
            if self.0 > FILL_BYTES_MAX {
                let feature = format!("a group with more than {FILL_BYTES_MAX} bytes of fill values");
                return Member::Unreadable(FormatError::Feature { feature });
            }
        }
        match node {
            Ok(Node::Array(array)) => Member::Array(array),
            Ok(Node::Group(group)) => Member::Group(group.attributes),
            Err(e) => Member::Unreadable(e),
        }
    }
}

/// Whether a member's path stays inside its group: plain names between single slashes.
fn stays_inside(path: &str) -> bool {
    path.split('/').all(|segment| !matches!(segment, "" | "." | ".."))
}

/// The members in the `consolidated_metadata` of a `zarr.json`, or `None` when it has none that we know.
pub(super) fn consolidated_v3(value: Value) -> Option<Vec<(String, Member)>> {
    let Value::Object(mut map) = value else { return None };
    if map.get("kind").and_then(Value::as_str) != Some("inline") {
        return None;
    }
    let Some(Value::Object(nodes)) = map.remove("metadata") else { return None };
    let mut budget = FillBudget::default();
    let member = |(path, node): (String, Value)| {
        let member = if !stays_inside(&path) {
            Member::Unreadable(malformed("consolidated metadata", "the path leaves the group"))
        } else {
            match node {
                // Deeper nodes are in this list too; their own copies would only multiply the work.
                Value::Object(mut node) => {
                    node.remove("consolidated_metadata");
                    budget.admit(v3::parse_map(node))
                }
                other => Member::Unreadable(malformed("consolidated metadata", format!("a node is {}", kind(&other)))),
            }
        };
        (path, member)
    };
    Some(nodes.into_iter().map(member).collect())
}

/// Parses a `.zmetadata`: the group at its root, with every node beneath it.
///
/// # Errors
/// [`FormatError::Malformed`] when the document is no consolidated metadata of version 1, or the root in it is no
/// group. A member that does not parse is kept as [`Member::Unreadable`].
pub fn parse_v2_consolidated(zmetadata: &[u8]) -> Result<GroupMeta, FormatError> {
    const DOCUMENT: &str = ".zmetadata";
    let mut map = object(DOCUMENT, zmetadata)?;
    if map.get("zarr_consolidated_format").and_then(Value::as_u64) != Some(1) {
        return Err(malformed(DOCUMENT, "`zarr_consolidated_format` is not 1"));
    }
    let Some(Value::Object(mut documents)) = map.remove("metadata") else {
        return Err(malformed(DOCUMENT, "`metadata` is not an object"));
    };
    let mut attributes: std::collections::HashMap<String, Map<String, Value>> = Default::default();
    for (key, value) in &mut documents {
        if let (Some(path), Value::Object(map)) = (node_path(key, ".zattrs"), value) {
            attributes.insert(path.to_owned(), std::mem::take(map));
        }
    }
    let mut members = Vec::new();
    let mut budget = FillBudget::default();
    let mut root = None;
    for (key, value) in documents {
        let array = node_path(&key, ".zarray");
        let Some(path) = array.or_else(|| node_path(&key, ".zgroup")) else { continue };
        let attributes = attributes.remove(path).unwrap_or_default();
        let node = match &value {
            Value::Object(map) if array.is_some() => v2::array(map, attributes).map(|a| Node::Array(Box::new(a))),
            Value::Object(map) => v2::group(map, attributes).map(Node::Group),
            other => Err(malformed(DOCUMENT, format!("a node is {}", kind(other)))),
        };
        if path.is_empty() {
            root = Some(node);
        } else if stays_inside(path) {
            members.push((path.to_owned(), budget.admit(node)));
        } else {
            let outside = malformed(DOCUMENT, "the path leaves the group");
            members.push((path.to_owned(), Member::Unreadable(outside)));
        }
    }
    match root {
        Some(Ok(Node::Group(group))) => Ok(GroupMeta { consolidated: Some(members), ..group }),
        Some(Err(e)) => Err(e),
        Some(Ok(Node::Array(_))) | None => Err(malformed(DOCUMENT, "its root is no group")),
    }
}

/// The node that `key` belongs to: `a/b` for `a/b/.zarray`, nothing for `.zarray`.
fn node_path<'a>(key: &'a str, document: &str) -> Option<&'a str> {
    let path = key.strip_suffix(document)?;
    if path.is_empty() { Some(path) } else { path.strip_suffix('/') }
}
