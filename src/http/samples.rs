//! Samples of ragged arrays: what a selection takes of each, in positions of the flat axis.
//!
//! The first axis of a ragged array holds samples one after the other; an index array beside it tells where each lies.
//! `isel=sample=7` is about that index, and whatever else the request selects of the axis is about the sample.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::{Arc, PoisonError};

use super::coordinates::Finder;
use super::error::Problem;
use super::predicate::{Narrowed, box_of_columns};
use crate::auth::Action;
use crate::coords::{self, Coordinates, CoordsError, IndexKind, Listed, Measured, Offsets};
use crate::dataset::{Array, Opened};
use crate::filter::FilterError;
use crate::model::key::beneath;
use crate::model::{Axis, Details, ErrorKind, Hyperslab, OUTSIDE};
use crate::query::{self, Dim, Filter, Found, OnAxis, Positions, Predicate, QueryError, Select, Selection};

/// Most positions of all samples of one request: they are listed one by one.
const POSITIONS: u64 = 16 << 20;

/// Members of a group among which an index is looked for.
const MEMBERS: usize = 1000;

/// Where the samples of an array lie.
#[derive(Debug)]
pub(super) struct Index {
    /// What told so.
    name: String,
    pub(super) offsets: Arc<Offsets>,
}

/// What a selection takes of one array, once coordinates and samples are positions.
#[derive(Debug, Clone)]
pub(super) struct Resolved<'a> {
    /// What it says by positions and names.
    pub(super) selection: Cow<'a, Selection>,
    /// What was found of other axes.
    pub(super) found: Vec<Found>,
    /// The samples that it takes, if it takes such.
    pub(super) samples: Option<Samples>,
    /// What a predicate takes of that.
    pub(super) narrowed: Option<Narrowed>,
}

impl Resolved<'_> {
    /// The positions, within the array.
    pub(super) fn slab(&self, array: &Array) -> Result<Hyperslab, QueryError> {
        let meta = &array.meta;
        let slab = query::resolve(&self.selection, &meta.shape, &meta.dims, &self.found)?;
        let axes = self.narrowed.iter().flat_map(|narrowed| &narrowed.axes);
        Ok(axes.fold(slab, |slab, (axis, taken)| slab.with_axis(*axis, taken.clone())))
    }
}

/// Samples that a selection takes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Samples {
    /// What they are called.
    pub(super) dimension: String,
    /// How many positions each has, before padding.
    pub(super) lengths: Vec<u64>,
    /// Whether it is one, by an integer: there is no axis of samples.
    pub(super) one: bool,
    /// How many positions each has after padding.
    pub(super) padded: Option<u64>,
}

impl Finder<'_> {
    /// What a selection takes of one array, and a predicate of that.
    pub(super) async fn resolve<'s>(
        &self,
        array: &Array,
        selection: &'s Selection,
        pad: Option<u64>,
        predicate: Option<&Predicate>,
    ) -> Result<Resolved<'s>, Problem> {
        let (selection, boxed) = match box_of_columns(array, selection)? {
            None => (Cow::Borrowed(selection), None),
            Some((rest, boxed)) => (Cow::Owned(rest), Some(boxed)),
        };
        let mut resolved = match self.taken_samples(array, &selection).await? {
            Some((at, index)) => self.samples(array, &selection, at, &index, pad).await?,
            None => {
                let found = self.positions(array, &selection).await?;
                Resolved { selection, found, samples: None, narrowed: None }
            }
        };
        let filter = match (predicate, boxed) {
            (None, None) => return Ok(resolved),
            (Some(predicate), None) => predicate.filter.clone(),
            (None, Some(boxed)) => boxed,
            (Some(predicate), Some(boxed)) => Filter::all(vec![boxed, predicate.filter.clone()]),
        };
        if resolved.samples.as_ref().is_some_and(|samples| !samples.one || samples.padded.is_some()) {
            let what = "a predicate on several samples, or on a padded one,".to_owned();
            return Err(FilterError::Unsupported { what }.into());
        }
        let slab = resolved.slab(array)?;
        let meaning = predicate.and_then(|predicate| predicate.meaning);
        let mut narrowed = self.narrow(array, &slab, &filter, meaning).await?;
        if predicate.is_some_and(|predicate| predicate.select == Select::Box) {
            for ((axis, taken), kept) in narrowed.axes.iter_mut().zip(&narrowed.kept) {
                if let (Some(first), Some(last)) = (kept.first(), kept.last()) {
                    *taken = slab.axes()[*axis].part(*first..last + 1);
                }
            }
        }
        resolved.narrowed = Some(narrowed);
        Ok(resolved)
    }

    /// Which entry of `isel` is about samples of the array, and where these lie.
    pub(super) async fn taken_samples(
        &self,
        array: &Array,
        selection: &Selection,
    ) -> Result<Option<(usize, Arc<Index>)>, Problem> {
        for (at, (name, _)) in selection.named.iter().enumerate() {
            if let Some(index) = self.index(array, name).await? {
                return Ok(Some((at, index)));
            }
        }
        Ok(None)
    }

    /// The samples that entry `at` of `isel` names, and of each what the rest says of the flat axis.
    async fn samples<'s>(
        &self,
        array: &Array,
        selection: &Selection,
        at: usize,
        index: &Index,
        pad: Option<u64>,
    ) -> Result<Resolved<'s>, Problem> {
        let (dimension, dim) = &selection.named[at];
        let flat = array.meta.dims[0].clone();
        let (inner, rest) = parted(selection, at, flat.as_deref());
        let one = matches!(dim, Dim::Index(_));
        let outer =
            Selection { named: vec![(dimension.clone(), dim.clone())], oob: selection.oob, ..Selection::default() };
        let chosen = query::resolve(&outer, &[index.offsets.samples()], &[Some(dimension.clone())], &[])?;
        let count = chosen.axes()[0].count();
        if count > POSITIONS {
            return Err(too_many(count, "samples"));
        }
        let mut lengths = Vec::with_capacity(count as usize);
        let mut positions: Vec<u64> = Vec::new();
        let mut range = None;
        for sample in taken(&chosen.axes()[0], index.offsets.samples(), 0) {
            let of = if sample == OUTSIDE { 0..0 } else { index.offsets.of(sample) };
            let len = of.end - of.start;
            let found = if inner.has_coordinates() && sample != OUTSIDE {
                let coordinates = self.of_sample(array, index, sample, &of).await?;
                let name = array.meta.axis_label(0);
                self.place(&coords::Axis { name: &name, len, coordinates: &coordinates }, 0, &inner)?
            } else {
                Vec::new()
            };
            let slab = query::resolve(&inner, &[len], std::slice::from_ref(&flat), &found)?;
            let axis = &slab.axes()[0];
            if !slab.kept()[0] {
                if !one || pad.is_some() {
                    let message = "one position of each of several samples, or of a padded one, is a range such as 0:1";
                    let details = Details { parameter: Some("isel".into()), dimension: flat, ..Details::default() };
                    return Err(Problem::new(ErrorKind::InvalidSelection, message).at(details));
                }
                let position = taken(axis, len, of.start).next().unwrap_or(OUTSIDE);
                let mut found = self.positions(array, &rest).await?;
                found.push(Found { axis: 0, parameter: "isel", positions: Positions::One(position) });
                return Ok(Resolved { selection: Cow::Owned(rest), found, samples: None, narrowed: None });
            }
            let held = axis.count();
            let padded = pad.unwrap_or(held);
            if held > padded {
                let message = format!(
                    "pad: sample {sample} has {held} positions, more than {padded}; take fewer, such as isel={}=0:{padded}",
                    array.meta.axis_label(0)
                );
                let details = Details {
                    parameter: Some("pad".into()),
                    valid: Some(format!("at least {held}")),
                    ..Details::default()
                };
                return Err(Problem::new(ErrorKind::IndexOutOfRange, message).at(details));
            }
            if (positions.len() as u64).saturating_add(padded) > POSITIONS {
                return Err(too_many((positions.len() as u64).saturating_add(padded), "positions"));
            }
            if let (true, Axis::Range { start, step: 1, count }) = (one && pad.is_none(), axis)
                && *start >= 0
                && *start as u64 + count <= len
            {
                let start = of.start as i64 + start;
                range = Some(Positions::Range(start, start + *count as i64));
            }
            positions.extend(taken(axis, len, of.start));
            positions.extend((held..padded).map(|_| OUTSIDE));
            lengths.push(held);
        }
        let mut found = self.positions(array, &rest).await?;
        found.push(Found { axis: 0, parameter: "isel", positions: range.unwrap_or(Positions::List(positions)) });
        let samples = Samples { dimension: dimension.clone(), lengths, one, padded: pad };
        Ok(Resolved { selection: Cow::Owned(rest), found, samples: Some(samples), narrowed: None })
    }

    /// The coordinates of the flat axis within a sample: by the sample's own rate and start, by the array's, or by a
    /// coordinate array along the flat axis.
    pub(super) async fn of_sample(
        &self,
        array: &Array,
        index: &Index,
        sample: u64,
        of: &Range<u64>,
    ) -> Result<Coordinates, Problem> {
        let meta = &array.meta;
        let first = self.sibling(array, "t0", index).await?;
        let first = first.and_then(|listed| listed.exact(sample));
        for name in coords::RATES {
            let Some(rates) = self.sibling(array, name, index).await? else { continue };
            let broken = || CoordsError::Broken {
                place: format!("array `{name}`"),
                reason: format!("sample {sample} has no number of cells a second"),
            };
            let rate = rates.exact(sample).ok_or_else(broken)?;
            return Ok(coords::by_rate(&rate, first).ok_or_else(broken)?.into());
        }
        if let Some(mut regular) = coords::declared(&meta.attributes, 0, &meta.dims)? {
            if let Some(first) = first {
                regular.first = first;
            }
            return Ok(regular.into());
        }
        if let Some(name) = meta.dims[0].as_deref()
            && let Some(listed) = self.listed(array, name, meta.shape[0]).await?
        {
            return Ok(Coordinates::Listed(Arc::new(listed.part(of.clone()))));
        }
        let sought = "neither the sample nor the array has a rate, and the group no array of the dimension's name; ask by \
                      `isel`";
        Err(CoordsError::None { parameter: "subset", dimension: meta.axis_label(0), reason: sought.to_owned() }.into())
    }

    /// A number a sample, from the array of a name beside `array`.
    async fn sibling(&self, array: &Array, name: &str, index: &Index) -> Result<Option<Arc<Listed>>, Problem> {
        let Some(beside) = self.beside(array, name).await? else { return Ok(None) };
        if beside.meta.shape[..] != [index.offsets.samples()] || *beside.path == *array.path {
            return Ok(None);
        }
        self.numbers(&beside, Measured::Bare, false).await.map(Some)
    }

    /// Where the samples called `dimension` lie in an array; `None` where it has no such, or an axis of that name.
    pub(super) async fn index(&self, array: &Array, dimension: &str) -> Result<Option<Arc<Index>>, Problem> {
        let meta = &array.meta;
        if meta.shape.is_empty() || meta.dims.iter().flatten().any(|dim| dim == dimension) {
            return Ok(None);
        }
        let name = (Arc::clone(&array.path), dimension.to_owned());
        let known = || self.indexes.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(found) = known().get(&name) {
            return Ok(found.clone());
        }
        let found = self.look_up_index(array, dimension).await?.map(Arc::new);
        known().insert(name, found.clone());
        Ok(found)
    }

    async fn look_up_index(&self, array: &Array, dimension: &str) -> Result<Option<Index>, Problem> {
        let meta = &array.meta;
        if let Some(declared) = coords::ragged(&meta.attributes)? {
            let place = || format!("the index `{}` of `{}`", declared.index, array.path);
            let missing = || CoordsError::Broken { place: place(), reason: "it is not there".to_owned() };
            let index = self.beside(array, &declared.index).await?.ok_or_else(missing)?;
            let is_meant = match &declared.dimension {
                Some(name) => name == dimension,
                None => dimension == SAMPLE || is_along(&index, dimension),
            };
            if !is_meant {
                return Ok(None);
            }
            let offsets = self.offsets(&index, declared.kind, meta.shape[0]).await?;
            let offsets = offsets.map_err(|reason| CoordsError::Broken { place: place(), reason })?;
            return Ok(Some(Index { name: declared.index, offsets }));
        }
        if let Some(index) = self.counted(array, dimension).await? {
            let offsets = self.offsets(&index, IndexKind::Counts, meta.shape[0]).await?;
            let place = || format!("the counts `{}` of `{}`", index.path, array.path);
            let offsets = offsets.map_err(|reason| CoordsError::Broken { place: place(), reason })?;
            return Ok(Some(Index { name: index.name, offsets }));
        }
        let own = |ending: &str| format!("{}_{ending}", array.name);
        let by_name = [
            (own("offsets"), IndexKind::Offsets),
            (own("ends"), IndexKind::Ends),
            (own("lengths"), IndexKind::Counts),
            ("offsets".to_owned(), IndexKind::Offsets),
            ("episode_ends".to_owned(), IndexKind::Ends),
            ("lengths".to_owned(), IndexKind::Counts),
        ];
        for (name, kind) in by_name {
            let Some(index) = self.beside(array, &name).await? else { continue };
            let is_meant = dimension == SAMPLE
                || is_along(&index, dimension)
                || (name, dimension) == ("episode_ends".to_owned(), "episode");
            if !is_meant || index.meta.shape.len() != 1 {
                continue;
            }
            let offsets = self.offsets(&index, kind, meta.shape[0]).await?.map_err(|reason| {
                let message = format!(
                    "`{}` is no index of the samples of `{}`: {reason}; the attribute `ragged` declares one",
                    index.path, array.path
                );
                let details = Details {
                    parameter: Some("isel".into()),
                    dimension: Some(dimension.to_owned()),
                    ..Details::default()
                };
                Problem::new(ErrorKind::InvalidSelection, message).at(details)
            })?;
            return Ok(Some(Index { name: index.name, offsets }));
        }
        Ok(None)
    }

    /// The array of counts by which CF declares samples: one along `dimension` whose attribute `sample_dimension` names
    /// the array's first axis.
    async fn counted(&self, array: &Array, dimension: &str) -> Result<Option<Array>, Problem> {
        let Some((group, _)) = array.path.rsplit_once('/') else { return Ok(None) };
        let gateway = self.gateway;
        // The group's members are looked through only by those who may read all of them.
        let within = beneath(group);
        if gateway
            .policy
            .authorise(&self.asked.principal, Action::Read, &gateway.buckets, &array.bucket.name, &within)
            .is_err()
        {
            return Ok(None);
        }
        let Opened::Group(group) = (match self.open(array, group).await {
            Ok(opened) => opened,
            Err(problem) if problem.kind == ErrorKind::NoSuchKey => return Ok(None),
            Err(problem) => return Err(problem),
        }) else {
            return Ok(None);
        };
        let (members, _) = gateway.datasets.members(&array.bucket, &group, MEMBERS, None, self.snapshot).await?;
        let flat = array.meta.dims[0].as_deref();
        let found = members.iter().find(|member| {
            let Ok(Some(meta)) = &member.node else { return false };
            let counts = meta.attributes.get("sample_dimension").and_then(serde_json::Value::as_str);
            flat.is_some() && counts == flat && meta.dims.first().and_then(Option::as_deref) == Some(dimension)
        });
        match found {
            Some(member) => self.beside(array, &member.name).await,
            None => Ok(None),
        }
    }

    /// The offsets that an index array tells of, or why it tells of none.
    async fn offsets(&self, index: &Array, kind: IndexKind, len: u64) -> Result<Result<Arc<Offsets>, String>, Problem> {
        if index.meta.shape.len() != 1 {
            return Ok(Err(format!("it has the shape {:?}", index.meta.shape)));
        }
        let name = format!("{kind:?} {len} {} {} {}", index.bucket.name, index.path, self.version_of(index).await?);
        if let Some(known) = self.gateway.offsets.get(&name) {
            return Ok(Ok(known));
        }
        let numbers = self.numbers(index, Measured::Bare, false).await?;
        let offsets = match Offsets::new(kind, numbers.values(), len) {
            Ok(offsets) => Arc::new(offsets),
            Err(reason) => return Ok(Err(reason)),
        };
        if !self.snapshot.is_unsettled() {
            self.gateway.offsets.insert(name, offsets.bytes(), Arc::clone(&offsets));
        }
        Ok(Ok(offsets))
    }

    /// What was found out of an array's samples, for the plan.
    pub(super) fn told_samples(&self, array: &Array) -> serde_json::Value {
        let known = self.indexes.lock().unwrap_or_else(PoisonError::into_inner);
        let of_array = known.iter().find_map(|((path, dimension), index)| {
            let index = index.as_ref().filter(|_| *path == array.path)?;
            Some(serde_json::json!({
                "dimension": dimension, "index": index.name, "samples": index.offsets.samples(),
            }))
        });
        of_array.into()
    }
}

/// What samples are called where nothing names them.
const SAMPLE: &str = "sample";

fn is_along(index: &Array, dimension: &str) -> bool {
    index.meta.dims.first().and_then(Option::as_deref) == Some(dimension)
}

/// A selection in two: what is about the flat axis of a sample, and the rest, without entry `at` of `isel`.
fn parted(selection: &Selection, at: usize, flat: Option<&str>) -> (Selection, Selection) {
    let Selection { oob, keepdims, closed, .. } = *selection;
    let mut inner = Selection { oob, keepdims, closed, ..Selection::default() };
    let mut rest = Selection { oob, keepdims, closed, dims: selection.dims.clone(), ..Selection::default() };
    let is_flat = |name: &str| flat == Some(name);
    for (i, named) in selection.named.iter().enumerate().filter(|(i, _)| *i != at) {
        debug_assert_ne!(i, at);
        if is_flat(&named.0) { &mut inner } else { &mut rest }.named.push(named.clone());
    }
    for subset in &selection.subsets {
        let of_flat = match &subset.axis {
            OnAxis::Named(name) => is_flat(name),
            OnAxis::Role(role) => flat.and_then(coords::role_of) == Some(*role),
        };
        if of_flat { &mut inner } else { &mut rest }.subsets.push(subset.clone());
    }
    for label in &selection.labels {
        if is_flat(&label.dimension) { &mut inner } else { &mut rest }.labels.push(label.clone());
    }
    (inner, rest)
}

/// The positions that an axis takes of `0..len`, moved by `start`; [`OUTSIDE`] for others.
fn taken(axis: &Axis, len: u64, start: u64) -> impl Iterator<Item = u64> {
    let count = axis.count();
    (0..count).map(move |i| {
        let at = match axis {
            Axis::Range { start, step, .. } => i128::from(*start) + i128::from(*step) * i128::from(i),
            Axis::List(list) => i128::from(list[i as usize]),
        };
        if (0..i128::from(len)).contains(&at) { start + at as u64 } else { OUTSIDE }
    })
}

fn too_many(count: u64, what: &str) -> Problem {
    let message = format!("{count} {what} of samples; at most {POSITIONS} are taken at once");
    let details = Details { valid: Some(format!("at most {POSITIONS} {what}")), ..Details::default() };
    Problem::new(ErrorKind::SliceTooLarge, message).at(details)
}

/// `pad` of a request that takes no samples is a mistake.
pub(super) fn check_pad(pad: Option<u64>, takes_samples: bool) -> Result<(), Problem> {
    if pad.is_none() || takes_samples {
        return Ok(());
    }
    Err(QueryError::InvalidValue {
        parameter: "pad".to_owned(),
        reason: "no samples of a ragged array are selected".to_owned(),
        valid: Some("beside isel=sample=…".to_owned()),
    }
    .into())
}
