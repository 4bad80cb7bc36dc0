use crate::error::check_same_dim;
use crate::sparse_vec::narrow_at;
use crate::{Element, Error, Memory, SparseVec, SparseView, arch};

/// `dst[i] += src[i]`, `dst` being the left operand.
///
/// # Errors
/// [`Error::DimensionMismatch`], [`Error::Overflow`]; `dst` is then unchanged.
pub fn add_assign<T: Element>(dst: &mut [T], src: &[T]) -> Result<(), Error> {
    check_same_dim(dst.len() as u64, src.len() as u64)?;
    // Floats never overflow with an error: no pass for them.
    if T::CAN_OVERFLOW
        && let Some(at) = dst.iter().zip(src).position(|(left, &right)| left.add(right).1)
    {
        return Err(Error::Overflow { index: at as u64, dtype: T::DTYPE });
    }
    for (left, &right) in dst.iter_mut().zip(src) {
        *left = left.add(right).0;
    }
    Ok(())
}

/// Makes sums of `count` values their means: see [`Element::divide`].
///
/// ```
/// let mut sums = [6.0_f32, 1.0];
/// sparse_core::divide(&mut sums, 3);
/// assert_eq!(sums, [2.0, 1.0 / 3.0]);
/// ```
///
/// # Panics
/// Of integers, if `count` is 0.
pub fn divide<T: Element>(values: &mut [T], count: u32) {
    values.iter_mut().for_each(|value| *value = value.divide(count));
}

/// Adds the entries of `src` to a dense vector, whose values are the left operands.
///
/// # Errors
/// [`Error::DimensionMismatch`], [`Error::Overflow`]; `dense` is then unchanged.
pub fn scatter_add<T: Element>(dense: &mut [T], src: &SparseVec<T>) -> Result<(), Error> {
    scatter_with(dense, src, Element::add)
}

/// As [`scatter_add`], but the dense values are the right operands.
pub(crate) fn scatter_add_left<T: Element>(dense: &mut [T], src: &SparseVec<T>) -> Result<(), Error> {
    scatter_with(dense, src, |old, new| new.add(old))
}

fn scatter_with<T: Element>(
    dense: &mut [T],
    src: &SparseVec<T>,
    add: impl Fn(T, T) -> (T, bool),
) -> Result<(), Error> {
    check_same_dim(dense.len() as u64, src.dim())?;
    if T::CAN_OVERFLOW
        && let Some((at, _)) = src.iter().find(|&(at, value)| add(dense[at as usize], value).1)
    {
        return Err(Error::Overflow { index: u64::from(at), dtype: T::DTYPE });
    }
    at_each(dense, src, |slot, value| *slot = add(*slot, value).0);
    Ok(())
}

/// Sets the positions of these entries to zero, as error feedback does with what was sent.
///
/// ```
/// let sent = sparse_core::SparseVec::new(4, vec![1, 3], vec![5.0_f32, -6.0])?;
/// let mut residual = [0.5, 5.0, -0.5, -6.0];
/// sparse_core::clear(&mut residual, &sent)?;
/// assert_eq!(residual, [0.5, 0.0, -0.5, 0.0]);
/// # Ok::<(), sparse_core::Error>(())
/// ```
///
/// # Errors
/// [`Error::DimensionMismatch`].
pub fn clear<T: Element>(dense: &mut [T], entries: &SparseVec<T>) -> Result<(), Error> {
    check_same_dim(dense.len() as u64, entries.dim())?;
    at_each(dense, entries, |slot, _| *slot = T::ZERO);
    Ok(())
}

/// Sets the positions of these entries to their values.
pub(crate) fn put<T: Element>(dense: &mut [T], entries: &SparseVec<T>) {
    at_each(dense, entries, |slot, value| *slot = value);
}

/// Goes to the dense value of each entry, in order.
#[inline(always)]
fn at_each<T: Element>(dense: &mut [T], entries: &SparseVec<T>, mut visit: impl FnMut(&mut T, T)) {
    let is_far = size_of_val(dense) > CACHED;
    let ahead = if is_far { entries.indices().get(AHEAD..).unwrap_or_default() } else { &[] };
    for ((at, value), &ahead) in entries.iter().zip(ahead) {
        arch::prefetch(&dense[ahead as usize]);
        visit(&mut dense[at as usize], value);
    }
    for (at, value) in entries.iter().skip(ahead.len()) {
        visit(&mut dense[at as usize], value);
    }
}

/// Bytes of dense memory that may be in a cache, where fetching it beforehand would only cost.
const CACHED: usize = 1 << 20;
/// How many values are on their way from memory at a time.
const AHEAD: usize = 24;

/// A dense sum of many vectors, kept in the accumulator type and rounded once at the end.
///
/// Sums start from `+0.0`.
///
/// ```
/// use sparse_core::{Accumulator, SparseVec};
///
/// # fn main() -> Result<(), sparse_core::Error> {
/// let mut sum = Accumulator::<i32>::new(3);
/// sum.add_dense(&[i32::MAX, 1, 0])?;
/// sum.add_sparse(&SparseVec::new(3, vec![0, 2], vec![5, 5])?)?;
/// sum.add_dense(&[-5, 1, 0])?; // the intermediate overflow did not matter
/// assert_eq!(sum.finish()?, [i32::MAX, 2, 5]);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Accumulator<T: Element> {
    sums: Vec<T::Acc>,
}

impl<T: Element> Accumulator<T> {
    /// A sum of `len` zeros.
    #[must_use]
    pub fn new(len: usize) -> Self {
        Self::new_in(len, &Memory::new())
    }

    /// [`new`](Self::new), in memory that is used again.
    #[must_use]
    pub fn new_in(len: usize, memory: &Memory) -> Self {
        Self { sums: memory.filled(len, T::ZERO.widen()) }
    }

    /// The number of positions.
    #[must_use]
    pub fn len(&self) -> usize {
        self.sums.len()
    }

    /// Whether there are no positions.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.sums.is_empty()
    }

    /// Adds a sparse vector.
    ///
    /// # Errors
    /// [`Error::DimensionMismatch`].
    pub fn add_sparse(&mut self, vec: &SparseVec<T>) -> Result<(), Error> {
        self.add_view(&vec.view())
    }

    /// Adds a borrowed sparse vector.
    ///
    /// # Errors
    /// [`Error::DimensionMismatch`].
    pub fn add_view(&mut self, view: &SparseView<'_, T>) -> Result<(), Error> {
        check_same_dim(self.sums.len() as u64, view.dim())?;
        for (index, value) in view.iter() {
            let sum = &mut self.sums[index as usize];
            *sum = value.accumulate(*sum);
        }
        Ok(())
    }

    /// Adds a dense vector.
    ///
    /// # Errors
    /// [`Error::DimensionMismatch`].
    pub fn add_dense(&mut self, values: &[T]) -> Result<(), Error> {
        check_same_dim(self.sums.len() as u64, values.len() as u64)?;
        for (sum, &value) in self.sums.iter_mut().zip(values) {
            *sum = value.accumulate(*sum);
        }
        Ok(())
    }

    /// The sums, rounded to the element type.
    ///
    /// # Errors
    /// [`Error::Overflow`].
    pub fn finish(self) -> Result<Vec<T>, Error> {
        self.finish_in(&Memory::new())
    }

    /// [`finish`](Self::finish), to memory that is used again, giving back its own.
    ///
    /// # Errors
    /// [`Error::Overflow`].
    pub fn finish_in(self, memory: &Memory) -> Result<Vec<T>, Error> {
        let mut values = memory.empty(self.sums.len());
        for (index, sum) in (0..).zip(&self.sums) {
            values.push(narrow_at(index, *sum)?);
        }
        memory.put(self.sums);
        Ok(values)
    }
}
