use collectives::{Communicator, GlobalTopk, Handle};
use sparse_core::{SparseVec, Stream};
use transport::Transport;

use super::FusionPlan;
use crate::config::at_step;
use crate::model::Model;
use crate::report::Clock;
use crate::update::Update;
use crate::{Config, Error, Method, StepReport};

/// The sums of one step's buckets: filled in any order, launched in that of their numbers, and applied together once all
/// have succeeded.
///
/// Dropped in between, it ends the communicator on all ranks, as any collective does, if others may wait for what was not
/// launched.
pub(crate) struct Sums<'o, T: Transport> {
    communicator: &'o Communicator<T>,
    config: &'o Config,
    model: &'o mut Model,
    steps: &'o mut u64,
    /// The number of this call, for what rounds by chance.
    call: u64,
    pub(super) clock: Clock<'o, T>,
    /// What a bucket sums, until it is launched.
    filled: Vec<Option<Filled>>,
    launched: Vec<Launched>,
    /// Buckets launched so far.
    next: usize,
    ended: bool,
}

enum Filled {
    Dense(Vec<f32>),
    Selected(SparseVec<f32>),
}

/// In flight, with what was selected.
enum Launched {
    Dense(Handle<Vec<f32>>),
    Sparse(SparseVec<f32>, Handle<Stream<f32>>),
    Gtopk(SparseVec<f32>, Handle<GlobalTopk<f32>>),
}

impl<'o, T: Transport> Sums<'o, T> {
    pub(crate) fn new(
        communicator: &'o Communicator<T>,
        config: &'o Config,
        model: &'o mut Model,
        steps: &'o mut u64,
        call: u64,
        clock: Clock<'o, T>,
    ) -> Self {
        let filled = model.plan.buckets().iter().map(|_| None).collect();
        let launched = Vec::with_capacity(model.plan.buckets().len());
        Self { communicator, config, model, steps, call, clock, filled, launched, next: 0, ended: false }
    }

    pub(crate) fn plan(&self) -> &FusionPlan {
        &self.model.plan
    }

    pub(super) fn model(&mut self) -> &mut Model {
        self.model
    }

    /// Takes `factor` times a bucket's gradients, end to end, and launches what can be.
    pub(crate) fn fill<'a>(
        &mut self,
        bucket: usize,
        gradients: impl IntoIterator<Item = &'a [f32]>,
        factor: f32,
    ) -> Result<(), Error> {
        let filled = if let Method::Dense(_) = self.config.method {
            let mut packed = std::mem::take(&mut self.model.packed[bucket]);
            packed.clear();
            gradients.into_iter().for_each(|gradient| packed.extend(gradient.iter().map(|g| factor * g)));
            Filled::Dense(packed)
        } else {
            let k = self.k(bucket);
            Filled::Selected(self.model.feedback.accumulate(bucket, gradients, factor, k)?)
        };
        self.filled[bucket] = Some(filled);
        self.launch();
        Ok(())
    }

    /// [`fill`](Self::fill) with the gradients that were packed for this bucket.
    pub(super) fn fill_packed(&mut self, bucket: usize, factor: f32) -> Result<(), Error> {
        let mut packed = std::mem::take(&mut self.model.packed[bucket]);
        if let Method::Dense(_) = self.config.method {
            packed.iter_mut().for_each(|g| *g *= factor);
            self.filled[bucket] = Some(Filled::Dense(packed));
            self.launch();
            return Ok(());
        }
        let filled = self.fill(bucket, [&packed[..]], factor);
        self.model.packed[bucket] = packed;
        filled
    }

    /// Waits for all sums, which have to be filled; then updates state and values.
    pub(crate) async fn finish(
        mut self,
        values: &mut [&mut [f32]],
        update: Update,
    ) -> Result<StepReport, Error> {
        self.clock.selected();
        let mut sums = Vec::with_capacity(self.launched.len());
        for launched in std::mem::take(&mut self.launched) {
            sums.push(match launched {
                Launched::Dense(sum) => (None, None, Stream::Dense(sum.await?)),
                Launched::Sparse(sent, sum) => (Some(sent), None, sum.await?),
                Launched::Gtopk(sent, global) => {
                    let global = global.await?;
                    (Some(sent), Some(global.put_back), Stream::Sparse(global.sum))
                }
            });
        }
        self.ended = true;
        self.clock.communicated();
        let (mut k, mut selected, mut result) = (0, 0, 0);
        let mut settled = Vec::with_capacity(sums.len());
        for (bucket, (sent, put_back, sum)) in sums.into_iter().enumerate() {
            k += self.k(bucket);
            selected += sent.as_ref().map_or(sum.nnz(), SparseVec::nnz);
            result += sum.nnz();
            if let Some(sent) = sent {
                self.model.feedback.settle(bucket, sent, put_back.as_ref())?;
            }
            if let Some(put_back) = put_back {
                self.communicator.recycle(put_back);
            }
            settled.push(sum);
        }
        // From here on nothing can fail.
        self.model.feedback.commit();
        for (bucket, sum) in settled.into_iter().enumerate() {
            self.apply(bucket, sum, values, update);
        }
        *self.steps = self.steps.saturating_add(1);
        let density = match self.config.method {
            Method::Dense(_) => 1.0,
            _ => self.config.density.density(self.steps.saturating_sub(1)),
        };
        Ok(self.clock.report(density, k, selected, result))
    }

    fn apply(&mut self, bucket: usize, sum: Stream<f32>, values: &mut [&mut [f32]], update: Update) {
        let plan = &self.model.plan;
        let of_bucket = &plan.buckets()[bucket];
        let parts = plan.parts(bucket).zip(&mut values[of_bucket.layers.clone()]);
        let values = parts.map(|((_, range), values)| &mut values[range]);
        match (sum, &self.config.method) {
            (Stream::Dense(sum), Method::Dense(_)) => {
                let velocity = self.model.velocity.get_mut(of_bucket.entries.clone()).unwrap_or_default();
                update.apply_with_momentum(values, &sum, velocity, self.config.momentum);
                // Memory for the next step.
                self.model.packed[bucket] = sum;
            }
            (sum, _) => {
                update.apply(values, &sum);
                self.communicator.recycle(sum);
            }
        }
    }

    /// Launches the buckets that are filled, as long as none before them is missing.
    fn launch(&mut self) {
        while let Some(filled) = self.filled.get_mut(self.next).and_then(Option::take) {
            let (communicator, k) = (self.communicator, self.k(self.next));
            let launched = match (filled, &self.config.method) {
                (Filled::Dense(gradient), Method::Dense(algorithm)) => {
                    Launched::Dense(communicator.start_allreduce_dense(gradient, *algorithm))
                }
                (Filled::Selected(sent), Method::Gtopk(algorithm)) => {
                    let global = communicator.start_gtopk(sent.clone(), k, *algorithm, self.config.put_back);
                    Launched::Gtopk(sent, global)
                }
                (Filled::Selected(sent), Method::Sparse(algorithm)) => {
                    let algorithm = at_step(algorithm, self.call, self.next);
                    let sum = communicator.start_allreduce(sent.clone(), algorithm);
                    Launched::Sparse(sent, sum)
                }
                // A bucket is filled by the method that it is launched by.
                _ => return,
            };
            self.launched.push(launched);
            self.next += 1;
        }
        // Where nobody else does, this moves on all that are in flight.
        if let Some(launched) = self.launched.last() {
            launched.test();
        }
    }

    /// How many entries of a bucket are wanted.
    fn k(&self, bucket: usize) -> usize {
        let entries = self.model.plan.buckets()[bucket].entries.len();
        match self.config.method {
            Method::Dense(_) => entries,
            _ => self.config.density.selected(*self.steps, entries),
        }
    }
}

impl Launched {
    fn test(&self) {
        let _ended = match self {
            Self::Dense(sum) => sum.test(),
            Self::Sparse(_, sum) => sum.test(),
            Self::Gtopk(_, global) => global.test(),
        };
    }
}

impl<T: Transport> Drop for Sums<'_, T> {
    fn drop(&mut self) {
        if self.next > 0 && !self.ended {
            // Like any collective that is not driven to its end.
            drop(self.communicator.barrier());
        }
    }
}
