//! The exact top-k of the summed vectors.
//!
//! Steps: the agreements and sums of `owners/`; what survives is gathered, and every rank keeps the k largest. Truncated is
//! only what is summed whole.
//! Cost: `(P-1 + 3 ceil(log2 P)) alpha + 2k(P-1)/P b beta` at balanced supports of k entries, and 2 to 4 % more bytes
//! (by calculation) for the indices, the magnitudes and the few entries beyond k, of k = 10,000 and P = 8. Where k P is below 4096, the
//! ranges are of equal length, which saves `ceil(log2 P) alpha`. However the supports lie, a rank sends at most k
//! entries to owners; in the gather it sends as many as the ring does, or up to 32 KiB more for each message saved.
//! Source: the lower bound of `2k(P-1)/P` is that of Ok-Topk (Li and Hoefler, 2022), whose two phases these are; the
//! agreement on an exact threshold is this project's.

use sparse_core::wire::Frame;
use sparse_core::{Element, SparseVec, Stream};
use transport::Transport;

use super::owners::{Survivors, survivors};
use crate::allgather;
use crate::error::Error;
use crate::in_flight::InFlight;
use crate::topology;

pub(super) async fn gtopk<T: Transport, E: Element>(
    operation: &InFlight<T>,
    input: &SparseVec<E>,
    k: usize,
) -> Result<SparseVec<E>, Error> {
    let survivors = survivors(operation, input, k).await?;
    let memory = operation.memory();
    let (sum, rest) = gather(operation, survivors).await?.top_k_in(k, memory);
    memory.put(rest);
    Ok(sum)
}

/// Spreads the survivors of all owners.
async fn gather<T: Transport, E: Element>(
    operation: &InFlight<T>,
    Survivors { ranges, own, shares }: Survivors<E>,
) -> Result<SparseVec<E>, Error> {
    let message = operation.spent_stream(Stream::Sparse(own));
    let mut frames: Vec<(usize, Frame)> = Vec::with_capacity(ranges.len());
    if goes_round::<E>(&shares) {
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
    let entries = frames.iter().map(|(_, frame)| frame.count as usize).sum();
    let mut whole = SparseVec::with_room(entries, operation.memory());
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
