//! Bytes in flight: what all requests together may hold in memory while they are answered.
//!
//! Who asks takes turns: of those principals whose requests wait, each is given one request's part, then the next. A
//! principal's own requests are served in the order in which they came. Whoever has the turn keeps it until its part is
//! free, so a large request is not starved by small ones that would always fit.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::oneshot;

use super::FetchError;
use crate::metrics::Metrics;

/// A budget in bytes. Cheap to clone; clones share it.
#[derive(Debug, Clone)]
pub struct Budget(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    total: u64,
    patience: Duration,
    metrics: Metrics,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    held: u64,
    /// Waiting requests of each principal that has any.
    queues: HashMap<Arc<str>, VecDeque<Waiter>>,
    /// These principals, by whose turn it is.
    turns: VecDeque<Arc<str>>,
}

#[derive(Debug)]
struct Waiter {
    bytes: u64,
    grant: oneshot::Sender<Reservation>,
}

/// A part of the budget, given back when dropped.
#[derive(Debug)]
pub struct Reservation {
    bytes: u64,
    budget: Budget,
}

impl Drop for Reservation {
    fn drop(&mut self) {
        let mut state = self.budget.state();
        state.held -= self.bytes;
        self.budget.serve(state);
    }
}

/// Serves those who wait when one of them has left: it may have had the turn.
struct Waiting<'a>(&'a Budget);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.serve(self.0.state());
    }
}

impl Budget {
    /// A budget of `total_bytes`; a request waits for its part at most `patience`.
    pub fn new(total_bytes: u64, patience: Duration, metrics: Metrics) -> Self {
        Self(Arc::new(Inner { total: total_bytes.max(1), patience, metrics, state: Mutex::default() }))
    }

    /// Waits for `bytes`, in the turn of `principal`: whoever a budget is to be shared fairly with. A request larger
    /// than the whole budget gets it alone.
    ///
    /// # Errors
    /// [`FetchError::Busy`] when the wait is over.
    pub async fn reserve(&self, principal: &str, bytes: u64) -> Result<Reservation, FetchError> {
        let bytes = bytes.clamp(1, self.0.total);
        let granted = {
            let mut state = self.state();
            let (grant, granted) = oneshot::channel();
            state.enqueue(principal, Waiter { bytes, grant });
            self.serve(state);
            granted
        };
        // Declared first, so dropped last: the channel is closed by then, and this waiter is passed over.
        let _waiting = Waiting(self);
        match tokio::time::timeout(self.0.patience, granted).await {
            Ok(Ok(reservation)) => Ok(reservation),
            // The sender is dropped only with its waiter, after a grant.
            Ok(Err(_)) | Err(_) => Err(FetchError::Busy),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Grants whatever can be granted now.
    fn serve(&self, mut state: MutexGuard<'_, State>) {
        let served = state.admit(self.0.total);
        self.0.metrics.inflight_bytes(state.held);
        // A grant to somebody who has just gone comes back, and takes the lock to do so.
        drop(state);
        for waiter in served {
            let reservation = Reservation { bytes: waiter.bytes, budget: self.clone() };
            drop(waiter.grant.send(reservation));
        }
    }
}

impl State {
    fn enqueue(&mut self, principal: &str, waiter: Waiter) {
        match self.queues.get_mut(principal) {
            Some(queue) => queue.push_back(waiter),
            None => {
                let principal: Arc<str> = principal.into();
                self.turns.push_back(Arc::clone(&principal));
                self.queues.insert(principal, VecDeque::from([waiter]));
            }
        }
    }

    /// Takes out those who are served now. Their bytes are held from here on.
    fn admit(&mut self, total: u64) -> Vec<Waiter> {
        let mut served = Vec::new();
        while let Some(principal) = self.turns.front() {
            let Some(queue) = self.queues.get_mut(principal) else {
                self.turns.pop_front();
                continue;
            };
            while queue.front().is_some_and(|waiter| waiter.grant.is_closed()) {
                queue.pop_front();
            }
            match queue.front() {
                Some(waiter) if waiter.bytes > total - self.held => return served,
                Some(waiter) => {
                    self.held += waiter.bytes;
                    served.extend(queue.pop_front());
                    self.turns.rotate_left(1);
                }
                None => {
                    self.queues.remove(principal);
                    self.turns.pop_front();
                }
            }
        }
        served
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;
    use futures::future::BoxFuture;

    use super::*;

    const LONG: Duration = Duration::from_secs(3600);

    type Asked = BoxFuture<'static, Result<Reservation, FetchError>>;

    /// A request that has joined its queue, or has its part already.
    fn ask(budget: &Budget, principal: &'static str, bytes: u64) -> (Asked, Option<Reservation>) {
        let budget = budget.clone();
        let mut asked = async move { budget.reserve(principal, bytes).await }.boxed();
        let now = (&mut asked).now_or_never().transpose().unwrap();
        (asked, now)
    }

    fn waiting(budget: &Budget, principal: &'static str, bytes: u64) -> Asked {
        let (asked, now) = ask(budget, principal, bytes);
        assert!(now.is_none(), "it had to wait");
        asked
    }

    fn served(asked: &mut Asked) -> Option<Reservation> {
        asked.now_or_never().transpose().unwrap()
    }

    fn budget(total: u64) -> Budget {
        Budget::new(total, LONG, Metrics::new())
    }

    #[tokio::test]
    async fn one_request_of_another_key_comes_next_after_a_flood_of_one() {
        let budget = budget(10);
        let held = ask(&budget, "heavy", 10).1.unwrap();
        let mut flood: Vec<Asked> = (0..100).map(|_| waiting(&budget, "heavy", 10)).collect();
        let mut other = waiting(&budget, "other", 10);
        drop(held);
        // The flood stood first, and has had one request's part; then the other's turn comes.
        let first = served(&mut flood[0]).unwrap();
        assert!(served(&mut other).is_none());
        drop(first);
        let second = served(&mut other).unwrap();
        assert!(flood[1..].iter_mut().all(|asked| served(asked).is_none()));
        drop(second);
        assert!(served(&mut flood[1]).is_some(), "first come, first served within a key");
    }

    #[tokio::test]
    async fn a_request_larger_than_the_budget_gets_it_alone_and_is_not_starved() {
        let budget = budget(10);
        let small = ask(&budget, "small", 1).1.unwrap();
        let mut large = waiting(&budget, "large", 1000);
        let mut more = waiting(&budget, "small", 1);
        assert!(served(&mut more).is_none(), "nine bytes are free, and kept for the large one");
        drop(small);
        let alone = served(&mut large).unwrap();
        assert!(served(&mut more).is_none());
        drop(alone);
        assert!(served(&mut more).is_some());
    }

    #[tokio::test]
    async fn who_gives_up_does_not_hold_up_the_others() {
        let budget = budget(10);
        let held = ask(&budget, "a", 6).1.unwrap();
        let large = waiting(&budget, "b", 8);
        let mut small = waiting(&budget, "c", 2);
        drop(large);
        assert!(served(&mut small).is_some());
        drop(held);
        assert!(ask(&budget, "d", 10).1.is_some(), "all came back");
    }

    #[tokio::test]
    async fn a_grant_that_nobody_takes_comes_back() {
        let budget = budget(10);
        let held = ask(&budget, "a", 10).1.unwrap();
        let granted = waiting(&budget, "b", 10);
        drop(held);
        drop(granted);
        assert!(ask(&budget, "c", 10).1.is_some());
    }

    #[tokio::test]
    async fn who_waits_too_long_is_told_to_slow_down() {
        let metrics = Metrics::new();
        let budget = Budget::new(10, Duration::from_millis(5), metrics.clone());
        let held = budget.reserve("a", 4).await.unwrap();
        assert!(metrics.encode().contains("w4dx_inflight_bytes 4\n"));
        assert!(matches!(budget.reserve("a", 7).await, Err(FetchError::Busy)));
        drop(held);
        assert!(metrics.encode().contains("w4dx_inflight_bytes 0\n"));
        assert!(budget.0.state.lock().unwrap().queues.is_empty(), "nothing is kept of who asked");
    }
}
