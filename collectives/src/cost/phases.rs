//! What the algorithms are made of. Each phase begins at the same time on all ranks and ends on the last one.

use super::{Cost, Link, Workload, doubling, sizes};
use crate::allgather::bruck::LONG;
use crate::allreduce::dense_ring::Segments;
use crate::topology::rounds;
use sparse_core::wire::HEADER;

/// Segments go round 2(P-1) times, some at a time: a step takes as long as they all take to leave, or as one of them
/// takes to arrive. So `(2(P-1) g - 1) max(alpha + s, l s) + alpha + l s` for `l` pieces at a time that take `s` each,
/// `g` times: about `2(P-1)/P N v beta` for long vectors, `2(P-1) alpha` for short ones.
pub(super) fn dense_ring(work: &Workload, link: &Link) -> Cost {
    let Segments { lanes, groups } = Segments::of(work.dim, work.ranks, work.value);
    let (steps, pieces) = (2 * (work.ranks as u64 - 1) * groups, lanes as f64);
    let longest = work.dim.div_ceil(work.ranks as u64).div_ceil(lanes * groups);
    let piece = sizes::dense(work, longest as f64);
    let step = link.message(piece).max(pieces * link.occupancy(piece));
    let messages = steps * lanes;
    let values = work.dim as f64 * 2.0 * (work.ranks as f64 - 1.0) / work.ranks as f64;
    Cost {
        rounds: steps as u32,
        messages,
        bytes: messages as f64 * HEADER as f64 + values * work.value as f64,
        network: (steps - 1) as f64 * step + link.alpha + pieces * link.occupancy(piece),
        ..Cost::default()
    }
}

/// One block from each rank round the ring: `(P-1) (alpha + n beta)`.
pub(super) fn ring(ranks: usize, block: f64, link: &Link) -> Cost {
    let steps = ranks as f64 - 1.0;
    Cost {
        rounds: ranks as u32 - 1,
        messages: ranks as u64 - 1,
        bytes: steps * block,
        network: steps * link.message(block),
        ..Cost::default()
    }
}

/// Bruck's allgather: `ceil(log2 P) (alpha + header beta) + (P-1) (n + 8) beta`; long blocks are messages of their own.
pub(super) fn bruck(ranks: usize, block: f64, link: &Link) -> Cost {
    let (rounds, others) = (rounds(ranks), ranks as f64 - 1.0);
    let is_long = block >= LONG as f64;
    let messages = u64::from(rounds) + if is_long { ranks as u64 - 1 } else { 0 };
    let bytes = f64::from(rounds) * HEADER as f64 + others * (block + 8.0);
    Cost {
        rounds,
        messages,
        bytes,
        network: f64::from(rounds) * link.alpha + messages as f64 * link.overhead + bytes * link.beta,
        ..Cost::default()
    }
}

/// Each rank's ranges straight to their owners, one after the other: `alpha + (P-1) overhead + k(P-1)/P b beta`.
pub(super) fn split(work: &Workload, link: &Link) -> Cost {
    let ranks = work.ranks as f64;
    let part = sizes::sparse(work, work.dim as f64 / ranks, work.entries as f64 / ranks);
    let cost = Cost {
        rounds: 1,
        messages: work.ranks as u64 - 1,
        bytes: (ranks - 1.0) * part,
        network: link.alpha + (ranks - 1.0) * link.occupancy(part),
        ..Cost::default()
    };
    cost.with_work(link, work.entries as f64, 0.0)
}

/// Partial sums merged by recursive doubling, dense once that is smaller.
pub(super) fn sparse_doubling(work: &Workload, link: &Link) -> Cost {
    let dim = work.dim as f64;
    // A sum is dense if the entries of its two halves would be.
    let is_dense =
        |low: usize, high: usize| high > 0 && sizes::is_dense(work, dim, work.union(low) + work.union(high));
    let size = |low: usize, high: usize| {
        if is_dense(low, high) {
            sizes::dense(work, dim)
        } else {
            sizes::sparse(work, dim, work.union(low + high))
        }
    };
    let (mut entries, mut values) = (0.0, 0.0);
    for round in 0..rounds(work.ranks) {
        let ranks = 1 << round;
        if is_dense(ranks, ranks) { values += dim } else { entries += 2.0 * work.union(ranks) }
    }
    doubling::cost(work.ranks, link, size).with_work(link, entries, values)
}

/// Equal messages up a binomial tree and down again: `2 (floor(log2 P) alpha + ceil(log2 P) n beta)`, less by up to
/// `log2 P` times the smaller of the two for some P between powers of two.
pub(super) fn tree(ranks: usize, message: f64, link: &Link) -> Cost {
    let down = broadcast(ranks, message, link);
    // Nobody sends or receives more than the root, who sends going down only.
    Cost { rounds: 2 * down.rounds, network: up(ranks, message, link) + down.network, ..down }
}

/// When the root of a binomial tree has everything. A subtree with a power of two ranks takes `alpha + n beta` a level;
/// the last child may be ready before its turn, and the root receives from one at a time.
fn up(ranks: usize, message: f64, link: &Link) -> f64 {
    if ranks < 2 {
        return 0.0;
    }
    let last = rounds(ranks) - 1;
    let full = (0..last).map(|level| f64::from(level) * link.message(message));
    let mut ready: Vec<f64> = full.chain([up(ranks - (1 << last), message, link)]).collect();
    ready.sort_by(f64::total_cmp);
    let arrive = |end: f64, ready: f64| end.max(ready + link.alpha) + link.occupancy(message);
    ready.into_iter().fold(0.0, arrive)
}

/// Equal messages down a binomial tree: `floor(log2 P) alpha + ceil(log2 P) n beta`.
pub(super) fn broadcast(ranks: usize, message: f64, link: &Link) -> Cost {
    let (hops, messages) = (ranks.ilog2(), rounds(ranks));
    Cost {
        rounds: hops,
        messages: messages.into(),
        bytes: f64::from(messages) * message,
        network: f64::from(hops) * link.alpha + f64::from(messages) * link.occupancy(message),
        ..Cost::default()
    }
}
