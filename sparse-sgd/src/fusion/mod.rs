//! Tensor fusion: layers in buckets, each summed by itself while other layers are computed or selected from.

pub(crate) mod by_time;
mod plan;
mod step;
mod sums;

pub use plan::{Bucket, FusionPlan, Limits};
pub use step::LayerwiseStep;
pub(crate) use sums::Sums;
