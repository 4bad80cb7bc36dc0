//! The algorithms and what a run of each needs, for all tests of the collectives.

use collectives::{Communicator, DenseAlgorithm, Error, GtopkAlgorithm, PutBack, SparseAlgorithm};
use sparse_core::{Element, SparseVec};
use transport::Transport;

/// An allreduce of either kind; a new algorithm gets its row in [`ALL`](Self::all).
#[derive(Clone, Debug)]
pub(crate) enum Algorithm {
    Dense(DenseAlgorithm),
    Sparse(SparseAlgorithm),
    /// With a k that holds the whole sum.
    Gtopk(GtopkAlgorithm),
}

impl Algorithm {
    pub(crate) fn all() -> Vec<Self> {
        vec![
            Self::Dense(DenseAlgorithm::Ring),
            Self::Dense(DenseAlgorithm::RecursiveDoubling),
            Self::Dense(DenseAlgorithm::Rabenseifner),
            Self::Sparse(SparseAlgorithm::SsarRecursiveDoubling),
            Self::Sparse(SparseAlgorithm::SsarSplitAllgather),
            Self::Sparse(SparseAlgorithm::DsarSplitAllgather),
            Self::Sparse(SparseAlgorithm::TopkAllgather),
            Self::Gtopk(GtopkAlgorithm::Exact),
            Self::Gtopk(GtopkAlgorithm::Oktopk),
            Self::Gtopk(GtopkAlgorithm::Spardl),
            Self::Sparse(SparseAlgorithm::SsarRing),
            Self::Dense(DenseAlgorithm::Auto),
            Self::Sparse(SparseAlgorithm::Auto),
        ]
    }

    /// The sum as dense values.
    pub(crate) async fn sum<T: Transport, E: Element>(
        &self,
        communicator: &Communicator<T>,
        input: &SparseVec<E>,
    ) -> Result<Vec<E>, Error> {
        match self {
            Self::Dense(algorithm) => {
                let input = input.to_dense();
                let mut output = vec![E::ZERO; input.len()];
                communicator.allreduce_dense(&input, &mut output, *algorithm).await?;
                Ok(output)
            }
            Self::Gtopk(algorithm) => {
                let k = input.dim() as usize;
                Ok(communicator.gtopk(input, k, *algorithm, PutBack::Conserving).await?.sum.to_dense())
            }
            Self::Sparse(algorithm) => Ok(communicator.allreduce(input, algorithm).await?.into_dense()),
        }
    }
}

pub(crate) const GTOPK: [GtopkAlgorithm; 5] = [
    GtopkAlgorithm::Tree,
    GtopkAlgorithm::Butterfly,
    GtopkAlgorithm::Exact,
    GtopkAlgorithm::Oktopk,
    GtopkAlgorithm::Spardl,
];
pub(crate) const PUT_BACK: [PutBack; 2] = [PutBack::Conserving, PutBack::Paper];

/// The dimensions at which partitions and rounds have their edges.
pub(crate) fn dims(ranks: usize) -> Vec<u64> {
    let ranks = ranks as u64;
    let mut dims = vec![0, 1, ranks - 1, ranks, ranks + 1, 1000];
    dims.sort_unstable();
    dims.dedup();
    dims
}

/// The values' bits, for comparisons that NaN and signed zeros cannot blur.
pub(crate) fn bits<E: Element>(values: &[E]) -> Vec<u8> {
    bytemuck::cast_slice(values).to_vec()
}
