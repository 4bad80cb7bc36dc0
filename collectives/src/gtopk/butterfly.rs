//! Global top-k by recursive doubling: half the steps of the tree, the same merges.
//!
//! Steps: as sparse [recursive doubling](crate::doubling), each merge keeping the k largest entries. Both partners make
//! the same merge, so both know what it drops; index `i` of a merge over a group of `g` ranks is put
//! back by member `i mod g`, which spreads the residuals evenly.
//! Cost: `log2 P (alpha + k b beta)`; where P is not a power of two, two transfers more.

use std::mem;

use bytes::Bytes;
use sparse_core::{Element, SparseVec};
use transport::Transport;

use super::{Partial, decode_partial};
use crate::doubling::{self, Piece, Sums};
use crate::error::Error;
use crate::in_flight::InFlight;
use crate::topology::{Fold, Role};

pub(super) async fn gtopk<T: Transport, E: Element>(
    operation: &InFlight<T>,
    partial: Partial<E>,
    k: usize,
) -> Result<Partial<E>, Error> {
    let position = match Fold::new(operation.world_size()).role(operation.rank()) {
        Role::Active { position, .. } => position,
        Role::Folded { .. } => 0,
    };
    let mut largest = Largest { operation, position, partial, k };
    doubling::run(operation, &mut largest).await?;
    Ok(largest.partial)
}

/// The k largest of the sum so far, in one piece: which these are only the whole tells.
struct Largest<'a, T: Transport, E> {
    operation: &'a InFlight<T>,
    /// Among those that merge.
    position: usize,
    partial: Partial<E>,
    k: usize,
}

impl<T: Transport, E: Element> Sums for Largest<'_, T, E> {
    fn most_pieces(&self) -> usize {
        1
    }

    fn pieces(&self) -> usize {
        1
    }

    fn cut(&mut self, _: usize) {}

    fn message(&self, _: usize) -> Bytes {
        self.operation.sparse(self.partial.kept.view())
    }

    fn add(&mut self, theirs: Piece) -> Result<(), Error> {
        let from = theirs.from;
        let theirs = self.decode(theirs)?;
        self.partial.merge(self.operation, theirs, !from.is_lower, self.k)?;
        if let Some(round) = from.round
            && let Some(dropped) = self.partial.dropped.last_mut()
        {
            // A group of a power of two: its members are told apart by the lowest bits.
            let (position, members) = (self.position, (2 << round) - 1);
            dropped.retain(|index, _| (index as usize ^ position) & members == 0);
        }
        Ok(())
    }

    fn take(&mut self, result: Piece) -> Result<(), Error> {
        let kept = self.decode(result)?;
        self.operation.memory().put(mem::replace(&mut self.partial.kept, kept));
        Ok(())
    }
}

impl<T: Transport, E: Element> Largest<'_, T, E> {
    fn decode(&self, piece: Piece) -> Result<SparseVec<E>, Error> {
        let (dim, memory) = (self.partial.kept.dim(), self.operation.memory());
        decode_partial(piece.frame, piece.from.rank, dim, self.k, memory)
    }
}
