//! What was asked: parameters, their in-key form, and selections.
//!
//! Pure: no I/O, no clock, no async. `&str` → [`Request`] → [`Selection`] → [`crate::model::Hyperslab`]: each step
//! is parsed once and passed on as proof. The contract is `openapi/w4dx.yaml`; HTTP is unknown here.

mod batch;
mod error;
pub mod filter;
mod grammar;
mod interval;
pub mod parameters;
mod request;
mod resolve;
mod selection;

pub use batch::{Batch, BatchField};
pub use error::QueryError;
pub use filter::Filter;
pub use interval::{Closed, Interval, Label, Mark, Method, OnAxis, Role, Subset};
pub use request::{BatchOptions, Meaning, Predicate, Request, Select, What};
pub use resolve::{Found, Positions, axis_named, resolve};
pub use selection::{Bound, Dim, OutOfBounds, Selection};
