//! Broadcast down a binomial tree.
//!
//! Steps: a rank receives from its parent, then sends to its children, the farthest first, passing on
//! the bytes it got. Ranks count from the root. Cost: `ceil(log2 P) (alpha + n beta)`.

use bytes::Bytes;
use futures_util::future::try_join_all;
use sparse_core::wire;
use transport::Transport;

use crate::error::Error;
use crate::in_flight::{InFlight, Lane};
use crate::topology::{after, before, tree};

pub(crate) async fn binomial<T: Transport>(
    operation: &InFlight<T>,
    root: usize,
    payload: Bytes,
) -> Result<Bytes, Error> {
    let own = operation.opaque(&[&payload]);
    let (from, frame) = down(operation, root, own).await?;
    frame.into_opaque().map_err(|source| Error::malformed(from, source))
}

/// Spreads the root's message; returns it opened, with the rank it came from.
pub(crate) async fn down<T: Transport>(
    operation: &InFlight<T>,
    root: usize,
    own: Bytes,
) -> Result<(usize, wire::Frame), Error> {
    let (rank, ranks) = (operation.rank(), operation.world_size());
    let relative = before(rank, root, ranks);
    let (from, frame, message) = match tree::parent(relative) {
        None => (rank, wire::open(own.clone()).map_err(|source| Error::malformed(rank, source))?, own),
        Some(parent) => {
            let from = after(root, parent, ranks);
            let (frame, whole) = operation.recv_whole(from, Lane::Gather).await?;
            (from, frame, whole)
        }
    };
    let sends = tree::children(relative, ranks).rev();
    try_join_all(sends.map(|child| operation.send(after(root, child, ranks), Lane::Gather, message.clone())))
        .await?;
    Ok((from, frame))
}
