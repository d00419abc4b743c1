//! The bytes of an answer: parts of the selection, planned, read and assembled one after the other.

use std::sync::Arc;

use bytes::Bytes;
use futures::StreamExt as _;
use http_body_util::{BodyExt as _, StreamBody};

use super::error::Problem;
use super::gateway::Gateway;
use super::selected::Selected;
use super::{Body, SliceRequest};
use crate::auth::Principal;
use crate::cache::ObjectState;
use crate::dataset::{DatasetError, Learning, Snapshot};
use crate::fetch::{FetchError, Fetched};
use crate::model::{ChunkData, ErrorKind, Hyperslab, Piece};
use crate::plan::{ReadPlan, survey};
use crate::store::StoreError;

/// The bands of one body, read one after the other.
pub(super) struct Bands {
    gateway: Arc<Gateway>,
    asked: Arc<SliceRequest>,
    selected: Arc<Selected>,
    snapshot: Arc<Snapshot>,
    bytes: std::ops::Range<u64>,
    pieces: std::vec::IntoIter<Piece>,
    head_sent: bool,
}

/// Bytes of a body, with the memory they were promised.
pub(super) struct Band {
    parts: Vec<Bytes>,
    reservation: Option<crate::fetch::Reservation>,
}

impl Bands {
    pub(super) fn new(
        gateway: &Arc<Gateway>,
        asked: &Arc<SliceRequest>,
        selected: &Arc<Selected>,
        snapshot: &Arc<Snapshot>,
        bytes: std::ops::Range<u64>,
    ) -> Self {
        let pieces = if bytes.is_empty() { Vec::new() } else { selected.pieces(&bytes) };
        Self {
            gateway: Arc::clone(gateway),
            asked: Arc::clone(asked),
            selected: Arc::clone(selected),
            snapshot: Arc::clone(snapshot),
            bytes,
            pieces: pieces.into_iter(),
            head_sent: false,
        }
    }

    pub(super) fn is_done(&self) -> bool {
        self.head_sent && self.pieces.as_slice().is_empty()
    }

    /// The next band. The header's bytes, as far as they are asked for, come with the first.
    pub(super) async fn next(&mut self) -> Option<Result<Band, Problem>> {
        if self.bytes.is_empty() || self.is_done() {
            return None;
        }
        let head = &self.selected.head;
        let mut parts = Vec::with_capacity(2);
        if !self.head_sent {
            self.head_sent = true;
            let (start, end) = (self.bytes.start.min(head.len() as u64), self.bytes.end.min(head.len() as u64));
            if start < end {
                parts.push(head.slice(start as usize..end as usize));
            }
        }
        let Some(piece) = self.pieces.next() else {
            return Some(Ok(Band { parts, reservation: None }));
        };
        match fetch(&self.gateway, &self.asked.principal, &self.selected, &self.snapshot, &piece.slab).await {
            Ok(Fetched { tensor, reservation, .. }) => match tensor.data {
                ChunkData::Fixed(elements) => {
                    let (size, head) = (self.selected.element_bytes(), head.len() as u64);
                    let (from, to) = (head + piece.elements.start * size, head + piece.elements.end * size);
                    let (start, end) = (self.bytes.start.max(from) - from, self.bytes.end.min(to) - from);
                    parts.push(elements.slice(start as usize..end as usize));
                    Some(Ok(Band { parts, reservation: Some(reservation) }))
                }
                ChunkData::Variable(_) => {
                    Some(Err(Problem::new(ErrorKind::Internal, "elements of varying length cannot be streamed")))
                }
            },
            Err(problem) => Some(Err(problem)),
        }
    }

    /// The rest of the body behind its first band. A failure from here on aborts the connection.
    pub(super) fn into_body(self, first: Band) -> Body {
        let rest = futures::stream::unfold(Some(self), |bands| async move {
            let mut bands = bands?;
            match bands.next().await? {
                Ok(band) => Some((Ok(band), Some(bands))),
                Err(problem) => {
                    tracing::warn!(
                        request_id = %bands.asked.request_id,
                        code = problem.kind.code(),
                        cause = %problem.cause,
                        "slice failed after its headers; the connection is aborted"
                    );
                    Some((Err(std::io::Error::other(problem.message)), None))
                }
            }
        });
        let bands = futures::stream::iter([Ok(first)]).chain(rest);
        let frames = bands.flat_map(|band| match band {
            Ok(band) => futures::stream::iter(frames(band)).left_stream(),
            Err(error) => futures::stream::iter([Err(error)]).right_stream(),
        });
        StreamBody::new(frames).boxed_unsync()
    }
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

/// A body of one band.
pub(super) fn hold(band: Band) -> Body {
    StreamBody::new(futures::stream::iter(frames(band))).boxed_unsync()
}

/// Surveys, locates, plans and runs a part of the selection, and remembers what reading told.
pub(super) async fn fetch(
    gateway: &Gateway,
    principal: &Principal,
    selected: &Selected,
    snapshot: &Snapshot,
    slab: &Hyperslab,
) -> Result<Fetched, Problem> {
    let array = &selected.array;
    let plan = plan(gateway, selected, snapshot, slab, Learning::OnRead).await?;
    let plan = Arc::new(plan.0);
    let moment = gateway.datasets.moment();
    let run =
        gateway.fetcher.run(principal.name(), &array.bucket, &array.meta, Arc::clone(&plan), slab.kept().to_vec());
    let fetched = run.await.inspect_err(|error| {
        if let FetchError::Store(error) = error
            && let StoreError::Changed { key } = &**error
        {
            gateway.datasets.invalidate(&array.bucket.name, key);
        }
    })?;
    for (object, info) in &fetched.learned {
        let key = &plan.objects[*object].key;
        let told = info.as_ref().map_or(ObjectState::Absent, crate::dataset::state_of);
        if gateway.datasets.learn(moment, &array.bucket, key, info.as_ref(), snapshot) != told {
            return Err(DatasetError::from(Arc::new(StoreError::Changed { key: key.to_string() })).into());
        }
    }
    Ok(fetched)
}

/// Surveys, locates and plans a part of the selection. Also says how many indexes were read.
pub(super) async fn plan(
    gateway: &Gateway,
    selected: &Selected,
    snapshot: &Snapshot,
    slab: &Hyperslab,
    learning: Learning,
) -> Result<(ReadPlan, u64), Problem> {
    let array = &selected.array;
    let survey =
        if *slab == selected.slab { selected.survey.clone() } else { survey(&array.meta, slab, &gateway.limits)? };
    let found = gateway.datasets.locate(array, &survey, learning, snapshot).await?;
    let outside = Some(Arc::clone(&selected.outside));
    let plan = ReadPlan::new(&array.meta, &array.path, survey, found.facts, found.located, outside)?;
    Ok((plan, found.index_reads))
}
