use std::ops::Range;

use crate::error::check_dim;
use crate::sparse_vec::check_indices;
use crate::{Element, Error, Memory, SparseVec};

/// A borrowed sparse vector: all of a [`SparseVec`], or a range of it.
///
/// ```
/// let v = sparse_core::SparseVec::new(8, vec![1, 6], vec![-2.0_f32, 1.5])?;
/// let upper = v.view_of(4..8);
/// assert_eq!((upper.dim(), upper.nnz()), (4, 1));
/// assert_eq!(upper.iter().collect::<Vec<_>>(), [(2, 1.5)]);
/// # Ok::<(), sparse_core::Error>(())
/// ```
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct SparseView<'a, T> {
    dim: u64,
    /// What index 0 is called in `indices`.
    base: u32,
    indices: &'a [u32],
    values: &'a [T],
}

impl<'a, T: Element> SparseView<'a, T> {
    /// The vector with these entries. One pass to check it.
    ///
    /// # Errors
    /// As [`SparseVec::new`].
    pub fn new(dim: u64, indices: &'a [u32], values: &'a [T]) -> Result<Self, Error> {
        check_dim(dim)?;
        if indices.len() != values.len() {
            return Err(Error::LengthMismatch { indices: indices.len(), values: values.len() });
        }
        check_indices(dim, indices)?;
        Ok(Self { dim, base: 0, indices, values })
    }

    /// The vector with these entries, which the caller knows to be in order.
    pub(crate) fn from_sorted(dim: u64, indices: &'a [u32], values: &'a [T]) -> Self {
        debug_assert!(indices.len() == values.len() && check_indices(dim, indices).is_ok());
        Self { dim, base: 0, indices, values }
    }

    /// The number of positions.
    #[must_use]
    pub fn dim(&self) -> u64 {
        self.dim
    }

    /// The number of entries.
    #[must_use]
    pub fn nnz(&self) -> usize {
        self.indices.len()
    }

    /// The entries, by increasing index.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (u32, T)> + use<'a, T> {
        let base = self.base;
        self.indices.iter().map(move |index| index - base).zip(self.values.iter().copied())
    }

    /// A copy that owns its entries.
    #[must_use]
    pub fn to_vec(&self) -> SparseVec<T> {
        self.to_vec_in(&Memory::new())
    }

    /// [`to_vec`](Self::to_vec), to memory that is used again.
    #[must_use]
    pub fn to_vec_in(&self, memory: &Memory) -> SparseVec<T> {
        let (mut indices, mut values) = (memory.empty(self.nnz()), memory.empty(self.nnz()));
        indices.extend(self.indices.iter().map(|index| index - self.base));
        values.extend_from_slice(self.values);
        SparseVec::from_sorted(self.dim, indices, values)
    }

    /// The indices, each too large by the base, which is the second.
    pub(crate) fn shifted_indices(&self) -> (&'a [u32], u32) {
        (self.indices, self.base)
    }

    /// The values, in the order of the indices.
    #[must_use]
    pub fn values(&self) -> &'a [T] {
        self.values
    }
}

impl<T: Element> SparseVec<T> {
    /// The whole vector, borrowed.
    #[must_use]
    pub fn view(&self) -> SparseView<'_, T> {
        SparseView { dim: self.dim(), base: 0, indices: self.indices(), values: self.values() }
    }

    /// The part in `range`, borrowed, with indices counted from its start. O(log nnz).
    ///
    /// # Panics
    /// If the range is reversed or ends beyond the dimension, as slices do.
    #[must_use]
    #[track_caller]
    pub fn view_of(&self, range: Range<u64>) -> SparseView<'_, T> {
        let (start, end) = (range.start, range.end);
        assert!(start <= end && end <= self.dim(), "the range {range:?} is not within 0..{}", self.dim());
        let from = self.indices().partition_point(|&index| u64::from(index) < start);
        let to = self.indices().partition_point(|&index| u64::from(index) < end);
        SparseView {
            dim: end - start,
            // An index in the part is at least `start`, so `start` fits a u32 when there is one.
            base: start as u32,
            indices: &self.indices()[from..to],
            values: &self.values()[from..to],
        }
    }
}
