//! Round the ring, in pieces: what the ring algorithms have in common.
//!
//! The index space is cut into P ranges, and these into G segments; segment `g` of all ranges goes round by itself. In
//! step `s` of the reduce-scatter each rank passes the partial sum of its piece of range `rank - s` to its right
//! neighbour, which adds its own values; after P-1 steps rank `r` holds the sum of its piece of range `r + 1`. In an
//! allreduce that travels round once more, unchanged. A few segments are under way at a time, so that adding overlaps the wire.
//! Range `c` is summed in the order of ranks `c, c+1, .., c-1`. A reduce-scatter alone starts with the range before, and
//! ends with range `r` on rank `r`.

use std::collections::VecDeque;
use std::ops::Range;

use bytes::Bytes;
use sparse_core::wire::Frame;
use transport::Transport;

use crate::error::Error;
use crate::in_flight::{InFlight, Lane};
use crate::topology::{after, before, range};

/// How many segments are under way at a time.
const LANES: usize = 8;

/// What an algorithm does with the pieces that come round.
pub(crate) trait Pieces {
    /// This rank's values of a piece, as a message.
    fn own(&self, piece: Range<u64>) -> Bytes;

    /// The partial sum of a piece that came from `left`, and this rank's values of it, as a message.
    fn add(&self, piece: Range<u64>, partial: Frame, left: usize) -> Result<Bytes, Error>;

    /// Takes the sum of a piece, which came from `from`.
    fn take(&mut self, piece: Range<u64>, sum: Frame, from: usize) -> Result<(), Error>;
}

/// Sends the pieces round; there is more than one rank.
pub(crate) async fn round<T: Transport>(
    operation: &InFlight<T>,
    plan: &Plan,
    pieces: &mut (dyn Pieces + Send + '_),
) -> Result<(), Error> {
    let (rank, ranks) = (operation.rank(), operation.world_size());
    let (right, left) = (after(rank, 1, ranks), before(rank, 1, ranks));
    let (lanes, turns) = (plan.lanes, plan.turns());
    let start = before(rank, plan.shift, ranks);
    let mut arriving: VecDeque<_> = (0..lanes).map(|_| operation.recv_whole(left, Lane::Reduce)).collect();
    let mut leaving: VecDeque<_> = (0..lanes)
        .map(|turn| operation.send(right, Lane::Reduce, pieces.own(plan.piece(start, turn))))
        .collect();
    for turn in 0..turns {
        let (Some(next), Some(oldest)) = (arriving.pop_front(), leaving.pop_front()) else { break };
        let (frame, whole) = next.await?;
        let step = plan.step(turn);
        let piece = plan.piece(before(start, (step + 1) % ranks, ranks), turn);
        let passed = if step + 1 < ranks {
            let sum = pieces.add(piece.clone(), frame, left)?;
            if step + 2 == ranks {
                pieces.take(piece, operation.open(rank, sum.clone())?, rank)?;
            }
            sum
        } else {
            pieces.take(piece, frame, left)?;
            whole
        };
        oldest.await?;
        if turn + lanes < turns {
            arriving.push_back(operation.recv_whole(left, Lane::Reduce));
            let message =
                if plan.is_last_step(turn) { pieces.own(plan.piece(start, turn + lanes)) } else { passed };
            leaving.push_back(operation.send(right, Lane::Reduce, message));
        }
    }
    Ok(())
}

/// Who passes what when: groups of segments one after the other, and in each group step by step.
pub(crate) struct Plan {
    dim: u64,
    ranks: usize,
    /// Segments of a group.
    pub(crate) lanes: usize,
    pub(crate) groups: usize,
    pub(crate) steps: usize,
    /// A rank starts with the range so many before its own.
    shift: usize,
}

impl Plan {
    /// Reduce-scatter and allgather, in pieces of at most so many values; the same on all ranks, as all see one `dim`.
    pub(crate) fn allreduce(dim: u64, ranks: usize, longest_piece: usize) -> Self {
        let segments = dim.div_ceil(ranks as u64).div_ceil(longest_piece as u64).max(1) as usize;
        let lanes = segments.min(LANES);
        Self { dim, ranks, lanes, groups: segments.div_ceil(lanes), steps: 2 * (ranks - 1), shift: 0 }
    }

    /// Reduce-scatter alone, which ends with range `r` on rank `r`.
    pub(crate) fn reduce_scatter(dim: u64, ranks: usize, longest_piece: usize) -> Self {
        Self { steps: ranks - 1, shift: 1, ..Self::allreduce(dim, ranks, longest_piece) }
    }

    /// Every turn a piece comes from the left, and one leaves to the right.
    fn turns(&self) -> usize {
        self.steps * self.lanes * self.groups
    }

    fn step(&self, turn: usize) -> usize {
        turn / self.lanes % self.steps
    }

    fn is_last_step(&self, turn: usize) -> bool {
        self.step(turn) + 1 == self.steps
    }

    /// Of a range, the segment of this turn.
    fn piece(&self, part: usize, turn: usize) -> Range<u64> {
        let group = turn / (self.lanes * self.steps);
        let whole = range(self.dim, self.ranks, part);
        let segment = group * self.lanes + turn % self.lanes;
        let piece = range(whole.end - whole.start, self.groups * self.lanes, segment);
        whole.start + piece.start..whole.start + piece.end
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pieces_of_a_step_tile_its_range() {
        for (dim, ranks, longest) in [(0, 2, 1), (1000, 3, 7), (1000, 9, 1000), (5, 9, 1), (100_000, 2, 100)]
        {
            for plan in [Plan::allreduce(dim, ranks, longest), Plan::reduce_scatter(dim, ranks, longest)] {
                for step in 0..plan.steps {
                    let mut pieces: Vec<_> = (0..plan.turns())
                        .filter(|turn| plan.step(*turn) == step)
                        .map(|turn| plan.piece(1, turn))
                        .collect();
                    pieces.sort_by_key(|piece| (piece.start, piece.end));
                    let ends = pieces.first().zip(pieces.last()).map(|(a, b)| a.start..b.end);
                    assert_eq!(ends, Some(range(dim, ranks, 1)));
                    assert!(pieces.windows(2).all(|pair| pair[0].end == pair[1].start));
                    assert!(pieces.iter().all(|piece| piece.end - piece.start <= longest as u64));
                }
            }
        }
    }
}
