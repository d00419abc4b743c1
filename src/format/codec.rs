//! How a chunk's stored bytes become elements.

/// How an innermost chunk's bytes become elements.
#[derive(Debug, Clone)]
pub struct ChunkCodec;
