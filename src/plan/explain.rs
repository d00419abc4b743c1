//! Plans as people read them: what would be read, and why not more.

use std::collections::{BTreeMap, HashSet};
use std::ops::Range;

use serde_json::{Value, json};

use super::{ObjectFacts, ReadPlan, coalesce};
use crate::model::{ChunkCoord, Version};

/// Reads listed one by one; larger plans show the first of them.
const LISTED: usize = 1000;

/// A plan to be explained.
#[derive(Debug, Clone, Copy)]
pub struct Explained<'a> {
    /// Plans of one window are run at once; their reads are joined. Ascending.
    pub window: usize,
    /// The plan.
    pub plan: &'a ReadPlan,
    /// Per chunk of the plan, whether it needs no read.
    pub cached: &'a [bool],
    /// Tells arrays apart whose chunks lie in one object.
    pub codec: [u8; 16],
    /// Largest hole that is read through, as in [`coalesce`].
    pub gap_bytes: u64,
}

/// What the reads of one object are joined from.
type Object<'a> = (&'a str, Option<&'a Version>, [u8; 16]);

/// Ranges that are joined, and the largest hole between them.
type Ranges = (u64, Vec<Range<u64>>);

/// Describes plans as JSON: chunks touched and absent, the ranged reads, bytes from the store and
/// of the answers. A chunk that several plans touch counts once.
///
/// `most_bytes` is that of [`coalesce`]; `chunks_total` the number of chunks of the arrays.
pub fn explain(plans: &[Explained<'_>], most_bytes: u64, chunks_total: u64) -> Value {
    let mut seen: HashSet<(Object<'_>, u64, &ChunkCoord)> = HashSet::new();
    let mut wanted: BTreeMap<(usize, Object<'_>), Ranges> = BTreeMap::new();
    let (mut touched, mut absent, mut hits, mut uses) = (0_u64, 0_u64, 0_u64, 0_u64);
    let (mut requests, mut store_bytes, mut touched_bytes, mut unknown_sizes) = (0_u64, 0_u64, 0_u64, 0_u64);
    for Explained { window, plan, cached, codec, gap_bytes } in plans {
        for (chunk, cached) in plan.chunks.iter().zip(*cached) {
            uses += 1;
            let Some(extent) = &chunk.extent else {
                touched += 1;
                absent += 1;
                continue;
            };
            let object = &plan.objects[extent.object];
            let version = match &object.facts {
                ObjectFacts::Present { version, .. } => Some(version),
                ObjectFacts::Absent | ObjectFacts::LearnOnRead => None,
            };
            let source = (&*object.key, version, *codec);
            if !seen.insert((source, extent.range.start, &chunk.coord)) {
                continue;
            }
            touched += 1;
            if *cached {
                hits += 1;
            } else if object.facts == ObjectFacts::LearnOnRead {
                requests += 1;
                unknown_sizes += 1;
            } else {
                touched_bytes += extent.range.end - extent.range.start;
                wanted.entry((*window, source)).or_insert((*gap_bytes, Vec::new())).1.push(extent.range.clone());
            }
        }
    }
    let mut reads = Vec::new();
    for ((_, (key, ..)), (gap_bytes, ranges)) in &wanted {
        for read in coalesce(ranges, *gap_bytes, most_bytes) {
            requests += 1;
            store_bytes += read.range.end - read.range.start;
            if reads.len() < LISTED {
                reads.push(json!({
                    "key": key,
                    "start": read.range.start,
                    "len": read.range.end - read.range.start,
                    "chunks": read.parts.len(),
                }));
            }
        }
    }
    let answer_bytes = plans.iter().map(|explained| explained.plan.answer_bytes()).fold(0, u64::saturating_add);
    json!({
        "chunks": {
            "total": chunks_total, "touched": touched, "absent": absent, "pruned": 0, "shared": uses - touched,
        },
        "reads": reads,
        "store_requests": requests,
        "store_bytes": store_bytes,
        "touched_bytes": touched_bytes,
        "unknown_sizes": unknown_sizes,
        "answer_bytes": answer_bytes,
        "cache": { "hits": hits, "misses": touched - absent - hits },
    })
}
