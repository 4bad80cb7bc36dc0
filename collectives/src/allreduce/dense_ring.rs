//! Dense ring, in segments: see [`ring`](crate::ring) for the steps.
//!
//! Cost: `2(P-1) ceil(G/8) alpha + 2(P-1)/P N v beta`, the least volume there is, in `2(P-1) G` messages; G is 1 up to
//! 128 KiB a range. Adding happens while the piece is in the cache. Range `c` is summed in the order of ranks
//! `c, c+1, .., c-1`, and every rank gets its owner's bits.

use std::ops::Range;

use bytes::Bytes;
use sparse_core::Element;
use sparse_core::wire::Frame;
use transport::Transport;

use crate::decode;
use crate::error::Error;
use crate::in_flight::InFlight;
use crate::ring::{self, Pieces, Plan};

/// The longest piece, in bytes.
pub(crate) const PIECE: usize = 128 << 10;

pub(super) async fn allreduce<T: Transport, E: Element>(
    operation: &InFlight<T>,
    input: &[E],
    output: &mut [E],
) -> Result<(), Error> {
    let ranks = operation.world_size();
    if ranks == 1 {
        output.copy_from_slice(input);
        return Ok(());
    }
    let plan = Plan::allreduce(input.len() as u64, ranks, PIECE / size_of::<E>());
    ring::round(operation, &plan, &mut Dense { operation, input, output, start: 0 }).await
}

/// Dense pieces; the sums are written to `output`, which starts at index `start`.
pub(crate) struct Dense<'a, T: Transport, E> {
    pub(crate) operation: &'a InFlight<T>,
    pub(crate) input: &'a [E],
    pub(crate) output: &'a mut [E],
    pub(crate) start: usize,
}

impl<T: Transport, E: Element> Pieces for Dense<'_, T, E> {
    fn own(&self, piece: Range<u64>) -> Bytes {
        self.operation.dense(&self.input[in_memory(&piece, 0)])
    }

    fn add(&self, piece: Range<u64>, partial: Frame, left: usize) -> Result<Bytes, Error> {
        self.operation.dense_sum(piece.start, &self.input[in_memory(&piece, 0)], &partial, left)
    }

    fn take(&mut self, piece: Range<u64>, sum: Frame, from: usize) -> Result<(), Error> {
        decode::copy_dense(&sum, from, &mut self.output[in_memory(&piece, self.start)])
    }
}

/// A piece as a range of a slice whose first element has index `start`.
fn in_memory(piece: &Range<u64>, start: usize) -> Range<usize> {
    piece.start as usize - start..piece.end as usize - start
}
