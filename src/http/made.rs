//! Tensors that no array holds: what a filter says, and single elements that it takes.

use std::time::SystemTime;

use super::elements::Taken;
use super::etag;
use super::predicate::Narrowed;
use crate::dataset::{Array, Source};
use crate::filter::FilterError;
use crate::model::{ChunkData, DType, Hyperslab};
use crate::query::Select;
use crate::tensor::Tensor;
use crate::wire::{Description, Format};

/// A tensor that was made for one answer.
pub(super) struct Made {
    name: String,
    pub(super) dims: Vec<Option<String>>,
    pub(super) tensor: Tensor,
    /// When its array's metadata last changed.
    pub(super) last_modified: SystemTime,
}

impl Made {
    fn new(array: &Array, dims: Vec<Option<String>>, shape: Vec<u64>, dtype: DType, bytes: Vec<u8>) -> Self {
        let modified = array.sources.iter().filter_map(Source::last_modified).max();
        let tensor = Tensor { shape, dtype, data: ChunkData::Fixed(bytes.into()) };
        Self { name: array.name.clone(), dims, tensor, last_modified: modified.unwrap_or(SystemTime::UNIX_EPOCH) }
    }

    /// Which positions of an axis a filter takes: themselves, or a truth value for each that `before` selects.
    pub(super) fn of_axis(
        array: &Array,
        before: &Hyperslab,
        narrowed: &Narrowed,
        select: Select,
    ) -> Result<Self, FilterError> {
        let ([(axis, taken)], [kept]) = (&narrowed.axes[..], &narrowed.kept[..]) else {
            let what = "a mask, or indices, of conditions on several dimensions".to_owned();
            return Err(FilterError::Unsupported { what });
        };
        let dims = vec![array.meta.dims.get(*axis).cloned().flatten()];
        if select == Select::Mask {
            let mut mask = vec![0_u8; before.axes()[*axis].count() as usize];
            kept.iter().for_each(|at| mask[*at as usize] = 1);
            return Ok(Self::new(array, dims, vec![mask.len() as u64], DType::Bool, mask));
        }
        let bytes: Vec<u8> = taken.positions().flat_map(|at| (at as i64).to_le_bytes()).collect();
        Ok(Self::new(array, dims, vec![taken.count()], DType::Int(64), bytes))
    }

    /// What a filter takes of the elements of `slab`. A box is an ordinary slice and none of these.
    pub(super) fn of_elements(array: &Array, slab: &Hyperslab, taken: Taken) -> Option<Self> {
        let meta = &array.meta;
        match taken {
            Taken::Box(_) => None,
            Taken::Values(bytes) => {
                let count = bytes.len() / meta.dtype.size_bytes().unwrap_or(1).max(1);
                Some(Self::new(array, vec![None], vec![count as u64], meta.dtype.clone(), bytes))
            }
            Taken::Mask(bytes) => {
                let kept = meta.dims.iter().zip(slab.kept()).filter(|(_, kept)| **kept);
                let dims = kept.map(|(dim, _)| dim.clone()).collect();
                Some(Self::new(array, dims, slab.answer_shape(), DType::Bool, bytes))
            }
            Taken::Indices(bytes) => {
                let rank = meta.shape.len() as u64;
                let rows = bytes.len() as u64 / 8 / rank.max(1);
                Some(Self::new(array, vec![None, None], vec![rows, rank], DType::Int(64), bytes))
            }
        }
    }

    pub(super) fn description(&self) -> Description<'_> {
        let Tensor { shape, dtype, .. } = &self.tensor;
        Description { name: &self.name, dtype, shape, dims: &self.dims }
    }

    /// A hash of what it holds: it is known before the headers leave.
    pub(super) fn etag(&self, format: Format) -> String {
        etag::of_made(&self.description(), &self.tensor.data, format)
    }
}
