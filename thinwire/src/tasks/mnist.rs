//! Handwritten digits, told apart by a perceptron of three layers.

use std::sync::Arc;

use anyhow::{Context as _, ensure};
use candle_core::backprop::GradStore;
use candle_core::{D, Device, Storage, Tensor, Var};
use candle_nn::loss::cross_entropy;
use chacha20::ChaCha8Rng;
use rand::{RngExt as _, SeedableRng as _};
use sparse_sgd::{Optimizer, Parameter, StepReport};
use transport::{AnyTransport, block_on};

use super::{Batches, Ready, Recipe, Task, Test};
use crate::data::split::Split;
use crate::data::{idx, inflate};

static IMAGES: &[u8] = include_bytes!("../../../data/mnist/images.idx3.gz");
static LABELS: &[u8] = include_bytes!("../../../data/mnist/labels.idx1.gz");

const SIDE: usize = 28;
const PIXELS: usize = SIDE * SIDE;
const CLASSES: usize = 10;
/// The widths of the layers, from the pixels to the classes: 535,818 weights.
const WIDTHS: [usize; 4] = [PIXELS, 512, 256, CLASSES];
const NAMES: [[&str; 2]; 3] =
    [["layer1.weight", "layer1.bias"], ["layer2.weight", "layer2.bias"], ["layer3.weight", "layer3.bias"]];
/// Mean and standard deviation of the pixels, as shares of the full grey value.
const MEAN: f32 = 0.1307;
const DEVIATION: f32 = 0.3081;
/// Training images are moved by up to so many pixels in each direction, another way each time: digits
/// stay what they are, and the network learns that.
const MOVED: i32 = 1;
/// How many images of the test set go through the network together.
const TEST_BATCH: usize = 500;

/// The digits.
pub(crate) struct Data {
    images: Vec<u8>,
    labels: Vec<u8>,
    pub(super) split: Split,
}

impl Data {
    pub(super) fn load() -> anyhow::Result<Self> {
        let images = idx::parse(&inflate(IMAGES)?)?;
        let labels = idx::parse(&inflate(LABELS)?)?;
        let (count, size) = (labels.bytes.len(), PIXELS);
        ensure!(images.bytes.len() == count * size, "{count} labels do not fit the images");
        ensure!(labels.bytes.iter().all(|label| usize::from(*label) < CLASSES), "a label is not a digit");
        Ok(Self { split: Split::new(u32::try_from(count)?), images: images.bytes, labels: labels.bytes })
    }

    pub(super) fn checksum(&self) -> u64 {
        super::checksum([&self.images[..], &self.labels[..]])
    }

    /// Pixels and labels of these rows, as tensors; `moved` says by how much to move each image.
    fn batch(&self, rows: &[u32], mut moved: impl FnMut() -> [i32; 2]) -> anyhow::Result<(Tensor, Tensor)> {
        let mut pixels = Vec::with_capacity(rows.len() * PIXELS);
        let mut labels = Vec::with_capacity(rows.len());
        for row in rows.iter().map(|row| *row as usize) {
            let image = self.images.get(row * PIXELS..(row + 1) * PIXELS).context("no such image")?;
            let greys = translated(image, moved());
            pixels.extend(greys.map(|grey| (f32::from(grey) / 255.0 - MEAN) / DEVIATION));
            labels.push(u32::from(*self.labels.get(row).context("no such label")?));
        }
        let pixels = Tensor::from_vec(pixels, (rows.len(), PIXELS), &Device::Cpu)?;
        Ok((pixels, Tensor::from_vec(labels, rows.len(), &Device::Cpu)?))
    }
}

/// The image moved right and down; what comes in from outside is paper.
fn translated(image: &[u8], [right, down]: [i32; 2]) -> impl Iterator<Item = u8> + '_ {
    let side = 0..SIDE as i32;
    let grey = move |x: i32, y: i32| {
        let inside = (0..SIDE as i32).contains(&x) && (0..SIDE as i32).contains(&y);
        inside.then(|| image.get(y as usize * SIDE + x as usize)).flatten().copied().unwrap_or(0)
    };
    side.clone().flat_map(move |y| side.clone().map(move |x| grey(x - right, y - down)))
}

/// The network and one rank's digits.
pub(super) struct Mnist {
    data: Arc<Data>,
    batches: Batches,
    weights: Vec<Weight>,
}

/// A matrix or a bias, flat.
struct Weight {
    name: &'static str,
    shape: Vec<usize>,
    values: Vec<f32>,
    gradient: Vec<f32>,
}

impl Mnist {
    pub(super) fn new(data: Arc<Data>, batches: Batches, seed: u64) -> Self {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let mut weights = Vec::new();
        for (names, widths) in NAMES.iter().zip(WIDTHS.windows(2)) {
            let &[inputs, outputs] = widths else { continue };
            // He initialization: the variance of activations stays the same through ReLU layers.
            let bound = (6.0 / inputs as f32).sqrt();
            let matrix = (0..inputs * outputs).map(|_| rng.random_range(-bound..bound)).collect();
            weights.push(Weight::new(names[0], vec![inputs, outputs], matrix));
            weights.push(Weight::new(names[1], vec![outputs], vec![0.0; outputs]));
        }
        Self { data, batches, weights }
    }

    fn tensors(&self) -> candle_core::Result<Vec<Var>> {
        let tensor = |weight: &Weight| Var::from_slice(&weight.values, weight.shape.as_slice(), &Device::Cpu);
        self.weights.iter().map(tensor).collect()
    }
}

impl Task for Mnist {
    fn recipe(&self) -> Recipe {
        // Where the rate ends low, what sparse methods still hold back at the end matters little.
        Recipe { momentum: 0.9, clip_norm: None, warm_up_epochs: 1, final_rate: 0.02 }
    }

    fn steps_per_epoch(&self) -> usize {
        self.batches.per_epoch()
    }

    /// Each layer's graph is its own, so that its gradients are there before those of the layers below are computed.
    fn gradient(&mut self, epoch: u32, step: usize, ready: &mut Ready<'_>) -> anyhow::Result<f32> {
        let mut rng = self.batches.rng(epoch, step);
        let moved = || [(); 2].map(|()| rng.random_range(-MOVED..=MOVED));
        let (pixels, labels) = self.data.batch(self.batches.rows(epoch, step), moved)?;
        let tensors = self.tensors()?;
        let (mut inputs, mut outputs) = (vec![Var::from_tensor(&pixels)?], Vec::new());
        for (number, weights) in tensors.chunks_exact(2).enumerate() {
            let input = inputs.last().context("a layer has no input")?;
            let output = layer(number, weights, input)?;
            inputs.push(Var::from_tensor(&output.detach())?);
            outputs.push(output);
        }
        let loss = cross_entropy(inputs.last().context("there is no layer")?, &labels)?;
        let mut gradients = loss.backward()?;
        for (number, output) in outputs.iter().enumerate().rev() {
            let slope = inputs.get(number + 1).and_then(|output| gradients.get(output));
            // A sum whose slope in each output is that of the loss.
            gradients = (output * slope.context("an output has no gradient")?)?.sum_all()?.backward()?;
            for at in [2 * number + 1, 2 * number] {
                let (Some(weight), Some(tensor)) = (self.weights.get_mut(at), tensors.get(at)) else {
                    continue;
                };
                copy_gradient(&gradients, tensor, &mut weight.gradient)?;
                ready(at, &weight.gradient)?;
            }
        }
        Ok(loss.to_scalar()?)
    }

    fn update(
        &mut self,
        optimizer: &mut Optimizer<AnyTransport>,
        learning_rate: f32,
    ) -> Result<StepReport, sparse_sgd::Error> {
        let parameter = |w: &'static str, values, gradient| Parameter { name: w, values, gradient };
        let mut parameters: Vec<_> = self
            .weights
            .iter_mut()
            .map(|weight| parameter(weight.name, &mut weight.values[..], &weight.gradient[..]))
            .collect();
        block_on(optimizer.step(&mut parameters, learning_rate))
    }

    fn parameters(&self) -> Vec<(&str, &[f32])> {
        self.weights.iter().map(|weight| (weight.name, &weight.values[..])).collect()
    }

    fn values_mut(&mut self) -> Vec<&mut [f32]> {
        self.weights.iter_mut().map(|weight| &mut weight.values[..]).collect()
    }

    fn test(&self) -> anyhow::Result<Test> {
        let tensors = self.tensors()?;
        let mut test = Test { predicted: Vec::new(), labels: Vec::new() };
        for rows in self.data.split.test.chunks(TEST_BATCH) {
            let (pixels, labels) = self.data.batch(rows, || [0, 0])?;
            let classes = logits(&tensors, &pixels)?.argmax(D::Minus1)?;
            test.predicted.extend(bytes(&classes)?);
            test.labels.extend(bytes(&labels)?);
        }
        Ok(test)
    }
}

impl Weight {
    fn new(name: &'static str, shape: Vec<usize>, values: Vec<f32>) -> Self {
        let gradient = vec![0.0; values.len()];
        Self { name, shape, values, gradient }
    }
}

/// One row of scores for each row of pixels.
fn logits(tensors: &[Var], pixels: &Tensor) -> candle_core::Result<Tensor> {
    tensors
        .chunks_exact(2)
        .enumerate()
        .try_fold(pixels.clone(), |input, (number, weights)| layer(number, weights, &input))
}

/// The outputs of a layer, before what makes them not linear, from those of the layer below.
fn layer(number: usize, weights: &[Var], input: &Tensor) -> candle_core::Result<Tensor> {
    let [matrix, bias] = weights else { candle_core::bail!("a layer is a matrix and a bias") };
    let input = if number == 0 { input.clone() } else { input.relu()? };
    input.matmul(matrix)?.broadcast_add(bias)
}

fn copy_gradient(gradients: &GradStore, tensor: &Var, to: &mut [f32]) -> anyhow::Result<()> {
    let gradient = gradients.get(tensor).context("a weight has no gradient")?.contiguous()?;
    let (storage, layout) = gradient.storage_and_layout();
    let Storage::Cpu(storage) = &*storage else { anyhow::bail!("the gradient is not on the CPU") };
    let (start, end) = layout.contiguous_offsets().context("the gradient is not contiguous")?;
    let values = storage.as_slice::<f32>()?.get(start..end);
    let values = values.filter(|values| values.len() == to.len());
    to.copy_from_slice(values.context("the gradient has another shape than its weight")?);
    Ok(())
}

fn bytes(classes: &Tensor) -> anyhow::Result<Vec<u8>> {
    Ok(classes.to_vec1::<u32>()?.into_iter().map(u8::try_from).collect::<Result<_, _>>()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mnist(batch: usize) -> Mnist {
        let data = Arc::new(Data::load().unwrap());
        let batches = Batches::new(data.split.shard(0, 4), batch, 1, 0);
        Mnist::new(data, batches, 1)
    }

    #[test]
    fn ten_thousand_digits_are_split_and_the_network_is_large_enough() {
        let mnist = mnist(32);
        assert_eq!(mnist.data.labels.len(), 10_000);
        assert_eq!((mnist.data.split.training.len(), mnist.data.split.test.len()), (8_000, 2_000));
        assert_eq!(mnist.steps_per_epoch(), 62);
        let weights: usize = mnist.parameters().iter().map(|(_, values)| values.len()).sum();
        assert_eq!(weights, 535_818);
    }

    #[test]
    fn a_moved_image_leaves_paper_behind() {
        let image: Vec<u8> = (0..PIXELS).map(|i| (i % 251) as u8 + 1).collect();
        let moved: Vec<u8> = translated(&image, [1, -2]).collect();
        assert_eq!(translated(&image, [0, 0]).collect::<Vec<_>>(), image);
        assert_eq!(moved[5 * SIDE + 7], image[7 * SIDE + 6]);
        assert!(moved[26 * SIDE..].iter().all(|grey| *grey == 0));
        assert!(moved.iter().step_by(SIDE).all(|grey| *grey == 0));
    }

    #[test]
    fn the_gradient_is_the_slope_of_the_loss() {
        let mut mnist = mnist(4);
        mnist.gradient(0, 0, &mut |_, _| Ok(())).unwrap();
        // In the direction of the gradient the loss changes by its squared norm.
        let squared: f32 = mnist.weights.iter().flat_map(|w| &w.gradient).map(|g| g * g).sum();
        let gradients: Vec<Vec<f32>> = mnist.weights.iter().map(|w| w.gradient.clone()).collect();
        let h = 1e-3 / squared.sqrt();
        let mut loss_at = |offset: f32| {
            for (weight, gradient) in mnist.weights.iter_mut().zip(&gradients) {
                weight.values.iter_mut().zip(gradient).for_each(|(value, g)| *value += offset * g);
            }
            mnist.gradient(0, 0, &mut |_, _| Ok(())).unwrap()
        };
        let above = loss_at(h);
        let below = loss_at(-2.0 * h);
        let slope = (above - below) / (2.0 * h);
        assert!((slope / squared - 1.0).abs() < 0.02, "{slope} is not {squared}");
    }
}
