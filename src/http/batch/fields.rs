//! The fields of a batch, resolved against their arrays: what each item selects, and where it lies in the answer.

use std::ops::Range;
use std::sync::Arc;

use super::super::coordinates::Finder;
use super::super::dry::Part;
use super::super::error::Problem;
use super::super::gateway::Gateway;
use super::super::samples::{Resolved, Samples};
use super::super::target::{self, Target};
use super::super::{SliceRequest, selected};
use crate::dataset::{Array, Snapshot};
use crate::model::{Details, ErrorKind, Hyperslab, shape};
use crate::plan;
use crate::query::{Batch, BatchField, BatchOptions, Request};
use crate::wire::batch::{LayoutField, RECORD_BYTES, aligned, layout};

/// Bytes of elements that are put together at once: as the bands of a slice, and for the same reasons.
const WINDOW_BYTES: u64 = 8 << 20;

/// Chunks that are planned at once, where items are small and touch many.
const WINDOW_CHUNKS: u64 = 65_536;

/// Largest item, in bytes: it is held whole. Larger ones stream as slices.
const ITEM_BYTES: u64 = 256 << 20;

/// One array of a batch with its selections.
#[derive(Debug)]
pub(super) struct Field {
    /// As the request names it, if it does.
    pub(super) name: Option<String>,
    pub(super) array: Array,
    /// The value of positions outside the array.
    pub(super) outside: Arc<[u8]>,
    /// Per item, its positions, or why it has none.
    pub(super) slabs: Vec<Result<Hyperslab, Problem>>,
    dims: Vec<Option<String>>,
    /// In a stack: the shape of every item, its bytes, and where the field begins in the body.
    stacked: Option<Stacked>,
}

#[derive(Debug)]
struct Stacked {
    /// With the items in front.
    shape: Vec<u64>,
    item_bytes: u64,
    offset: u64,
}

/// The fields of a batch.
#[derive(Debug)]
pub(super) struct Fields {
    pub(super) fields: Vec<Field>,
    pub(super) items: usize,
    pub(super) options: BatchOptions,
    /// Where the records of a stack begin.
    records_at: u64,
}

impl Fields {
    /// Opens the arrays and resolves every item.
    pub(super) async fn open(
        gateway: &Gateway,
        asked: &SliceRequest,
        targets: &[Target],
        batch: &Batch,
        options: BatchOptions,
        snapshot: &Snapshot,
    ) -> Result<Self, Problem> {
        let arrays = targets.iter().zip(&batch.fields).map(|(target, field)| async move {
            let array = target::array(gateway, asked, target, snapshot).await;
            array.map_err(|problem| problem.in_field(field.name.as_deref()))
        });
        let arrays = futures::future::try_join_all(arrays).await?;
        let items = batch.len();
        let mut fields = Vec::with_capacity(arrays.len());
        for ((array, target), of_field) in arrays.into_iter().zip(targets).zip(&batch.fields) {
            let field = Field::new(&target.request, array, of_field, items);
            fields.push(field.map_err(|problem| problem.in_field(of_field.name.as_deref()))?);
        }
        let finder = Finder::new(gateway, asked, snapshot);
        let pad = targets.first().and_then(|target| target.request.pad.as_ref()).map(|(to, _)| *to);
        let mut total = 0_u64;
        for item in 0..items {
            let taken = taken(&finder, &fields, batch, item, pad).await;
            for ((field, target), taken) in fields.iter_mut().zip(targets).zip(taken) {
                let request = &target.request;
                let slab = taken.and_then(|resolved| slab(gateway, request, &field.array, &resolved));
                let slab =
                    slab.map_err(|problem| problem.about(&field.array.path).in_item(item, field.name.as_deref()));
                if !options.skip_errors {
                    slab.as_ref().map_err(Problem::clone)?;
                }
                total = total.saturating_add(slab.as_ref().map_or(0, |slab| field.bytes_of(slab)));
                field.slabs.push(slab);
            }
        }
        fields.iter_mut().for_each(Field::name_dims);
        if total > gateway.limits.result_bytes {
            let limit = gateway.limits.result_bytes;
            let message = format!("the batch would hold {total} bytes, the limit is {limit}; send it in parts");
            let details = Details { valid: Some(format!("at most {limit} bytes")), ..Details::default() };
            return Err(Problem::new(ErrorKind::SliceTooLarge, message).at(details));
        }
        let mut this = Self { fields, items, options, records_at: 0 };
        if options.stack {
            this.stack()?;
        }
        Ok(this)
    }

    /// Lays the fields out one after the other.
    fn stack(&mut self) -> Result<(), Problem> {
        let mut offset = 0_u64;
        for field in &mut self.fields {
            let stacked = field.stack(self.items, self.options.skip_errors, offset)?;
            let len = stacked.item_bytes.saturating_mul(self.items as u64);
            let end = usize::try_from(len).ok().and_then(aligned).map(|len| offset.saturating_add(len as u64));
            offset = end.ok_or_else(|| Problem::new(ErrorKind::SliceTooLarge, "the stack does not fit in memory"))?;
            field.stacked = Some(stacked);
        }
        self.records_at = offset;
        Ok(())
    }

    /// Bytes of the body, where they are known before reading.
    pub(super) fn body_len(&self) -> Option<u64> {
        self.options.stack.then(|| self.records_at + self.records_len())
    }

    fn records_len(&self) -> u64 {
        (self.items * self.fields.len() * RECORD_BYTES) as u64
    }

    /// The value of `x-w4dx-layout`.
    pub(super) fn layout(&self) -> serde_json::Value {
        let fields: Vec<LayoutField<'_>> = self
            .fields
            .iter()
            .map(|field| LayoutField {
                name: field.name.as_deref().unwrap_or(&field.array.name),
                dtype: &field.array.meta.dtype,
                dims: &field.dims,
                source_etag: field.array.version(),
                stacked: field.stacked.as_ref().map(|stacked| {
                    (&stacked.shape[..], stacked.offset, stacked.item_bytes.saturating_mul(self.items as u64))
                }),
            })
            .collect();
        let records = self.options.stack.then(|| (self.records_at, self.records_len()));
        layout(self.items, &fields, records)
    }

    /// How many parts the answer has: one an item and field.
    pub(super) fn units(&self) -> usize {
        self.items * self.fields.len()
    }

    /// Item and field of a part, in the order of the answer.
    pub(super) fn unit(&self, unit: usize) -> (usize, usize) {
        if self.options.stack {
            (unit % self.items, unit / self.items)
        } else {
            (unit / self.fields.len(), unit % self.fields.len())
        }
    }

    /// Where a part of a stack lies in the body.
    pub(super) fn place(&self, unit: usize) -> Option<Range<u64>> {
        let (item, field) = self.unit(unit);
        let stacked = self.fields[field].stacked.as_ref()?;
        let start = stacked.offset + stacked.item_bytes * item as u64;
        Some(start..start + stacked.item_bytes)
    }

    /// Where the part after `unit` begins in a stack: after the last of a field there is padding.
    pub(super) fn place_after(&self, unit: usize) -> u64 {
        if unit + 1 == self.units() {
            return self.records_at;
        }
        self.place(unit + 1).map_or(0, |place| place.start)
    }

    /// The parts in runs that are put together at once.
    pub(super) fn windows(&self, part_bytes: u64) -> Vec<Range<usize>> {
        let mut windows: Vec<Range<usize>> = Vec::new();
        let (mut bytes, mut chunks, mut decoded) = (0_u64, 0_u64, 0_u64);
        for unit in 0..self.units() {
            let (item, field) = self.unit(unit);
            let field = &self.fields[field];
            let meta = &field.array.meta;
            let (its_bytes, its_chunks, its_decoded) = match &field.slabs[item] {
                Ok(slab) => (field.bytes_of(slab), plan::chunks_at_most(meta, slab), plan::decoded_at_most(meta, slab)),
                Err(_) => (field.stacked.as_ref().map_or(1024, |stacked| stacked.item_bytes), 0, 0),
            };
            // Chunks that items share count for each: what is held at once is at most this.
            let full = bytes.saturating_add(its_bytes) > WINDOW_BYTES
                || chunks.saturating_add(its_chunks) > WINDOW_CHUNKS
                || decoded.saturating_add(its_decoded) > part_bytes;
            match windows.last_mut() {
                Some(window) if !full => window.end = unit + 1,
                Some(_) | None => {
                    windows.push(unit..unit + 1);
                    (bytes, chunks, decoded) = (0, 0, 0);
                }
            }
            bytes = bytes.saturating_add(its_bytes);
            chunks = chunks.saturating_add(its_chunks);
            decoded = decoded.saturating_add(its_decoded);
        }
        windows
    }

    /// What the batch reads, for answers that send no elements.
    pub(super) fn parts(&self, part_bytes: u64) -> Vec<Part<'_>> {
        let windows = self.windows(part_bytes).into_iter().enumerate();
        let units = windows.flat_map(|(window, units)| units.map(move |unit| (window, unit)));
        units
            .filter_map(|(window, unit)| {
                let (item, field) = self.unit(unit);
                let field = &self.fields[field];
                Some(Part { array: &field.array, slab: field.slabs[item].as_ref().ok()?, window })
            })
            .collect()
    }
}

impl Field {
    fn new(request: &Request, array: Array, of_field: &BatchField, items: usize) -> Result<Self, Problem> {
        let about = |problem: Problem| problem.about(&array.path);
        let meta = &array.meta;
        if meta.dtype.size_bytes().is_none_or(|size| size == 0) {
            let message = format!("a batch holds elements of a fixed size, `{}` has {}", array.path, meta.dtype.name());
            return Err(about(Problem::new(ErrorKind::FormatNotPossible, message)));
        }
        let outside: Arc<[u8]> = selected::outside(request, &array).map_err(about)?.into();
        let (name, slabs) = (of_field.name.clone(), Vec::with_capacity(items));
        Ok(Self { name, array, outside, slabs, dims: Vec::new(), stacked: None })
    }

    /// Once the items are known: the axes that the first good one keeps.
    fn name_dims(&mut self) {
        let meta = &self.array.meta;
        self.dims = self.slabs.iter().flatten().next().map_or_else(Vec::new, |slab| {
            meta.dims.iter().zip(slab.kept()).filter(|(_, kept)| **kept).map(|(dim, _)| dim.clone()).collect()
        });
    }

    /// Bytes of an item's elements.
    pub(super) fn bytes_of(&self, slab: &Hyperslab) -> u64 {
        let size = self.array.meta.dtype.size_bytes().unwrap_or(1);
        shape::bytes(&slab.counts(), size).unwrap_or(u64::MAX)
    }

    /// The one shape of all items. An item of another is at fault; the first good one says which.
    fn stack(&mut self, items: usize, skip_errors: bool, offset: u64) -> Result<Stacked, Problem> {
        let Some(first) = self.slabs.iter().flatten().next() else {
            let Some(Err(problem)) = self.slabs.first() else {
                return Err(Problem::new(ErrorKind::InvalidParameter, "a stack of no items has no shape"));
            };
            return Err(problem.clone());
        };
        let (shape, item_bytes) = (first.answer_shape(), self.bytes_of(first));
        let name = self.name.clone();
        for (number, slab) in self.slabs.iter_mut().enumerate() {
            let Some(other) = slab.as_ref().ok().map(Hyperslab::answer_shape).filter(|other| *other != shape) else {
                continue;
            };
            let message =
                format!("its shape is {other:?}, that of the items before {shape:?}; a stack needs one shape");
            let problem = Problem::new(ErrorKind::ShapeMismatch, message).about(&self.array.path);
            let problem = problem.in_item(number, name.as_deref());
            if !skip_errors {
                return Err(problem);
            }
            *slab = Err(problem);
        }
        let mut stacked = vec![items as u64];
        stacked.extend(shape);
        Ok(Stacked { shape: stacked, item_bytes, offset })
    }
}

/// What an item selects, and what its coordinates find.
type Taken<'a> = Result<Resolved<'a>, Problem>;

/// What one item takes of each field.
async fn taken<'a>(
    finder: &Finder<'_>,
    fields: &[Field],
    batch: &'a Batch,
    item: usize,
    pad: Option<u64>,
) -> Vec<Taken<'a>> {
    let selections = batch.fields.iter().map(|field| field.items[item].as_ref());
    match (batch.aligned, batch.fields.first().map(|field| &field.items[item])) {
        (true, Some(Ok(selection))) => {
            let arrays: Vec<(&str, &Array)> =
                fields.iter().map(|field| (field.name.as_deref().unwrap_or_default(), &field.array)).collect();
            match finder.aligned(&arrays, selection, pad, None).await {
                Ok(aligned) => aligned.into_iter().map(Ok).collect(),
                Err(problem) => vec![Err(problem); fields.len()],
            }
        }
        _ => {
            let mut taken = Vec::with_capacity(fields.len());
            for (field, selection) in fields.iter().zip(selections) {
                taken.push(match selection {
                    Err(error) => Err(Problem::from(error.clone())),
                    Ok(selection) => finder.resolve(&field.array, selection, pad, None).await,
                });
            }
            taken
        }
    }
}

/// The positions of one item, checked against every limit.
fn slab(gateway: &Gateway, request: &Request, array: &Array, resolved: &Resolved<'_>) -> Result<Hyperslab, Problem> {
    let meta = &array.meta;
    if let Some(Samples { dimension, one: false, .. }) = &resolved.samples {
        let message = format!("an item takes one sample of a ragged array, such as {{\"isel\":{{\"{dimension}\":7}}}}");
        let details = Details { dimension: Some(dimension.clone()), ..Details::default() };
        return Err(Problem::new(ErrorKind::InvalidSelection, message).at(details));
    }
    let slab = resolved.slab(array)?;
    request.check_shape(&slab.answer_shape())?;
    plan::check(meta, &slab, &gateway.limits)?;
    let bytes = shape::bytes(&slab.counts(), meta.dtype.size_bytes().unwrap_or(1)).unwrap_or(u64::MAX);
    let most = ITEM_BYTES.min(gateway.part_bytes);
    let held = bytes.max(plan::decoded_at_most(meta, &slab));
    // One chunk is held whole however it is asked for.
    if held > most && (bytes > most || plan::chunks_at_most(meta, &slab) > 1) {
        let message = format!(
            "an item of {bytes} bytes, {held} with the chunks beneath it; more than {most} are asked for as a slice, \
             which is made in parts"
        );
        let details = Details { valid: Some(format!("at most {most} bytes")), ..Details::default() };
        return Err(Problem::new(ErrorKind::SliceTooLarge, message).at(details));
    }
    Ok(slab)
}
