//! What is wrong with a configuration, in one line.

use std::path::PathBuf;

use crate::model::{ErrorKind, Fault};

/// Why the gateway cannot start with this configuration. Every message is one line.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("{file}: {reason}")]
    Unreadable {
        /// The file.
        file: String,
        /// Why.
        reason: String,
    },
    /// The file's text is wrong at a line.
    #[error("{file}:{line}: {reason}")]
    Invalid {
        /// The file.
        file: String,
        /// The line, from 1.
        line: usize,
        /// What is wrong, with the nearest known name where a name is wrong.
        reason: String,
    },
    /// An environment variable's value cannot be.
    #[error("environment variable {variable}: {reason}")]
    Environment {
        /// Its name.
        variable: &'static str,
        /// Why.
        reason: String,
    },
    /// A secret is not where the configuration says.
    #[error("no secret in {place}")]
    Secret {
        /// The place.
        place: String,
    },
    /// A store cannot be opened.
    #[error("store `{store}`: {reason}")]
    Store {
        /// The store's name.
        store: String,
        /// Why.
        reason: String,
    },
    /// A local store's folder cannot be served.
    #[error("store `{store}`: folder `{}` {reason}", path.display())]
    Folder {
        /// The store's name.
        store: String,
        /// Its folder.
        path: PathBuf,
        /// Why, for example `does not exist`.
        reason: String,
    },
}

impl Fault for ConfigError {
    fn kind(&self) -> ErrorKind {
        ErrorKind::Internal
    }
}

/// The known name that is most like a wrong one, if any is like it at all.
pub(super) fn nearest<'a>(wrong: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let scored = known.into_iter().map(|name| (strsim::jaro_winkler(wrong, name), name));
    scored.filter(|(score, _)| *score > 0.75).max_by(|a, b| a.0.total_cmp(&b.0)).map(|(_, name)| name)
}
