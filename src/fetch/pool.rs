//! The threads that decode, verify and copy. Bounded; the runtime's own threads only wait for them.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

use super::FetchError;

/// A pool of decoding threads. Cheap to clone.
#[derive(Clone)]
pub struct DecodePool(Arc<Shared>);

/// Ends the threads when the last handle of the pool is dropped.
struct Shared {
    queue: Arc<Queue>,
    threads: usize,
    /// For work that borrows ([`DecodePool::run_spread`]). Its threads spin before they sleep, which for the small and
    /// frequent tasks of crops took a tenth of the gateway's time.
    spread: rayon::ThreadPool,
}

type Work = Box<dyn FnOnce() + Send>;

#[derive(Default)]
struct Queue {
    waiting: Mutex<(VecDeque<Work>, bool)>,
    changed: Condvar,
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, (VecDeque<Work>, bool)> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next work; `None` when the pool has ended.
    fn next(&self) -> Option<Work> {
        let mut waiting = self.lock();
        loop {
            if let Some(work) = waiting.0.pop_front() {
                return Some(work);
            }
            if waiting.1 {
                return None;
            }
            waiting = self.changed.wait(waiting).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.queue.lock().1 = true;
        self.queue.changed.notify_all();
    }
}

impl DecodePool {
    /// A pool of `threads` threads, at least one.
    ///
    /// # Errors
    /// When the operating system gives no threads.
    pub fn new(threads: usize) -> std::io::Result<Self> {
        let threads = threads.max(1);
        let queue = Arc::new(Queue::default());
        for i in 0..threads {
            let queue = Arc::clone(&queue);
            let work = move || {
                while let Some(work) = queue.next() {
                    work();
                }
            };
            std::thread::Builder::new().name(format!("w4dx-decode-{i}")).spawn(work)?;
        }
        let spread = rayon::ThreadPoolBuilder::new().num_threads(threads).thread_name(|i| format!("w4dx-spread-{i}"));
        let spread = spread.build().map_err(std::io::Error::other)?;
        Ok(Self(Arc::new(Shared { queue, threads, spread })))
    }

    /// How many threads it has.
    pub fn threads(&self) -> usize {
        self.0.threads
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
        let (work, result) = Self::awaited(work);
        self.0.queue.lock().0.push_back(work);
        self.0.queue.changed.notify_one();
        Self::wait(result).await
    }

    /// Runs `work`, which spreads itself over all cores by rayon's iterators.
    ///
    /// # Errors
    /// As [`DecodePool::run`].
    pub async fn run_spread<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, FetchError> {
        let (work, result) = Self::awaited(work);
        self.0.spread.spawn(work);
        Self::wait(result).await
    }

    fn awaited<T: Send + 'static>(
        work: impl FnOnce() -> T + Send + 'static,
    ) -> (Work, oneshot::Receiver<Result<T, FetchError>>) {
        let (send, receive) = oneshot::channel();
        let work = move || {
            if send.is_closed() {
                return;
            }
            // The waiter may have gone meanwhile; then nobody misses the result.
            drop(send.send(Self::run_here(work)));
        };
        (Box::new(work), receive)
    }

    async fn wait<T>(result: oneshot::Receiver<Result<T, FetchError>>) -> Result<T, FetchError> {
        match result.await {
            Ok(result) => result,
            Err(_) => Err(FetchError::Panicked { reason: "the pool dropped the work".to_owned() }),
        }
    }
}

impl std::fmt::Debug for DecodePool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("DecodePool").field(&self.0.threads).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn work_runs_on_the_pools_threads_and_a_panic_is_an_error() {
        let pool = DecodePool::new(2).unwrap();
        let name = || std::thread::current().name().unwrap_or_default().to_owned();
        assert!(pool.run(name).await.unwrap().starts_with("w4dx-decode-"));
        assert!(pool.run_spread(name).await.unwrap().starts_with("w4dx-spread-"));
        let broken = pool.run(|| -> u8 { panic!("bad bytes") }).await;
        assert!(matches!(broken, Err(FetchError::Panicked { reason }) if reason == "bad bytes"));
        let results = futures::future::join_all((0..100).map(|n| pool.run(move || n * 2))).await;
        assert!(results.into_iter().enumerate().all(|(n, result)| result.unwrap() == n * 2));
    }

    #[tokio::test]
    async fn work_that_nobody_waits_for_is_not_begun() {
        let pool = DecodePool::new(1).unwrap();
        let (open, gate) = std::sync::mpsc::channel::<()>();
        let blocking = pool.run(move || gate.recv().is_ok());
        let begun = Arc::new(Mutex::new(false));
        let flag = Arc::clone(&begun);
        let mut given_up = Box::pin(pool.run(move || *flag.lock().unwrap() = true));
        let mut blocking = Box::pin(blocking);
        assert!(futures::poll!(&mut blocking).is_pending());
        assert!(futures::poll!(&mut given_up).is_pending());
        drop(given_up);
        open.send(()).unwrap();
        assert!(blocking.await.unwrap());
        pool.run(|| {}).await.unwrap();
        assert!(!*begun.lock().unwrap());
    }

    #[test]
    fn the_threads_end_with_the_pool() {
        let pool = DecodePool::new(3).unwrap();
        let queue = Arc::clone(&pool.0.queue);
        drop(pool);
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(10);
        while Arc::strong_count(&queue) > 1 {
            assert!(std::time::Instant::now() < deadline);
            std::thread::yield_now();
        }
    }
}
