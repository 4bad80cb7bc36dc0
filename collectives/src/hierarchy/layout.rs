//! Which ranks make which group, and who talks to whom: pure functions.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::topology;

/// The groups, by their lowest ranks, and where this rank is among them.
#[derive(Debug)]
pub(crate) struct Layout {
    /// The ranks of each group, in order.
    groups: Vec<Vec<usize>>,
    /// This rank's group.
    group: usize,
    /// This rank's place in it.
    place: usize,
}

impl Layout {
    /// Groups of the ranks that have the same color; none if there is no such rank.
    pub(crate) fn new(colors: &[u32], rank: usize) -> Option<Self> {
        let mut groups: Vec<Vec<usize>> = Vec::new();
        let mut of_color = BTreeMap::new();
        for (rank, color) in colors.iter().enumerate() {
            let group = *of_color.entry(color).or_insert(groups.len());
            match groups.get_mut(group) {
                Some(members) => members.push(rank),
                None => groups.push(vec![rank]),
            }
        }
        let group = *of_color.get(colors.get(rank)?)?;
        let place = groups.get(group)?.iter().position(|member| *member == rank)?;
        Some(Self { groups, group, place })
    }

    pub(crate) fn groups(&self) -> usize {
        self.groups.len()
    }

    pub(crate) fn group(&self) -> usize {
        self.group
    }

    pub(crate) fn place(&self) -> usize {
        self.place
    }

    /// The ranks of this rank's group.
    pub(crate) fn inside(&self) -> &[usize] {
        &self.groups[self.group]
    }

    /// The ranks, one of each group, that own the same shard as this rank; none if it owns no shard. The first of each group
    /// always owns one.
    pub(crate) fn across(&self) -> Option<Vec<usize>> {
        (self.place < self.shards()).then(|| self.groups.iter().map(|members| members[self.place]).collect())
    }

    /// A range of `0..dim` for each rank of the group: its shard, or nothing. Alike in all groups.
    pub(crate) fn ranges(&self, dim: u64) -> Vec<Range<u64>> {
        let mut ranges = topology::ranges(dim, self.shards());
        ranges.resize(self.inside().len(), dim..dim);
        ranges
    }

    /// As many as the smallest group has ranks.
    fn shards(&self) -> usize {
        self.groups.iter().map(Vec::len).min().unwrap_or(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_shard_has_one_owner_in_each_group_who_know_each_other() {
        for colors in
            [&[7][..], &[1, 1, 1], &[3, 2, 1], &[5, 5, 9, 9, 9, 5], &[0, 1, 0, 1, 1, 1, 1], &[2, 2, 8]]
        {
            let layouts: Vec<_> = (0..colors.len()).map(|rank| Layout::new(colors, rank).unwrap()).collect();
            for (rank, layout) in layouts.iter().enumerate() {
                let same = |other: &usize| colors[*other] == colors[rank];
                assert_eq!(layout.inside(), (0..colors.len()).filter(same).collect::<Vec<_>>());
                assert_eq!(layout.inside()[layout.place()], rank);
                for dim in [0, 1, 10] {
                    let ranges = layout.ranges(dim);
                    assert_eq!(ranges.len(), layout.inside().len());
                    assert_eq!((ranges[0].start, ranges[ranges.len() - 1].end), (0, dim));
                    assert!(ranges.windows(2).all(|pair| pair[0].end == pair[1].start));
                    assert!(layout.across().is_some() || ranges[layout.place()].is_empty());
                    for owner in layout.across().into_iter().flatten() {
                        assert_eq!(layouts[owner].across(), layout.across());
                        assert_eq!(layouts[owner].ranges(dim)[layout.place()], ranges[layout.place()]);
                    }
                }
            }
            let owners =
                |group| layouts.iter().filter(|l| l.group() == group && l.across().is_some()).count();
            let smallest = layouts.iter().map(|layout| layout.inside().len()).min().unwrap();
            assert!((0..layouts[0].groups()).all(|group| owners(group) == smallest), "{colors:?}");
        }
    }
}
