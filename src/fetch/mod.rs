//! Runs a plan: cache → store → decode pool → tensor.
//!
//! However many requests want a chunk at once, it is read and decoded once. Every read carries the version that it was
//! planned against. Decoding never runs on the runtime's own threads. An error goes to all who wait and is not kept.

mod budget;
mod clock;
#[cfg(test)]
mod emulated_store;
mod error;
mod fetcher;
mod fill;
#[cfg(test)]
mod gap_experiment;
mod hedges;
mod limit;
mod pace;
mod pool;
mod read_task;
mod reader;
#[cfg(test)]
mod virtual_time;

pub use budget::{Budget, Reservation};
pub use error::FetchError;
pub use fetcher::{FailedJob, Fetched, Fetcher, FetcherSettings, Gathered, Job, OnError, Wants};
pub use fill::{Filling, Slot};
pub use pool::DecodePool;
