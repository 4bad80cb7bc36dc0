//! Allgather of blocks and of vectors: a file per algorithm.

use std::future::Future;

use bytes::Bytes;
use sparse_core::{Element, SparseVec};
use transport::Transport;

use crate::call::{Call, Operation};
use crate::communicator::Communicator;
use crate::decode;
use crate::error::Error;
use crate::in_flight::{Check, InFlight};

pub(crate) mod bruck;
mod ring;

pub(crate) use bruck::{LONG, bruck};
pub(crate) use ring::ring;

impl<T: Transport> Communicator<T> {
    /// Gathers one block of bytes from every rank, in rank order; blocks may differ in length.
    ///
    /// Bruck's algorithm. Cost: `ceil(log2 P) alpha + (P-1) n beta` for blocks of `n` bytes; each
    /// block adds 8 bytes wherever it travels, one of 64 KiB or more a header.
    ///
    /// # Errors
    /// What every operation can meet.
    pub fn allgather(&self, block: Bytes) -> impl Future<Output = Result<Vec<Bytes>, Error>> + Send {
        let begun = self.begin(Call::plain(Operation::Allgather, 0));
        async move {
            let operation = begun?;
            let result = operation.drive(Check::Neighbour, opaque(&operation, block)).await;
            operation.finish(result)
        }
    }

    /// Gathers the sparse vector of every rank, in rank order: of one dimension, each with as many entries as it has.
    ///
    /// Bruck's algorithm. Cost: `ceil(log2 P) alpha + (P-1) k b beta`.
    ///
    /// ```
    /// use collectives::Communicator;
    /// use sparse_core::SparseVec;
    ///
    /// let gathered = testkit::run_world(testkit::local_world(3), |transport| async move {
    ///     let communicator = Communicator::new(transport);
    ///     let rank = communicator.rank().0;
    ///     let mine = SparseVec::new(100, (0..rank).collect(), vec![1.0_f32; rank as usize])?;
    ///     let all = communicator.allgather_sparse(&mine).await?;
    ///     Ok::<_, Box<dyn std::error::Error + Send + Sync>>(all.iter().map(SparseVec::nnz).collect::<Vec<_>>())
    /// });
    /// assert!(gathered.into_iter().all(|nnz| nnz.unwrap() == [0, 1, 2]));
    /// ```
    ///
    /// # Errors
    /// What every operation can meet.
    pub fn allgather_sparse<E: Element>(
        &self,
        input: &SparseVec<E>,
    ) -> impl Future<Output = Result<Vec<SparseVec<E>>, Error>> + Send {
        let begun = self.begin(Call::vector::<E>(Operation::AllgatherSparse, 0, input.dim()));
        async move {
            let operation = begun?;
            let result = operation.drive(Check::Neighbour, sparse(&operation, input)).await;
            operation.finish(result)
        }
    }

    /// Gathers dense vectors of N values each: `output`, of P N values, gets them in rank order.
    ///
    /// Bruck's algorithm. Cost: `ceil(log2 P) alpha + (P-1) N v beta`.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if `output` is not P times as long as `input`; and what every operation can meet. After
    /// an error `output` holds no meaningful values.
    pub fn allgather_dense<E: Element>(
        &self,
        input: &[E],
        output: &mut [E],
    ) -> impl Future<Output = Result<(), Error>> + Send {
        let (ranks, len) = (self.world_size(), output.len());
        let fits = if input.len().checked_mul(ranks) == Some(len) {
            Ok(())
        } else {
            Err(Error::invalid(format!(
                "the output has {len} elements for {} from each of {ranks} ranks: make it {ranks} times as long as the input",
                input.len()
            )))
        };
        let call = Call::vector::<E>(Operation::AllgatherDense, 0, input.len() as u64);
        let begun = fits.and_then(|()| self.begin(call));
        async move {
            let operation = begun?;
            let result = operation.drive(Check::Neighbour, dense(&operation, input, output)).await;
            operation.finish(result)
        }
    }
}

async fn opaque<T: Transport>(operation: &InFlight<T>, block: Bytes) -> Result<Vec<Bytes>, Error> {
    // What travels alone has to be a message.
    let block = if block.len() < LONG { block } else { operation.opaque(&[&block]) };
    let blocks = bruck(operation, block).await?;
    let unpack = |(from, block): (usize, Bytes)| {
        if block.len() < LONG {
            return Ok(block);
        }
        operation.open(from, block)?.into_opaque().map_err(|source| Error::malformed(from, source))
    };
    blocks.into_iter().enumerate().map(unpack).collect()
}

async fn sparse<T: Transport, E: Element>(
    operation: &InFlight<T>,
    input: &SparseVec<E>,
) -> Result<Vec<SparseVec<E>>, Error> {
    let blocks = bruck(operation, operation.sparse(input.view())).await?;
    let vector =
        |(from, block)| decode::sparse(operation.open(from, block)?, from, input.dim(), operation.memory());
    blocks.into_iter().enumerate().map(vector).collect()
}

async fn dense<T: Transport, E: Element>(
    operation: &InFlight<T>,
    input: &[E],
    output: &mut [E],
) -> Result<(), Error> {
    let blocks = bruck(operation, operation.dense(input)).await?;
    // Of no values there are no chunks.
    let mut places = output.chunks_exact_mut(input.len().max(1));
    for (from, block) in blocks.into_iter().enumerate() {
        decode::copy_dense(&operation.open(from, block)?, from, places.next().unwrap_or_default())?;
    }
    Ok(())
}
