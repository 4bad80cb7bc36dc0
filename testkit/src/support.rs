//! Worlds of sparse vectors, one vector per rank, for tables of cases: the same for the same arguments.

use chacha20::ChaCha8Rng;
use rand::{RngExt, SeedableRng};
use sparse_core::{Element, SparseVec};

/// How the supports of the ranks' vectors lie.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Shape {
    /// No rank has an entry.
    Empty,
    /// Every second rank, from 0 on, has no entry; the others are as in `Random`.
    SomeEmpty,
    /// Each rank has about half as many entries as the one before, crowded at the low indices.
    Skewed,
    /// All ranks have entries at the same indices, with different values.
    Identical,
    /// No index has an entry on two ranks.
    Disjoint,
    /// Every rank has an entry at every index.
    Full,
    /// Each rank has an entry at a tenth of the indices or so.
    Random,
}

impl Shape {
    /// All shapes.
    pub const ALL: [Self; 7] = [
        Self::Empty,
        Self::SomeEmpty,
        Self::Skewed,
        Self::Identical,
        Self::Disjoint,
        Self::Full,
        Self::Random,
    ];
}

/// One vector per rank, of `dim` and of a shape. The values are not zero and at most 100 in magnitude;
/// floats use all their bits.
///
/// Costs O(ranks x dim) time.
///
/// # Panics
/// If `dim` exceeds 2^32.
///
/// ```
/// use testkit::support::{Shape, world};
///
/// let vectors = world::<f32>(Shape::Disjoint, 3, 1_000, 42);
/// assert_eq!(vectors.len(), 3);
/// assert!(vectors[0].iter().all(|(index, _)| vectors[1].get(index).is_none()));
/// assert_eq!(vectors, world(Shape::Disjoint, 3, 1_000, 42));
/// ```
#[must_use]
pub fn world<T: Element>(shape: Shape, ranks: usize, dim: u64, seed: u64) -> Vec<SparseVec<T>> {
    (0..ranks).map(|rank| vector(shape, rank, ranks, dim, seed)).collect()
}

#[allow(clippy::expect_used, reason = "documented, and only tests come here")]
fn vector<T: Element>(shape: Shape, rank: usize, ranks: usize, dim: u64, seed: u64) -> SparseVec<T> {
    let [mut dice, mut of_all] = [(); 2].map(|()| ChaCha8Rng::seed_from_u64(seed));
    dice.set_stream(rank as u64 + 1);
    let mut has_entry = |index: u64| match shape {
        Shape::Empty => false,
        Shape::SomeEmpty => rank % 2 == 1 && dice.random_ratio(1, 10),
        Shape::Skewed => {
            let crowd = 1.0 - index as f64 / dim as f64;
            dice.random_bool(crowd * crowd * 0.8_f64.min(0.5_f64.powi(rank as i32 % 64)))
        }
        Shape::Identical => of_all.random_ratio(1, 8),
        Shape::Disjoint => index % ranks as u64 == rank as u64 && dice.random_ratio(3, 4),
        Shape::Full => true,
        Shape::Random => dice.random_ratio(1, 10),
    };
    let indices: Vec<u32> = (0..dim).filter(|index| has_entry(*index)).map(|index| index as u32).collect();
    let values = indices.iter().map(|_| value(&mut dice)).collect();
    SparseVec::new(dim, indices, values).expect("a dimension is at most 2^32")
}

/// A value that is not zero, whatever it is rounded to.
fn value<T: Element>(dice: &mut ChaCha8Rng) -> T {
    let magnitude = dice.random_range(1.0..100.0_f32);
    T::from_f32(if dice.random() { magnitude } else { -magnitude })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_shape_is_what_it_says() {
        let [empty, some, skewed, identical, disjoint, full, random] =
            Shape::ALL.map(|shape| world::<i32>(shape, 4, 1_000, 1));
        let nnz = |world: &[SparseVec<i32>]| world.iter().map(SparseVec::nnz).collect::<Vec<_>>();
        assert_eq!(nnz(&empty), [0; 4]);
        assert_eq!(nnz(&full), [1_000; 4]);
        assert!(matches!(nnz(&some)[..], [0, 50..=200, 0, 50..=200]), "{:?}", nnz(&some));
        assert!(nnz(&skewed).is_sorted_by(|a, b| a > b), "{:?}", nnz(&skewed));
        assert!(skewed[0].indices().partition_point(|index| *index < 500) > skewed[0].nnz() * 3 / 4);
        assert!(identical.iter().all(|vector| vector.indices() == identical[0].indices()));
        assert_ne!(identical[0].values(), identical[1].values());
        let mut indices: Vec<_> = disjoint.iter().flat_map(SparseVec::indices).collect();
        indices.sort_unstable();
        assert!(indices.is_sorted_by(|a, b| a < b) && indices.len() > 600);
        assert!(nnz(&random).iter().all(|nnz| (50..200).contains(nnz)));
        assert_ne!(random[0], random[1]);
    }

    #[test]
    fn every_shape_exists_in_every_dimension() {
        for shape in Shape::ALL {
            for (ranks, dim) in [(1, 0), (1, 1), (3, 0), (3, 1), (3, 2), (9, 4)] {
                let vectors = world::<f32>(shape, ranks, dim, 7);
                assert_eq!(vectors.len(), ranks);
                assert!(vectors.iter().all(|vector| vector.dim() == dim && !vector.values().contains(&0.0)));
            }
        }
    }
}
