//! Bruck's allgather: `ceil(log2 P)` rounds for any P.
//!
//! Steps: in round `i` each rank sends the blocks it holds, at most as many as the receiver lacks, to
//! the rank `2^i` before it, and appends those of the rank `2^i` after it.
//! Cost: `ceil(log2 P) alpha + (P-1) (n + 8) beta` for blocks of `n` bytes: each travels with its
//! length.

use bytes::{Buf, Bytes};
use transport::Transport;

use crate::error::Error;
use crate::in_flight::{InFlight, Lane};
use crate::topology::{after, before, rounds};

/// Returns every rank's block, in rank order.
pub(crate) async fn bruck<T: Transport>(operation: &InFlight<T>, block: Bytes) -> Result<Vec<Bytes>, Error> {
    let (rank, ranks) = (operation.rank(), operation.world_size());
    let mut blocks = Vec::with_capacity(ranks);
    blocks.push(block);
    for distance in (0..rounds(ranks)).map(|round| 1 << round) {
        let count = distance.min(ranks - distance);
        let (to, from) = (before(rank, distance, ranks), after(rank, distance, ranks));
        let lengths = lengths(&blocks[..count]);
        let message = operation.opaque(&pack(&lengths, &blocks[..count]));
        let frame = operation.exchange(to, from, Lane::Gather, message).await?;
        let packed = frame.into_opaque().map_err(|source| Error::malformed(from, source))?;
        blocks.extend(unpack(packed, count).map_err(|detail| Error::malformed(from, detail))?);
    }
    // Block i is that of the rank i after this one.
    blocks.rotate_right(rank);
    Ok(blocks)
}

fn lengths(blocks: &[Bytes]) -> Vec<u8> {
    blocks.iter().flat_map(|block| (block.len() as u64).to_le_bytes()).collect()
}

fn pack<'a>(lengths: &'a [u8], blocks: &'a [Bytes]) -> Vec<&'a [u8]> {
    std::iter::once(lengths).chain(blocks.iter().map(|block| &block[..])).collect()
}

fn unpack(mut packed: Bytes, count: usize) -> Result<Vec<Bytes>, String> {
    if packed.len() / 8 < count {
        return Err(format!("{} bytes cannot hold the lengths of {count} blocks", packed.len()));
    }
    let lengths: Vec<u64> = (0..count).map(|_| packed.get_u64_le()).collect();
    let mut blocks = Vec::with_capacity(count);
    for length in lengths {
        if length > packed.len() as u64 {
            return Err(format!("a block of {length} bytes, but only {} are left", packed.len()));
        }
        blocks.push(packed.split_to(length as usize));
    }
    if packed.is_empty() { Ok(blocks) } else { Err(format!("{} bytes follow the last block", packed.len())) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn unpacking_inverts_packing(blocks in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..50), 0..9)) {
            let blocks: Vec<Bytes> = blocks.into_iter().map(Bytes::from).collect();
            prop_assert_eq!(unpack(pack(&lengths(&blocks), &blocks).concat().into(), blocks.len()), Ok(blocks));
        }

        #[test]
        fn unpacking_never_panics(bytes in prop::collection::vec(any::<u8>(), 0..100), count in 0_usize..20) {
            if let Ok(blocks) = unpack(Bytes::from(bytes.clone()), count) {
                prop_assert_eq!(pack(&lengths(&blocks), &blocks).concat(), bytes);
            }
        }
    }
}
