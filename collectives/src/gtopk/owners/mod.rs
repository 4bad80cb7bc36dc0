//! What the algorithms that send ranges of the index space to owners have in common, up to where each owner knows which of
//! its sums to pass on.
//!
//! Steps: the ranks agree on ranges that hold equal counts of entries, from a few indices of each (`ranges.rs`); every rank
//! sends each range to its owner, who sums it in rank order; the owners tell each other magnitudes of their sums, from which
//! all know alike how many of each owner's largest can be among the k (`threshold.rs`).
//! Cost: `(P-1 + 2 ceil(log2 P)) alpha + k(P-1)/P b beta` at balanced supports of k entries. Where k P is below 4096, the
//! ranges are of equal length, which saves `ceil(log2 P) alpha`.

use std::ops::Range;

use bytes::Bytes;
use sparse_core::{Element, SparseVec};
use transport::Transport;

use self::ranges::Sample;
use self::threshold::Marks;
use crate::allgather;
use crate::error::Error;
use crate::in_flight::InFlight;
use crate::reduce_scatter::split;
use crate::topology;

mod ranges;
mod threshold;

/// What owners pass on.
pub(super) struct Survivors<E> {
    /// The range of each owner; they tile the dimension.
    pub(super) ranges: Vec<Range<u64>>,
    /// This owner's sums that can be among the k largest of all: whole sums, with indices from the start of its range.
    pub(super) own: SparseVec<E>,
    /// At least so many has each owner, and seldom many more; the same on all ranks.
    pub(super) shares: Vec<usize>,
}

/// The sums that can be among the k largest, at their owners: all of these, and few more.
pub(super) async fn survivors<T: Transport, E: Element>(
    operation: &InFlight<T>,
    input: &SparseVec<E>,
    k: usize,
) -> Result<Survivors<E>, Error> {
    // A larger k means no more.
    let k = usize::try_from(input.dim()).map_or(k, |dim| k.min(dim));
    let ranges = agree_on_ranges(operation, input, k).await?;
    let memory = operation.memory();
    let (candidates, rest) = split::sum_own_range(operation, input, &ranges).await?.top_k_in(k, memory);
    memory.put(rest);
    let marks = exchange_marks(operation, &candidates, k).await?;
    let cut = threshold::cut(&marks, k);
    let count = cut.map_or(candidates.nnz(), |cut| cut.count(operation.rank(), candidates.values()));
    let shares = marks.iter().enumerate().map(|(owner, marks)| marks.up_to(owner, cut)).collect();
    let (own, rest) = candidates.top_k_in(count, memory);
    memory.put(rest);
    Ok(Survivors { ranges, own, shares })
}

/// The bytes that each rank tells the others: of its support, where that is worth a round, and of its sums, of which it has
/// so many.
pub(crate) fn told(k: usize, ranks: usize, sums: usize, value: usize) -> (Option<usize>, usize) {
    const COUNT: usize = 8;
    let samples = (k.saturating_mul(ranks) >= WORTH_BALANCING).then(|| COUNT + 4 * ranges::samples(k, ranks));
    (samples, COUNT + value * threshold::steps(sums.min(k), k, ranks).len())
}

/// With fewer entries, the longest range of unequal load costs less than another round.
const WORTH_BALANCING: usize = 1 << 12;

/// A range for each owner, in the order of the ranks.
async fn agree_on_ranges<T: Transport, E: Element>(
    operation: &InFlight<T>,
    input: &SparseVec<E>,
    k: usize,
) -> Result<Vec<Range<u64>>, Error> {
    let (rank, ranks, dim) = (operation.rank(), operation.world_size(), input.dim());
    if ranks == 1 || k.saturating_mul(ranks) < WORTH_BALANCING {
        return Ok(topology::ranges(dim, ranks));
    }
    let most = ranges::samples(k, ranks);
    let own = Sample::of(input.indices(), rank, ranks, most).to_bytes();
    let blocks = allgather::bruck(operation, operation.opaque(&[&own])).await?;
    let samples = opaque(operation, blocks, |body| Sample::from_bytes(body, dim, most))?;
    Ok(ranges::balanced(dim, &samples))
}

/// What every owner tells of its candidates.
async fn exchange_marks<T: Transport, E: Element>(
    operation: &InFlight<T>,
    candidates: &SparseVec<E>,
    k: usize,
) -> Result<Vec<Marks>, Error> {
    let ranks = operation.world_size();
    let own = Marks::of(candidates.values(), k, ranks, operation.memory()).to_bytes::<E>();
    let blocks = allgather::bruck(operation, operation.opaque(&[&own])).await?;
    opaque(operation, blocks, |body| Marks::from_bytes::<E>(body, k, ranks))
}

/// Reads what every rank told.
fn opaque<T: Transport, R>(
    operation: &InFlight<T>,
    blocks: Vec<Bytes>,
    read: impl Fn(&[u8]) -> Result<R, String>,
) -> Result<Vec<R>, Error> {
    let read = |(from, block)| {
        let body = operation.open(from, block)?.into_opaque();
        let body = body.map_err(|source| Error::malformed(from, source))?;
        read(&body).map_err(|detail| Error::malformed(from, detail))
    };
    blocks.into_iter().enumerate().map(read).collect()
}
