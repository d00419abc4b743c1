//! What the documents say, held against the code.

use std::path::Path;
use std::str::FromStr as _;

use wicker4dx::config::Config;
use wicker4dx::http::error::status;
use wicker4dx::model::ErrorKind;

fn read(path: &str) -> String {
    std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).unwrap()
}

#[test]
fn the_readmes_configuration_is_one() {
    let readme = read("README.md");
    let block = readme.split("```toml\n").nth(1).and_then(|rest| rest.split("```").next()).unwrap();
    let config = Config::from_str(block).unwrap_or_else(|error| panic!("{error}"));
    assert!(config.buckets.contains_key("vault") && config.stores.len() >= 5);
    let shown = Config::from_str("").unwrap().limits;
    assert_eq!(config.limits, shown, "the limits in the README are the defaults");
}

#[test]
fn the_containers_configuration_is_one() {
    let config = Config::from_str(&read("docker/w4dx.toml")).unwrap_or_else(|error| panic!("{error}"));
    assert!(!config.buckets.is_empty());
}

#[test]
fn the_readmes_table_of_errors_has_the_right_statuses() {
    let readme = read("README.md");
    let rows: Vec<(&str, &str)> = readme
        .lines()
        .filter(|line| line.starts_with("| 4") || line.starts_with("| 5"))
        .filter_map(|line| line[2..].split_once(" | "))
        .collect();
    assert!(rows.len() >= 15);
    for (code, rest) in rows {
        let names = rest.split(" | ").next().unwrap();
        for name in names.split('`').skip(1).step_by(2) {
            // SignatureDoesNotMatch is s3s' own.
            if let Some(kind) = ErrorKind::ALL.iter().find(|kind| kind.code() == name) {
                assert_eq!(status(*kind).as_str(), code, "{name}");
            } else {
                assert_eq!(name, "SignatureDoesNotMatch");
            }
        }
    }
}
