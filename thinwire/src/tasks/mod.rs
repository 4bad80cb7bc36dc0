//! What can be trained. A third task is a file here, a variant of `TaskName`, and two arms below.

mod mnist;
mod spam;

use std::path::Path;
use std::sync::Arc;

use chacha20::ChaCha8Rng;
use sparse_sgd::{Optimizer, StepReport};
use transport::AnyTransport;

use crate::cli::TaskName;
use crate::data::split::{self, Split};
use crate::plan::Run;

/// One rank's part of a training: a replica of the model, a shard of the data, the test set.
pub(crate) trait Task {
    /// How it is to be trained.
    fn recipe(&self) -> Recipe;

    /// How many steps an epoch has; the same on all ranks.
    fn steps_per_epoch(&self) -> usize;

    /// Computes the gradient of a step's batch, for [`Task::update`], and returns the batch's mean loss. A gradient that is
    /// not sparse is told layer by layer while it is computed.
    fn gradient(&mut self, epoch: u32, step: usize, ready: &mut Ready<'_>) -> anyhow::Result<f32>;

    /// Hands the gradient to the optimizer, which updates the model's values.
    fn update(
        &mut self,
        optimizer: &mut Optimizer<AnyTransport>,
        learning_rate: f32,
    ) -> Result<StepReport, sparse_sgd::Error>;

    /// Names and values of the model, in a fixed order.
    fn parameters(&self) -> Vec<(&str, &[f32])>;

    /// The values of [`Task::parameters`], to be overwritten.
    fn values_mut(&mut self) -> Vec<&mut [f32]>;

    /// The class that the model gives to each example of the test set, and the right ones.
    fn test(&self) -> anyhow::Result<Test>;
}

/// Gets each parameter's gradient, with its place among the parameters, as soon as it is computed.
pub(crate) type Ready<'a> = dyn FnMut(usize, &[f32]) -> anyhow::Result<()> + 'a;

/// What does not depend on the run.
pub(crate) struct Recipe {
    /// The factor of the last step's velocity.
    pub(crate) momentum: f32,
    /// The bound of the gradient's norm, if there is one.
    pub(crate) clip_norm: Option<f32>,
    /// The epochs over which sparse methods lower their density; 0 where nothing is selected.
    pub(crate) warm_up_epochs: u32,
    /// The learning rate falls linearly, down to this share of it at the end.
    pub(crate) final_rate: f32,
}

/// Predicted and true classes, one an example.
pub(crate) struct Test {
    pub(crate) predicted: Vec<u8>,
    pub(crate) labels: Vec<u8>,
}

impl Test {
    /// The share of right predictions.
    pub(crate) fn accuracy(&self) -> f64 {
        let right = self.predicted.iter().zip(&self.labels).filter(|(a, b)| a == b).count();
        right as f64 / self.labels.len().max(1) as f64
    }
}

/// The data of a task, loaded once a process and shared by its ranks.
#[derive(Clone)]
pub(crate) enum Data {
    Mnist(Arc<mnist::Data>),
    Spam(Arc<spam::Data>),
}

impl Data {
    /// The program's own data, or for spam the user's file.
    pub(crate) fn load(task: TaskName, file: Option<&Path>) -> anyhow::Result<Self> {
        Ok(match task {
            TaskName::Mnist => Self::Mnist(Arc::new(mnist::Data::load()?)),
            TaskName::Spam => Self::Spam(Arc::new(spam::Data::load(file)?)),
        })
    }

    pub(crate) const fn task(&self) -> TaskName {
        match self {
            Self::Mnist(_) => TaskName::Mnist,
            Self::Spam(_) => TaskName::Spam,
        }
    }

    /// How many examples there are to train on.
    pub(crate) fn training_examples(&self) -> usize {
        match self {
            Self::Mnist(data) => data.split.training.len(),
            Self::Spam(data) => data.split.training.len(),
        }
    }

    /// A number that tells other data from these.
    pub(crate) fn checksum(&self) -> u64 {
        match self {
            Self::Mnist(data) => data.checksum(),
            Self::Spam(data) => data.checksum(),
        }
    }

    /// The task as one of `ranks` ranks begins it.
    pub(crate) fn begin(&self, run: &Run, seed: u64, rank: usize, ranks: usize) -> Box<dyn Task> {
        let batches = |split: &Split| Batches::new(split.shard(rank, ranks), run.batch, seed, rank);
        match self {
            Self::Mnist(data) => Box::new(mnist::Mnist::new(Arc::clone(data), batches(&data.split), seed)),
            Self::Spam(data) => Box::new(spam::Spam::new(Arc::clone(data), batches(&data.split))),
        }
    }
}

/// A rank's shard, batch by batch, in another order in each epoch.
pub(crate) struct Batches {
    shard: Vec<u32>,
    batch: usize,
    seed: u64,
    rank: usize,
    shuffled_for: Option<u32>,
}

impl Batches {
    fn new(shard: Vec<u32>, batch: usize, seed: u64, rank: usize) -> Self {
        // A shard smaller than a batch is one batch; larger ones leave a rest that another epoch's order uses.
        let batch = batch.min(shard.len()).max(1);
        Self { shard, batch, seed, rank, shuffled_for: None }
    }

    fn per_epoch(&self) -> usize {
        self.shard.len() / self.batch
    }

    /// Chance for a step of this rank; the same at every run.
    fn rng(&self, epoch: u32, step: usize) -> ChaCha8Rng {
        let mut rng = split::rng(self.seed, epoch, self.rank);
        // Each step has a part of the stream that no batch uses up.
        rng.set_word_pos((step as u128 + 1) << 32);
        rng
    }

    /// The rows of a step's batch.
    fn rows(&mut self, epoch: u32, step: usize) -> &[u32] {
        if self.shuffled_for != Some(epoch) {
            split::shuffle(&mut self.shard, self.seed, epoch, self.rank);
            self.shuffled_for = Some(epoch);
        }
        self.shard.chunks_exact(self.batch).nth(step).unwrap_or_default()
    }
}

/// A small hash of bytes and their number, to compare data between ranks (FNV-1a).
fn checksum<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> u64 {
    parts.into_iter().flatten().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_epoch_visits_each_row_at_most_once() {
        let mut batches = Batches::new((0..10).collect(), 3, 1, 0);
        assert_eq!(batches.per_epoch(), 3);
        let mut seen: Vec<u32> = (0..3).flat_map(|step| batches.rows(5, step).to_vec()).collect();
        seen.sort_unstable();
        seen.dedup();
        assert_eq!(seen.len(), 9);
        assert!(batches.rows(5, 3).is_empty());
    }

    #[test]
    fn a_shard_smaller_than_a_batch_is_one_batch() {
        let mut batches = Batches::new(vec![4, 5], 32, 1, 0);
        assert_eq!((batches.per_epoch(), batches.rows(0, 0).len()), (1, 2));
    }
}
