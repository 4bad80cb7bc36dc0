//! Allgather of opaque blocks: a file per algorithm.

use std::future::Future;

use bytes::Bytes;
use transport::Transport;

use crate::call::{Call, Operation};
use crate::communicator::Communicator;
use crate::error::Error;
use crate::in_flight::Check;

pub(crate) mod bruck;
mod ring;

pub(crate) use bruck::bruck;
pub(crate) use ring::ring;

impl<T: Transport> Communicator<T> {
    /// Gathers one block of bytes from every rank, in rank order; blocks may differ in length.
    ///
    /// Bruck's algorithm. Cost: `ceil(log2 P) alpha + (P-1) n beta` for blocks of `n` bytes; each
    /// block adds 8 bytes wherever it travels.
    ///
    /// # Errors
    /// What every operation can meet.
    pub fn allgather(&self, block: Bytes) -> impl Future<Output = Result<Vec<Bytes>, Error>> + Send {
        let begun = self.begin(Call::plain(Operation::Allgather, 0));
        async move {
            let operation = begun?;
            let result = operation.drive(Check::Neighbour, bruck(&operation, block)).await;
            operation.finish(result)
        }
    }
}
