//! One ranged read: in its turn, at its version, tried again while that can help, twice where the first is slow.
//!
//! Who tries again: this module, and nobody beneath it. It asks by [`Store::get_once`], which the backends send without
//! the retries of their SDKs, so that attempts do not multiply and every sign of overload lowers the limit at once.
//! Reads of metadata and indexes go by [`Store::get`] instead, whose retries are the SDK's.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use futures::future::{Either, select};

use super::clock::Clock;
use super::hedges::Hedges;
use super::limit::{Limit, Permit};
use super::pace::{Pace, Sample};
use crate::metrics::{Metrics, ReadMeter};
use crate::model::{ByteRange, Version};
use crate::store::{Bucket, Fetched, Store, StoreError};

/// Times that one read is sent, the second reads of slow ones not counted: the first and the AWS SDK's ordinary two
/// more, and one more still, since the limit falls meanwhile.
const ATTEMPTS: u32 = 4;

/// Longest pause before the second attempt; it doubles with each. The AWS SDKs' base is a second, for clients that no
/// person waits for.
const FIRST_PAUSE: Duration = Duration::from_millis(100);

/// Longest pause of all, as the AWS SDKs have it.
const LONGEST_PAUSE: Duration = Duration::from_secs(20);

/// How reads of every store are run.
#[derive(Debug, Clone, Copy)]
pub(super) struct ReaderSettings {
    /// Reads under way at once, for each store, at most.
    pub(super) store_concurrency: usize,
    /// Largest hole that is read through, in bytes; `None` measures.
    pub(super) gap_bytes: Option<u64>,
}

/// The readers of all stores. Cheap to clone; clones share what they measure.
#[derive(Debug, Clone)]
pub(super) struct Readers {
    /// By the names of configured stores, never of buckets, which clients invent.
    stores: Arc<Mutex<HashMap<Arc<str>, Arc<Shared>>>>,
    settings: ReaderSettings,
    metrics: Metrics,
    clock: Clock,
}

/// What reads of one store share, whatever bucket they are for.
#[derive(Debug)]
struct Shared {
    local: bool,
    limit: Arc<Limit>,
    learned: Mutex<Learned>,
    gap_bytes: AtomicU64,
    fixed_gap: bool,
    meter: ReadMeter,
    clock: Clock,
}

#[derive(Debug)]
struct Learned {
    pace: Pace,
    hedges: Hedges,
}

/// Reads objects of one bucket. Cheap to clone.
#[derive(Debug, Clone)]
pub(super) struct StoreReader {
    store: Arc<dyn Store>,
    shared: Arc<Shared>,
}

impl Readers {
    /// Readers that know nothing yet.
    pub(super) fn new(settings: ReaderSettings, metrics: Metrics) -> Self {
        Self::with_clock(settings, metrics, Clock::default())
    }

    pub(super) fn with_clock(settings: ReaderSettings, metrics: Metrics, clock: Clock) -> Self {
        Self { stores: Arc::default(), settings, metrics, clock }
    }

    /// The reader of a bucket.
    pub(super) fn of(&self, bucket: &Bucket) -> StoreReader {
        let mut stores = self.stores.lock().unwrap_or_else(PoisonError::into_inner);
        let shared = match stores.get(&bucket.store_name) {
            Some(shared) => Arc::clone(shared),
            None => {
                let shared = Arc::new(self.shared(&bucket.store_name, bucket.store.is_local()));
                stores.insert(Arc::clone(&bucket.store_name), Arc::clone(&shared));
                shared
            }
        };
        StoreReader { store: Arc::clone(&bucket.store), shared }
    }

    fn shared(&self, store: &str, local: bool) -> Shared {
        let pace = Pace::new(local);
        let gap_bytes = self.settings.gap_bytes.unwrap_or(pace.gap_bytes());
        let meter = self.metrics.read_meter(store);
        meter.gap(gap_bytes);
        Shared {
            local,
            limit: Limit::new(self.settings.store_concurrency),
            learned: Mutex::new(Learned { pace, hedges: Hedges::new() }),
            gap_bytes: AtomicU64::new(gap_bytes),
            fixed_gap: self.settings.gap_bytes.is_some(),
            meter,
            clock: self.clock.clone(),
        }
    }
}

impl StoreReader {
    /// The largest hole, in bytes, that is worth reading through.
    pub(super) fn gap_bytes(&self) -> u64 {
        self.shared.gap_bytes.load(Ordering::Relaxed)
    }

    /// Reads a part of an object, at a version if one is given, within `deadline`.
    ///
    /// # Errors
    /// Those of [`Store::get`]; [`StoreError::Throttled`] when the turn never came, [`StoreError::Timeout`] when the
    /// answer did not. What is absent, denied, changed or wrong is told at once.
    pub(super) async fn read(
        &self,
        key: &str,
        range: Range<u64>,
        if_match: Option<&Version>,
        deadline: Instant,
    ) -> Result<Fetched, StoreError> {
        let asked = Asked { store: self.store.as_ref(), key, range, if_match, deadline };
        let mut attempts = 1;
        loop {
            let error = match self.shared.attempt(&asked).await {
                Ok(fetched) => return Ok(fetched),
                Err(error) => error,
            };
            let again = self.shared.clock.now() + pause(attempts, rand::random());
            if !error.is_transient() || attempts == ATTEMPTS || again >= deadline {
                return Err(error);
            }
            attempts += 1;
            self.shared.meter.retried();
            self.shared.clock.sleep_until(again).await;
        }
    }
}

/// How long to wait before the attempt after `attempts`, with `chance` of 0 to 1: full jitter, so that those who were
/// refused together do not come back together (Brooker, "Exponential Backoff and Jitter", 2015).
fn pause(attempts: u32, chance: f64) -> Duration {
    let longest = FIRST_PAUSE.saturating_mul(1 << (attempts - 1).min(16)).min(LONGEST_PAUSE);
    longest.mul_f64(chance.clamp(0.0, 1.0))
}

/// One read, as it is sent, however often: always the same bytes at the same version.
struct Asked<'a> {
    store: &'a dyn Store,
    key: &'a str,
    range: Range<u64>,
    if_match: Option<&'a Version>,
    deadline: Instant,
}

impl Shared {
    fn learned(&self) -> MutexGuard<'_, Learned> {
        self.learned.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One attempt: waits for its turn, sends the read, and a second one when the first is slow.
    async fn attempt(&self, asked: &Asked<'_>) -> Result<Fetched, StoreError> {
        let demand = (self.limit.wanted() + 1) as f64 / self.limit.allowed() as f64;
        let turn = self.clock.until(asked.deadline, self.limit.acquire()).await;
        let permit = turn.ok_or(StoreError::Throttled)?;
        let sent = self.clock.now();
        let answer = self.clock.until(asked.deadline, self.race(asked, permit, sent, demand)).await;
        let fetched = answer.unwrap_or_else(|| Err(StoreError::Timeout { key: asked.key.to_owned() }))?;
        let took = self.clock.now().saturating_duration_since(sent);
        self.learned().hedges.note(asked.bytes(), took);
        Ok(fetched)
    }

    /// The first answer of a read and, if it is slow, of a second one. The other is dropped.
    async fn race(&self, asked: &Asked<'_>, permit: Permit, sent: Instant, demand: f64) -> Result<Fetched, StoreError> {
        let mut first = Box::pin(self.send(asked, permit, demand));
        let slow_after = if self.local { None } else { self.learned().hedges.slow_after(asked.bytes()) };
        if let Some(slow_after) = slow_after {
            if let Some(answer) = self.clock.until(sent + slow_after, &mut first).await {
                return answer;
            }
            // A store that is busy to the limit is not helped by more reads.
            if let Some(permit) = self.limit.try_acquire()
                && self.learned().hedges.take()
            {
                self.meter.hedged();
                let second = Box::pin(self.send(asked, permit, demand));
                return match select(first, second).await {
                    Either::Left((answer, other)) => settled(answer, other).await,
                    Either::Right((answer, other)) => settled(answer, other).await,
                };
            }
        }
        first.await
    }

    /// Sends a read once, and learns from it.
    async fn send(&self, asked: &Asked<'_>, permit: Permit, demand: f64) -> Result<Fetched, StoreError> {
        let sent = self.clock.now();
        let range = ByteRange::Bounded(asked.range.clone());
        let answer = asked.store.get_once(asked.key, range, asked.if_match).await;
        let ended = self.clock.now();
        match &answer {
            Ok(fetched) => {
                self.limit.answered();
                self.note(Sample { sent, ended, bytes: fetched.bytes.len() as u64, demand });
            }
            Err(error) if error.is_overload() => {
                self.limit.overloaded(sent, ended);
                self.meter.throttled();
            }
            // A refusal of a condition is quicker than bytes are, and a broken connection says nothing of pace.
            Err(_) => {}
        }
        drop(permit);
        answer
    }

    fn note(&self, sample: Sample) {
        let measured = self.learned().pace.note(sample, self.limit.allowed());
        let Some(measured) = measured else { return };
        self.meter.measured(measured.latency, measured.bandwidth);
        if !self.fixed_gap {
            self.gap_bytes.store(measured.gap_bytes, Ordering::Relaxed);
            self.meter.gap(measured.gap_bytes);
        }
    }
}

/// The first answer, unless it failed in passing: then the other one.
async fn settled(
    answer: Result<Fetched, StoreError>,
    other: impl Future<Output = Result<Fetched, StoreError>>,
) -> Result<Fetched, StoreError> {
    match answer {
        Err(error) if error.is_transient() => other.await,
        answer => answer,
    }
}

impl Asked<'_> {
    fn bytes(&self) -> u64 {
        self.range.end.saturating_sub(self.range.start)
    }
}

#[cfg(test)]
mod tests {
    use super::super::emulated_store::{Emulated, EmulatedStore};
    use super::super::virtual_time::VirtualTime;
    use super::*;
    use crate::store::{AnonymousAccess, Call, Fault, FaultyStore, Freshness};

    const SECOND: Duration = Duration::from_secs(1);

    /// A store 20 ms away, in virtual time, that fails on demand.
    const FAR: Emulated = Emulated {
        latency: Duration::from_millis(20),
        jitter: Duration::ZERO,
        slow_every: 0,
        request: Duration::ZERO,
        bandwidth: 1e9,
    };

    struct Bench {
        time: VirtualTime,
        store: FaultyStore,
        readers: Readers,
        metrics: Metrics,
    }

    fn bench(what: Emulated, store_concurrency: usize) -> Bench {
        let time = VirtualTime::new();
        let store = FaultyStore::new(Arc::new(EmulatedStore::new(what, &time, 1 << 20)));
        let metrics = Metrics::new();
        let settings = ReaderSettings { store_concurrency, gap_bytes: None };
        let readers = Readers::with_clock(settings, metrics.clone(), Clock::Virtual(time.clone()));
        Bench { time, store, readers, metrics }
    }

    impl Bench {
        fn bucket(&self, name: &str, store_name: &str) -> Bucket {
            Bucket {
                name: name.into(),
                store_name: store_name.into(),
                store: Arc::new(self.store.clone()),
                freshness: Freshness::Immutable,
                anonymous: AnonymousAccess::Read,
                writable: false,
                in_key_form: false,
            }
        }

        fn reader(&self) -> StoreReader {
            self.readers.of(&self.bucket("b", "far"))
        }

        /// One read of a kilobyte at version `v`, with a deadline.
        fn read(&self, key: &str, patience: Duration) -> Result<Fetched, StoreError> {
            let reader = self.reader();
            let version = Version::new("v");
            self.time.run(reader.read(key, 0..1000, Some(&version), self.time.now() + patience))
        }

        /// Reads one after the other.
        fn warm_up(&self, reads: usize) {
            (0..reads).for_each(|_| {
                self.read("warm", 60 * SECOND).unwrap();
            });
            self.store.forget_calls();
        }

        fn gauge(&self, name: &str) -> f64 {
            let text = self.metrics.encode();
            let line = format!("w4dx_store_{name}{{store=\"far\"}} ");
            text.lines().find_map(|found| found.strip_prefix(&line)).unwrap().parse().unwrap()
        }

        fn counted(&self, name: &str) -> u64 {
            self.gauge(&format!("{name}_total")) as u64
        }
    }

    #[test]
    fn what_passes_is_tried_again_at_the_same_version() {
        for fault in [Fault::Status(503), Fault::Status(504), Fault::Reset, Fault::TruncateAfter(10)] {
            let bench = bench(FAR, 4);
            bench.store.next("k", 2, fault.clone());
            assert_eq!(bench.read("k", 60 * SECOND).unwrap().bytes.len(), 1000, "{fault:?}");
            let call = Call {
                operation: "get",
                key: "k".into(),
                range: Some(ByteRange::Bounded(0..1000)),
                if_match: Some(Version::new("v")),
            };
            assert_eq!(bench.store.calls(), vec![call; 3], "{fault:?}");
            assert_eq!(bench.counted("retries"), 2);
        }
    }

    #[test]
    fn what_is_absent_denied_changed_or_wrong_is_told_at_once() {
        for fault in [Fault::Status(404), Fault::Status(403), Fault::Status(412), Fault::Status(400), Fault::Changed] {
            let bench = bench(FAR, 4);
            bench.store.always("k", fault.clone());
            let error = bench.read("k", 60 * SECOND).unwrap_err();
            assert!(!error.is_transient(), "{fault:?}: {error}");
            assert_eq!(bench.store.calls().len(), 1, "{fault:?}");
        }
    }

    #[test]
    fn attempts_end_with_their_number_or_the_deadline() {
        let hopeless = bench(FAR, 4);
        hopeless.store.always("k", Fault::Reset);
        assert!(matches!(hopeless.read("k", 60 * SECOND), Err(StoreError::Interrupted { .. })));
        assert_eq!(hopeless.store.calls().len(), ATTEMPTS as usize);

        let silent = bench(FAR, 4);
        silent.store.always("k", Fault::Hang);
        let started = silent.time.now();
        assert!(matches!(silent.read("k", 5 * SECOND), Err(StoreError::Timeout { .. })));
        assert_eq!(silent.time.now() - started, 5 * SECOND);
        assert_eq!(silent.store.calls().len(), 1);
    }

    #[test]
    fn pauses_double_and_are_drawn_from_zero_up() {
        assert_eq!(pause(1, 1.0), FIRST_PAUSE);
        assert_eq!(pause(3, 1.0), 4 * FIRST_PAUSE);
        assert_eq!(pause(3, 0.0), Duration::ZERO);
        assert_eq!(pause(u32::MAX, 1.0), LONGEST_PAUSE);
    }

    #[test]
    fn buckets_of_one_store_share_its_limit_and_stores_do_not() {
        let bench = bench(FAR, 2);
        let (one, two) = (bench.readers.of(&bench.bucket("b1", "far")), bench.readers.of(&bench.bucket("b2", "far")));
        let other = bench.readers.of(&bench.bucket("b3", "other"));
        let (start, far) = (bench.time.now(), bench.time.now() + 60 * SECOND);
        let took = |reader: StoreReader| {
            let bench = &bench;
            async move {
                reader.read("k", 0..10, None, far).await.unwrap();
                (bench.time.now() - start).as_millis()
            }
        };
        let reads = [one.clone(), one, two.clone(), two, other].map(took);
        let took = bench.time.run(futures::future::join_all(reads));
        assert_eq!(took, [20, 20, 40, 40, 20]);
        for i in 0..100 {
            bench.readers.of(&bench.bucket(&format!("hostile-{i}"), "far"));
        }
        assert_eq!(bench.readers.stores.lock().unwrap().len(), 2);
    }

    #[test]
    fn a_turn_that_never_comes_is_overload() {
        let bench = bench(FAR, 1);
        bench.store.always("stuck", Fault::Hang);
        let (reader, now) = (bench.reader(), bench.time.now());
        let (stuck, late) = bench.time.run(async {
            futures::join!(
                reader.read("stuck", 0..10, None, now + 10 * SECOND),
                reader.read("k", 0..10, None, now + SECOND)
            )
        });
        assert!(matches!(stuck, Err(StoreError::Timeout { .. })));
        assert!(matches!(late, Err(StoreError::Throttled)));
    }

    #[test]
    fn a_store_that_asks_for_less_gets_less_and_more_again_when_it_recovers() {
        let bench = bench(FAR, 16);
        let (reader, deadline) = (bench.reader(), bench.time.now() + 600 * SECOND);
        let burst = |count: usize| {
            let reads = (0..count).map(|_| reader.read("k", 0..10, None, deadline));
            bench.time.run(futures::future::join_all(reads))
        };
        bench.store.next("k", 16, Fault::Status(503));
        assert!(burst(16).iter().all(Result::is_ok), "each was tried again");
        let limit = &reader.shared.limit;
        assert!((1..=9).contains(&limit.allowed()), "{}", limit.allowed());
        assert_eq!(bench.counted("throttled"), 16);
        burst(400);
        assert_eq!(limit.allowed(), 16);
        assert_eq!(limit.wanted(), 0, "every permit came back");
    }

    #[test]
    fn a_slow_read_is_asked_twice_and_the_first_answer_counts() {
        let bench = bench(FAR, 4);
        bench.warm_up(100);
        bench.store.next("k", 1, Fault::Hang);
        let started = bench.time.now();
        assert_eq!(bench.read("k", 60 * SECOND).unwrap().bytes.len(), 1000);
        let took = bench.time.now() - started;
        assert!(took < Duration::from_millis(70), "twice the median, and a second read: {took:?}");
        let calls = bench.store.calls();
        assert_eq!((calls.len(), &calls[0]), (2, &calls[1]), "the same bytes at the same version");
        assert_eq!((bench.counted("hedges"), bench.counted("retries")), (1, 0));
        assert_eq!(bench.reader().shared.limit.wanted(), 0, "the loser is dropped");
    }

    #[test]
    fn a_second_read_that_fails_in_passing_leaves_the_first_alone() {
        let bench = bench(Emulated { slow_every: 102, ..FAR }, 4);
        bench.warm_up(101);
        // The next one takes twenty times the latency; the second one is refused.
        bench.store.nth("k", 1, Fault::Status(503));
        let started = bench.time.now();
        assert!(bench.read("k", 60 * SECOND).is_ok());
        assert_eq!((bench.time.now() - started).as_millis(), 400);
        assert_eq!(bench.store.calls().len(), 2);
    }

    #[test]
    fn the_tail_is_cut_for_a_few_per_cent_of_the_reads() {
        let bench = bench(Emulated { slow_every: 50, ..FAR }, 4);
        bench.warm_up(100);
        let mut slow = 0;
        for _ in 0..1000 {
            let started = bench.time.now();
            bench.read("k", 60 * SECOND).unwrap();
            slow += usize::from(bench.time.now() - started > Duration::from_millis(100));
        }
        let hedges = bench.counted("hedges");
        assert_eq!(slow, 0, "one in fifty would have been");
        assert!((15..=33).contains(&hedges), "{hedges}");
    }

    #[test]
    fn a_busy_store_is_not_asked_twice() {
        let bench = bench(FAR, 1);
        bench.warm_up(100);
        bench.store.next("k", 1, Fault::Hang);
        assert!(bench.read("k", SECOND).is_err());
        assert_eq!(bench.counted("hedges"), 0);
    }

    #[test]
    fn a_fixed_gap_stays_and_a_measured_one_is_shown() {
        for gap_bytes in [None, Some(7)] {
            let mut bench = bench(FAR, 4);
            let settings = ReaderSettings { store_concurrency: 4, gap_bytes };
            bench.readers = Readers::with_clock(settings, bench.metrics.clone(), Clock::Virtual(bench.time.clone()));
            let reader = bench.reader();
            let deadline = bench.time.now() + 600 * SECOND;
            for i in 1..300 {
                bench.time.run(reader.read("k", 0..1000 * (i % 10 + 1), None, deadline)).unwrap();
            }
            match gap_bytes {
                Some(gap) => assert_eq!(reader.gap_bytes(), gap),
                None => assert_ne!(reader.gap_bytes(), Pace::new(false).gap_bytes()),
            }
            let text = bench.metrics.encode();
            assert!(
                text.contains(&format!("w4dx_store_gap_bytes{{store=\"far\"}} {}\n", reader.gap_bytes())),
                "{text}"
            );
            let (latency, bandwidth) = (bench.gauge("latency_seconds"), bench.gauge("bandwidth_bytes"));
            assert!((0.019..0.021).contains(&latency), "{latency}");
            assert!((0.5e9..2e9).contains(&bandwidth), "{bandwidth}");
        }
    }
}
