use chacha20::ChaCha8Rng;
use rand::{RngExt as _, SeedableRng as _};
use sparse_core::SparseVec;
use transport::Rank;

/// Values are whole numbers from 1 to this: sums of up to a million ranks are exact in any order.
///
/// They are positive, so that nothing cancels and a bound of the entries that a global top-k drops is known.
pub(super) const LARGEST: u8 = 15;

/// A rank's vector: `nnz` (at most `dim`) entries at places that are uniformly distributed, independent of
/// other ranks'. The same for the same arguments, on any rank.
pub(super) fn draw(
    dim: u64,
    nnz: usize,
    seed: u64,
    rank: Rank,
) -> Result<SparseVec<f32>, sparse_core::Error> {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    rng.set_stream(rank.0.into());
    let indices = support(&mut rng, dim, nnz);
    let values = indices.iter().map(|_| f32::from(rng.random_range(1..=LARGEST))).collect();
    SparseVec::new(dim, indices, values)
}

/// `nnz` different indices below `dim`, each set of them equally likely, in order.
///
/// Drawn, sorted and freed of duplicates until there are enough. A round at least halves what is missing, on
/// average, if no more than half of the indices are wanted; otherwise those left out are drawn instead.
pub(crate) fn support(rng: &mut ChaCha8Rng, dim: u64, nnz: usize) -> Vec<u32> {
    if nnz as u64 > dim / 2 {
        let left_out = support(rng, dim, (dim - nnz as u64) as usize);
        let mut left_out = left_out.into_iter().peekable();
        // An index below `dim`, which is at most 2^32, fits.
        return (0..dim)
            .map(|index| index as u32)
            .filter(|index| left_out.next_if_eq(index).is_none())
            .collect();
    }
    let mut indices: Vec<u32> = Vec::with_capacity(nnz);
    while indices.len() < nnz {
        let missing = nnz - indices.len();
        indices.extend((0..missing).map(|_| rng.random_range(0..dim) as u32));
        indices.sort_unstable();
        indices.dedup();
    }
    indices
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_vector_has_the_entries_asked_for() {
        for (dim, nnz) in
            [(1, 1), (7, 3), (7, 4), (7, 7), (1000, 10), (1000, 500), (1000, 990), (1 << 32, 20)]
        {
            let vector = draw(dim, nnz, 3, Rank(1)).unwrap();
            assert_eq!((vector.dim(), vector.nnz()), (dim, nnz));
            assert!(vector.values().iter().all(|value| (1.0..=15.0).contains(value)));
        }
    }

    #[test]
    fn seed_and_rank_decide_everything() {
        let drawn = draw(1000, 100, 3, Rank(1));
        assert_eq!(drawn, draw(1000, 100, 3, Rank(1)));
        assert_ne!(drawn, draw(1000, 100, 4, Rank(1)));
        assert_ne!(drawn, draw(1000, 100, 3, Rank(2)));
    }

    #[test]
    fn every_index_is_as_likely_as_every_other() {
        for nnz in [30, 70] {
            let mut counts = [0; 100];
            for rank in 0..4000 {
                let vector = draw(100, nnz, 1, Rank(rank)).unwrap();
                vector.indices().iter().for_each(|index| counts[*index as usize] += 1);
            }
            // Five standard deviations of a binomial distribution.
            let (mean, width) = (40 * nnz, 145);
            assert!(counts.iter().all(|count| mean.abs_diff(*count) < width), "{counts:?}");
        }
    }
}
