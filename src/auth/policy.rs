//! Access keys and the parts of buckets that they reach.

use std::collections::BTreeMap;

use super::{Action, AuthError, Authorised, Principal};
use crate::model::Secret;
use crate::store::{AnonymousAccess, Bucket, Buckets};

/// A part of a bucket: all keys that begin with a prefix.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Scope {
    /// The bucket's name, or `*` for every bucket.
    pub bucket: String,
    /// A plain string prefix of keys, not whole segments: `data/a` also covers `data/ab`. Empty covers all keys.
    pub prefix: String,
}

impl Scope {
    /// The whole of one bucket, or of every bucket with `*`.
    pub fn bucket(name: impl Into<String>) -> Self {
        Self { bucket: name.into(), prefix: String::new() }
    }

    fn names(&self, bucket: &str) -> bool {
        self.bucket == "*" || self.bucket == bucket
    }

    fn covers(&self, bucket: &str, key: &str) -> bool {
        self.names(bucket) && key.starts_with(&self.prefix)
    }
}

/// An access key and what it may do.
///
/// A key whose two lists are both empty may do everything. Otherwise a list names all that its actions reach, so
/// that an empty `write` beside a filled `read` is a key that only reads.
#[derive(Debug, Clone)]
pub struct Key {
    /// The public half.
    pub access_key: String,
    /// The secret half.
    pub secret: Secret,
    /// Where it may read and list.
    pub read: Vec<Scope>,
    /// Where it may write and delete.
    pub write: Vec<Scope>,
}

impl Key {
    /// A key that may do everything.
    pub fn full(access_key: impl Into<String>, secret: impl Into<Secret>) -> Self {
        Self { access_key: access_key.into(), secret: secret.into(), read: Vec::new(), write: Vec::new() }
    }

    fn is_full(&self) -> bool {
        self.read.is_empty() && self.write.is_empty()
    }

    fn scopes(&self, action: Action) -> &[Scope] {
        match action {
            Action::Read | Action::List => &self.read,
            Action::Write | Action::Delete => &self.write,
        }
    }

    fn reaches(&self, action: Action, bucket: &str, key: &str) -> bool {
        self.is_full() || self.scopes(action).iter().any(|scope| scope.covers(bucket, key))
    }

    fn knows(&self, bucket: &str) -> bool {
        self.is_full() || self.read.iter().chain(&self.write).any(|scope| scope.names(bucket))
    }
}

/// The keys of a gateway. What needs no key is each bucket's own setting ([`Bucket::anonymous`]).
#[derive(Debug, Clone, Default)]
pub struct Policy {
    keys: BTreeMap<String, Key>,
}

impl Policy {
    /// A policy of these keys; a later one with the same access key replaces an earlier one.
    pub fn new(keys: Vec<Key>) -> Self {
        Self { keys: keys.into_iter().map(|key| (key.access_key.clone(), key)).collect() }
    }

    /// The secret that belongs to an access key.
    pub fn secret_of(&self, access_key: &str) -> Option<&Secret> {
        self.keys.get(access_key).map(|key| &key.secret)
    }

    /// Allows `action` on `key` in `bucket`, or says why not. For [`Action::List`], `key` is the prefix listed:
    /// listing is allowed where every key under the prefix may be read.
    ///
    /// What anyone may do without a key, every key may do too.
    ///
    /// # Errors
    /// [`AuthError::Denied`] without rights, whether or not the bucket exists; [`AuthError::NoSuchBucket`] and
    /// [`AuthError::ReadOnly`] only to principals whose rights reach there.
    pub fn authorise(
        &self,
        principal: &Principal,
        action: Action,
        buckets: &Buckets,
        bucket: &str,
        key: &str,
    ) -> Result<Authorised, AuthError> {
        let found = buckets.resolve(bucket);
        let by_key = match principal {
            Principal::Anonymous => false,
            Principal::Key(access_key) => {
                self.keys.get(access_key).is_some_and(|held| held.reaches(action, bucket, key))
            }
        };
        if !by_key && !found.as_ref().is_some_and(|bucket| allows_anyone(bucket, action)) {
            return Err(AuthError::Denied);
        }
        let Some(found) = found else { return Err(AuthError::NoSuchBucket { bucket: bucket.to_owned() }) };
        match action {
            Action::Write | Action::Delete if !found.writable => Err(AuthError::ReadOnly { bucket: bucket.to_owned() }),
            Action::Read | Action::List | Action::Write | Action::Delete => {
                Ok(Authorised { bucket: found, key: key.to_owned() })
            }
        }
    }

    /// Whether this principal may be told that `key` does not exist, rather than that it has no access.
    pub fn may_list(&self, principal: &Principal, buckets: &Buckets, bucket: &str, key: &str) -> bool {
        self.authorise(principal, Action::List, buckets, bucket, key).is_ok()
    }

    /// A bucket as a whole, for HeadBucket, GetBucketLocation and ListBuckets: allowed when the principal has any
    /// right in it, also on a part of it. The `Authorised` names no key.
    ///
    /// # Errors
    /// As [`Policy::authorise`], never [`AuthError::ReadOnly`].
    pub fn see(&self, principal: &Principal, buckets: &Buckets, bucket: &str) -> Result<Authorised, AuthError> {
        let found = buckets.resolve(bucket);
        let by_key = match principal {
            Principal::Anonymous => false,
            Principal::Key(access_key) => self.keys.get(access_key).is_some_and(|held| held.knows(bucket)),
        };
        if !by_key && !found.as_ref().is_some_and(|bucket| allows_anyone(bucket, Action::List)) {
            return Err(AuthError::Denied);
        }
        match found {
            Some(found) => Ok(Authorised { bucket: found, key: String::new() }),
            None => Err(AuthError::NoSuchBucket { bucket: bucket.to_owned() }),
        }
    }
}

fn allows_anyone(bucket: &Bucket, action: Action) -> bool {
    match (bucket.anonymous, action) {
        (AnonymousAccess::Read, Action::Read | Action::List) => true,
        (AnonymousAccess::Read, Action::Write | Action::Delete) => false,
        (AnonymousAccess::None, Action::Read | Action::List | Action::Write | Action::Delete) => false,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use super::*;
    use crate::model::{ByteRange, Version};
    use crate::store::{
        Fetched, Freshness, ListPage, ListRequest, ObjectInfo, ObjectStream, PutOptions, Store, StoreError,
        UploadStream,
    };

    /// Test double: a store that holds nothing, for policies that never reach a store.
    #[derive(Debug)]
    struct NoStore;

    #[async_trait::async_trait]
    impl Store for NoStore {
        async fn head(&self, key: &str) -> Result<ObjectInfo, StoreError> {
            Err(StoreError::NotFound { key: key.to_owned() })
        }
        async fn get(&self, key: &str, _: ByteRange, _: Option<&Version>) -> Result<Fetched, StoreError> {
            Err(StoreError::NotFound { key: key.to_owned() })
        }
        async fn stream(&self, key: &str, _: ByteRange, _: Option<&Version>) -> Result<ObjectStream, StoreError> {
            Err(StoreError::NotFound { key: key.to_owned() })
        }
        async fn list(&self, _: &ListRequest) -> Result<ListPage, StoreError> {
            Ok(ListPage::default())
        }
        async fn put(&self, _: &str, _: UploadStream, _: PutOptions) -> Result<ObjectInfo, StoreError> {
            Err(StoreError::Unsupported { operation: "put" })
        }
        async fn delete(&self, _: &str) -> Result<(), StoreError> {
            Ok(())
        }
        async fn ready(&self) -> Result<(), StoreError> {
            Ok(())
        }
    }

    fn bucket(name: &str, anonymous: AnonymousAccess, writable: bool) -> Bucket {
        Bucket {
            name: name.into(),
            store_name: name.into(),
            store: Arc::new(NoStore),
            freshness: Freshness::For(Duration::ZERO),
            anonymous,
            writable,
            in_key_form: true,
        }
    }

    fn buckets() -> Buckets {
        Buckets::new([
            bucket("open", AnonymousAccess::Read, true),
            bucket("shut", AnonymousAccess::None, true),
            bucket("fixed", AnonymousAccess::None, false),
        ])
    }

    fn scope(bucket: &str, prefix: &str) -> Scope {
        Scope { bucket: bucket.into(), prefix: prefix.into() }
    }

    fn policy() -> Policy {
        let key = |name: &str, read: Vec<Scope>, write: Vec<Scope>| Key {
            access_key: name.into(),
            secret: Secret::from("s"),
            read,
            write,
        };
        Policy::new(vec![
            key("all", vec![], vec![]),
            key("reader", vec![scope("*", "")], vec![]),
            key("part", vec![scope("shut", "a/")], vec![scope("shut", "a/in/")]),
        ])
    }

    /// `who` is a key, or "-" for nobody. The answer: `ok`, `denied`, `absent` or `fixed`.
    fn check(who: &str, action: Action, bucket: &str, key: &str, answer: &str) {
        let principal = if who == "-" { Principal::Anonymous } else { Principal::Key(who.into()) };
        let got = match policy().authorise(&principal, action, &buckets(), bucket, key) {
            Ok(allowed) => {
                assert_eq!((&*allowed.bucket().name, allowed.key()), (bucket, key));
                "ok"
            }
            Err(AuthError::Denied) => "denied",
            Err(AuthError::NoSuchBucket { .. }) => "absent",
            Err(AuthError::ReadOnly { .. }) => "fixed",
        };
        assert_eq!(got, answer, "{who} {action:?} {bucket}/{key}");
    }

    #[test]
    fn anonymous_reads_and_lists_only_where_the_bucket_says_so() {
        check("-", Action::Read, "open", "k", "ok");
        check("-", Action::List, "open", "", "ok");
        check("-", Action::Write, "open", "k", "denied");
        check("-", Action::Delete, "open", "k", "denied");
        check("-", Action::Read, "shut", "k", "denied");
        check("-", Action::Read, "nowhere", "k", "denied");
    }

    #[test]
    fn a_key_without_scopes_does_everything_and_learns_what_is_absent() {
        check("all", Action::Write, "shut", "k", "ok");
        check("all", Action::Delete, "open", "k", "ok");
        check("all", Action::Read, "nowhere", "k", "absent");
        check("all", Action::Write, "fixed", "k", "fixed");
        check("all", Action::Read, "fixed", "k", "ok");
    }

    #[test]
    fn an_empty_write_list_beside_a_read_list_writes_nothing() {
        check("reader", Action::Read, "shut", "k", "ok");
        check("reader", Action::Write, "shut", "k", "denied");
        check("reader", Action::Write, "fixed", "k", "denied");
    }

    #[test]
    fn scopes_are_string_prefixes_and_listing_must_stay_inside() {
        check("part", Action::Read, "shut", "a/x", "ok");
        check("part", Action::Read, "shut", "b/x", "denied");
        check("part", Action::List, "shut", "a/", "ok");
        check("part", Action::List, "shut", "a/in", "ok");
        check("part", Action::List, "shut", "a", "denied");
        check("part", Action::List, "shut", "", "denied");
        check("part", Action::Write, "shut", "a/in/x", "ok");
        check("part", Action::Write, "shut", "a/x", "denied");
        check("part", Action::Read, "open", "k", "ok"); // what anyone may do
        check("part", Action::Read, "nowhere", "a/x", "denied");
        check("stranger", Action::Read, "shut", "a/x", "denied");
    }

    #[test]
    fn without_list_permission_absence_is_not_told() {
        let (policy, buckets) = (policy(), buckets());
        let may =
            |who: &str, bucket: &str, key: &str| policy.may_list(&Principal::Key(who.into()), &buckets, bucket, key);
        assert!(may("part", "shut", "a/x"));
        assert!(!may("part", "shut", "a"));
        assert!(!may("stranger", "shut", "a/x"));
        assert!(may("stranger", "open", "a/x"));
    }

    #[test]
    fn a_bucket_is_seen_by_whoever_has_a_right_in_it() {
        let (policy, buckets) = (policy(), buckets());
        let see = |who: &str, bucket: &str| match who {
            "-" => policy.see(&Principal::Anonymous, &buckets, bucket),
            key => policy.see(&Principal::Key(key.into()), &buckets, bucket),
        };
        assert!(see("part", "shut").is_ok());
        assert!(see("-", "open").is_ok());
        assert_eq!(see("part", "fixed").unwrap_err(), AuthError::Denied);
        assert_eq!(see("-", "shut").unwrap_err(), AuthError::Denied);
        assert_eq!(see("-", "nowhere").unwrap_err(), AuthError::Denied);
        assert!(matches!(see("all", "nowhere"), Err(AuthError::NoSuchBucket { .. })));
    }

    #[test]
    fn secrets_are_found_by_access_key_and_never_shown() {
        let policy = Policy::new(vec![Key::full("id", "hunter2")]);
        assert_eq!(policy.secret_of("id").map(Secret::expose), Some("hunter2"));
        assert!(policy.secret_of("other").is_none());
        assert!(!format!("{policy:?}").contains("hunter2"));
    }
}
