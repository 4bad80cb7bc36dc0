//! Global top-k: a file per algorithm.

use sparse_core::{Element, SparseVec};
use transport::Transport;

use crate::decode;
use crate::error::Error;
use crate::in_flight::InFlight;

mod butterfly;
mod exact;
mod oktopk;
pub(crate) mod owners;
mod put_back;
mod spardl;
mod tree;

/// How to find the global top-k; costs are per rank, `b` bytes an entry.
///
/// Every merge of the tree and the butterfly keeps the k largest entries of two ranks' at most 2k, so an index
/// whose parts are each small may be missed although its sum is large. Both merge the same operands where P is
/// a power of two, and then find the same result. Of an input they and Ok-Topk use the k largest; the exact algorithm uses
/// all of it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum GtopkAlgorithm {
    /// Merges up a binomial tree, then a broadcast: the paper's algorithm, for any P.
    /// `2 ceil(log2 P) (alpha + k b beta)`.
    Tree,
    /// The same merges by recursive doubling, on all ranks at once: `log2 P (alpha + k b beta)`, and
    /// two rounds more where P is not a power of two.
    Butterfly,
    /// The exact top-k of the sum of the inputs, as [`SparseVec::top_k`] of [`sparse_core::reduce`] has it:
    /// `(P-1 + 3 ceil(log2 P)) alpha + 2k(P-1)/P b beta` where the ranks' supports of k entries are alike, about the
    /// least volume there is; at most about `3k b beta` however they lie. Ranges of indices go to owners, who sum them
    /// and agree on what is large.
    Exact,
    /// The exact top-k of the sum of the ranks' k largest entries, as `Exact`, with what survives spread evenly over the
    /// ranks before it is gathered: the same cost where supports are alike and results too, at most `3k(P-1)/P b beta` where
    /// results are not.
    Oktopk,
    /// Of each of P ranges of equal length the `h = ceil(k/P)` largest sums, cut to as many at every merge, and the k largest of
    /// these: the fewest rounds of those whose volume does not grow with P. `2 ceil(log2 P) alpha + 2 h (P-1) b beta`,
    /// which is about `2k(P-1)/P b beta`, however the supports lie. Fewer than k entries where the large ones are in few ranges.
    Spardl,
}

impl GtopkAlgorithm {
    pub(crate) const fn code(self) -> u8 {
        match self {
            Self::Tree => 7,
            Self::Butterfly => 8,
            Self::Exact => 9,
            Self::Oktopk => 12,
            Self::Spardl => 13,
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
    let Partial { kept: sum, dropped } = match algorithm {
        GtopkAlgorithm::Tree => tree::gtopk(operation, Partial::of(input, k), k).await?,
        GtopkAlgorithm::Butterfly => butterfly::gtopk(operation, Partial::of(input, k), k).await?,
        GtopkAlgorithm::Oktopk => oktopk::gtopk(operation, Partial::of(input, k), k).await?,
        GtopkAlgorithm::Spardl => spardl::gtopk(operation, input, k).await?,
        // What it drops is whole sums, outside the global set.
        GtopkAlgorithm::Exact => {
            Partial { kept: exact::gtopk(operation, input, k).await?, dropped: Vec::new() }
        }
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

impl<E: Element> Partial<E> {
    fn of(input: &SparseVec<E>, k: usize) -> Self {
        let (kept, dropped) = input.clone().top_k(k);
        Self { kept, dropped: vec![dropped] }
    }
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
