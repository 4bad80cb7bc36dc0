//! The costs of operations that have one algorithm each.

use sparse_core::wire::HEADER;

use super::{Cost, Link, Workload, check, phases, sizes};
use crate::topology::rounds;

/// The cost of [`reduce_scatter`](crate::Communicator::reduce_scatter).
#[must_use]
pub fn reduce_scatter(work: &Workload, link: &Link) -> Cost {
    if work.ranks < 2 {
        return Cost::default();
    }
    check(link) + phases::split(work, link)
}

/// The cost of [`reduce_scatter_dense`](crate::Communicator::reduce_scatter_dense).
#[must_use]
pub fn reduce_scatter_dense(work: &Workload, link: &Link) -> Cost {
    if work.ranks < 2 {
        return Cost::default();
    }
    let values = work.dim as f64 * (work.ranks as f64 - 1.0) / work.ranks as f64;
    check(link) + phases::dense_half_ring(work, link).with_work(link, 0.0, values)
}

/// The cost of [`reduce`](crate::Communicator::reduce), for the root, which receives the most.
#[must_use]
pub fn reduce(work: &Workload, link: &Link) -> Cost {
    if work.ranks < 2 {
        return Cost::default();
    }
    let (ranks, union) = (work.ranks as f64, work.union(work.ranks));
    let block = sizes::shorter_on_average(work, work.dim as f64 / ranks, union / ranks);
    let gather = phases::gather(work.ranks, block, link).with_work(link, union, 0.0);
    check(link) + phases::split(work, link) + gather
}

/// The cost of [`reduce_dense`](crate::Communicator::reduce_dense), for the root, which receives the most.
#[must_use]
pub fn reduce_dense(work: &Workload, link: &Link) -> Cost {
    if work.ranks < 2 {
        return Cost::default();
    }
    let part = sizes::dense(work, work.dim as f64 / work.ranks as f64);
    // All send as much as they receive; then the root receives as much again.
    let split = Cost { messages: work.ranks as u64 - 1, ..phases::gather(work.ranks, part, link) };
    check(link) + (split + phases::gather(work.ranks, part, link)).with_work(link, 0.0, work.dim as f64)
}

/// The cost of [`allgather`](crate::Communicator::allgather) of blocks of so many bytes.
#[must_use]
pub fn allgather(ranks: usize, bytes: u64, link: &Link) -> Cost {
    if ranks < 2 {
        return Cost::default();
    }
    check(link) + phases::bruck(ranks, bytes as f64, link)
}

/// The cost of [`allgather_sparse`](crate::Communicator::allgather_sparse).
#[must_use]
pub fn allgather_sparse(work: &Workload, link: &Link) -> Cost {
    if work.ranks < 2 {
        return Cost::default();
    }
    let block = sizes::sparse(work, work.dim as f64, work.entries as f64);
    let entries = work.ranks as f64 * work.entries as f64;
    check(link) + phases::bruck(work.ranks, block, link).with_work(link, entries, 0.0)
}

/// The cost of [`allgather_dense`](crate::Communicator::allgather_dense) of `dim` values from each rank.
#[must_use]
pub fn allgather_dense(work: &Workload, link: &Link) -> Cost {
    allgather(work.ranks, HEADER as u64 + work.dim * work.value as u64, link)
}

/// The cost of [`broadcast`](crate::Communicator::broadcast) of so many bytes, and of
/// [`broadcast_stream`](crate::Communicator::broadcast_stream) of a vector that takes so many.
///
/// Its check goes on beside the data for `ceil(log2 P)` rounds, whose headers may keep back the data by as long as they
/// take to leave: that is not in the time.
#[must_use]
pub fn broadcast(ranks: usize, bytes: u64, link: &Link) -> Cost {
    if ranks < 2 {
        return Cost::default();
    }
    let data = check(link) + phases::broadcast(ranks, HEADER as f64 + bytes as f64, link);
    let barrier = barrier(ranks, link);
    Cost {
        rounds: data.rounds.max(barrier.rounds),
        messages: data.messages - 1 + barrier.messages,
        bytes: data.bytes - HEADER as f64 + barrier.bytes,
        network: data.network.max(barrier.network),
        ..data
    }
}

/// The cost of [`barrier`](crate::Communicator::barrier): `ceil(log2 P) (alpha + header beta)`.
#[must_use]
pub fn barrier(ranks: usize, link: &Link) -> Cost {
    let (rounds, header) = (rounds(ranks.max(1)), HEADER as f64);
    Cost {
        rounds,
        messages: rounds.into(),
        bytes: f64::from(rounds) * header,
        network: f64::from(rounds) * link.message(header),
        ..Cost::default()
    }
}
