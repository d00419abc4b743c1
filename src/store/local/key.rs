//! Which keys a folder can hold.

/// Name of the folder, directly beneath the root, that holds uploads not yet complete. Neither listed nor served.
pub(super) const UPLOADS: &str = ".w4dx-tmp";

/// Longest name of one path segment, in bytes, on every Linux file system in use (`NAME_MAX`).
const SEGMENT_BYTES: usize = 255;

/// Longest path that the kernel takes, in bytes, without the final NUL (`PATH_MAX` - 1).
const PATH_BYTES: usize = 4095;

/// A key that is a relative path of ordinary segments: nothing in it can climb or be read in two ways.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct LocalKey(String);

impl LocalKey {
    /// Checks a key.
    ///
    /// # Errors
    /// The reason why no path can hold it, in words.
    pub(super) fn parse(key: &str) -> Result<Self, String> {
        if key.is_empty() {
            return Err("an empty key names no file".into());
        }
        if key.len() > PATH_BYTES {
            return Err(format!("{} bytes are more than a path can have ({PATH_BYTES})", key.len()));
        }
        if key.ends_with('/') {
            return Err("a key that ends with `/` would be a folder".into());
        }
        for segment in key.split('/') {
            check_segment(segment)?;
        }
        if key.split('/').next() == Some(UPLOADS) {
            return Err(format!("`{UPLOADS}` holds uploads that are not complete"));
        }
        Ok(Self(key.into()))
    }

    /// The key as a path relative to the root.
    pub(super) fn as_str(&self) -> &str {
        &self.0
    }

    /// The folder that holds it (`""` for the root), and the name in it.
    pub(super) fn split(&self) -> (&str, &str) {
        self.0.rsplit_once('/').unwrap_or(("", &self.0))
    }
}

/// Whether a folder path (`a/b`, without a slash at the end, or `""`) can exist beneath the root.
pub(super) fn is_folder_path(path: &str) -> bool {
    path.is_empty() || LocalKey::parse(path).is_ok()
}

fn check_segment(segment: &str) -> Result<(), String> {
    match segment {
        "" => return Err("an empty path segment (`//` or a leading `/`)".into()),
        "." | ".." => return Err(format!("a path segment `{segment}`")),
        _ => {}
    }
    if segment.contains('\0') {
        return Err("a NUL byte".into());
    }
    if segment.len() > SEGMENT_BYTES {
        return Err(format!("a path segment of {} bytes, of at most {SEGMENT_BYTES}", segment.len()));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ordinary_paths_are_keys() {
        for key in ["a", "a/b.c", "ü/日本", "c/0/1", "a b", "x#1", "a\\b", "-", "...", ".w4dx-tmp2/x", "a/.w4dx-tmp"]
        {
            assert!(LocalKey::parse(key).is_ok(), "{key}");
        }
    }

    #[test]
    fn what_no_path_can_hold_is_refused_with_the_reason() {
        for (key, word) in [
            ("", "empty key"),
            ("a//b", "empty path segment"),
            ("/a", "empty path segment"),
            ("a/", "folder"),
            ("../a", "`..`"),
            ("a/./b", "`.`"),
            ("a\0b", "NUL"),
            (".w4dx-tmp/x", "uploads"),
            (".w4dx-tmp", "uploads"),
        ] {
            let reason = LocalKey::parse(key).expect_err(key);
            assert!(reason.contains(word), "{key:?}: {reason}");
        }
        assert!(LocalKey::parse(&"x".repeat(256)).expect_err("long").contains("256"));
        assert!(LocalKey::parse(&"x/".repeat(3000)).is_err());
    }
}
