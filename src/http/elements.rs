//! Conditions on single elements: what a filter takes of an array by its own values.

use futures::{StreamExt as _, TryStreamExt as _};

use super::coordinates::Finder;
use super::error::Problem;
use super::predicate::Property;
use crate::dataset::Array;
use crate::filter::{Column, FilterError, Truth, evaluate};
use crate::model::{Axis, ChunkData, Details, ErrorKind, Hyperslab, Piece, shape};
use crate::query::{Filter, Select};

/// Elements that are evaluated at once.
const ELEMENTS: u64 = 1 << 20;

/// Pieces that are read at once.
const AT_ONCE: usize = 2;

/// Bytes of an answer that is built whole.
const ANSWER_BYTES: u64 = 256 << 20;

/// What a filter takes of single elements.
#[derive(Debug)]
pub(super) enum Taken {
    /// The smallest part of the selection that holds all of them.
    Box(Hyperslab),
    /// Their values, in row-major order: as many as there are.
    Values(Vec<u8>),
    /// A truth value for each element of the selection.
    Mask(Vec<u8>),
    /// Their positions in the array, one row an element, as int64.
    Indices(Vec<u8>),
}

impl Finder<'_> {
    /// What a condition takes of the elements of `slab`.
    pub(super) async fn elements(
        &self,
        array: &Array,
        slab: &Hyperslab,
        filter: &Filter,
        properties: &[Property],
        select: Select,
    ) -> Result<Taken, Problem> {
        let meta = &array.meta;
        let Some(size) = meta.dtype.size_bytes() else {
            return Err(
                FilterError::Unsupported { what: "a condition on texts of several dimensions".to_owned() }.into()
            );
        };
        let rank = meta.shape.len() as u64;
        let total = slab.elements().unwrap_or(u64::MAX);
        if select == Select::Mask {
            check_answer(total)?;
        }
        let pieces = slab.pieces(0..total, ELEMENTS, meta.chunk_shape());
        let pieces: Vec<_> = pieces.into_iter().map(|piece| self.piece(array, piece, filter, properties)).collect();
        let mut pieces = futures::stream::iter(pieces).buffered(AT_ONCE);
        let mut bytes: Vec<u8> = Vec::new();
        let mut corners: Option<Vec<(u64, u64)>> = None;
        while let Some((piece, data, truths)) = pieces.try_next().await? {
            let holds = || truths.iter().enumerate().filter(|(_, truth)| **truth == Truth::True).map(|(at, _)| at);
            match select {
                Select::Mask => bytes.extend(truths.iter().map(|truth| u8::from(*truth == Truth::True))),
                Select::Values => bytes.extend(holds().flat_map(|at| &data[at * size..(at + 1) * size])),
                Select::Indices => {
                    let counts = piece.slab.counts();
                    let axes: Vec<Vec<u64>> = piece.slab.axes().iter().map(|axis| axis.positions().collect()).collect();
                    for at in holds() {
                        let place = shape::unravel(at as u64, &counts);
                        let position = place.iter().zip(&axes).map(|(place, axis)| axis[*place as usize] as i64);
                        bytes.extend(position.flat_map(i64::to_le_bytes));
                    }
                }
                Select::Box => {
                    // Where the piece begins within the selection, and what each element adds to that.
                    let (counts, whole) = (piece.slab.counts(), slab.counts());
                    let first = shape::unravel(piece.elements.start, &whole);
                    for at in holds() {
                        let place = shape::unravel(at as u64, &counts);
                        let place: Vec<u64> = place.iter().zip(&first).map(|(place, first)| place + first).collect();
                        match &mut corners {
                            None => corners = Some(place.iter().map(|at| (*at, *at)).collect()),
                            Some(corners) => corners.iter_mut().zip(place).for_each(|((low, high), at)| {
                                (*low, *high) = ((*low).min(at), (*high).max(at));
                            }),
                        }
                    }
                }
            }
            check_answer(bytes.len() as u64)?;
        }
        Ok(match select {
            Select::Mask => Taken::Mask(bytes),
            Select::Values => Taken::Values(bytes),
            Select::Indices => Taken::Indices(bytes),
            Select::Box => {
                let corners = corners.unwrap_or_else(|| vec![(1, 0); rank as usize]);
                let axes = slab.axes().iter().zip(corners).map(|(axis, (low, high))| {
                    if low > high { Axis::Range { start: 0, step: 1, count: 0 } } else { axis.part(low..high + 1) }
                });
                Taken::Box(Hyperslab::new(axes.collect(), slab.kept().to_vec()))
            }
        })
    }

    /// The elements of a piece, and what a condition says of each.
    async fn piece(
        &self,
        array: &Array,
        piece: Piece,
        filter: &Filter,
        properties: &[Property],
    ) -> Result<(Piece, bytes::Bytes, Vec<Truth>), Problem> {
        let ChunkData::Fixed(data) = self.read(array, &piece.slab).await? else {
            return Err(Problem::new(ErrorKind::Internal, "elements of a fixed size were read as texts"));
        };
        // Per property: its values, and how many elements of the piece follow each other with one of them.
        let mut columns: Vec<(String, Column, u64, u64)> = Vec::with_capacity(properties.len());
        let counts = piece.slab.counts();
        let strides = shape::strides(&counts);
        for property in properties {
            let Some(axis) = property.axis else { continue };
            let found = self.columns(array, &[property], &piece.slab.axes()[axis]).await?;
            columns.extend(found.into_iter().map(|(name, column)| (name, column, strides[axis], counts[axis])));
        }
        let own: Vec<Property> = properties.iter().filter(|property| property.is_elements()).cloned().collect();
        let (filter, elements, dtype) = (filter.clone(), data.clone(), array.meta.dtype.clone());
        let rows = slab_elements(&piece);
        let evaluated = self.gateway.fetcher.pool().run(move || {
            let own: Vec<(String, Column)> = own
                .into_iter()
                .map(|property| {
                    Ok((property.name.clone(), property.column(&dtype, ChunkData::Fixed(elements.clone()))?))
                })
                .collect::<Result<_, FilterError>>()?;
            evaluate(&filter, rows, &mut |name, test| {
                if let Some((_, column)) = own.iter().find(|(known, _)| known == name) {
                    return column.test(name, test);
                }
                let Some((_, column, stride, count)) = columns.iter().find(|(known, ..)| known == name) else {
                    return Err(FilterError::Unsupported { what: format!("`{name}` here") });
                };
                let along = column.test(name, test)?;
                Ok((0..rows as u64).map(|at| along[(at / stride % count) as usize]).collect())
            })
        });
        let truths = evaluated.await??;
        Ok((piece, data, truths))
    }
}

fn slab_elements(piece: &Piece) -> usize {
    (piece.elements.end - piece.elements.start) as usize
}

fn check_answer(bytes: u64) -> Result<(), Problem> {
    if bytes <= ANSWER_BYTES {
        return Ok(());
    }
    let message = format!(
        "what the filter takes is built whole, of at most {ANSWER_BYTES} bytes; ask for a part of the array at a time"
    );
    let details = Details {
        parameter: Some("filter".into()),
        valid: Some(format!("at most {ANSWER_BYTES} bytes")),
        ..Details::default()
    };
    Err(Problem::new(ErrorKind::SliceTooLarge, message).at(details))
}
