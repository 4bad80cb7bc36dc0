//! The exact top-k of the summed vectors.
//!
//! Steps: the ranks agree on ranges of the index space that hold equal counts of entries, from a few indices of
//! each (`ranges.rs`); every rank sends each range to its owner, who sums it in rank order; the owners tell each
//! other magnitudes of their sums, from which all know alike how many of each owner's largest can be among the k
//! (`threshold.rs`); those are gathered, and every rank keeps the k largest. Truncated is only what is summed whole.
//! Cost: `(P-1 + 3 ceil(log2 P)) alpha + 2k(P-1)/P b beta` at balanced supports of k entries, and 2 to 4 % more bytes
//! (by calculation) for the indices, the magnitudes and the few entries beyond k, of k = 10,000 and P = 8. Where k P is below 4096, the
//! ranges are of equal length, which saves `ceil(log2 P) alpha`. However the supports lie, a rank sends at most k
//! entries to owners; in the gather it sends as many as the ring does, or up to 32 KiB more for each message saved.
//! Source: the lower bound of `2k(P-1)/P` is that of Ok-Topk (Li and Hoefler, 2022), whose two phases these are; the
//! agreement on an exact threshold is this project's.

use std::ops::Range;

use bytes::Bytes;
use sparse_core::wire::Frame;
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

pub(super) async fn gtopk<T: Transport, E: Element>(
    operation: &InFlight<T>,
    input: &SparseVec<E>,
    k: usize,
) -> Result<SparseVec<E>, Error> {
    // A larger k means no more.
    let k = usize::try_from(input.dim()).map_or(k, |dim| k.min(dim));
    let ranges = agree_on_ranges(operation, input, k).await?;
    let candidates = split::sum_own_range(operation, input, &ranges).await?.top_k(k).0;
    let marks = exchange_marks(operation, &candidates, k).await?;
    let cut = threshold::cut(&marks, k);
    let count = cut.map_or(candidates.nnz(), |cut| cut.count(operation.rank(), candidates.values()));
    let shares: Vec<_> = marks.iter().enumerate().map(|(owner, marks)| marks.up_to(owner, cut)).collect();
    let survivors = candidates.top_k(count).0;
    Ok(gather(operation, &survivors, &ranges, &shares).await?.top_k(k).0)
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
    let own = Marks::of(candidates.values(), k, ranks).to_bytes::<E>();
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

/// Spreads the survivors of all owners, of which there are about as many as `shares` says.
async fn gather<T: Transport, E: Element>(
    operation: &InFlight<T>,
    survivors: &SparseVec<E>,
    ranges: &[Range<u64>],
    shares: &[usize],
) -> Result<SparseVec<E>, Error> {
    let message = operation.sparse(survivors.view());
    let mut frames: Vec<(usize, Frame)> = Vec::with_capacity(ranges.len());
    if goes_round::<E>(shares) {
        let accept = |owner, frame| {
            frames.push((owner, frame));
            Ok(())
        };
        allgather::ring(operation, message, accept).await?;
        frames.sort_unstable_by_key(|(owner, _)| *owner);
    } else {
        for (owner, block) in allgather::bruck(operation, message).await?.into_iter().enumerate() {
            frames.push((owner, operation.open(owner, block)?));
        }
    }
    let mut whole = SparseVec::default();
    for ((owner, frame), range) in frames.iter().zip(ranges) {
        let appended = frame.append_sparse_to(range.end - range.start, &mut whole);
        appended.map_err(|source| Error::malformed(*owner, source))?;
    }
    Ok(whole)
}

/// The ring takes more messages, one after the other. Each is worth this many bytes.
const WORTH_A_MESSAGE: usize = 32 << 10;

/// Whether the ring is the better way: in Bruck's, whoever is near the owner of most passes it on several times.
fn goes_round<E: Element>(shares: &[usize]) -> bool {
    let ranks = shares.len();
    let saved = topology::bruck_most_sent(shares).saturating_sub(shares.iter().sum());
    let messages = ranks - 1 - topology::rounds(ranks) as usize;
    saved.saturating_mul(size_of::<E>() + INDEX) > messages * WORTH_A_MESSAGE
}

/// About what an index takes on the wire.
const INDEX: usize = 2;
