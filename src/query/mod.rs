//! What was asked: parameters and selections. Pure.
