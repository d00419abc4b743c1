//! A table of what a cache keeps, for lookups that its policy need not hear of one by one.

use std::cell::Cell;
use std::collections::HashMap;
use std::hash::{BuildHasher as _, Hash};
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use foldhash::fast::RandomState;

/// Parts of the table: many times the threads that look into it at once, so that two seldom want the same lock.
const SHARDS: usize = 64;

/// The first hits of an entry are all told: TinyLFU's counters have four bits.
const TOLD_HITS: u8 = 16;

/// Of the later ones one in so many, which keeps the entry's place in the order of use.
const TOLD_SHARE: u32 = 8;

/// The entries of a cache whose policy is elsewhere: what the policy drops must be taken out here.
pub(super) struct Front<K, V> {
    shards: Box<[RwLock<Shard<K, V>>]>,
    hasher: RandomState,
}

type Shard<K, V> = HashMap<K, Kept<V>, RandomState>;

struct Kept<V> {
    value: Arc<V>,
    hits: AtomicU8,
}

/// A value that was found.
pub(super) struct Hit<V> {
    pub(super) value: Arc<V>,
    /// Whether the policy is to hear of it.
    pub(super) told: bool,
}

impl<K: Hash + Eq, V> Front<K, V> {
    pub(super) fn new() -> Self {
        let shards = (0..SHARDS).map(|_| RwLock::default()).collect();
        Self { shards, hasher: RandomState::default() }
    }

    fn shard(&self, key: &K) -> &RwLock<Shard<K, V>> {
        &self.shards[self.hasher.hash_one(key) as usize % SHARDS]
    }

    pub(super) fn get(&self, key: &K) -> Option<Hit<V>> {
        let shard = self.shard(key).read().unwrap_or_else(PoisonError::into_inner);
        let kept = shard.get(key)?;
        let hits = kept.hits.load(Ordering::Relaxed);
        if hits < TOLD_HITS {
            // Two threads may count as one: it is a bound, not a figure.
            kept.hits.store(hits + 1, Ordering::Relaxed);
        }
        Some(Hit { value: Arc::clone(&kept.value), told: hits < TOLD_HITS || one_in(TOLD_SHARE) })
    }

    pub(super) fn contains(&self, key: &K) -> bool {
        self.shard(key).read().unwrap_or_else(PoisonError::into_inner).contains_key(key)
    }

    /// Puts an entry in, before the policy hears of it: the other way round it could be dropped before it is here.
    pub(super) fn insert(&self, key: K, value: Arc<V>) {
        let kept = Kept { value, hits: AtomicU8::new(0) };
        let replaced = self.shard(&key).write().unwrap_or_else(PoisonError::into_inner).insert(key, kept);
        drop(replaced);
    }

    /// Takes out what the policy dropped. A value that has come in its place meanwhile goes with it: to look for it in vain
    /// once costs little, to keep what the policy does not count would be a leak.
    pub(super) fn remove(&self, key: &K) {
        let dropped = self.shard(key).write().unwrap_or_else(PoisonError::into_inner).remove(key);
        drop(dropped);
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.shards.iter().map(|shard| shard.read().unwrap_or_else(PoisonError::into_inner).len()).sum()
    }
}

/// True once in so many times, at random.
fn one_in(share: u32) -> bool {
    thread_local!(static STATE: Cell<u32> = Cell::new(rand::random::<u32>() | 1));
    STATE.with(|state| {
        // xorshift32: Marsaglia, "Xorshift RNGs", Journal of Statistical Software 8 (14), 2003.
        let mut x = state.get();
        x ^= x << 13;
        x ^= x >> 17;
        x ^= x << 5;
        state.set(x);
        x < u32::MAX / share
    })
}
