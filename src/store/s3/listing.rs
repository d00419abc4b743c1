//! Pages of keys in byte order, also from stores that list in another.
//!
//! S3 promises byte order. SeaweedFS lists folder by folder, so that `a/b` comes before `a.b`; a page cut from such an
//! order would lose keys. Such a store is listed whole for each page, at flat memory, and its smallest keys are kept.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use aws_sdk_s3::config::interceptors::BeforeDeserializationInterceptorContextRef;
use aws_sdk_s3::config::{ConfigBag, Intercept, RuntimeComponents};
use aws_sdk_s3::error::BoxError;

use super::S3Store;
use super::answer::{self, Entries};
use super::error::sdk_error;
use crate::store::listing::PageBuilder;
use crate::store::{ListPage, ListRequest, ObjectInfo, StoreError};

/// Most entries that S3 gives in one page.
const PAGE_ENTRIES: i32 = 1000;

/// What is known of the order in which a store lists: byte order until it shows another.
#[derive(Debug, Clone, Default)]
pub(super) struct KeyOrder {
    by_folder: Arc<AtomicBool>,
}

impl KeyOrder {
    fn is_by_folder(&self) -> bool {
        self.by_folder.load(Ordering::Relaxed)
    }

    fn note_by_folder(&self) {
        self.by_folder.store(true, Ordering::Relaxed);
    }
}

impl Intercept for KeyOrder {
    fn name(&self) -> &'static str {
        "KeyOrder"
    }

    /// Every answer of a SeaweedFS names it, so its order is known before its first page is used.
    fn read_before_deserialization(
        &self,
        context: &BeforeDeserializationInterceptorContextRef<'_>,
        _components: &RuntimeComponents,
        _config: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        if context.response().headers().get("server").is_some_and(|server| server.starts_with("SeaweedFS")) {
            self.note_by_folder();
        }
        Ok(())
    }
}

/// One page of ours.
pub(super) async fn list(store: &S3Store, request: &ListRequest) -> Result<ListPage, StoreError> {
    if request.max_keys == 0 {
        return Ok(ListPage::default());
    }
    if !store.order.is_by_folder()
        && let Some(page) = list_ordered(store, request).await?
    {
        return Ok(page);
    }
    list_sorting(store, request).await
}

/// From a store that lists in byte order; `None` when it turns out not to.
async fn list_ordered(store: &S3Store, request: &ListRequest) -> Result<Option<ListPage>, StoreError> {
    let mut page = PageBuilder::new(request);
    let max_keys = i32::try_from(request.max_keys).unwrap_or(i32::MAX).min(PAGE_ENTRIES);
    let mut token = None;
    loop {
        let start_after = request.start_after.clone();
        let (entries, next) =
            fetch(store, request, request.delimiter.clone(), start_after, token.take(), max_keys).await?;
        if !is_ordered(&entries) {
            store.order.note_by_folder();
        }
        if store.order.is_by_folder() {
            return Ok(None);
        }
        let complete = push_sorted(&mut page, sorted(entries));
        // More keys follow a full page that the store cut off; asking for them only to know costs a request.
        if complete || (page.is_full() && next.is_some()) {
            return Ok(Some(page.finish(true)));
        }
        match next {
            Some(next) => token = Some(next),
            None => return Ok(Some(page.finish(false))),
        }
    }
}

/// From a store that lists in any order: everything beneath the prefix, of which the smallest are kept.
async fn list_sorting(store: &S3Store, request: &ListRequest) -> Result<ListPage, StoreError> {
    let mut page = PageBuilder::new(request);
    // Another delimiter than a slash is rolled up here: not every such store knows it.
    let delimiter = request.delimiter.clone().filter(|delimiter| delimiter == "/");
    let keep = request.max_keys.saturating_add(1);
    let mut smallest: BTreeMap<String, Option<ObjectInfo>> = BTreeMap::new();
    let mut token = None;
    loop {
        let (entries, next) = fetch(store, request, delimiter.clone(), None, token.take(), PAGE_ENTRIES).await?;
        for (name, info) in sorted(entries) {
            if !page.wants(&name) {
                continue;
            }
            match page.common_prefix(&name) {
                Some(common) => smallest.insert(common.to_owned(), None),
                None => smallest.insert(name, info),
            };
            if smallest.len() > keep {
                smallest.pop_last();
            }
        }
        match next {
            Some(next) => token = Some(next),
            None => break,
        }
    }
    let complete = push_sorted(&mut page, smallest);
    Ok(page.finish(complete))
}

/// One page of the store's, and the token of the next if there is one.
async fn fetch(
    store: &S3Store,
    request: &ListRequest,
    delimiter: Option<String>,
    start_after: Option<String>,
    token: Option<String>,
    max_keys: i32,
) -> Result<(Entries, Option<String>), StoreError> {
    let call = store
        .client
        .list_objects_v2()
        .bucket(&store.bucket)
        .prefix(&request.prefix)
        .set_delimiter(delimiter)
        .set_start_after(start_after)
        .set_continuation_token(token)
        .max_keys(max_keys);
    let output = call.send().await.map_err(|error| match sdk_error("list", &request.prefix, &error) {
        StoreError::NotFound { key } => {
            let reason = format!("the store knows no bucket `{}`", store.bucket);
            StoreError::Failed { operation: "list", key, reason }
        }
        other => other,
    })?;
    store.note_bucket();
    let truncated = output.is_truncated().unwrap_or(false);
    let next = output.next_continuation_token().filter(|_| truncated).map(str::to_owned);
    Ok((answer::entries(output)?, next))
}

fn is_ordered((objects, prefixes): &Entries) -> bool {
    objects.is_sorted_by(|a, b| a.0 < b.0) && prefixes.is_sorted()
}

/// Keys and common prefixes come as two lists; together they are one.
fn sorted((objects, prefixes): Entries) -> BTreeMap<String, Option<ObjectInfo>> {
    let prefixes = prefixes.into_iter().map(|prefix| (prefix, None));
    objects.into_iter().map(|(key, info)| (key, Some(info))).chain(prefixes).collect()
}

/// True when the page is complete.
fn push_sorted(page: &mut PageBuilder<'_>, entries: BTreeMap<String, Option<ObjectInfo>>) -> bool {
    entries.into_iter().any(|(name, info)| match info {
        Some(info) => page.push_object(name, info),
        None => page.push_prefix(name),
    })
}
