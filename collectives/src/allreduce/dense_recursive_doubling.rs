//! Dense recursive doubling.
//!
//! Steps: ranks beyond the largest power of two hand their vector to a neighbour; in round `i` the
//! ranks at positions that differ in bit `i` exchange their partial sums; the idle ranks get the
//! result. See [`doubling`](crate::doubling). Cost: `log2 P (alpha + N v beta)`; for other P the neighbour's two
//! transfers come on top. Adding overlaps the wire but for the last piece.
//! Sums pair the same operands on both sides, and addition commutes, so all get the same bits.

use bytes::Bytes;
use sparse_core::Element;
use transport::Transport;

use crate::cost;
use crate::decode;
use crate::doubling::{self, Piece, Sums};
use crate::error::Error;
use crate::in_flight::InFlight;
use crate::topology::slice_range;

pub(super) async fn allreduce<T: Transport, E: Element>(
    operation: &InFlight<T>,
    input: &[E],
    output: &mut [E],
) -> Result<(), Error> {
    output.copy_from_slice(input);
    let pieces = cost::dense_pieces(input.len() as f64, size_of::<E>(), operation.link());
    doubling::run(operation, &mut Dense { operation, pieces, sums: output }).await
}

struct Dense<'a, T: Transport, E> {
    operation: &'a InFlight<T>,
    pieces: usize,
    sums: &'a mut [E],
}

impl<T: Transport, E: Element> Sums for Dense<'_, T, E> {
    fn most_pieces(&self) -> usize {
        doubling::MOST_PIECES
    }

    fn pieces(&self) -> usize {
        self.pieces
    }

    fn cut(&mut self, pieces: usize) {
        self.pieces = pieces;
    }

    fn message(&self, piece: usize) -> Bytes {
        let piece = slice_range(self.sums.len(), self.pieces, piece);
        self.operation.dense_piece(&self.sums[piece], self.pieces)
    }

    fn add(&mut self, theirs: Piece) -> Result<(), Error> {
        let covered = slice_range(self.sums.len(), theirs.frame.pieces, theirs.at);
        let start = covered.start as u64;
        let added = theirs.frame.add_dense_into(&mut self.sums[covered]);
        added.map_err(|source| self.operation.refused_from(theirs.from.rank, source, start))
    }

    fn take(&mut self, result: Piece) -> Result<(), Error> {
        let covered = slice_range(self.sums.len(), result.frame.pieces, result.at);
        decode::copy_dense(&result.frame, result.from.rank, &mut self.sums[covered])
    }
}
