use std::fmt;

use bytes::Bytes;
use collectives::Communicator;
use sparse_core::{SparseVec, Stream};
use transport::Transport;

use crate::config::at_step;
use crate::fusion::{Sums, by_time};
use crate::model::Model;
use crate::parameter::{Layout, Parameter, shapes};
use crate::report::Clock;
use crate::update::Update;
use crate::{
    Config, Error, FusionPlan, LayerwiseStep, Limits, Method, OptimizerState, StepReport, clip,
    parameters_hash, replicas,
};

/// Stochastic gradient descent on the average of all ranks' gradients, sent dense or sparse.
///
/// Every rank makes one, with the same [`Config`], and calls the same methods in the same order with
/// the same learning rates; values that start equal then stay the same bits on all ranks.
///
/// The parameters are seen as one vector of N entries, end to end: one k serves all, and each layer gets
/// the share of it that its gradients deserve. Allocates once: N entries of velocity if there is momentum,
/// N of residual, as many again of each to compute in, and at most 4 k to select from ([`Method::Dense`]: the velocity
/// and 2 N).
///
/// # Errors and cancellation
/// If a step fails, or its future is dropped, values, residual, velocity and step counter on this rank are
/// bit for bit as before the call. Other ranks may have completed the step, so to go on after an
/// [`Error::Collective`] means to go back to a checkpoint of all ranks. A rank that refuses a call for its
/// arguments does not tell the others, who wait for it until their deadline or its end.
///
/// NaN and infinities are not stopped: they rank above every number, travel first, and reach the values of
/// all ranks alike.
///
/// See the [crate] for an example.
pub struct Optimizer<T: Transport> {
    communicator: Communicator<T>,
    config: Config,
    steps: u64,
    sparse_steps: u64,
    /// Made by the first step, fixed by the first that succeeds.
    model: Option<Model>,
    dense: DenseBuffers,
}

impl<T: Transport> Optimizer<T> {
    /// An optimizer over the ranks of a communicator. Sends nothing.
    ///
    /// # Errors
    /// [`Error::Setting`].
    pub fn new(communicator: Communicator<T>, config: Config) -> Result<Self, Error> {
        config.check()?;
        let dense = DenseBuffers::default();
        Ok(Self { communicator, config, steps: 0, sparse_steps: 0, model: None, dense })
    }

    /// One step: averages the gradients over the ranks and updates the values.
    ///
    /// [`Method::Dense`] is SGD with momentum on the average g: u = m u + g, value -= rate u. The other
    /// methods add this rank's gradient g to its velocity (u = m u + g) and that to its residual
    /// (v = v + u), send the k largest entries of v, clear v where it was sent (and u, with momentum
    /// masking), add to v what gTop-k gives back, and apply value -= rate sum / P.
    ///
    /// The names, lengths and order of the parameters are fixed by the first step that succeeds. Local
    /// work: one pass over the gradient if clipping is on, one that accumulates and selects, and an update of
    /// the result's entries.
    ///
    /// # Errors
    /// [`Error::GradientLength`], [`Error::ParameterChanged`], [`Error::ParameterCount`],
    /// [`Error::Setting`] for the rate, and [`Error::Vector`] for more than 2^32 entries, before anything
    /// is sent; [`Error::Collective`] if the ranks disagree about the number of entries or the
    /// configuration, a rank is lost or the time is up.
    pub async fn step(
        &mut self,
        parameters: &mut [Parameter<'_>],
        learning_rate: f32,
    ) -> Result<StepReport, Error> {
        let update = Update::new(learning_rate, self.communicator.world_size())?;
        let mut clock = Clock::start(&self.communicator);
        let model = Model::fix(&mut self.model, self.steps > 0, &shapes(parameters)?, &self.config)?;
        let entries = model.layout.len();
        let gradients = || parameters.iter().map(|p| p.gradient);
        let factor = match self.config.clip_norm {
            Some(bound) => clip::factor(gradients(), bound, self.communicator.world_size()),
            None => 1.0,
        };
        if model.plan.buckets().len() > 1 {
            let call = self.steps.wrapping_add(self.sparse_steps);
            let mut sums = Sums::new(&self.communicator, &self.config, model, &mut self.steps, call, clock);
            for bucket in 0..sums.plan().buckets().len() {
                let parts = sums.plan().parts(bucket);
                let gradients = parts.map(|(layer, range)| &parameters[layer].gradient[range]);
                sums.fill(bucket, gradients.collect::<Vec<_>>(), factor)?;
            }
            let mut values: Vec<_> = parameters.iter_mut().map(|p| &mut *p.values).collect();
            return sums.finish(&mut values, update).await;
        }
        let density = self.config.density.density(self.steps);
        let k = self.config.density.selected(self.steps, entries);
        let report = match &self.config.method {
            Method::Dense(algorithm) => {
                self.dense.gather(gradients(), factor);
                clock.selected();
                let DenseBuffers { input, sum } = &mut self.dense;
                self.communicator.allreduce_dense(input, sum, *algorithm).await?;
                clock.communicated();
                let values = parameters.iter_mut().map(|p| &mut *p.values);
                update.apply_with_momentum(values, sum, &mut model.velocity, self.config.momentum);
                clock.report(1.0, entries, entries, entries)
            }
            Method::Sparse(algorithm) => {
                let selected = model.feedback.accumulate(0, gradients(), factor, k)?;
                let algorithm = at_step(algorithm, self.steps.wrapping_add(self.sparse_steps), 0);
                clock.selected();
                let sum = self.communicator.allreduce(&selected, &algorithm).await?;
                clock.communicated();
                let nnz = selected.nnz();
                model.feedback.settle(0, selected, None)?;
                model.feedback.commit();
                update.apply(parameters.iter_mut().map(|p| &mut *p.values), &sum);
                let found = sum.nnz();
                self.communicator.recycle(sum);
                clock.report(density, k, nnz, found)
            }
            Method::Gtopk(algorithm) => {
                let selected = model.feedback.accumulate(0, gradients(), factor, k)?;
                clock.selected();
                let global = self.communicator.gtopk(&selected, k, *algorithm, self.config.put_back).await?;
                clock.communicated();
                let nnz = selected.nnz();
                model.feedback.settle(0, selected, Some(&global.put_back))?;
                self.communicator.recycle(global.put_back);
                model.feedback.commit();
                let sum = Stream::Sparse(global.sum);
                update.apply(parameters.iter_mut().map(|p| &mut *p.values), &sum);
                let found = sum.nnz();
                self.communicator.recycle(sum);
                clock.report(density, k, nnz, found)
            }
        };
        self.steps = self.steps.saturating_add(1);
        Ok(report)
    }

    /// Begins a step whose gradients are handed over layer by layer: of parameters of these names and lengths, which the first
    /// step that succeeds fixes. Sends nothing.
    ///
    /// ```
    /// use sparse_sgd::{Communicator, Config, DensitySchedule, GtopkAlgorithm, Limits, Method, Optimizer};
    ///
    /// let replicas = testkit::run_world(testkit::local_world(2), |transport| async move {
    ///     let method = Method::Gtopk(GtopkAlgorithm::Butterfly);
    ///     let fusion = Some(Limits::bytes(4 * 1000));
    ///     let config = Config { fusion, ..Config::new(method, DensitySchedule::constant(0.01)?) };
    ///     let mut optimizer = Optimizer::new(Communicator::new(transport), config)?;
    ///     let mut layers = [vec![0.0; 5000], vec![0.0; 300], vec![0.0; 20]];
    ///     for _ in 0..3 {
    ///         let mut step = optimizer.begin(&[("conv", 5000), ("dense", 300), ("bias", 20)])?;
    ///         for layer in (0..3).rev() {
    ///             let gradient = vec![1.0; layers[layer].len()]; // The backward pass of this layer.
    ///             step.ready(layer, &gradient)?;
    ///         }
    ///         step.finish(&mut layers.each_mut().map(|layer| &mut layer[..]), 0.1).await?;
    ///     }
    ///     Ok::<_, sparse_sgd::Error>(layers)
    /// });
    /// let replicas = replicas.into_iter().collect::<Result<Vec<_>, _>>()?;
    /// assert!(replicas[0] == replicas[1] && replicas[0][0].contains(&-0.1));
    /// # Ok::<(), sparse_sgd::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::ParameterChanged`], [`Error::ParameterCount`].
    pub fn begin(&mut self, parameters: &[(&str, usize)]) -> Result<LayerwiseStep<'_, T>, Error> {
        let model = Model::fix(&mut self.model, self.steps > 0, parameters, &self.config)?;
        let call = self.steps.wrapping_add(self.sparse_steps);
        Ok(LayerwiseStep::new(&self.communicator, &self.config, model, &mut self.steps, call))
    }

    /// Chooses the buckets by time, for the steps that follow: those with which the last sum is predicted to end first, within
    /// the limits. Returns them.
    ///
    /// When layers are ready is what the last [layerwise step](Self::begin) measured, averaged over the ranks; what a sum takes
    /// is what `collectives::cost` says for the communicator's link, so let it [calibrate](Communicator::calibrate)
    /// before; see [`FusionPlan::fastest`]. All ranks call this alike and get the same buckets. As they depend on timing, another
    /// run may select and round otherwise; [`state`](Self::state) keeps them.
    ///
    /// Costs an allreduce of 8 bytes for each layer.
    ///
    /// # Errors
    /// [`Error::Layer`] if there was no layerwise step; [`Error::Collective`].
    pub async fn fuse_by_time(&mut self, limits: Limits) -> Result<&FusionPlan, Error> {
        let known = |model: &&mut Model| model.ready.len() == model.layout.shapes().len();
        let Some(model) = self.model.as_mut().filter(known) else {
            let detail = "has not been handed over in any step, so when it is ready is not known".to_owned();
            return Err(Error::Layer { layer: 0, detail });
        };
        let ready = by_time::agree(&self.communicator, &model.ready).await?;
        let layers: Vec<_> = model.layout.lens().into_iter().zip(ready).collect();
        let seconds =
            by_time::seconds(&self.config, self.communicator.world_size(), self.communicator.link());
        model.fuse(FusionPlan::fastest(&layers, limits, seconds));
        Ok(&model.plan)
    }

    /// One step on a single parameter whose gradient is sparse by nature, as for an embedding or a linear
    /// model on sparse features: value -= rate sum / P, the sum exact but for rounding.
    ///
    /// No selection, residual, momentum or clipping; only entries whose sum is not zero are touched. With
    /// [`Method::Dense`] the gradient is sent dense and the arithmetic is the same: where both algorithms
    /// add in the same order (`SsarRecursiveDoubling` and dense `RecursiveDoubling` do), the values end as
    /// the same bits. Independent of the parameters of [`step`](Self::step); the name serves errors only.
    ///
    /// # Errors
    /// [`Error::GradientLength`] and [`Error::Setting`] before anything is sent; [`Error::Unsupported`]
    /// with [`Method::Gtopk`], whose sum is not exact; [`Error::Collective`] as for `step`.
    pub async fn step_sparse(
        &mut self,
        name: &str,
        values: &mut [f32],
        gradient: &SparseVec<f32>,
        learning_rate: f32,
    ) -> Result<StepReport, Error> {
        let update = Update::new(learning_rate, self.communicator.world_size())?;
        if gradient.dim() != values.len() as u64 {
            return Err(Error::GradientLength {
                name: name.to_owned(),
                values: values.len() as u64,
                gradient: gradient.dim(),
            });
        }
        let mut clock = Clock::start(&self.communicator);
        let values = std::iter::once(values);
        let nnz_result = match &self.config.method {
            Method::Dense(algorithm) => {
                self.dense.scatter(gradient);
                clock.selected();
                let DenseBuffers { input, sum } = &mut self.dense;
                self.communicator.allreduce_dense(input, sum, *algorithm).await?;
                clock.communicated();
                update.apply_dense(values, sum);
                sum.len()
            }
            Method::Sparse(algorithm) => {
                let algorithm = at_step(algorithm, self.steps.wrapping_add(self.sparse_steps), 0);
                clock.selected();
                let sum = self.communicator.allreduce(gradient, &algorithm).await?;
                clock.communicated();
                update.apply(values, &sum);
                let found = sum.nnz();
                self.communicator.recycle(sum);
                found
            }
            Method::Gtopk(_) => {
                return Err(Error::Unsupported {
                    detail: "a gradient that is sparse by nature is summed exactly, which gTop-k does not do: \
                             use an optimizer with Method::Sparse for it",
                });
            }
        };
        self.sparse_steps = self.sparse_steps.saturating_add(1);
        let nnz = gradient.nnz();
        let density = if nnz == 0 { 0.0 } else { nnz as f64 / gradient.dim() as f64 };
        Ok(clock.report(density, nnz, nnz, nnz_result))
    }

    /// Compares the replicas' names, lengths, order and bits over the network, and returns their hash (see
    /// [`parameters_hash`]). Takes a slice of [`Parameter`] or pairs of name and values.
    ///
    /// Costs an allgather of 8 bytes and one pass over the values.
    ///
    /// # Errors
    /// [`Error::ReplicasDiffer`], the same on all ranks; [`Error::Collective`].
    pub async fn check_replicas<'a, I>(&self, parameters: I) -> Result<u64, Error>
    where
        I: IntoIterator,
        I::Item: Into<(&'a str, &'a [f32])>,
    {
        let hash = parameters_hash(parameters);
        let block = Bytes::copy_from_slice(&hash.to_le_bytes());
        let ranks = replicas::differing(&self.communicator.allgather(block).await?);
        if ranks.is_empty() { Ok(hash) } else { Err(Error::ReplicasDiffer { ranks }) }
    }

    /// A copy of what this rank remembers, for a checkpoint.
    #[must_use]
    pub fn state(&self) -> OptimizerState {
        let (steps, sparse_steps) = (self.steps, self.sparse_steps);
        match &self.model {
            Some(model) if steps > 0 => OptimizerState {
                steps,
                sparse_steps,
                parameters: model.layout.shapes().to_vec(),
                residual: model.feedback.residual().to_vec(),
                velocity: model.velocity().to_vec(),
                buckets: model.chosen_buckets(&self.config),
            },
            _ => OptimizerState { steps, sparse_steps, ..OptimizerState::default() },
        }
    }

    /// Goes on from a saved state, in place of the current one: the next steps are those that would have
    /// followed, bit for bit. The values are the caller's to restore.
    ///
    /// # Errors
    /// [`Error::State`] if the buffers do not fit the parameters or this configuration; nothing changes.
    pub fn load_state(&mut self, state: OptimizerState) -> Result<(), Error> {
        let layout = Layout::new(state.parameters.clone())?;
        state.check(layout.len(), &self.config)?;
        (self.steps, self.sparse_steps) = (state.steps, state.sparse_steps);
        let mut model = Model::with(layout, state.residual, state.velocity, &self.config);
        if !state.buckets.is_empty() {
            model.fuse(FusionPlan::with(&model.layout.lens(), state.buckets.into_iter()));
        }
        self.model = Some(model);
        Ok(())
    }

    /// What this rank has not sent yet, over all parameters end to end. Empty before the first step, and
    /// with [`Method::Dense`].
    #[must_use]
    pub fn residual(&self) -> &[f32] {
        self.model.as_ref().map_or(&[], |model| model.feedback.residual())
    }

    /// Steps done, not counting those on gradients that are sparse by nature.
    #[must_use]
    pub const fn steps(&self) -> u64 {
        self.steps
    }

    /// The configuration.
    #[must_use]
    pub const fn config(&self) -> &Config {
        &self.config
    }

    /// The communicator.
    #[must_use]
    pub const fn communicator(&self) -> &Communicator<T> {
        &self.communicator
    }
}

impl<T: Transport> fmt::Debug for Optimizer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Optimizer")
            .field("communicator", &self.communicator)
            .field("config", &self.config)
            .field("steps", &self.steps)
            .field("sparse_steps", &self.sparse_steps)
            .finish_non_exhaustive()
    }
}

/// What a dense allreduce reads and writes.
#[derive(Debug, Default)]
struct DenseBuffers {
    input: Vec<f32>,
    sum: Vec<f32>,
}

impl DenseBuffers {
    /// The input becomes `factor` times the gradients, end to end.
    fn gather<'a>(&mut self, gradients: impl Iterator<Item = &'a [f32]>, factor: f32) {
        self.input.clear();
        for gradient in gradients {
            self.input.extend(gradient.iter().map(|g| factor * g));
        }
        self.sum.resize(self.input.len(), 0.0);
    }

    /// The input becomes the gradient, dense. Assigned, not added to zero: that would lose the sign of a
    /// zero.
    fn scatter(&mut self, gradient: &SparseVec<f32>) {
        self.input.clear();
        self.input.resize(gradient.dim() as usize, 0.0);
        for (index, value) in gradient.iter() {
            self.input[index as usize] = value;
        }
        self.sum.resize(self.input.len(), 0.0);
    }
}
