//! Global top-k by recursive doubling: half the steps of the tree, the same merges.
//!
//! Steps: as sparse recursive doubling, each merge keeping the k largest entries. Both partners make
//! the same merge, so both know what it drops; index `i` of a merge over a group of `g` ranks is put
//! back by member `i mod g`, which spreads the residuals evenly.
//! Cost: `log2 P (alpha + k b beta)`; where P is not a power of two, two transfers more.

use sparse_core::{Element, SparseVec};
use transport::Transport;

use super::{Partial, decode_partial, merge_truncated};
use crate::error::Error;
use crate::in_flight::{InFlight, Lane};
use crate::topology::{Fold, Role};

pub(super) async fn gtopk<T: Transport, E: Element>(
    operation: &InFlight<T>,
    mut partial: Partial<E>,
    k: usize,
) -> Result<Partial<E>, Error> {
    let rank = operation.rank();
    let fold = Fold::new(operation.world_size());
    let dim = partial.kept.dim();
    let encode = |kept: &SparseVec<E>| operation.sparse(kept.view());
    match fold.role(rank) {
        Role::Folded { into } => {
            operation.send(into, Lane::Reduce, encode(&partial.kept)).await?;
            partial.kept = decode_partial(operation.recv(into, Lane::Gather).await?, into, dim, k)?;
        }
        Role::Active { position, from } => {
            if let Some(from) = from {
                let lower = decode_partial(operation.recv(from, Lane::Reduce).await?, from, dim, k)?;
                let (kept, dropped) = merge_truncated(rank, &lower, &partial.kept, k)?;
                partial.kept = kept;
                partial.dropped.push(dropped);
            }
            for round in 0..fold.rounds() {
                let (partner, higher) = fold.partner(position, round);
                let frame = operation.exchange(partner, partner, Lane::Reduce, encode(&partial.kept)).await?;
                let theirs = decode_partial(frame, partner, dim, k)?;
                let (lower, upper) = if higher { (&partial.kept, &theirs) } else { (&theirs, &partial.kept) };
                let (kept, mut dropped) = merge_truncated(rank, lower, upper, k)?;
                partial.kept = kept;
                // A group of a power of two: its members are told apart by the lowest bits.
                let members = (2 << round) - 1;
                dropped.retain(|index, _| (index as usize ^ position) & members == 0);
                partial.dropped.push(dropped);
            }
            if let Some(idle) = from {
                operation.send(idle, Lane::Gather, encode(&partial.kept)).await?;
            }
        }
    }
    Ok(partial)
}
