//! A secret that cannot be printed by accident.

use std::fmt;

use serde::Deserialize;

/// The secret half of an access key. `Debug` shows no part of it, and there is no `Display`.
#[derive(Clone, Deserialize)]
#[serde(transparent)]
pub struct Secret(Box<str>);

impl Secret {
    /// Keeps a secret.
    pub fn new(secret: impl Into<Box<str>>) -> Self {
        Self(secret.into())
    }

    /// The secret itself, for computing a signature or for showing a key that was just made to its owner.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

impl From<String> for Secret {
    fn from(secret: String) -> Self {
        Self::new(secret)
    }
}

impl From<&str> for Secret {
    fn from(secret: &str) -> Self {
        Self::new(secret)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_shows_no_part_of_the_secret() {
        let shown = format!("{:?}", Some(Secret::from("hunter2")));
        assert!(!shown.contains("hunter") && shown.contains("Secret"), "{shown}");
    }
}
