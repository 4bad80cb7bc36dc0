use crate::{Element, Error, SparseVec, top_k};

/// The largest entries of each layer of a dense vector: for each `(length, k)` the k of largest magnitude of the next
/// so many values, as [`top_k`] selects them.
///
/// Layers with small gradients are heard too, which one k for all would leave silent.
///
/// # Errors
/// [`Error::DimensionMismatch`] if the lengths do not add up to that of the vector, [`Error::DimensionTooLarge`].
///
/// ```
/// let values = [9.0_f32, 8.0, 7.0, 0.1, -0.3];
/// let largest = sparse_core::top_k_per_layer(&values, &[(3, 1), (2, 1)])?;
/// assert_eq!(largest.iter().collect::<Vec<_>>(), [(0, 9.0), (4, -0.3)]);
/// # Ok::<(), sparse_core::Error>(())
/// ```
pub fn top_k_per_layer<T: Element>(values: &[T], layers: &[(usize, usize)]) -> Result<SparseVec<T>, Error> {
    let lengths = layers.iter().fold(0_u64, |sum, &(length, _)| sum.saturating_add(length as u64));
    if lengths != values.len() as u64 {
        return Err(Error::DimensionMismatch { left: values.len() as u64, right: lengths });
    }
    let mut rest = values;
    let parts = layers.iter().map(|&(length, k)| {
        let layer;
        (layer, rest) = rest.split_at(length);
        top_k(layer, k)
    });
    SparseVec::concat(&parts.collect::<Result<Vec<_>, _>>()?)
}

/// The `k` entries of largest magnitude of each `bucket` neighbouring values, as [`top_k`] selects them; the last bucket
/// may be shorter.
///
/// # Errors
/// [`Error::DimensionTooLarge`].
///
/// # Panics
/// If `bucket` is 0.
///
/// ```
/// let values = [9.0_f32, 8.0, 7.0, 0.1, -0.3];
/// let largest = sparse_core::top_k_per_bucket(&values, 2, 1)?;
/// assert_eq!(largest.indices(), [0, 2, 4]);
/// # Ok::<(), sparse_core::Error>(())
/// ```
#[track_caller]
pub fn top_k_per_bucket<T: Element>(values: &[T], bucket: usize, k: usize) -> Result<SparseVec<T>, Error> {
    assert!(bucket > 0, "a bucket has at least one value");
    let parts = values.chunks(bucket).map(|bucket| top_k(bucket, k));
    SparseVec::concat(&parts.collect::<Result<Vec<_>, _>>()?)
}
