//! http

pub mod docs;
