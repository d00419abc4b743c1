//! The bytes of a batch: windows of items, each planned, read and put together at once.

use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use futures::StreamExt as _;

use super::super::SliceRequest;
use super::super::bands::{self, Band, Bands, Fill};
use super::super::error::{self, Problem};
use super::super::gateway::Gateway;
use super::fields::{Field, Fields};
use crate::dataset::{Learning, Snapshot};
use crate::fetch::{FailedJob, Filling, Gathered, Job, OnError, Slot, Wants};
use crate::model::{ErrorKind, Hyperslab};
use crate::plan::ReadPlan;
use crate::wire::batch::{ALIGNMENT, Frame, Record, aligned, dtype_code, end_frame};

/// Items whose chunks are located at once.
const LOCATED_AT_ONCE: usize = 64;

/// Fills the windows of a batch.
#[derive(Clone)]
pub(super) struct BatchBands {
    gateway: Arc<Gateway>,
    asked: Arc<SliceRequest>,
    fields: Arc<Fields>,
    snapshot: Arc<Snapshot>,
    /// Of a stack, by part: they are sent at the end.
    records: Arc<Mutex<Vec<Record>>>,
}

/// A part of a batch's body.
#[derive(Debug, Clone)]
pub(super) enum BatchPiece {
    /// These parts.
    Window(Range<usize>),
    /// The end frame, or the records.
    End,
}

/// What became of one part.
type Unit = Result<(Job, Gathered), Problem>;

impl BatchBands {
    pub(super) fn new(
        gateway: &Arc<Gateway>,
        asked: &Arc<SliceRequest>,
        fields: Fields,
        snapshot: &Arc<Snapshot>,
    ) -> Self {
        let records = if fields.options.stack { vec![Record::default(); fields.units()] } else { Vec::new() };
        Self {
            gateway: Arc::clone(gateway),
            asked: Arc::clone(asked),
            fields: Arc::new(fields),
            snapshot: Arc::clone(snapshot),
            records: Arc::new(Mutex::new(records)),
        }
    }

    pub(super) fn bands(self, windows: Vec<Range<usize>>) -> Bands<Self> {
        let pieces = windows.into_iter().map(BatchPiece::Window).chain([BatchPiece::End]).collect();
        Bands::new(self, pieces)
    }

    /// Reads the chunks of a window, each once, and hands every part its own.
    async fn read(&self, window: Range<usize>) -> Result<(Vec<Unit>, crate::fetch::Reservation), Problem> {
        let planned = window.clone().map(|unit| async move {
            let (item, number) = self.fields.unit(unit);
            let field = &self.fields.fields[number];
            let slab = field.slabs[item].as_ref().map_err(Problem::clone)?;
            let job = self.job(field, slab).await;
            job.map_err(|problem| problem.about(&field.array.path).in_item(item, field.name.as_deref()))
        });
        let planned: Vec<_> = planned.collect();
        let planned: Vec<Result<Job, Problem>> =
            futures::stream::iter(planned).buffered(LOCATED_AT_ONCE).collect().await;
        let skip = self.fields.options.skip_errors;
        if !skip && let Some(problem) = planned.iter().find_map(|job| job.as_ref().err()) {
            return Err(problem.clone());
        }
        let jobs: Vec<Job> = planned.iter().flatten().cloned().collect();
        let fetcher = &self.gateway.fetcher;
        let wants = Wants::of(&jobs);
        let reservation = fetcher.reserve(self.asked.principal.name(), wants.memory_bytes(&jobs)).await?;
        let moment = self.gateway.datasets.moment();
        let on_error = if skip { OnError::Skip } else { OnError::Fail };
        let mut gathered = match fetcher.gather(&jobs, wants, on_error).await {
            Ok(gathered) => gathered.into_iter(),
            // Without `skip` every part has a job.
            Err(FailedJob { job, error }) => {
                bands::forget_changed(&self.gateway, &jobs[job].bucket, &error);
                let (item, field) = self.fields.unit(window.start + job);
                return Err(self.in_item(error.into(), item, &self.fields.fields[field]));
            }
        };
        let mut jobs = jobs.into_iter();
        let mut units: Vec<Unit> = Vec::with_capacity(planned.len());
        for planned in planned {
            let unit = match planned {
                Err(problem) => Err(problem),
                Ok(_) => {
                    let (Some(job), Some(gathered)) = (jobs.next(), gathered.next()) else {
                        return Err(Problem::new(ErrorKind::Internal, "a part of the batch was lost"));
                    };
                    self.learned(job, gathered, moment)
                }
            };
            match unit {
                Err(problem) if !skip => return Err(problem),
                unit => units.push(unit),
            }
        }
        Ok((units, reservation))
    }

    async fn job(&self, field: &Field, slab: &Hyperslab) -> Result<Job, Problem> {
        let array = &field.array;
        let survey = crate::plan::survey(&array.meta, slab, &self.gateway.limits)?;
        let found = self.gateway.datasets.locate(array, &survey, Learning::OnRead, &self.snapshot).await?;
        let outside = Some(Arc::clone(&field.outside));
        let plan = ReadPlan::new(&array.meta, &array.path, survey, found.facts, found.located, outside)?;
        Ok(Job {
            bucket: array.bucket.clone(),
            path: Arc::clone(&array.path),
            array: Arc::clone(&array.meta),
            plan: Arc::new(plan),
            scan: false,
        })
    }

    fn learned(
        &self,
        job: Job,
        gathered: Result<Gathered, crate::fetch::FetchError>,
        moment: (u64, std::time::Instant),
    ) -> Unit {
        let gathered = gathered.inspect_err(|error| bands::forget_changed(&self.gateway, &job.bucket, error))?;
        bands::learn(&self.gateway, &job.bucket, &job.plan, &gathered.learned, moment, &self.snapshot)?;
        Ok((job, gathered))
    }

    /// A window as frames.
    async fn framed(&self, window: Range<usize>, units: Vec<Unit>) -> Result<Bytes, Problem> {
        let mut frames = Vec::with_capacity(units.len());
        let mut slots = Vec::with_capacity(units.len());
        let mut at = 0_usize;
        for (unit, outcome) in window.zip(units) {
            let (item, number) = self.fields.unit(unit);
            let field = &self.fields.fields[number];
            let (status, shape, len, filling) = match outcome {
                Ok((job, gathered)) => {
                    let slab = field.slabs[item].as_ref().map_err(Problem::clone)?;
                    (200, slab.answer_shape(), field.bytes_of(slab) as usize, Filling::Answer(job, gathered))
                }
                Err(problem) => {
                    let problem = self.in_item(problem, item, field);
                    let resource = format!("/{}/{}", self.asked.bucket, self.asked.key);
                    let body = error::problem_body(&problem, &resource, &self.asked.request_id).into_bytes();
                    (error::status(problem.kind).as_u16(), Vec::new(), body.len(), Filling::Bytes(body))
                }
            };
            let dtype = if status == 200 { dtype_code(&field.array.meta.dtype) } else { 0 };
            let start = at;
            let frame = Frame {
                item: item as u32,
                field: number as u16,
                status,
                dtype,
                shape: &[],
                crc32c: 0,
                len: len as u64,
            };
            let payload = start + Frame { shape: &shape, ..frame }.head_len();
            at = aligned(payload + len).ok_or_else(too_large)?;
            slots.push(Slot { range: payload..payload + len, filling });
            frames.push((start, item, number, status, dtype, shape, len));
        }
        let (mut buffer, sums) = self.gateway.fetcher.fill(at, slots).await?;
        for ((start, item, field, status, dtype, shape, len), crc32c) in frames.into_iter().zip(sums) {
            let (item, field, len) = (item as u32, field as u16, len as u64);
            let head = Frame { item, field, status, dtype, shape: &shape, crc32c, len }.head();
            buffer[start..start + head.len()].copy_from_slice(&head);
        }
        Ok(buffer.freeze(at))
    }

    /// A window of a stack: its parts next to each other.
    async fn stacked(&self, window: Range<usize>, units: Vec<Unit>) -> Result<Bytes, Problem> {
        let base = self.fields.place(window.start).map_or(0, |place| place.start);
        let end = self.fields.place_after(window.end - 1);
        let mut slots = Vec::with_capacity(units.len());
        let mut statuses = Vec::with_capacity(units.len());
        for (unit, outcome) in window.clone().zip(units) {
            let (item, number) = self.fields.unit(unit);
            let field = &self.fields.fields[number];
            let place = self.fields.place(unit).ok_or_else(too_large)?;
            let filling = match outcome {
                Ok((job, gathered)) => {
                    statuses.push(200);
                    Filling::Answer(job, gathered)
                }
                Err(problem) => {
                    let problem = self.in_item(problem, item, field);
                    tracing::info!(request_id = %self.asked.request_id, code = problem.kind.code(), cause = %problem.cause, "an item of a batch was skipped");
                    statuses.push(error::status(problem.kind).as_u16());
                    Filling::Value(field.array.meta.fill.as_slice().into())
                }
            };
            slots.push(Slot { range: (place.start - base) as usize..(place.end - base) as usize, filling });
        }
        let len = (end - base) as usize;
        let (buffer, sums) = self.gateway.fetcher.fill(len, slots).await?;
        let mut records = self.records.lock().unwrap_or_else(PoisonError::into_inner);
        for (unit, (status, crc32c)) in window.zip(statuses.into_iter().zip(sums)) {
            let (item, field) = self.fields.unit(unit);
            records[item * self.fields.fields.len() + field] = Record { status, crc32c };
        }
        Ok(buffer.freeze(len))
    }

    fn in_item(&self, problem: Problem, item: usize, field: &Field) -> Problem {
        if problem.details.item.is_some() {
            return problem;
        }
        problem.about(&field.array.path).in_item(item, field.name.as_deref())
    }

    fn end(&self) -> Vec<u8> {
        if self.fields.options.stack {
            let records = self.records.lock().unwrap_or_else(PoisonError::into_inner);
            return records.iter().flat_map(|record| record.bytes()).collect();
        }
        end_frame(self.fields.units() as u32)
    }
}

impl Fill for BatchBands {
    type Piece = BatchPiece;

    async fn fill(&self, piece: BatchPiece) -> Result<Band, Problem> {
        let BatchPiece::Window(window) = piece else {
            return Ok(Band { parts: vec![self.end().into()], reservation: None });
        };
        let (units, reservation) = self.read(window.clone()).await?;
        let bytes = if self.fields.options.stack {
            self.stacked(window, units).await?
        } else {
            self.framed(window, units).await?
        };
        debug_assert!(bytes.len().is_multiple_of(ALIGNMENT) || self.fields.options.stack);
        Ok(Band { parts: vec![bytes], reservation: Some(reservation) })
    }

    fn request_id(&self) -> &str {
        &self.asked.request_id
    }
}

fn too_large() -> Problem {
    Problem::new(ErrorKind::SliceTooLarge, "the batch does not fit in memory")
}
