//! Predicates on arrays: which positions of an axis a request's `filter` takes.
//!
//! A property is, first match wins: a column of a table (an array `[rows, columns]` whose attribute `columns` names them), a
//! dimension's coordinates, or a one-dimensional array beside it along one of its dimensions. A condition narrows the axis
//! that its properties vary along. Properties are read in windows of that axis, by the requesting key's own right.

use std::ops::Range;

use futures::{StreamExt as _, TryStreamExt as _};

use super::coordinates::Finder;
use super::error::Problem;
use super::samples::Resolved;
use crate::coords::{self, Coordinates, Measured};
use crate::dataset::Array;
use crate::filter::{Column, FilterError, Packing, Truth, evaluate};
use crate::model::exact::Exact;
use crate::model::{Axis, ChunkData, Details, ErrorKind, Hyperslab};
use crate::query::filter::{Comparison, Literal, Test};
use crate::query::{Filter, Interval, Mark, Meaning, OnAxis, Predicate, QueryError, Role, Selection, Subset};

/// Rows that are evaluated at once.
const ROWS: u64 = 1 << 20;

/// Windows whose properties are read at once.
const AT_ONCE: usize = 4;

/// Most rows that a predicate takes: they are listed one by one.
const TAKEN: u64 = 16 << 20;

/// Where the values of a property come from.
#[derive(Debug, Clone)]
pub(super) enum Source {
    /// The coordinates of its axis.
    Coordinates(Coordinates),
    /// A column of the array itself.
    Column(u64),
    /// A one-dimensional array along its axis.
    Beside(Array),
    /// The elements of the array itself, which vary along all axes.
    Elements,
}

/// A property that a predicate names.
#[derive(Debug, Clone)]
pub(super) struct Property {
    pub(super) name: String,
    /// The axis that it varies along; `None` for the array's own elements.
    pub(super) axis: Option<usize>,
    source: Source,
    measured: Measured,
    packing: Packing,
}

/// A condition on one axis.
struct OnOneAxis<'a> {
    axis: usize,
    filter: Filter,
    properties: Vec<&'a Property>,
}

/// What a predicate takes of an array's axes, and what it says of single elements.
#[derive(Debug, Clone, Default)]
pub(super) struct Narrowed {
    /// By axis, which of its positions.
    pub(super) axes: Vec<(usize, Axis)>,
    /// For the same axes, which of the positions that were selected, by their place among them.
    pub(super) kept: Vec<Vec<u64>>,
    /// What it says of elements, with the properties that it names.
    pub(super) elements: Option<(Filter, Vec<Property>)>,
}

impl Finder<'_> {
    /// What a predicate takes of `slab` of an array.
    pub(super) async fn narrow(
        &self,
        array: &Array,
        slab: &Hyperslab,
        filter: &Filter,
        meaning: Option<Meaning>,
    ) -> Result<Narrowed, Problem> {
        let filter = without_boxes(filter, array)?;
        let mut properties = Vec::new();
        for name in filter.properties() {
            properties.push(self.property(array, name, meaning).await?);
        }
        let parts = match filter {
            Filter::And(parts) => parts,
            one => vec![one],
        };
        let (mut along, mut elements): (Vec<OnOneAxis<'_>>, Vec<Filter>) = (Vec::new(), Vec::new());
        for part in parts {
            let names = part.properties();
            let of_part = properties.iter().filter(|property| names.contains(&property.name.as_str()));
            let mut axes: Vec<Option<usize>> = of_part.clone().map(|property| property.axis).collect();
            axes.sort_unstable();
            axes.dedup();
            match axes[..] {
                [Some(axis)] => match along.iter_mut().find(|on| on.axis == axis) {
                    Some(OnOneAxis { filter: Filter::And(parts), properties, .. }) => {
                        parts.push(part.clone());
                        properties.extend(of_part);
                    }
                    _ => along.push(OnOneAxis {
                        axis,
                        filter: Filter::And(vec![part.clone()]),
                        properties: of_part.collect(),
                    }),
                },
                // Of no property: true or false of every row of the first axis.
                [] if !array.meta.shape.is_empty() => {
                    along.push(OnOneAxis { axis: 0, filter: Filter::And(vec![part]), properties: Vec::new() });
                }
                _ => elements.push(part),
            }
        }
        let mut narrowed = Narrowed::default();
        for on in &along {
            let axis = &slab.axes()[on.axis];
            if !slab.kept()[on.axis] {
                let dimension = array.meta.axis_label(on.axis);
                let message =
                    format!("filter: an integer selects dimension `{dimension}`, of which nothing is left to filter");
                let details =
                    Details { parameter: Some("filter".into()), dimension: Some(dimension), ..Details::default() };
                return Err(Problem::new(ErrorKind::InvalidSelection, message).at(details));
            }
            // Two conditions of no property are about one axis.
            let axis = narrowed.axes.iter().find(|(known, _)| *known == on.axis).map_or(axis, |(_, axis)| axis).clone();
            let kept = self.rows(array, on, &axis).await?;
            let taken = axis.pick(&kept);
            match narrowed.axes.iter().position(|(known, _)| *known == on.axis) {
                Some(known) => {
                    narrowed.kept[known] = kept.iter().map(|at| narrowed.kept[known][*at as usize]).collect();
                    narrowed.axes[known].1 = taken;
                }
                None => {
                    narrowed.axes.push((on.axis, taken));
                    narrowed.kept.push(kept);
                }
            }
        }
        if !elements.is_empty() {
            let names: Vec<&str> = elements.iter().flat_map(Filter::properties).collect();
            let named = properties.iter().filter(|property| names.contains(&property.name.as_str())).cloned().collect();
            narrowed.elements = Some((Filter::And(elements), named));
        }
        Ok(narrowed)
    }

    /// Of several fields, the one that a predicate, or a box of points, is about: the first that has all that it names.
    pub(super) async fn lead(
        &self,
        arrays: &[(&str, &Array)],
        selection: &Selection,
        predicate: Option<&Predicate>,
    ) -> Result<Option<usize>, Problem> {
        let places = |array: &Array| columns(array).iter().any(|name| coords::role_of(name).is_some());
        let table = || arrays.iter().position(|(_, array)| places(array)).filter(|_| selection.has_bbox());
        let Some(predicate) = predicate else { return Ok(table()) };
        if let Some(table) = table() {
            return Ok(Some(table));
        }
        let mut first = None;
        for (number, (_, array)) in arrays.iter().enumerate() {
            match self.has_all(array, predicate).await {
                Ok(()) => return Ok(Some(number)),
                Err(problem) if problem.kind == ErrorKind::InvalidSelection => first = first.or(Some(problem)),
                Err(problem) => return Err(problem),
            }
        }
        Err(first.unwrap_or_else(|| Problem::new(ErrorKind::Internal, "a request about no field")))
    }

    async fn has_all(&self, array: &Array, predicate: &Predicate) -> Result<(), Problem> {
        for name in without_boxes(&predicate.filter, array)?.properties() {
            self.property(array, name, predicate.meaning).await?;
        }
        Ok(())
    }

    /// Narrows fields as the leading one is, along the dimensions that they share.
    pub(super) fn narrow_others(
        &self,
        arrays: &[(&str, &Array)],
        resolved: &mut [Resolved<'static>],
        lead: usize,
    ) -> Result<(), Problem> {
        let Some(narrowed) = resolved[lead].narrowed.clone() else { return Ok(()) };
        if narrowed.elements.is_some() {
            return Err(
                FilterError::Unsupported { what: "a condition on elements of several fields".to_owned() }.into()
            );
        }
        let leading = arrays[lead].1;
        let before = Resolved { narrowed: None, ..resolved[lead].clone() }.slab(leading)?;
        for (number, (name, array)) in arrays.iter().enumerate().filter(|(number, _)| *number != lead) {
            let own = resolved[number].slab(array)?;
            let mut others = Narrowed::default();
            for ((axis, taken), kept) in narrowed.axes.iter().zip(&narrowed.kept) {
                let Some(dim) = leading.meta.dims.get(*axis).and_then(Option::as_ref) else { continue };
                let Some(at) = array.meta.dims.iter().position(|known| known.as_ref() == Some(dim)) else { continue };
                if own.axes()[at] != before.axes()[*axis] || !own.kept()[at] {
                    let message =
                        format!("filter: `{name}` is selected otherwise along `{dim}` than `{}`", arrays[lead].0);
                    let details = Details {
                        parameter: Some("filter".into()),
                        dimension: Some(dim.clone()),
                        ..Details::default()
                    };
                    return Err(Problem::new(ErrorKind::InvalidSelection, message).at(details).in_field(Some(name)));
                }
                others.axes.push((at, taken.clone()));
                others.kept.push(kept.clone());
            }
            resolved[number].narrowed = Some(others);
        }
        Ok(())
    }

    /// The rows of an axis that a condition takes, by their place among its positions.
    async fn rows(&self, array: &Array, on: &OnOneAxis<'_>, axis: &Axis) -> Result<Vec<u64>, Problem> {
        let windows = windows(axis, array.meta.chunk_shape().get(on.axis).copied().unwrap_or(1));
        let kept = windows.into_iter().map(|window| async move {
            let part = axis.part(window.clone());
            let columns = self.columns(array, &on.properties, &part).await?;
            let (filter, count) = (on.filter.clone(), part.count() as usize);
            let evaluated = self.gateway.fetcher.pool().run(move || {
                evaluate(&filter, count, &mut |name, test| match columns.iter().find(|(known, _)| known == name) {
                    Some((_, column)) => column.test(name, test),
                    None => Err(FilterError::Unsupported { what: format!("`{name}` here") }),
                })
            });
            let truths = evaluated.await??;
            let kept = truths.iter().enumerate().filter(|(_, truth)| **truth == Truth::True);
            Ok::<_, Problem>(kept.map(|(row, _)| window.start + row as u64).collect::<Vec<u64>>())
        });
        let windows: Vec<_> = kept.collect();
        let mut all = Vec::new();
        let mut kept = futures::stream::iter(windows).buffered(AT_ONCE);
        while let Some(rows) = kept.try_next().await? {
            all.extend(rows);
            if all.len() as u64 > TAKEN {
                let message =
                    format!("the filter takes more than {TAKEN} positions; ask for a part of the axis at a time");
                let details = Details {
                    parameter: Some("filter".into()),
                    valid: Some(format!("at most {TAKEN} positions")),
                    ..Details::default()
                };
                return Err(Problem::new(ErrorKind::SliceTooLarge, message).at(details));
            }
        }
        Ok(all)
    }

    /// The values of properties at positions of the axis that they vary along.
    pub(super) async fn columns(
        &self,
        array: &Array,
        properties: &[&Property],
        axis: &Axis,
    ) -> Result<Vec<(String, Column)>, Problem> {
        let mut columns: Vec<(String, Column)> = Vec::with_capacity(properties.len());
        let mut of_table: Vec<(u64, &Property)> = Vec::new();
        for property in properties {
            if columns.iter().any(|(known, _)| *known == property.name) {
                continue;
            }
            let column = match &property.source {
                Source::Column(column) => {
                    of_table.push((*column, property));
                    continue;
                }
                Source::Coordinates(Coordinates::Regular(regular)) => {
                    Column::Steps((**regular).clone(), axis.positions().collect())
                }
                Source::Coordinates(Coordinates::Listed(listed)) => {
                    let positions: Vec<u64> = axis.positions().collect();
                    let values = listed.values().at(&positions);
                    let (measured, packing) = (property.measured.clone(), Packing::none());
                    Column::Numbers(crate::filter::Numbers { values, measured, packing })
                }
                Source::Beside(beside) => {
                    let slab = Hyperslab::new(vec![axis.clone()], vec![true]);
                    property.column(&beside.meta.dtype, self.read(beside, &slab).await?)?
                }
                Source::Elements => {
                    return Err(FilterError::Unsupported { what: "an element as a row".to_owned() }.into());
                }
            };
            columns.push((property.name.clone(), column));
        }
        of_table.sort_by_key(|(column, _)| *column);
        of_table.dedup_by_key(|(column, _)| *column);
        if !of_table.is_empty() {
            // All of them at once: a chunk holds whole rows, mostly.
            let wanted = Axis::List(of_table.iter().map(|(column, _)| *column).collect());
            let slab = Hyperslab::new(vec![axis.clone(), wanted], vec![true, true]);
            let dtype = &array.meta.dtype;
            let (ChunkData::Fixed(table), Some(size)) = (self.read(array, &slab).await?, dtype.size_bytes()) else {
                return Err(FilterError::Unsupported { what: "a table of texts".to_owned() }.into());
            };
            let width = of_table.len() * size;
            for (number, (_, property)) in of_table.iter().enumerate() {
                let bytes: Vec<u8> = table
                    .chunks_exact(width.max(1))
                    .flat_map(|row| &row[number * size..(number + 1) * size])
                    .copied()
                    .collect();
                columns.push((property.name.clone(), property.column(dtype, ChunkData::Fixed(bytes.into()))?));
            }
        }
        Ok(columns)
    }

    /// What a name means to an array.
    async fn property(&self, array: &Array, name: &str, meaning: Option<Meaning>) -> Result<Property, Problem> {
        let meta = &array.meta;
        let of = |axis, source, measured, packing| Property { name: name.to_owned(), axis, source, measured, packing };
        if let Some(column) = columns(array).iter().position(|column| column == name) {
            let (measured, packing) = meant(name, array, meaning)?;
            return Ok(of(Some(0), Source::Column(column as u64), measured, packing));
        }
        if let Some(axis) = meta.dims.iter().position(|dim| dim.as_deref() == Some(name)) {
            if let Some(regular) = coords::declared(&meta.attributes, axis, &meta.dims)? {
                let measured = Measured::Bare;
                return Ok(of(Some(axis), Source::Coordinates(regular.into()), measured, Packing::none()));
            }
            if let Some(beside) = self.along(array, name, axis).await? {
                let (measured, packing) = meant(name, &beside, meaning)?;
                return Ok(of(Some(axis), Source::Beside(beside), measured, packing));
            }
            let coordinates = self.coordinates(array, "filter", axis).await?;
            let measured = match &coordinates {
                Coordinates::Listed(listed) => listed.measured().clone(),
                Coordinates::Regular(_) => Measured::Bare,
            };
            return Ok(of(Some(axis), Source::Coordinates(coordinates), measured, Packing::none()));
        }
        if name == VALUE || name == array.name {
            let (measured, packing) = meant(name, array, meaning)?;
            // The elements of one axis are its rows.
            return Ok(match meta.shape.len() {
                1 => of(Some(0), Source::Beside(array.clone()), measured, packing),
                _ => of(None, Source::Elements, measured, packing),
            });
        }
        if let Some(beside) = self.beside(array, name).await?
            && let Some(Some(dim)) = beside.meta.dims.first()
            && let Some(axis) = meta.dims.iter().position(|known| known.as_ref() == Some(dim))
            && let Some(beside) = self.along(array, name, axis).await?
        {
            let (measured, packing) = meant(name, &beside, meaning)?;
            return Ok(of(Some(axis), Source::Beside(beside), measured, packing));
        }
        let mut valid: Vec<String> = columns(array);
        valid.extend(meta.dims.iter().flatten().cloned());
        valid.push(array.name.clone());
        valid.push("arrays beside it along one of its dimensions".to_owned());
        Err(FilterError::UnknownProperty { property: name.to_owned(), valid: valid.join(", ") }.into())
    }

    /// A one-dimensional array of a name along an axis of `array`.
    async fn along(&self, array: &Array, name: &str, axis: usize) -> Result<Option<Array>, Problem> {
        let Some(beside) = self.beside(array, name).await? else { return Ok(None) };
        let dim = array.meta.dims.get(axis).and_then(Option::as_deref);
        if beside.meta.shape.len() != 1 || beside.meta.dims.first().and_then(Option::as_deref) != dim {
            return Ok(None);
        }
        if beside.meta.shape[0] != array.meta.shape[axis] {
            let reason = format!("it has {} elements, the dimension {}", beside.meta.shape[0], array.meta.shape[axis]);
            return Err(coords::CoordsError::Broken { place: format!("array `{}`", beside.path), reason }.into());
        }
        Ok(Some(beside))
    }
}

impl Property {
    /// Elements of this property as values that compare.
    pub(super) fn column(&self, dtype: &crate::model::DType, data: ChunkData) -> Result<Column, FilterError> {
        let column = Column::new(dtype, data, self.measured.clone(), self.packing.clone());
        column.ok_or_else(|| FilterError::Unsupported {
            what: format!("a comparison of {}, which `{}` holds", dtype.name(), self.name),
        })
    }

    /// Whether it is the array's own elements.
    pub(super) fn is_elements(&self) -> bool {
        matches!(self.source, Source::Elements)
    }
}

/// What a filter calls an array's own elements.
const VALUE: &str = "value";

/// What a filter calls the place of a row, beside the array's own name.
const GEOMETRY: &[&str] = &["geometry", "geom"];

/// The unit and the packing of an array's values.
fn meant(name: &str, array: &Array, meaning: Option<Meaning>) -> Result<(Measured, Packing), FilterError> {
    let attributes = &array.meta.attributes;
    let packing = match (Packing::declared(attributes), meaning) {
        (None, _) | (Some(_), Some(Meaning::Raw)) => Packing::none(),
        (Some(_), Some(Meaning::Cf)) => Packing::parse(name, attributes)?,
        (Some(attribute), None) => {
            return Err(FilterError::Ambiguous { property: name.to_owned(), attribute: attribute.to_owned() });
        }
    };
    Ok((super::coordinates::units(array).unwrap_or(Measured::Bare), packing))
}

/// The names of a table's columns: of an array `[rows, columns]`, its attribute `columns`, where it names each once.
pub(super) fn columns(array: &Array) -> Vec<String> {
    let [_, width] = array.meta.shape[..] else { return Vec::new() };
    let names = array.meta.attributes.get("columns").and_then(serde_json::Value::as_array);
    let names: Vec<String> = names.into_iter().flatten().filter_map(|name| name.as_str()).map(str::to_owned).collect();
    let distinct = names.iter().enumerate().all(|(i, name)| !names[..i].contains(name));
    if names.len() as u64 == width && distinct { names } else { Vec::new() }
}

/// The name of the column, or else of the dimension, that means x, y or z.
fn placed_by(array: &Array, role: Role) -> Option<String> {
    let of_role = |name: &&String| coords::role_of(name) == Some(role);
    let columns = columns(array);
    let found = columns.iter().find(of_role).cloned();
    found.or_else(|| array.meta.dims.iter().flatten().find(of_role).cloned())
}

/// A predicate with every test of a box as tests of the coordinates that place a row.
fn without_boxes(filter: &Filter, array: &Array) -> Result<Filter, Problem> {
    let all = |parts: &[Filter]| parts.iter().map(|part| without_boxes(part, array)).collect::<Result<Vec<_>, _>>();
    Ok(match filter {
        Filter::And(parts) => Filter::all(all(parts)?),
        Filter::Or(parts) => Filter::any(all(parts)?),
        Filter::Not(part) => Filter::Not(Box::new(without_boxes(part, array)?)),
        Filter::Test { property, test: Test::Intersects(bbox) } => {
            if !GEOMETRY.contains(&property.as_str()) && *property != array.name && property != VALUE {
                let valid = format!("{}, {}", GEOMETRY.join(", "), array.name);
                return Err(FilterError::UnknownProperty { property: property.clone(), valid }.into());
            }
            let (low, high) = bbox.split_at(bbox.len() / 2);
            let roles = [Role::X, Role::Y, Role::Z];
            let tests = roles
                .into_iter()
                .zip(low.iter().zip(high))
                .map(|(role, (lo, hi))| within(array, "filter", role, lo, hi));
            Filter::And(tests.collect::<Result<_, _>>()?)
        }
        Filter::Constant(_) | Filter::Test { .. } => filter.clone(),
    })
}

fn within(array: &Array, parameter: &str, role: Role, lo: &Exact, hi: &Exact) -> Result<Filter, Problem> {
    let details = || Details { parameter: Some(parameter.to_owned()), ..Details::default() };
    let property = placed_by(array, role).ok_or_else(|| {
        let message = format!("{parameter}: no column and no dimension of `{}` means {role:?} by its name", array.path);
        Problem::new(ErrorKind::InvalidSelection, message).at(details())
    })?;
    if lo > hi {
        let message = format!("{parameter}: the lower end of `{property}` lies above the upper one");
        return Err(Problem::new(ErrorKind::InvalidSelection, message).at(details()));
    }
    let test = Test::Between(Literal::Number(lo.clone()), Literal::Number(hi.clone()));
    Ok(Filter::Test { property, test })
}

/// Of a table whose columns place its rows: a selection without its `bbox`, and that as a predicate of the columns.
pub(super) fn box_of_columns(array: &Array, selection: &Selection) -> Result<Option<(Selection, Filter)>, Problem> {
    if !selection.has_bbox() || columns(array).iter().all(|name| coords::role_of(name).is_none()) {
        return Ok(None);
    }
    let mut rest = selection.clone();
    let mut tests = Vec::new();
    for Subset { axis, interval: Interval { lo, hi, .. }, .. } in
        rest.subsets.extract_if(.., |subset| subset.parameter == "bbox")
    {
        let OnAxis::Role(role) = axis else { continue };
        let end = |mark: &Mark| match mark {
            Mark::Open => Ok(None),
            Mark::Number { value, unit: None } => Ok(Some(value.clone())),
            Mark::Number { .. } | Mark::Instant(_) => Err(QueryError::InvalidValue {
                parameter: "bbox".to_owned(),
                reason: "columns have no units".to_owned(),
                valid: Some("plain numbers".to_owned()),
            }),
        };
        let (lo, hi) = (end(&lo)?, hi.as_ref().map(end).transpose()?.flatten());
        match (lo, hi) {
            (Some(lo), Some(hi)) => tests.push(within(array, "bbox", role, &lo, &hi)?),
            (one, other) => {
                let property = placed_by(array, role).unwrap_or_default();
                for (end, comparison) in [(one, Comparison::AtLeast), (other, Comparison::AtMost)] {
                    let Some(end) = end else { continue };
                    let test = Test::Compare(comparison, Literal::Number(end));
                    tests.push(Filter::Test { property: property.clone(), test });
                }
            }
        }
    }
    Ok(Some((rest, Filter::And(tests))))
}

/// Parts of an axis that are evaluated at once, along the borders of chunks where it takes neighbours.
fn windows(axis: &Axis, chunk: u64) -> Vec<Range<u64>> {
    let count = axis.count();
    let rows = if chunk < ROWS { ROWS - ROWS % chunk.max(1) } else { ROWS };
    let first = match axis {
        Axis::Range { start, step: 1, .. } if *start >= 0 => rows - (*start as u64) % rows,
        Axis::Range { .. } | Axis::List(_) => rows,
    };
    let mut windows = Vec::new();
    let (mut at, mut end) = (0, first.min(count));
    while at < count {
        windows.push(at..end);
        (at, end) = (end, (end + rows).min(count));
    }
    windows
}
