//! A plan as people read it: what would be read, and why not more.

use serde_json::{Value, json};

use super::{ObjectFacts, ReadPlan, coalesce};

/// Reads listed one by one; larger plans show the first of them.
const LISTED: usize = 1000;

/// Describes a plan as JSON: chunks touched and absent, the ranged reads, bytes from the store and of the answer.
///
/// `cached[i]` says whether chunk `i` needs no read; `gap_bytes` and `most_bytes` are those of [`coalesce`].
/// `chunks_total` is the number of chunks of the whole array.
pub fn explain(plan: &ReadPlan, cached: &[bool], gap_bytes: u64, most_bytes: u64, chunks_total: u64) -> Value {
    let mut reads = Vec::new();
    let (mut requests, mut store_bytes, mut touched_bytes) = (0_u64, 0_u64, 0_u64);
    let mut unknown_sizes = 0_u64;
    for (number, object) in plan.objects.iter().enumerate() {
        let wanted: Vec<_> = plan
            .chunks
            .iter()
            .zip(cached)
            .filter_map(|(chunk, cached)| chunk.extent.as_ref().filter(|e| !cached && e.object == number))
            .collect();
        if object.facts == ObjectFacts::LearnOnRead {
            requests += wanted.len() as u64;
            unknown_sizes += wanted.len() as u64;
            continue;
        }
        let ranges: Vec<_> = wanted.iter().map(|extent| extent.range.clone()).collect();
        touched_bytes += ranges.iter().map(|range| range.end - range.start).sum::<u64>();
        for read in coalesce(&ranges, gap_bytes, most_bytes) {
            requests += 1;
            store_bytes += read.range.end - read.range.start;
            if reads.len() < LISTED {
                reads.push(json!({
                    "key": &*object.key,
                    "start": read.range.start,
                    "len": read.range.end - read.range.start,
                    "chunks": read.parts.len(),
                }));
            }
        }
    }
    let absent = plan.chunks.iter().filter(|chunk| chunk.extent.is_none()).count();
    let hits = plan.chunks.iter().zip(cached).filter(|(chunk, cached)| chunk.extent.is_some() && **cached).count();
    json!({
        "chunks": { "total": chunks_total, "touched": plan.chunks.len(), "absent": absent, "pruned": 0 },
        "reads": reads,
        "store_requests": requests,
        "store_bytes": store_bytes,
        "touched_bytes": touched_bytes,
        "unknown_sizes": unknown_sizes,
        "answer_bytes": plan.answer_bytes(),
        "cache": { "hits": hits, "misses": plan.chunks.len() - absent - hits },
    })
}
