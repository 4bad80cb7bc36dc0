//! The first half of the dense ring allreduce, shifted so that range `r` ends on rank `r`; see [`ring`](crate::ring).
//!
//! Cost: `(P-1) ceil(G/8) alpha + (P-1)/P N v beta`, the least volume there is, in `(P-1) G` messages; G is 1 up to
//! 128 KiB a range. Range `c` is summed in the order of ranks `c+1, c+2, .., c`.

use sparse_core::Element;
use transport::Transport;

use crate::allreduce::dense_ring::{Dense, PIECE};
use crate::error::Error;
use crate::in_flight::InFlight;
use crate::ring::{self, Plan};
use crate::topology::slice_range;

pub(super) async fn reduce_scatter<T: Transport, E: Element>(
    operation: &InFlight<T>,
    input: &[E],
    output: &mut [E],
) -> Result<(), Error> {
    let (rank, ranks) = (operation.rank(), operation.world_size());
    if ranks == 1 {
        output.copy_from_slice(input);
        return Ok(());
    }
    let start = slice_range(input.len(), ranks, rank).start;
    let plan = Plan::reduce_scatter(input.len() as u64, ranks, PIECE / size_of::<E>());
    ring::round(operation, &plan, &mut Dense { operation, input, output, start }).await
}
