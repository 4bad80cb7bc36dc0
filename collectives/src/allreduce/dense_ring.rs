//! Dense ring.
//!
//! The vector is cut into P ranges. In step `s` of the reduce-scatter each rank passes the partial
//! sum of range `rank - s` to its right neighbour, which adds its own values; after P-1 steps rank
//! `r` holds the sum of range `r + 1`, which then travels round once more, unchanged.
//! Cost: `2(P-1) alpha + 2(P-1)/P N v beta`, the least volume there is. Range `c` is summed in the
//! order of ranks `c, c+1, .., c-1`, and every rank gets its owner's bits.

use sparse_core::{Element, wire};
use transport::Transport;

use crate::decode;
use crate::error::Error;
use crate::in_flight::{InFlight, Lane};
use crate::topology::{after, before, slice_range};

pub(super) async fn allreduce<T: Transport, E: Element>(
    operation: &InFlight<T>,
    input: &[E],
    output: &mut [E],
) -> Result<(), Error> {
    let (rank, ranks) = (operation.rank(), operation.world_size());
    let (right, left) = (after(rank, 1, ranks), before(rank, 1, ranks));
    let range = |part: usize| slice_range(input.len(), ranks, part);
    output.copy_from_slice(input);
    if ranks == 1 {
        return Ok(());
    }

    for step in 0..ranks - 1 {
        let passed = &output[range(before(rank, step, ranks))];
        let message = wire::encode_dense(operation.fingerprint(), passed);
        let partial = operation.exchange(right, left, Lane::Reduce, message).await?;
        let mine = &mut output[range(before(rank, step + 1, ranks))];
        decode::add_dense(&partial, left, rank, mine)?;
    }

    let mut message = wire::encode_dense(operation.fingerprint(), &output[range(right)]);
    for step in 0..ranks - 1 {
        let received = operation.recv_whole(left, Lane::Gather);
        let sent = operation.send(right, Lane::Gather, message);
        let (frame, whole) = futures_util::future::try_join(received, sent).await?.0;
        let owned = &mut output[range(before(rank, step, ranks))];
        decode::copy_dense(&frame, left, owned)?;
        message = whole;
    }
    Ok(())
}
