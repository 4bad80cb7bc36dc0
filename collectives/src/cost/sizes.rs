//! Bytes of messages, headers included.

use sparse_core::codec;
use sparse_core::wire::HEADER;

use super::Workload;

/// A sparse vector of so many entries, an expected number, below `dim`.
pub(super) fn sparse(work: &Workload, dim: f64, entries: f64) -> f64 {
    // Between whole numbers as their mean is.
    let (fewer, dim) = (entries.floor(), dim.round().max(1.0) as u64);
    let indices = |count: f64| codec::expected_len(dim, (count as u64).min(dim) as usize) as f64;
    let share = entries - fewer;
    let indices =
        indices(fewer) * (1.0 - share) + if share > 0.0 { indices(fewer + 1.0) * share } else { 0.0 };
    HEADER as f64 + entries * work.value as f64 + indices
}

/// All values below `dim`.
pub(super) fn dense(work: &Workload, dim: f64) -> f64 {
    HEADER as f64 + dim * work.value as f64
}

/// Whether so many entries are held dense: [`sparse_core::dense_is_shorter`].
pub(super) fn is_dense(work: &Workload, dim: f64, entries: f64) -> bool {
    entries * (4 + work.value) as f64 >= dim * work.value as f64
}

/// Sums of so many entries on average, drawn from `dim` positions, each in the form that it takes: close to where they go
/// dense, some do and some do not.
pub(super) fn shorter_on_average(work: &Workload, dim: f64, entries: f64) -> f64 {
    let switch = dim * work.value as f64 / (4 + work.value) as f64;
    let deviation = (entries * (1.0 - entries / dim.max(1.0))).max(0.0).sqrt();
    // The logistic curve that is closest to the normal distribution.
    let share = if deviation > 0.0 {
        1.0 / (1.0 + (-1.702 * (entries - switch) / deviation).exp())
    } else {
        f64::from(u8::from(is_dense(work, dim, entries)))
    };
    share * dense(work, dim) + (1.0 - share) * sparse(work, dim, entries)
}
