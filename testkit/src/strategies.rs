//! Proptest strategies for sparse vectors and for worlds of them.

use std::ops::RangeInclusive;

use proptest::collection::btree_map;
use proptest::prelude::*;
use sparse_core::{Element, SparseVec};

use crate::support::{self, Shape};

/// Numbers of moderate size, whole or not, positive or not, 0 now and then. Sums of thousands of them do
/// not overflow, except for 16-bit floats.
pub fn finite<T: Element>() -> impl Strategy<Value = T> {
    prop_oneof![
        1 => Just(0.0_f32),
        4 => (-8..=8_i8).prop_map(f32::from),
        8 => -1_000.0..1_000.0_f32,
    ]
    .prop_map(T::from_f32)
}

/// As [`finite`], with the values that break things: NaN, infinities, -0.0, the largest and the smallest.
/// For integers, what these are clamped to.
pub fn any_value<T: Element>() -> impl Strategy<Value = T> {
    let special = prop::sample::select(vec![
        f32::NAN,
        f32::INFINITY,
        f32::NEG_INFINITY,
        -0.0,
        f32::MAX,
        f32::MIN,
        f32::MIN_POSITIVE,
        f32::from_bits(1),
    ]);
    prop_oneof![3 => finite(), 1 => special.prop_map(T::from_f32)]
}

/// Sparse vectors of a dimension in `dim`, with up to `max_nnz` entries of [`finite`] values.
///
/// ```
/// use proptest::prelude::*;
/// use testkit::strategies::sparse_vec;
///
/// proptest!(|(vector in sparse_vec::<f32>(0..=100, 20))| {
///     prop_assert!(vector.dim() <= 100 && vector.nnz() <= 20);
/// });
/// ```
pub fn sparse_vec<T: Element>(
    dim: RangeInclusive<u64>,
    max_nnz: usize,
) -> impl Strategy<Value = SparseVec<T>> {
    sparse_vec_of(dim, max_nnz, finite::<T>)
}

/// As [`sparse_vec`], with other values: `sparse_vec_of(0..=9, 5, any_value::<f32>)`.
pub fn sparse_vec_of<T: Element, S: Strategy<Value = T>>(
    dim: RangeInclusive<u64>,
    max_nnz: usize,
    value: impl Fn() -> S,
) -> impl Strategy<Value = SparseVec<T>> {
    dim.prop_flat_map(move |dim| {
        let most = max_nnz.min(usize::try_from(dim).unwrap_or(usize::MAX));
        let index = 0..=u32::try_from(dim.saturating_sub(1)).unwrap_or(u32::MAX);
        btree_map(index, value(), 0..=most).prop_filter_map("a dimension above 2^32", move |entries| {
            let (indices, values) = entries.into_iter().unzip();
            SparseVec::new(dim, indices, values).ok()
        })
    })
}

/// How the supports of a world's ranks lie.
pub fn shape() -> impl Strategy<Value = Shape> {
    prop::sample::select(&Shape::ALL[..])
}

/// Dimensions that a world of `ranks` may stumble over: 0, 1, around the number of ranks, 1000, others
/// up to 200.
pub fn dim(ranks: usize) -> impl Strategy<Value = u64> {
    let ranks = ranks as u64;
    prop_oneof![
        Just(0),
        Just(1),
        Just(ranks.saturating_sub(1)),
        Just(ranks),
        Just(ranks + 1),
        Just(1_000),
        0..=200_u64,
    ]
}

/// Worlds: one vector per rank, of one [`dim`], with supports of one [`shape`], by [`support::world`].
///
/// ```
/// use proptest::prelude::*;
/// use testkit::{oracle, strategies};
///
/// proptest!(|(vectors in strategies::world::<f32>(1..=9))| {
///     prop_assert_eq!(sparse_core::reduce(&vectors)?.to_dense(), oracle::sum(&vectors));
/// });
/// ```
pub fn world<T: Element>(ranks: RangeInclusive<usize>) -> impl Strategy<Value = Vec<SparseVec<T>>> {
    (ranks, shape(), any::<u64>()).prop_flat_map(|(ranks, shape, seed)| {
        dim(ranks).prop_map(move |dim| support::world(shape, ranks, dim, seed))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use sparse_core::DType;

    fn every_vector_is_as_asked<T: Element>() {
        let config = ProptestConfig::with_cases(50);
        proptest!(config, |(vector in sparse_vec_of(0..=1 << 32, 10, any_value::<T>))| {
            prop_assert!(vector.nnz() <= 10);
        });
        let config = ProptestConfig::with_cases(50);
        proptest!(config, |(vectors in world::<T>(0..=9))| {
            prop_assert!(vectors.iter().all(|vector| vector.dim() == vectors[0].dim()));
        });
    }

    #[test]
    fn there_are_vectors_of_every_type() {
        every_vector_is_as_asked::<f32>();
        every_vector_is_as_asked::<f64>();
        every_vector_is_as_asked::<half::f16>();
        every_vector_is_as_asked::<half::bf16>();
        every_vector_is_as_asked::<i32>();
        every_vector_is_as_asked::<i64>();
        assert_eq!(DType::ALL.len(), 6, "a type is missing above");
    }
}
