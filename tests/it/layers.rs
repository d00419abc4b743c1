//! The one-way layers: every `use` in `src/` against the table in ARCHITECTURE.md.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Module → modules that it may import.
fn table() -> BTreeMap<String, BTreeSet<String>> {
    let text = fs::read_to_string(root().join("src/ARCHITECTURE.md")).unwrap();
    let rows = text.lines().filter(|line| line.starts_with("| ") && !line.starts_with("| layer"));
    rows.map(|row| {
        let cells: Vec<&str> = row.trim_matches('|').split('|').map(str::trim).collect();
        let may = cells[2].split(',').map(|name| name.trim().to_owned()).filter(|name| !name.is_empty()).collect();
        (cells[1].to_owned(), may)
    })
    .collect()
}

fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|ending| ending == "rs") {
            found.push(path);
        }
    }
}

/// The module path of a source file, by names: `["http", "slice"]`.
fn module(path: &Path) -> Vec<String> {
    let relative = path.strip_prefix(root().join("src")).unwrap().with_extension("");
    let mut names: Vec<String> = relative.iter().map(|name| name.to_str().unwrap().to_owned()).collect();
    if names.last().is_some_and(|name| name == "mod") {
        names.pop();
    }
    names
}

/// Text without comments, strings and test modules: what is left of `//` outside a string is close enough for `use`.
fn code(text: &str) -> String {
    let text = text.split("\n#[cfg(test)]\nmod tests {").next().unwrap();
    text.lines().filter(|line| !line.trim_start().starts_with("//")).collect::<Vec<_>>().join("\n")
}

/// The first names reached by each path that starts with `crate::`, braces included: `crate::{a::B, c}` gives a, c.
fn reached(code: &str, from: &[String]) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for (at, _) in code.match_indices("crate::") {
        let rest = &code[at + "crate::".len()..];
        if let Some(group) = rest.strip_prefix('{') {
            let mut depth = 1;
            let mut name = String::new();
            for c in group.chars() {
                match c {
                    '{' => depth += 1,
                    '}' => depth -= 1,
                    _ => {}
                }
                if depth == 1 && (c.is_alphanumeric() || c == '_') {
                    name.push(c);
                } else if depth <= 1 && !name.is_empty() && matches!(c, ':' | ',' | '}' | ' ') {
                    found.insert(std::mem::take(&mut name));
                } else if !(c.is_alphanumeric() || c == '_') {
                    name.clear();
                }
                if depth == 0 {
                    break;
                }
            }
        } else {
            let name: String = rest.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
            found.insert(name);
        }
    }
    // `super::` that climbs out of the module.
    for (at, _) in code.match_indices("super::") {
        if code[..at].ends_with("super::") {
            continue;
        }
        let mut rest = &code[at..];
        let mut climbs = 0;
        while let Some(after) = rest.strip_prefix("super::") {
            climbs += 1;
            rest = after;
        }
        if climbs >= from.len() {
            let name: String = rest.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
            if !name.is_empty() {
                found.insert(name);
            }
        }
    }
    found
}

#[test]
fn modules_import_only_from_the_layers_below() {
    let table = table();
    assert!(table.len() > 15, "the table in ARCHITECTURE.md is read");
    let mut files = Vec::new();
    sources(&root().join("src"), &mut files);
    let mut wrong = Vec::new();
    let mut seen = BTreeSet::new();
    for file in files {
        let names = module(&file);
        let Some(own) = names.first() else { continue };
        if own == "lib" || own == "main" {
            continue;
        }
        seen.insert(own.clone());
        let Some(may) = table.get(own) else {
            wrong.push(format!("{own} is not in the table"));
            continue;
        };
        for name in reached(&code(&fs::read_to_string(&file).unwrap()), &names) {
            if name != *own && !may.contains(&name) && table.contains_key(&name) {
                wrong.push(format!("{} imports {name}", names.join("::")));
            }
        }
    }
    assert!(wrong.is_empty(), "against the table of layers:\n{}", wrong.join("\n"));
    let unused: Vec<_> = table.keys().filter(|name| !seen.contains(*name)).collect();
    assert!(unused.is_empty(), "in the table, not in the code: {unused:?}");
}

#[test]
fn foreign_crates_are_named_only_where_they_belong() {
    let homes: &[(&str, &[&str])] = &[
        ("moka::", &["cache"]),
        ("object_store::", &["store"]),
        ("aws_sdk_s3::", &["store", "cli"]),
        ("aws_sigv4::", &["store"]),
        ("aws_smithy_", &["store"]),
        ("s3s::", &["s3"]),
        ("axum::", &["server", "http"]),
        ("clap::", &["cli"]),
        ("anyhow::", &["cli"]),
    ];
    let mut files = Vec::new();
    sources(&root().join("src"), &mut files);
    let mut wrong = Vec::new();
    for file in files {
        let names = module(&file);
        let text = code(&fs::read_to_string(&file).unwrap());
        for (name, homes) in homes {
            let own = names.first().map(String::as_str).unwrap_or_default();
            let named = text
                .match_indices(name)
                .any(|(at, _)| !text[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_' || c == ':'));
            if named && !homes.contains(&own) {
                wrong.push(format!("{} names {name}", names.join("::")));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
