//! When a second, identical read is worth sending, and how many of them may be.
//!
//! Dean and Barroso, "The Tail at Scale" (2013): a second request after the 95th percentile of the first cuts the tail
//! for a few per cent more load.

use std::collections::VecDeque;
use std::time::Duration;

/// The quantile of recent reads beyond which one is slow: that paper's.
const SLOW: f64 = 0.95;

/// A read that is not twice as slow as the median gains nothing: the second one takes a median time itself.
const TIMES_MEDIAN: f64 = 2.0;

/// Nothing faster is worth a second request: below it a garbage collector or a scheduler is the usual cause, and the
/// second read would meet the same.
const LEAST_SECONDS: f64 = 0.010;

/// Reads by which a size class is judged: enough for a 95th percentile of six, few enough to follow a change.
const RECENT: usize = 128;

/// Reads before which a class is not judged.
const ENOUGH: usize = 32;

/// Second reads per read, in the long run: what the store's owner has to bear for our tail.
const SHARE: f64 = 0.03;

/// Second reads that may be saved up for a bad moment.
const SAVED: f64 = 8.0;

/// Upper bounds of the size classes in bytes: sizes within a factor of four take about as long.
const CLASSES: [u64; 4] = [64 << 10, 256 << 10, 1 << 20, 4 << 20];

/// What recent reads of one store took, by size class, and the budget of second reads.
#[derive(Debug)]
pub(super) struct Hedges {
    recent: [VecDeque<f64>; CLASSES.len() + 1],
    budget: f64,
}

impl Hedges {
    /// Nothing known, and nothing saved up.
    pub(super) fn new() -> Self {
        Self { recent: Default::default(), budget: 0.0 }
    }

    /// A read of so many bytes had its answer after so long, whichever of two reads gave it.
    pub(super) fn note(&mut self, bytes: u64, took: Duration) {
        self.budget = (self.budget + SHARE).min(SAVED);
        let recent = &mut self.recent[class(bytes)];
        if recent.len() == RECENT {
            recent.pop_front();
        }
        recent.push_back(took.as_secs_f64());
    }

    /// How long a read of so many bytes may take before it is slow; `None` while too little is known.
    pub(super) fn slow_after(&self, bytes: u64) -> Option<Duration> {
        let recent = &self.recent[class(bytes)];
        if recent.len() < ENOUGH {
            return None;
        }
        let mut sorted: Vec<f64> = recent.iter().copied().collect();
        sorted.sort_unstable_by(f64::total_cmp);
        let at = |quantile: f64| sorted[((sorted.len() - 1) as f64 * quantile) as usize];
        Some(Duration::from_secs_f64(at(SLOW).max(TIMES_MEDIAN * at(0.5)).max(LEAST_SECONDS)))
    }

    /// Takes one second read from the budget, if there is one.
    pub(super) fn take(&mut self) -> bool {
        let may = self.budget >= 1.0;
        if may {
            self.budget -= 1.0;
        }
        may
    }
}

fn class(bytes: u64) -> usize {
    CLASSES.partition_point(|bound| *bound < bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slow_is_beyond_most_and_twice_the_median_of_its_size() {
        let mut hedges = Hedges::new();
        for i in 0..100 {
            hedges.note(1000, Duration::from_millis(20 + i / 10));
            hedges.note(2 << 20, Duration::from_millis(if i % 10 == 0 { 900 } else { 100 }));
        }
        assert_eq!(hedges.slow_after(50_000), Some(Duration::from_millis(48)), "twice the median");
        assert_eq!(hedges.slow_after(3 << 20), Some(Duration::from_millis(900)), "the 95th percentile");
        assert_eq!(hedges.slow_after(512 << 10), None, "none of that size was seen");
    }

    #[test]
    fn fast_reads_are_left_alone() {
        let mut hedges = Hedges::new();
        (0..100).for_each(|_| hedges.note(1000, Duration::from_micros(80)));
        assert_eq!(hedges.slow_after(1000), Some(Duration::from_millis(10)));
    }

    #[test]
    fn second_reads_are_a_few_per_cent() {
        let mut hedges = Hedges::new();
        assert!(!hedges.take());
        let mut taken = 0;
        for _ in 0..1000 {
            hedges.note(1, Duration::from_millis(1));
            taken += usize::from(hedges.take());
        }
        assert!((25..=30).contains(&taken), "{taken}");
        (0..1000).for_each(|_| hedges.note(1, Duration::from_millis(1)));
        assert_eq!((0..100).filter(|_| hedges.take()).count(), SAVED as usize);
    }
}
