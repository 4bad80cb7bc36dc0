//! Reduce by split and gather.
//!
//! Steps: every rank sends each range of its vector to the range's owner, who sums all parts in rank order; then all owners
//! send their sums to the root.
//! Cost: `2 alpha + (k + K)(P-1)/P b beta` at balanced supports, `2 alpha + 2(P-1)/P N v beta` for dense vectors, in P messages of
//! each rank. A binomial tree takes as many bytes for two ranks,
//! more for all others: `log2 P (alpha + n beta)`.
//! Everybody sums, so nobody ends before it has heard from all.

use bytes::Bytes;
use futures_util::future::try_join_all;
use sparse_core::wire::Frame;
use sparse_core::{Element, SparseVec, Stream};
use transport::Transport;

use crate::decode;
use crate::error::Error;
use crate::in_flight::{InFlight, Lane};
use crate::reduce_scatter::split;
use crate::topology::{ranges, slice_range};

pub(super) async fn sparse<T: Transport, E: Element>(
    operation: &InFlight<T>,
    root: usize,
    input: &SparseVec<E>,
) -> Result<Option<Stream<E>>, Error> {
    let ranges = ranges(input.dim(), operation.world_size());
    let sum = split::sum_own_range(operation, input, &ranges).await?;
    let message = operation.spent_stream(decode::shorter(sum, operation.memory()));
    let Some(sums) = to_root(operation, root, message).await? else {
        return Ok(None);
    };
    let lengths = ranges.into_iter().map(|range| range.end - range.start);
    let parts = lengths.zip(sums).enumerate().map(|(owner, (dim, frame))| (dim, frame, owner));
    decode::concat(parts.collect(), root, operation.memory()).map(Some)
}

pub(super) async fn dense<T: Transport, E: Element>(
    operation: &InFlight<T>,
    root: usize,
    input: &[E],
    output: &mut [E],
) -> Result<(), Error> {
    let ranks = operation.world_size();
    let ranges = ranges(input.len() as u64, ranks);
    let sum = split::sum_own_range_dense(operation, input, &ranges).await?;
    let message = operation.dense(&sum);
    operation.memory().put(sum);
    let sums = to_root(operation, root, message).await?;
    for (owner, sum) in sums.into_iter().flatten().enumerate() {
        decode::copy_dense(&sum, owner, &mut output[slice_range(input.len(), ranks, owner)])?;
    }
    Ok(())
}

/// Every rank's message, by rank; none but at the root.
async fn to_root<T: Transport>(
    operation: &InFlight<T>,
    root: usize,
    message: Bytes,
) -> Result<Option<Vec<Frame>>, Error> {
    if operation.rank() != root {
        operation.send(root, Lane::Gather, message).await?;
        return Ok(None);
    }
    let others = (0..operation.world_size()).filter(|rank| *rank != root);
    let mut frames = try_join_all(others.map(|from| operation.recv(from, Lane::Gather))).await?;
    frames.insert(root, operation.open(root, message)?);
    Ok(Some(frames))
}
