//! Messages, bytes and rounds of every algorithm, against its documented formula, on every rank.
//!
//! The formulas are written here a second time, from the documentation and from the inputs alone.

use std::collections::BTreeSet;

use collectives::{Communicator, DenseAlgorithm, GtopkAlgorithm, PutBack, SparseAlgorithm};
use sparse_core::wire::HEADER;
use sparse_core::{SparseVec, Stream, codec};
use testkit::support::{Shape, world};
use testkit::{Counted, run_world};
use transport::{AnyTransport, Rank};

use crate::common;
use crate::worlds::local_world;

/// What one rank sends, and the longest chain of dependent messages in the world.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Cost {
    messages: u64,
    bytes: u64,
}

impl Cost {
    /// Sends one message with a body of this many bytes.
    fn send(&mut self, body: usize) {
        self.messages += 1;
        self.bytes += (HEADER + body) as u64;
    }
}

const VALUE: usize = 4;
/// What an entry takes in memory, which decides whether a sum is dense.
const ENTRY: usize = 8;

type Support = BTreeSet<u32>;

struct World {
    dim: usize,
    supports: Vec<Support>,
}

impl World {
    fn ranks(&self) -> usize {
        self.supports.len()
    }

    fn cut(&self, part: usize) -> usize {
        self.dim * part / self.ranks()
    }

    /// The length of a range of the index space.
    fn range(&self, part: usize) -> usize {
        self.cut(part + 1) - self.cut(part)
    }

    /// Those of these indices that are in a range, counted from its start.
    fn within(&self, support: &Support, part: usize) -> Support {
        let (start, end) = (self.cut(part) as u32, self.cut(part + 1) as u32);
        support.range(start..end).map(|index| index - start).collect()
    }

    fn union(&self) -> Support {
        self.supports.iter().flatten().copied().collect()
    }
}

/// Bytes of a sparse vector with these indices: its values, and the indices in the shortest codec.
fn sparse(support: &Support, dim: usize) -> usize {
    let indices: Vec<u32> = support.iter().copied().collect();
    indices.len() * VALUE + codec::encoded_len(dim as u64, &indices, 0)
}

/// Bytes of the form that a sum takes.
fn shorter(support: &Support, dim: usize) -> usize {
    if support.len() * ENTRY >= dim * VALUE { dim * VALUE } else { sparse(support, dim) }
}

fn log2_ceil(ranks: usize) -> usize {
    (0..).find(|bits| 1 << bits >= ranks).unwrap()
}

/// Blocks of so many bytes travel alone in Bruck's allgather.
const LONG: usize = 64 << 10;

/// Bruck: round i passes on the first min(2^i, P - 2^i) blocks, counted from the own one.
fn bruck(cost: &mut Cost, rank: usize, blocks: &[usize]) {
    let ranks = blocks.len();
    for round in 0..log2_ceil(ranks) {
        let count = (1 << round).min(ranks - (1 << round));
        let passed = || (0..count).map(|i| blocks[(rank + i) % ranks]);
        let (short, long) = (passed().filter(|block| *block < LONG), passed().filter(|block| *block >= LONG));
        cost.send(8 * count + short.sum::<usize>());
        // A long block is a message of its own, whose header is in its length.
        long.for_each(|block| cost.send(block - HEADER));
    }
}

/// A partial sum in recursive doubling: its support, and whether it has gone dense.
#[derive(Clone)]
struct Partial {
    support: Support,
    dense: bool,
}

impl Partial {
    fn bytes(&self, dim: usize) -> usize {
        if self.dense { dim * VALUE } else { sparse(&self.support, dim) }
    }

    fn merge(&self, other: &Self, dim: usize) -> Self {
        let entries = self.support.len() + other.support.len();
        let dense = self.dense || other.dense || entries * ENTRY >= dim * VALUE;
        Self { support: self.support.union(&other.support).copied().collect(), dense }
    }
}

/// Recursive doubling with the ranks beyond the power of two folded into their neighbours; returns what
/// each rank sends where a message holds what `size` says of a partial sum.
fn doubling(world: &World, size: impl Fn(&Partial) -> usize) -> Vec<Cost> {
    let ranks = world.ranks();
    let active = 1 << ranks.ilog2();
    let extra = ranks - active;
    let mut costs = vec![Cost::default(); ranks];
    let partial = |rank: usize| Partial { support: world.supports[rank].clone(), dense: false };
    let mut members = Vec::new();
    for (rank, cost) in costs.iter_mut().enumerate() {
        if rank >= 2 * extra {
            members.push((rank, partial(rank)));
        } else if rank.is_multiple_of(2) {
            cost.send(size(&partial(rank)));
        } else {
            members.push((rank, partial(rank - 1).merge(&partial(rank), world.dim)));
        }
    }
    for round in 0..active.ilog2() {
        let before = members.clone();
        for (position, (rank, partial)) in members.iter_mut().enumerate() {
            costs[*rank].send(size(&before[position].1));
            let theirs = &before[position ^ (1 << round)].1;
            *partial = before[position].1.merge(theirs, world.dim);
        }
    }
    for (rank, partial) in members {
        if rank < 2 * extra {
            costs[rank].send(size(&partial));
        }
    }
    costs
}

/// The longest chain of messages: one hop for each bit in which two positions differ, and one more
/// for each end that is a folded rank.
fn doubling_rounds(ranks: usize) -> u64 {
    let active = 1_usize << ranks.ilog2();
    let extra = ranks - active;
    let folded = |position: usize| u32::from(position < extra);
    let chains = (0..active)
        .flat_map(|from| (0..active).map(move |to| folded(from) + (from ^ to).count_ones() + folded(to)));
    let there_and_back = if extra > 0 { 2 } else { 0 };
    u64::from(chains.max().unwrap().max(there_and_back))
}

/// The height of a binomial tree: the longest chain from a leaf to the root.
fn height(ranks: usize) -> u64 {
    (0..ranks).map(|rank| u64::from(rank.count_ones())).max().unwrap()
}

fn dense_ring(world: &World) -> (Vec<Cost>, u64) {
    const PIECE: usize = 128 << 10;
    let ranks = world.ranks();
    let longest = VALUE * (0..ranks).map(|part| world.range(part)).max().unwrap();
    let lanes = longest.div_ceil(PIECE).clamp(1, 8);
    let groups = longest.div_ceil(lanes * PIECE).max(1);
    let costs = (0..ranks).map(|rank| {
        let mut cost = Cost::default();
        for step in 0..ranks - 1 {
            for part in [rank + ranks - step, rank + 1 + ranks - step] {
                let (length, pieces) = (world.range(part % ranks), lanes * groups);
                for piece in 0..pieces {
                    cost.send(VALUE * (length * (piece + 1) / pieces - length * piece / pieces));
                }
            }
        }
        cost
    });
    (costs.collect(), (2 * (ranks - 1) * groups) as u64)
}

/// Recursive halving and doubling: a round exchanges the ranges of all positions that differ in the low bits.
fn rabenseifner(world: &World) -> (Vec<Cost>, u64) {
    const PIECE: usize = 128 << 10;
    let ranks = world.ranks();
    let active = 1 << ranks.ilog2();
    let extra = ranks - active;
    let send = |cost: &mut Cost, values: usize| {
        let pieces = (values * VALUE).div_ceil(PIECE).max(1);
        (0..pieces).for_each(|piece| {
            cost.send(VALUE * (values * (piece + 1) / pieces - values * piece / pieces));
        });
    };
    let mut costs = vec![Cost::default(); ranks];
    for (rank, cost) in costs.iter_mut().enumerate() {
        if rank < 2 * extra {
            // To the neighbour, and back.
            send(cost, world.dim);
        }
        if rank < 2 * extra && rank.is_multiple_of(2) {
            continue;
        }
        let position = if rank < 2 * extra { rank / 2 } else { rank - extra };
        for width in (0..active.ilog2()).map(|bit| 1 << bit) {
            let cut = |part: usize| world.dim * part / active;
            let block = |position: usize| cut((position / width + 1) * width) - cut(position / width * width);
            send(cost, block(position ^ width));
            send(cost, block(position));
        }
    }
    (costs, 2 * u64::from(active.ilog2()) + if extra > 0 { 2 } else { 0 })
}

/// Round the ring, pieces of a range each in its own form.
fn ssar_ring(world: &World) -> (Vec<Cost>, u64) {
    const PIECE: usize = (1 << 20) / VALUE;
    let ranks = world.ranks();
    if ranks == 1 {
        return (vec![Cost::default()], 0);
    }
    let segments = world.dim.div_ceil(ranks).div_ceil(PIECE).max(1);
    let (lanes, groups) = (segments.min(8), segments.div_ceil(segments.min(8)));
    let mut costs = vec![Cost::default(); ranks];
    for part in 0..ranks {
        for segment in 0..lanes * groups {
            let cut = |i: usize| world.cut(part) + world.range(part) * i / (lanes * groups);
            let (start, dim) = (cut(segment), cut(segment + 1) - cut(segment));
            let of = |rank: usize| Partial {
                support: world.supports[rank % ranks]
                    .range(start as u32..(start + dim) as u32)
                    .map(|index| index - start as u32)
                    .collect(),
                dense: false,
            };
            let mut sum = of(part);
            for step in 1..ranks {
                costs[(part + step - 1) % ranks].send(sum.bytes(dim));
                sum = sum.merge(&of(part + step), dim);
            }
            for step in 0..ranks - 1 {
                costs[(part + ranks - 1 + step) % ranks].send(sum.bytes(dim));
            }
        }
    }
    (costs, (2 * (ranks - 1) * groups) as u64)
}

/// The first phase of the split algorithms.
fn split(world: &World, rank: usize) -> Cost {
    let mut cost = Cost::default();
    for owner in (0..world.ranks()).filter(|owner| *owner != rank) {
        cost.send(sparse(&world.within(&world.supports[rank], owner), world.range(owner)));
    }
    cost
}

fn ssar_split(world: &World) -> (Vec<Cost>, u64) {
    let ranks = world.ranks();
    let union = world.union();
    let blocks: Vec<_> =
        (0..ranks).map(|owner| HEADER + shorter(&world.within(&union, owner), world.range(owner))).collect();
    let costs = (0..ranks).map(|rank| {
        let mut cost = split(world, rank);
        bruck(&mut cost, rank, &blocks);
        cost
    });
    (costs.collect(), if ranks == 1 { 0 } else { 1 + log2_ceil(ranks) as u64 })
}

fn dsar_split(world: &World) -> (Vec<Cost>, u64) {
    let ranks = world.ranks();
    let costs = (0..ranks).map(|rank| {
        let mut cost = split(world, rank);
        for step in 0..ranks - 1 {
            cost.send(VALUE * world.range((rank + ranks - step) % ranks));
        }
        cost
    });
    (costs.collect(), if ranks == 1 { 0 } else { ranks as u64 })
}

fn topk_allgather(world: &World) -> (Vec<Cost>, u64) {
    let blocks: Vec<_> = world.supports.iter().map(|support| HEADER + sparse(support, world.dim)).collect();
    let costs = (0..world.ranks()).map(|rank| {
        let mut cost = Cost::default();
        bruck(&mut cost, rank, &blocks);
        cost
    });
    (costs.collect(), log2_ceil(world.ranks()) as u64)
}

/// Messages to the children of a rank in a binomial tree.
fn children(rank: usize, ranks: usize) -> usize {
    (0..usize::BITS - 1).take_while(|bit| rank & (1 << bit) == 0 && rank + (1 << bit) < ranks).count()
}

fn broadcast(ranks: usize, root: usize, body: usize) -> (Vec<Cost>, u64) {
    let costs = (0..ranks).map(|rank| {
        let mut cost = Cost::default();
        (0..children((rank + ranks - root) % ranks, ranks)).for_each(|_| cost.send(body));
        cost
    });
    (costs.collect(), height(ranks))
}

fn gtopk_tree(ranks: usize, message: usize) -> (Vec<Cost>, u64) {
    let costs = (0..ranks).map(|rank| {
        let mut cost = Cost::default();
        for _ in 0..children(rank, ranks) + usize::from(rank > 0) {
            cost.send(message);
        }
        cost
    });
    (costs.collect(), 2 * height(ranks))
}

/// Where an owner marks the order of its candidates: at its share of the k, and from there at gaps that grow from one
/// or half the root of the share to half the distance (the k is small here), and at its last.
fn marks(candidates: usize, k: usize, ranks: usize) -> BTreeSet<usize> {
    let share = k.div_ceil(ranks).max(1);
    let gap = |distance: usize| (distance / 2).max(share.isqrt() / 2).max(1);
    let mut marks = BTreeSet::from([share, candidates]);
    let (mut down, mut up) = (share, share + gap(0));
    while down > 0 {
        marks.insert(down);
        down = down.saturating_sub(gap(share - down));
    }
    while up < candidates {
        marks.insert(up);
        up += gap(up - share);
    }
    marks.into_iter().filter(|mark| (1..=candidates).contains(mark)).collect()
}

/// What owners tell and pass on, for sums that decrease with the index and are few enough for ranges of equal length: the bytes
/// of their magnitudes, and how many of their sums survive.
fn owners(world: &World, k: usize) -> (Vec<usize>, Vec<usize>) {
    let ranks = world.ranks();
    let union = world.union();
    let candidates: Vec<_> = (0..ranks).map(|owner| world.within(&union, owner).len().min(k)).collect();
    let marks: Vec<_> = candidates.iter().map(|candidates| marks(*candidates, k, ranks)).collect();
    let magnitudes = marks.iter().map(|marks| HEADER + 8 + VALUE * marks.len()).collect();
    let mut wanted = k;
    let survivors = (0..ranks).map(|owner| {
        let passed = marks[owner].iter().copied().find(|mark| *mark >= wanted).unwrap_or(candidates[owner]);
        let passed = if wanted == 0 { 0 } else { passed };
        wanted -= wanted.min(passed);
        passed
    });
    let survivors = survivors.collect();
    (magnitudes, survivors)
}

fn gtopk_exact(world: &World, k: usize) -> (Vec<Cost>, u64) {
    let ranks = world.ranks();
    let (magnitudes, survivors) = owners(world, k);
    let survivors: Vec<_> = (0..ranks)
        .map(|owner| HEADER + sparse(&(0..survivors[owner] as u32).collect(), world.range(owner)))
        .collect();
    let costs = (0..ranks).map(|rank| {
        let mut cost = split(world, rank);
        bruck(&mut cost, rank, &magnitudes);
        if ranks == 3 && k > 0 {
            // The ring takes no more messages, and nobody sends a block twice.
            (0..2).for_each(|step| cost.send(survivors[(rank + 3 - step) % 3] - HEADER));
        } else {
            bruck(&mut cost, rank, &survivors);
        }
        cost
    });
    (costs.collect(), if ranks == 1 { 0 } else { 1 + 2 * log2_ceil(ranks) as u64 })
}

/// As the exact one, but that survivors move to even blocks where the gather would send more than twice its least.
fn oktopk(world: &World, k: usize) -> (Vec<Cost>, u64) {
    let ranks = world.ranks();
    let (magnitudes, survivors) = owners(world, k);
    let total: usize = survivors.iter().sum();
    let gathered = |rank: usize| -> usize {
        let rounds = (0..log2_ceil(ranks)).map(|round| 1 << round);
        rounds.flat_map(|d: usize| 0..d.min(ranks - d)).map(|i| survivors[(rank + i) % ranks]).sum()
    };
    let moves = (0..ranks).map(gathered).max() > Some(2 * (total - total / ranks) + ranks);
    // Where an owner's place among all begins: it has one more than entries.
    let start = |owner: usize| survivors[..owner].iter().map(|entries| entries + 1).sum::<usize>();
    let block = |block: usize| start(ranks) * block / ranks..start(ranks) * (block + 1) / ranks;
    let is_in = |owner, to| start(owner) < block(to).end && block(to).start < start(owner + 1);
    let part = |owner: usize, to: usize| {
        let cut = |place: usize| {
            let places = survivors[owner] + 1;
            (place.clamp(start(owner), start(owner + 1)) - start(owner)) * survivors[owner] / places
        };
        (cut(block(to).start) as u32..cut(block(to).end) as u32).collect::<Support>()
    };
    let blocks: Vec<_> = (0..ranks)
        .map(|to| {
            let owners: Vec<_> =
                (0..ranks).filter(|o| if moves { is_in(*o, to) } else { *o == to }).collect();
            let (first, last) = (owners[0], owners[owners.len() - 1]);
            let placed = owners.iter().flat_map(|owner| {
                let from_first = (world.cut(*owner) - world.cut(first)) as u32;
                let part = if moves { part(*owner, to) } else { (0..survivors[*owner] as u32).collect() };
                part.into_iter().map(move |index| index + from_first)
            });
            HEADER + sparse(&placed.collect(), world.cut(last + 1) - world.cut(first))
        })
        .collect();
    let costs = (0..ranks).map(|rank| {
        let mut cost = split(world, rank);
        bruck(&mut cost, rank, &magnitudes);
        for to in (0..ranks).filter(|to| moves && *to != rank && is_in(rank, *to)) {
            cost.send(sparse(&part(rank, to), world.range(rank)));
        }
        bruck(&mut cost, rank, &blocks);
        cost
    });
    let rounds = 1 + 2 * log2_ceil(ranks) as u64 + u64::from(moves);
    (costs.collect(), if ranks == 1 { 0 } else { rounds })
}

/// Bruck's allgather backwards and forwards, with the first `ceil(k/P)` of each range.
fn spardl(world: &World, k: usize) -> (Vec<Cost>, u64) {
    let ranks = world.ranks();
    let kept = |owner: usize| k.div_ceil(ranks).min(world.range(owner));
    let blocks: Vec<_> = (0..ranks)
        .map(|owner| HEADER + sparse(&(0..kept(owner) as u32).collect(), world.range(owner)))
        .collect();
    let costs = (0..ranks).map(|rank| {
        let mut cost = Cost::default();
        for distance in (0..log2_ceil(ranks)).map(|round| 1 << round) {
            let (mut support, mut dim) = (Support::new(), 0);
            for owner in (distance..ranks.min(2 * distance)).map(|after| (rank + after) % ranks) {
                support.extend(dim as u32..(dim + kept(owner)) as u32);
                dim += world.range(owner);
            }
            cost.send(sparse(&support, dim));
        }
        bruck(&mut cost, rank, &blocks);
        cost
    });
    (costs.collect(), 2 * log2_ceil(ranks) as u64)
}

/// Runs an operation on a counted world, and compares each rank's cost and the world's rounds.
/// `check` is the number of rounds of the check for the same call, a header each.
fn expect<F>(name: &str, ranks: usize, check: usize, expected: &(Vec<Cost>, u64), run: F)
where
    F: AsyncFn(Communicator<AnyTransport>, usize) + Sync,
{
    let counted: Vec<_> = local_world(ranks).into_iter().map(Counted::new).collect();
    let run = &run;
    let counts = run_world(counted, |transport| async move {
        let communicator = Communicator::new(AnyTransport::new(transport.clone()));
        run(communicator.clone(), communicator.rank().index()).await;
        let counts = transport.counts();
        assert_eq!(counts.bytes_sent, communicator.traffic().bytes_sent);
        assert_eq!(counts.messages_sent, communicator.traffic().messages_sent);
        counts
    });
    for (rank, counts) in counts.iter().enumerate() {
        let mut cost = expected.0[rank];
        if ranks > 1 {
            (0..check).for_each(|_| cost.send(0));
        }
        let counted = Cost { messages: counts.messages_sent, bytes: counts.bytes_sent };
        assert_eq!(counted, cost, "{name}, P = {ranks}, rank {rank}");
    }
    // A check of several rounds runs beside the data, so the two chains may be counted as one.
    let rounds = counts.iter().map(|counts| counts.rounds).max().unwrap();
    let of_check = if ranks > 1 { check as u64 } else { 0 };
    let longest = expected.1.max(of_check);
    let mixed = if of_check > 1 { expected.1 + of_check } else { longest };
    assert!((longest..=mixed).contains(&rounds), "{name}, P = {ranks}: {rounds} rounds, not {longest}");
}

#[test]
fn long_and_short_blocks_are_gathered_together() {
    for ranks in [2, 3, 4, 7] {
        // Every other rank's vector is long, and so is every other range of the sum.
        let dim = 40_000 * ranks as u32;
        let entries = |rank: usize| if rank.is_multiple_of(2) { 20_000 } else { 10 };
        let start = |rank: usize| rank as u32 * 40_000;
        let supports: Vec<Support> =
            (0..ranks).map(|rank| (start(rank)..start(rank) + entries(rank)).collect()).collect();
        let world = World { dim: dim as usize, supports };
        let input = |rank: usize| {
            let indices: Vec<u32> = world.supports[rank].iter().copied().collect();
            let values = indices.iter().map(|index| *index as f32).collect();
            SparseVec::new(u64::from(dim), indices, values).unwrap()
        };
        let sum = SparseVec::concat(
            &(0..ranks)
                .map(|rank| input(rank).slice(u64::from(start(rank))..u64::from(start(rank)) + 40_000))
                .collect::<Vec<_>>(),
        )
        .unwrap();
        for (algorithm, expected) in [
            (SparseAlgorithm::SsarSplitAllgather, ssar_split(&world)),
            (SparseAlgorithm::TopkAllgather, topk_allgather(&world)),
        ] {
            expect(&format!("{algorithm:?}"), ranks, 1, &expected, async |communicator, rank| {
                let found = communicator.allreduce(&input(rank), &algorithm).await.unwrap();
                assert_eq!(found.into_dense(), sum.to_dense());
            });
        }
    }
}

#[test]
fn a_long_vector_goes_round_in_pieces() {
    // Up to 1, 8 and 24 pieces of a range.
    for (ranks, dim) in [(2, 60_000), (3, 500_001), (5, 1_000_003), (2, 1_300_000)] {
        let world = World { dim, supports: vec![Support::new(); ranks] };
        expect("a long ring", ranks, 1, &dense_ring(&world), async |communicator, rank| {
            // Whole numbers, whose sums are exact.
            let values = |rank: usize| (0..dim).map(move |at| ((at * 7 + rank * 13) % 101) as f32);
            let expected: Vec<f32> = (0..dim).map(|_| 0.0).collect();
            let expected = (0..ranks).fold(expected, |mut sum, rank| {
                sum.iter_mut().zip(values(rank)).for_each(|(sum, value)| *sum += value);
                sum
            });
            let (input, mut sum) = (values(rank).collect::<Vec<_>>(), vec![f32::NAN; dim]);
            communicator.allreduce_dense(&input, &mut sum, DenseAlgorithm::Ring).await.unwrap();
            assert!(sum == expected, "P = {ranks}, N = {dim}");
        });
    }
}

#[test]
fn long_vectors_are_halved_in_pieces() {
    for (ranks, dim) in [(2, 60_000), (4, 500_001), (7, 300_003)] {
        let world = World { dim, supports: vec![Support::new(); ranks] };
        expect("long halves", ranks, 1, &rabenseifner(&world), async |communicator, rank| {
            let values = |rank: usize| (0..dim).map(move |at| ((at * 7 + rank * 13) % 101) as f32);
            let expected: Vec<f32> =
                (0..dim).map(|at| (0..ranks).map(|rank| ((at * 7 + rank * 13) % 101) as f32).sum()).collect();
            let (input, mut sum) = (values(rank).collect::<Vec<_>>(), vec![f32::NAN; dim]);
            communicator.allreduce_dense(&input, &mut sum, DenseAlgorithm::Rabenseifner).await.unwrap();
            assert!(sum == expected, "P = {ranks}, N = {dim}");
        });
    }
}

#[test]
fn long_sparse_ranges_go_round_in_pieces_each_in_its_own_form() {
    // 2, 8 and 16 pieces of a range; the lowest indices are full, so that the first pieces go dense.
    for (ranks, dim) in [(3, 1_000_000), (2, 4_000_000), (2, 5_000_000)] {
        let support = |rank: usize| (0..60_000).chain((60_000..dim).filter(move |at| at % 997 == rank * 13));
        let supports = (0..ranks).map(|rank| support(rank).map(|at| at as u32).collect()).collect();
        let world = World { dim, supports };
        let inputs: Vec<SparseVec<f32>> = (0..ranks)
            .map(|rank| {
                let indices: Vec<u32> = world.supports[rank].iter().copied().collect();
                let values = indices.iter().map(|at| (at % 101 + 1) as f32).collect();
                SparseVec::new(dim as u64, indices, values).unwrap()
            })
            .collect();
        let sum = sparse_core::reduce(&inputs).unwrap();
        expect("a long sparse ring", ranks, 1, &ssar_ring(&world), async |communicator, rank| {
            let found = communicator.allreduce(&inputs[rank], &SparseAlgorithm::SsarRing).await.unwrap();
            assert!(found.into_sparse().unwrap() == sum, "P = {ranks}, N = {dim}");
        });
    }
}

#[test]
fn every_allreduce_costs_what_it_documents() {
    for ranks in 1..=9 {
        for dim in common::dims(ranks) {
            for shape in Shape::ALL {
                let inputs: Vec<SparseVec<f32>> = world(shape, ranks, dim, 11);
                let supports = inputs.iter().map(|input| input.indices().iter().copied().collect()).collect();
                let world = World { dim: dim as usize, supports };
                let doubling_of =
                    |size: &dyn Fn(&Partial) -> usize| (doubling(&world, size), doubling_rounds(ranks));
                let name = |algorithm: &dyn std::fmt::Debug| format!("{algorithm:?}, {shape:?}, N = {dim}");

                for algorithm in
                    [DenseAlgorithm::Ring, DenseAlgorithm::RecursiveDoubling, DenseAlgorithm::Rabenseifner]
                {
                    let expected = match algorithm {
                        DenseAlgorithm::Ring => dense_ring(&world),
                        DenseAlgorithm::Rabenseifner => rabenseifner(&world),
                        _ => doubling_of(&|_| VALUE * world.dim),
                    };
                    expect(&name(&algorithm), ranks, 1, &expected, async |communicator, rank| {
                        let mut sum = vec![0.0; dim as usize];
                        let input = inputs[rank].to_dense();
                        communicator.allreduce_dense(&input, &mut sum, algorithm).await.unwrap();
                    });
                }
                let sparse = [
                    (
                        SparseAlgorithm::SsarRecursiveDoubling,
                        doubling_of(&|partial| partial.bytes(world.dim)),
                    ),
                    (SparseAlgorithm::SsarSplitAllgather, ssar_split(&world)),
                    (SparseAlgorithm::DsarSplitAllgather, dsar_split(&world)),
                    (SparseAlgorithm::TopkAllgather, topk_allgather(&world)),
                    (SparseAlgorithm::SsarRing, ssar_ring(&world)),
                ];
                for (algorithm, expected) in sparse {
                    expect(&name(&algorithm), ranks, 1, &expected, async |communicator, rank| {
                        communicator.allreduce(&inputs[rank], &algorithm).await.unwrap();
                    });
                }
            }
        }
    }
}

#[test]
fn every_reduce_scatter_costs_what_it_documents() {
    for ranks in 1..=9 {
        for dim in common::dims(ranks) {
            for shape in Shape::ALL {
                let inputs: Vec<SparseVec<f32>> = world(shape, ranks, dim, 12);
                let supports = inputs.iter().map(|input| input.indices().iter().copied().collect()).collect();
                let world = World { dim: dim as usize, supports };
                let rounds = u64::from(ranks > 1);
                let expected = ((0..ranks).map(|rank| split(&world, rank)).collect(), rounds);
                expect("reduce_scatter", ranks, 1, &expected, async |communicator, rank| {
                    communicator.reduce_scatter(&inputs[rank]).await.unwrap();
                });
                let costs = (0..ranks).map(|rank| {
                    let mut cost = Cost::default();
                    // The own range is the only one that a rank never sends.
                    (1..ranks).for_each(|step| cost.send(VALUE * world.range((rank + step) % ranks)));
                    cost
                });
                let expected = (costs.collect(), ranks as u64 - 1);
                expect("reduce_scatter_dense", ranks, 1, &expected, async |communicator, rank| {
                    let mut part = vec![0.0; world.range(rank)];
                    communicator.reduce_scatter_dense(&inputs[rank].to_dense(), &mut part).await.unwrap();
                });
            }
        }
        let blocks = vec![16; ranks];
        let costs = (0..ranks).map(|rank| {
            let mut cost = Cost::default();
            bruck(&mut cost, rank, &blocks);
            cost
        });
        expect("split", ranks, 1, &(costs.collect(), log2_ceil(ranks) as u64), async |communicator, rank| {
            communicator.split(Some(rank as u32 % 2), 0).await.unwrap();
        });
    }
}

#[test]
fn every_reduce_and_gather_costs_what_it_documents() {
    for ranks in 1..=9 {
        for dim in common::dims(ranks) {
            for shape in Shape::ALL {
                let inputs: Vec<SparseVec<f32>> = world(shape, ranks, dim, 13);
                let supports = inputs.iter().map(|input| input.indices().iter().copied().collect()).collect();
                let world = World { dim: dim as usize, supports };
                let (union, whole) = (world.union(), VALUE * world.dim);

                expect("allgather_sparse", ranks, 1, &topk_allgather(&world), async |communicator, rank| {
                    communicator.allgather_sparse(&inputs[rank]).await.unwrap();
                });
                let costs = (0..ranks).map(|rank| {
                    let mut cost = Cost::default();
                    bruck(&mut cost, rank, &vec![HEADER + whole; ranks]);
                    cost
                });
                let expected = (costs.collect(), log2_ceil(ranks) as u64);
                expect("allgather_dense", ranks, 1, &expected, async |communicator, rank| {
                    let mut all = vec![0.0; dim as usize * ranks];
                    communicator.allgather_dense(&inputs[rank].to_dense(), &mut all).await.unwrap();
                });

                for root in [0, ranks / 2, ranks - 1] {
                    let at = Rank::from_index(root);
                    let to_root = |rank: usize, mut cost: Cost, body: usize| {
                        if rank != root {
                            cost.send(body);
                        }
                        cost
                    };
                    let rounds = if ranks > 1 { 2 } else { 0 };
                    let costs = (0..ranks).map(|rank| {
                        let sum = shorter(&world.within(&union, rank), world.range(rank));
                        to_root(rank, split(&world, rank), sum)
                    });
                    expect("reduce", ranks, 1, &(costs.collect(), rounds), async |communicator, rank| {
                        communicator.reduce(at, &inputs[rank]).await.unwrap();
                    });
                    let costs = (0..ranks).map(|rank| {
                        let mut cost = Cost::default();
                        (1..ranks).for_each(|step| cost.send(VALUE * world.range((rank + step) % ranks)));
                        to_root(rank, cost, VALUE * world.range(rank))
                    });
                    expect(
                        "reduce_dense",
                        ranks,
                        1,
                        &(costs.collect(), rounds),
                        async |communicator, rank| {
                            let mut sum = vec![0.0; dim as usize];
                            communicator.reduce_dense(at, &inputs[rank].to_dense(), &mut sum).await.unwrap();
                        },
                    );
                    for (body, stream) in [
                        (sparse(&world.supports[root], world.dim), Stream::Sparse(inputs[root].clone())),
                        (whole, Stream::Dense(inputs[root].to_dense())),
                    ] {
                        let costs = broadcast(ranks, root, body);
                        expect(
                            "broadcast_stream",
                            ranks,
                            log2_ceil(ranks),
                            &costs,
                            async |communicator, _| {
                                communicator.broadcast_stream(at, stream.clone()).await.unwrap();
                            },
                        );
                    }
                }
            }
        }
    }
}

#[test]
fn every_gtopk_costs_what_it_documents() {
    for ranks in 1..=9 {
        // With 60 of 900, one owner has all that survives.
        for (dim, k) in [(40, 0), (40, 1), (40, 20), (900, 60)] {
            // The first k entries are the largest of every rank, so every message has exactly those.
            let values = |rank: usize| (0..dim).map(move |index| (1000 - index) as f32 + rank as f32);
            let inputs: Vec<_> = (0..ranks)
                .map(|rank| SparseVec::from_dense(&values(rank).collect::<Vec<_>>()).unwrap())
                .collect();
            let largest: Support = (0..k as u32).collect();
            let message = sparse(&largest, dim);
            let world = World { dim, supports: vec![largest; ranks] };
            for algorithm in common::GTOPK {
                let all = World { dim, supports: vec![(0..dim as u32).collect(); ranks] };
                let expected = match algorithm {
                    GtopkAlgorithm::Tree => gtopk_tree(ranks, message),
                    GtopkAlgorithm::Exact => gtopk_exact(&all, k),
                    GtopkAlgorithm::Spardl => spardl(&all, k),
                    GtopkAlgorithm::Oktopk => oktopk(&world, k),
                    _ => (doubling(&world, |_| message), doubling_rounds(ranks)),
                };
                let name = format!("{algorithm:?}, {k} of {dim}");
                expect(&name, ranks, 1, &expected, async |communicator, rank| {
                    communicator.gtopk(&inputs[rank], k, algorithm, PutBack::Conserving).await.unwrap();
                });
            }
        }
    }
}

#[test]
fn every_level_of_a_hierarchy_costs_what_it_documents() {
    // The colors of nine ranks: groups of equal sizes, of three sizes, one group, each alone.
    for colors in
        [[0, 0, 0, 1, 1, 1, 2, 2, 2], [0, 1, 1, 2, 2, 2, 1, 2, 2], [3; 9], [0, 1, 2, 3, 4, 5, 6, 7, 8]]
    {
        let mut groups = vec![Vec::new(); 9];
        (0..9).for_each(|rank| groups[colors[rank]].push(rank));
        groups.retain(|group| !group.is_empty());
        groups.sort();
        let shards = groups.iter().map(Vec::len).min().unwrap();
        for dim in [0, 5, 400] {
            let inputs: Vec<SparseVec<f32>> = world(Shape::Random, 9, dim as u64, 14);
            let support = |rank: usize| -> Support { inputs[rank].indices().iter().copied().collect() };
            let cut = |place: usize| dim * place.min(shards) / shards;
            let length = |place: usize| cut(place + 1) - cut(place);
            let within = |support: &Support, place: usize| -> Support {
                support
                    .range(cut(place) as u32..cut(place + 1) as u32)
                    .map(|at| at - cut(place) as u32)
                    .collect()
            };
            let union =
                |members: &[usize]| -> Support { members.iter().flat_map(|rank| support(*rank)).collect() };
            let all = union(&(0..9).collect::<Vec<_>>());
            // The k largest of all ranks are the first k, as in the test of the global top-k.
            let k = 3.min(dim);
            let largest = sparse(&(0..k as u32).collect(), dim);
            let rows: Vec<f32> = (0..dim).map(|at| (1000 - at) as f32).collect();
            let first = SparseVec::from_dense(&rows).unwrap();

            let mut expected = vec![[Cost::default(); 3]; 9];
            for (group, members) in groups.iter().enumerate() {
                for (place, rank) in members.iter().enumerate() {
                    let [dense, sums, top] = &mut expected[*rank];
                    let add = |cost: &mut Cost, of: Cost| {
                        cost.messages += of.messages;
                        cost.bytes += of.bytes;
                    };
                    for other in (0..members.len()).filter(|other| *other != place) {
                        dense.send(VALUE * length(other));
                        sums.send(sparse(&within(&support(*rank), other), length(other)));
                    }
                    if place < shards {
                        let shard = |members: &Vec<usize>| within(&union(members), place);
                        let supports: Vec<_> = groups.iter().map(shard).collect();
                        let shard = World { dim: length(place), supports };
                        if groups.len() > 1 {
                            add(dense, dense_ring(&shard).0[group]);
                        }
                        add(sums, topk_allgather(&shard).0[group]);
                    }
                    let places = 0..members.len();
                    let blocks: Vec<_> = places.clone().map(|place| HEADER + VALUE * length(place)).collect();
                    bruck(dense, place, &blocks);
                    let block = |place| match place < shards {
                        true => HEADER + shorter(&within(&all, place), length(place)),
                        false => HEADER + sparse(&Support::new(), 0),
                    };
                    bruck(sums, place, &places.map(block).collect::<Vec<_>>());
                    add(top, gtopk_tree(members.len(), largest).0[place]);
                    if place == 0 {
                        add(top, gtopk_tree(groups.len(), largest).0[group]);
                    }
                    add(top, broadcast(members.len(), 0, largest).0[place]);
                    // The check.
                    expected[*rank].iter_mut().for_each(|cost| cost.send(0));
                }
            }
            let counted = run_world(local_world(9), |transport| {
                let (inputs, first) = (&inputs, &first);
                async move {
                    let communicator = Communicator::new(transport);
                    let rank = communicator.rank().index();
                    let hierarchy = communicator.hierarchy(colors[rank] as u32).await.unwrap();
                    let mut counted = Vec::new();
                    let mut before = hierarchy.communicator().traffic();
                    for which in 0..3 {
                        match which {
                            0 => {
                                let (input, mut sum) = (inputs[rank].to_dense(), vec![0.0; dim]);
                                hierarchy
                                    .allreduce_dense(&input, &mut sum, DenseAlgorithm::Ring)
                                    .await
                                    .unwrap();
                            }
                            1 => {
                                let all = SparseAlgorithm::TopkAllgather;
                                drop(hierarchy.allreduce(&inputs[rank], &all).await.unwrap());
                            }
                            _ => {
                                let tree = GtopkAlgorithm::Tree;
                                drop(hierarchy.gtopk(first, k, tree, PutBack::Conserving).await.unwrap());
                            }
                        }
                        let after = hierarchy.communicator().traffic();
                        counted.push(Cost {
                            messages: after.messages_sent - before.messages_sent,
                            bytes: after.bytes_sent - before.bytes_sent,
                        });
                        before = after;
                    }
                    counted
                }
            });
            for (rank, counted) in counted.iter().enumerate() {
                assert_eq!(*counted, expected[rank], "{groups:?}, N = {dim}, rank {rank}");
            }
        }
    }
}

#[test]
fn allgather_broadcast_and_barrier_cost_what_they_document() {
    for ranks in 1..=9 {
        let blocks: Vec<usize> = (0..ranks).map(|rank| rank * 10).collect();
        let gather = (0..ranks).map(|rank| {
            let mut cost = Cost::default();
            bruck(&mut cost, rank, &blocks);
            cost
        });
        let expected = (gather.collect(), log2_ceil(ranks) as u64);
        expect("allgather", ranks, 1, &expected, async |communicator, rank| {
            communicator.allgather(vec![0; rank * 10].into()).await.unwrap();
        });

        for root in 0..ranks {
            let expected = broadcast(ranks, root, 100);
            expect("broadcast", ranks, log2_ceil(ranks), &expected, async |communicator, _| {
                communicator.broadcast(Rank::from_index(root), vec![0; 100].into()).await.unwrap();
            });
        }

        let expected = (vec![Cost::default(); ranks], 0);
        expect("barrier", ranks, log2_ceil(ranks), &expected, async |communicator, _| {
            communicator.barrier().await.unwrap();
        });
    }
}
