//! Global top-k: a file per algorithm.

use std::future::Future;

use sparse_core::{Element, Memory, Reusable, SparseVec};
use transport::Transport;

use crate::call::{Call, Operation};
use crate::communicator::Communicator;
use crate::decode;
use crate::error::Error;
use crate::in_flight::{Check, InFlight};

mod butterfly;
pub(crate) mod exact;
mod oktopk;
pub(crate) mod owners;
pub(crate) mod put_back;
mod spardl;
mod tree;

impl<T: Transport> Communicator<T> {
    /// The `k` largest entries by magnitude of the sum: exactly, or nearly by merging and truncating pairwise.
    ///
    /// Usually `input` is this rank's own top-k. [`GlobalTopk::put_back`] says what this rank must keep for
    /// later so that nothing is lost: it is of sums, and the same where the [mean](crate::Reduction::Mean) is
    /// asked for, so that the inputs are P times the result and what returns. What is found, and at which cost: see [`GtopkAlgorithm`].
    ///
    /// # Errors
    /// [`Error::Value`] if an integer sum overflows; and what every operation can meet.
    pub fn gtopk<E: Element>(
        &self,
        input: &SparseVec<E>,
        k: usize,
        algorithm: GtopkAlgorithm,
        put_back: PutBack,
    ) -> impl Future<Output = Result<GlobalTopk<E>, Error>> + Send {
        let begun = self.begin_gtopk::<E>(Operation::Gtopk, input.dim(), k, algorithm, put_back);
        async move {
            let operation = begun?;
            let algorithm = gtopk(&operation, input, k, algorithm, put_back);
            let result = operation.drive(Check::Neighbour, algorithm).await;
            operation.finish(result)
        }
    }

    pub(crate) fn begin_gtopk<E: Element>(
        &self,
        operation: Operation,
        dim: u64,
        k: usize,
        algorithm: GtopkAlgorithm,
        put_back: PutBack,
    ) -> Result<InFlight<T>, Error> {
        let call = Call::vector::<E>(operation, algorithm.code(), dim);
        self.begin(self.reducing::<E>(call.with_mode(put_back.code(), k as u64))?)
    }
}

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
    /// At most k entries, sums over ranks, or means; the same bits on all ranks.
    pub sum: SparseVec<E>,
    /// What this rank has to add to its residual, see [`PutBack`].
    pub put_back: SparseVec<E>,
}

impl<E: Element> Reusable for GlobalTopk<E> {
    fn put_to(self, memory: &Memory) {
        memory.put(self.sum);
        memory.put(self.put_back);
    }
}

pub(crate) async fn gtopk<T: Transport, E: Element>(
    operation: &InFlight<T>,
    input: &SparseVec<E>,
    k: usize,
    algorithm: GtopkAlgorithm,
    mode: PutBack,
) -> Result<GlobalTopk<E>, Error> {
    let Partial { kept: mut sum, dropped } = partial(operation, input, k, algorithm).await?;
    let put_back = put_back::put_back(input, &sum, dropped, mode, operation.memory());
    let put_back = put_back.map_err(|source| Error::value(operation.rank(), source))?;
    operation.reduce_values(sum.values_mut());
    Ok(GlobalTopk { sum, put_back })
}

/// The result, or that of a part of the ranks, and what was dropped on the way.
pub(crate) async fn partial<T: Transport, E: Element>(
    operation: &InFlight<T>,
    input: &SparseVec<E>,
    k: usize,
    algorithm: GtopkAlgorithm,
) -> Result<Partial<E>, Error> {
    let memory = operation.memory();
    match algorithm {
        GtopkAlgorithm::Tree => tree::gtopk(operation, Partial::of(input, k, memory), k).await,
        GtopkAlgorithm::Butterfly => butterfly::gtopk(operation, Partial::of(input, k, memory), k).await,
        GtopkAlgorithm::Oktopk => oktopk::gtopk(operation, Partial::of(input, k, memory), k).await,
        GtopkAlgorithm::Spardl => spardl::gtopk(operation, input, k).await,
        // What it drops is whole sums, outside the global set.
        GtopkAlgorithm::Exact => {
            Ok(Partial { kept: exact::gtopk(operation, input, k).await?, dropped: Vec::new() })
        }
    }
}

/// A partial result on its way, and what truncation left with this rank.
pub(crate) struct Partial<E> {
    pub(crate) kept: SparseVec<E>,
    /// Sums that were dropped and are this rank's to put back.
    pub(crate) dropped: Vec<SparseVec<E>>,
}

impl<E: Element> Partial<E> {
    fn of(input: &SparseVec<E>, k: usize, memory: &Memory) -> Self {
        let (kept, dropped) = input.view().to_vec_in(memory).top_k_in(k, memory);
        Self { kept, dropped: vec![dropped] }
    }

    /// One truncating merge with another rank's entries, which are the right operand or the left: what is kept are the k
    /// largest of the sum.
    fn merge<T: Transport>(
        &mut self,
        operation: &InFlight<T>,
        theirs: SparseVec<E>,
        is_right: bool,
        k: usize,
    ) -> Result<(), Error> {
        let memory = operation.memory();
        let ours = std::mem::take(&mut self.kept);
        let (left, right) = if is_right { (ours, theirs) } else { (theirs, ours) };
        let sum = sparse_core::merge_in(&left, &right, memory);
        memory.put(left);
        memory.put(right);
        let (kept, dropped) = sum.map_err(|source| operation.refused(source, 0))?.top_k_in(k, memory);
        self.kept = kept;
        self.dropped.push(dropped);
        Ok(())
    }
}

/// Decodes a partial result: sparse, and no longer than k.
pub(crate) fn decode_partial<E: Element>(
    frame: sparse_core::wire::Frame,
    from: usize,
    dim: u64,
    k: usize,
    memory: &Memory,
) -> Result<SparseVec<E>, Error> {
    let partial = decode::sparse::<E>(frame, from, dim, memory)?;
    if partial.nnz() > k {
        let nnz = partial.nnz();
        return Err(Error::malformed(from, format!("{nnz} entries where at most {k} belong")));
    }
    Ok(partial)
}
