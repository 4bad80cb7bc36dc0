//! Which ranks of the world a communicator has, and the contexts of those that `split` makes.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use transport::{Rank, Transport};

use crate::error::Error;
use crate::topology::rounds;

/// The ranks of a communicator, numbered from 0, among those of the world.
#[derive(Clone, Debug)]
pub(crate) struct Group {
    rank: usize,
    size: usize,
    /// The rank in the world of each; none where the group is the world.
    members: Option<Arc<[Rank]>>,
}

impl Group {
    pub(crate) fn world(transport: &impl Transport) -> Self {
        Self { rank: transport.rank().index(), size: transport.world_size(), members: None }
    }

    /// The group of these ranks of the world, of which this is one.
    pub(crate) fn of(members: Vec<Rank>, this: Rank) -> Option<Self> {
        let rank = members.iter().position(|member| *member == this)?;
        Some(Self::new(members, rank))
    }

    /// The group of these ranks of the world, this one with that number.
    pub(crate) fn new(members: Vec<Rank>, rank: usize) -> Self {
        Self { rank, size: members.len(), members: Some(members.into()) }
    }

    /// This rank's number in the group.
    pub(crate) fn rank(&self) -> usize {
        self.rank
    }

    pub(crate) fn size(&self) -> usize {
        self.size
    }

    pub(crate) fn is_world(&self) -> bool {
        self.members.is_none()
    }

    /// The rank in the world of a rank of the group.
    pub(crate) fn in_world(&self, rank: usize) -> Rank {
        let member = self.members.as_ref().and_then(|members| members.get(rank)).copied();
        member.unwrap_or_else(|| Rank::from_index(rank))
    }

    /// The group of these ranks of this group.
    pub(crate) fn part(&self, of: &Self) -> Self {
        Self::new((0..of.size).map(|rank| self.in_world(of.in_world(rank).index())).collect(), of.rank)
    }

    /// An error of the transport, which names ranks of the world, as one that names ranks of the group where
    /// [`name_in_world`](Self::name_in_world) expects them.
    pub(crate) fn name_in_group(&self, error: transport::Error) -> Error {
        match (Error::from(error), &self.members) {
            (Error::Malformed { peer, detail }, Some(members)) => {
                let rank = members.iter().position(|member| *member == peer);
                Error::Malformed { peer: rank.map_or(peer, Rank::from_index), detail }
            }
            (error, _) => error,
        }
    }

    /// An error of an algorithm, which knows ranks of the group alone, with the ranks of the world.
    pub(crate) fn name_in_world(&self, error: Error) -> Error {
        match error {
            Error::Malformed { peer, detail } => {
                Error::Malformed { peer: self.in_world(peer.index()), detail }
            }
            Error::Value { rank, detail } => Error::Value { rank: self.in_world(rank.index()), detail },
            other => other,
        }
    }
}

/// The contexts that `split` gives out; those below are the program's.
pub(crate) const FIRST_DERIVED: u32 = 1 << 31;

/// A context that no communicator of this world has: its upper bits are the rank that draws it, the lower ones count
/// what this process has drawn as that rank. So no two ranks ever draw the same, in whatever order they split what,
/// and a rank never draws one twice, whatever transports it has. None once the numbers are used up, after
/// `2^31 / P` draws.
pub(crate) fn fresh_context(rank: Rank, world_size: usize) -> Option<u32> {
    static DRAWN: Mutex<BTreeMap<Rank, u32>> = Mutex::new(BTreeMap::new());
    let count_bits = 31_u32.checked_sub(rounds(world_size))?;
    // The counts are valid after every statement.
    let mut drawn = DRAWN.lock().unwrap_or_else(PoisonError::into_inner);
    let count = drawn.entry(rank).or_default();
    if u64::from(*count) >> count_bits != 0 {
        return None;
    }
    let context = FIRST_DERIVED | rank.0 << count_bits | *count;
    *count += 1;
    Some(context)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn no_context_is_drawn_twice() {
        for world_size in [1, 2, 5, 1000] {
            let ranks = (0..world_size as u32).map(Rank);
            let drawn: Vec<_> = ranks
                .flat_map(|rank| (0..3).map(move |_| fresh_context(rank, world_size).unwrap()))
                .collect();
            assert!(drawn.iter().all(|context| *context >= FIRST_DERIVED));
            assert_eq!(drawn.iter().collect::<BTreeSet<_>>().len(), drawn.len());
        }
    }

    #[test]
    fn contexts_run_out_rather_than_come_again() {
        // A world in which 2^2 draws are left to each rank.
        let (rank, world_size) = (Rank(77_777), 1 << 29);
        let drawn: Vec<_> = (0..6).map(|_| fresh_context(rank, world_size)).collect();
        assert_eq!(drawn.iter().flatten().collect::<BTreeSet<_>>().len(), 4);
        assert_eq!(drawn[4..], [None, None]);
    }

    #[test]
    fn errors_name_ranks_of_the_world() {
        let group = Group::of(vec![Rank(5), Rank(2)], Rank(2)).unwrap();
        assert_eq!((group.rank(), group.size()), (1, 2));
        assert_eq!(group.name_in_world(Error::malformed(0, "x")).peer(), Some(Rank(5)));
        assert_eq!(group.name_in_world(Error::value(1, "x")).peer(), Some(Rank(2)));
        let protocol = transport::Error::Protocol { peer: Rank(5), detail: "x".into() };
        assert_eq!(group.name_in_world(group.name_in_group(protocol)).peer(), Some(Rank(5)));
    }
}
