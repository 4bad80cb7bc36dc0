use crate::error::check_same_dim;
use crate::sparse_vec::narrow_at;
use crate::{Element, Error, SparseVec, SparseView};

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
    for (at, value) in src.iter() {
        let slot = &mut dense[at as usize];
        *slot = add(*slot, value).0;
    }
    Ok(())
}

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
        Self { sums: vec![T::ZERO.widen(); len] }
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
        (0..).zip(self.sums).map(|(index, sum)| narrow_at(index, sum)).collect()
    }
}
