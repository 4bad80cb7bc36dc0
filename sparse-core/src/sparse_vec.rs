use std::ops::Range;

use crate::collect::{self, ROOM, collect};
use crate::cut::cut;
use crate::error::{check_dim, check_same_dim};
use crate::{Element, Error, Memory, SparseView, arch};

/// A sparse vector: strictly increasing indices below its dimension, and a value for each.
///
/// The dimension is at most 2^32. A value may be zero (an *explicit* zero, as cancellation leaves it).
///
/// ```
/// use sparse_core::{Duplicates, SparseVec};
///
/// # fn main() -> Result<(), sparse_core::Error> {
/// let v = SparseVec::from_unsorted(8, vec![(6, 1.5_f32), (1, -2.0), (6, 0.5)], Duplicates::Sum)?;
/// assert_eq!((v.dim(), v.nnz()), (8, 2));
/// assert_eq!(v.iter().collect::<Vec<_>>(), [(1, -2.0), (6, 2.0)]);
/// assert_eq!(v.slice(4..8).indices(), [2]);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, PartialEq, Debug)]
pub struct SparseVec<T> {
    dim: u64,
    indices: Vec<u32>,
    values: Vec<T>,
}

/// The vector of dimension 0: nothing, or memory to be filled.
impl<T> Default for SparseVec<T> {
    fn default() -> Self {
        Self { dim: 0, indices: Vec::new(), values: Vec::new() }
    }
}

/// What [`SparseVec::from_unsorted`] does with an index that occurs more than once.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Duplicates {
    /// Sum the values in the order given, in the accumulator type, rounded once.
    Sum,
    /// Return [`Error::DuplicateIndex`].
    Refuse,
}

impl<T: Element> SparseVec<T> {
    /// The vector with these entries. Takes the memory over; one pass to check it.
    ///
    /// # Errors
    /// [`Error::DimensionTooLarge`], [`Error::LengthMismatch`], [`Error::NotIncreasing`],
    /// [`Error::IndexOutOfRange`].
    pub fn new(dim: u64, indices: Vec<u32>, values: Vec<T>) -> Result<Self, Error> {
        SparseView::new(dim, &indices, &values)?;
        Ok(Self { dim, indices, values })
    }

    /// The vector without entries.
    ///
    /// # Errors
    /// [`Error::DimensionTooLarge`].
    pub fn empty(dim: u64) -> Result<Self, Error> {
        check_dim(dim)?;
        Ok(Self { dim, indices: Vec::new(), values: Vec::new() })
    }

    /// The vector with these entries, in any order. Sorts: O(n log n) for `n` entries.
    ///
    /// # Errors
    /// [`Error::DimensionTooLarge`], [`Error::IndexOutOfRange`]; [`Error::DuplicateIndex`] or
    /// [`Error::Overflow`], as `duplicates` says.
    pub fn from_unsorted(dim: u64, mut pairs: Vec<(u32, T)>, duplicates: Duplicates) -> Result<Self, Error> {
        check_dim(dim)?;
        // Stable: equal indices stay in the order given.
        pairs.sort_by_key(|&(index, _)| index);
        let mut indices = Vec::with_capacity(pairs.len());
        let mut values = Vec::with_capacity(pairs.len());
        for group in pairs.chunk_by(|a, b| a.0 == b.0) {
            let Some((&(index, first), rest)) = group.split_first() else { continue };
            if duplicates == Duplicates::Refuse && !rest.is_empty() {
                return Err(Error::DuplicateIndex { index });
            }
            let acc = rest.iter().fold(first.widen(), |acc, (_, value)| value.accumulate(acc));
            indices.push(index);
            values.push(narrow_at(u64::from(index), acc)?);
        }
        Self::new(dim, indices, values)
    }

    /// The entries of a dense vector that are not zero. NaN is not zero; -0.0 is. One pass.
    ///
    /// # Errors
    /// [`Error::DimensionTooLarge`].
    pub fn from_dense(values: &[T]) -> Result<Self, Error> {
        Self::from_dense_in(values, &Memory::new())
    }

    /// [`from_dense`](Self::from_dense), to memory that is used again.
    ///
    /// # Errors
    /// [`Error::DimensionTooLarge`].
    pub fn from_dense_in(values: &[T], memory: &Memory) -> Result<Self, Error> {
        let dim = values.len() as u64;
        check_dim(dim)?;
        let nnz = values.iter().filter(|value| value.magnitude() != 0).count();
        let mut vec = Self { dim, ..Self::with_room(nnz + ROOM, memory) };
        collect(values, 1, 0, nnz, vec.ends());
        Ok(vec)
    }

    /// The number of positions, explicit or not; at most 2^32.
    #[must_use]
    pub fn dim(&self) -> u64 {
        self.dim
    }

    /// The number of entries, explicit zeros included.
    #[must_use]
    pub fn nnz(&self) -> usize {
        self.indices.len()
    }

    /// The indices of the entries, strictly increasing.
    #[must_use]
    pub fn indices(&self) -> &[u32] {
        &self.indices
    }

    /// The values of the entries, in the order of the indices.
    #[must_use]
    pub fn values(&self) -> &[T] {
        &self.values
    }

    /// The values of the entries, to change in place (to scale them, say).
    #[must_use]
    pub fn values_mut(&mut self) -> &mut [T] {
        &mut self.values
    }

    /// The entries, by increasing index.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (u32, T)> + DoubleEndedIterator + '_ {
        self.indices.iter().copied().zip(self.values.iter().copied())
    }

    /// The value at `index` if there is an entry. O(log nnz).
    #[must_use]
    pub fn get(&self, index: u32) -> Option<T> {
        let position = self.indices.binary_search(&index).ok()?;
        self.values.get(position).copied()
    }

    /// The indices and the values, with their memory.
    #[must_use]
    pub fn into_parts(self) -> (Vec<u32>, Vec<T>) {
        (self.indices, self.values)
    }

    /// All `dim` values: the entries added to `+0.0`, so an explicit -0.0 gives `+0.0`.
    #[must_use]
    pub fn to_dense(&self) -> Vec<T> {
        self.to_dense_in(&Memory::new())
    }

    /// [`to_dense`](Self::to_dense), to memory that is used again.
    #[must_use]
    pub fn to_dense_in(&self, memory: &Memory) -> Vec<T> {
        // A dimension beyond the address space fails as any vector of that length does.
        let mut dense = memory.filled(usize::try_from(self.dim).unwrap_or(usize::MAX), T::ZERO);
        for (index, value) in self.iter() {
            dense[index as usize] = T::ZERO.add(value).0;
        }
        dense
    }

    /// The part in `range`, with indices counted from its start. O(log nnz + entries of the part).
    ///
    /// # Panics
    /// If the range is reversed or ends beyond the dimension, as slices do.
    #[must_use]
    #[track_caller]
    pub fn slice(&self, range: Range<u64>) -> Self {
        self.view_of(range).to_vec()
    }

    /// The vectors one after the other, as one of the sum of their dimensions: the inverse of
    /// slicing at every boundary.
    ///
    /// # Errors
    /// [`Error::DimensionTooLarge`].
    pub fn concat(parts: &[Self]) -> Result<Self, Error> {
        Self::concat_in(parts, &Memory::new())
    }

    /// [`concat`](Self::concat), to memory that is used again.
    ///
    /// # Errors
    /// [`Error::DimensionTooLarge`].
    pub fn concat_in(parts: &[Self], memory: &Memory) -> Result<Self, Error> {
        let mut whole = Self::with_room(parts.iter().map(Self::nnz).sum(), memory);
        for part in parts {
            let decode = |base, indices: &mut Vec<u32>| {
                indices.extend(part.indices.iter().map(|index| index + base));
                Ok(())
            };
            whole.append(part.dim, decode, part.values.iter().copied())?;
        }
        Ok(whole)
    }

    /// Appends a vector of dimension `dim`, as [`concat`](Self::concat) does: `decode` appends its indices, each plus
    /// what it is given first, in order and below the new dimension, and there are as many `values`. Changes nothing
    /// if it fails.
    pub(crate) fn append(
        &mut self,
        dim: u64,
        decode: impl FnOnce(u32, &mut Vec<u32>) -> Result<(), Error>,
        values: impl ExactSizeIterator<Item = T>,
    ) -> Result<(), Error> {
        let whole = self.dim.saturating_add(dim);
        check_dim(whole)?;
        // When there is an entry, its place in the whole is below 2^32.
        decode(self.dim as u32, &mut self.indices)?;
        self.values.extend(values);
        self.dim = whole;
        debug_assert!(self.indices.len() == self.values.len());
        Ok(())
    }

    /// Makes this a vector of dimension `dim` whose entries `fill` puts in place of the old ones, in order. If that fails,
    /// there are none.
    pub(crate) fn refill(
        &mut self,
        dim: u64,
        fill: impl FnOnce(&mut Vec<u32>, &mut Vec<T>) -> Result<(), Error>,
    ) -> Result<(), Error> {
        self.dim = dim;
        let filled = fill(&mut self.indices, &mut self.values);
        if filled.is_err() {
            self.indices.clear();
            self.values.clear();
        }
        debug_assert!(self.indices.len() == self.values.len() && check_indices(dim, &self.indices).is_ok());
        filled
    }

    /// Makes this an empty vector of dimension `dim`, with the memory that it has.
    pub(crate) fn restart(&mut self, dim: u64) -> Result<(), Error> {
        self.indices.clear();
        self.values.clear();
        check_dim(dim)?;
        self.dim = dim;
        Ok(())
    }

    /// Leaves the entries that `keeps` is true of, which is asked once for each, in order. Moves nothing to other memory;
    /// one pass without a branch on the answers.
    ///
    /// ```
    /// let mut vector = sparse_core::SparseVec::from_dense(&[1_i32, -4, 0, 9])?;
    /// vector.retain(|index, value| index > 0 && value > 0);
    /// assert_eq!((vector.indices(), vector.values()), (&[3][..], &[9][..]));
    /// # Ok::<(), sparse_core::Error>(())
    /// ```
    #[inline(always)]
    pub fn retain(&mut self, keeps: impl FnMut(u32, T) -> bool) {
        self.retain_from(0, keeps);
    }

    /// [`retain`](Self::retain) that leaves this many entries before as they are.
    #[inline(always)]
    pub(crate) fn retain_from(&mut self, before: usize, mut keeps: impl FnMut(u32, T) -> bool) {
        let mut kept = before;
        let (indices, values) = (&mut self.indices[..], &mut self.values[..]);
        for at in before..indices.len().min(values.len()) {
            let (index, value) = (indices[at], values[at]);
            // Written whether it stays or not: which of the two no predictor could foresee.
            (indices[kept], values[kept]) = (index, value);
            kept += usize::from(keeps(index, value));
        }
        self.truncate(kept);
    }

    /// Leaves the entries of at least this magnitude.
    pub(crate) fn keep_reaching(&mut self, low: u64) {
        let kept = arch::keep_reaching(low, &mut self.indices, &mut self.values);
        self.truncate(kept);
    }

    /// Makes room for so many more entries.
    pub fn reserve(&mut self, entries: usize) {
        self.indices.reserve(entries);
        self.values.reserve(entries);
    }

    /// Splits into the `k` entries of largest magnitude and the others; both stay sorted by index.
    ///
    /// Exact, any `k`: ties go to the lowest index, NaN ranks above everything, explicit zeros last.
    /// Linear time.
    #[must_use]
    pub fn top_k(self, k: usize) -> (Self, Self) {
        self.top_k_in(k, &Memory::new())
    }

    /// [`top_k`](Self::top_k), with the others in memory that is used again.
    #[must_use]
    pub fn top_k_in(mut self, k: usize, memory: &Memory) -> (Self, Self) {
        let mut dropped = Self { dim: self.dim, indices: Vec::new(), values: Vec::new() };
        if k < self.nnz() {
            let room = self.nnz() - k + ROOM;
            (dropped.indices, dropped.values) = (memory.any(room, 0), memory.any(room, T::ZERO));
            self.split_off_others(k, &mut dropped.indices, &mut dropped.values);
        }
        (self, dropped)
    }

    /// Leaves the `k` entries of largest magnitude, and puts the others in place of what is there.
    pub(crate) fn split_off_others(&mut self, k: usize, indices: &mut Vec<u32>, values: &mut Vec<T>) {
        let room = if k < self.nnz() { self.nnz() - k + ROOM } else { 0 };
        indices.resize(room, 0);
        values.resize(room, T::ZERO);
        let cut = arch::fastest(
            #[inline(always)]
            || cut(&self.values, k, values),
        );
        if let Some(mut cut) = cut {
            let (its, slots) = (&mut self.indices[..], &mut self.values[..]);
            let others = (&mut indices[..], &mut values[..]);
            let kept = if cut.suffices {
                arch::split_reaching(cut.magnitude, its, slots, others)
            } else {
                collect::split(its, slots, others, |value| cut.keeps(value))
            };
            indices.truncate(self.nnz() - kept);
            values.truncate(self.nnz() - kept);
            self.truncate(kept);
        }
    }

    fn truncate(&mut self, entries: usize) {
        self.indices.truncate(entries);
        self.values.truncate(entries);
    }

    /// The vector of dimension 0 with room for so many entries, to be appended to.
    #[must_use]
    pub fn with_room(entries: usize, memory: &Memory) -> Self {
        Self { dim: 0, indices: memory.empty(entries), values: memory.empty(entries) }
    }

    /// What entries are appended to, which the caller knows to be above all others and below the dimension.
    pub(crate) fn ends(&mut self) -> (&mut Vec<u32>, &mut Vec<T>) {
        (&mut self.indices, &mut self.values)
    }

    /// Room for so many more entries, which the caller writes before anybody looks at the vector.
    pub(crate) fn grow(&mut self, entries: usize) -> (&mut [u32], &mut [T]) {
        let nnz = self.nnz();
        self.indices.resize(nnz + entries, 0);
        self.values.resize(nnz + entries, T::ZERO);
        (&mut self.indices[nnz..], &mut self.values[nnz..])
    }

    /// The vector with these entries, which the caller knows to be in order.
    pub(crate) fn from_sorted(dim: u64, indices: Vec<u32>, values: Vec<T>) -> Self {
        debug_assert!(indices.len() == values.len() && check_indices(dim, &indices).is_ok());
        Self { dim, indices, values }
    }

    pub(crate) fn check_same_dim(&self, other: &Self) -> Result<(), Error> {
        check_same_dim(self.dim, other.dim)
    }
}

/// Rounds a sum once; an integer that does not fit is an error at `index`.
#[inline]
pub(crate) fn narrow_at<T: Element>(index: u64, acc: T::Acc) -> Result<T, Error> {
    match T::narrow(acc) {
        (value, false) => Ok(value),
        (_, true) => Err(Error::Overflow { index, dtype: T::DTYPE }),
    }
}

pub(crate) fn check_indices(dim: u64, indices: &[u32]) -> Result<(), Error> {
    // Without an early exit the comparison vectorises; the search for the culprit is the rare case.
    if !indices.windows(2).fold(true, |increasing, pair| increasing & (pair[0] < pair[1]))
        && let Some(at) = indices.windows(2).position(|pair| pair[0] >= pair[1])
    {
        let (previous, index) = (indices[at], indices[at + 1]);
        return Err(Error::NotIncreasing { position: at + 1, index, previous });
    }
    match indices.last() {
        Some(&index) if u64::from(index) >= dim => Err(Error::IndexOutOfRange { index, dim }),
        _ => Ok(()),
    }
}
