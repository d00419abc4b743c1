//! The vocabulary that every layer speaks: element types, shapes, hyperslabs, extents, error kinds.
//!
//! Pure: no I/O, no clock, no async. Whoever holds a [`Hyperslab`] need not check it against its array again.

mod chunk;
mod dtype;
pub mod exact;
mod extent;
mod hyperslab;
pub mod instant;
pub mod key;
mod kind;
mod secret;
pub mod shape;
pub mod small_float;
mod unit;

pub use chunk::{ChunkCoord, ChunkData, PerAxis};
pub use dtype::{DType, FloatKind, SMALL_FLOATS, TimeUnit};
pub use extent::{ByteRange, Version};
pub use hyperslab::{Axis, Hyperslab, OUTSIDE, Piece};
pub use kind::{Details, ErrorKind, Fault};
pub use secret::Secret;
pub use unit::{Measure, Unit};
