//! Reduce: one rank gets the sum. A file per algorithm.

use std::future::Future;

use sparse_core::{Element, SparseVec, Stream};
use transport::{Rank, Transport};

use crate::call::{Call, Operation};
use crate::communicator::Communicator;
use crate::error::Error;
use crate::in_flight::Check;

mod split_gather;

impl<T: Transport> Communicator<T> {
    /// Sums sparse vectors of the same dimension over all ranks, for `root` alone: it gets the sum, sparse or dense as is
    /// smaller, the others nothing.
    ///
    /// Each range goes straight to its owner, who sums all parts in rank order, in the accumulator type, and rounds once; the
    /// sums go straight to the root. They have the bits of [`sparse_core::reduce`], whichever the root.
    /// Cost: `2 alpha + (k + K)(P-1)/P b beta` at balanced supports, in P messages of each rank.
    ///
    /// ```
    /// use collectives::Communicator;
    /// use sparse_core::SparseVec;
    /// use transport::Rank;
    ///
    /// let sums = testkit::run_world(testkit::local_world(3), |transport| async move {
    ///     let communicator = Communicator::new(transport);
    ///     let mine = SparseVec::new(1_000_000, vec![7, 100 + communicator.rank().0], vec![1.0_f32, 2.0])?;
    ///     let sum = communicator.reduce(Rank(1), &mine).await?;
    ///     Ok::<_, Box<dyn std::error::Error + Send + Sync>>(sum.map(|sum| sum.nnz()))
    /// });
    /// let sums: Vec<_> = sums.into_iter().map(Result::unwrap).collect();
    /// assert_eq!(sums, [None, Some(4), None]);
    /// ```
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if `root` is not a rank; [`Error::Value`] if an integer sum overflows; and what every
    /// operation can meet. A rank that has passed on its part does not hear of what fails at the root.
    pub fn reduce<E: Element>(
        &self,
        root: Rank,
        input: &SparseVec<E>,
    ) -> impl Future<Output = Result<Option<Stream<E>>, Error>> + Send {
        let call = self.reducing::<E>(Call::vector::<E>(Operation::Reduce, 0, input.dim()));
        let begun = call.and_then(|call| self.begin_rooted(root, call));
        async move {
            let operation = begun?;
            let algorithm = split_gather::sparse(&operation, root.index(), input);
            let result = operation.drive(Check::Neighbour, algorithm).await;
            let result = result.map(|sum| sum.map(|sum| operation.reduce_stream(sum)));
            operation.finish(result)
        }
    }

    /// Sums dense vectors of N values over all ranks, for `root` alone: its `output` gets the sum; that of the others is
    /// left as it is, and may be of any length.
    ///
    /// As [`reduce`](Self::reduce): added in rank order in the accumulator type, and rounded once, so half types lose
    /// nothing on the way. Cost: `2 alpha + 2(P-1)/P N v beta`, in P messages of each rank.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if `root` is not a rank, or if the lengths differ there; [`Error::Value`] if an integer
    /// sum overflows; and what every operation can meet. After an error the root's `output` holds no meaningful values.
    pub fn reduce_dense<E: Element>(
        &self,
        root: Rank,
        input: &[E],
        output: &mut [E],
    ) -> impl Future<Output = Result<(), Error>> + Send {
        let is_root = self.rank() == root;
        let lengths = if !is_root || input.len() == output.len() {
            Ok(())
        } else {
            let (input, output) = (input.len(), output.len());
            Err(Error::invalid(format!(
                "the input has {input} elements, the output of the root {output}: make them equal"
            )))
        };
        let call = Call::vector::<E>(Operation::ReduceDense, 0, input.len() as u64);
        let begun = lengths.and_then(|()| self.begin_rooted(root, self.reducing::<E>(call)?));
        async move {
            let operation = begun?;
            let algorithm = split_gather::dense(&operation, root.index(), input, output);
            let result = operation.drive(Check::Neighbour, algorithm).await;
            if is_root {
                operation.reduce_values(output);
            }
            operation.finish(result)
        }
    }
}
