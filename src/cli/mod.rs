//! cli

pub mod demo;
