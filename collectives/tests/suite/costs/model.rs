//! What each rank sends by each algorithm's steps, and in how many rounds: computed naively, apart from the algorithms.

use std::collections::BTreeSet;

use sparse_core::codec;
use sparse_core::wire::HEADER;

/// What one rank sends, and the longest chain of dependent messages in the world.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Cost {
    pub(super) messages: u64,
    pub(super) bytes: u64,
}

impl Cost {
    /// Sends one message with a body of this many bytes.
    pub(super) fn send(&mut self, body: usize) {
        self.messages += 1;
        self.bytes += (HEADER + body) as u64;
    }
}

pub(super) const VALUE: usize = 4;
/// What an entry takes in memory, which decides whether a sum is dense.
pub(super) const ENTRY: usize = 8;

pub(super) type Support = BTreeSet<u32>;

pub(super) struct World {
    pub(super) dim: usize,
    pub(super) supports: Vec<Support>,
}

impl World {
    pub(super) fn ranks(&self) -> usize {
        self.supports.len()
    }

    pub(super) fn cut(&self, part: usize) -> usize {
        self.dim * part / self.ranks()
    }

    /// The length of a range of the index space.
    pub(super) fn range(&self, part: usize) -> usize {
        self.cut(part + 1) - self.cut(part)
    }

    /// Those of these indices that are in a range, counted from its start.
    pub(super) fn within(&self, support: &Support, part: usize) -> Support {
        let (start, end) = (self.cut(part) as u32, self.cut(part + 1) as u32);
        support.range(start..end).map(|index| index - start).collect()
    }

    pub(super) fn union(&self) -> Support {
        self.supports.iter().flatten().copied().collect()
    }
}

/// Bytes of a sparse vector with these indices: its values, and the indices in the shortest codec.
pub(super) fn sparse(support: &Support, dim: usize) -> usize {
    let indices: Vec<u32> = support.iter().copied().collect();
    indices.len() * VALUE + codec::encoded_len(dim as u64, &indices, 0)
}

/// Bytes of the form that a sum takes.
pub(super) fn shorter(support: &Support, dim: usize) -> usize {
    if support.len() * ENTRY >= dim * VALUE { dim * VALUE } else { sparse(support, dim) }
}

pub(super) fn log2_ceil(ranks: usize) -> usize {
    (0..).find(|bits| 1 << bits >= ranks).unwrap()
}

/// Blocks of so many bytes travel alone in Bruck's allgather.
pub(super) const LONG: usize = 64 << 10;

/// Bruck: round i passes on the first min(2^i, P - 2^i) blocks, counted from the own one.
pub(super) fn bruck(cost: &mut Cost, rank: usize, blocks: &[usize]) {
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
pub(super) struct Partial {
    pub(super) support: Support,
    pub(super) dense: bool,
}

impl Partial {
    pub(super) fn bytes(&self, dim: usize) -> usize {
        if self.dense { dim * VALUE } else { sparse(&self.support, dim) }
    }

    pub(super) fn merge(&self, other: &Self, dim: usize) -> Self {
        let entries = self.support.len() + other.support.len();
        let dense = self.dense || other.dense || entries * ENTRY >= dim * VALUE;
        Self { support: self.support.union(&other.support).copied().collect(), dense }
    }
}

/// Recursive doubling with the ranks beyond the power of two folded into their neighbours; returns what
/// each rank sends where a message holds what `size` says of a partial sum.
pub(super) fn doubling(world: &World, size: impl Fn(&Partial) -> usize) -> Vec<Cost> {
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
pub(super) fn doubling_rounds(ranks: usize) -> u64 {
    let active = 1_usize << ranks.ilog2();
    let extra = ranks - active;
    let folded = |position: usize| u32::from(position < extra);
    let chains = (0..active)
        .flat_map(|from| (0..active).map(move |to| folded(from) + (from ^ to).count_ones() + folded(to)));
    let there_and_back = if extra > 0 { 2 } else { 0 };
    u64::from(chains.max().unwrap().max(there_and_back))
}

/// The height of a binomial tree: the longest chain from a leaf to the root.
pub(super) fn height(ranks: usize) -> u64 {
    (0..ranks).map(|rank| u64::from(rank.count_ones())).max().unwrap()
}

pub(super) fn dense_ring(world: &World) -> (Vec<Cost>, u64) {
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
pub(super) fn rabenseifner(world: &World) -> (Vec<Cost>, u64) {
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
pub(super) fn ssar_ring(world: &World) -> (Vec<Cost>, u64) {
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
pub(super) fn split(world: &World, rank: usize) -> Cost {
    let mut cost = Cost::default();
    for owner in (0..world.ranks()).filter(|owner| *owner != rank) {
        cost.send(sparse(&world.within(&world.supports[rank], owner), world.range(owner)));
    }
    cost
}

pub(super) fn ssar_split(world: &World) -> (Vec<Cost>, u64) {
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

pub(super) fn dsar_split(world: &World) -> (Vec<Cost>, u64) {
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

pub(super) fn topk_allgather(world: &World) -> (Vec<Cost>, u64) {
    let blocks: Vec<_> = world.supports.iter().map(|support| HEADER + sparse(support, world.dim)).collect();
    let costs = (0..world.ranks()).map(|rank| {
        let mut cost = Cost::default();
        bruck(&mut cost, rank, &blocks);
        cost
    });
    (costs.collect(), log2_ceil(world.ranks()) as u64)
}

/// Messages to the children of a rank in a binomial tree.
pub(super) fn children(rank: usize, ranks: usize) -> usize {
    (0..usize::BITS - 1).take_while(|bit| rank & (1 << bit) == 0 && rank + (1 << bit) < ranks).count()
}

pub(super) fn broadcast(ranks: usize, root: usize, body: usize) -> (Vec<Cost>, u64) {
    let costs = (0..ranks).map(|rank| {
        let mut cost = Cost::default();
        (0..children((rank + ranks - root) % ranks, ranks)).for_each(|_| cost.send(body));
        cost
    });
    (costs.collect(), height(ranks))
}

pub(super) fn gtopk_tree(ranks: usize, message: usize) -> (Vec<Cost>, u64) {
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
pub(super) fn marks(candidates: usize, k: usize, ranks: usize) -> BTreeSet<usize> {
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
pub(super) fn owners(world: &World, k: usize) -> (Vec<usize>, Vec<usize>) {
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

pub(super) fn gtopk_exact(world: &World, k: usize) -> (Vec<Cost>, u64) {
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
pub(super) fn oktopk(world: &World, k: usize) -> (Vec<Cost>, u64) {
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
pub(super) fn spardl(world: &World, k: usize) -> (Vec<Cost>, u64) {
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
