//! Sparse split and allgather: SparCML's SSAR_Split_allgather.
//!
//! Steps: every rank sends each range of its vector to the range's owner, who sums all parts in rank
//! order; Bruck's allgather spreads the sums. A range whose sum is dense travels dense.
//! Cost: `(P-1 + ceil(log2 P)) alpha + (k + K(P-1)/P) b beta` at balanced supports.

use sparse_core::{Element, SparseVec, Stream};
use transport::Transport;

use crate::allgather;
use crate::decode;
use crate::error::Error;
use crate::in_flight::InFlight;
use crate::reduce_scatter::split;
use crate::topology::ranges;

pub(super) async fn allreduce<T: Transport, E: Element>(
    operation: &InFlight<T>,
    input: &SparseVec<E>,
) -> Result<Stream<E>, Error> {
    let (rank, ranks) = (operation.rank(), operation.world_size());
    let ranges = ranges(input.dim(), ranks);
    let sum = split::sum_own_range(operation, input, &ranges).await?;
    let message = operation.spent_stream(decode::shorter(sum, operation.memory()));
    let blocks = allgather::bruck(operation, message).await?;
    let parts = blocks.into_iter().zip(&ranges).enumerate().map(|(owner, (block, range))| {
        operation.open(owner, block).map(|frame| (range.end - range.start, frame, owner))
    });
    decode::concat(parts.collect::<Result<_, _>>()?, rank, operation.memory())
}
