//! Reduce-scatter: each rank gets the sum of its range of the index space. A file per algorithm.

use std::future::Future;
use std::ops::Range;

use sparse_core::{Element, SparseVec, Stream};
use transport::Transport;

use crate::call::{Call, Operation};
use crate::communicator::Communicator;
use crate::error::Error;
use crate::in_flight::Check;
use crate::{decode, topology};

mod dense_ring;
pub(crate) mod split;

impl<T: Transport> Communicator<T> {
    /// The range of `0..dim` whose sum this rank gets from a reduce-scatter: the ranges of all ranks follow each other, and
    /// their lengths differ by at most one.
    #[must_use]
    pub fn range(&self, dim: u64) -> Range<u64> {
        topology::range(dim, self.world_size(), self.rank().index())
    }

    /// Sums sparse vectors of the same dimension over all ranks; each rank gets its [`range`](Self::range) of the sum,
    /// with indices counted from the start of the range, sparse or dense as is smaller.
    ///
    /// Each range goes straight to its owner, who sums all parts in rank order, in the accumulator type, and rounds once.
    /// Cost: `(P-1) alpha + k(P-1)/P b beta` at balanced supports.
    ///
    /// ```
    /// use collectives::Communicator;
    /// use sparse_core::SparseVec;
    ///
    /// let parts = testkit::run_world(testkit::local_world(2), |transport| async move {
    ///     let communicator = Communicator::new(transport);
    ///     let mine = SparseVec::new(8, vec![1, 7], vec![1.0_f32, 2.0])?;
    ///     let sum = communicator.reduce_scatter(&mine).await?;
    ///     Ok::<_, Box<dyn std::error::Error + Send + Sync>>(sum.into_dense())
    /// });
    /// let parts: Vec<_> = parts.into_iter().map(Result::unwrap).collect();
    /// assert_eq!(parts, [[0.0, 2.0, 0.0, 0.0], [0.0, 0.0, 0.0, 4.0]]);
    /// ```
    ///
    /// # Errors
    /// [`Error::Value`] if an integer sum overflows; and what every operation can meet.
    pub fn reduce_scatter<E: Element>(
        &self,
        input: &SparseVec<E>,
    ) -> impl Future<Output = Result<Stream<E>, Error>> + Send {
        let call = self.reducing::<E>(Call::vector::<E>(Operation::ReduceScatter, 0, input.dim()));
        let begun = call.and_then(|call| self.begin(call));
        async move {
            let operation = begun?;
            let ranges = topology::ranges(input.dim(), operation.world_size());
            let algorithm = split::sum_own_range(&operation, input, &ranges);
            let result = operation.drive(Check::Neighbour, algorithm).await;
            let result = result.map(|sum| operation.reduce_stream(decode::shorter(sum, operation.memory())));
            operation.finish(result)
        }
    }

    /// Sums dense vectors of N values over all ranks; `output` gets this rank's [`range`](Self::range) of the sum.
    ///
    /// Round the ring. Cost: `(P-1) ceil(G/8) alpha + (P-1)/P N v beta`, in G pieces of a range, one for each 128 KiB.
    /// Half types are rounded at every addition.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if `output` is not as long as the range; [`Error::Value`] if an integer sum overflows,
    /// also on the way; and what every operation can meet. After an error `output` holds no meaningful values.
    pub fn reduce_scatter_dense<E: Element>(
        &self,
        input: &[E],
        output: &mut [E],
    ) -> impl Future<Output = Result<(), Error>> + Send {
        let dim = input.len() as u64;
        let range = self.range(dim);
        let fits = if output.len() as u64 == range.end - range.start {
            Ok(())
        } else {
            let (wanted, len) = (range.end - range.start, output.len());
            Err(Error::invalid(format!(
                "the output has {len} elements, this rank's range of {dim} has {wanted}: make them equal"
            )))
        };
        let call = Call::vector::<E>(Operation::ReduceScatterDense, 0, dim);
        let begun = fits.and_then(|()| self.begin(self.reducing::<E>(call)?));
        async move {
            let operation = begun?;
            let algorithm = dense_ring::reduce_scatter(&operation, input, output);
            let result = operation.drive(Check::Neighbour, algorithm).await;
            operation.reduce_values(output);
            operation.finish(result)
        }
    }
}
