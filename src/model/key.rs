//! Keys of objects, as paths with slashes.

/// The prefix of all keys below a path; of the empty path that of all keys.
pub fn beneath(path: &str) -> String {
    if path.is_empty() { String::new() } else { format!("{path}/") }
}

/// A key below a prefix; either may be empty.
pub fn join(prefix: &str, key: &str) -> String {
    match (prefix.is_empty(), key.is_empty()) {
        (true, _) => key.to_owned(),
        (false, true) => prefix.to_owned(),
        (false, false) => format!("{prefix}/{key}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_empty_path_is_the_root() {
        assert_eq!([join("", "a"), join("a", ""), join("a", "b")], ["a", "a", "a/b"]);
        assert_eq!([beneath(""), beneath("a")], ["", "a/"]);
    }
}
