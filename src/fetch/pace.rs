//! What one store's reads cost, measured, and the hole that is worth reading through.
//!
//! Pure: times are given, nothing is read. Reading through a hole costs its bytes on the link. Leaving it out costs one
//! more request: a fixed piece of work, and a share of the latency where reads queue for their turn. The gap is where
//! both cost the same:
//!
//! `gap = bandwidth × (request + waiting × latency / limit)`
//!
//! Reads under way together share the latency, so one more costs a whole latency only where reads go one by one (limit
//! 1). Where the limit is not reached it costs none of it, and where the link itself is full neither. So `waiting` is
//! `demand² × (1 - busy²)`: how nearly reads use up the limit, and how far the link is from being full. The squares come
//! from `gap_experiment`, which holds the whole of this against fixed gaps: it misses by up to 19 % with `1 - busy`, and
//! hits as well with `demand` or its cube.
//!
//! The known limit: a request's own work is assumed, not measured. Against a store that serves few requests a second
//! (1,000, at 200 MB/s) the gap comes out too small; `limits.gap_bytes` can fix it.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// One completed read.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sample {
    /// When it was sent: waiting for a permit is not the store's time.
    pub(super) sent: Instant,
    /// When its last byte came.
    pub(super) ended: Instant,
    /// Bytes that came.
    pub(super) bytes: u64,
    /// Reads that were under way or waiting when it was asked for, itself included, as a part of the limit.
    pub(super) demand: f64,
}

/// What the window says.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Measured {
    /// What a read takes beside its bytes, usually.
    pub(super) latency: Duration,
    /// Of all reads together, in bytes a second.
    pub(super) bandwidth: f64,
    /// The hole that is worth reading through, in bytes.
    pub(super) gap_bytes: u64,
}

/// The measured model of one store.
#[derive(Debug)]
pub(super) struct Pace {
    window: VecDeque<Sample>,
    /// Samples since the last evaluation.
    fresh: usize,
    /// Mean demand of late.
    demand: f64,
    /// Bandwidths that recent evaluations found. A store has one; whichever traffic hides it now, the median tells.
    bandwidths: VecDeque<f64>,
    request_seconds: f64,
    gap_bytes: u64,
}

/// Reads that are looked at: some dozens of requests' worth, since reads of one request share their luck, and few
/// enough to follow a change within seconds under load.
const WINDOW: usize = 256;

/// Reads before anything is said.
const ENOUGH: usize = 64;

/// Reads between two evaluations, each of which sorts the window twice.
const EVERY: usize = 32;

/// Evaluations whose median bandwidth counts.
const EVALUATIONS: usize = 9;

/// What one more request costs a remote store whatever its latency. S3 serves 5,500 GETs a second and prefix (its
/// performance guidelines), and signing, sending and parsing one costs the gateway about as much.
const REMOTE_REQUEST_SECONDS: f64 = 180e-6;

/// What one more read costs in a folder: a trip to a blocking thread, open, stat, and pread.
const LOCAL_REQUEST_SECONDS: f64 = 20e-6;

/// The gap of a folder that nothing was read from yet: there requests are nearly free.
const LOCAL_PRIOR: u64 = 16 << 10;

/// The gap of a remote store that nothing was read from yet: what eight reads at once, 10 ms away, over 200 MB/s measure
/// under load (`gap_experiment`).
const REMOTE_PRIOR: u64 = 128 << 10;

/// Bounds of the gap. A page is read sooner than a second request is made anywhere; beyond 4 MiB a read holds back
/// what is needed first, however far away the store is.
const GAP_BYTES: std::ops::RangeInclusive<u64> = (4 << 10)..=(4 << 20);

/// Bounds of the bandwidth, in bytes a second: reads that all take equally long cannot show more than they used.
const BANDWIDTH: std::ops::RangeInclusive<f64> = 1e5..=4e9;

/// The quantile of a third of the reads that is held against the other third: the median, which stragglers do not move.
const TYPICAL: f64 = 0.5;

/// How much larger the largest third must be than the smallest to tell a byte's cost, as a factor.
const ALIKE: f64 = 1.25;

/// How much the gap must change to be changed, as a factor: half a grid step of sizes, so that plans of one crop stay
/// the same from one request to the next.
const HYSTERESIS: f64 = 1.3;

/// Weight of one read in the mean demand.
const DEMAND_WEIGHT: f64 = 1.0 / 64.0;

impl Pace {
    /// Nothing measured yet: the gap is the prior of a local or a remote store.
    pub(super) fn new(local: bool) -> Self {
        Self {
            window: VecDeque::with_capacity(WINDOW),
            fresh: 0,
            demand: 0.0,
            bandwidths: VecDeque::with_capacity(EVALUATIONS),
            request_seconds: if local { LOCAL_REQUEST_SECONDS } else { REMOTE_REQUEST_SECONDS },
            gap_bytes: if local { LOCAL_PRIOR } else { REMOTE_PRIOR },
        }
    }

    /// The hole that is worth reading through, in bytes.
    pub(super) fn gap_bytes(&self) -> u64 {
        self.gap_bytes
    }

    /// Adds a read; `limit` is how many may be under way. Now and then this changes what is known.
    pub(super) fn note(&mut self, sample: Sample, limit: usize) -> Option<Measured> {
        if self.window.len() == WINDOW {
            self.window.pop_front();
        }
        self.window.push_back(sample);
        let weight = DEMAND_WEIGHT.max(1.0 / self.window.len() as f64);
        self.demand += weight * (sample.demand.min(1.0) - self.demand);
        self.fresh += 1;
        if self.window.len() < ENOUGH || self.fresh < EVERY {
            return None;
        }
        self.fresh = 0;
        let model = Model::of(&self.window)?;
        if self.bandwidths.len() == EVALUATIONS {
            self.bandwidths.pop_front();
        }
        self.bandwidths.push_back(model.bandwidth);
        let bandwidth = quantile(self.bandwidths.iter().copied(), 0.5);
        let busy = (model.throughput / bandwidth).min(1.0);
        let waiting = self.demand.powi(2) * (1.0 - busy.powi(2));
        let seconds = self.request_seconds + waiting * model.latency / limit.max(1) as f64;
        let gap = (bandwidth * seconds).clamp(*GAP_BYTES.start() as f64, *GAP_BYTES.end() as f64);
        let factor = gap / self.gap_bytes as f64;
        if !(1.0 / HYSTERESIS..=HYSTERESIS).contains(&factor) {
            // Half of the way, as ratios go: what was measured is the traffic that the old gap made.
            self.gap_bytes = (gap * self.gap_bytes as f64).sqrt() as u64;
            // Reads to come are of other sizes and share the link with others: held against these they would seem slow
            // or fast for their size.
            self.window.clear();
        }
        Some(Measured { latency: Duration::from_secs_f64(model.latency), bandwidth, gap_bytes: self.gap_bytes })
    }
}

/// Latency and bandwidth that explain a window of reads.
#[derive(Debug, Clone, Copy)]
struct Model {
    /// Seconds.
    latency: f64,
    /// Bytes a second.
    bandwidth: f64,
    /// Bytes a second that came while reads were under way.
    throughput: f64,
}

impl Model {
    /// `None` where chance hides what a byte costs.
    ///
    /// What one more byte adds to a read, found by holding large reads against small ones, is the time that a byte
    /// takes while others share the link. Times bytes a second it is, by Little's law, how many reads are on the link
    /// at once, `n`; a shared link with `n` on it is busy `n / (1 + n)` of the time (M/G/1, processor sharing); and
    /// what it carried in that part of the time is its bandwidth. What is left of a read without its bytes is latency.
    /// Neither needs the other, and latency that varies hides neither: it adds to large and small reads alike.
    fn of(window: &VecDeque<Sample>) -> Option<Self> {
        let mut reads: Vec<Sample> = window.iter().copied().collect();
        reads.sort_unstable_by_key(|read| read.bytes);
        let byte_seconds = seconds_of_a_byte(&reads)?;
        let beside = |read: &Sample| (read.seconds() - read.bytes as f64 * byte_seconds).max(0.0);
        let latency = quantile(reads.iter().map(beside), 0.5);
        let bytes: f64 = reads.iter().map(|read| read.bytes as f64).sum();
        let throughput = bytes / seconds_under_way(&mut reads).max(f64::MIN_POSITIVE);
        let on_link = byte_seconds * throughput;
        let busy = on_link / (1.0 + on_link);
        let bandwidth = (throughput / busy).clamp(*BANDWIDTH.start(), *BANDWIDTH.end());
        Some(Self { latency, bandwidth, throughput })
    }
}

impl Sample {
    fn seconds(&self) -> f64 {
        self.ended.saturating_duration_since(self.sent).as_secs_f64()
    }
}

/// What one more byte adds to a read, from reads ordered by size: the smallest third against the largest. `None` where
/// chance hides it.
fn seconds_of_a_byte(reads: &[Sample]) -> Option<f64> {
    let third = (reads.len() / 3).max(1).min(reads.len());
    let (small, large) = (&reads[..third], &reads[reads.len() - third..]);
    let mean = |reads: &[Sample]| reads.iter().map(|read| read.bytes as f64).sum::<f64>() / reads.len().max(1) as f64;
    let took = |reads: &[Sample]| quantile(reads.iter().map(Sample::seconds), TYPICAL);
    let (small_bytes, large_bytes) = (mean(small), mean(large));
    let slope = if large_bytes < small_bytes * ALIKE {
        // All alike: nothing tells latency from transfer. Taking all for transfer gives a bandwidth, and a gap, that
        // are rather too small.
        took(large) / large_bytes.max(1.0)
    } else {
        (took(large) - took(small)) / (large_bytes - small_bytes)
    };
    (slope > 1.0 / *BANDWIDTH.end()).then_some(slope)
}

/// How long at least one of the reads was under way.
fn seconds_under_way(reads: &mut [Sample]) -> f64 {
    reads.sort_unstable_by_key(|read| read.sent);
    let mut covered = Duration::ZERO;
    let mut until: Option<Instant> = None;
    for read in reads {
        let start = until.map_or(read.sent, |until| until.max(read.sent));
        covered += read.ended.saturating_duration_since(start);
        until = Some(until.map_or(read.ended, |until| until.max(read.ended)));
    }
    covered.as_secs_f64()
}

fn quantile(values: impl Iterator<Item = f64>, at: f64) -> f64 {
    let mut values: Vec<f64> = values.collect();
    if values.is_empty() {
        return 0.0;
    }
    let at = ((values.len() - 1) as f64 * at) as usize;
    *values.select_nth_unstable_by(at, f64::total_cmp).1
}

#[cfg(test)]
mod tests {
    use super::*;

    const MEGABYTE: f64 = 1e6;

    /// Reads one after the other, of alternating sizes.
    struct Lone {
        pace: Pace,
        now: Instant,
        last: Option<Measured>,
    }

    impl Lone {
        fn new(local: bool) -> Self {
            Self { pace: Pace::new(local), now: Instant::now(), last: None }
        }

        fn read(&mut self, count: u64, latency_ms: f64, megabytes_per_second: f64, sizes: [u64; 2], demand: f64) {
            for i in 0..count {
                let bytes = sizes[(i % 2) as usize];
                let seconds = latency_ms / 1e3 + bytes as f64 / megabytes_per_second / MEGABYTE;
                let (sent, ended) = (self.now, self.now + Duration::from_secs_f64(seconds));
                self.now = ended;
                let measured = self.pace.note(Sample { sent, ended, bytes, demand }, 4);
                self.last = measured.or(self.last);
            }
        }
    }

    fn close(value: f64, expected: f64) {
        assert!((value / expected - 1.0).abs() < 0.1, "{value}, not about {expected}");
    }

    /// The gap stops moving once it is as near as a change must be large.
    fn settled(pace: &Pace, expected: f64) {
        let gap = pace.gap_bytes() as f64;
        assert!((expected / HYSTERESIS..=expected * HYSTERESIS).contains(&gap), "{gap}, not about {expected}");
    }

    #[test]
    fn nothing_is_said_before_enough_was_read() {
        let mut lone = Lone::new(false);
        lone.read(63, 10.0, 100.0, [10_000, 100_000], 0.1);
        assert_eq!((lone.last, lone.pace.gap_bytes()), (None, REMOTE_PRIOR));
        assert_eq!(Pace::new(true).gap_bytes(), LOCAL_PRIOR);
    }

    #[test]
    fn latency_and_bandwidth_are_told_apart() {
        for (latency_ms, megabytes_per_second) in [(1.0, 20.0), (10.0, 200.0), (50.0, 200.0), (0.1, 1000.0)] {
            let mut lone = Lone::new(false);
            lone.read(400, latency_ms, megabytes_per_second, [50_000, 150_000], 0.1);
            let measured = lone.last.unwrap();
            close(measured.latency.as_secs_f64(), latency_ms / 1e3);
            // One read at a time never shares the link, which the model takes for luck: up to twice as much.
            let factor = measured.bandwidth / MEGABYTE / megabytes_per_second;
            assert!((1.0..=2.0).contains(&factor), "{measured:?}");
        }
    }

    #[test]
    fn waiting_for_a_place_makes_the_gap_a_share_of_the_latency() {
        let mut idle = Lone::new(false);
        idle.read(1000, 50.0, 100.0, [50_000, 150_000], 0.1);
        let mut short = Lone::new(false);
        short.read(1000, 50.0, 100.0, [50_000, 150_000], 1.0);
        // 180 µs at 100 MB/s; and a quarter of 50 ms, since the limit is four, times demand squared.
        settled(&idle.pace, 18e3 + 12e3);
        settled(&short.pace, 1.3e6);
    }

    #[test]
    fn reads_that_are_all_alike_give_a_small_gap_not_a_large_one() {
        let mut lone = Lone::new(false);
        lone.read(400, 10.0, 1000.0, [50_000, 50_000], 1.0);
        assert!(lone.last.unwrap().bandwidth < 11.0 * MEGABYTE);
        assert!(lone.pace.gap_bytes() < REMOTE_PRIOR);
    }

    #[test]
    fn the_gap_stays_within_its_bounds() {
        let mut slow = Lone::new(false);
        slow.read(2000, 0.0, 0.01, [50_000, 150_000], 0.0);
        settled(&slow.pace, *GAP_BYTES.start() as f64);
        assert!(slow.pace.gap_bytes() >= *GAP_BYTES.start());
        let mut far = Lone::new(false);
        far.read(2000, 2000.0, 500.0, [50_000, 1_500_000], 1.0);
        settled(&far.pace, *GAP_BYTES.end() as f64);
        assert!(far.pace.gap_bytes() <= *GAP_BYTES.end());
    }

    #[test]
    fn a_small_change_changes_no_plan() {
        let mut lone = Lone::new(false);
        lone.read(1000, 10.0, 100.0, [50_000, 150_000], 0.1);
        let before = lone.pace.gap_bytes();
        lone.read(1000, 10.0, 115.0, [50_000, 150_000], 0.1);
        assert_eq!(lone.pace.gap_bytes(), before);
        lone.read(2000, 10.0, 600.0, [50_000, 150_000], 0.1);
        assert!(lone.pace.gap_bytes() > 2 * before);
    }

    #[test]
    fn a_clock_that_stands_still_divides_nothing_by_zero() {
        let mut pace = Pace::new(false);
        let now = Instant::now();
        for bytes in 0..400 {
            pace.note(Sample { sent: now, ended: now, bytes, demand: f64::NAN }, 0);
        }
        assert_eq!(pace.gap_bytes(), REMOTE_PRIOR, "nothing could be learned");
    }
}
