//! Sparse ring: SparCML's ring, in segments; see [`ring`](crate::ring) for the steps.
//!
//! Each rank merges its own entries into the partial sums that pass; each piece of a range goes dense by itself, once its
//! entries would take more than its values. The finished sums travel round as the bytes that their owner wrote.
//! Cost, with `u(j)` for the share of indices in the union of `j` ranks' supports (of uniform ones `1 - (1 - k/N)^j`):
//! `2(P-1) ceil(G/8) alpha + (N/P (u(1) + .. + u(P-1)) + N(P-1)/P u(P)) b beta`, in `2(P-1) G` messages; G is 1 up to
//! 1 MiB of dense values a range. So the first half is between `k(P-1)/P` entries (identical supports) and `k(P-1)/2`
//! (disjoint ones), the second `K(P-1)/P`; neither half exceeds `(P-1)/P N v` bytes.
//! Range `c` is summed in the order of ranks `c, c+1, .., c-1`, and every rank gets its owner's bits.

use std::ops::Range;

use bytes::Bytes;
use sparse_core::wire::Frame;
use sparse_core::{Element, SparseVec, Stream};
use transport::Transport;

use crate::decode;
use crate::error::Error;
use crate::in_flight::InFlight;
use crate::ring::{self, Pieces, Plan};

/// What the longest piece takes when it is dense, in bytes. Sparse ones are a small part of that, and should still be worth
/// a message.
pub(crate) const PIECE: usize = 1 << 20;

pub(super) async fn allreduce<T: Transport, E: Element>(
    operation: &InFlight<T>,
    input: &SparseVec<E>,
) -> Result<Stream<E>, Error> {
    let ranks = operation.world_size();
    if ranks == 1 {
        return Ok(decode::shorter(input.view().to_vec_in(operation.memory()), operation.memory()));
    }
    let plan = Plan::allreduce(input.dim(), ranks, PIECE / size_of::<E>());
    let mut pieces = Sparse { operation, input, sums: Vec::new() };
    ring::round(operation, &plan, &mut pieces).await?;
    let mut sums = pieces.sums;
    sums.sort_by_key(|(piece, ..)| (piece.start, piece.end));
    let sums: Vec<_> =
        sums.into_iter().map(|(piece, sum, from)| (piece.end - piece.start, sum, from)).collect();
    decode::concat(sums, operation.rank(), operation.memory())
}

struct Sparse<'a, T: Transport, E> {
    operation: &'a InFlight<T>,
    input: &'a SparseVec<E>,
    /// The sums of pieces as they came, and where from.
    sums: Vec<(Range<u64>, Frame, usize)>,
}

impl<T: Transport, E: Element> Pieces for Sparse<'_, T, E> {
    fn own(&self, piece: Range<u64>) -> Bytes {
        self.operation.sparse(self.input.view_of(piece))
    }

    fn add(&self, piece: Range<u64>, partial: Frame, left: usize) -> Result<Bytes, Error> {
        let memory = self.operation.memory();
        let own = Stream::Sparse(self.input.view_of(piece.clone()).to_vec_in(memory));
        let partial = decode::stream(partial, left, own.dim(), memory)?;
        let sum = partial.merge_in(own, memory);
        let sum = sum.map_err(|source| self.operation.refused(source, piece.start))?;
        Ok(self.operation.spent_stream(sum))
    }

    fn take(&mut self, piece: Range<u64>, sum: Frame, from: usize) -> Result<(), Error> {
        self.sums.push((piece, sum, from));
        Ok(())
    }
}
