use crate::{Config, Error, Method};

/// What an [`Optimizer`](crate::Optimizer) remembers between steps, for checkpoints.
///
/// Residual and velocity differ from rank to rank: each rank saves and loads its own. The buffers run
/// over all parameters, end to end, in the order of [`parameters`](Self::parameters).
#[derive(Clone, PartialEq, Debug, Default)]
pub struct OptimizerState {
    /// Steps done.
    pub steps: u64,
    /// Steps done on gradients that are sparse by nature.
    pub sparse_steps: u64,
    /// Names and lengths of the parameters that the first step fixed; empty before it.
    pub parameters: Vec<(String, usize)>,
    /// What was not sent yet; empty for [`Method::Dense`].
    pub residual: Vec<f32>,
    /// The velocity; empty without momentum.
    pub velocity: Vec<f32>,
    /// How many entries each bucket has that is summed by itself, from the last entries to the first; empty where the buckets
    /// are those of the configuration, and not [chosen by time](crate::Optimizer::fuse_by_time).
    pub buckets: Vec<usize>,
}

impl OptimizerState {
    /// The lengths of residual and velocity that `entries` of parameters need.
    pub(crate) fn lengths(entries: usize, config: &Config) -> (usize, usize) {
        let residual = if matches!(config.method, Method::Dense(_)) { 0 } else { entries };
        let velocity = if config.momentum == 0.0 { 0 } else { entries };
        (residual, velocity)
    }

    /// Refuses buffers and buckets of other lengths.
    pub(crate) fn check(&self, entries: usize, config: &Config) -> Result<(), Error> {
        let (residual, velocity) = Self::lengths(entries, config);
        for (name, found, expected) in
            [("residual", self.residual.len(), residual), ("velocity", self.velocity.len(), velocity)]
        {
            if found != expected {
                return Err(Error::state(format!(
                    "its {name} has {found} entries where this configuration needs {expected} for {entries} \
                     parameter entries"
                )));
            }
        }
        let bucketed = self.buckets.iter().try_fold(0_usize, |sum, len| sum.checked_add(*len));
        if !self.buckets.is_empty() && bucketed != Some(entries) {
            return Err(Error::state(format!(
                "its buckets do not have {entries} entries together, which its parameters have"
            )));
        }
        Ok(())
    }
}
