//! What the algorithms are made of. Each phase begins at the same time on all ranks and ends on the last one.

use super::{Cost, Link, Workload, doubling, sizes};
use crate::allgather::bruck::LONG;
use crate::allreduce::{dense_ring, ssar_ring};
use crate::gtopk::owners;
use crate::ring::Plan;
use crate::topology::rounds;
use sparse_core::wire::HEADER;

/// Segments go round 2(P-1) times, some at a time: a step takes as long as they all take to leave, or as one of them
/// takes to arrive. So `(2(P-1) g - 1) max(alpha + s, l s) + alpha + l s` for `l` pieces at a time that take `s` each,
/// `g` times: about `2(P-1)/P N v beta` for long vectors, `2(P-1) alpha` for short ones.
pub(super) fn dense_ring(work: &Workload, link: &Link) -> Cost {
    dense_round(&Plan::allreduce(work.dim, work.ranks, dense_ring::PIECE / work.value), work, link)
}

/// The first half of the ring: about `(P-1)/P N v beta` for long vectors, `(P-1) alpha` for short ones.
pub(super) fn dense_half_ring(work: &Workload, link: &Link) -> Cost {
    dense_round(&Plan::reduce_scatter(work.dim, work.ranks, dense_ring::PIECE / work.value), work, link)
}

fn dense_round(plan: &Plan, work: &Workload, link: &Link) -> Cost {
    let segments = (plan.lanes * plan.groups) as u64;
    let longest = work.dim.div_ceil(work.ranks as u64).div_ceil(segments);
    let cost = round(plan, link, |_| sizes::dense(work, longest as f64));
    let values = work.dim as f64 * plan.steps as f64 / work.ranks as f64;
    Cost { bytes: cost.messages as f64 * HEADER as f64 + values * work.value as f64, ..cost }
}

/// The same with sums of one rank more in each step of the first half, and of all in the second, each in its own form.
pub(super) fn sparse_ring(work: &Workload, link: &Link) -> Cost {
    let plan = Plan::allreduce(work.dim, work.ranks, ssar_ring::PIECE / work.value);
    let pieces = (work.ranks * plan.lanes * plan.groups) as f64;
    let piece = |step: usize| {
        let union = work.union((step + 1).min(work.ranks));
        sizes::shorter_on_average(work, work.dim as f64 / pieces, union / pieces)
    };
    let merged: f64 = (1..work.ranks).map(|ranks| work.union(ranks) / work.ranks as f64).sum();
    round(&plan, link, piece).with_work(link, merged + work.entries as f64 + work.union(work.ranks), 0.0)
}

/// Pieces round the ring, of so many bytes in each step.
fn round(plan: &Plan, link: &Link, bytes: impl Fn(usize) -> f64) -> Cost {
    let (lanes, groups) = (plan.lanes as f64, plan.groups as f64);
    let steps = plan.steps;
    let all: f64 = (0..steps).map(&bytes).sum();
    let step = |bytes: f64| link.message(bytes).max(lanes * link.occupancy(bytes));
    let network: f64 = (0..steps).map(|at| step(bytes(at))).sum();
    let last = bytes(steps - 1);
    Cost {
        rounds: (steps * plan.groups) as u32,
        messages: (steps * plan.lanes * plan.groups) as u64,
        bytes: all * lanes * groups,
        network: groups * network - step(last) + link.alpha + lanes * link.occupancy(last),
        ..Cost::default()
    }
}

/// Halves, quarters and so on exchanged there and back: `2 log2 Q alpha + 2(Q-1)/Q N v beta`, and the whole there and back
/// between folded ranks and their neighbours where P is more than Q, the power of two below.
pub(super) fn rabenseifner(work: &Workload, link: &Link) -> Cost {
    let whole = work.dim as f64 * work.value as f64;
    let exchange = |bytes: f64| {
        let messages = (bytes / dense_ring::PIECE as f64).ceil().max(1.0);
        let sent = bytes + messages * HEADER as f64;
        Cost {
            rounds: 1,
            messages: messages as u64,
            bytes: sent,
            network: link.alpha + messages * link.overhead + sent * link.beta,
            ..Cost::default()
        }
    };
    let halvings = work.ranks.ilog2();
    let there = (1..=halvings).map(|round| exchange(whole / f64::from(1 << round)));
    let there = there.fold(Cost::default(), |sum, cost| sum + cost);
    let both = there + there;
    if work.ranks.is_power_of_two() {
        return both;
    }
    // A neighbour sends back what it was given.
    let handed = exchange(whole);
    Cost {
        messages: both.messages + handed.messages,
        bytes: both.bytes + handed.bytes,
        ..both + handed + handed
    }
}

/// The `entries` largest: agreements on ranges and on how many of each owner's sums to gather, the split between them, and the gather.
pub(super) fn exact(work: &Workload, entries: u64, link: &Link) -> Cost {
    let (ranks, k) = (work.ranks as f64, usize::try_from(entries).unwrap_or(usize::MAX));
    let sums = work.union(work.ranks) / ranks;
    let (support, magnitudes) = owners::told(k, work.ranks, sums as usize, work.value);
    let tell = |bytes: usize| bruck(work.ranks, (HEADER + bytes) as f64, link);
    let block = sizes::sparse(work, work.dim as f64 / ranks, (entries as f64 / ranks).min(sums));
    let agreed = support.map_or(Cost::default(), tell) + split(work, link) + tell(magnitudes);
    agreed + bruck(work.ranks, block, link).with_work(link, 2.0 * work.entries as f64, 0.0)
}

/// Bruck's allgather backwards with sums that are cut to `h = ceil(k/P)` entries, then forwards: at most
/// `2 ceil(log2 P) alpha + 2 h (P-1) b beta`.
pub(super) fn spardl(work: &Workload, link: &Link) -> Cost {
    let (ranks, entries) = (work.ranks as f64, work.entries as f64);
    let (part, most) = (work.dim as f64 / ranks, work.entries.div_ceil(work.ranks as u64) as f64);
    // Of a block that holds the sums of so many ranks.
    let kept = |summed: usize| (work.union(summed) / ranks).min(most);
    let step = |distance: usize| {
        let blocks = distance..(2 * distance).min(work.ranks);
        let count = blocks.len() as f64;
        // A block has come from every so manieth rank before.
        let sent = blocks.map(|block| kept((work.ranks - block).div_ceil(2 * distance))).sum();
        let bytes = sizes::sparse(work, part * count, sent);
        Cost { rounds: 1, messages: 1, bytes, network: link.message(bytes), ..Cost::default() }
    };
    let steps = (0..rounds(work.ranks)).map(|round| step(1 << round));
    let reduced = steps.fold(Cost::default(), |sum, step| sum + step);
    let gathered = bruck(work.ranks, sizes::sparse(work, part, kept(work.ranks)), link);
    (reduced + gathered).with_work(link, 3.0 * entries, 0.0)
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

/// One block from each rank straight to the root, which receives them one after the other:
/// `alpha + (P-1) (overhead + n beta)`.
pub(super) fn gather(ranks: usize, block: f64, link: &Link) -> Cost {
    let others = ranks as f64 - 1.0;
    Cost {
        rounds: 1,
        messages: 1,
        bytes: others * block,
        network: link.alpha + others * link.occupancy(block),
        ..Cost::default()
    }
}

/// Partial sums merged by recursive doubling, each piece dense once that is smaller.
pub(super) fn sparse_doubling(work: &Workload, link: &Link) -> Cost {
    let pieces = sparse_pieces(work.entries as f64, work.value, link);
    let dim = work.dim as f64;
    // A sum is dense if the entries of its two halves would be.
    let is_dense =
        |low: usize, high: usize| high > 0 && sizes::is_dense(work, dim, work.union(low) + work.union(high));
    let size = |low: usize, high: usize| {
        let of_one = 1.0 / pieces as f64;
        if is_dense(low, high) {
            sizes::dense(work, dim * of_one)
        } else {
            sizes::sparse(work, dim * of_one, work.union(low + high) * of_one)
        }
    };
    let (mut entries, mut values) = (0.0, 0.0);
    for round in 0..rounds(work.ranks) {
        let ranks = 1 << round;
        if is_dense(ranks, ranks) { values += dim } else { entries += 2.0 * work.union(ranks) }
    }
    doubling::cost(work.ranks, link, pieces, size).with_work(link, entries, values)
}

/// Into how many pieces recursive doubling cuts so many entries with values of so many bytes.
pub(crate) fn sparse_pieces(entries: f64, value: usize, link: &Link) -> usize {
    doubling::pieces(entries * (4 + value) as f64, entries * link.entry, link)
}

/// The same of dense values.
pub(crate) fn dense_pieces(values: f64, value: usize, link: &Link) -> usize {
    doubling::pieces(values * value as f64, values * link.value, link)
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
