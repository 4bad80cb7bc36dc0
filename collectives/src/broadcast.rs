//! Broadcast down a binomial tree.
//!
//! Steps: a rank receives from its parent, then sends to its children, the farthest first, passing on
//! the bytes it got. Ranks count from the root. Cost: `ceil(log2 P) (alpha + n beta)`.

use std::future::Future;

use bytes::Bytes;
use futures_util::future::try_join_all;
use sparse_core::wire;
use transport::{Rank, Transport};

use crate::call::{Call, Operation};
use crate::communicator::Communicator;
use crate::error::Error;
use crate::in_flight::{Check, InFlight, Lane};
use crate::topology::{after, before, tree};

impl<T: Transport> Communicator<T> {
    /// Gives every rank the payload of `root`; what the other ranks pass is ignored.
    ///
    /// Binomial tree. Cost: `ceil(log2 P) (alpha + n beta)` for `n` bytes. Returns only after every
    /// rank has called it.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if `root` is not a rank; and what every operation can meet.
    pub fn broadcast(&self, root: Rank, payload: Bytes) -> impl Future<Output = Result<Bytes, Error>> + Send {
        let ranks = self.world_size();
        let known = if root.index() < ranks {
            Ok(())
        } else {
            Err(Error::invalid(format!("the root is rank {root}, but there are only {ranks} ranks")))
        };
        let begun = known.and_then(|()| self.begin(Call::plain(Operation::Broadcast, u64::from(root.0))));
        async move {
            let operation = begun?;
            let algorithm = binomial(&operation, root.index(), payload);
            let result = operation.drive(Check::Everyone, algorithm).await;
            operation.finish(result)
        }
    }
}

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
