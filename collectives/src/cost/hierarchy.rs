//! The costs of a [`Hierarchy`](crate::Hierarchy) of groups with as many ranks each: inside, across, and inside again.
//!
//! `across` is what a rank has of the network across the groups while all ranks of its group use it: where they share one link,
//! its `beta` and `overhead` are as many times those of the link. Messages and bytes are those of the phases together, each of the
//! rank that sends the most in it.

use super::{Cost, Link, Workload, check, dense, gtopk, phases, sizes, sparse};
use crate::{DenseAlgorithm, GtopkAlgorithm, SparseAlgorithm};

/// The cost of [`Hierarchy::allreduce_dense`](crate::Hierarchy::allreduce_dense) with so many groups, of which the number of ranks is
/// a multiple.
#[must_use]
pub fn hierarchical_dense(
    algorithm: DenseAlgorithm,
    work: &Workload,
    groups: usize,
    inside: &Link,
    across: &Link,
) -> Cost {
    let Some(levels) = Levels::new(work, groups) else { return Cost::default() };
    let part = sizes::dense(work, work.dim as f64 / levels.inside.ranks as f64);
    let sums = if groups < 2 { check(inside) } else { dense(algorithm, &levels.across, across) };
    sums + levels.to_owners(part, inside).with_work(inside, 0.0, work.dim as f64)
        + levels.gather(part, inside)
}

/// The cost of [`Hierarchy::allreduce`](crate::Hierarchy::allreduce) with so many groups, of which the number of ranks is a multiple.
#[must_use]
pub fn hierarchical_sparse(
    algorithm: &SparseAlgorithm,
    work: &Workload,
    groups: usize,
    inside: &Link,
    across: &Link,
) -> Cost {
    let Some(levels) = Levels::new(work, groups) else { return Cost::default() };
    let ranks = levels.inside.ranks as f64;
    let (part, union) = (work.dim as f64 / ranks, work.union(work.ranks));
    let given = sizes::sparse(work, part, work.entries as f64 / ranks);
    let block = sizes::shorter_on_average(work, part, union / ranks);
    let sums = if groups < 2 { check(inside) } else { sparse(algorithm, &levels.across, across) };
    sums + levels.to_owners(given, inside).with_work(inside, work.entries as f64, 0.0)
        + levels.gather(block, inside).with_work(inside, union, 0.0)
}

/// The cost of [`Hierarchy::gtopk`](crate::Hierarchy::gtopk), for as many entries as each rank brings, with so many groups, of which
/// the number of ranks is a multiple.
#[must_use]
pub fn hierarchical_gtopk(
    algorithm: GtopkAlgorithm,
    work: &Workload,
    groups: usize,
    inside: &Link,
    across: &Link,
) -> Cost {
    let Some(levels) = Levels::new(work, groups) else { return Cost::default() };
    let (ranks, k) = (levels.inside.ranks as f64, work.entries as f64);
    if algorithm == GtopkAlgorithm::Exact {
        let part = work.dim as f64 / ranks;
        let largest = sizes::sparse(work, part, (work.union(work.ranks) / ranks).min(k));
        let given = levels.to_owners(sizes::sparse(work, part, k / ranks), inside).with_work(inside, k, 0.0);
        let found = if groups < 2 {
            check(inside)
        } else {
            check(across) + phases::exact(&levels.across, work.entries, across)
        };
        return found + given + levels.gather(largest, inside).with_work(inside, ranks * k, 0.0);
    }
    let message = sizes::sparse(work, work.dim as f64, k);
    let found = gtopk(algorithm, &levels.inside, inside);
    if groups < 2 {
        return found + levels.broadcast(message, inside);
    }
    let of_all =
        gtopk(algorithm, &Workload { ranks: groups, ..*work }, across) + levels.broadcast(message, inside);
    // The call is checked once.
    let once = if levels.inside.ranks > 1 { check(inside) } else { Cost::default() };
    Cost {
        messages: found.messages + of_all.messages - once.messages,
        bytes: found.bytes + of_all.bytes - once.bytes,
        network: found.network + of_all.network - once.network,
        ..found + of_all
    }
}

/// What is to be summed inside a group, and of a shard across the groups.
struct Levels {
    inside: Workload,
    across: Workload,
}

impl Levels {
    /// None for a rank alone.
    fn new(work: &Workload, groups: usize) -> Option<Self> {
        if work.ranks < 2 {
            return None;
        }
        let ranks = (work.ranks / groups.max(1)).max(1);
        let across = Workload {
            ranks: groups,
            dim: work.dim.div_ceil(ranks as u64),
            entries: (work.union(ranks) / ranks as f64).round() as u64,
            value: work.value,
            spread: work.spread / ranks as f64,
        };
        Some(Self { inside: Workload { ranks, ..*work }, across })
    }

    /// A message of so many bytes to each other rank of the group.
    fn to_owners(&self, bytes: f64, link: &Link) -> Cost {
        match self.inside.ranks {
            1 => Cost::default(),
            ranks => Cost { messages: ranks as u64 - 1, ..phases::gather(ranks, bytes, link) },
        }
    }

    /// Blocks of so many bytes from each to all.
    fn gather(&self, bytes: f64, link: &Link) -> Cost {
        if self.inside.ranks == 1 { Cost::default() } else { phases::bruck(self.inside.ranks, bytes, link) }
    }

    fn broadcast(&self, bytes: f64, link: &Link) -> Cost {
        if self.inside.ranks == 1 {
            Cost::default()
        } else {
            phases::broadcast(self.inside.ranks, bytes, link)
        }
    }
}
