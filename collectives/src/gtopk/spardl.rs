//! SparDL: a reduce-scatter whose every message is cut to its share of the k, then an allgather.
//!
//! Steps: the index space is cut into P ranges, and each rank's vector into a block for each. In a step of distance `d`, from
//! the largest power of two below P down to 1, a rank sends the blocks of the ranks `d` to `2d-1` after it to the rank `d` after
//! it, who adds them to its own: Bruck's allgather backwards. Of a block only the `h = ceil(k/P)` largest entries
//! are sent, and kept in the end. Bruck's allgather spreads the sums, of which every rank keeps the k largest.
//! Cost: `2 ceil(log2 P) alpha + 2 h (P-1) b beta`, which is `2k(P-1)/P b beta` where P divides k, however the supports lie.
//! What it finds is near the top-k where the largest sums are spread over the ranges: no range has more than h in the result, so
//! it may have fewer than k entries although there are more. Where h is the length of the ranges it is the whole sum.
//!
//! A rank cuts each block once, just before it leaves, so that sums grow before they are cut. What it cuts off is its to put back.
//! h is rounded up, not the whole k shared out, so that every range has a place: a NaN finds it.
//! Source: Zhao et al., "SparDL: distributed deep learning training with efficient sparse communication", 2024, with one team:
//! their teams trade more volume for fewer rounds.

use sparse_core::{Element, Memory, SparseVec, Stream};
use transport::Transport;

use super::{Partial, decode_partial};
use crate::allgather;
use crate::error::Error;
use crate::in_flight::{InFlight, Lane};
use crate::topology::{after, before, ranges, rounds};

pub(super) async fn gtopk<T: Transport, E: Element>(
    operation: &InFlight<T>,
    input: &SparseVec<E>,
    k: usize,
) -> Result<Partial<E>, Error> {
    let (rank, ranks) = (operation.rank(), operation.world_size());
    let ranges = ranges(input.dim(), ranks);
    let (most, memory) = (k.div_ceil(ranks), operation.memory());
    let refused = |source| operation.refused(source, 0);

    // Block `i` is that of the rank `i` after this one.
    let owner = |block: usize| after(rank, block, ranks);
    let block = |number| input.view_of(ranges[owner(number)].clone()).to_vec_in(memory);
    let mut blocks: Vec<_> = (0..ranks).map(block).collect();
    let mut cut_off = Vec::with_capacity(ranks);
    let mut cut = |number: usize, block: SparseVec<E>| {
        let (kept, dropped) = block.top_k_in(most, memory);
        cut_off.push((owner(number), dropped));
        kept
    };
    for distance in (0..rounds(ranks)).rev().map(|round| 1 << round) {
        let leaving = blocks.split_off(distance);
        let arriving = leaving.len();
        let leaving: Vec<_> =
            leaving.into_iter().enumerate().map(|(at, block)| cut(distance + at, block)).collect();
        let message = operation.spent_stream(Stream::Sparse(joined(leaving, memory).map_err(refused)?));
        let (to, from) = (after(rank, distance, ranks), before(rank, distance, ranks));
        let frame = operation.exchange(to, from, Lane::Reduce, message).await?;
        let dim = blocks.iter().take(arriving).map(SparseVec::dim).sum();
        let theirs = decode_partial(frame, from, dim, most.saturating_mul(arriving), memory)?;
        let mut start = 0;
        for (number, block) in blocks.iter_mut().enumerate().take(arriving) {
            let end = start + block.dim();
            let ours = std::mem::take(block);
            let part = theirs.view_of(start..end).to_vec_in(memory);
            let sum = sparse_core::merge_in(&ours, &part, memory);
            *block = sum.map_err(|source| operation.refused(source, ranges[owner(number)].start))?;
            memory.put(ours);
            memory.put(part);
            start = end;
        }
        memory.put(theirs);
    }
    let own: Vec<_> = blocks.into_iter().map(|block| cut(0, block)).collect();
    let own = joined(own, memory).map_err(refused)?;

    let gathered = allgather::bruck(operation, operation.spent_stream(Stream::Sparse(own))).await?;
    let mut sums = Vec::with_capacity(ranks);
    for (owner, (block, range)) in gathered.into_iter().zip(&ranges).enumerate() {
        let frame = operation.open(owner, block)?;
        sums.push(decode_partial(frame, owner, range.end - range.start, most, memory)?);
    }
    let (kept, rest) = joined(sums, memory).map_err(refused)?.top_k_in(k, memory);
    memory.put(rest);
    cut_off.sort_unstable_by_key(|(owner, _)| *owner);
    let dropped = joined(cut_off.into_iter().map(|(_, dropped)| dropped).collect(), memory);
    Ok(Partial { kept, dropped: vec![dropped.map_err(refused)?] })
}

/// Neighbouring blocks as one vector.
fn joined<E: Element>(
    blocks: Vec<SparseVec<E>>,
    memory: &Memory,
) -> Result<SparseVec<E>, sparse_core::Error> {
    let whole = SparseVec::concat_in(&blocks, memory);
    blocks.into_iter().for_each(|block| memory.put(block));
    whole
}
