//! Sparse split and allgather: SparCML's SSAR_Split_allgather.
//!
//! Steps: every rank sends each range of its vector to the range's owner, who sums all parts in rank
//! order; Bruck's allgather spreads the sums. A range whose sum is dense travels dense.
//! Cost: `(P-1 + ceil(log2 P)) alpha + (k + K(P-1)/P) b beta` at balanced supports.

use sparse_core::wire::{BodyKind, Frame};
use sparse_core::{Element, SparseVec, Stream, dense_is_shorter};
use transport::Transport;

use super::split;
use crate::allgather;
use crate::decode;
use crate::error::Error;
use crate::in_flight::InFlight;
use crate::topology::ranges;

pub(super) async fn allreduce<T: Transport, E: Element>(
    operation: &InFlight<T>,
    input: &SparseVec<E>,
) -> Result<Stream<E>, Error> {
    let (rank, ranks) = (operation.rank(), operation.world_size());
    let ranges = ranges(input.dim(), ranks);
    let dim = |owner: usize| ranges[owner].end - ranges[owner].start;
    let sum = split::sum_own_range(operation, input, &ranges).await?;
    let block = operation.stream(&decode::shorter(sum));
    let blocks = allgather::bruck(operation, block).await?;
    let frames = blocks.into_iter().enumerate().map(|(owner, block)| operation.open(owner, block));
    let frames = frames.collect::<Result<Vec<_>, _>>()?;
    let is_sparse = |frame: &Frame| frame.kind == BodyKind::Sparse;
    let entries: u64 = frames.iter().filter(|frame| is_sparse(frame)).map(|frame| frame.count).sum();
    if frames.iter().all(is_sparse) && !dense_is_shorter::<E>(entries, input.dim()) {
        let mut whole = SparseVec::default();
        whole.reserve(entries as usize);
        for (owner, frame) in frames.iter().enumerate() {
            let appended = frame.append_sparse_to(dim(owner), &mut whole);
            appended.map_err(|source| Error::malformed(owner, source))?;
        }
        Ok(Stream::Sparse(whole))
    } else {
        let sums =
            frames.into_iter().enumerate().map(|(owner, frame)| decode::stream(frame, owner, dim(owner)));
        Stream::concat(sums.collect::<Result<_, _>>()?).map_err(|source| Error::value(rank, source))
    }
}
