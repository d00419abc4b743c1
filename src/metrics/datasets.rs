//! Hits and misses of the cache by dataset.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use prometheus_client::encoding::{EncodeLabelSet, EncodeLabelValue, LabelValueEncoder};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;

/// Longest label, in bytes. Keys have up to 1024; what tells arrays apart stands at the end.
const LABEL_BYTES: usize = 200;

/// The label of all datasets beyond the most that are told apart. The others' hold a slash.
const OTHER: &str = "other";

/// The counters of the first datasets that were asked for.
#[derive(Debug)]
pub(super) struct DatasetTable {
    most: usize,
    chunks: Family<DatasetLabels, Counter>,
    known: Mutex<Known>,
}

#[derive(Debug)]
struct Known {
    /// By bucket and path, so that neither must be copied to look them up.
    datasets: HashMap<Arc<str>, HashMap<Arc<str>, DatasetCounters>>,
    count: usize,
}

/// Found once, so that counting makes no label.
#[derive(Debug, Clone)]
struct DatasetCounters {
    hits: Counter,
    misses: Counter,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct DatasetLabels {
    dataset: Arc<str>,
    outcome: Outcome,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Outcome {
    Hit,
    Miss,
}

impl EncodeLabelValue for Outcome {
    fn encode(&self, encoder: &mut LabelValueEncoder<'_>) -> Result<(), fmt::Error> {
        let label = match self {
            Self::Hit => "hit",
            Self::Miss => "miss",
        };
        EncodeLabelValue::encode(&label, encoder)
    }
}

impl DatasetTable {
    /// Tells `most` datasets apart.
    pub(super) fn new(most: usize) -> Self {
        let known = Known { datasets: HashMap::new(), count: 0 };
        Self { most, chunks: Family::default(), known: Mutex::new(known) }
    }

    /// What is counted.
    pub(super) fn chunks(&self) -> Family<DatasetLabels, Counter> {
        self.chunks.clone()
    }

    pub(super) fn asked(&self, bucket: &Arc<str>, path: &Arc<str>, hits: u64, misses: u64) {
        let counters = self.counters(bucket, path);
        counters.hits.inc_by(hits);
        counters.misses.inc_by(misses);
    }

    fn counters(&self, bucket: &Arc<str>, path: &Arc<str>) -> DatasetCounters {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(counters) = known.datasets.get(bucket).and_then(|paths| paths.get(path)) {
            return counters.clone();
        }
        if known.count >= self.most {
            return self.labelled(OTHER.into());
        }
        known.count += 1;
        let counters = self.labelled(label(bucket, path));
        let paths = known.datasets.entry(Arc::clone(bucket)).or_default();
        paths.insert(Arc::clone(path), counters.clone());
        counters
    }

    fn labelled(&self, dataset: Arc<str>) -> DatasetCounters {
        let counter = |outcome| {
            let labels = DatasetLabels { dataset: Arc::clone(&dataset), outcome };
            self.chunks.get_or_create_owned(&labels)
        };
        DatasetCounters { hits: counter(Outcome::Hit), misses: counter(Outcome::Miss) }
    }
}

/// `bucket/path`, without the beginning of a path that is too long.
fn label(bucket: &str, path: &str) -> Arc<str> {
    let room = LABEL_BYTES.saturating_sub(bucket.len() + 1);
    if path.len() <= room {
        return format!("{bucket}/{path}").into();
    }
    let ellipsis = '…';
    let mut cut = path.len() - room.saturating_sub(ellipsis.len_utf8());
    while !path.is_char_boundary(cut) {
        cut += 1;
    }
    format!("{bucket}/{ellipsis}{}", &path[cut..]).into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::Metrics;

    #[track_caller]
    fn check(metrics: &Metrics, line: &str) {
        let text = metrics.encode();
        assert!(text.lines().any(|found| found == line), "{line}\nin\n{text}");
    }

    #[test]
    fn datasets_beyond_the_most_count_together() {
        let metrics = Metrics::with_datasets(2);
        assert!(metrics.tells_datasets());
        for (bucket, path, hits, misses) in
            [("a", "x", 1, 2), ("b", "x", 3, 0), ("a", "y", 0, 5), ("a", "z", 1, 0), ("a", "x", 10, 0)]
        {
            metrics.dataset_asked(&bucket.into(), &path.into(), hits, misses);
        }
        check(&metrics, "w4dx_dataset_chunks_total{dataset=\"a/x\",outcome=\"hit\"} 11");
        check(&metrics, "w4dx_dataset_chunks_total{dataset=\"a/x\",outcome=\"miss\"} 2");
        check(&metrics, "w4dx_dataset_chunks_total{dataset=\"b/x\",outcome=\"hit\"} 3");
        check(&metrics, "w4dx_dataset_chunks_total{dataset=\"other\",outcome=\"hit\"} 1");
        check(&metrics, "w4dx_dataset_chunks_total{dataset=\"other\",outcome=\"miss\"} 5");
    }

    #[test]
    fn nothing_is_told_of_datasets_unless_asked_for() {
        let metrics = Metrics::new();
        metrics.dataset_asked(&"a".into(), &"x".into(), 1, 1);
        assert!(!metrics.tells_datasets() && !metrics.encode().contains("dataset"));
    }

    #[test]
    fn a_hostile_key_is_one_short_label() {
        let metrics = Metrics::with_datasets(10);
        metrics.dataset_asked(&"b".into(), &"q\"} 1\nw4dx_requests_total \\".into(), 1, 0);
        check(&metrics, r#"w4dx_dataset_chunks_total{dataset="b/q\"} 1\nw4dx_requests_total \\",outcome="hit"} 1"#);
        for path in ["long/".repeat(300), "ü".repeat(600), format!("x{}", "ü".repeat(600))] {
            let label = label("b", &path);
            assert!((LABEL_BYTES - 1..=LABEL_BYTES).contains(&label.len()), "{label}");
            let tail = label.strip_prefix("b/…").expect("cut");
            assert!(path.ends_with(tail));
        }
        assert_eq!(&*label("b", ""), "b/");
        assert_eq!(&*label(&"b".repeat(300), "path"), format!("{}/…", "b".repeat(300)), "buckets are configured");
    }
}
