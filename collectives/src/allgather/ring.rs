//! Ring allgather, for large blocks: every rank passes on the bytes it got, without a copy.
//!
//! Cost: `(P-1) alpha + (P-1) n beta` for blocks of `n` bytes.

use bytes::Bytes;
use futures_util::future::try_join;
use sparse_core::wire::{self, Frame};
use transport::Transport;

use crate::error::Error;
use crate::in_flight::{InFlight, Lane};
use crate::topology::{after, before};

/// Spreads each rank's message; `accept` gets every rank's, the own one first.
pub(crate) async fn ring<T: Transport>(
    operation: &InFlight<T>,
    mut message: Bytes,
    mut accept: impl FnMut(usize, Frame) -> Result<(), Error>,
) -> Result<(), Error> {
    let (rank, ranks) = (operation.rank(), operation.world_size());
    let own = wire::open(message.clone()).map_err(|source| Error::malformed(rank, source))?;
    accept(rank, own)?;
    for step in 1..ranks {
        let received = operation.recv_whole(before(rank, 1, ranks), Lane::Gather);
        let sent = operation.send(after(rank, 1, ranks), Lane::Gather, message);
        let (frame, whole) = try_join(received, sent).await?.0;
        accept(before(rank, step, ranks), frame)?;
        message = whole;
    }
    Ok(())
}
