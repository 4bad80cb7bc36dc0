use std::time::{Duration, Instant};

use collectives::Communicator;
use transport::Transport;

use super::Sums;
use crate::model::Model;
use crate::parameter::check_gradient;
use crate::report::Clock;
use crate::update::Update;
use crate::{Config, Error, StepReport, clip};

/// A step whose gradients come layer by layer, so that the sums of the first are on their way while the next are
/// computed. Made by [`Optimizer::begin`](crate::Optimizer::begin).
///
/// Hand over each layer's gradient as soon as it is ready, in any order, another one on each rank if need be; buckets are
/// launched in the order of their numbers, each once its layers and all buckets before it are there. A backward pass
/// yields the last layer first, and so does the order of the buckets.
///
/// The result is that of [`step`](crate::Optimizer::step) with the same configuration, bit for bit. With clipping, whose norm is
/// that of all layers, nothing can be launched before the last layer is there.
///
/// Dropped without an end it changes nothing on this rank; if a bucket was launched, the communicator ends on all ranks.
pub struct LayerwiseStep<'o, T: Transport> {
    sums: Sums<'o, T>,
    config: &'o Config,
    ranks: usize,
    begun: Instant,
    /// Of each layer that is there, the sum of its squares if clipping asks for it.
    squares: Vec<Option<f64>>,
    /// For each bucket, how many of its layers are not there yet.
    missing: Vec<usize>,
}

impl<'o, T: Transport> LayerwiseStep<'o, T> {
    pub(crate) fn new(
        communicator: &'o Communicator<T>,
        config: &'o Config,
        model: &'o mut Model,
        steps: &'o mut u64,
        call: u64,
    ) -> Self {
        let layers = model.layout.shapes().len();
        model.ready.resize(layers, Duration::ZERO);
        let layers_of = |bucket| model.plan.parts(bucket).filter(|(_, range)| !range.is_empty()).count();
        let missing = (0..model.plan.buckets().len()).map(layers_of).collect();
        Self {
            config,
            ranks: communicator.world_size(),
            begun: Instant::now(),
            squares: vec![None; layers],
            missing,
            sums: Sums::new(communicator, config, model, steps, call, Clock::start(communicator)),
        }
    }

    /// Hands over the gradient of a layer: its place among the parameters. The gradient is read at this call.
    ///
    /// Adds it to the residual, selects from it and launches its sum, if it has a bucket of its own; else it is copied until
    /// its bucket is complete.
    ///
    /// # Errors
    /// [`Error::Layer`] for one that does not exist or was handed over before, [`Error::GradientLength`]; the step can go on
    /// after them. [`Error::Vector`] for more than 2^32 entries.
    pub fn ready(&mut self, layer: usize, gradient: &[f32]) -> Result<(), Error> {
        self.sums.clock.resume();
        let at = self.begun.elapsed();
        let refused = |detail: String| Error::Layer { layer, detail };
        let model = self.sums.model();
        let Some((name, len)) = model.layout.shapes().get(layer) else {
            return Err(refused(format!("does not exist: there are {}", model.layout.shapes().len())));
        };
        check_gradient(name, *len, gradient.len())?;
        if self.squares[layer].is_some() {
            return Err(refused(format!("(`{name}`) was handed over before in this step")));
        }
        model.ready[layer] = at;
        let clips = self.config.clip_norm.is_some();
        self.squares[layer] = Some(if clips { clip::sum_of_squares(gradient) } else { 0.0 });
        for bucket in self.sums.plan().buckets_of(layer) {
            let part = &gradient[self.sums.plan().part(bucket, layer)];
            self.missing[bucket] -= 1;
            if part.len() == self.sums.plan().buckets()[bucket].entries.len() && !clips {
                self.sums.fill(bucket, [part], 1.0)?;
                continue;
            }
            self.pack(bucket, layer, part);
            if self.missing[bucket] == 0 && !clips {
                self.sums.fill_packed(bucket, 1.0)?;
            }
        }
        self.sums.clock.selected();
        Ok(())
    }

    /// Waits for all sums, and updates the values: one slice for each parameter, in their order.
    ///
    /// # Errors
    /// [`Error::Layer`] if a layer is missing, [`Error::ParameterCount`] and [`Error::GradientLength`] for other values, and
    /// [`Error::Setting`] for the rate; [`Error::Collective`] as for [`step`](crate::Optimizer::step). After any of them, values,
    /// residual, velocity and step counter are as before the step began.
    pub async fn finish(
        mut self,
        values: &mut [&mut [f32]],
        learning_rate: f32,
    ) -> Result<StepReport, Error> {
        self.sums.clock.resume();
        let update = Update::new(learning_rate, self.ranks)?;
        self.check(values)?;
        if let Some(bound) = self.config.clip_norm {
            let factor = clip::factor_of(self.squares.iter().flatten().copied(), bound, self.ranks);
            for bucket in 0..self.missing.len() {
                self.sums.fill_packed(bucket, factor)?;
            }
        } else if self.missing == [0] && self.sums.plan().buckets()[0].entries.is_empty() {
            // No layer has entries, so none has completed the one bucket.
            self.sums.fill_packed(0, 1.0)?;
        }
        self.sums.finish(values, update).await
    }

    fn pack(&mut self, bucket: usize, layer: usize, part: &[f32]) {
        let model = self.sums.model();
        let offset = model.plan.offset(bucket, layer);
        let packed = &mut model.packed[bucket];
        packed.resize(model.plan.buckets()[bucket].entries.len(), 0.0);
        packed[offset..offset + part.len()].copy_from_slice(part);
    }

    fn check(&mut self, values: &[&mut [f32]]) -> Result<(), Error> {
        let layout = &self.sums.model().layout;
        let shapes = layout.shapes().iter();
        for (layer, (handed, (name, _))) in self.squares.iter().zip(shapes).enumerate() {
            if handed.is_none() {
                return Err(Error::Layer { layer, detail: format!("(`{name}`) has not been handed over") });
            }
        }
        layout.check_values(values)
    }
}

impl<T: Transport> std::fmt::Debug for LayerwiseStep<'_, T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LayerwiseStep").field("missing", &self.missing).finish_non_exhaustive()
    }
}
