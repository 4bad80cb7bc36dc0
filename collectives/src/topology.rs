//! Who talks to whom: rank arithmetic as pure functions, apart from the I/O.

use std::ops::Range;

/// `ceil(log2 ranks)`: the rounds of a dissemination or of Bruck's allgather.
pub(crate) const fn rounds(ranks: usize) -> u32 {
    ranks.next_power_of_two().trailing_zeros()
}

/// The rank `distance` places after `rank`, around the ring.
pub(crate) const fn after(rank: usize, distance: usize, ranks: usize) -> usize {
    (rank + distance) % ranks
}

/// The rank `distance` places before `rank`, around the ring; `distance <= ranks`.
pub(crate) const fn before(rank: usize, distance: usize, ranks: usize) -> usize {
    (rank + ranks - distance) % ranks
}

/// Part `part` of `0..dim` cut into `parts` ranges whose lengths differ by at most one.
pub(crate) fn range(dim: u64, parts: usize, part: usize) -> Range<u64> {
    let cut = |i: usize| (u128::from(dim) * i as u128 / parts as u128) as u64;
    cut(part)..cut(part + 1)
}

/// All [`range`]s.
pub(crate) fn ranges(dim: u64, parts: usize) -> Vec<Range<u64>> {
    (0..parts).map(|part| range(dim, parts, part)).collect()
}

/// [`range`] for a slice in memory.
pub(crate) fn slice_range(len: usize, parts: usize, part: usize) -> Range<usize> {
    let range = range(len as u64, parts, part);
    range.start as usize..range.end as usize
}

/// The most that any rank sends in Bruck's allgather of blocks of these sizes.
pub(crate) fn bruck_most_sent(blocks: &[usize]) -> usize {
    let ranks = blocks.len();
    // Blocks go on from each rank round the ring.
    let mut before = vec![0; 2 * ranks + 1];
    for at in 0..2 * ranks {
        before[at + 1] = before[at] + blocks[at % ranks];
    }
    let passed = |rank: usize, distance: usize| before[rank + distance.min(ranks - distance)] - before[rank];
    let sent = |rank| (0..rounds(ranks)).map(|round| passed(rank, 1 << round)).sum();
    (0..ranks).map(sent).max().unwrap_or(0)
}

/// Whose entries are in whose block where all blocks are to have as many: entries lie in the order of their owners, and
/// block `t` of P is the `t`-th P-th of them. Owners and blocks are those of the ranks.
#[derive(Debug)]
pub(crate) struct EvenBlocks {
    /// Where the entries of each owner begin, and where those of the last end.
    starts: Vec<u64>,
}

impl EvenBlocks {
    /// For owners that have at least so many entries. Each is given a place for one more, so that none has no place for
    /// those that nobody knows of.
    pub(crate) fn new(entries: &[usize]) -> Self {
        let ends = entries.iter().scan(0, |end, entries| {
            *end += *entries as u64 + 1;
            Some(*end)
        });
        Self { starts: [0].into_iter().chain(ends).collect() }
    }

    /// The owners that have places in a block.
    pub(crate) fn owners(&self, block: usize) -> Range<usize> {
        let block = self.block(block);
        let first = self.starts.partition_point(|start| *start <= block.start) - 1;
        first..self.starts.partition_point(|start| *start < block.end)
    }

    /// Of an owner's `count` entries, those that are in a block.
    pub(crate) fn part(&self, owner: usize, block: usize, count: usize) -> Range<usize> {
        let (start, end) = (self.starts[owner], self.starts[owner + 1]);
        let block = self.block(block);
        let cut = |place: u64| {
            let place = u128::from(place.clamp(start, end) - start);
            (place * count as u128 / u128::from(end - start)) as usize
        };
        cut(block.start)..cut(block.end)
    }

    fn block(&self, block: usize) -> Range<u64> {
        let owners = self.starts.len() - 1;
        range(self.starts[owners], owners, block)
    }
}

/// Recursive doubling for any number of ranks: those beyond the largest power of two first hand
/// their operand to a neighbour, idle through the rounds, and get the result at the end.
///
/// Active ranks are numbered by *position*, in the order of their ranks, so that a group of
/// positions is always a contiguous run of ranks and operands can be combined in rank order.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fold {
    extra: usize,
    active: usize,
}

/// What a rank does in a [`Fold`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Role {
    /// Hands its operand to the rank, and receives the result from it.
    Folded { into: usize },
    /// Takes part at this position, after it took over the operand of `from`.
    Active { position: usize, from: Option<usize> },
}

impl Fold {
    pub(crate) const fn new(ranks: usize) -> Self {
        let active = 1 << ranks.ilog2();
        Self { extra: ranks - active, active }
    }

    /// How many rounds the active ranks exchange.
    pub(crate) const fn rounds(self) -> u32 {
        self.active.trailing_zeros()
    }

    pub(crate) const fn role(self, rank: usize) -> Role {
        if rank >= 2 * self.extra {
            Role::Active { position: rank - self.extra, from: None }
        } else if rank.is_multiple_of(2) {
            Role::Folded { into: rank + 1 }
        } else {
            Role::Active { position: rank / 2, from: Some(rank - 1) }
        }
    }

    /// The rank at a position.
    pub(crate) const fn rank(self, position: usize) -> usize {
        if position < self.extra { 2 * position + 1 } else { position + self.extra }
    }

    /// The longest chain of messages that wait for each other: a round for each bit in which two positions differ, and
    /// one more for each end that is folded.
    pub(crate) const fn longest_chain(self) -> u32 {
        let rounds = self.rounds();
        if self.extra == 0 {
            return rounds;
        }
        let between_folded = usize::BITS - (self.extra - 1).leading_zeros();
        if between_folded + 2 > rounds + 1 { between_folded + 2 } else { rounds + 1 }
    }

    /// How many ranks hand their operand to a neighbour.
    pub(crate) const fn extra(self) -> usize {
        self.extra
    }

    /// The rank that `position` exchanges with in `round`, and whether it is the higher one.
    pub(crate) const fn partner(self, position: usize, round: u32) -> (usize, bool) {
        let partner = position ^ (1 << round);
        (self.rank(partner), partner > position)
    }
}

/// Binomial tree over ranks relative to the root (the root is 0).
pub(crate) mod tree {
    /// The parent of a rank; the root has none.
    pub(crate) const fn parent(relative: usize) -> Option<usize> {
        if relative == 0 { None } else { Some(relative & (relative - 1)) }
    }

    /// The children of a rank, nearest first: the order in which a reduction meets them.
    pub(crate) fn children(relative: usize, ranks: usize) -> impl DoubleEndedIterator<Item = usize> {
        let height = if relative == 0 { usize::BITS - 1 } else { relative.trailing_zeros() };
        (0..height)
            .map(move |bit| relative.saturating_add(1 << bit))
            .take_while(move |child| *child < ranks)
            .collect::<Vec<_>>()
            .into_iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_tile_the_dimension_evenly() {
        for parts in 1..=9 {
            for dim in [0, 1, 7, 8, 9, 1000, u64::from(u32::MAX) + 1] {
                let ranges: Vec<_> = (0..parts).map(|part| range(dim, parts, part)).collect();
                assert_eq!((ranges[0].start, ranges[parts - 1].end), (0, dim));
                assert!(ranges.windows(2).all(|pair| pair[0].end == pair[1].start));
                let lengths = ranges.iter().map(|r| r.end - r.start);
                assert!(lengths.clone().max().unwrap() - lengths.min().unwrap() <= 1);
            }
        }
    }

    #[test]
    fn in_bruck_a_large_block_is_sent_each_round_by_its_owner_and_equal_ones_once_by_each() {
        assert_eq!(bruck_most_sent(&[7]), 0);
        assert_eq!(bruck_most_sent(&[0, 0, 7, 0, 0, 0, 0, 0]), 21);
        assert_eq!(bruck_most_sent(&[7; 5]), 28);
        assert_eq!(bruck_most_sent(&[1, 2, 3]), 3 + 3);
    }

    #[test]
    fn even_blocks_tile_every_owner_s_entries() {
        for entries in [vec![0], vec![5, 0], vec![0, 0, 9], vec![1000, 0, 0, 0, 3], vec![7; 9], vec![0; 6]] {
            let (even, ranks) = (EvenBlocks::new(&entries), entries.len());
            for (owner, known) in entries.iter().enumerate() {
                for count in [*known, known + 3, 0] {
                    let blocks = (0..ranks).filter(|block| even.owners(*block).contains(&owner));
                    let parts: Vec<_> = blocks.map(|block| even.part(owner, block, count)).collect();
                    assert_eq!((parts[0].start, parts[parts.len() - 1].end), (0, count));
                    assert!(parts.windows(2).all(|pair| pair[0].end == pair[1].start));
                    let none = (0..ranks).filter(|block| !even.owners(*block).contains(&owner));
                    assert!(none.into_iter().all(|block| even.part(owner, block, count).is_empty()));
                }
            }
            let share = entries.iter().sum::<usize>() / ranks;
            for block in 0..ranks {
                let owners = even.owners(block);
                let length: usize = owners.map(|owner| even.part(owner, block, entries[owner]).len()).sum();
                // To one for each owner, and one for the place that each is given.
                assert!(length.abs_diff(share) <= ranks + 1, "{length} of {entries:?} in {block}");
            }
        }
    }

    #[test]
    fn a_fold_places_every_rank_once_and_in_rank_order() {
        for ranks in 1..=33 {
            let fold = Fold::new(ranks);
            let mut positions = Vec::new();
            let mut handed = Vec::new();
            for rank in 0..ranks {
                match fold.role(rank) {
                    Role::Folded { into } => handed.push((rank, into)),
                    Role::Active { position, from } => {
                        assert_eq!(fold.rank(position), rank);
                        assert_eq!(
                            from,
                            handed.iter().find(|(_, into)| *into == rank).map(|(from, _)| *from)
                        );
                        positions.push(position);
                    }
                }
            }
            assert_eq!(positions, (0..1 << fold.rounds()).collect::<Vec<_>>());
        }
    }

    #[test]
    fn partners_in_a_fold_are_mutual() {
        for ranks in 1..=33 {
            let fold = Fold::new(ranks);
            for position in 0..1 << fold.rounds() {
                for round in 0..fold.rounds() {
                    let (partner, higher) = fold.partner(position, round);
                    let Role::Active { position: other, .. } = fold.role(partner) else {
                        panic!("{partner} is idle")
                    };
                    assert_eq!(fold.partner(other, round), (fold.rank(position), !higher));
                }
            }
        }
    }

    #[test]
    fn no_chain_through_a_fold_is_longer_than_the_longest() {
        for ranks in 1..=65 {
            let fold = Fold::new(ranks);
            let folded = |position: usize| u32::from(position < fold.extra());
            let positions = || 0..1_usize << fold.rounds();
            let chains = positions().flat_map(|from| {
                positions().map(move |to| folded(from) + (from ^ to).count_ones() + folded(to))
            });
            assert_eq!(Some(fold.longest_chain()), chains.max(), "{ranks}");
        }
    }

    #[test]
    fn the_tree_reaches_every_rank_from_its_parent() {
        for ranks in 1..=33 {
            let mut seen = vec![0; ranks];
            seen[0] = 1;
            for rank in 0..ranks {
                for child in tree::children(rank, ranks) {
                    assert_eq!(tree::parent(child), Some(rank));
                    seen[child] += 1;
                }
            }
            assert!(seen.iter().all(|count| *count == 1), "{ranks}: {seen:?}");
        }
    }

    #[test]
    fn rounds_are_the_ceiling_of_the_logarithm() {
        assert_eq!([1, 2, 3, 4, 5, 8, 9].map(rounds), [0, 1, 2, 2, 3, 3, 4]);
    }
}
