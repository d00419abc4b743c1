//! How many reads of one store may be under way: as many as configured, fewer while the store says that it is too many.
//!
//! Additive increase, multiplicative decrease, as TCP does: whoever shares a store this way ends with a fair part of it.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// What is left of the limit after the store asked for fewer requests: TCP's half.
const DECREASE: f64 = 0.5;

/// The reads that may be under way at one store, first come, first served.
#[derive(Debug)]
pub(super) struct Limit {
    permits: Arc<Semaphore>,
    most: usize,
    /// Reads that have a permit or wait for one.
    wanted: AtomicUsize,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// The limit; its whole part counts.
    allowed: f64,
    /// Permits that exist, those that are to vanish when they come back included.
    existing: usize,
    lowered: Option<Instant>,
}

/// The right to one read, or a place among those who wait for it. Given back when dropped.
#[derive(Debug)]
pub(super) struct Permit {
    permit: Option<OwnedSemaphorePermit>,
    limit: Arc<Limit>,
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.limit.wanted.fetch_sub(1, Ordering::Relaxed);
        let mut state = self.limit.state();
        if state.existing > state.whole()
            && let Some(permit) = self.permit.take()
        {
            permit.forget();
            state.existing -= 1;
        }
    }
}

impl State {
    fn whole(&self) -> usize {
        self.allowed as usize
    }
}

impl Limit {
    /// A limit that begins at `most`, never rises above it, and never falls below one.
    pub(super) fn new(most: usize) -> Arc<Self> {
        let most = most.clamp(1, Semaphore::MAX_PERMITS);
        Arc::new(Self {
            permits: Arc::new(Semaphore::new(most)),
            most,
            wanted: AtomicUsize::new(0),
            state: Mutex::new(State { allowed: most as f64, existing: most, lowered: None }),
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads that may be under way now.
    pub(super) fn allowed(&self) -> usize {
        self.state().whole()
    }

    /// Reads that are under way or want to be.
    pub(super) fn wanted(&self) -> usize {
        self.wanted.load(Ordering::Relaxed)
    }

    /// Waits for a permit.
    pub(super) async fn acquire(self: &Arc<Self>) -> Permit {
        self.wanted.fetch_add(1, Ordering::Relaxed);
        // Made before it is held: who gives up waiting is no longer counted either.
        let mut permit = Permit { permit: None, limit: Arc::clone(self) };
        // The semaphore is never closed.
        permit.permit = Arc::clone(&self.permits).acquire_owned().await.ok();
        permit
    }

    /// A permit if one is free and nobody waits.
    pub(super) fn try_acquire(self: &Arc<Self>) -> Option<Permit> {
        let permit = Arc::clone(&self.permits).try_acquire_owned().ok()?;
        self.wanted.fetch_add(1, Ordering::Relaxed);
        Some(Permit { permit: Some(permit), limit: Arc::clone(self) })
    }

    /// The store answered: one more read after as many answers as there are reads, if reads wait for it at all.
    pub(super) fn answered(&self) {
        let mut state = self.state();
        if state.whole() < self.most && self.wanted() >= state.whole() {
            state.allowed = (state.allowed + 1.0 / state.allowed).min(self.most as f64);
            while state.existing < state.whole() {
                self.permits.add_permits(1);
                state.existing += 1;
            }
        }
    }

    /// The store asked for less when it was sent a read at `sent`. Reads that were under way already when the limit was
    /// lowered say nothing new.
    pub(super) fn overloaded(&self, sent: Instant, now: Instant) {
        let mut state = self.state();
        if state.lowered.is_some_and(|lowered| sent < lowered) {
            return;
        }
        state.lowered = Some(now);
        state.allowed = (state.allowed * DECREASE).max(1.0);
        // Permits that are out vanish when they come back.
        while state.existing > state.whole()
            && let Ok(permit) = self.permits.try_acquire()
        {
            permit.forget();
            state.existing -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use futures::FutureExt as _;

    use super::*;

    #[test]
    fn each_wave_of_refusals_halves_the_limit_once_and_never_below_one() {
        let limit = Limit::new(16);
        let start = Instant::now();
        let second = Duration::from_secs(1);
        limit.overloaded(start, start + second);
        limit.overloaded(start, start + 2 * second);
        assert_eq!(limit.allowed(), 8, "both were sent before the limit was lowered");
        for i in 2..10 {
            limit.overloaded(start + i * second, start + i * second);
        }
        assert_eq!(limit.allowed(), 1);
    }

    #[test]
    fn permits_follow_the_limit() {
        let limit = Limit::new(4);
        let mut held: Vec<Permit> = (0..4).map(|_| limit.try_acquire().unwrap()).collect();
        limit.overloaded(Instant::now(), Instant::now());
        assert_eq!(limit.allowed(), 2);
        held.truncate(2);
        assert!(limit.try_acquire().is_none(), "two are under way, two may be");
        held.truncate(1);
        assert!(limit.try_acquire().is_some());
        drop(held);
        let held: Vec<Permit> = std::iter::from_fn(|| limit.try_acquire()).collect();
        assert_eq!(held.len(), 2);
    }

    #[test]
    fn the_limit_rises_by_one_a_round_up_to_the_most_and_only_where_reads_want_it() {
        let limit = Limit::new(4);
        limit.overloaded(Instant::now(), Instant::now());
        (0..100).for_each(|_| limit.answered());
        assert_eq!(limit.allowed(), 2, "nobody asked for more");
        let mut held: Vec<Permit> = std::iter::from_fn(|| limit.try_acquire()).collect();
        (0..3).for_each(|_| limit.answered());
        assert_eq!(limit.allowed(), 3);
        held.extend(limit.try_acquire());
        assert_eq!(held.len(), 3);
        (0..100).for_each(|_| {
            limit.answered();
            held.extend(limit.try_acquire());
        });
        assert_eq!((limit.allowed(), held.len()), (4, 4));
    }

    #[test]
    fn who_gives_up_waiting_is_no_longer_counted() {
        let limit = Limit::new(1);
        let held = limit.acquire().now_or_never().unwrap();
        assert!(limit.acquire().now_or_never().is_none());
        assert_eq!(limit.wanted(), 1);
        drop(held);
        assert_eq!(limit.wanted(), 0);
    }
}
