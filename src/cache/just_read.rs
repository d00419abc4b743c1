//! Reads of chunks whose version they were to tell, kept for a moment.
//!
//! A request that planned such a read while another was making it would find neither the flight, which has ended, nor
//! the chunk, which is kept under a version that the plan does not know. Only buckets that trust versions for longer
//! than the moment take part, and nothing read before a write is kept after it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use moka::sync::Cache;

use super::ChunkKey;
use crate::store::Freshness;

/// How long a read is kept: from its end to the moment when all who ask know its version.
const KEPT: Duration = Duration::from_secs(1);

/// Reads kept. They share their chunks with the cache of chunks, or hold them a second longer.
const ENTRIES: u64 = 4096;

/// Reads just made, by the key of each chunk that they brought.
#[derive(Clone)]
pub struct JustRead<T: Clone + Send + Sync + 'static> {
    entries: Cache<ChunkKey, (u64, T)>,
    writes: Arc<AtomicU64>,
}

impl<T: Clone + Send + Sync + 'static> JustRead<T> {
    /// Keeps nothing yet.
    pub fn new() -> Self {
        Self { entries: Cache::builder().max_capacity(ENTRIES).time_to_live(KEPT).build(), writes: Arc::default() }
    }

    /// A moment to give to [`JustRead::keep`]: take it before reading.
    pub fn moment(&self) -> u64 {
        self.writes.load(Ordering::Acquire)
    }

    /// Keeps a read that began at `moment` from a bucket of this freshness.
    pub fn keep(&self, moment: u64, freshness: Freshness, key: ChunkKey, read: T) {
        let trusted = match freshness {
            Freshness::For(duration) => duration >= KEPT,
            Freshness::Immutable => true,
        };
        if trusted {
            self.entries.insert(key, (moment, read));
        }
    }

    /// The read that brought this chunk, if it was just made and nothing was written since it began.
    pub fn get(&self, key: &ChunkKey) -> Option<T> {
        self.entries.get(key).filter(|(moment, _)| *moment == self.moment()).map(|(_, read)| read)
    }

    /// Forgets everything read before now, because something was written.
    pub fn forget(&self) {
        self.writes.fetch_add(1, Ordering::AcqRel);
    }
}

impl<T: Clone + Send + Sync + 'static> Default for JustRead<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T: Clone + Send + Sync + 'static> std::fmt::Debug for JustRead<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("JustRead").field(&self.entries.entry_count()).finish()
    }
}
