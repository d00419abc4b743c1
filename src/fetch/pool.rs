//! The threads that decode, verify and copy. Bounded; the runtime's own threads only wait for them.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use super::FetchError;

/// A pool of decoding threads. Cheap to clone.
#[derive(Clone)]
pub struct DecodePool(Arc<rayon::ThreadPool>);

impl DecodePool {
    /// A pool of `threads` threads, at least one.
    ///
    /// # Errors
    /// When the operating system gives no threads.
    pub fn new(threads: usize) -> std::io::Result<Self> {
        rayon::ThreadPoolBuilder::new()
            .num_threads(threads.max(1))
            .thread_name(|i| format!("w4dx-decode-{i}"))
            .build()
            .map(|pool| Self(Arc::new(pool)))
            .map_err(std::io::Error::other)
    }

    /// How many threads it has.
    pub fn threads(&self) -> usize {
        self.0.current_num_threads()
    }

    /// Runs `work` on the caller's own thread, as safe from panics as on the pool. For work of microseconds.
    ///
    /// # Errors
    /// [`FetchError::Panicked`].
    pub fn run_here<T>(work: impl FnOnce() -> T) -> Result<T, FetchError> {
        catch_unwind(AssertUnwindSafe(work)).map_err(|panic| {
            let text = panic
                .downcast_ref::<String>()
                .cloned()
                .or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
            FetchError::Panicked { reason: text.unwrap_or_else(|| "a panic without a message".to_owned()) }
        })
    }

    /// Runs `work` on the pool. Work whose waiter has gone before it begins is not begun.
    ///
    /// # Errors
    /// [`FetchError::Panicked`]: hostile bytes must not take the server down, whatever a codec does with them.
    pub async fn run<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> Result<T, FetchError> {
        let (send, receive) = tokio::sync::oneshot::channel();
        self.0.spawn(move || {
            if send.is_closed() {
                return;
            }
            // The waiter may have gone meanwhile; then nobody misses the result.
            drop(send.send(Self::run_here(work)));
        });
        match receive.await {
            Ok(result) => result,
            Err(_) => Err(FetchError::Panicked { reason: "the pool dropped the work".to_owned() }),
        }
    }
}

impl std::fmt::Debug for DecodePool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("DecodePool").field(&self.0.current_num_threads()).finish()
    }
}
