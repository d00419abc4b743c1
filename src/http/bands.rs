//! The bytes of an answer: parts of the selection, planned, read and assembled one after the other.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use futures::StreamExt as _;
use http_body_util::{BodyExt as _, StreamBody};
use tokio_util::task::AbortOnDropHandle;

use super::contents::{Contents, PartPiece};
use super::error::Problem;
use super::gateway::Gateway;
use super::selected::{BAND_BYTES, Selected};
use super::{Body, SliceRequest};
use crate::auth::Principal;
use crate::cache::ObjectState;
use crate::dataset::{DatasetError, Learning, Snapshot, Whereabouts};
use crate::fetch::{FailedJob, FetchError, Fetched, Filling, Job, OnError, Reservation, Slot, Wants};
use crate::model::{ChunkData, ErrorKind, Hyperslab};
use crate::plan::{self, ReadPlan};
use crate::store::{Bucket, ObjectInfo, StoreError};

/// Fills bands of a body.
pub(super) trait Fill: Clone + Send + Sync + 'static {
    /// What says which band.
    type Piece: Clone + Send + Sync + 'static;

    /// The bytes of one band.
    fn fill(&self, piece: Self::Piece) -> impl Future<Output = Result<Band, Problem>> + Send;

    /// The request, for the log.
    fn request_id(&self) -> &str;
}

/// The bands of one body, in order.
pub(super) struct Bands<F: Fill> {
    source: F,
    pieces: std::vec::IntoIter<F::Piece>,
}

/// Bytes of a body, with the memory they were promised.
pub(super) struct Band {
    pub(super) parts: Vec<Bytes>,
    pub(super) reservation: Option<Reservation>,
}

/// A band that is being filled while the one before it is sent. Dropped with the body when the client leaves.
struct Ahead<P> {
    piece: P,
    filling: AbortOnDropHandle<Result<Band, Problem>>,
}

impl<F: Fill> Bands<F> {
    pub(super) fn new(source: F, pieces: Vec<F::Piece>) -> Self {
        Self { source, pieces: pieces.into_iter() }
    }

    pub(super) fn is_done(&self) -> bool {
        self.pieces.as_slice().is_empty()
    }

    /// The first band; `None` for a body without any.
    pub(super) async fn first(&mut self) -> Result<Option<Band>, Problem> {
        match self.pieces.next() {
            Some(piece) => self.source.fill(piece).await.map(Some),
            None => Ok(None),
        }
    }

    /// Begins to fill the next band.
    fn ahead(&mut self) -> Option<Ahead<F::Piece>> {
        let piece = self.pieces.next()?;
        let (source, wanted) = (self.source.clone(), piece.clone());
        let filling = tokio::spawn(async move { source.fill(wanted).await });
        Some(Ahead { piece, filling: AbortOnDropHandle::new(filling) })
    }

    async fn arrived(&self, ahead: Ahead<F::Piece>) -> Result<Band, Problem> {
        match ahead.filling.await {
            // The band before still held its memory. By now it has left.
            Ok(Err(problem)) if problem.kind == ErrorKind::SlowDown => self.source.fill(ahead.piece).await,
            Ok(band) => band,
            Err(lost) => Err(Problem::new(ErrorKind::Internal, format!("a band was lost: {lost}"))),
        }
    }

    /// The body from its first band on: one band is filled while the one before it is sent, and none beyond that, so
    /// that a slow client holds the reading back. A failure from here on aborts the connection.
    pub(super) fn into_body(mut self, first: Band) -> Body {
        if self.is_done() {
            return StreamBody::new(futures::stream::iter(frames(first))).boxed_unsync();
        }
        let next = self.ahead();
        let rest = futures::stream::unfold(Some((self, next)), |state| async move {
            let (mut bands, ahead) = state?;
            match bands.arrived(ahead?).await {
                Ok(band) => {
                    let next = bands.ahead();
                    Some((Ok(band), Some((bands, next))))
                }
                Err(problem) => {
                    tracing::warn!(
                        request_id = %bands.source.request_id(),
                        code = problem.kind.code(),
                        cause = %problem.cause,
                        "failed after the headers; the connection is aborted"
                    );
                    Some((Err(std::io::Error::other(problem.message)), None))
                }
            }
        });
        body(futures::stream::iter([Ok(first)]).chain(rest))
    }
}

/// Fills bands of a slice, or of several fields.
#[derive(Clone)]
pub(super) struct SliceBands {
    pub(super) gateway: Arc<Gateway>,
    pub(super) asked: Arc<SliceRequest>,
    pub(super) contents: Arc<Contents>,
    pub(super) snapshot: Arc<Snapshot>,
    /// The bytes of the body that are asked for.
    pub(super) bytes: Range<u64>,
}

/// A part of a slice's body.
#[derive(Clone)]
pub(super) struct SlicePiece {
    /// Bytes of the header, as far as they are asked for: before the first elements.
    head: Bytes,
    /// Pieces that follow each other in the body. More than one only of several fields.
    pieces: Vec<LocatedPiece>,
}

#[derive(Clone)]
struct LocatedPiece {
    of: PartPiece,
    /// Where its chunks are, if that is known.
    found: Option<Whereabouts>,
}

impl SliceBands {
    /// The bands. `found` says of each part where its chunks are, if that is known and the part is one piece.
    pub(super) fn bands(self, mut found: Vec<Option<Whereabouts>>) -> Bands<Self> {
        let Self { bytes, contents, gateway, .. } = &self;
        let head = &contents.head;
        let (start, end) = (bytes.start.min(head.len() as u64), bytes.end.min(head.len() as u64));
        let head = head.slice(start as usize..end as usize);
        let mut bands: Vec<SlicePiece> = Vec::new();
        let (mut held, mut decoded) = (0_u64, 0_u64);
        for of in contents.pieces(gateway, bytes) {
            let selected = &contents.parts[of.part].selected;
            let len = (of.piece.elements.end - of.piece.elements.start) * selected.element_bytes();
            let beneath = plan::decoded_at_most(&selected.array.meta, &of.piece.slab);
            let found = found.get_mut(of.part).and_then(Option::take).filter(|_| of.piece.slab == selected.slab);
            // Small fields are read at once; pieces of one field are as large as a band already.
            let fits = held.saturating_add(len) <= BAND_BYTES && decoded.saturating_add(beneath) <= gateway.part_bytes;
            let other = |band: &SlicePiece| band.pieces.last().is_some_and(|last| last.of.part != of.part);
            match bands.last_mut().filter(|band| fits && other(band)) {
                Some(band) => band.pieces.push(LocatedPiece { of, found }),
                None => {
                    (held, decoded) = (0, 0);
                    bands.push(SlicePiece { head: Bytes::new(), pieces: vec![LocatedPiece { of, found }] });
                }
            }
            held = held.saturating_add(len);
            decoded = decoded.saturating_add(beneath);
        }
        match bands.first_mut() {
            Some(first) => first.head = head,
            None if head.is_empty() => {}
            None => bands.push(SlicePiece { head, pieces: Vec::new() }),
        }
        Bands::new(self, bands)
    }

    /// The bytes of the body that a piece holds.
    fn place(&self, PartPiece { part, piece }: &PartPiece) -> Range<u64> {
        let part = &self.contents.parts[*part];
        let size = part.selected.element_bytes();
        part.place + piece.elements.start * size..part.place + piece.elements.end * size
    }

    /// The elements of pieces, as they lie in the body.
    async fn elements(&self, pieces: Vec<LocatedPiece>) -> Result<(Bytes, Reservation), Problem> {
        let Self { gateway, asked, contents, snapshot, .. } = self;
        if let [LocatedPiece { of, found }] = &pieces[..] {
            let part = &contents.parts[of.part];
            let fetched = fetch(gateway, &asked.principal, &part.selected, snapshot, &of.piece.slab, found.clone());
            let fetched = fetched.await.map_err(|problem| part.about(problem))?;
            let ChunkData::Fixed(elements) = fetched.tensor.data else {
                return Err(Problem::new(ErrorKind::Internal, "elements of varying length cannot be streamed"));
            };
            return Ok((elements, fetched.reservation));
        }
        let jobs = pieces.iter().map(|LocatedPiece { of, found }| async move {
            let part = &contents.parts[of.part];
            let job = job(gateway, &part.selected, snapshot, &of.piece.slab, found.clone()).await;
            job.map_err(|problem| part.about(problem))
        });
        let jobs = futures::future::try_join_all(jobs).await?;
        let wants = Wants::of(&jobs);
        let reservation = gateway.fetcher.reserve(asked.principal.name(), wants.memory_bytes(&jobs)).await?;
        let moment = gateway.datasets.moment();
        let gathered = gateway.fetcher.gather(&jobs, wants, OnError::Fail).await;
        let gathered = gathered.map_err(|FailedJob { job, error }| {
            forget_changed(gateway, &jobs[job].bucket, &error);
            contents.parts[pieces[job].of.part].about(error.into())
        })?;
        let places: Vec<Range<u64>> = pieces.iter().map(|piece| self.place(&piece.of)).collect();
        let (base, end) = (places.first().map_or(0, |place| place.start), places.last().map_or(0, |place| place.end));
        let mut slots = Vec::with_capacity(jobs.len());
        for ((job, gathered), place) in jobs.into_iter().zip(gathered).zip(places) {
            let gathered = gathered?;
            learn(gateway, &job.bucket, &job.plan, &gathered.learned, moment, snapshot)?;
            let range = (place.start - base) as usize..(place.end - base) as usize;
            slots.push(Slot { range, filling: Filling::Answer(job, gathered) });
        }
        let len = (end - base) as usize;
        let (buffer, _sums) = gateway.fetcher.fill(len, slots).await?;
        Ok((buffer.freeze(len), reservation))
    }
}

impl Fill for SliceBands {
    type Piece = SlicePiece;

    async fn fill(&self, SlicePiece { head, pieces }: SlicePiece) -> Result<Band, Problem> {
        let mut band = Band { parts: Vec::with_capacity(2), reservation: None };
        if !head.is_empty() {
            band.parts.push(head);
        }
        let (Some(first), Some(last)) = (pieces.first(), pieces.last()) else { return Ok(band) };
        let (from, to) = (self.place(&first.of).start, self.place(&last.of).end);
        let (elements, reservation) = self.elements(pieces).await?;
        let (start, end) = (self.bytes.start.max(from) - from, self.bytes.end.min(to) - from);
        band.parts.push(elements.slice(start as usize..end as usize));
        band.reservation = Some(reservation);
        Ok(band)
    }

    fn request_id(&self) -> &str {
        &self.asked.request_id
    }
}

/// A body of bands. An error in it aborts the connection.
fn body(bands: impl futures::Stream<Item = std::io::Result<Band>> + Send + 'static) -> Body {
    let frames = bands.flat_map(|band| match band {
        Ok(band) => futures::stream::iter(frames(band)).left_stream(),
        Err(error) => futures::stream::iter([Err(error)]).right_stream(),
    });
    StreamBody::new(frames).boxed_unsync()
}

type Frame = Result<http_body::Frame<Bytes>, std::io::Error>;

/// The frames of a band. Its memory is given back when the last has been taken: the next band waits for that.
fn frames(band: Band) -> impl Iterator<Item = Frame> + Send {
    let Band { parts, reservation } = band;
    let mut held = Some(reservation);
    let last = parts.len().saturating_sub(1);
    parts.into_iter().enumerate().map(move |(i, part)| {
        if i == last {
            held.take();
        }
        Ok(http_body::Frame::data(part))
    })
}

/// Surveys, locates, plans and runs a part of the selection, and remembers what reading told. `found` says where its
/// chunks are, if that is known.
pub(super) async fn fetch(
    gateway: &Gateway,
    principal: &Principal,
    selected: &Selected,
    snapshot: &Snapshot,
    slab: &Hyperslab,
    found: Option<Whereabouts>,
) -> Result<Fetched, Problem> {
    let array = &selected.array;
    let job = job(gateway, selected, snapshot, slab, found).await?;
    let plan = Arc::clone(&job.plan);
    let moment = gateway.datasets.moment();
    let run = gateway.fetcher.run(principal.name(), job, slab.kept());
    let fetched = run.await.inspect_err(|error| forget_changed(gateway, &array.bucket, error))?;
    learn(gateway, &array.bucket, &plan, &fetched.learned, moment, snapshot)?;
    Ok(fetched)
}

/// Forgets the version of an object that was found changed.
pub(super) fn forget_changed(gateway: &Gateway, bucket: &Bucket, error: &FetchError) {
    if let FetchError::Store(error) = error
        && let StoreError::Changed { key } = &**error
    {
        gateway.datasets.invalidate(&bucket.name, key);
    }
}

/// Remembers what reading told of a plan's objects.
pub(super) fn learn(
    gateway: &Gateway,
    bucket: &Bucket,
    plan: &ReadPlan,
    learned: &std::collections::HashMap<usize, Option<ObjectInfo>>,
    moment: (u64, std::time::Instant),
    snapshot: &Snapshot,
) -> Result<(), Problem> {
    for (object, info) in learned {
        let key = &plan.objects[*object].key;
        let told = info.as_ref().map_or(ObjectState::Absent, crate::dataset::state_of);
        if gateway.datasets.learn(moment, bucket, key, info.as_ref(), snapshot) != told {
            return Err(DatasetError::from(Arc::new(StoreError::Changed { key: key.to_string() })).into());
        }
    }
    Ok(())
}

/// Surveys, locates and plans a part of the selection.
async fn job(
    gateway: &Gateway,
    selected: &Selected,
    snapshot: &Snapshot,
    slab: &Hyperslab,
    found: Option<Whereabouts>,
) -> Result<Job, Problem> {
    let array = &selected.array;
    let survey = selected.survey(gateway, slab)?;
    let found = match found {
        Some(found) => found,
        None => gateway.datasets.locate(array, &survey, Learning::OnRead, snapshot).await?,
    };
    let outside = Some(Arc::clone(&selected.outside));
    let plan = ReadPlan::new(&array.meta, &array.path, survey, found.facts, found.located, outside)?;
    Ok(Job {
        bucket: array.bucket.clone(),
        path: Arc::clone(&array.path),
        array: Arc::clone(&array.meta),
        plan: Arc::new(plan),
        scan: selected.is_scan(gateway),
    })
}
