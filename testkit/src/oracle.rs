//! What collectives must return, computed in the most naive way: dense, in the order of ranks.

use sparse_core::{DType, Element, SparseVec};

/// The sum of all ranks' vectors, dense, added in the order of ranks and rounded once.
///
/// # Panics
/// If the vectors differ in dimension, or a sum of integers overflows.
///
/// ```
/// use sparse_core::SparseVec;
///
/// let a = SparseVec::new(3, vec![0], vec![1.0_f32])?;
/// let b = SparseVec::new(3, vec![0, 2], vec![2.0, 4.0])?;
/// assert_eq!(testkit::oracle::sum(&[a, b]), [3.0, 0.0, 4.0]);
/// # Ok::<(), sparse_core::Error>(())
/// ```
#[must_use]
pub fn sum<T: Element>(vectors: &[SparseVec<T>]) -> Vec<T> {
    columns(vectors, T::ZERO.widen(), |sum, value| value.accumulate(sum)).into_iter().map(narrow).collect()
}

/// The sum in `f64`, to compare rounded results with: see [`rounding_bound`].
///
/// # Panics
/// If the vectors differ in dimension.
#[must_use]
pub fn sum_f64<T: Element>(vectors: &[SparseVec<T>]) -> Vec<f64> {
    columns(vectors, 0.0, |sum, value| sum + value.to_f64())
}

/// How far a sum of these vectors may be from [`sum_f64`] at each index, if it is added in any order
/// and rounded to `T` after each addition: (n - 1) u sum |x|, with u the unit roundoff and n the number
/// of terms; 0 for integers.
///
/// Twice that, so that the errors of higher order and those of the oracle itself are covered.
///
/// # Panics
/// If the vectors differ in dimension.
#[must_use]
pub fn rounding_bound<T: Element>(vectors: &[SparseVec<T>]) -> Vec<f64> {
    let unit_roundoff = match T::DTYPE {
        DType::F32 => 2_f64.powi(-24),
        DType::F64 => 2_f64.powi(-53),
        DType::F16 => 2_f64.powi(-11),
        DType::Bf16 => 2_f64.powi(-8),
        DType::I32 | DType::I64 => 0.0,
    };
    let magnitudes = columns(vectors, 0.0, |sum, value| sum + value.to_f64().abs());
    let terms = columns(vectors, 0_u32, |count, _| count + 1);
    let bound =
        |(magnitude, terms): (f64, u32)| 2.0 * f64::from(terms.max(1) - 1) * unit_roundoff * magnitude;
    magnitudes.into_iter().zip(terms).map(bound).collect()
}

/// Asserts that `result` is the sum of the vectors: exactly for integers, within [`rounding_bound`] for
/// floats; NaN where a term is NaN or infinities meet.
///
/// # Panics
/// If it is not, naming the first index where it differs.
#[track_caller]
pub fn assert_is_sum<T: Element>(result: &[T], vectors: &[SparseVec<T>]) {
    let (exact, bounds) = (sum_f64(vectors), rounding_bound(vectors));
    assert_eq!(result.len(), exact.len(), "the result has another dimension");
    if T::CAN_OVERFLOW {
        let integers = sum(vectors);
        let differs = result.iter().zip(&integers).position(|(got, expected)| got != expected);
        assert!(differs.is_none(), "the sum differs at {differs:?}");
    }
    for (index, (got, (exact, bound))) in result.iter().zip(exact.into_iter().zip(bounds)).enumerate() {
        let got = got.to_f64();
        let right = got == exact || (got - exact).abs() <= bound || got.is_nan() && exact.is_nan();
        assert!(right, "the sum at {index} is {got}, not {exact} within {bound:e}");
    }
}

/// The `k` entries of largest magnitude that are not zero, by index: NaN above all, ties to the lowest
/// index. By sorting everything.
///
/// ```
/// assert_eq!(testkit::oracle::top_k(&[1.0, -3.0, 0.0, 3.0], 2), [(1, -3.0), (3, 3.0)]);
/// ```
#[must_use]
pub fn top_k<T: Element>(values: &[T], k: usize) -> Vec<(u32, T)> {
    let mut entries: Vec<_> =
        (0..).zip(values.iter().copied()).filter(|(_, value)| value.magnitude() > 0).collect();
    entries.sort_by_key(|(_, value)| std::cmp::Reverse(value.magnitude()));
    entries.truncate(k);
    entries.sort_by_key(|(index, _)| *index);
    entries
}

/// The indices at which any vector has an entry, in order.
#[must_use]
pub fn union<T: Element>(vectors: &[SparseVec<T>]) -> Vec<u32> {
    let mut indices: Vec<u32> = vectors.iter().flat_map(SparseVec::indices).copied().collect();
    indices.sort_unstable();
    indices.dedup();
    indices
}

/// Folds each index's entries, in the order of ranks.
fn columns<T: Element, A: Clone>(vectors: &[SparseVec<T>], start: A, fold: impl Fn(A, T) -> A) -> Vec<A> {
    let dim = vectors.first().map_or(0, SparseVec::dim);
    let mut columns = vec![start; dim as usize];
    for vector in vectors {
        assert_eq!(vector.dim(), dim, "the vectors differ in dimension");
        for (index, value) in vector.iter() {
            let column = &mut columns[index as usize];
            *column = fold(column.clone(), value);
        }
    }
    columns
}

fn narrow<T: Element>(sum: T::Acc) -> T {
    let (value, overflowed) = T::narrow(sum);
    assert!(!overflowed, "the sum {sum:?} overflows");
    value
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::support::{Shape, world};

    #[test]
    fn a_sum_added_in_another_order_is_within_the_bound() {
        for shape in Shape::ALL {
            let mut vectors = world::<f32>(shape, 7, 200, 3);
            let forwards = sum(&vectors);
            assert_is_sum(&forwards, &vectors);
            vectors.reverse();
            assert_is_sum(&forwards, &vectors);
        }
    }

    #[test]
    #[should_panic(expected = "the sum at 1 is 2.00")]
    fn a_wrong_sum_is_found() {
        let ones = SparseVec::from_dense(&[1.0_f32, 1.0]).unwrap();
        assert_is_sum(&[2.0, 2.001], &[ones.clone(), ones]);
    }

    #[test]
    #[should_panic(expected = "differs at Some(0)")]
    fn a_wrong_sum_of_large_integers_is_found() {
        let large = SparseVec::from_dense(&[1_i64 << 60]).unwrap();
        assert_is_sum(&[(1_i64 << 61) + 1], &[large.clone(), large]);
    }

    #[test]
    fn nan_is_the_largest_and_zeros_are_never_kept() {
        let values = [0.0, 1.0, f32::NAN, f32::INFINITY, -1.0, -0.0];
        let kept: Vec<u32> = top_k(&values, 3).into_iter().map(|(index, _)| index).collect();
        assert_eq!(kept, [1, 2, 3]);
        assert_eq!(top_k(&values, 9).len(), 4);
    }

    #[test]
    fn the_union_has_every_index_once() {
        let vectors = world::<i32>(Shape::Identical, 3, 100, 1);
        assert_eq!(union(&vectors), vectors[0].indices());
        assert_eq!(union(&world::<i32>(Shape::Full, 2, 5, 1)), [0, 1, 2, 3, 4]);
    }
}
