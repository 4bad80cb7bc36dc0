//! Allreduce: a file per algorithm.

use std::future::Future;
use std::sync::Arc;

use sparse_core::{DType, Element, SparseVec, Stream};
use sparse_quant::Quantizer;
use transport::Transport;

use crate::call::{AUTO, Call, Operation};
use crate::communicator::Communicator;
use crate::error::Error;
use crate::in_flight::{Check, InFlight};

pub(crate) mod auto;
mod dense_recursive_doubling;
pub(crate) mod dense_ring;
mod dsar_split_allgather;
mod rabenseifner;
mod ssar_recursive_doubling;
pub(crate) mod ssar_ring;
mod ssar_split_allgather;
mod topk_allgather;

impl<T: Transport> Communicator<T> {
    /// Sums dense vectors: `output = sum of all ranks' input`, elementwise, each of length N.
    ///
    /// Cost: see [`DenseAlgorithm`]. Half types are rounded at every addition.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if the lengths differ; [`Error::Value`] if an integer sum overflows;
    /// and what every operation can meet. After an error `output` holds no meaningful values.
    pub fn allreduce_dense<E: Element>(
        &self,
        input: &[E],
        output: &mut [E],
        algorithm: DenseAlgorithm,
    ) -> impl Future<Output = Result<(), Error>> + Send {
        let operation = Operation::AllreduceDense;
        let begun = self.begin_allreduce_dense::<E>(operation, input.len(), output.len(), algorithm);
        async move {
            let operation = begun?;
            let algorithm = dense(&operation, input, output, algorithm);
            let result = operation.drive(Check::Neighbour, algorithm).await;
            operation.finish(result)
        }
    }

    /// Sums sparse vectors of the same dimension over all ranks.
    ///
    /// The sum is exact but for rounding (and quantization, where asked for); it comes sparse or
    /// dense, as is smaller, alike on all ranks. Cost: see [`SparseAlgorithm`].
    ///
    /// # Errors
    /// [`Error::Value`] if an integer sum overflows or a value cannot be quantized;
    /// [`Error::InvalidArgument`] if integers are to be quantized; and what every operation can meet.
    pub fn allreduce<E: Element>(
        &self,
        input: &SparseVec<E>,
        algorithm: &SparseAlgorithm,
    ) -> impl Future<Output = Result<Stream<E>, Error>> + Send {
        let begun = self.begin_allreduce::<E>(Operation::Allreduce, input.dim(), algorithm);
        async move {
            let operation = begun?;
            let result = operation.drive(Check::Neighbour, sparse(&operation, input, algorithm)).await;
            operation.finish(result)
        }
    }

    pub(crate) fn begin_allreduce_dense<E: Element>(
        &self,
        operation: Operation,
        input: usize,
        output: usize,
        algorithm: DenseAlgorithm,
    ) -> Result<InFlight<T>, Error> {
        if input != output {
            let detail = format!("the input has {input} elements, the output {output}: make them equal");
            return Err(Error::invalid(detail));
        }
        let call = Call::vector::<E>(operation, algorithm.code(), input as u64);
        self.begin(self.reducing::<E>(call)?)
    }

    pub(crate) fn begin_allreduce<E: Element>(
        &self,
        operation: Operation,
        dim: u64,
        algorithm: &SparseAlgorithm,
    ) -> Result<InFlight<T>, Error> {
        algorithm.validate::<E>()?;
        let call = Call::vector::<E>(operation, algorithm.code(), dim);
        self.begin(self.reducing::<E>(call.with_mode(algorithm.mode(), algorithm.parameter()))?)
    }
}

/// How to sum dense vectors of N values of `v` bytes over P ranks; costs are per rank.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum DenseAlgorithm {
    /// Reduce-scatter and allgather round the ring: `2(P-1) ceil(G/8) alpha + 2(P-1)/P N v beta`, the
    /// least volume there is, in pieces: G of them for each P-th of the vector, one for each 128 KiB.
    /// For long vectors.
    Ring,
    /// Whole vectors exchanged in `log2 P` rounds: `log2 P (alpha + N v beta)`, and two rounds more
    /// where P is not a power of two. For short vectors.
    RecursiveDoubling,
    /// Recursive halving, then recursive doubling: `2 log2 P alpha + 2(P-1)/P N v beta`, the volume of the ring in fewer
    /// rounds; where P is not a power of two, up to two transfers of the whole vector more. For vectors of middling length.
    Rabenseifner,
    /// The one whose time is predicted to be the least: see [`cost::choose_dense`](crate::cost::choose_dense) and
    /// [`Communicator::link`](crate::Communicator::link).
    Auto,
}

impl DenseAlgorithm {
    pub(crate) const fn code(self) -> u8 {
        match self {
            Self::Ring => 1,
            Self::RecursiveDoubling => 2,
            Self::Rabenseifner => 11,
            Self::Auto => AUTO,
        }
    }
}

/// How to sum sparse vectors over P ranks: N is the dimension, `k` a rank's nnz, K the nnz of the
/// union, `b` bytes an entry. Costs are per rank. For values of `v` bytes `b` is
/// `v + (2 + log2(N/n)) / 8` or less where the `n` entries of a message lie uniformly, clustered far less, and never
/// more than `v + 4`: see [`sparse_core::codec`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum SparseAlgorithm {
    /// Whole vectors merged in `log2 P` rounds, going dense where that is smaller:
    /// `log2 P alpha`, and between `k log2 P` and `(P-1) k` entries. For few ranks or small vectors.
    /// SparCML's SSAR_Recursive_double.
    SsarRecursiveDoubling,
    /// Each range of the index space goes straight to its owner, who sums it; then an allgather:
    /// `(P-1 + log2 P) alpha + (k + K(P-1)/P) b beta`. For large vectors whose union stays sparse.
    /// SparCML's SSAR_Split_allgather.
    SsarSplitAllgather,
    /// The same with dense ranges at the owners: `2(P-1) alpha + k b beta + N(P-1)/P v beta`. For
    /// unions that are dense. SparCML's DSAR_Split_allgather.
    DsarSplitAllgather,
    /// DSAR with the second phase quantized, where `v` is then the quantizer's bytes per value; not
    /// for integers. All ranks decode the same bits.
    DsarQuantized {
        /// How to quantize; the same on every rank.
        quantizer: Arc<dyn Quantizer>,
        /// Seeds the stochastic rounding, together with the step and the rank.
        seed: u64,
        /// The training step: a new one for each call.
        step: u64,
    },
    /// Every rank gets every vector and sums them: `ceil(log2 P) alpha + (P-1) k b beta`. The
    /// O(kP) baseline of the gTop-k paper.
    TopkAllgather,
    /// Ranges go round the ring, each rank merging its entries into the partial sums that pass; each piece goes dense by
    /// itself. `2(P-1) ceil(G/8) alpha`, in G pieces of a range, one for each 1 MiB of dense values; between
    /// `k(P-1)/P` (identical supports) and `k(P-1)/2` entries (disjoint ones), and `K(P-1)/P`, at most
    /// `2(P-1)/P N v` bytes. For links that are slow, or slow when many ranks send to one. SparCML's ring.
    SsarRing,
    /// The one of the above, all but the quantized, whose time is predicted to be the least: see
    /// [`cost::choose_sparse`](crate::cost::choose_sparse) and [`Communicator::link`](crate::Communicator::link). First the
    /// ranks share their nnz, 8 bytes each, in `ceil(log2 P) alpha`.
    ///
    /// With the same link and inputs the choice is the same in every run, and so are the bits; not with
    /// [`Options::learn`](crate::Options::learn).
    Auto,
}

impl SparseAlgorithm {
    pub(crate) const fn code(&self) -> u8 {
        match self {
            Self::SsarRecursiveDoubling => 3,
            Self::SsarSplitAllgather => 4,
            Self::DsarSplitAllgather | Self::DsarQuantized { .. } => 5,
            Self::TopkAllgather => 6,
            Self::SsarRing => 10,
            Self::Auto => AUTO,
        }
    }

    pub(crate) const fn mode(&self) -> u8 {
        if matches!(self, Self::DsarQuantized { .. }) { 3 } else { 0 }
    }

    pub(crate) fn parameter(&self) -> u64 {
        if let Self::DsarQuantized { quantizer, .. } = self { quantizer.code() } else { 0 }
    }

    pub(crate) fn validate<E: Element>(&self) -> Result<(), Error> {
        let integers = matches!(E::DTYPE, DType::I32 | DType::I64);
        if integers && matches!(self, Self::DsarQuantized { .. }) {
            let dtype = E::DTYPE.name();
            return Err(Error::invalid(format!("{dtype} cannot be quantized: use dsar_split_allgather")));
        }
        Ok(())
    }
}

pub(crate) async fn dense<T: Transport, E: Element>(
    operation: &InFlight<T>,
    input: &[E],
    output: &mut [E],
    algorithm: DenseAlgorithm,
) -> Result<(), Error> {
    dense_sum(operation, input, output, algorithm).await?;
    operation.reduce_values(output);
    Ok(())
}

pub(crate) async fn dense_sum<T: Transport, E: Element>(
    operation: &InFlight<T>,
    input: &[E],
    output: &mut [E],
    algorithm: DenseAlgorithm,
) -> Result<(), Error> {
    match algorithm {
        DenseAlgorithm::Ring => dense_ring::allreduce(operation, input, output).await,
        DenseAlgorithm::RecursiveDoubling => {
            dense_recursive_doubling::allreduce(operation, input, output).await
        }
        DenseAlgorithm::Rabenseifner => rabenseifner::allreduce(operation, input, output).await,
        DenseAlgorithm::Auto => auto::dense(operation, input, output).await,
    }
}

pub(crate) async fn sparse<T: Transport, E: Element>(
    operation: &InFlight<T>,
    input: &SparseVec<E>,
    algorithm: &SparseAlgorithm,
) -> Result<Stream<E>, Error> {
    Ok(operation.reduce_stream(sparse_sum(operation, input, algorithm).await?))
}

pub(crate) async fn sparse_sum<T: Transport, E: Element>(
    operation: &InFlight<T>,
    input: &SparseVec<E>,
    algorithm: &SparseAlgorithm,
) -> Result<Stream<E>, Error> {
    match algorithm {
        SparseAlgorithm::SsarRecursiveDoubling => ssar_recursive_doubling::allreduce(operation, input).await,
        SparseAlgorithm::SsarSplitAllgather => ssar_split_allgather::allreduce(operation, input).await,
        SparseAlgorithm::DsarSplitAllgather => dsar_split_allgather::allreduce(operation, input).await,
        SparseAlgorithm::DsarQuantized { quantizer, seed, step } => {
            dsar_split_allgather::allreduce_quantized(operation, input, &**quantizer, *seed, *step).await
        }
        SparseAlgorithm::TopkAllgather => topk_allgather::allreduce(operation, input).await,
        SparseAlgorithm::SsarRing => ssar_ring::allreduce(operation, input).await,
        SparseAlgorithm::Auto => auto::sparse(operation, input).await,
    }
}
