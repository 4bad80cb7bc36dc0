//! Sparse reduce-scatter, the first phase of the split algorithms: each range of the index space goes to its owner, who
//! sums it in rank order.

use std::ops::Range;

use futures_util::future::{try_join, try_join_all};
use sparse_core::wire::Frame;
use sparse_core::{Element, SparseVec};
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
    let others = decode::sparse_bodies(&received, own.dim())?;
    let views = decode::by_rank(&others, rank, own);
    sparse_core::reduce_views(&views).map_err(|source| Error::value(rank, source))
}

/// Sends every rank its range of `input`, and returns the other ranks' parts of the own range, by rank, as they came.
/// Cost: `(P-1) alpha + k(P-1)/P b beta` at balanced supports.
///
/// Destinations are rotated, so that no owner is sent to by all ranks at once.
pub(crate) async fn to_owners<T: Transport, E: Element>(
    operation: &InFlight<T>,
    input: &SparseVec<E>,
    ranges: &[Range<u64>],
) -> Result<Vec<(usize, Frame)>, Error> {
    let (rank, ranks) = (operation.rank(), operation.world_size());
    let others = || (0..ranks).filter(|other| *other != rank);
    let received: Vec<_> = others().map(|from| operation.recv(from, Lane::Reduce)).collect();
    let sent: Vec<_> = (1..ranks)
        .map(|distance| after(rank, distance, ranks))
        .map(|owner| {
            let part = operation.sparse(input.view_of(ranges[owner].clone()));
            operation.send(owner, Lane::Reduce, part)
        })
        .collect();
    let (frames, _) = try_join(try_join_all(received), try_join_all(sent)).await?;
    Ok(others().zip(frames).collect())
}
