//! Sparse recursive doubling: SparCML's SSAR_Recursive_double.
//!
//! Steps: as dense recursive doubling, but the partial sums are streams that are merged; each piece of a long one goes
//! dense once its entries would cost more than all its values. Any P. See [`doubling`](crate::doubling).
//! Cost: `log2 P alpha`, and between `k log2 P` (identical supports) and `(P-1) k` entries (disjoint
//! ones) of `b` bytes, at most `log2 P N v`; where P is not a power of two, one operand and one
//! result more. Merging overlaps the wire but for the last piece. Lower ranks are always the left operand.

use std::mem;

use bytes::Bytes;
use sparse_core::wire::Frame;
use sparse_core::{Element, SparseVec, Stream};
use transport::Transport;

use crate::cost;
use crate::decode;
use crate::doubling::{self, Piece, Sums};
use crate::error::Error;
use crate::in_flight::InFlight;
use crate::topology::{range, ranges};

pub(super) async fn allreduce<T: Transport, E: Element>(
    operation: &InFlight<T>,
    input: &SparseVec<E>,
) -> Result<Stream<E>, Error> {
    let memory = operation.memory();
    let pieces = cost::sparse_pieces(input.nnz() as f64, size_of::<E>(), operation.link());
    let cut = ranges(input.dim(), pieces).into_iter();
    let sums = cut.map(|range| Stream::Sparse(input.view_of(range).to_vec_in(memory))).collect();
    let mut sums = Sparse { operation, dim: input.dim(), sums, result: Vec::new() };
    doubling::run(operation, &mut sums).await?;
    let Sparse { mut sums, result, .. } = sums;
    match sums.pop() {
        None => decode::concat(result, operation.rank(), memory),
        Some(whole) if sums.is_empty() => Ok(whole),
        Some(last) => {
            sums.push(last);
            Stream::concat_in(sums, memory).map_err(|source| operation.refused(source, 0))
        }
    }
}

struct Sparse<'a, T: Transport, E> {
    operation: &'a InFlight<T>,
    dim: u64,
    /// By piece.
    sums: Vec<Stream<E>>,
    /// Pieces of the sum that another rank has made: dimensions, and where from.
    result: Vec<(u64, Frame, usize)>,
}

impl<T: Transport, E: Element> Sums for Sparse<'_, T, E> {
    fn most_pieces(&self) -> usize {
        doubling::MOST_PIECES
    }

    fn pieces(&self) -> usize {
        self.sums.len()
    }

    fn cut(&mut self, pieces: usize) {
        let of = self.sums.len();
        if pieces > of {
            let sums = mem::take(&mut self.sums).into_iter().enumerate();
            self.sums = sums.flat_map(|(at, sum)| self.parts(sum, at, of, pieces)).collect();
        }
    }

    fn message(&self, piece: usize) -> Bytes {
        self.operation.stream_piece(&self.sums[piece], self.sums.len())
    }

    fn add(&mut self, theirs: Piece) -> Result<(), Error> {
        let (memory, of) = (self.operation.memory(), theirs.frame.pieces);
        let covered = range(self.dim, of, theirs.at);
        let mut start = covered.start;
        let first = theirs.at * (self.sums.len() / of);
        let sum = decode::stream(theirs.frame, theirs.from.rank, covered.end - covered.start, memory)?;
        let parts = self.parts(sum, theirs.at, of, self.sums.len());
        for (mine, theirs_of_it) in self.sums[first..].iter_mut().zip(parts) {
            let own = mem::replace(mine, Stream::Dense(Vec::new()));
            let (lower, upper) = if theirs.from.is_lower { (theirs_of_it, own) } else { (own, theirs_of_it) };
            let dim = lower.dim();
            *mine = lower.merge_in(upper, memory).map_err(|source| self.operation.refused(source, start))?;
            start += dim;
        }
        Ok(())
    }

    fn take(&mut self, result: Piece) -> Result<(), Error> {
        if result.at == 0 {
            mem::take(&mut self.sums).into_iter().for_each(|sum| self.operation.memory().put(sum));
        }
        let covered = range(self.dim, result.frame.pieces, result.at);
        self.result.push((covered.end - covered.start, result.frame, result.from.rank));
        Ok(())
    }
}

impl<T: Transport, E: Element> Sparse<'_, T, E> {
    /// Piece `at` of `of` as those of `pieces` that lie in it.
    fn parts(&self, sum: Stream<E>, at: usize, of: usize, pieces: usize) -> Vec<Stream<E>> {
        let each = pieces / of;
        if each == 1 {
            return vec![sum];
        }
        let start = range(self.dim, of, at).start;
        let cuts = (at * each..(at + 1) * each).map(|part| range(self.dim, pieces, part));
        let parts = cuts.map(|cut| sum.slice(cut.start - start..cut.end - start)).collect();
        self.operation.memory().put(sum);
        parts
    }
}
