//! Who is fetching what: however many ask for a key at once, it is fetched once.
//!
//! A flight is a shared future. It advances while any of its waiters polls it and is dropped, its work with it,
//! when the last waiter is. Results are handed to the waiters and forgotten: keeping them is a cache's work.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures::FutureExt as _;
use futures::future::{BoxFuture, Shared, WeakShared};

/// A fetch that several requests may await.
pub type Flight<T> = Shared<BoxFuture<'static, T>>;

/// Fetches in flight, by key. One fetch may serve several keys.
pub struct Flights<K, T: Clone> {
    table: Arc<Mutex<Table<K, T>>>,
}

struct Table<K, T: Clone> {
    flights: HashMap<K, (u64, WeakShared<BoxFuture<'static, T>>)>,
    next: u64,
}

impl<K, T: Clone> Clone for Flights<K, T> {
    fn clone(&self) -> Self {
        Self { table: Arc::clone(&self.table) }
    }
}

impl<K, T: Clone> std::fmt::Debug for Flights<K, T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Flights").field("keys", &lock(&self.table).flights.len()).finish()
    }
}

impl<K, T: Clone> Default for Flights<K, T> {
    fn default() -> Self {
        Self { table: Arc::new(Mutex::new(Table { flights: HashMap::new(), next: 0 })) }
    }
}

/// The table holds no invariant that a panic elsewhere could break.
fn lock<K, T: Clone>(table: &Mutex<Table<K, T>>) -> MutexGuard<'_, Table<K, T>> {
    table.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Takes a flight's keys out of the table when its future ends or is dropped.
struct Landing<K: Hash + Eq, T: Clone> {
    table: Arc<Mutex<Table<K, T>>>,
    keys: Vec<K>,
    number: u64,
}

impl<K: Hash + Eq, T: Clone> Drop for Landing<K, T> {
    fn drop(&mut self) {
        let mut table = lock(&self.table);
        for key in &self.keys {
            // Another flight may have taken the key after this one was forgotten.
            if table.flights.get(key).is_some_and(|(number, _)| *number == self.number) {
                table.flights.remove(key);
            }
        }
    }
}

impl<K, T> Flights<K, T>
where
    K: Hash + Eq + Clone + Send + 'static,
    T: Clone + Send + Sync + 'static,
{
    /// Settles who fetches one key, as [`Flights::claim`] does.
    pub fn join<V>(
        &self,
        key: &K,
        lookup: impl FnMut(&K) -> Option<V>,
        start: impl FnOnce() -> BoxFuture<'static, T>,
    ) -> Claim<V, T> {
        let mut start = Some(start);
        let fetch = |_: &[usize]| start.take().map(|start| vec![(vec![0], start())]).unwrap_or_default();
        let mut claims = self.claim(std::slice::from_ref(key), lookup, fetch);
        claims.pop().expect("one key gives one claim")
    }

    /// Settles who fetches each of `keys`, all at once: what `lookup` finds is taken as it is; what is in flight is
    /// joined; the rest is given to `start`, as positions in `keys`, which returns fetches with the positions
    /// that each serves.
    ///
    /// `lookup` runs under the table's lock, so that a result put in a cache before its flight ended is seen.
    ///
    /// # Panics
    /// When `start` leaves out a position that it was given.
    pub fn claim<V>(
        &self,
        keys: &[K],
        mut lookup: impl FnMut(&K) -> Option<V>,
        start: impl FnOnce(&[usize]) -> Vec<(Vec<usize>, BoxFuture<'static, T>)>,
    ) -> Vec<Claim<V, T>> {
        // A flight's last handle takes the lock when it is dropped: handles end after the lock does.
        let mut handles = Vec::new();
        let mut table = lock(&self.table);
        let mut claims: Vec<Option<Claim<V, T>>> = Vec::with_capacity(keys.len());
        let mut missing = Vec::new();
        for (i, key) in keys.iter().enumerate() {
            let flight = table.flights.get(key).and_then(|(_, flight)| flight.upgrade());
            claims.push(match (flight, lookup(key)) {
                (flight, Some(found)) => {
                    handles.extend(flight);
                    Some(Claim::Found(found))
                }
                (Some(flight), None) => Some(Claim::InFlight(flight)),
                (None, None) => {
                    missing.push(i);
                    None
                }
            });
        }
        if !missing.is_empty() {
            for (served, fetch) in start(&missing) {
                let number = table.next;
                table.next += 1;
                let landing = Landing {
                    table: Arc::clone(&self.table),
                    keys: served.iter().map(|&i| keys[i].clone()).collect(),
                    number,
                };
                let flight = async move {
                    let result = fetch.await;
                    drop(landing);
                    result
                }
                .boxed()
                .shared();
                for i in served {
                    if let Some(weak) = flight.downgrade() {
                        table.flights.insert(keys[i].clone(), (number, weak));
                    }
                    claims[i] = Some(Claim::InFlight(flight.clone()));
                }
                handles.push(flight);
            }
        }
        drop(table);
        claims.into_iter().map(|claim| claim.expect("`start` serves every position it is given")).collect()
    }

    /// Lets requests that come from now on start anew, while those that wait keep their flight.
    pub fn forget(&self, forgotten: impl Fn(&K) -> bool) {
        lock(&self.table).flights.retain(|key, _| !forgotten(key));
    }
}

/// How one key of [`Flights::claim`] is settled.
pub enum Claim<V, T: Clone> {
    /// It was kept.
    Found(V),
    /// It is being fetched.
    InFlight(Flight<T>),
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    fn fly(flights: &Flights<u32, u32>, start: impl FnOnce() -> BoxFuture<'static, u32>) -> Flight<u32> {
        match flights.join(&1, |_| None::<()>, start) {
            Claim::InFlight(flight) => flight,
            Claim::Found(()) => unreachable!("nothing is looked up"),
        }
    }

    #[tokio::test]
    async fn many_waiters_make_one_fetch() {
        let flights: Flights<u32, u32> = Flights::default();
        let fetches = Arc::new(AtomicUsize::new(0));
        let ask = || {
            let fetches = Arc::clone(&fetches);
            fly(&flights, move || {
                async move {
                    fetches.fetch_add(1, Ordering::SeqCst);
                    tokio::task::yield_now().await;
                    7
                }
                .boxed()
            })
        };
        let waiters: Vec<_> = (0..64).map(|_| ask()).collect();
        assert!(futures::future::join_all(waiters).await.into_iter().all(|answer| answer == 7));
        assert_eq!(fetches.load(Ordering::SeqCst), 1);
        ask().await;
        assert_eq!(fetches.load(Ordering::SeqCst), 2, "a result is not kept");
    }

    #[tokio::test]
    async fn a_flight_without_waiters_ends_and_can_be_started_again() {
        let flights: Flights<u32, u32> = Flights::default();
        let abandoned = fly(&flights, || futures::future::pending().boxed());
        drop(abandoned);
        assert_eq!(fly(&flights, || async { 2 }.boxed()).await, 2);
        assert!(lock(&flights.table).flights.is_empty());
    }

    #[tokio::test]
    async fn a_waiter_that_leaves_does_not_stop_the_others() {
        let flights: Flights<u32, u32> = Flights::default();
        let (send, receive) = tokio::sync::oneshot::channel::<u32>();
        let first = fly(&flights, || async { receive.await.unwrap_or(0) }.boxed());
        let second = fly(&flights, || async { 99 }.boxed());
        drop(first);
        send.send(5).expect("someone waits");
        assert_eq!(second.await, 5);
    }

    #[tokio::test]
    async fn what_is_kept_is_not_fetched() {
        let flights: Flights<u32, u32> = Flights::default();
        let claim = flights.join(&1, |key| Some(*key + 1), || async { 9 }.boxed());
        assert!(matches!(claim, Claim::Found(2)));
    }

    #[tokio::test]
    async fn a_forgotten_flight_is_not_joined() {
        let flights: Flights<u32, u32> = Flights::default();
        let old = fly(&flights, || async { 1 }.boxed());
        flights.forget(|key| *key == 1);
        let new = fly(&flights, || async { 2 }.boxed());
        assert_eq!((old.await, new.await), (1, 2));
    }
}
