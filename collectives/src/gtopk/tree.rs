//! Global top-k up a binomial tree, then a broadcast: the algorithm of the gTop-k paper, for any P.
//!
//! Steps: a rank merges the partial results of its children, the nearest first, each time keeping the
//! k largest, and sends what it has to its parent; the root's result comes back down the tree.
//! Cost: `2 ceil(log2 P) (alpha + k b beta)`. A merge's left operand holds the lower ranks.

use sparse_core::Element;
use transport::Transport;

use super::{Partial, decode_partial};
use crate::broadcast;
use crate::error::Error;
use crate::in_flight::{InFlight, Lane};
use crate::topology::tree;

pub(super) async fn gtopk<T: Transport, E: Element>(
    operation: &InFlight<T>,
    mut partial: Partial<E>,
    k: usize,
) -> Result<Partial<E>, Error> {
    let (rank, ranks) = (operation.rank(), operation.world_size());
    let (dim, memory) = (partial.kept.dim(), operation.memory());
    let from_children: Vec<_> =
        tree::children(rank, ranks).map(|child| (child, operation.recv(child, Lane::Reduce))).collect();
    for (child, received) in from_children {
        let upper = decode_partial(received.await?, child, dim, k, memory)?;
        partial.merge(operation, upper, true, k)?;
    }
    let message = operation.sparse(partial.kept.view());
    if let Some(parent) = tree::parent(rank) {
        operation.send(parent, Lane::Reduce, message.clone()).await?;
    }
    let (from, frame) = broadcast::down(operation, 0, message).await?;
    memory.put(partial.kept);
    partial.kept = decode_partial(frame, from, dim, k, memory)?;
    Ok(partial)
}
