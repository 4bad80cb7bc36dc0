//! Sparse recursive doubling: SparCML's SSAR_Recursive_double.
//!
//! Steps: as dense recursive doubling, but the partial sums are streams that are merged, and that go
//! dense once their entries would cost more than all values. Any P.
//! Cost: `log2 P alpha`, and between `k log2 P` (identical supports) and `(P-1) k` entries (disjoint
//! ones) of `b` bytes, at most `log2 P N v`; where P is not a power of two, one operand and one
//! result more. Lower ranks are always the left operand.

use sparse_core::{Element, SparseVec, Stream};
use transport::Transport;

use crate::decode;
use crate::error::Error;
use crate::in_flight::{InFlight, Lane};
use crate::topology::{Fold, Role};

pub(super) async fn allreduce<T: Transport, E: Element>(
    operation: &InFlight<T>,
    input: &SparseVec<E>,
) -> Result<Stream<E>, Error> {
    let rank = operation.rank();
    let fold = Fold::new(operation.world_size());
    let memory = operation.memory();
    let mut sum = Stream::Sparse(input.view().to_vec_in(memory));
    match fold.role(rank) {
        Role::Folded { into } => {
            operation.send(into, Lane::Reduce, operation.stream(&sum)).await?;
            let result = operation.recv(into, Lane::Gather).await?;
            memory.put(sum);
            decode::stream(result, into, input.dim(), memory)
        }
        Role::Active { position, from } => {
            if let Some(from) = from {
                let frame = operation.recv(from, Lane::Reduce).await?;
                let lower = decode::stream(frame, from, input.dim(), memory)?;
                sum = lower.merge_in(sum, memory).map_err(|source| Error::value(rank, source))?;
            }
            for round in 0..fold.rounds() {
                let (partner, higher) = fold.partner(position, round);
                let message = operation.stream(&sum);
                let frame = operation.exchange(partner, partner, Lane::Reduce, message).await?;
                let theirs = decode::stream(frame, partner, input.dim(), memory)?;
                let (lower, upper) = if higher { (sum, theirs) } else { (theirs, sum) };
                sum = lower.merge_in(upper, memory).map_err(|source| Error::value(rank, source))?;
            }
            if let Some(idle) = from {
                operation.send(idle, Lane::Gather, operation.stream(&sum)).await?;
            }
            Ok(sum)
        }
    }
}
