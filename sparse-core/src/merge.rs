use std::hint::select_unpredictable;

use crate::{Element, Error, Memory, SparseVec, arch};

/// The sum of two vectors; where both have an entry, `left`'s value is the left operand.
///
/// One linear pass. Entries that cancel stay, as explicit zeros. Vectors whose indices do not
/// interleave are concatenated.
///
/// # Errors
/// [`Error::DimensionMismatch`], [`Error::Overflow`].
pub fn merge<T: Element>(left: &SparseVec<T>, right: &SparseVec<T>) -> Result<SparseVec<T>, Error> {
    merge_in(left, right, &Memory::new())
}

/// [`merge`], to memory that is used again.
///
/// # Errors
/// As [`merge`].
pub fn merge_in<T: Element>(
    left: &SparseVec<T>,
    right: &SparseVec<T>,
    memory: &Memory,
) -> Result<SparseVec<T>, Error> {
    left.check_same_dim(right)?;
    let most = left.nnz() + right.nnz();
    let (mut indices, mut values) = (memory.any(most, 0), memory.any(most, T::ZERO));
    let entries = merge_to(left, right, &mut indices, &mut values)?;
    indices.truncate(entries);
    values.truncate(entries);
    Ok(SparseVec::from_sorted(left.dim(), indices, values))
}

/// [`merge`] to the memory of a vector that is no longer needed. Allocates only where that is too small.
///
/// ```
/// use sparse_core::{SparseVec, merge_into};
///
/// let one = |at, value| SparseVec::new(9, vec![at], vec![value]);
/// let mut sum = SparseVec::default();
/// for _ in 0..3 {
///     merge_into(&one(2, 1.5_f32)?, &one(7, -1.0)?, &mut sum)?;
///     assert_eq!((sum.dim(), sum.indices()), (9, &[2, 7][..]));
/// }
/// # Ok::<(), sparse_core::Error>(())
/// ```
///
/// # Errors
/// As [`merge`]; `sum` then has no entries.
pub fn merge_into<T: Element>(
    left: &SparseVec<T>,
    right: &SparseVec<T>,
    sum: &mut SparseVec<T>,
) -> Result<(), Error> {
    sum.refill(left.dim(), |indices, values| {
        left.check_same_dim(right)?;
        indices.resize(left.nnz() + right.nnz(), 0);
        values.resize(left.nnz() + right.nnz(), T::ZERO);
        let entries = merge_to(left, right, indices, values)?;
        indices.truncate(entries);
        values.truncate(entries);
        Ok(())
    })
}

/// Writes the sum, and says how many entries it has.
fn merge_to<T: Element>(
    left: &SparseVec<T>,
    right: &SparseVec<T>,
    indices: &mut [u32],
    values: &mut [T],
) -> Result<usize, Error> {
    let [left, right] = [left, right].map(|vec| (vec.indices(), bytemuck::cast_slice(vec.values())));
    let values = bytemuck::cast_slice_mut(values);
    arch::fastest(
        #[inline(always)]
        || merge_bits::<T>(left, right, indices, values),
    )
}

/// Values are taken as integers of the same bits: a choice between floats would be made in a slower way, or be a branch.
#[inline(always)]
fn merge_bits<T: Element>(
    left: (&[u32], &[T::Bits]),
    right: (&[u32], &[T::Bits]),
    indices: &mut [u32],
    values: &mut [T::Bits],
) -> Result<usize, Error> {
    // As many values as indices, which the compiler sees here.
    let (left, right) = ((left.0, &left.1[..left.0.len()]), (right.0, &right.1[..right.0.len()]));
    let values = &mut values[..indices.len()];
    let (mut i, mut j, mut len, mut overflow) = (0, 0, 0, None);
    while i < left.0.len() && j < right.0.len() {
        let ((a, x), (b, y)) = ((left.0[i], left.1[i]), (right.0[j], right.1[j]));
        let (sum, overflowed) = bytemuck::cast::<_, T>(x).add(bytemuck::cast(y));
        if overflowed & (a == b) {
            overflow = overflow.or(Some(a));
        }
        // No branch depends on the entries: no predictor could foresee them.
        let value = select_unpredictable(a == b, bytemuck::cast(sum), select_unpredictable(a < b, x, y));
        (indices[len], values[len]) = (a.min(b), value);
        (i, j, len) = (i + usize::from(a <= b), j + usize::from(b <= a), len + 1);
    }
    // One of the two is at its end.
    for ((its, slots), from) in [(left, i), (right, j)] {
        let end = len + its.len() - from;
        indices[len..end].copy_from_slice(&its[from..]);
        values[len..end].copy_from_slice(&slots[from..]);
        len = end;
    }
    match overflow {
        Some(index) => Err(Error::Overflow { index: u64::from(index), dtype: T::DTYPE }),
        None => Ok(len),
    }
}
