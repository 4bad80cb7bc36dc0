//! Rabenseifner's algorithm: recursive halving, then recursive doubling. From Rabenseifner, "Optimization of Collective
//! Reduction Operations", 2004.
//!
//! Steps: ranks beyond the largest power of two hand their vector to a neighbour. The vector is cut into a range for each
//! active rank. In each round of the reduce-scatter two ranks that hold partial sums of the same ranges each give the other
//! half of them, until each has one range; the allgather takes the same rounds back. The idle ranks get the result. What is
//! exchanged in a round travels in pieces, so that adding overlaps the wire.
//! Cost: `2 log2 P alpha + 2(P-1)/P N v beta`, a message for each 128 KiB of a round; where P is not a power of two, with Q
//! for the one below, `2 log2 Q + 2` rounds, and up to two transfers of the whole beside `2(Q-1)/Q N v`.
//! Each range is summed on one rank, in an order fixed by ranks, and all get its bits.

use std::ops::Range;

use futures_util::future::{try_join, try_join_all};
use sparse_core::Element;
use sparse_core::wire::Frame;
use transport::Transport;

use super::dense_ring::PIECE;
use crate::decode;
use crate::error::Error;
use crate::in_flight::{InFlight, Lane};
use crate::topology::{Fold, Role, slice_range};

pub(super) async fn allreduce<T: Transport, E: Element>(
    operation: &InFlight<T>,
    input: &[E],
    output: &mut [E],
) -> Result<(), Error> {
    let rank = operation.rank();
    let fold = Fold::new(operation.world_size());
    let whole = Some(0..input.len());
    output.copy_from_slice(input);
    let copy = |frame: &Frame, from, values: &mut [E], _| decode::copy_dense(frame, from, values);
    let add = |frame: &Frame, from, values: &mut [E], start: usize| {
        frame.add_dense_into(values).map_err(|source| operation.refused_from(from, source, start as u64))
    };
    match fold.role(rank) {
        Role::Folded { into } => {
            let given = [whole.clone(), None];
            exchange(operation, Lane::Reduce, into, output, given, copy).await?;
            exchange(operation, Lane::Gather, into, output, [None, whole], copy).await
        }
        Role::Active { position, from } => {
            if let Some(from) = from {
                exchange(operation, Lane::Reduce, from, output, [None, whole.clone()], add).await?;
            }
            for round in (0..fold.rounds()).rev() {
                let (partner, _) = fold.partner(position, round);
                let (kept, given) = halves(input.len(), fold, position, round);
                exchange(operation, Lane::Reduce, partner, output, [Some(given), Some(kept)], add).await?;
            }
            for round in 0..fold.rounds() {
                let (partner, _) = fold.partner(position, round);
                let (own, theirs) = halves(input.len(), fold, position, round);
                let ranges = [Some(own), Some(theirs)];
                exchange(operation, Lane::Gather, partner, output, ranges, copy).await?;
            }
            match from {
                Some(idle) => exchange(operation, Lane::Gather, idle, output, [whole, None], copy).await,
                None => Ok(()),
            }
        }
    }
}

/// The ranges that are halved between a position and its partner in a round: the half that stays, and the other.
fn halves(len: usize, fold: Fold, position: usize, round: u32) -> (Range<usize>, Range<usize>) {
    let half = |of: usize| {
        let first = of >> round << round;
        let cut = |part| slice_range(len, 1 << fold.rounds(), part);
        cut(first).start..cut(first + (1 << round) - 1).end
    };
    (half(position), half(position ^ (1 << round)))
}

/// Sends one range of `values` to a peer and receives another from it, in pieces; `take` puts what came to its place.
/// An empty range is a message too: nobody may finish without having heard, through others, of all ranks.
async fn exchange<T: Transport, E: Element>(
    operation: &InFlight<T>,
    lane: Lane,
    peer: usize,
    values: &mut [E],
    [given, wanted]: [Option<Range<usize>>; 2],
    take: impl Fn(&Frame, usize, &mut [E], usize) -> Result<(), Error>,
) -> Result<(), Error> {
    let pieces = |range: Option<Range<usize>>| range.into_iter().flat_map(pieces::<E>);
    let received: Vec<_> = pieces(wanted).map(|piece| (operation.recv(peer, lane), piece)).collect();
    let sent: Vec<_> =
        pieces(given).map(|piece| operation.send(peer, lane, operation.dense(&values[piece]))).collect();
    let taken = async {
        for (frame, piece) in received {
            let start = piece.start;
            take(&frame.await?, peer, &mut values[piece], start)?;
        }
        Ok(())
    };
    try_join(taken, try_join_all(sent)).await?;
    Ok(())
}

/// A range in pieces of nearly equal length, at least one.
fn pieces<E>(range: Range<usize>) -> impl Iterator<Item = Range<usize>> {
    let count = (size_of::<E>() * range.len()).div_ceil(PIECE).max(1);
    (0..count).map(move |part| {
        let piece = slice_range(range.len(), count, part);
        range.start + piece.start..range.start + piece.end
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn halves_of_partners_are_each_others_and_make_the_half_of_the_round_before() {
        for (ranks, len) in [(1, 5), (2, 5), (4, 3), (6, 100), (8, 0), (8, 1001), (9, 1000)] {
            let fold = Fold::new(ranks);
            for position in 0..1 << fold.rounds() {
                let mut whole = 0..len;
                for round in (0..fold.rounds()).rev() {
                    let (kept, given) = halves(len, fold, position, round);
                    assert_eq!(
                        halves(len, fold, position ^ (1 << round), round),
                        (given.clone(), kept.clone())
                    );
                    let is_lower = position & (1 << round) == 0;
                    let (lower, upper) = if is_lower { (&kept, &given) } else { (&given, &kept) };
                    assert_eq!((lower.start, lower.end, upper.end), (whole.start, upper.start, whole.end));
                    whole = kept;
                }
                assert_eq!(whole, slice_range(len, 1 << fold.rounds(), position));
            }
        }
    }
}
