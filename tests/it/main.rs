//! Tests through public interfaces.

#![allow(clippy::unwrap_used)]

mod store_contract;
