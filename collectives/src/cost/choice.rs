//! The choice among algorithms: the least predicted time. To add one: its name in a list.

use super::{Cost, Link, Workload};
use crate::{DenseAlgorithm, SparseAlgorithm};

/// What [`DenseAlgorithm::Auto`] chooses from. The first of those that take the same time is taken.
pub(crate) static DENSE: [DenseAlgorithm; 2] = [DenseAlgorithm::RecursiveDoubling, DenseAlgorithm::Ring];

/// What [`SparseAlgorithm::Auto`] chooses from: those whose sum is exact.
pub(crate) static SPARSE: [SparseAlgorithm; 4] = [
    SparseAlgorithm::SsarRecursiveDoubling,
    SparseAlgorithm::SsarSplitAllgather,
    SparseAlgorithm::DsarSplitAllgather,
    SparseAlgorithm::TopkAllgather,
];

/// The algorithm that [`DenseAlgorithm::Auto`] takes, and what it costs.
#[must_use]
pub fn choose_dense(work: &Workload, link: &Link) -> (DenseAlgorithm, Cost) {
    let costs = DENSE.map(|algorithm| super::dense(algorithm, work, link));
    let best = least(&costs.map(|cost| cost.seconds()));
    (DENSE[best], costs[best])
}

/// The algorithm that [`SparseAlgorithm::Auto`] takes, and what that costs alone.
#[must_use]
pub fn choose_sparse(work: &Workload, link: &Link) -> (SparseAlgorithm, Cost) {
    let costs = sparse_costs(work, link);
    let best = least(&costs.map(|cost| cost.seconds()));
    (SPARSE[best].clone(), costs[best])
}

/// What each of [`SPARSE`] costs.
pub(crate) fn sparse_costs(work: &Workload, link: &Link) -> [Cost; SPARSE.len()] {
    SPARSE.each_ref().map(|algorithm| super::sparse(algorithm, work, link))
}

/// The place of the least time, the first of equal ones.
pub(crate) fn least<const N: usize>(seconds: &[f64; N]) -> usize {
    (0..N).min_by(|a, b| seconds[*a].total_cmp(&seconds[*b])).unwrap_or(0)
}
