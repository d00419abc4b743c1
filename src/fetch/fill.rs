//! Several answers into one buffer, spread over the cores.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use rayon::iter::{IntoParallelIterator as _, ParallelIterator as _};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::fetcher::Had;
use super::{FetchError, Fetcher, Gathered, Job};
use crate::format::codec::CodecError;
use crate::metrics::Metrics;
use crate::model::ChunkData;
use crate::store::Buffer;
use crate::tensor::{Chunk, assemble, assemble_variable, direct_range, fill, is_covered};

/// What a part of the buffer is filled with.
#[derive(Debug)]
pub enum Filling {
    /// The answer of a job, from its chunks.
    Answer(Job, Gathered),
    /// One element, repeated.
    Value(Arc<[u8]>),
    /// These bytes.
    Bytes(Vec<u8>),
}

/// A part of a buffer.
#[derive(Debug)]
pub struct Slot {
    /// Its place. Slots ascend and do not overlap; what lies between them is zero.
    pub range: Range<usize>,
    /// What it holds.
    pub filling: Filling,
}

/// Who decodes, for whom: counts, and ends when nobody waits any more.
#[derive(Debug, Clone)]
pub(super) struct Watch {
    pub(super) metrics: Metrics,
    pub(super) token: CancellationToken,
}

impl Watch {
    /// Before each chunk.
    fn next(&self) -> Result<(), FetchError> {
        if self.token.is_cancelled() {
            return Err(FetchError::GivenUp);
        }
        self.metrics.chunks_decoded(1);
        Ok(())
    }
}

/// Puts a job's answer together: what is still stored is decoded on all threads of the pool, in place where it can be.
pub(super) fn fill_answer(job: &Job, gathered: Gathered, out: &mut [u8], watch: &Watch) -> Result<(), FetchError> {
    let Job { array, plan, .. } = job;
    let in_place = !gathered.is_decoded() && is_covered(plan);
    let mut direct: Vec<(Range<usize>, usize, Bytes)> = Vec::new();
    let mut rest: Vec<(usize, Bytes)> = Vec::new();
    let mut chunks: Vec<Option<Chunk>> = Vec::with_capacity(gathered.chunks.len());
    for (i, (planned, had)) in plan.chunks.iter().zip(gathered.chunks).enumerate() {
        chunks.push(match had {
            None => None,
            Some(Had::Decoded(data)) => Some(Chunk::Decoded(data)),
            Some(Had::Stored(stored)) => {
                match direct_range(array, plan, planned).filter(|_| in_place) {
                    Some(range) => direct.push((range, i, stored)),
                    None => rest.push((i, stored)),
                }
                // Until it is decoded below.
                Some(Chunk::InPlace)
            }
        });
    }
    if !direct.is_empty() {
        decode_in_place(job, direct, out, watch)?;
    }
    if !rest.is_empty() {
        let rest = rest.into_par_iter().map(|(i, stored)| Ok((i, decode(job, i, stored, watch)?)));
        for (i, data) in rest.collect::<Result<Vec<_>, FetchError>>()? {
            chunks[i] = Some(Chunk::Decoded(data));
        }
    }
    Ok(assemble(array, plan, &chunks, out)?)
}

/// Decodes chunks into disjoint parts of the answer.
fn decode_in_place(
    job: &Job,
    mut chunks: Vec<(Range<usize>, usize, Bytes)>,
    out: &mut [u8],
    watch: &Watch,
) -> Result<(), FetchError> {
    chunks.sort_by_key(|(range, ..)| range.start);
    let mut parts = Vec::with_capacity(chunks.len());
    let (mut left, mut at) = (out, 0);
    for (range, i, stored) in chunks {
        let (_, after) = left.split_at_mut(range.start - at);
        let (part, after) = after.split_at_mut(range.end - range.start);
        (left, at) = (after, range.end);
        parts.push((i, stored, part));
    }
    parts.into_par_iter().try_for_each(|(i, stored, part)| {
        watch.next()?;
        let shape = job.array.decoded_shape(&job.plan.chunks[i].coord);
        job.array.codec.decode_into(stored, &shape, part).map_err(|error| failed(job, i, error))
    })
}

/// The same for elements of varying length.
pub(super) fn variable_answer(job: &Job, gathered: Gathered, watch: &Watch) -> Result<Vec<Box<[u8]>>, FetchError> {
    let chunks = gathered.chunks.into_iter().enumerate().map(|(i, had)| match had {
        None => Ok(None),
        Some(Had::Decoded(data)) => Ok(Some(Chunk::Decoded(data))),
        Some(Had::Stored(stored)) => Ok(Some(Chunk::Decoded(decode(job, i, stored, watch)?))),
    });
    let chunks: Vec<Option<Chunk>> = chunks.collect::<Result<_, FetchError>>()?;
    Ok(assemble_variable(&job.array, &job.plan, &chunks)?)
}

fn decode(job: &Job, chunk: usize, stored: Bytes, watch: &Watch) -> Result<Arc<ChunkData>, FetchError> {
    watch.next()?;
    let shape = job.array.decoded_shape(&job.plan.chunks[chunk].coord);
    job.array.codec.decode(stored, &shape).map(Arc::new).map_err(|error| failed(job, chunk, error))
}

fn failed(job: &Job, chunk: usize, error: CodecError) -> FetchError {
    let planned = &job.plan.chunks[chunk];
    let key = planned.extent.as_ref().map_or("".into(), |extent| Arc::clone(&job.plan.objects[extent.object].key));
    FetchError::Decode { chunk: planned.coord.clone(), key, source: Arc::new(error) }
}

impl Fetcher {
    /// A watch over decoding that ends with the guard.
    pub(super) fn watch(&self) -> (Watch, DropGuard) {
        let token = CancellationToken::new();
        let guard = token.clone().drop_guard();
        (Watch { metrics: self.metrics.clone(), token }, guard)
    }

    /// A buffer of `len` bytes with every slot filled, and the CRC-32C of each slot.
    ///
    /// # Errors
    /// [`FetchError::Assemble`] when chunks do not fit their plan.
    ///
    /// # Panics
    /// When slots overlap or lie outside the buffer: a fault of the caller.
    pub async fn fill(&self, len: usize, slots: Vec<Slot>) -> Result<(Buffer, Vec<u32>), FetchError> {
        let buffers = self.buffers().clone();
        let (watch, _given_up) = self.watch();
        let work = move || {
            let mut buffer = buffers.take(len);
            let mut rest: &mut [u8] = &mut buffer;
            let mut at = 0;
            let mut parts = Vec::with_capacity(slots.len());
            for Slot { range, filling } in slots {
                let (gap, after) = rest.split_at_mut(range.start - at);
                gap.fill(0);
                let (part, after) = after.split_at_mut(range.end - range.start);
                parts.push((part, filling));
                rest = after;
                at = range.end;
            }
            rest.fill(0);
            let sums: Result<Vec<u32>, FetchError> = parts
                .into_par_iter()
                .map(|(part, filling)| {
                    match filling {
                        Filling::Answer(job, gathered) => fill_answer(&job, gathered, part, &watch)?,
                        Filling::Value(element) => fill(part, &element),
                        Filling::Bytes(bytes) => part.copy_from_slice(&bytes),
                    }
                    Ok(crc32c::crc32c(part))
                })
                .collect();
            Ok((buffer, sums?))
        };
        self.pool.run_spread(work).await?
    }
}
