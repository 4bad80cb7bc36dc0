//! Dense recursive doubling.
//!
//! Steps: ranks beyond the largest power of two hand their vector to a neighbour; in round `i` the
//! ranks at positions that differ in bit `i` exchange their partial sums; the idle ranks get the
//! result. Cost: `log2 P (alpha + N v beta)`; for other P the neighbour's two transfers come on top.
//! Sums pair the same operands on both sides, and addition commutes, so all get the same bits.

use sparse_core::Element;
use transport::Transport;

use crate::decode;
use crate::error::Error;
use crate::in_flight::{InFlight, Lane};
use crate::topology::{Fold, Role};

pub(super) async fn allreduce<T: Transport, E: Element>(
    operation: &InFlight<T>,
    input: &[E],
    output: &mut [E],
) -> Result<(), Error> {
    let rank = operation.rank();
    let fold = Fold::new(operation.world_size());
    let message = |values: &[E]| operation.dense(values);
    output.copy_from_slice(input);
    match fold.role(rank) {
        Role::Folded { into } => {
            operation.send(into, Lane::Reduce, message(output)).await?;
            let result = operation.recv(into, Lane::Gather).await?;
            decode::copy_dense(&result, into, output)
        }
        Role::Active { position, from } => {
            if let Some(from) = from {
                let lower = operation.recv(from, Lane::Reduce).await?;
                decode::add_dense(&lower, from, rank, output)?;
            }
            for round in 0..fold.rounds() {
                let (partner, _) = fold.partner(position, round);
                let theirs = operation.exchange(partner, partner, Lane::Reduce, message(output)).await?;
                decode::add_dense(&theirs, partner, rank, output)?;
            }
            match from {
                Some(idle) => operation.send(idle, Lane::Gather, message(output)).await,
                None => Ok(()),
            }
        }
    }
}
