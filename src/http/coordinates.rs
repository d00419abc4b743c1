//! From coordinates to positions: finds out what the axes of an array are called, reading what must be read.
//!
//! An axis is looked up where the data may declare it, first match wins: the array's own attributes (`fps`,
//! `sample_rate`; `scale` and `offset`), a one-dimensional array of the axis' name beside it, with its `bounds` if it
//! has such, and the `multiscales` of the group around it. All of it is authorised for the requesting key, and read at
//! one version.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use super::SliceRequest;
use super::bands;
use super::error::Problem;
use super::etag::{self, ObjectVersion};
use super::gateway::Gateway;
use super::predicate;
use super::samples::{Index, Resolved};
use crate::auth::Action;
use crate::coords::{self, Coordinates, CoordsError, Listed, Measured, Taken, Values};
use crate::dataset::{Array, DatasetError, Learning, Opened, Snapshot};
use crate::fetch::Job;
use crate::format::Storage;
use crate::model::key::join;
use crate::model::{ChunkData, DType, Details, ErrorKind, Hyperslab, Measure, TimeUnit, Unit, exact, shape};
use crate::plan::{self, ReadPlan};
use crate::query::{self, Dim, Found, Label, OnAxis, OutOfBounds, Positions, Predicate, Role, Selection, Subset};
use crate::wire::Format;

/// Longest coordinate array: it is held whole, and compared whole where it is in no order.
const COORDINATES: u64 = 16 << 20;

/// By array and by what its samples are called: where they lie, or that it has no such.
type Indexes = HashMap<(Arc<str>, String), Option<Arc<Index>>>;

/// Finds coordinates for one request, each axis once.
pub(super) struct Finder<'a> {
    pub(super) gateway: &'a Gateway,
    pub(super) asked: &'a SliceRequest,
    pub(super) snapshot: &'a Snapshot,
    known: Mutex<HashMap<(Arc<str>, usize), Coordinates>>,
    pub(super) indexes: Mutex<Indexes>,
}

impl<'a> Finder<'a> {
    pub(super) fn new(gateway: &'a Gateway, asked: &'a SliceRequest, snapshot: &'a Snapshot) -> Self {
        Self { gateway, asked, snapshot, known: Mutex::default(), indexes: Mutex::default() }
    }

    /// The positions that a selection's intervals and labels take.
    pub(super) async fn positions(&self, array: &Array, selection: &Selection) -> Result<Vec<Found>, Problem> {
        let mut found = Vec::with_capacity(selection.subsets.len() + selection.labels.len());
        let subsets = selection.subsets.iter().map(|subset| (subset.parameter, Some(subset), None));
        let labels = selection.labels.iter().map(|label| ("sel", None, Some(label)));
        for (parameter, subset, label) in subsets.chain(labels) {
            let axis = match (subset, label) {
                (Some(subset), _) => axis_of(array, parameter, &subset.axis)?,
                (None, Some(label)) => query::axis_named(parameter, &label.dimension, &array.meta.dims)?,
                (None, None) => continue,
            };
            let coordinates = self.coordinates(array, parameter, axis).await?;
            let name = array.meta.axis_label(axis);
            let of = coords::Axis { name: &name, len: array.meta.shape[axis], coordinates: &coordinates };
            found.push(placed(&of, axis, subset, label, selection)?);
        }
        Ok(found)
    }

    /// The positions that the intervals and labels of a selection take of one axis, which all of them are about.
    pub(super) fn place(
        &self,
        of: &coords::Axis<'_>,
        axis: usize,
        selection: &Selection,
    ) -> Result<Vec<Found>, Problem> {
        let subsets = selection.subsets.iter().map(|subset| placed(of, axis, Some(subset), None, selection));
        let labels = selection.labels.iter().map(|label| placed(of, axis, None, Some(label), selection));
        subsets.chain(labels).collect()
    }

    /// One selection of several arrays: each part of it on those that have the dimension, as xarray selects of a dataset.
    /// A number of cells is that of the first; of the others so many that they last as long.
    pub(super) async fn aligned(
        &self,
        arrays: &[(&str, &Array)],
        selection: &Selection,
        pad: Option<u64>,
        predicate: Option<&Predicate>,
    ) -> Result<Vec<Resolved<'static>>, Problem> {
        let Selection { oob, keepdims, closed, .. } = *selection;
        let mut parts = vec![Selection { oob, keepdims, closed, ..Selection::default() }; arrays.len()];
        for (name, dim) in &selection.named {
            let mut ragged = Vec::new();
            for (number, (_, array)) in arrays.iter().enumerate() {
                if self.index(array, name).await?.is_some() {
                    ragged.push(number);
                }
            }
            let dense = match holders(arrays, "isel", &OnAxis::Named(name.clone())) {
                Err(_) if !ragged.is_empty() => Vec::new(),
                dense => dense?,
            };
            for holder in dense.into_iter().chain(ragged) {
                parts[holder].named.push((name.clone(), dim.clone()));
            }
        }
        for label in &selection.labels {
            for holder in holders(arrays, "sel", &OnAxis::Named(label.dimension.clone()))? {
                parts[holder].labels.push(label.clone());
            }
        }
        for subset in &selection.subsets {
            let tables = arrays.iter().enumerate().filter(|(_, (_, array))| {
                subset.parameter == "bbox"
                    && predicate::columns(array).iter().any(|name| coords::role_of(name).is_some())
            });
            // A box of points is about the table that places them, the first there is.
            if let Some((table, _)) = tables.into_iter().next() {
                parts[table].subsets.push(subset.clone());
                continue;
            }
            let holders = holders(arrays, subset.parameter, &subset.axis)?;
            let mut cells = vec![subset.interval.cells; holders.len()];
            if let (Some(count), [first, others @ ..]) = (subset.interval.cells, &holders[..])
                && !others.is_empty()
            {
                let (measure, rate) = self.rate(arrays[*first], subset, None, &parts[*first]).await?;
                let length = exact::integer(i128::from(count)) / rate;
                for (cells, other) in cells[1..].iter_mut().zip(others) {
                    let (_, rate) = self.rate(arrays[*other], subset, Some(measure), &parts[*other]).await?;
                    *cells = Some(coords::cells_of(&length, &rate));
                }
            }
            for (holder, cells) in holders.into_iter().zip(cells) {
                let mut subset = subset.clone();
                subset.interval.cells = cells;
                parts[holder].subsets.push(subset);
            }
        }
        // A predicate is that of the first field that has what it names; the others are narrowed along the same dimensions.
        let lead = self.lead(arrays, selection, predicate).await?;
        let mut aligned: Vec<Resolved<'static>> = Vec::with_capacity(arrays.len());
        for (number, (part, (name, array))) in parts.iter().zip(arrays).enumerate() {
            let predicate = predicate.filter(|_| lead == Some(number));
            let Resolved { selection, found, samples, narrowed } = self
                .resolve(array, part, pad, predicate)
                .await
                .map_err(|problem| problem.about(&array.path).in_field(Some(name)))?;
            let selection = Cow::Owned(selection.into_owned());
            aligned.push(Resolved { selection, found, samples, narrowed });
        }
        if let Some(lead) = lead {
            self.narrow_others(arrays, &mut aligned, lead)?;
        }
        Ok(aligned)
    }

    /// The rate of the axis of an array that a subset is about, which must be of `measure` if that is given.
    async fn rate(
        &self,
        (field, array): (&str, &Array),
        subset: &Subset,
        measure: Option<Option<Measure>>,
        part: &Selection,
    ) -> Result<(Option<Measure>, exact::Exact), Problem> {
        let axis = axis_of(array, subset.parameter, &subset.axis)?;
        let none = |reason: &str| CoordsError::NoRate {
            parameter: subset.parameter,
            dimension: array.meta.axis_label(axis),
            field: field.to_owned(),
            reason: reason.to_owned(),
        };
        let samples = if axis == 0 { self.taken_samples(array, part).await? } else { None };
        let coordinates = match samples {
            None => self.coordinates(array, subset.parameter, axis).await?,
            Some((at, index)) => match (&part.named[at].1, index.offsets.samples()) {
                (Dim::Index(sample), samples) if (-(samples as i64)..samples as i64).contains(sample) => {
                    let sample = sample.rem_euclid(samples as i64) as u64;
                    self.of_sample(array, &index, sample, &index.offsets.of(sample)).await?
                }
                _ => return Err(none("each of several samples may have a rate of its own").into()),
            },
        };
        let rate = coordinates.rate().ok_or_else(|| none("its coordinates are listed one by one"))?;
        if measure.is_some_and(|measure| measure != rate.0) {
            return Err(none("it measures something else").into());
        }
        Ok(rate)
    }

    /// What was found out of an array's axes, by their names, for the plan.
    pub(super) fn told(&self, array: &Array) -> serde_json::Map<String, serde_json::Value> {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let of_array = known.iter().filter(|((path, _), _)| *path == array.path);
        of_array.map(|((_, axis), found)| (array.meta.axis_label(*axis), found.describe())).collect()
    }

    /// The coordinates of an axis.
    pub(super) async fn coordinates(
        &self,
        array: &Array,
        parameter: &'static str,
        axis: usize,
    ) -> Result<Coordinates, Problem> {
        let name = (Arc::clone(&array.path), axis);
        let known = || self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(found) = known().get(&name) {
            return Ok(found.clone());
        }
        let found = self.look_up(array, parameter, axis).await.map_err(|problem| problem.about(&array.path))?;
        known().insert(name, found.clone());
        Ok(found)
    }

    async fn look_up(&self, array: &Array, parameter: &'static str, axis: usize) -> Result<Coordinates, Problem> {
        let meta = &array.meta;
        let dimension = meta.dims.get(axis).and_then(Option::as_deref);
        let none =
            |reason: &str| CoordsError::None { parameter, dimension: meta.axis_label(axis), reason: reason.to_owned() };
        if let Some(regular) = coords::declared(&meta.attributes, axis, &meta.dims)? {
            return Ok(regular.into());
        }
        if !matches!(meta.storage, Storage::Grid(_)) {
            return Err(none("a file names none; ask by `slice`").into());
        }
        if let Some(name) = dimension
            && let Some(listed) = self.listed(array, name, meta.shape[axis]).await?
        {
            return Ok(Coordinates::Listed(listed));
        }
        if let Some(regular) = self.of_image(array, axis).await? {
            return Ok(regular.into());
        }
        let sought = "the array has no `fps`, `sample_rate` or `scale` for it, the group no array of its name and no \
                      `multiscales`; ask by `slice` or `isel`";
        Err(none(sought).into())
    }

    /// The coordinate array of a dimension, beside `array`.
    pub(super) async fn listed(
        &self,
        array: &Array,
        dimension: &str,
        len: u64,
    ) -> Result<Option<Arc<Listed>>, Problem> {
        let Some(beside) = self.beside(array, dimension).await? else { return Ok(None) };
        let meta = &beside.meta;
        // An array of that name with more axes is about something else.
        if meta.shape.len() != 1 || meta.dims.first().and_then(Option::as_deref).is_some_and(|name| name != dimension) {
            return Ok(None);
        }
        let broken =
            |reason: String| CoordsError::Broken { place: format!("coordinate array `{}`", beside.path), reason };
        if meta.shape[0] != len {
            return Err(broken(format!("it has {} elements, the dimension {len}", meta.shape[0])).into());
        }
        let text = |name: &str| meta.attributes.get(name).and_then(serde_json::Value::as_str);
        let bounds = match text("bounds") {
            None => None,
            Some(name) => {
                let found = self.beside(array, name).await?;
                Some(found.ok_or_else(|| broken(format!("its bounds `{name}` are not there")))?)
            }
        };
        let measured = measured(&beside)?;
        let source = bounds.as_ref().unwrap_or(&beside);
        if source.meta.shape.len() != usize::from(bounds.is_some()) + 1
            || source.meta.shape[0] != len
            || source.meta.shape.get(1).is_some_and(|ends| *ends != 2)
        {
            return Err(broken(format!("its bounds have the shape {:?}", source.meta.shape)).into());
        }
        self.numbers(source, measured, bounds.is_some()).await.map(Some)
    }

    /// All numbers of an array, from the cache by their version or read; as cells where it holds the ends of such.
    pub(super) async fn numbers(
        &self,
        source: &Array,
        measured: Measured,
        cells: bool,
    ) -> Result<Arc<Listed>, Problem> {
        let meta = &source.meta;
        let broken = |reason: String| CoordsError::Broken { place: format!("array `{}`", source.path), reason };
        let elements = shape::elements(&meta.shape).unwrap_or(u64::MAX);
        if elements > COORDINATES {
            let message = format!("array `{}` has {elements} elements, more than {COORDINATES}", source.path);
            return Err(Problem::new(ErrorKind::SliceTooLarge, message));
        }
        let version = self.version_of(source).await?;
        let name = format!("{} {} {measured:?} {cells} {version}", source.bucket.name, source.path);
        if let Some(known) = self.gateway.coordinates.get(&name) {
            return Ok(known);
        }
        let data = self.read(source, &Hyperslab::whole(&meta.shape)).await?;
        let ChunkData::Fixed(bytes) = data else { return Err(broken("its values are texts".to_owned()).into()) };
        let values = Values::parse(&meta.dtype, &bytes)
            .ok_or_else(|| broken(format!("elements of {} are no numbers", meta.dtype.name())))?;
        let shown = source.name.clone();
        let listed =
            if cells { Listed::cells(values, measured, shown) } else { Listed::points(values, measured, shown) };
        let listed = Arc::new(listed);
        if !self.snapshot.is_unsettled() {
            self.gateway.coordinates.insert(name, listed.bytes(), Arc::clone(&listed));
        }
        Ok(listed)
    }

    /// What the `multiscales` of a group around the array say of an axis: of its own group, or of the one around that.
    async fn of_image(&self, array: &Array, axis: usize) -> Result<Option<coords::Regular>, Problem> {
        let mut group = &*array.path;
        for _ in 0..2 {
            let Some((parent, _)) = group.rsplit_once('/') else { return Ok(None) };
            group = parent;
            let attributes = match self.open(array, group).await {
                Ok(Opened::Group(found)) => found.attributes,
                Ok(Opened::Array(_) | Opened::File(_)) => return Ok(None),
                Err(problem) if problem.kind == ErrorKind::NoSuchKey => continue,
                // What the key may not read tells it nothing, and the next group out even less.
                Err(problem) if problem.kind == ErrorKind::AccessDenied => return Ok(None),
                Err(problem) => return Err(problem),
            };
            let relative = array.path[group.len()..].trim_start_matches('/');
            if let Some(found) = coords::multiscale(&attributes, relative, axis)? {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }

    /// The array `name` in the group that holds `array`.
    pub(super) async fn beside(&self, array: &Array, name: &str) -> Result<Option<Array>, Problem> {
        // A name from metadata stays in its container.
        if matches!(name, "" | "." | "..") || name.contains(['/', '\\', '\0']) {
            return Ok(None);
        }
        let group = array.path.rsplit_once('/').map_or("", |(group, _)| group);
        let path = join(group, name);
        if *path == *array.path {
            return Ok(Some(array.clone()));
        }
        match self.open(array, &path).await {
            Ok(Opened::Array(found)) => Ok(Some(found)),
            Ok(Opened::Group(_) | Opened::File(_)) => Ok(None),
            Err(problem) if problem.kind == ErrorKind::NoSuchKey => Ok(None),
            Err(problem) => Err(problem),
        }
    }

    /// Opens another path of the array's bucket, if the requesting key may read it.
    pub(super) async fn open(&self, array: &Array, path: &str) -> Result<Opened, Problem> {
        let Self { gateway, asked, snapshot, .. } = self;
        let allow = |key: &str| {
            gateway.policy.authorise(&asked.principal, Action::Read, &gateway.buckets, &array.bucket.name, key)
        };
        allow(&crate::model::key::beneath(path))?;
        let permitted = |key: &str| allow(key).is_ok();
        gateway.datasets.open(&array.bucket, path, &permitted, snapshot).await.map_err(|error| match error {
            // An object of that name that is no array is none of ours.
            DatasetError::UnknownFormat { path } => DatasetError::Nothing { path }.into(),
            other => Problem::from(other),
        })
    }

    /// A name for all bytes of an array, without reading a chunk.
    pub(super) async fn version_of(&self, array: &Array) -> Result<String, Problem> {
        let Self { gateway, snapshot, .. } = self;
        let survey = plan::survey(&array.meta, &Hyperslab::whole(&array.meta.shape), &gateway.limits)?;
        let states = gateway.datasets.states(array, &survey.objects, snapshot).await?;
        let objects = survey.objects.iter().map(String::as_str).zip(states.iter().map(ObjectVersion::from));
        let slab = Hyperslab::whole(&array.meta.shape);
        let meta = &array.meta;
        Ok(etag::of_slice(&array.name, &array.sources, objects, &slab, &meta.shape, &meta.fill, Format::Raw))
    }

    /// Elements of an array.
    pub(super) async fn read(&self, array: &Array, slab: &Hyperslab) -> Result<ChunkData, Problem> {
        let Self { gateway, asked, snapshot, .. } = self;
        let about = |problem: Problem| problem.about(&array.path);
        let survey = plan::survey(&array.meta, slab, &gateway.limits)?;
        let found = gateway.datasets.locate(array, &survey, Learning::OnRead, snapshot).await;
        let found = found.map_err(|error| about(error.into()))?;
        let plan = ReadPlan::new(&array.meta, &array.path, survey, found.facts, found.located, None);
        let plan = Arc::new(plan.map_err(|error| about(error.into()))?);
        let job = Job {
            bucket: array.bucket.clone(),
            path: Arc::clone(&array.path),
            array: Arc::clone(&array.meta),
            plan: Arc::clone(&plan),
            scan: false,
        };
        let moment = gateway.datasets.moment();
        let run = gateway.fetcher.run(asked.principal.name(), job, slab.kept());
        let fetched = run.await.inspect_err(|error| bands::forget_changed(gateway, &array.bucket, error));
        let fetched = fetched.map_err(|error| about(error.into()))?;
        bands::learn(gateway, &array.bucket, &plan, &fetched.learned, moment, snapshot)?;
        Ok(fetched.tensor.data)
    }
}

/// The positions that an interval or a label takes of an axis.
fn placed(
    of: &coords::Axis<'_>,
    axis: usize,
    subset: Option<&Subset>,
    label: Option<&Label>,
    selection: &Selection,
) -> Result<Found, Problem> {
    if let Some(label) = label {
        return Ok(Found { axis, parameter: "sel", positions: Positions::One(of.find(label)?) });
    }
    let Some(Subset { parameter, interval, .. }) = subset else {
        return Err(Problem::new(ErrorKind::Internal, "neither an interval nor a label"));
    };
    let (parameter, len) = (*parameter, i128::from(of.len));
    let positions = match of.take(parameter, interval, selection.closed)? {
        Taken::List(list) => Positions::List(list),
        Taken::Range(start, stop) => {
            let beyond = start < 0 || stop > len;
            if beyond && selection.oob != OutOfBounds::Fill {
                let left = u64::try_from(stop.min(len) - start.max(0)).unwrap_or(0);
                let (dimension, cells) = (of.name.to_owned(), interval.cells.unwrap_or_default());
                return Err(CoordsError::TooFew { parameter, dimension, cells, left }.into());
            }
            let narrow = |at: i128| i64::try_from(at).map_err(|_| query::QueryError::TooManyPositions);
            Positions::Range(narrow(start)?, narrow(stop)?)
        }
    };
    Ok(Found { axis, parameter, positions })
}

/// Which of several arrays have the dimension that a parameter is about. One must.
fn holders(arrays: &[(&str, &Array)], parameter: &'static str, axis: &OnAxis) -> Result<Vec<usize>, Problem> {
    let is_meant = |dim: &str| match axis {
        OnAxis::Named(name) => dim == name,
        OnAxis::Role(role) => coords::role_of(dim) == Some(*role),
    };
    let holds = |array: &Array| array.meta.dims.iter().flatten().any(|dim| is_meant(dim));
    let holders: Vec<usize> =
        arrays.iter().enumerate().filter(|(_, (_, array))| holds(array)).map(|(number, _)| number).collect();
    if !holders.is_empty() {
        return Ok(holders);
    }
    let mut dims: Vec<Option<String>> = arrays.iter().flat_map(|(_, array)| array.meta.dims.iter().cloned()).collect();
    dims.sort();
    dims.dedup();
    Err(match axis {
        OnAxis::Named(name) => match query::axis_named(parameter, name, &dims) {
            Err(error) => error.into(),
            Ok(_) => Problem::new(ErrorKind::Internal, "a dimension is there and is not"),
        },
        OnAxis::Role(role) => no_role(parameter, *role, "no field has a dimension that", &dims),
    })
}

fn no_role(parameter: &str, role: Role, which: &str, dims: &[Option<String>]) -> Problem {
    let names = dims.iter().flatten().cloned().collect::<Vec<_>>().join(", ");
    let message = format!("{parameter}: {which} means {role:?} by its name; use `subset`");
    let details = Details { parameter: Some(parameter.to_owned()), valid: Some(names), ..Details::default() };
    Problem::new(ErrorKind::InvalidSelection, message).at(details)
}

/// The axis that a parameter is about.
fn axis_of(array: &Array, parameter: &'static str, axis: &OnAxis) -> Result<usize, Problem> {
    let dims = &array.meta.dims;
    let role = match axis {
        OnAxis::Named(name) => return Ok(query::axis_named(parameter, name, dims)?),
        OnAxis::Role(role) => *role,
    };
    let named = dims.iter().enumerate().filter(|(_, dim)| dim.as_deref().and_then(coords::role_of) == Some(role));
    let axes: Vec<usize> = named.map(|(axis, _)| axis).collect();
    match axes[..] {
        [axis] => Ok(axis),
        [] => Err(no_role(parameter, role, "no dimension", dims)),
        _ => Err(no_role(parameter, role, "more than one dimension", dims)),
    }
}

/// What the numbers of a coordinate array mean.
fn measured(array: &Array) -> Result<Measured, CoordsError> {
    let place = || format!("coordinate array `{}`", array.path);
    let unsupported = |reason: String| CoordsError::Unsupported { place: place(), reason };
    let attributes = &array.meta.attributes;
    if let Some(packed) = ["scale_factor", "add_offset"].iter().find(|name| attributes.contains_key(**name)) {
        return Err(unsupported(format!("its values are packed (`{packed}`)")));
    }
    let is_float = matches!(array.meta.dtype, DType::Float(_));
    let missing = ["missing_value", "_FillValue"].iter().find(|name| attributes.contains_key(**name));
    if let Some(missing) = missing.filter(|_| !is_float) {
        return Err(unsupported(format!("some of its values may be missing (`{missing}`)")));
    }
    units(array).map_err(unsupported)
}

/// The unit of an array's values, by its type or its attributes; or why they have none that converts.
pub(super) fn units(array: &Array) -> Result<Measured, String> {
    match &array.meta.dtype {
        DType::DateTime64 { unit, scale } => Ok(Measured::Since(ticks(*unit, *scale)?, exact::integer(0))),
        DType::TimeDelta64 { unit, scale } => Ok(Measured::In(ticks(*unit, *scale)?, "s".to_owned())),
        _ => {
            let text = |name: &str| array.meta.attributes.get(name).and_then(serde_json::Value::as_str);
            Measured::parse(text("units"), text("calendar"))
        }
    }
}

/// A tick of numpy's times.
fn ticks(unit: TimeUnit, scale: u32) -> Result<Unit, String> {
    let seconds = match unit {
        TimeUnit::Week => "604800",
        TimeUnit::Day => "86400",
        TimeUnit::Hour => "3600",
        TimeUnit::Minute => "60",
        TimeUnit::Second => "1",
        TimeUnit::Millisecond => "1e-3",
        TimeUnit::Microsecond => "1e-6",
        TimeUnit::Nanosecond => "1e-9",
        TimeUnit::Picosecond => "1e-12",
        TimeUnit::Femtosecond => "1e-15",
        TimeUnit::Attosecond => "1e-18",
        TimeUnit::Year | TimeUnit::Month => return Err(format!("{} have no fixed length", unit.code())),
        TimeUnit::Generic => return Err("its times have no unit".to_owned()),
    };
    let seconds = exact::decimal(seconds).unwrap_or_else(|| exact::integer(1));
    Ok(Unit { measure: crate::model::Measure::Time, factor: seconds * exact::integer(i128::from(scale)) })
}
