//! What to read: a hyperslab of an array, as chunks, extents and ranged reads.
//!
//! Pure: no I/O, no clock, no async. [`survey`] says which chunks and objects a hyperslab touches; the caller finds
//! out where they are; [`ReadPlan::new`] ties both together. A plan is complete and inert: an executor looks nothing up.

mod coalesce;
mod error;
mod explain;
mod read_plan;
mod runs;
mod survey;

pub use coalesce::{Read, coalesce};
pub use error::{Limits, PlanError};
pub use explain::{Explained, explain};
pub use read_plan::{Extent, Located, ObjectFacts, PlannedChunk, PlannedObject, ReadPlan};
pub use runs::{AxisChunk, Run, chunks_along};
pub use survey::{Survey, SurveyedChunk, check, chunks_at_most, decoded_at_most, objects, survey};
