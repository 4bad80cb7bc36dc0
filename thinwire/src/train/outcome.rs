use serde::Serialize;

/// What came of one run: an element of the JSON file, and a line of the table.
///
/// Bytes are those handed to the transport by the training steps, headers included. Times are means over
/// the ranks, of all steps.
#[derive(Serialize, Clone, Debug)]
pub(crate) struct Outcome {
    pub(crate) task: &'static str,
    pub(crate) algorithm: &'static str,
    /// The share of the entries that a worker sends: 1 for dense algorithms.
    pub(crate) density: f64,
    pub(crate) workers: usize,
    /// On the test set; only rank 0 knows it.
    pub(crate) accuracy: Option<f64>,
    /// What a worker sends at a step, on average after the density warm-up: the largest of the ranks'.
    pub(crate) bytes_per_worker_step: f64,
    /// What a worker sent at all steps: the largest of the ranks'.
    pub(crate) bytes_per_worker: f64,
    /// From the first step to the last check of the replicas.
    pub(crate) wall_s: f64,
    pub(crate) compute_s: f64,
    pub(crate) select_s: f64,
    pub(crate) communicate_s: f64,
    pub(crate) update_s: f64,
    /// Of the wall time, over the first dense run of the same task.
    pub(crate) speedup_over_dense: Option<f64>,
    pub(crate) epochs: u32,
    pub(crate) steps: usize,
    /// The mean training loss of the last epoch.
    pub(crate) loss: f64,
    /// The same on all ranks; equal for runs that end with the same parameters, bit for bit.
    pub(crate) parameters_hash: String,
    /// Equal for runs that predict the same for each example of the test set.
    pub(crate) predictions_hash: Option<String>,
    #[serde(skip)]
    pub(crate) is_dense: bool,
    #[serde(skip)]
    pub(crate) curve: Curve,
}

/// Loss and traffic after each step.
#[derive(Clone, Default, Debug)]
pub(crate) struct Curve {
    /// Means over the ranks.
    pub(crate) losses: Vec<f64>,
    /// What a worker has sent so far, on average over the ranks.
    pub(crate) bytes: Vec<f64>,
}

impl Curve {
    /// From the losses and the bytes of each rank's steps.
    pub(crate) fn new<'a>(ranks: impl Iterator<Item = (&'a [f32], &'a [u64])>) -> Self {
        let mut curve = Self::default();
        let mut count = 0.0;
        for (losses, bytes) in ranks {
            count += 1.0;
            curve.losses.resize(losses.len(), 0.0);
            curve.bytes.resize(losses.len(), 0.0);
            curve.losses.iter_mut().zip(losses).for_each(|(sum, loss)| *sum += f64::from(*loss));
            curve.bytes.iter_mut().zip(bytes).for_each(|(sum, bytes)| *sum += *bytes as f64);
        }
        let mut sent = 0.0;
        for (loss, bytes) in curve.losses.iter_mut().zip(&mut curve.bytes) {
            *loss /= count;
            sent += *bytes / count;
            *bytes = sent;
        }
        curve
    }

    /// The mean loss of the last `steps` steps.
    pub(crate) fn final_loss(&self, steps: usize) -> f64 {
        let last = self.losses.get(self.losses.len().saturating_sub(steps)..).unwrap_or_default();
        last.iter().sum::<f64>() / last.len().max(1) as f64
    }
}

/// Fills in how much faster each run was than the first dense run of its task.
pub(crate) fn compare_with_dense(outcomes: &mut [Outcome]) {
    let dense: Vec<(&str, f64)> =
        outcomes.iter().filter(|o| o.is_dense).map(|o| (o.task, o.wall_s)).collect();
    for outcome in outcomes {
        let baseline = dense.iter().find(|(task, _)| *task == outcome.task);
        outcome.speedup_over_dense = baseline.map(|(_, wall_s)| wall_s / outcome.wall_s);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_curve_averages_losses_and_adds_up_bytes() {
        let curve = Curve::new([(&[2.0, 1.0][..], &[10, 20][..]), (&[4.0, 3.0], &[30, 40])].into_iter());
        assert_eq!((&curve.losses[..], &curve.bytes[..]), (&[3.0, 2.0][..], &[20.0, 50.0][..]));
        assert_eq!((curve.final_loss(1), curve.final_loss(9)), (2.0, 2.5));
        assert_eq!(Curve::new(std::iter::empty()).final_loss(3), 0.0);
    }
}
