//! Bytes in flight: what all requests together may hold in memory while they are answered.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::FetchError;
use crate::metrics::Metrics;

/// A budget in bytes. First come, first served: a large request cannot be starved by small ones.
#[derive(Debug, Clone)]
pub struct Budget {
    permits: Arc<Semaphore>,
    total_kib: u32,
    patience: Duration,
    metrics: Metrics,
}

/// A part of the budget, given back when dropped.
#[derive(Debug)]
pub struct Reservation {
    permit: Option<OwnedSemaphorePermit>,
    budget: Budget,
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.permit.take();
        self.budget.report();
    }
}

impl Budget {
    /// A budget of `total_bytes`; a request waits for its part at most `patience`.
    pub fn new(total_bytes: u64, patience: Duration, metrics: Metrics) -> Self {
        // Semaphores count in u32 at a time: KiB, up to 4 TiB.
        let total_kib = u32::try_from((total_bytes / 1024).max(1)).unwrap_or(u32::MAX);
        Self { permits: Arc::new(Semaphore::new(total_kib as usize)), total_kib, patience, metrics }
    }

    /// Waits for `bytes`. A request larger than the whole budget gets it alone.
    ///
    /// # Errors
    /// [`FetchError::Busy`] when the wait is over.
    pub async fn reserve(&self, bytes: u64) -> Result<Reservation, FetchError> {
        let kib = u32::try_from(bytes.div_ceil(1024)).unwrap_or(u32::MAX).clamp(1, self.total_kib);
        let permit = tokio::time::timeout(self.patience, Arc::clone(&self.permits).acquire_many_owned(kib)).await;
        match permit {
            Ok(Ok(permit)) => {
                self.report();
                Ok(Reservation { permit: Some(permit), budget: self.clone() })
            }
            Ok(Err(_)) | Err(_) => Err(FetchError::Busy),
        }
    }

    fn report(&self) {
        let free = self.permits.available_permits() as u64;
        self.metrics.inflight_bytes(u64::from(self.total_kib).saturating_sub(free) * 1024);
    }
}
