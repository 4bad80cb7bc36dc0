//! Global top-k: a file per algorithm.

use sparse_core::{Element, SparseVec};
use transport::Transport;

use crate::decode;
use crate::error::Error;
use crate::in_flight::InFlight;

mod butterfly;
mod put_back;
mod tree;

/// How to find the global top-k; costs are per rank, `b` bytes an entry.
///
/// Every merge keeps the k largest entries of two ranks' at most 2k, so an index whose parts are each
/// small may be missed although its sum is large. Both algorithms merge the same operands where P is
/// a power of two, and then find the same result.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum GtopkAlgorithm {
    /// Merges up a binomial tree, then a broadcast: the paper's algorithm, for any P.
    /// `2 ceil(log2 P) (alpha + k b beta)`.
    Tree,
    /// The same merges by recursive doubling, on all ranks at once: `log2 P (alpha + k b beta)`, and
    /// two rounds more where P is not a power of two.
    Butterfly,
}

impl GtopkAlgorithm {
    pub(crate) const fn code(self) -> u8 {
        match self {
            Self::Tree => 7,
            Self::Butterfly => 8,
        }
    }
}

/// What returns to the ranks' residuals after a global top-k.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
#[non_exhaustive]
pub enum PutBack {
    /// Everything that did not reach the result: an entry whose index is not in the global set returns
    /// to its rank; of an index in the set, a partial sum that some merge dropped returns to one of
    /// the ranks below that merge. Inputs = result + what returns, exactly up to the rounding of sums.
    #[default]
    Conserving,
    /// Only entries whose index is not in the global set, as the paper has it: partial sums that
    /// were dropped on the way are lost where their index made it through another branch.
    Paper,
}

impl PutBack {
    pub(crate) const fn code(self) -> u8 {
        match self {
            Self::Conserving => 1,
            Self::Paper => 2,
        }
    }
}

/// The result of a global top-k.
#[derive(Clone, PartialEq, Debug)]
pub struct GlobalTopk<E> {
    /// At most k entries, sums over ranks; the same bits on all ranks.
    pub sum: SparseVec<E>,
    /// What this rank has to add to its residual, see [`PutBack`].
    pub put_back: SparseVec<E>,
}

pub(crate) async fn gtopk<T: Transport, E: Element>(
    operation: &InFlight<T>,
    input: &SparseVec<E>,
    k: usize,
    algorithm: GtopkAlgorithm,
    mode: PutBack,
) -> Result<GlobalTopk<E>, Error> {
    let (own, dropped) = input.clone().top_k(k);
    let partial = Partial { kept: own, dropped: vec![dropped] };
    let Partial { kept: sum, dropped } = match algorithm {
        GtopkAlgorithm::Tree => tree::gtopk(operation, partial, k).await?,
        GtopkAlgorithm::Butterfly => butterfly::gtopk(operation, partial, k).await?,
    };
    let put_back = put_back::put_back(input, &sum, &dropped, mode);
    Ok(GlobalTopk { sum, put_back: put_back.map_err(|source| Error::value(operation.rank(), source))? })
}

/// A partial result on its way, and what truncation left with this rank.
struct Partial<E> {
    kept: SparseVec<E>,
    /// Sums that were dropped and are this rank's to put back.
    dropped: Vec<SparseVec<E>>,
}

/// One truncating merge: the k largest entries of the sum, and the rest.
fn merge_truncated<E: Element>(
    rank: usize,
    lower: &SparseVec<E>,
    upper: &SparseVec<E>,
    k: usize,
) -> Result<(SparseVec<E>, SparseVec<E>), Error> {
    Ok(sparse_core::merge(lower, upper).map_err(|source| Error::value(rank, source))?.top_k(k))
}

/// Decodes a partial result: sparse, and no longer than k.
fn decode_partial<E: Element>(
    frame: sparse_core::wire::Frame,
    from: usize,
    dim: u64,
    k: usize,
) -> Result<SparseVec<E>, Error> {
    let partial = decode::sparse::<E>(frame, from, dim)?;
    if partial.nnz() > k {
        let nnz = partial.nnz();
        return Err(Error::malformed(from, format!("{nnz} entries where at most {k} belong")));
    }
    Ok(partial)
}
