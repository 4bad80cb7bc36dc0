//! Allgather of sparse vectors and a local sum: the O(kP) baseline of the gTop-k paper.
//!
//! Steps: Bruck's allgather of every rank's vector, then one sum in rank order, the same everywhere.
//! Cost: `ceil(log2 P) alpha + (P-1) k b beta`.

use sparse_core::wire::SparseBody;
use sparse_core::{Element, SparseVec, Stream};
use transport::Transport;

use crate::allgather;
use crate::decode;
use crate::error::Error;
use crate::in_flight::InFlight;

pub(super) async fn allreduce<T: Transport, E: Element>(
    operation: &InFlight<T>,
    input: &SparseVec<E>,
) -> Result<Stream<E>, Error> {
    let blocks = allgather::bruck(operation, operation.sparse(input.view())).await?;
    let frames = blocks.into_iter().enumerate().map(|(from, block)| Ok((from, operation.open(from, block)?)));
    let frames = frames.collect::<Result<Vec<_>, Error>>()?;
    let parts = decode::sparse_bodies(&frames, input.dim(), operation.memory())?;
    let views: Vec<_> = parts.iter().map(SparseBody::view).collect();
    let sum = sparse_core::reduce_views_in(&views, operation.memory());
    parts.into_iter().for_each(|part| operation.memory().put(part));
    Ok(decode::shorter(sum.map_err(|source| operation.refused(source, 0))?, operation.memory()))
}
