//! A test double of time: stands still while anything can run, then jumps to the next sleeper. Deterministic.

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

/// A time line of its own. Clones are the same one.
#[derive(Debug, Clone)]
pub(super) struct VirtualTime(Arc<Mutex<State>>);

#[derive(Debug)]
struct State {
    now: Instant,
    /// Sleepers by when they are due and in which order they fell asleep.
    sleepers: BTreeMap<(Instant, u64), Waker>,
    count: u64,
}

struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl VirtualTime {
    pub(super) fn new() -> Self {
        Self(Arc::new(Mutex::new(State { now: Instant::now(), sleepers: BTreeMap::new(), count: 0 })))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn now(&self) -> Instant {
        self.state().now
    }

    pub(super) async fn sleep(&self, time: Duration) {
        let until = self.now() + time;
        self.sleep_until(until).await;
    }

    pub(super) async fn sleep_until(&self, moment: Instant) {
        let mut place: Option<(Instant, u64)> = None;
        std::future::poll_fn(|context| {
            let mut state = self.state();
            if let Some(place) = place.take() {
                state.sleepers.remove(&place);
            }
            if state.now >= moment {
                return Poll::Ready(());
            }
            state.count += 1;
            let at = (moment, state.count);
            state.sleepers.insert(at, context.waker().clone());
            place = Some(at);
            Poll::Pending
        })
        .await;
    }

    /// Runs a future, and all that it holds, to its end.
    pub(super) fn run<T>(&self, future: impl Future<Output = T>) -> T {
        let woken = Arc::new(Woken(AtomicBool::new(true)));
        let waker = Waker::from(Arc::clone(&woken));
        let mut future = pin!(future);
        loop {
            while woken.0.swap(false, Ordering::Relaxed) {
                if let Poll::Ready(answer) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
                    return answer;
                }
            }
            let due = {
                let mut state = self.state();
                let Some((&(moment, _), _)) = state.sleepers.first_key_value() else {
                    panic!("nothing runs and nobody sleeps: the future waits for ever");
                };
                state.now = moment;
                let later = state.sleepers.split_off(&(moment, u64::MAX));
                std::mem::replace(&mut state.sleepers, later)
            };
            due.into_values().for_each(Waker::wake);
        }
    }
}

#[test]
fn sleepers_wake_in_order_and_no_time_is_lost() {
    let time = VirtualTime::new();
    let start = time.now();
    let order = Mutex::new(Vec::new());
    time.run(async {
        let sleeper = |micros| {
            let (time, order) = (&time, &order);
            async move {
                time.sleep(Duration::from_micros(micros)).await;
                order.lock().unwrap().push((micros, time.now() - start));
            }
        };
        futures::join!(sleeper(300), sleeper(1), sleeper(20));
    });
    let order = order.into_inner().unwrap();
    assert_eq!(order, [1, 20, 300].map(|micros| (micros, Duration::from_micros(micros))));
}
