//! A test double of a store far away: each read waits a latency, then takes its part of one link. In virtual time.
//!
//! The link serves pieces of 16 KiB in the order in which they are asked for, so reads under way share it evenly, as
//! TCP connections do. A request itself takes the link for a while, too. Bytes are zeros; every key exists.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant, UNIX_EPOCH};

use bytes::Bytes;
use rand::{Rng as _, SeedableRng as _};

use super::virtual_time::VirtualTime;
use crate::model::{ByteRange, Version};
use crate::store::{
    Fetched, ListPage, ListRequest, ObjectInfo, ObjectStream, PutOptions, Store, StoreError, UploadStream,
};

/// What the link serves at once.
const PIECE_BYTES: u64 = 16 << 10;

/// What is emulated.
#[derive(Debug, Clone, Copy)]
pub(super) struct Emulated {
    /// From a request to its first bytes.
    pub(super) latency: Duration,
    /// The mean of what is added to the latency of each read, distributed exponentially.
    pub(super) jitter: Duration,
    /// Every so many reads one takes twenty times the latency; 0 for none.
    pub(super) slow_every: u64,
    /// Time of the link that each request takes.
    pub(super) request: Duration,
    /// Bytes a second of all reads together.
    pub(super) bandwidth: f64,
}

#[derive(Debug)]
pub(super) struct EmulatedStore {
    what: Emulated,
    time: VirtualTime,
    /// When the link has served all that was asked of it.
    free: Mutex<Instant>,
    chance: Mutex<rand::rngs::StdRng>,
    reads: AtomicU64,
    bytes: Bytes,
}

impl EmulatedStore {
    /// A store of objects of `size` bytes.
    pub(super) fn new(what: Emulated, time: &VirtualTime, size: usize) -> Self {
        Self {
            what,
            free: Mutex::new(time.now()),
            time: time.clone(),
            chance: Mutex::new(rand::rngs::StdRng::seed_from_u64(7)),
            reads: AtomicU64::new(0),
            bytes: vec![0; size].into(),
        }
    }

    fn latency(&self) -> Duration {
        let slow_every = self.what.slow_every;
        let reads = self.reads.fetch_add(1, Ordering::Relaxed) + 1;
        if slow_every > 0 && reads.is_multiple_of(slow_every) {
            return self.what.latency * 20;
        }
        let chance: f64 = self.chance.lock().unwrap_or_else(PoisonError::into_inner).random();
        self.what.latency + self.what.jitter.mul_f64(-(1.0 - chance).ln())
    }

    /// Waits for the link and takes it for so long.
    async fn take_link(&self, time: Duration) {
        let until = {
            let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
            *free = self.time.now().max(*free) + time;
            *free
        };
        self.time.sleep_until(until).await;
    }

    fn info(&self) -> ObjectInfo {
        ObjectInfo {
            size: self.bytes.len() as u64,
            version: Version::new("v"),
            last_modified: UNIX_EPOCH,
            settled: true,
            content_type: None,
            headers: BTreeMap::new(),
        }
    }
}

#[async_trait::async_trait]
impl Store for EmulatedStore {
    async fn head(&self, _: &str) -> Result<ObjectInfo, StoreError> {
        Ok(self.info())
    }

    async fn get(&self, key: &str, range: ByteRange, if_match: Option<&Version>) -> Result<Fetched, StoreError> {
        let ByteRange::Bounded(range) = range else { return Err(StoreError::Unsupported { operation: "read so" }) };
        self.time.sleep(self.latency()).await;
        self.take_link(self.what.request).await;
        if if_match.is_some_and(|version| *version != Version::new("v")) {
            return Err(StoreError::Changed { key: key.into() });
        }
        let mut left = range.end - range.start;
        while left > 0 {
            let piece = left.min(PIECE_BYTES);
            self.take_link(Duration::from_secs_f64(piece as f64 / self.what.bandwidth)).await;
            left -= piece;
        }
        let bytes = self.bytes.slice(range.start as usize..range.end as usize);
        Ok(Fetched { info: self.info(), start: range.start, bytes })
    }

    async fn stream(&self, _: &str, _: ByteRange, _: Option<&Version>) -> Result<ObjectStream, StoreError> {
        Err(StoreError::Unsupported { operation: "stream" })
    }

    async fn list(&self, _: &ListRequest) -> Result<ListPage, StoreError> {
        Err(StoreError::Unsupported { operation: "list" })
    }

    async fn put(&self, _: &str, _: UploadStream, _: PutOptions) -> Result<ObjectInfo, StoreError> {
        Err(StoreError::Unsupported { operation: "write" })
    }

    async fn delete(&self, _: &str) -> Result<(), StoreError> {
        Err(StoreError::Unsupported { operation: "delete" })
    }

    async fn ready(&self) -> Result<(), StoreError> {
        Ok(())
    }
}
