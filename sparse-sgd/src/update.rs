//! What a step does to the values, once the sum of all ranks' gradients is known. Cannot fail.

use sparse_core::Stream;

use crate::Error;

/// value -= rate * (sum * (1/P)): the same operations in the same order on every rank and every path,
/// since replicas must keep the same bits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Update {
    rate: f32,
    share: f32,
}

impl Update {
    pub(crate) fn new(rate: f32, world_size: usize) -> Result<Self, Error> {
        if !rate.is_finite() {
            return Err(Error::Setting { name: "learning rate", given: rate, allowed: "finite" });
        }
        Ok(Self { rate, share: 1.0 / world_size as f32 })
    }

    /// `values` are slices which, end to end, are as long as `sum`.
    pub(crate) fn apply<'a>(self, values: impl Iterator<Item = &'a mut [f32]>, sum: &Stream<f32>) {
        let sum = match sum {
            Stream::Dense(sum) => return self.apply_dense(values, sum),
            Stream::Sparse(sum) => sum,
        };
        let mut entries = sum.iter().peekable();
        let mut start = 0;
        for values in values {
            let end = start + values.len();
            while let Some((index, sum)) = entries.next_if(|(index, _)| (*index as usize) < end) {
                self.entry(&mut values[index as usize - start], sum);
            }
            start = end;
        }
    }

    /// [`apply`](Self::apply) for a dense sum.
    pub(crate) fn apply_dense<'a>(self, values: impl Iterator<Item = &'a mut [f32]>, sum: &[f32]) {
        let mut rest = sum;
        for values in values {
            let (sum, after) = rest.split_at(values.len());
            rest = after;
            for (value, sum) in values.iter_mut().zip(sum) {
                self.entry(value, *sum);
            }
        }
    }

    /// Classical momentum on the average: u = m u + sum/P, value -= rate u. Without momentum, `velocity`
    /// is empty and u the average.
    pub(crate) fn apply_with_momentum<'a>(
        self,
        values: impl Iterator<Item = &'a mut [f32]>,
        sum: &[f32],
        velocity: &mut [f32],
        momentum: f32,
    ) {
        if velocity.is_empty() {
            return self.apply_dense(values, sum);
        }
        let (mut sums, mut velocities) = (sum, velocity);
        for values in values {
            let (sum, sums_after) = sums.split_at(values.len());
            let (velocity, velocities_after) = velocities.split_at_mut(values.len());
            (sums, velocities) = (sums_after, velocities_after);
            for ((value, sum), u) in values.iter_mut().zip(sum).zip(velocity) {
                *u = momentum * *u + sum * self.share;
                *value -= self.rate * *u;
            }
        }
    }

    /// A sum of zero, of either sign, leaves the value's bits alone, as an absent one does.
    fn entry(self, value: &mut f32, sum: f32) {
        let updated = *value - self.rate * (sum * self.share);
        *value = if sum == 0.0 { *value } else { updated };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ErrorKind;
    use proptest::prelude::*;
    use sparse_core::SparseVec;

    fn number() -> impl Strategy<Value = f32> {
        prop_oneof![Just(0.0), Just(-0.0), -9.0..9.0_f32, Just(f32::NAN)]
    }

    /// All NaN alike: which one a sum of two yields is the compiler's choice.
    fn bits(values: &[f32]) -> Vec<u32> {
        values.iter().map(|v| if v.is_nan() { f32::NAN } else { *v }.to_bits()).collect()
    }

    fn split(values: &mut [f32], cut: usize) -> impl Iterator<Item = &mut [f32]> {
        let (left, right) = values.split_at_mut(cut.min(values.len()));
        [left, &mut [], right].into_iter()
    }

    proptest! {
        #[test]
        fn sparse_and_dense_sums_update_to_the_same_bits(
            entries in prop::collection::vec((number(), prop::option::of(number())), 0..30),
            cut in 0..30_usize, rate in -2.0..2.0_f32, world_size in 1..9_usize,
        ) {
            let update = Update::new(rate, world_size).unwrap();
            let before: Vec<f32> = entries.iter().map(|(value, _)| *value).collect();
            let dense: Vec<f32> = entries.iter().map(|(_, sum)| sum.unwrap_or(0.0)).collect();
            let (indices, sums) = (0..).zip(&entries).filter_map(|(i, (_, sum))| Some((i, (*sum)?))).unzip();
            let sparse = SparseVec::new(entries.len() as u64, indices, sums).unwrap();

            let oracle: Vec<f32> = before.iter().zip(&dense).map(|(value, sum)| {
                if *sum == 0.0 { *value } else { value - rate * (sum * (1.0 / world_size as f32)) }
            }).collect();
            for sum in [Stream::Sparse(sparse), Stream::Dense(dense)] {
                let mut values = before.clone();
                update.apply(split(&mut values, cut), &sum);
                prop_assert_eq!(bits(&values), bits(&oracle));
            }
        }

        #[test]
        fn momentum_is_classical(
            entries in prop::collection::vec((-9.0..9.0_f32, -9.0..9.0_f32, -9.0..9.0_f32), 0..30),
            cut in 0..30_usize, momentum in 0.1..1.0_f32,
        ) {
            let update = Update::new(0.5, 4).unwrap();
            let mut values: Vec<f32> = entries.iter().map(|(value, ..)| *value).collect();
            let sum: Vec<f32> = entries.iter().map(|(_, sum, _)| *sum).collect();
            let mut velocity: Vec<f32> = entries.iter().map(|(.., u)| *u).collect();
            update.apply_with_momentum(split(&mut values, cut), &sum, &mut velocity, momentum);
            for (i, (value, sum, u)) in entries.iter().enumerate() {
                prop_assert_eq!(velocity[i], momentum * u + sum * 0.25);
                prop_assert_eq!(values[i], value - 0.5 * velocity[i]);
            }
        }
    }

    #[test]
    fn a_rate_that_is_not_finite_is_refused() {
        for rate in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            assert_eq!(Update::new(rate, 1).unwrap_err().kind(), ErrorKind::Setting);
        }
    }
}
