//! Reduce-scatter straight to owners, the first phase of the split algorithms: each range of the index space goes to its
//! owner, who sums it in rank order.

use std::ops::Range;

use bytes::Bytes;
use futures_util::future::{try_join, try_join_all};
use sparse_core::wire::Frame;
use sparse_core::{Accumulator, Element, SparseVec};
use transport::Transport;

use crate::decode;
use crate::error::Error;
use crate::in_flight::{InFlight, Lane};
use crate::topology::after;

/// The sum of all ranks' parts of the own range, added in rank order; there is a range for each rank.
/// Cost: as [`to_owners`].
pub(crate) async fn sum_own_range<T: Transport, E: Element>(
    operation: &InFlight<T>,
    input: &SparseVec<E>,
    ranges: &[Range<u64>],
) -> Result<SparseVec<E>, Error> {
    let rank = operation.rank();
    let received = to_owners(operation, input, ranges).await?;
    let own = input.view_of(ranges[rank].clone());
    let others = decode::sparse_bodies(&received, own.dim(), operation.memory())?;
    let views = decode::by_rank(&others, rank, own);
    let sum = sparse_core::reduce_views_in(&views, operation.memory());
    others.into_iter().for_each(|body| operation.memory().put(body));
    sum.map_err(|source| operation.refused(source, ranges[rank].start))
}

/// The same for dense vectors: `alpha + N(P-1)/P v beta` where the ranges are of equal length. The sum is kept in the
/// accumulator type, and rounded once.
pub(crate) async fn sum_own_range_dense<T: Transport, E: Element>(
    operation: &InFlight<T>,
    input: &[E],
    ranges: &[Range<u64>],
) -> Result<Vec<E>, Error> {
    let rank = operation.rank();
    let part = |owner: usize| &input[ranges[owner].start as usize..ranges[owner].end as usize];
    let received = scatter(operation, |owner| operation.dense(part(owner))).await?;
    let own = part(rank);
    let memory = operation.memory();
    let (mut sum, mut theirs) = (Accumulator::new_in(own.len(), memory), memory.any(own.len(), E::ZERO));
    let refused = |source| operation.refused(source, ranges[rank].start);
    let mut received = received.into_iter();
    for from in 0..operation.world_size() {
        if from == rank {
            sum.add_dense(own).map_err(refused)?;
        } else if let Some((from, frame)) = received.next() {
            decode::copy_dense(&frame, from, &mut theirs)?;
            sum.add_dense(&theirs).map_err(refused)?;
        }
    }
    memory.put(theirs);
    sum.finish_in(memory).map_err(refused)
}

/// Sends every rank its range of `input`, and returns the other ranks' parts of the own range, by rank, as they came.
/// Cost: `(P-1) alpha + k(P-1)/P b beta` at balanced supports.
pub(crate) async fn to_owners<T: Transport, E: Element>(
    operation: &InFlight<T>,
    input: &SparseVec<E>,
    ranges: &[Range<u64>],
) -> Result<Vec<(usize, Frame)>, Error> {
    scatter(operation, |owner| operation.sparse(input.view_of(ranges[owner].clone()))).await
}

/// Sends every other rank the message for it, and returns theirs, by rank.
///
/// Destinations are rotated, so that no owner is sent to by all ranks at once.
async fn scatter<T: Transport>(
    operation: &InFlight<T>,
    message: impl Fn(usize) -> Bytes,
) -> Result<Vec<(usize, Frame)>, Error> {
    let (rank, ranks) = (operation.rank(), operation.world_size());
    let others = || (0..ranks).filter(|other| *other != rank);
    let received: Vec<_> = others().map(|from| operation.recv(from, Lane::Reduce)).collect();
    let sent: Vec<_> = (1..ranks)
        .map(|distance| after(rank, distance, ranks))
        .map(|owner| operation.send(owner, Lane::Reduce, message(owner)))
        .collect();
    let (frames, _) = try_join(try_join_all(received), try_join_all(sent)).await?;
    Ok(others().zip(frames).collect())
}
