use rayon::prelude::*;

use crate::collect::collect;
use crate::select::top_k_by;
use crate::{Element, Error, SparseVec};

/// [`top_k_into`](crate::top_k_into) by the threads of the rayon pool that this is called in: the same result, bit for bit,
/// however many there are.
///
/// The pass over the values is shared; what settles the order among the candidates, and further passes where a sample
/// misleads, are not. Allocates room for the candidates of each 2^16 values.
///
/// ```
/// let values: Vec<f32> = (0..200_000).map(|i| (i * 7919 % 10_007) as f32).collect();
/// let mut largest = sparse_core::SparseVec::default();
/// sparse_core::top_k_into_parallel(&values, 300, &mut largest)?;
/// assert_eq!(largest, sparse_core::top_k(&values, 300)?);
/// # Ok::<(), sparse_core::Error>(())
/// ```
///
/// # Errors
/// As [`top_k`](crate::top_k); `largest` then has no entries.
pub fn top_k_into_parallel<T: Element>(
    values: &[T],
    k: usize,
    largest: &mut SparseVec<T>,
) -> Result<(), Error> {
    top_k_by(values, k, largest, push_reaching)
}

/// Values that one thread looks at together: a number that does not depend on how many there are.
const RANGE: usize = 1 << 16;

/// Appends the values of at least this magnitude until there are `enough` entries.
fn push_reaching<T: Element>(values: &[T], low: u64, enough: usize, to: &mut SparseVec<T>) {
    for (range, found) in find(values.par_chunks(RANGE), low, enough).into_iter().enumerate() {
        let taken = found.indices.len().min(enough - to.nnz());
        let (indices, slots) = to.grow(taken);
        for (slot, index) in indices.iter_mut().zip(&found.indices) {
            *slot = (range * RANGE) as u32 + index;
        }
        slots.copy_from_slice(&found.values[..taken]);
    }
}

/// What was found in a part.
pub(crate) struct Found<T> {
    /// Of the part.
    pub(crate) len: usize,
    pub(crate) indices: Vec<u32>,
    pub(crate) values: Vec<T>,
}

/// The values of at least this magnitude of each part, the first `most` of them, with indices counted from its start.
pub(crate) fn find<'a, T: Element>(
    parts: impl IndexedParallelIterator<Item = &'a [T]>,
    low: u64,
    most: usize,
) -> Vec<Found<T>> {
    let find = |part: &[T]| {
        let mut found = Found { len: part.len(), indices: Vec::new(), values: Vec::new() };
        collect(part, low, 0, most, (&mut found.indices, &mut found.values));
        found
    };
    parts.map(find).collect()
}
