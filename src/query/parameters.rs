//! placeholder (drop)
#![allow(missing_docs)]

pub fn is_reserved_key(key: &str) -> bool {
    let last = key.rsplit('/').next().unwrap_or_default();
    ["@slice", "@array", "@describe", "@explain", "@isel"]
        .iter()
        .any(|name| last.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with(['=', ';', '.'])))
}

pub fn concerns(key: &str, pairs: &[(String, String)], in_key_form: bool) -> bool {
    let ours = ["slice", "isel", "array", "describe", "explain"];
    pairs.iter().any(|(name, _)| ours.contains(&name.strip_prefix("x-").unwrap_or(name)))
        || in_key_form && is_reserved_key(key)
}
