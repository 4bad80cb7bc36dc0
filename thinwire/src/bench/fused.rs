//! Steps of error feedback, compared with the additions alone.

use std::hint::black_box;

use chacha20::ChaCha8Rng;
use rand::{RngExt as _, SeedableRng as _};
use sparse_core::{SparseVec, TopK};
use sparse_sgd::Feedback;

use super::kernels::{Inputs, Row};

/// The residual is changed in place: the gradient is added, and the largest entries are taken out.
pub(super) fn fused(inputs: &Inputs) -> anyhow::Result<Row> {
    let k = inputs.k();
    let mut residual = residual(inputs, 1.0);
    let mut plain = residual.clone();
    let (mut selection, mut largest) = (TopK::new(), SparseVec::default());
    let (mut gradients, mut plain_gradients) = (Gradients::new(inputs), Gradients::new(inputs));
    let step = || {
        selection.start(residual.len(), k);
        let gradients = gradients.next();
        let (left, right) = residual.split_at_mut(gradients[0].len());
        for (part, gradient) in [left, right].into_iter().zip(gradients) {
            selection.compute(part, |at, block| add(block, &gradient[at..][..block.len()]));
        }
        Ok(selection.take_into(&mut residual, &mut largest)?)
    };
    let reference = || {
        let [back, front] = plain_gradients.next();
        let (left, right) = plain.split_at_mut(back.len());
        add(left, back);
        add(right, front);
        black_box(&plain);
    };
    inputs.compare("fused", 3 * size_of_val(&inputs.values[..]), None, reference, step)
}

/// As training does it: beside the state that it replaces, so that a step can fail.
pub(super) fn feedback(inputs: &Inputs) -> anyhow::Result<Row> {
    let mut plain = residual(inputs, 1.0);
    let mut gradients = Gradients::new(inputs);
    let reference = || {
        let [back, front] = gradients.next();
        let (left, right) = plain.split_at_mut(back.len());
        add(left, back);
        add(right, front);
        black_box(&plain);
    };
    // The gradient, the residual and the next one.
    let bytes = 3 * size_of_val(&inputs.values[..]);
    inputs.compare("feedback", bytes, None, reference, as_training_does(inputs, 0.0, 1.0)?)
}

/// With momentum correction, and scaled as clipping asks for; its norm is another pass, which is not measured here.
pub(super) fn feedback_momentum(inputs: &Inputs) -> anyhow::Result<Row> {
    const MOMENTUM: f32 = 0.9;
    let mut plain = residual(inputs, 1.0);
    let mut velocity = vec![0.0; plain.len()];
    let mut gradients = Gradients::new(inputs);
    let correct = |residual: &mut [f32], velocity: &mut [f32], gradient: &[f32]| {
        for ((residual, velocity), gradient) in residual.iter_mut().zip(velocity).zip(gradient) {
            *velocity = MOMENTUM * *velocity + gradient;
            *residual += *velocity;
        }
    };
    let reference = || {
        let [back, front] = gradients.next();
        let (left, right) = plain.split_at_mut(back.len());
        let (left_velocity, right_velocity) = velocity.split_at_mut(back.len());
        correct(left, left_velocity, back);
        correct(right, right_velocity, front);
        black_box((&plain, &velocity));
    };
    // The gradient, and twice residual and velocity.
    let bytes = 5 * size_of_val(&inputs.values[..]);
    inputs.compare("feedback_momentum", bytes, None, reference, as_training_does(inputs, MOMENTUM, 0.5)?)
}

/// A step of [`Feedback`], after some that got it going.
fn as_training_does(
    inputs: &Inputs,
    momentum: f32,
    factor: f32,
) -> anyhow::Result<impl FnMut() -> anyhow::Result<()>> {
    const FIRST: usize = 12;
    let (k, mut gradients) = (inputs.k(), Gradients::new(inputs));
    // A gradient adds this much to the residual, at this step and all that follow.
    let residual = residual(inputs, factor / (1.0 - momentum));
    let velocity = vec![0.0; if momentum == 0.0 { 0 } else { residual.len() }];
    let mut feedback = Feedback::with(momentum, false, residual, velocity);
    let mut step = move || {
        let sent = feedback.accumulate(0, gradients.next(), factor, k)?;
        feedback.settle(0, sent, None)?;
        feedback.commit();
        Ok(())
    };
    for _ in 0..FIRST {
        step()?;
    }
    Ok(step)
}

/// Another gradient at each step, which is the same one turned by some places.
struct Gradients<'a> {
    gradient: &'a [f32],
    steps: usize,
}

impl<'a> Gradients<'a> {
    fn new(inputs: &'a Inputs) -> Self {
        Self { gradient: &inputs.values, steps: 0 }
    }

    fn next(&mut self) -> [&'a [f32]; 2] {
        self.steps += 1;
        let (front, back) = self.gradient.split_at(self.steps.wrapping_mul(1_000_003) % self.gradient.len());
        [back, front]
    }
}

/// As after many steps, when a step takes as many entries past the largest residual as are then taken out: residuals are even
/// up to there. `growth` is what they grow by for a gradient of 1.
fn residual(inputs: &Inputs, growth: f32) -> Vec<f32> {
    let gradient = &inputs.values;
    let mean = gradient.iter().map(|g| f64::from(g.abs())).sum::<f64>() / gradient.len() as f64;
    let largest = f64::from(growth) * mean * gradient.len() as f64 / (2 * inputs.k()) as f64;
    let largest = (largest as f32).max(f32::MIN_POSITIVE);
    let mut rng = ChaCha8Rng::seed_from_u64(inputs.args.seed ^ 1);
    gradient.iter().map(|_| rng.random_range(-largest..largest)).collect()
}

#[inline(always)]
fn add(residual: &mut [f32], gradient: &[f32]) {
    residual.iter_mut().zip(gradient).for_each(|(residual, gradient)| *residual += gradient);
}
