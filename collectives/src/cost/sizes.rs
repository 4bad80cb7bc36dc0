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

/// A sum in the form that it takes.
pub(super) fn shorter(work: &Workload, dim: f64, entries: f64) -> f64 {
    if is_dense(work, dim, entries) { dense(work, dim) } else { sparse(work, dim, entries) }
}
