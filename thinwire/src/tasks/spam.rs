//! Mails, spam or not, by logistic regression on their words; or any libsvm file with two classes.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context as _, bail, ensure};
use sparse_core::{Duplicates, SparseVec};
use sparse_sgd::{Optimizer, StepReport};
use transport::{AnyTransport, block_on};

use super::{Batches, Ready, Recipe, Task, Test};
use crate::data::inflate;
use crate::data::libsvm::{self, Rows};
use crate::data::split::Split;

static MAILS: &[u8] = include_bytes!("../../../data/spam/mails.libsvm.gz");

/// What the constant feature, number 0, is in each row; small beside rows of length 1, so that the learning
/// rate suits it as well.
const BIAS: f32 = 0.2;
/// More features than this make a dense vector of over a GiB, which every worker needs several of.
const MAX_FEATURE: u32 = 1 << 28;

/// Rows of length 1, the first feature of each being the constant one.
pub(crate) struct Data {
    rows: Rows,
    /// Whether a row is of the class 1.
    positive: Vec<bool>,
    dim: u64,
    pub(super) split: Split,
}

impl Data {
    pub(super) fn load(file: Option<&Path>) -> anyhow::Result<Self> {
        let Some(path) = file else { return Self::new(libsvm::parse(&inflate(MAILS)?)?) };
        let name = path.display();
        let contents = std::fs::read(path).with_context(|| format!("cannot read {name}"))?;
        let contents = inflate(&contents).with_context(|| format!("cannot decompress {name}"))?;
        let rows = libsvm::parse(&contents).with_context(|| format!("{name} is not a libsvm file"))?;
        Self::new(rows).with_context(|| format!("{name} cannot be used"))
    }

    fn new(mut rows: Rows) -> anyhow::Result<Self> {
        ensure!(!rows.is_empty(), "it has no rows");
        let positive = classes(&rows.labels)?;
        let max = rows.max_feature();
        ensure!(max <= MAX_FEATURE, "it has a feature {max}; this task takes up to {MAX_FEATURE}");
        for row in rows.starts.windows(2) {
            let &[start, end] = row else { continue };
            scale(rows.values.get_mut(start..end).unwrap_or_default());
        }
        let count = u32::try_from(rows.len()).context("it has too many rows")?;
        Ok(Self { dim: u64::from(max) + 1, split: Split::new(count), rows, positive })
    }

    pub(super) fn checksum(&self) -> u64 {
        let features = self.rows.features.iter().map(|feature| feature.to_le_bytes());
        let values = self.rows.values.iter().map(|value| value.to_le_bytes());
        let classes = self.positive.iter().map(|positive| [u8::from(*positive); 4]);
        let words: Vec<[u8; 4]> = features.chain(values).chain(classes).collect();
        super::checksum(words.iter().map(|word| &word[..]))
    }

    fn row(&self, row: u32) -> impl Iterator<Item = (u32, f32)> + '_ {
        std::iter::once((0, BIAS)).chain(self.rows.row(row as usize))
    }

    fn is_positive(&self, row: u32) -> bool {
        self.positive.get(row as usize).copied().unwrap_or(false)
    }
}

/// Which rows are of class 1, the others being of class 0 or -1.
fn classes(labels: &[f64]) -> anyhow::Result<Vec<bool>> {
    let mut distinct = labels.to_vec();
    distinct.sort_by(f64::total_cmp);
    distinct.dedup();
    match distinct[..] {
        [other, 1.0] if other == 0.0 || other == -1.0 => {
            Ok(labels.iter().map(|label| *label == 1.0).collect())
        }
        [only] => bail!("all rows have the label {only}; logistic regression needs two classes"),
        _ => {
            let shown: Vec<_> = distinct.iter().take(5).map(ToString::to_string).collect();
            let more = if distinct.len() > 5 { ", .." } else { "" };
            let list = shown.join(", ");
            bail!("its labels are {list}{more}; logistic regression needs 0 and 1, or -1 and 1")
        }
    }
}

/// Scales a row to length 1; one of zeros stays.
fn scale(values: &mut [f32]) {
    let length = values.iter().map(|value| f64::from(*value).powi(2)).sum::<f64>().sqrt();
    if length > 0.0 {
        values.iter_mut().for_each(|value| *value = (f64::from(*value) / length) as f32);
    }
}

/// The model, a weight a feature, and one rank's rows.
pub(super) struct Spam {
    data: Arc<Data>,
    batches: Batches,
    weights: Vec<f32>,
    gradient: Option<SparseVec<f32>>,
}

impl Spam {
    pub(super) fn new(data: Arc<Data>, batches: Batches) -> Self {
        let weights = vec![0.0; data.dim as usize];
        Self { data, batches, weights, gradient: None }
    }
}

impl Task for Spam {
    fn recipe(&self) -> Recipe {
        // A velocity would be dense.
        Recipe { momentum: 0.0, clip_norm: None, warm_up_epochs: 0, final_rate: 0.1 }
    }

    fn steps_per_epoch(&self) -> usize {
        self.batches.per_epoch()
    }

    fn gradient(&mut self, epoch: u32, step: usize, _: &mut Ready<'_>) -> anyhow::Result<f32> {
        let rows = self.batches.rows(epoch, step);
        let share = 1.0 / rows.len().max(1) as f64;
        let (mut loss, mut pairs) = (0.0, Vec::new());
        for &row in rows {
            let margin = margin(&self.weights, self.data.row(row));
            let positive = self.data.is_positive(row);
            loss += share * log_loss(if positive { margin } else { -margin });
            let error = 1.0 / (1.0 + (-margin).exp()) - if positive { 1.0 } else { 0.0 };
            pairs.extend(self.data.row(row).map(|(i, value)| (i, (share * error * f64::from(value)) as f32)));
        }
        self.gradient = Some(SparseVec::from_unsorted(self.data.dim, pairs, Duplicates::Sum)?);
        Ok(loss as f32)
    }

    fn update(
        &mut self,
        optimizer: &mut Optimizer<AnyTransport>,
        learning_rate: f32,
    ) -> Result<StepReport, sparse_sgd::Error> {
        let gradient = match self.gradient.take() {
            Some(gradient) => gradient,
            None => SparseVec::empty(self.data.dim)?,
        };
        block_on(optimizer.step_sparse("weights", &mut self.weights, &gradient, learning_rate))
    }

    fn parameters(&self) -> Vec<(&str, &[f32])> {
        vec![("weights", &self.weights)]
    }

    fn values_mut(&mut self) -> Vec<&mut [f32]> {
        vec![&mut self.weights]
    }

    fn test(&self) -> anyhow::Result<Test> {
        let test = &self.data.split.test;
        let predict = |row: &u32| u8::from(margin(&self.weights, self.data.row(*row)) > 0.0);
        Ok(Test {
            predicted: test.iter().map(predict).collect(),
            labels: test.iter().map(|row| u8::from(self.data.is_positive(*row))).collect(),
        })
    }
}

fn margin(weights: &[f32], row: impl Iterator<Item = (u32, f32)>) -> f64 {
    let weight = |i: u32| weights.get(i as usize).copied().unwrap_or(0.0);
    row.map(|(i, value)| f64::from(weight(i)) * f64::from(value)).sum()
}

/// ln(1 + e^-margin), without overflow.
fn log_loss(margin: f64) -> f64 {
    (-margin.abs()).exp().ln_1p() + (-margin).max(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn data(file: &str) -> Result<Data, String> {
        Data::new(libsvm::parse(file.as_bytes()).unwrap()).map_err(|error| error.to_string())
    }

    #[test]
    fn the_mails_are_all_there() {
        let data = Data::load(None).unwrap();
        assert_eq!((data.rows.len(), data.dim), (6_046, 73_714));
        assert_eq!(data.positive.iter().filter(|positive| **positive).count(), 1_896);
    }

    #[test]
    fn two_classes_are_needed() {
        assert_eq!(data("1 1:1\n0 1:1\n1").unwrap().positive, [true, false, true]);
        assert_eq!(data("-1 1:1\n1 1:1").unwrap().positive, [false, true]);
        for (file, says) in [
            ("", "it has no rows"),
            ("1 1:1\n1 2:1", "all rows have the label 1"),
            ("0 1:1\n-1 2:1", "its labels are -1, 0; "),
            ("0 1:1\n1 2:1\n2 1:1", "its labels are 0, 1, 2; "),
            ("1\n2\n3\n4\n5\n6.5\n7", "its labels are 1, 2, 3, 4, 5, ..; "),
            ("1 268435457:1\n0", "it has a feature 268435457"),
        ] {
            let error = data(file).err().unwrap();
            assert!(error.contains(says), "{error}");
        }
    }

    #[test]
    fn rows_have_length_one() {
        let data = data("1 1:3 2:4\n0 1:0\n1 3:-7").unwrap();
        assert_eq!(data.rows.values, [0.6, 0.8, 0.0, -1.0]);
    }

    #[test]
    fn the_gradient_is_the_slope_of_the_loss() {
        let data = Arc::new(data("1 1:3 2:4\n0 1:1 3:2\n1 2:1\n0 3:1\n1 1:1").unwrap());
        let rows = data.split.training.clone();
        let mut spam = Spam::new(Arc::clone(&data), Batches::new(rows, 4, 1, 0));
        spam.weights = vec![0.3, -0.5, 0.7, 0.1];
        spam.gradient(0, 0, &mut |_, _| Ok(())).unwrap();
        let gradient = spam.gradient.take().unwrap().to_dense();
        for (i, slope) in gradient.into_iter().enumerate() {
            let mut loss_at = |weight: f32| {
                let before = std::mem::replace(&mut spam.weights[i], weight);
                let loss = spam.gradient(0, 0, &mut |_, _| Ok(())).unwrap();
                spam.weights[i] = before;
                (loss, before)
            };
            let (_, middle) = loss_at(0.0);
            let (h, _) = (0.01, ());
            let difference = (loss_at(middle + h).0 - loss_at(middle - h).0) / (2.0 * h);
            assert!((difference - slope).abs() < 1e-4, "{i}: {difference} is not {slope}");
        }
    }

    #[test]
    fn the_loss_of_a_sure_mistake_is_finite() {
        assert!((log_loss(0.0) - std::f64::consts::LN_2).abs() < 1e-12);
        assert_eq!(log_loss(-1000.0), 1000.0);
        assert_eq!(log_loss(1000.0), 0.0);
    }
}
