//! Sparse split and allgather: SparCML's SSAR_Split_allgather.
//!
//! Steps: every rank sends each range of its vector to the range's owner, who sums all parts in rank
//! order; Bruck's allgather spreads the sums. A range whose sum is dense travels dense.
//! Cost: `(P-1 + ceil(log2 P)) alpha + (k + K(P-1)/P) b beta` at balanced supports.

use sparse_core::{Element, SparseVec, Stream, wire};
use transport::Transport;

use super::split;
use crate::allgather;
use crate::decode;
use crate::error::Error;
use crate::in_flight::InFlight;
use crate::topology::range;

pub(super) async fn allreduce<T: Transport, E: Element>(
    operation: &InFlight<T>,
    input: &SparseVec<E>,
) -> Result<Stream<E>, Error> {
    let (rank, ranks) = (operation.rank(), operation.world_size());
    let parts = split::to_owners(operation, input).await?;
    let sum = sparse_core::reduce(&parts).map_err(|source| Error::value(rank, source))?;
    let block = wire::encode(operation.fingerprint(), &decode::shorter(sum));
    let blocks = allgather::bruck(operation, block).await?;
    let sums = blocks.into_iter().enumerate().map(|(owner, block)| {
        let dim = range(input.dim(), ranks, owner);
        let frame = operation.open(owner, block)?;
        decode::stream(frame, owner, dim.end - dim.start)
    });
    Stream::concat(sums.collect::<Result<_, _>>()?).map_err(|source| Error::value(rank, source))
}
