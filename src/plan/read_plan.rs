//! A plan: everything that an executor needs, nothing that it must look up.

use std::ops::Range;
use std::sync::Arc;

use super::{AxisChunk, PlanError, Survey};
use crate::format::ArrayMeta;
use crate::index::BlockLayout;
use crate::model::key::join;
use crate::model::{ChunkCoord, DType, PerAxis, Version, shape};

/// What the caller found out about one surveyed object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ObjectFacts {
    /// There is no such object: its chunks read as the fill value.
    Absent,
    /// It exists.
    Present {
        /// Its version.
        version: Version,
        /// Its size in bytes.
        size: u64,
    },
    /// Nothing was asked yet: reading its chunk, which is the whole object, will tell.
    LearnOnRead,
}

/// Where one surveyed chunk was found, or the stored chunk of which it is a block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Located {
    /// Not stored: reads as the fill value.
    Absent,
    /// The whole object.
    Whole,
    /// These bytes of the object.
    Range(Range<u64>),
}

/// An object that a plan reads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlannedObject {
    /// Its key within the bucket.
    pub key: Arc<str>,
    /// What is known of it.
    pub facts: ObjectFacts,
}

/// Where a chunk's bytes lie.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Extent {
    /// The object: a position in [`ReadPlan::objects`].
    pub object: usize,
    /// The bytes. For a whole object of unknown size the end is a bound: one byte more than a chunk can take.
    pub range: Range<u64>,
    /// Whether the extent is the whole object, so that a shorter body is its end and no truncation.
    pub whole: bool,
}

/// A chunk that a plan places.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlannedChunk {
    /// Its place in the grid of innermost chunks.
    pub coord: ChunkCoord,
    /// Where it is; `None` reads as the fill value.
    pub extent: Option<Extent>,
    /// Per axis, its entry in [`ReadPlan::axes`].
    pub at: PerAxis<u32>,
}

/// The reads and copies that answer a hyperslab. Complete and inert.
#[derive(Debug, Clone)]
pub struct ReadPlan {
    /// The objects read.
    pub objects: Vec<PlannedObject>,
    /// The chunks placed: by object, ascending.
    pub chunks: Vec<PlannedChunk>,
    /// Per axis, the chunks along it and what is taken of each.
    pub axes: Vec<Vec<AxisChunk>>,
    /// Positions per array axis: the shape of the assembled answer, before integers drop axes.
    pub counts: Vec<u64>,
    /// The element type.
    pub dtype: DType,
    /// The value of absent chunks.
    pub fill: Arc<[u8]>,
    /// The value of positions outside the array (`fill=` of the request, else the array's).
    pub outside: Arc<[u8]>,
}

/// Bytes beyond which a stored chunk cannot be honest: codecs grow incompressible data by far less.
/// Text and byte strings have no decoded size to compare with, so they get a flat bound.
pub(crate) fn stored_bound(array: &ArrayMeta) -> u64 {
    const VARIABLE: u64 = 256 << 20;
    const SLACK: u64 = 64 << 10;
    array.chunk_bytes().map_or(VARIABLE, |bytes| bytes.saturating_add(bytes / 4).saturating_add(SLACK))
}

impl ReadPlan {
    /// Ties a survey to what was found out: `objects` and `located` run parallel to `survey.objects` and
    /// `survey.chunks`. Of chunks that are read in blocks, `located` says where the stored ones are. `prefix` is put
    /// before each object's key. `outside` is the value of positions outside the array, where it is not the array's
    /// fill value.
    ///
    /// # Errors
    /// [`PlanError::Bloated`] when a chunk's stored size is impossible; [`PlanError::Length`] when one that is read in
    /// blocks is not stored in exactly its own bytes.
    pub fn new(
        array: &ArrayMeta,
        prefix: &str,
        survey: Survey,
        objects: Vec<ObjectFacts>,
        located: Vec<Located>,
        outside: Option<Arc<[u8]>>,
    ) -> Result<Self, PlanError> {
        let bound = stored_bound(array);
        let blocks = BlockLayout::of(array);
        let planned: Vec<PlannedObject> = survey
            .objects
            .iter()
            .zip(objects)
            .map(|(key, facts)| PlannedObject { key: join(prefix, key).into(), facts })
            .collect();
        let mut chunks = Vec::with_capacity(survey.chunks.len());
        for (chunk, located) in survey.chunks.into_iter().zip(located) {
            let object = &planned[chunk.object];
            let extent = match (located, &object.facts) {
                (Located::Absent, _) | (_, ObjectFacts::Absent) => None,
                (Located::Whole, ObjectFacts::Present { size, .. }) => {
                    Some(Extent { object: chunk.object, range: 0..*size, whole: true })
                }
                (Located::Whole, ObjectFacts::LearnOnRead) => {
                    // The read of a block tells the object's size too, and the executor holds it against the chunk's.
                    let end = blocks.as_ref().map_or(bound + 1, BlockLayout::chunk_bytes);
                    Some(Extent { object: chunk.object, range: 0..end, whole: true })
                }
                (Located::Range(range), ObjectFacts::Present { .. } | ObjectFacts::LearnOnRead) => {
                    Some(Extent { object: chunk.object, range, whole: false })
                }
            };
            let extent = match (extent, &blocks) {
                (None, _) => None,
                (Some(stored), Some(blocks)) => Some(block_of(blocks, &chunk.coord, stored, &object.key)?),
                (Some(stored), None) => {
                    let len = stored.range.end - stored.range.start;
                    if len > bound && object.facts != ObjectFacts::LearnOnRead {
                        let decoded = array.chunk_bytes().unwrap_or(0);
                        let (chunk, key) = (chunk.coord.into(), object.key.to_string());
                        return Err(PlanError::Bloated { chunk, key, len, decoded });
                    }
                    Some(stored)
                }
            };
            chunks.push(PlannedChunk { coord: chunk.coord, extent, at: chunk.at });
        }
        let fill: Arc<[u8]> = array.fill.as_slice().into();
        Ok(Self {
            objects: planned,
            chunks,
            axes: survey.axes,
            counts: survey.counts,
            dtype: array.dtype.clone(),
            outside: outside.unwrap_or_else(|| Arc::clone(&fill)),
            fill,
        })
    }

    /// Bytes of the assembled answer; for variable-size elements the size of their headers.
    pub fn answer_bytes(&self) -> u64 {
        let size = self.dtype.size_bytes().unwrap_or(std::mem::size_of::<Box<[u8]>>());
        shape::bytes(&self.counts, size).unwrap_or(u64::MAX)
    }
}

/// The extent of a block within that of its stored chunk, which must be as long as a chunk is: bytes too few or too many
/// somewhere in it would leave those of the block in doubt.
fn block_of(blocks: &BlockLayout, block: &ChunkCoord, stored: Extent, key: &str) -> Result<Extent, PlanError> {
    let (len, expected) = (stored.range.end - stored.range.start, blocks.chunk_bytes());
    if len != expected {
        return Err(PlanError::Length { chunk: blocks.chunk_of(block).into(), key: key.to_owned(), len, expected });
    }
    let within = blocks.range_of(block);
    let range = stored.range.start + within.start..stored.range.start + within.end;
    Ok(Extent { object: stored.object, range, whole: false })
}
