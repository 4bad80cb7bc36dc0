//! The first phase of the split algorithms: each range of the index space goes to its owner.

use futures_util::future::{try_join, try_join_all};
use sparse_core::{Element, SparseVec, wire};
use transport::Transport;

use crate::decode;
use crate::error::Error;
use crate::in_flight::{InFlight, Lane};
use crate::topology::{after, range};

/// Sends every rank its range of `input`, and returns all ranks' parts of the own range, in rank
/// order. Cost: `(P-1) alpha + k(P-1)/P b beta` at balanced supports.
///
/// Destinations are rotated, so that no owner is sent to by all ranks at once.
pub(super) async fn to_owners<T: Transport, E: Element>(
    operation: &InFlight<T>,
    input: &SparseVec<E>,
) -> Result<Vec<SparseVec<E>>, Error> {
    let (rank, ranks) = (operation.rank(), operation.world_size());
    let part = |owner: usize| input.slice(range(input.dim(), ranks, owner));
    let own = part(rank);
    let received: Vec<_> =
        (0..ranks).filter(|from| *from != rank).map(|from| operation.recv(from, Lane::Reduce)).collect();
    let sent: Vec<_> = (1..ranks)
        .map(|distance| after(rank, distance, ranks))
        .map(|to| operation.send(to, Lane::Reduce, wire::encode_sparse(operation.fingerprint(), &part(to))))
        .collect();
    let (frames, _) = try_join(try_join_all(received), try_join_all(sent)).await?;

    let mut parts = Vec::with_capacity(ranks);
    for (index, frame) in frames.into_iter().enumerate() {
        let from = if index < rank { index } else { index + 1 };
        if from == rank + 1 {
            parts.push(own.clone());
        }
        parts.push(decode::sparse(frame, from, own.dim())?);
    }
    if parts.len() < ranks {
        parts.push(own);
    }
    Ok(parts)
}
