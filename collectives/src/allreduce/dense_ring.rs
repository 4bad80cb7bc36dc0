//! Dense ring, in segments.
//!
//! The vector is cut into P ranges, and these into G segments; segment `g` of all ranges goes round by itself. In step
//! `s` of the reduce-scatter each rank passes the partial sum of its piece of range `rank - s` to its right neighbour,
//! which adds its own values; after P-1 steps rank `r` holds the sum of its piece of range `r + 1`, which then travels
//! round once more, unchanged. A few segments are under way at a time: adding overlaps the wire, and happens while the
//! piece is in the cache.
//! Cost: `2(P-1) ceil(G/8) alpha + 2(P-1)/P N v beta`, the least volume there is, in `2(P-1) G` messages; G is 1 up to
//! 128 KiB a range. Range `c` is summed in the order of ranks `c, c+1, .., c-1`, and every rank gets its owner's bits.

use std::collections::VecDeque;
use std::ops::Range;

use sparse_core::Element;
use transport::Transport;

use crate::decode;
use crate::error::Error;
use crate::in_flight::{InFlight, Lane};
use crate::topology::{after, before, slice_range};

/// The longest piece, in bytes.
const PIECE: u64 = 128 << 10;

/// How many segments are under way at a time.
const LANES: u64 = 8;

pub(super) async fn allreduce<T: Transport, E: Element>(
    operation: &InFlight<T>,
    input: &[E],
    output: &mut [E],
) -> Result<(), Error> {
    let (rank, ranks) = (operation.rank(), operation.world_size());
    let (right, left) = (after(rank, 1, ranks), before(rank, 1, ranks));
    if ranks == 1 {
        output.copy_from_slice(input);
        return Ok(());
    }
    let plan = Plan::new::<E>(input.len(), ranks);
    let (lanes, turns) = (plan.lanes, plan.turns());
    let mut arriving: VecDeque<_> = (0..lanes).map(|_| operation.recv_whole(left, Lane::Reduce)).collect();
    let first = |turn| operation.dense(&input[plan.piece(rank, turn)]);
    let mut leaving: VecDeque<_> =
        (0..lanes).map(|turn| operation.send(right, Lane::Reduce, first(turn))).collect();
    for turn in 0..turns {
        let (Some(next), Some(oldest)) = (arriving.pop_front(), leaving.pop_front()) else { break };
        let (frame, whole) = next.await?;
        let step = plan.step(turn);
        let piece = plan.piece(before(rank, (step + 1) % ranks, ranks), turn);
        let passed =
            if step < ranks - 1 { operation.dense_sum(&input[piece.clone()], &frame, left)? } else { whole };
        if step + 2 == ranks {
            let sum = operation.open(rank, passed.clone())?;
            decode::copy_dense(&sum, rank, &mut output[piece])?;
        } else if step + 2 > ranks {
            decode::copy_dense(&frame, left, &mut output[piece])?;
        }
        oldest.await?;
        if turn + lanes < turns {
            arriving.push_back(operation.recv_whole(left, Lane::Reduce));
            let message = if plan.is_last_step(turn) { first(turn + lanes) } else { passed };
            leaving.push_back(operation.send(right, Lane::Reduce, message));
        }
    }
    Ok(())
}

/// How many segments each range is cut into: `groups`, one after the other, of `lanes` at a time.
#[derive(Clone, Copy)]
pub(crate) struct Segments {
    pub(crate) lanes: u64,
    pub(crate) groups: u64,
}

impl Segments {
    /// For this many values of so many bytes each.
    pub(crate) fn of(len: u64, ranks: usize, value: usize) -> Self {
        let longest = len.div_ceil(ranks as u64) * value as u64;
        let lanes = longest.div_ceil(PIECE).clamp(1, LANES);
        Self { lanes, groups: longest.div_ceil(PIECE * lanes).max(1) }
    }
}

/// Who passes what when: groups of segments one after the other, and in each group step by step.
struct Plan {
    len: usize,
    ranks: usize,
    /// Segments of a group.
    lanes: usize,
    groups: usize,
}

impl Plan {
    /// The same on all ranks.
    fn new<E>(len: usize, ranks: usize) -> Self {
        let Segments { lanes, groups } = Segments::of(len as u64, ranks, size_of::<E>());
        Self { len, ranks, lanes: lanes as usize, groups: groups as usize }
    }

    fn steps(&self) -> usize {
        2 * (self.ranks - 1)
    }

    /// Every turn a piece comes from the left, and one leaves to the right.
    fn turns(&self) -> usize {
        self.steps() * self.lanes * self.groups
    }

    fn step(&self, turn: usize) -> usize {
        turn / self.lanes % self.steps()
    }

    fn is_last_step(&self, turn: usize) -> bool {
        self.step(turn) + 1 == self.steps()
    }

    /// Of a range, the segment of this turn.
    fn piece(&self, range: usize, turn: usize) -> Range<usize> {
        let group = turn / (self.lanes * self.steps());
        let range = slice_range(self.len, self.ranks, range);
        let piece =
            slice_range(range.len(), self.groups * self.lanes, group * self.lanes + turn % self.lanes);
        range.start + piece.start..range.start + piece.end
    }
}
