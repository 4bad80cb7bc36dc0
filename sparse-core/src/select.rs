use crate::error::check_dim;
use crate::{Element, Error, SparseVec};

/// The `k` entries of largest magnitude of a dense vector: exact, for any `k`.
///
/// Zeros are never taken, so the result may have fewer entries. Ties go to the lowest index; NaN
/// ranks above everything.
///
/// Linear time: one pass counts the high bits of the magnitudes, one pass collects what may be in the
/// result, and the order among those is settled by a selection, never by a sort.
///
/// # Errors
/// [`Error::DimensionTooLarge`].
///
/// ```
/// let top = sparse_core::top_k(&[1_i32, -7, 0, 7, 3], 2)?;
/// assert_eq!(top.iter().collect::<Vec<_>>(), [(1, -7), (3, 7)]);
/// # Ok::<(), sparse_core::Error>(())
/// ```
pub fn top_k<T: Element>(values: &[T], k: usize) -> Result<SparseVec<T>, Error> {
    check_dim(values.len() as u64)?;
    let Some(mut cut) = cut(values, k) else {
        return SparseVec::from_dense(values);
    };
    let mut kept = SparseVec::with_capacity(values.len() as u64, k);
    for (index, &value) in (0..).zip(values) {
        if cut.keeps(value) && value.magnitude() != 0 {
            kept.push(index, value);
        }
    }
    Ok(kept)
}

/// What separates the entries that are kept: those above a magnitude, and the first few equal to it.
pub(crate) struct Cut {
    magnitude: u64,
    ties: usize,
}

impl Cut {
    /// Whether the next value in index order is kept.
    #[inline]
    pub(crate) fn keeps<T: Element>(&mut self, value: T) -> bool {
        let magnitude = value.magnitude();
        if magnitude == self.magnitude && self.ties > 0 {
            self.ties -= 1;
            return true;
        }
        magnitude > self.magnitude
    }
}

/// The cut that keeps exactly `k` of the values; `None` when it would keep all.
pub(crate) fn cut<T: Element>(values: &[T], k: usize) -> Option<Cut> {
    if k >= values.len() {
        return None;
    }
    let Some(last) = k.checked_sub(1) else {
        return Some(Cut { magnitude: u64::MAX, ties: 0 });
    };
    let mut magnitudes: Vec<u64> = values.iter().map(|value| value.magnitude()).collect();
    let (above, &mut magnitude, _) = magnitudes.select_nth_unstable_by(last, |a, b| b.cmp(a));
    let ties = k - above.iter().filter(|&&other| other > magnitude).count();
    Some(Cut { magnitude, ties })
}
