//! Time as reads see it: the system's, or that of a test, which jumps to whatever is due next.
//!
//! Tokio's own paused time counts in milliseconds, and a chunk takes a quarter of one on a fast link.

use std::time::Instant;

/// Where reads take the time from. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub(super) enum Clock {
    /// The system's.
    #[default]
    System,
    /// A test's.
    #[cfg(test)]
    Virtual(super::virtual_time::VirtualTime),
}

impl Clock {
    pub(super) fn now(&self) -> Instant {
        match self {
            Self::System => Instant::now(),
            #[cfg(test)]
            Self::Virtual(time) => time.now(),
        }
    }

    /// Resolves at `moment`, at once when it has passed.
    pub(super) async fn sleep_until(&self, moment: Instant) {
        match self {
            Self::System => tokio::time::sleep_until(moment.into()).await,
            #[cfg(test)]
            Self::Virtual(time) => time.sleep_until(moment).await,
        }
    }

    /// What `work` gives, or `None` when `moment` comes first.
    pub(super) async fn until<T>(&self, moment: Instant, work: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            biased;
            answer = work => Some(answer),
            () = self.sleep_until(moment) => None,
        }
    }
}
