//! A secret that no log shows.

use std::fmt;
use std::sync::Arc;

/// A secret string. Its `Debug` prints no character of it, and it has no `Display`.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Arc<str>);

impl Secret {
    /// Takes a secret in.
    pub fn new(secret: &str) -> Self {
        Self(secret.into())
    }

    /// The secret itself, for whoever signs with it.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_shows_nothing_of_the_secret() {
        assert_eq!(format!("{:?}", Secret::new("hunter2")), "Secret(…)");
    }
}
