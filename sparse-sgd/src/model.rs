use std::time::Duration;

use crate::feedback::Feedback;
use crate::parameter::Layout;
use crate::{Config, Error, FusionPlan, Limits, Method, OptimizerState};

/// The parameters' layout and what is remembered about them.
#[derive(Debug)]
pub(crate) struct Model {
    pub(crate) layout: Layout,
    pub(crate) plan: FusionPlan,
    /// Empty for a dense method.
    pub(crate) feedback: Feedback,
    /// Of the averaged gradient: empty but for a dense method with momentum.
    pub(crate) velocity: Vec<f32>,
    /// Memory for each bucket's gradients, used where they are copied before they are summed or selected from.
    pub(crate) packed: Vec<Vec<f32>>,
    /// When each layer's gradient was ready in the last step that got them one by one, from its beginning.
    pub(crate) ready: Vec<Duration>,
}

impl Model {
    /// The model of parameters of these names and lengths: the one in the slot, or a new one there if it is not `fixed` yet.
    pub(crate) fn fix<'m>(
        slot: &'m mut Option<Self>,
        fixed: bool,
        shapes: &[(&str, usize)],
        config: &Config,
    ) -> Result<&'m mut Self, Error> {
        if let Some(model) = slot.as_ref() {
            match model.layout.check(shapes) {
                Err(error) if fixed => return Err(error),
                Err(_) => *slot = None,
                Ok(()) => {}
            }
        }
        match slot {
            Some(model) => Ok(model),
            None => Ok(slot.insert(Self::new(Layout::of(shapes)?, config))),
        }
    }

    fn new(layout: Layout, config: &Config) -> Self {
        let (residual, velocity) = OptimizerState::lengths(layout.len(), config);
        Self::with(layout, vec![0.0; residual], vec![0.0; velocity], config)
    }

    /// With buffers as long as [`OptimizerState::lengths`] says.
    pub(crate) fn with(layout: Layout, residual: Vec<f32>, velocity: Vec<f32>, config: &Config) -> Self {
        let (local, averaged) = match config.method {
            Method::Dense(_) => (Vec::new(), velocity),
            _ => (velocity, Vec::new()),
        };
        let feedback = Feedback::with(config.momentum, config.momentum_masking, residual, local);
        let plan = Self::configured(&layout, config);
        let mut model = Self {
            layout,
            plan: plan.clone(),
            feedback,
            velocity: averaged,
            packed: Vec::new(),
            ready: Vec::new(),
        };
        model.fuse(plan);
        model
    }

    fn configured(layout: &Layout, config: &Config) -> FusionPlan {
        FusionPlan::new(&layout.lens(), config.fusion.unwrap_or(Limits::bytes(usize::MAX)))
    }

    /// The lengths of the buckets, if they are not those of the configuration.
    pub(crate) fn chosen_buckets(&self, config: &Config) -> Vec<usize> {
        if self.plan == Self::configured(&self.layout, config) {
            return Vec::new();
        }
        self.plan.buckets().iter().map(|bucket| bucket.entries.len()).collect()
    }

    /// Sums by these buckets from now on.
    pub(crate) fn fuse(&mut self, plan: FusionPlan) {
        self.feedback.part(plan.buckets().iter().map(|bucket| bucket.entries.clone()));
        self.packed = vec![Vec::new(); plan.buckets().len()];
        self.plan = plan;
    }

    /// That of the method in use.
    pub(crate) fn velocity(&self) -> &[f32] {
        if self.velocity.is_empty() { self.feedback.velocity() } else { &self.velocity }
    }
}
