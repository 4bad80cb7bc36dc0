//! Ok-Topk, without what it carries from step to step: the top-k of the sum of the ranks' largest entries, at a volume that
//! no skew makes larger.
//!
//! Steps: every rank takes the k largest of its entries; agreements and sums as `owners/` has them (split and reduce); where
//! the owners' survivors are uneven, they move to ranks that then have as many each; Bruck's allgather of these blocks, of
//! which every rank keeps the k largest.
//! Cost: `(P-1 + 3 ceil(log2 P)) alpha + 2k(P-1)/P b beta` where all is even, as `gtopk_exact`. The move takes at most
//! `P-1` messages and `k(P-1)/P b beta` more, and is made only where the gather would send more without it. So a rank sends at
//! most `3k(P-1)/P` entries where supports are alike, and `k + 2k(P-1)/P` however they lie: with the few beyond the k, and where
//! ranges are of equal load (from k P = 4096). An entry being an index and a value, that is the `6k(P-1)/P` words of the paper.
//! Source: Li and Hoefler, "Near-optimal sparse allreduce for distributed deep learning", 2022. There, thresholds and
//! ranges are reused for 32 and 64 steps, and nudged by what a rank counts; here each call agrees on its own, exactly, so that
//! ranks which have missed a step or come back from a checkpoint never differ, and as many entries as asked for are kept.
//! There, counts are gathered before the move; here, the magnitudes told already say nearly as much.

use std::ops::Range;

use futures_util::future::{try_join, try_join_all};
use sparse_core::{Element, SparseVec, SparseView, Stream};
use transport::Transport;

use super::Partial;
use super::owners::{Survivors, survivors};
use crate::allgather;
use crate::decode;
use crate::error::Error;
use crate::in_flight::{InFlight, Lane};
use crate::topology::{self, EvenBlocks, after};

pub(super) async fn gtopk<T: Transport, E: Element>(
    operation: &InFlight<T>,
    partial: Partial<E>,
    k: usize,
) -> Result<Partial<E>, Error> {
    let Partial { kept, dropped } = partial;
    let (dim, memory) = (kept.dim(), operation.memory());
    let Survivors { ranges, own, shares } = survivors(operation, &kept, k).await?;
    memory.put(kept);
    let even = is_worth_a_move(&shares).then(|| EvenBlocks::new(&shares));
    let block = match &even {
        Some(even) => move_to_even(operation, own, &ranges, even).await?,
        None => own,
    };
    let blocks = allgather::bruck(operation, operation.spent_stream(Stream::Sparse(block))).await?;
    let frames = blocks.into_iter().enumerate().map(|(rank, block)| operation.open(rank, block));
    let frames = frames.collect::<Result<Vec<_>, _>>()?;
    let entries = frames.iter().map(|frame| frame.count as usize).sum();
    let (mut indices, mut values) = (memory.empty(entries), memory.empty(entries));
    for (rank, frame) in frames.into_iter().enumerate() {
        let span = even.as_ref().map_or_else(
            || ranges[rank].clone(),
            |even| {
                let owners = even.owners(rank);
                ranges[owners.start].start..ranges[owners.end - 1].end
            },
        );
        let block = decode::sparse::<E>(frame, rank, span.end - span.start, memory)?;
        // If there are entries, the start of the span is below 2^32.
        let placed = block.indices().iter().map(|index| span.start as u32 + index);
        if placed.clone().next().is_some_and(|first| indices.last().is_some_and(|last| *last >= first)) {
            return Err(Error::malformed(rank, "a block that begins before the one before it ends"));
        }
        indices.extend(placed);
        values.extend_from_slice(block.values());
        memory.put(block);
    }
    let whole = SparseVec::new(dim, indices, values);
    let whole = whole.map_err(|source| Error::value(operation.rank(), source))?;
    let (kept, rest) = whole.top_k_in(k, memory);
    memory.put(rest);
    // What is dropped here is whole sums, outside the global set.
    Ok(Partial { kept, dropped })
}

/// Whether a gather of blocks of so many entries sends more than a move and the gather of even blocks do at most. Even
/// is to an entry for each rank.
fn is_worth_a_move(shares: &[usize]) -> bool {
    let (ranks, total) = (shares.len(), shares.iter().sum::<usize>());
    topology::bruck_most_sent(shares) > 2 * (total - total / ranks) + ranks
}

/// Gives the ranks their parts of `own`, the survivors of this rank's range, and returns this rank's block.
async fn move_to_even<T: Transport, E: Element>(
    operation: &InFlight<T>,
    own: SparseVec<E>,
    ranges: &[Range<u64>],
    even: &EvenBlocks,
) -> Result<SparseVec<E>, Error> {
    let (rank, ranks, memory) = (operation.rank(), operation.world_size(), operation.memory());
    let part = |block| {
        let part = even.part(rank, block, own.nnz());
        let entries = SparseView::new(own.dim(), &own.indices()[part.clone()], &own.values()[part]);
        entries.map_err(|source| Error::value(rank, source))
    };
    let owners = even.owners(rank);
    let received = owners.clone().filter(|owner| *owner != rank);
    let received: Vec<_> = received.map(|owner| operation.recv(owner, Lane::Reduce)).collect();
    let mut sent = Vec::new();
    for block in (1..ranks).map(|distance| after(rank, distance, ranks)) {
        if even.owners(block).contains(&rank) {
            sent.push(operation.send(block, Lane::Reduce, operation.sparse(part(block)?)));
        }
    }
    let mut frames = try_join(try_join_all(received), try_join_all(sent)).await?.0.into_iter();
    let mut parts = Vec::with_capacity(owners.len());
    for owner in owners {
        let (Range { start, end }, frame) = (ranges[owner].clone(), (owner != rank).then(|| frames.next()));
        parts.push(match frame.flatten() {
            Some(frame) => decode::sparse(frame, owner, end - start, memory)?,
            None => part(rank)?.to_vec_in(memory),
        });
    }
    let block = SparseVec::concat_in(&parts, memory).map_err(|source| Error::value(rank, source));
    parts.into_iter().chain([own]).for_each(|part| memory.put(part));
    block
}
