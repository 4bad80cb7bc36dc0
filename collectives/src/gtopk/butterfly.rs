//! Global top-k by recursive doubling: half the steps of the tree, the same merges.
//!
//! Steps: as sparse recursive doubling, each merge keeping the k largest entries. Both partners make
//! the same merge, so both know what it drops; index `i` of a merge over a group of `g` ranks is put
//! back by member `i mod g`, which spreads the residuals evenly.
//! Cost: `log2 P (alpha + k b beta)`; where P is not a power of two, two transfers more.

use sparse_core::{Element, SparseVec};
use transport::Transport;

use super::{Partial, decode_partial};
use crate::error::Error;
use crate::in_flight::{InFlight, Lane};
use crate::topology::{Fold, Role};

pub(super) async fn gtopk<T: Transport, E: Element>(
    operation: &InFlight<T>,
    mut partial: Partial<E>,
    k: usize,
) -> Result<Partial<E>, Error> {
    let fold = Fold::new(operation.world_size());
    let (dim, memory) = (partial.kept.dim(), operation.memory());
    let encode = |kept: &SparseVec<E>| operation.sparse(kept.view());
    match fold.role(operation.rank()) {
        Role::Folded { into } => {
            operation.send(into, Lane::Reduce, encode(&partial.kept)).await?;
            let frame = operation.recv(into, Lane::Gather).await?;
            memory.put(partial.kept);
            partial.kept = decode_partial(frame, into, dim, k, memory)?;
        }
        Role::Active { position, from } => {
            if let Some(from) = from {
                let frame = operation.recv(from, Lane::Reduce).await?;
                partial.merge(operation, decode_partial(frame, from, dim, k, memory)?, false, k)?;
            }
            for round in 0..fold.rounds() {
                let (partner, higher) = fold.partner(position, round);
                let frame = operation.exchange(partner, partner, Lane::Reduce, encode(&partial.kept)).await?;
                let theirs = decode_partial(frame, partner, dim, k, memory)?;
                partial.merge(operation, theirs, higher, k)?;
                // A group of a power of two: its members are told apart by the lowest bits.
                let members = (2 << round) - 1;
                if let Some(dropped) = partial.dropped.last_mut() {
                    dropped.retain(|index, _| (index as usize ^ position) & members == 0);
                }
            }
            if let Some(idle) = from {
                operation.send(idle, Lane::Gather, encode(&partial.kept)).await?;
            }
        }
    }
    Ok(partial)
}
