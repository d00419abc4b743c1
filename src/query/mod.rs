//! What was asked: parameters and selections. Pure.

pub mod parameters;
