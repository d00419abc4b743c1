//! Stored bytes that were read last: what lay between wanted chunks, and chunks that the cache did not admit.
//!
//! A read goes through holes, and the next crop of the same clip often wants what lay there. That is found here without
//! asking the store, and decoded then, never unasked. Entries leave in the order of their last use: how often a chunk was
//! asked for is the decoded cache's to weigh. `benches/encoded_tier.rs` is why this is small and why it is here at all.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use foldhash::fast::RandomState;

use super::ChunkSource;
use crate::metrics::Metrics;
use crate::store::ObjectInfo;

/// Reads that begin before a wanted range and are looked at, nearest first: reads of one object seldom overlap.
const LOOKED_AT: usize = 4;

/// A read of one object, with what its answer said of it.
#[derive(Debug, Clone)]
pub struct Span {
    /// Its bytes in the object.
    pub range: Range<u64>,
    /// The bytes.
    pub bytes: Bytes,
    /// The object.
    pub info: ObjectInfo,
}

#[derive(Debug)]
struct Kept {
    span: Span,
    used: u64,
}

#[derive(Debug, Default)]
struct Spans {
    by_source: HashMap<ChunkSource, BTreeMap<u64, Kept>, RandomState>,
    /// By their last use.
    order: BTreeMap<u64, (ChunkSource, u64)>,
    uses: u64,
    bytes: u64,
}

/// Reads in the order of their last use, at most so many bytes of them. Cheap to clone.
#[derive(Debug, Clone)]
pub struct RecentBytes {
    spans: Arc<Mutex<Spans>>,
    capacity_bytes: u64,
    metrics: Metrics,
}

/// Memory of a read: it lies in a buffer whose size is a power of two.
fn weight(span: &Span) -> u64 {
    (span.bytes.len() as u64).next_power_of_two()
}

impl RecentBytes {
    /// Keeps at most `capacity_bytes`; 0 keeps nothing.
    pub fn new(capacity_bytes: u64, metrics: Metrics) -> Self {
        Self { spans: Arc::default(), capacity_bytes, metrics }
    }

    fn lock(&self) -> MutexGuard<'_, Spans> {
        self.spans.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A read that brought all of `range`. The source names the version.
    pub fn get(&self, source: &ChunkSource, range: &Range<u64>) -> Option<Span> {
        if self.capacity_bytes == 0 {
            return None;
        }
        let mut spans = self.lock();
        let Spans { by_source, order, uses, .. } = &mut *spans;
        let before = by_source.get_mut(source)?.range_mut(..=range.start).rev().take(LOOKED_AT);
        let (start, kept) = before.into_iter().find(|(_, kept)| kept.span.range.end >= range.end)?;
        *uses += 1;
        order.remove(&kept.used);
        order.insert(*uses, (*source, *start));
        kept.used = *uses;
        Some(kept.span.clone())
    }

    /// Keeps a read of the version that the source names. One of more than half of all there is would push out all others.
    pub fn insert(&self, source: ChunkSource, span: Span) {
        let weight_of_it = weight(&span);
        if weight_of_it > self.capacity_bytes / 2 || span.bytes.is_empty() {
            return;
        }
        let mut spans = self.lock();
        let start = span.range.start;
        let known = spans.by_source.get(&source).and_then(|of_source| of_source.get(&start));
        if known.is_some_and(|known| known.span.range.end >= span.range.end) {
            return;
        }
        spans.remove(&source, start);
        spans.bytes += weight_of_it;
        while spans.bytes > self.capacity_bytes {
            let Some((_, (source, start))) = spans.order.first_key_value() else { break };
            let (source, start) = (*source, *start);
            spans.remove(&source, start);
        }
        spans.uses += 1;
        let used = spans.uses;
        spans.order.insert(used, (source, start));
        spans.by_source.entry(source).or_default().insert(start, Kept { span, used });
        self.metrics.recent_holds(spans.bytes);
    }

    /// Forgets the read that begins at `start`.
    pub fn forget(&self, source: &ChunkSource, start: u64) {
        let mut spans = self.lock();
        spans.remove(source, start);
        self.metrics.recent_holds(spans.bytes);
    }
}

impl Spans {
    fn remove(&mut self, source: &ChunkSource, start: u64) {
        let Some(of_source) = self.by_source.get_mut(source) else { return };
        if let Some(kept) = of_source.remove(&start) {
            self.order.remove(&kept.used);
            self.bytes -= weight(&kept.span);
        }
        if of_source.is_empty() {
            self.by_source.remove(source);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Version;

    fn source(object: &str) -> ChunkSource {
        ChunkSource::new("b", object, Some(&Version::new("v")), [0; 16])
    }

    fn span(range: Range<u64>) -> Span {
        let bytes: Vec<u8> = range.clone().map(|at| at as u8).collect();
        let info = ObjectInfo {
            size: 1 << 20,
            version: Version::new("v"),
            last_modified: std::time::UNIX_EPOCH,
            settled: true,
            content_type: None,
            headers: std::collections::BTreeMap::new(),
        };
        Span { range, bytes: bytes.into(), info }
    }

    fn recent(capacity: u64) -> RecentBytes {
        RecentBytes::new(capacity, Metrics::new())
    }

    #[test]
    fn a_range_is_found_in_the_read_that_brought_all_of_it() {
        let recent = recent(1 << 20);
        recent.insert(source("a"), span(100..200));
        recent.insert(source("a"), span(150..400));
        let found = |object: &str, range: Range<u64>| recent.get(&source(object), &range).map(|span| span.range);
        assert_eq!(found("a", 110..150), Some(100..200));
        assert_eq!(found("a", 160..300), Some(150..400));
        assert_eq!(found("a", 150..190), Some(150..400));
        for missing in [90..110, 390..401, 0..10, 500..600] {
            assert_eq!(found("a", missing.clone()), None, "{missing:?}");
        }
        assert_eq!(found("b", 110..150), None);
    }

    #[test]
    fn a_longer_read_takes_the_place_of_a_shorter_one() {
        let recent = recent(1 << 20);
        recent.insert(source("a"), span(0..64));
        recent.insert(source("a"), span(0..128));
        recent.insert(source("a"), span(0..32));
        assert_eq!(recent.get(&source("a"), &(100..128)).map(|span| span.range), Some(0..128));
        assert_eq!(recent.lock().bytes, 128);
    }

    #[test]
    fn what_was_used_last_stays() {
        let recent = recent(256);
        for start in [0_u64, 1000, 2000, 3000] {
            recent.insert(source("a"), span(start..start + 64));
        }
        assert!(recent.get(&source("a"), &(0..64)).is_some());
        recent.insert(source("b"), span(0..64));
        let kept = |object: &str, start: u64| recent.get(&source(object), &(start..start + 1)).is_some();
        assert_eq!([kept("a", 0), kept("a", 1000), kept("a", 2000), kept("b", 0)], [true, false, true, true]);
        assert_eq!(recent.lock().bytes, 256);
        recent.insert(source("c"), span(0..129));
        assert!(!kept("c", 0), "a read of more than half of all there is is not kept");
    }

    #[test]
    fn a_forgotten_read_is_gone() {
        let recent = recent(1 << 10);
        recent.insert(source("a"), span(10..74));
        recent.forget(&source("a"), 10);
        assert!(recent.get(&source("a"), &(10..74)).is_none());
        assert_eq!(recent.lock().bytes, 0);
        recent.forget(&source("a"), 10);
    }

    #[test]
    fn without_room_nothing_is_kept() {
        let recent = recent(0);
        recent.insert(source("a"), span(0..1));
        assert!(recent.get(&source("a"), &(0..1)).is_none());
    }
}
