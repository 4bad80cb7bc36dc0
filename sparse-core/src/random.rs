use std::collections::HashSet;

use crate::error::check_dim;
use crate::{Element, Error, SparseVec};

/// What a random choice depends on, and nothing else: the same choice on every machine.
///
/// Where all ranks are to choose the same positions, give all the same `rank`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Draw {
    /// The run's seed.
    pub seed: u64,
    /// The step, counted over the whole training.
    pub step: u64,
    /// Which of the vectors of a step.
    pub bucket: u64,
    /// The rank that chooses.
    pub rank: u32,
}

/// The entries at `k` positions of a dense vector, each set of positions as likely as every other; all if there are no
/// more. Zeros are taken like other values.
///
/// Multiplied by N / k, the result is unbiased: its mean over all draws is the vector.
///
/// O(k log k), whatever N: Floyd's algorithm (Bentley and Floyd, "A Sample of Brilliance", 1987), then a sort. Numbers
/// are those of SplitMix64 (Steele, Lea and Flood, "Fast Splittable Pseudorandom Number Generators", 2014), brought below
/// a bound without bias (Lemire, "Fast Random Integer Generation in an Interval", 2019).
///
/// # Errors
/// [`Error::DimensionTooLarge`].
///
/// ```
/// use sparse_core::{Draw, random_k};
///
/// let values: Vec<f32> = (0..100).map(|i| i as f32).collect();
/// let draw = Draw { seed: 42, step: 0, bucket: 0, rank: 3 };
/// let some = random_k(&values, 10, draw)?;
/// assert_eq!(some.nnz(), 10);
/// assert_eq!(some, random_k(&values, 10, draw)?);
/// assert_ne!(some, random_k(&values, 10, Draw { step: 1, ..draw })?);
/// # Ok::<(), sparse_core::Error>(())
/// ```
pub fn random_k<T: Element>(values: &[T], k: usize, draw: Draw) -> Result<SparseVec<T>, Error> {
    check_dim(values.len() as u64)?;
    let mut numbers = Numbers::new(draw);
    let k = k.min(values.len());
    let mut chosen = HashSet::with_capacity(k);
    for last in values.len() - k..values.len() {
        // If it is taken already, the last of those that may be chosen is not.
        let position = numbers.below(last as u64 + 1) as usize;
        if !chosen.insert(position) {
            chosen.insert(last);
        }
    }
    let mut positions: Vec<usize> = chosen.into_iter().collect();
    positions.sort_unstable();
    let (indices, chosen) = positions.iter().map(|&at| (at as u32, values[at])).unzip();
    Ok(SparseVec::from_sorted(values.len() as u64, indices, chosen))
}

/// SplitMix64.
struct Numbers(u64);

const GAMMA: u64 = 0x9e37_79b9_7f4a_7c15;

impl Numbers {
    fn new(draw: Draw) -> Self {
        let parts = [draw.seed, draw.step, draw.bucket, draw.rank.into()];
        Self(parts.into_iter().fold(0, |state, part| mix(state ^ part)))
    }

    fn next(&mut self) -> u64 {
        let number = mix(self.0);
        self.0 = self.0.wrapping_add(GAMMA);
        number
    }

    /// Each number below `bound`, which is not 0, as likely as every other.
    fn below(&mut self, bound: u64) -> u64 {
        let uneven = bound.wrapping_neg() % bound;
        loop {
            let wide = u128::from(self.next()) * u128::from(bound);
            if wide as u64 >= uneven {
                return (wide >> 64) as u64;
            }
        }
    }
}

/// The step and the finaliser of SplitMix64.
const fn mix(number: u64) -> u64 {
    let number = number.wrapping_add(GAMMA);
    let number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}
