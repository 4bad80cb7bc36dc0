use chacha20::ChaCha8Rng;
use rand::SeedableRng as _;
use rand::seq::SliceRandom as _;

/// Seeds the split, so that all runs of all seeds are judged by the same examples.
const SPLIT_SEED: u64 = 0x7468_696e_7769_7265;

/// Row numbers for training and for the test.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Split {
    pub(crate) training: Vec<u32>,
    pub(crate) test: Vec<u32>,
}

impl Split {
    /// A fifth of `rows` rows for the test, chosen by chance but always the same.
    pub(crate) fn new(rows: u32) -> Self {
        let mut training: Vec<u32> = (0..rows).collect();
        training.shuffle(&mut ChaCha8Rng::seed_from_u64(SPLIT_SEED));
        let test = training.split_off(training.len() - training.len() / 5);
        Self { training, test }
    }

    /// The training rows of one of `ranks` ranks: every rank gets the same number, some are left over.
    pub(crate) fn shard(&self, rank: usize, ranks: usize) -> Vec<u32> {
        let len = self.training.len() / ranks;
        self.training.iter().skip(rank).step_by(ranks).take(len).copied().collect()
    }
}

/// The order in which a rank visits its shard: another one in each epoch, the same at every run.
pub(crate) fn shuffle(shard: &mut [u32], seed: u64, epoch: u32, rank: usize) {
    // From a fixed order, so that an epoch does not depend on those before it.
    shard.sort_unstable();
    shard.shuffle(&mut rng(seed, epoch, rank));
}

/// A stream of random numbers for each epoch and rank.
pub(crate) fn rng(seed: u64, epoch: u32, rank: usize) -> ChaCha8Rng {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    rng.set_stream(u64::from(epoch) << 32 | rank as u64);
    rng
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn shards_and_test_are_disjoint_and_equally_long(rows in 0..500_u32, ranks in 1..9_usize) {
            let split = Split::new(rows);
            prop_assert_eq!(split.test.len(), rows as usize / 5);
            let shards: Vec<_> = (0..ranks).map(|rank| split.shard(rank, ranks)).collect();
            prop_assert!(shards.iter().all(|shard| shard.len() == split.training.len() / ranks));
            let mut all = [split.test.clone(), shards.concat()].concat();
            let total = all.len();
            all.sort_unstable();
            all.dedup();
            prop_assert_eq!(all.len(), total);
            prop_assert!(all.iter().all(|row| *row < rows));
        }
    }

    #[test]
    fn an_order_depends_on_seed_epoch_and_rank_alone() {
        let order = |seed, epoch, rank, start: &[u32]| {
            let mut shard = start.to_vec();
            shuffle(&mut shard, seed, epoch, rank);
            shard
        };
        let rows: Vec<u32> = (0..50).collect();
        let backwards: Vec<u32> = rows.iter().rev().copied().collect();
        let first = order(1, 2, 3, &rows);
        assert_eq!(first, order(1, 2, 3, &backwards));
        for other in [order(2, 2, 3, &rows), order(1, 3, 3, &rows), order(1, 2, 0, &rows)] {
            assert_ne!(first, other);
        }
        assert_eq!(order(1, 2, 3, &first), first);
    }
}
