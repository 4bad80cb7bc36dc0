//! Sparse reduce-scatter, the first phase of the split algorithms: each range of the index space goes to its owner, who
//! sums it in rank order.

use futures_util::future::{try_join, try_join_all};
use sparse_core::wire::Frame;
use sparse_core::{Element, SparseVec};
use transport::Transport;

use crate::decode;
use crate::error::Error;
use crate::in_flight::{InFlight, Lane};
use crate::topology::{after, range};

/// Sends every rank its range of `input`, and returns the other ranks' parts of the own range, by rank, as they came.
/// Cost: `(P-1) alpha + k(P-1)/P b beta` at balanced supports.
///
/// Destinations are rotated, so that no owner is sent to by all ranks at once.
pub(crate) async fn to_owners<T: Transport, E: Element>(
    operation: &InFlight<T>,
    input: &SparseVec<E>,
) -> Result<Vec<(usize, Frame)>, Error> {
    let (rank, ranks) = (operation.rank(), operation.world_size());
    let others = || (0..ranks).filter(|other| *other != rank);
    let received: Vec<_> = others().map(|from| operation.recv(from, Lane::Reduce)).collect();
    let sent: Vec<_> = (1..ranks)
        .map(|distance| after(rank, distance, ranks))
        .map(|owner| {
            let part = operation.sparse(input.view_of(range(input.dim(), ranks, owner)));
            operation.send(owner, Lane::Reduce, part)
        })
        .collect();
    let (frames, _) = try_join(try_join_all(received), try_join_all(sent)).await?;
    Ok(others().zip(frames).collect())
}

/// The sum of this rank's range.
pub(crate) async fn sum_own_range<T: Transport, E: Element>(
    operation: &InFlight<T>,
    input: &SparseVec<E>,
) -> Result<SparseVec<E>, Error> {
    let (rank, ranks) = (operation.rank(), operation.world_size());
    let received = to_owners(operation, input).await?;
    let own = input.view_of(range(input.dim(), ranks, rank));
    let others = decode::sparse_bodies(&received, own.dim())?;
    let views = decode::by_rank(&others, rank, own);
    sparse_core::reduce_views(&views).map_err(|source| Error::value(rank, source))
}
