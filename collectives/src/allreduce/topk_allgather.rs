//! Allgather of sparse vectors and a local sum: the O(kP) baseline of the gTop-k paper.
//!
//! Steps: Bruck's allgather of every rank's vector, then one sum in rank order, the same everywhere.
//! Cost: `ceil(log2 P) alpha + (P-1) k b beta`.

use sparse_core::{Element, SparseVec, Stream, wire};
use transport::Transport;

use crate::allgather;
use crate::decode;
use crate::error::Error;
use crate::in_flight::InFlight;

pub(super) async fn allreduce<T: Transport, E: Element>(
    operation: &InFlight<T>,
    input: &SparseVec<E>,
) -> Result<Stream<E>, Error> {
    let block = wire::encode_sparse(operation.fingerprint(), input);
    let blocks = allgather::bruck(operation, block).await?;
    let parts = blocks
        .into_iter()
        .enumerate()
        .map(|(from, block)| decode::sparse(operation.open(from, block)?, from, input.dim()));
    let sum = sparse_core::reduce(&parts.collect::<Result<Vec<_>, _>>()?);
    Ok(decode::shorter(sum.map_err(|source| Error::value(operation.rank(), source))?))
}
