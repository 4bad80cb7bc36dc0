//! Local gradient clipping: each rank clips its own gradient, before it enters the residual.
//!
//! Clipping the sum would come too late, since what is not selected never meets it. Deep Gradient
//! Compression therefore scales the bound by 1/sqrt(P).

/// Enough independent sums to hide the latency of an addition.
const LANES: usize = 8;

/// The factor that brings the gradient's Euclidean norm down to `bound / sqrt(world_size)`; 1 if the
/// norm is below that already.
///
/// Also 1 if the norm is NaN or infinite: a factor of 0 or NaN would hide where the gradient broke.
/// One pass over the slices.
pub(crate) fn factor<'a>(gradients: impl Iterator<Item = &'a [f32]>, bound: f32, world_size: usize) -> f32 {
    factor_of(gradients.map(sum_of_squares), bound, world_size)
}

/// [`factor`], from the [`sum_of_squares`] of each of the slices.
pub(crate) fn factor_of(squares: impl Iterator<Item = f64>, bound: f32, world_size: usize) -> f32 {
    let norm = squares.sum::<f64>().sqrt();
    let bound = f64::from(bound) / (world_size as f64).sqrt();
    // Also false for NaN.
    if norm.is_finite() && norm > bound { (bound / norm) as f32 } else { 1.0 }
}

/// The sum of squares in f64, where no finite f32 overflows, in an order fixed by position.
pub(crate) fn sum_of_squares(values: &[f32]) -> f64 {
    let mut lanes = [0.0_f64; LANES];
    let (blocks, rest) = values.as_chunks::<LANES>();
    for block in blocks {
        for (lane, &value) in lanes.iter_mut().zip(block) {
            *lane += f64::from(value) * f64::from(value);
        }
    }
    for (lane, &value) in lanes.iter_mut().zip(rest) {
        *lane += f64::from(value) * f64::from(value);
    }
    lanes.iter().sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn norm(gradients: &[Vec<f32>]) -> f64 {
        gradients.iter().flatten().fold(0.0, |sum, &g| sum + f64::from(g).powi(2)).sqrt()
    }

    proptest! {
        #[test]
        fn factor_is_the_bound_over_the_norm_and_never_above_one(
            gradients in prop::collection::vec(prop::collection::vec(-1e3..1e3_f32, 0..40), 0..4),
            bound in 1e-3..1e4_f32,
            world_size in 1..100_usize,
        ) {
            let given = f64::from(factor(gradients.iter().map(Vec::as_slice), bound, world_size));
            let oracle = (f64::from(bound) / (world_size as f64).sqrt() / norm(&gradients)).min(1.0);
            prop_assert!((given - oracle).abs() <= 1e-6 * oracle);
        }

        #[test]
        fn a_clipped_gradient_has_at_most_the_bound_for_its_norm(
            gradient in prop::collection::vec(-1e3..1e3_f32, 1..40), bound in 1e-3..10.0_f32
        ) {
            let factor = factor([gradient.as_slice()].into_iter(), bound, 4);
            let clipped = vec![gradient.iter().map(|g| g * factor).collect()];
            prop_assert!(norm(&clipped) <= f64::from(bound) / 2.0 * (1.0 + 1e-6));
        }
    }

    #[test]
    fn the_bound_shrinks_with_the_root_of_the_world() {
        let gradient = [3.0, 4.0];
        let of = |bound, world_size| factor([&gradient[..1], &gradient[1..]].into_iter(), bound, world_size);
        assert_eq!([of(5.0, 1), of(5.0, 4), of(5.0, 16), of(20.0, 16)], [1.0, 0.5, 0.25, 1.0]);
    }

    #[test]
    fn the_largest_values_do_not_overflow() {
        let factor = factor([&[f32::MAX; 4][..]].into_iter(), 1.0, 1);
        assert!(factor > 0.0 && factor < 1e-38);
    }

    #[test]
    fn a_gradient_without_a_finite_norm_is_left_alone() {
        for broken in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            assert_eq!(factor([&[1e9, broken][..]].into_iter(), 1.0, 2), 1.0);
        }
        assert_eq!(factor([&[0.0; 9][..]].into_iter(), 1.0, 2), 1.0);
        assert_eq!(factor(std::iter::empty(), 1.0, 2), 1.0);
    }
}
