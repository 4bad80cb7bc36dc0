use chacha20::ChaCha8Rng;
use chacha20::rand_core::{Rng, SeedableRng};

/// What random rounding depends on: the run, the step of training, and the rank that rounds.
///
/// Give every call another step: the same seed rounds alike, so its errors do not average out.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Seed {
    /// The run's seed, the same on all ranks.
    pub seed: u64,
    /// The step, counted over the whole training.
    pub step: u64,
    /// The rank that rounds.
    pub rank: u32,
}

impl Seed {
    /// The random numbers of a bucket; those of different seeds, steps, ranks and buckets are
    /// independent. The same on every machine.
    pub fn numbers(self, bucket: u64) -> impl Iterator<Item = u32> {
        // The end of the key is a name for this use, so that no other use of ChaCha meets it.
        let mut key = *b"....................thinwire/qnt";
        key[..8].copy_from_slice(&self.seed.to_le_bytes());
        key[8..16].copy_from_slice(&self.step.to_le_bytes());
        key[16..20].copy_from_slice(&self.rank.to_le_bytes());
        let mut generator = ChaCha8Rng::from_seed(key);
        generator.set_stream(bucket);
        std::iter::repeat_with(move || generator.next_u32())
    }
}
