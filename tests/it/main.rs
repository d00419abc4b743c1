//! The integration tests, in one binary: one linking, one run.

#![allow(clippy::unwrap_used, reason = "a test panics to fail")]

mod dataset_metrics;
mod documents;
mod large_indexes;
mod layers;
mod raw_blocks;
mod recent_bytes;
mod s3_guards;
mod s3_lists;
mod s3_reads;
mod s3_support;
mod s3_writes;
mod served;
mod slices;
mod store_contract;
