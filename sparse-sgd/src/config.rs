use collectives::{DenseAlgorithm, GtopkAlgorithm, PutBack, SparseAlgorithm};

use crate::{DensitySchedule, Error, Limits};

/// How gradients travel.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Method {
    /// Whole gradients, averaged: the baseline. Momentum is that of the average.
    Dense(DenseAlgorithm),
    /// Each rank's largest entries, then the full sum of all ranks' selections. A quantizing algorithm
    /// gets a new step number for each call; its rounding is unbiased, but not fed back.
    Sparse(SparseAlgorithm),
    /// Each rank's largest entries, then the largest entries of their sum (gTop-k).
    Gtopk(GtopkAlgorithm),
}

/// What an [`Optimizer`](crate::Optimizer) does at each step; the same on all ranks.
#[derive(Clone, Debug)]
pub struct Config {
    /// How gradients travel.
    pub method: Method,
    /// Which share of the entries each rank selects, over all parameters together. Not used by
    /// [`Method::Dense`].
    pub density: DensitySchedule,
    /// The factor of the last step's velocity, in [0, 1). At 0 no velocity is kept.
    pub momentum: f32,
    /// Whether a rank forgets its velocity where it sends (*momentum factor masking* of Deep Gradient
    /// Compression). Off, density 1 is SGD with momentum, and a lower one stays close to it at the same
    /// learning rate; on, an entry that is sent often has hardly any momentum and wants a higher rate, but a
    /// stale velocity cannot push on. Not used by [`Method::Dense`].
    pub momentum_masking: bool,
    /// Bounds the norm of the averaged gradient: each rank clips its own to this over the root of the
    /// number of ranks, before it is accumulated. In every method, so that they can be compared.
    pub clip_norm: Option<f32>,
    /// What becomes of contributions that do not reach the result. Used by [`Method::Gtopk`] only.
    pub put_back: PutBack,
    /// The buckets of layers that are summed by themselves, each while the next is selected from, or computed. None: all
    /// parameters are one vector with one sum, in which each layer gets the share of the k entries that its gradients
    /// deserve; of buckets each has the same density.
    pub fusion: Option<Limits>,
}

impl Config {
    /// No momentum, no clipping, no fusion, and nothing lost ([`PutBack::Conserving`]).
    #[must_use]
    pub const fn new(method: Method, density: DensitySchedule) -> Self {
        Self {
            method,
            density,
            momentum: 0.0,
            momentum_masking: false,
            clip_norm: None,
            put_back: PutBack::Conserving,
            fusion: None,
        }
    }

    pub(crate) fn check(&self) -> Result<(), Error> {
        if !(0.0..1.0).contains(&self.momentum) {
            return Err(Error::Setting { name: "momentum", given: self.momentum, allowed: "in [0, 1)" });
        }
        match self.clip_norm {
            Some(given) if !(given > 0.0 && given.is_finite()) => {
                Err(Error::Setting { name: "clipping norm", given, allowed: "positive and finite" })
            }
            _ => Ok(()),
        }
    }
}

/// A quantizing algorithm with the number of this call and another seed for each bucket, so that no two sums round alike.
pub(crate) fn at_step(algorithm: &SparseAlgorithm, call: u64, bucket: usize) -> SparseAlgorithm {
    let mut algorithm = algorithm.clone();
    if let SparseAlgorithm::DsarQuantized { step, seed, .. } = &mut algorithm {
        *step = step.wrapping_add(call);
        *seed ^= (bucket as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
    algorithm
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ErrorKind;

    #[test]
    fn settings_without_a_sense_are_refused() {
        let density = DensitySchedule::constant(0.1).unwrap();
        let config = || Config::new(Method::Dense(DenseAlgorithm::Ring), density);
        assert!(config().check().is_ok());
        assert!(Config { momentum: 0.99, clip_norm: Some(1e-3), ..config() }.check().is_ok());
        for momentum in [1.0, -0.1, f32::NAN] {
            let error = Config { momentum, ..config() }.check().unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Setting);
            assert_eq!(error.to_string(), format!("momentum {momentum} is not in [0, 1)"));
        }
        for norm in [0.0, -1.0, f32::NAN, f32::INFINITY] {
            let error = Config { clip_norm: Some(norm), ..config() }.check().unwrap_err();
            assert_eq!(error.to_string(), format!("clipping norm {norm} is not positive and finite"));
        }
    }
}
