//! Several answers into one buffer, spread over the cores.

use std::ops::Range;
use std::sync::Arc;

use rayon::iter::{IntoParallelIterator as _, ParallelIterator as _};

use super::{FetchError, Fetcher, Gathered, Job};
use crate::store::Buffer;
use crate::tensor::{assemble, fill};

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

impl Fetcher {
    /// A buffer of `len` bytes with every slot filled, and the CRC-32C of each slot.
    ///
    /// # Errors
    /// [`FetchError::Assemble`] when chunks do not fit their plan.
    ///
    /// # Panics
    /// When slots overlap or lie outside the buffer: a fault of the caller.
    pub async fn fill(&self, len: usize, slots: Vec<Slot>) -> Result<(Buffer, Vec<u32>), FetchError> {
        let buffers = self.buffers().clone();
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
                        Filling::Answer(job, gathered) => assemble(&job.array, &job.plan, &gathered.chunks, part)?,
                        Filling::Value(element) => fill(part, &element),
                        Filling::Bytes(bytes) => part.copy_from_slice(&bytes),
                    }
                    Ok(crc32c::crc32c(part))
                })
                .collect();
            Ok((buffer, sums?))
        };
        self.pool.run(work).await?
    }
}
