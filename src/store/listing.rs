//! Listing keys: one page, in key order, by any prefix and any delimiter.

use super::ObjectInfo;

/// What to list.
#[derive(Debug, Clone, Default)]
pub struct ListRequest {
    /// Only keys that begin with this; any string, not only whole segments.
    pub prefix: String,
    /// Keys that hold this after the prefix are rolled up into one common prefix; any non-empty string.
    pub delimiter: Option<String>,
    /// Only keys and common prefixes after this one, in byte order.
    pub start_after: Option<String>,
    /// At most so many keys and common prefixes together.
    pub max_keys: usize,
}

/// One page of a listing. Keys and prefixes are each in ascending byte order.
#[derive(Debug, Clone, Default)]
pub struct ListPage {
    /// Objects.
    pub objects: Vec<(String, ObjectInfo)>,
    /// Common prefixes, each ending with the delimiter.
    pub prefixes: Vec<String>,
    /// Where the next page starts (pass it as `start_after`), or `None` when this is the last.
    pub next: Option<String>,
}

/// Builds one page from keys that come in ascending order: filters, rolls up, and stops when it is full.
#[derive(Debug)]
pub(super) struct PageBuilder<'a> {
    request: &'a ListRequest,
    page: ListPage,
    last: Option<String>,
}

impl<'a> PageBuilder<'a> {
    pub(super) fn new(request: &'a ListRequest) -> Self {
        Self { request, page: ListPage::default(), last: None }
    }

    /// What a key, or any longer key that begins with this, is rolled up into.
    pub(super) fn common_prefix<'k>(&self, key: &'k str) -> Option<&'k str> {
        let delimiter = self.request.delimiter.as_deref().filter(|delimiter| !delimiter.is_empty())?;
        let rest = key.strip_prefix(self.request.prefix.as_str())?;
        let end = rest.find(delimiter)? + delimiter.len();
        Some(&key[..self.request.prefix.len() + end])
    }

    /// Whether this key adds something to the page.
    pub(super) fn wants(&self, key: &str) -> bool {
        key.starts_with(&self.request.prefix) && self.is_ahead(self.common_prefix(key).unwrap_or(key))
    }

    /// Whether a key that begins with `start` can add something to the page.
    pub(super) fn wants_beneath(&self, start: &str) -> bool {
        if !start.starts_with(&self.request.prefix) {
            return self.request.prefix.starts_with(start);
        }
        match self.common_prefix(start) {
            Some(common) => self.is_ahead(common),
            None => [self.request.start_after.as_deref(), self.last.as_deref()]
                .into_iter()
                .flatten()
                .all(|passed| start > passed || passed.starts_with(start)),
        }
    }

    /// Adds an object, rolled up if it must be. True when the page is complete and needs no further key.
    pub(super) fn push_object(&mut self, key: String, info: ObjectInfo) -> bool {
        if let Some(common) = self.common_prefix(&key) {
            let common = common.to_owned();
            return self.push_prefix(common);
        }
        if !self.wants(&key) {
            return false;
        }
        if self.is_full() {
            return true;
        }
        self.last = Some(key.clone());
        self.page.objects.push((key, info));
        false
    }

    /// Adds a common prefix. True when the page is complete and needs no further key.
    pub(super) fn push_prefix(&mut self, common: String) -> bool {
        if !self.is_ahead(&common) {
            return false;
        }
        if self.is_full() {
            return true;
        }
        self.last = Some(common.clone());
        self.page.prefixes.push(common);
        false
    }

    /// The page, when the keys have ended (`complete` is false) or when a push said that it is complete.
    pub(super) fn finish(self, complete: bool) -> ListPage {
        ListPage { next: self.last.filter(|_| complete), ..self.page }
    }

    /// Whether an entry lies after what was asked for and after what the page holds.
    fn is_ahead(&self, entry: &str) -> bool {
        let passed = [self.request.start_after.as_deref(), self.last.as_deref()];
        passed.into_iter().flatten().all(|passed| entry > passed)
    }

    /// Whether another key would be one too many.
    pub(super) fn is_full(&self) -> bool {
        self.page.objects.len() + self.page.prefixes.len() >= self.request.max_keys
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_beneath_a_start_are_wanted_only_when_they_can_come() {
        let request =
            ListRequest { prefix: "a/".into(), delimiter: None, start_after: Some("a/m/5".into()), max_keys: 10 };
        let page = PageBuilder::new(&request);
        for (start, wanted) in
            [("a/", true), ("a/b/", false), ("a/m/", true), ("a/n/", true), ("b/", false), ("", true)]
        {
            assert_eq!(page.wants_beneath(start), wanted, "{start}");
        }
    }

    #[test]
    fn a_common_prefix_given_as_start_is_not_repeated() {
        let request = ListRequest {
            prefix: String::new(),
            delimiter: Some("/".into()),
            start_after: Some("a/".into()),
            max_keys: 10,
        };
        let page = PageBuilder::new(&request);
        assert!(!page.wants("a/x"));
        assert!(!page.wants_beneath("a/"));
        assert!(page.wants("b/x"));
    }
}
