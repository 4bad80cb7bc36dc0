//! Bruck's allgather: `ceil(log2 P)` rounds for any P.
//!
//! Steps: in round `i` each rank sends the blocks it holds, at most as many as the receiver lacks, to
//! the rank `2^i` before it, and appends those of the rank `2^i` after it. Short blocks travel together, in one
//! message with the lengths of all; a long one is a message of its own, so that nobody copies it.
//! Cost: `ceil(log2 P) alpha + (P-1) (n + 8) beta` for blocks of `n` bytes: each travels with its
//! length.

use bytes::{Buf, Bytes};
use futures_util::future::{try_join, try_join_all};
use transport::Transport;

use crate::error::Error;
use crate::in_flight::{InFlight, Lane};
use crate::topology::{after, before, rounds};

/// A block of so many bytes is long: to copy it would take longer than to send another message.
pub(crate) const LONG: usize = 64 << 10;

/// Returns every rank's block, a message of this call, in rank order.
pub(crate) async fn bruck<T: Transport>(operation: &InFlight<T>, block: Bytes) -> Result<Vec<Bytes>, Error> {
    let (rank, ranks) = (operation.rank(), operation.world_size());
    let mut blocks = Vec::with_capacity(ranks);
    blocks.push(block);
    for distance in (0..rounds(ranks)).map(|round| 1 << round) {
        let count = distance.min(ranks - distance);
        let (to, from) = (before(rank, distance, ranks), after(rank, distance, ranks));
        let passed = &blocks[..count];
        let lengths = lengths(passed);
        let first = operation.exchange(to, from, Lane::Gather, operation.opaque(&pack(&lengths, passed)));
        let long = passed.iter().filter(|block| block.len() >= LONG);
        let sent: Vec<_> = long.map(|block| operation.send(to, Lane::Gather, block.clone())).collect();
        let packed = first.await?.into_opaque().map_err(|source| Error::malformed(from, source))?;
        let unpacked = unpack(packed, count).map_err(|detail| Error::malformed(from, detail))?;
        let long = unpacked.iter().filter(|block| matches!(block, Block::Follows(_)));
        let received: Vec<_> = long.map(|_| operation.recv_whole(from, Lane::Gather)).collect();
        let (received, _) = try_join(try_join_all(received), try_join_all(sent)).await?;
        let mut received = received.into_iter().map(|(_, whole)| whole);
        for block in unpacked {
            blocks.push(match block {
                Block::Here(block) => block,
                Block::Follows(length) => {
                    let is_it = |block: &Bytes| block.len() as u64 == length;
                    let detail = "a block of another length than was announced";
                    received.next().filter(is_it).ok_or_else(|| Error::malformed(from, detail))?
                }
            });
        }
    }
    // Block i is that of the rank i after this one.
    blocks.rotate_right(rank);
    Ok(blocks)
}

/// A block of a round's first message.
#[derive(PartialEq, Debug)]
enum Block {
    Here(Bytes),
    /// It is long: a message of its own.
    Follows(u64),
}

fn lengths(blocks: &[Bytes]) -> Vec<u8> {
    blocks.iter().flat_map(|block| (block.len() as u64).to_le_bytes()).collect()
}

/// The lengths of all, then the short ones.
fn pack<'a>(lengths: &'a [u8], blocks: &'a [Bytes]) -> Vec<&'a [u8]> {
    let short = blocks.iter().map(|block| &block[..]).filter(|block| block.len() < LONG);
    std::iter::once(lengths).chain(short).collect()
}

fn unpack(mut packed: Bytes, count: usize) -> Result<Vec<Block>, String> {
    if packed.len() / 8 < count {
        return Err(format!("{} bytes cannot hold the lengths of {count} blocks", packed.len()));
    }
    let lengths: Vec<u64> = (0..count).map(|_| packed.get_u64_le()).collect();
    let mut blocks = Vec::with_capacity(count);
    for length in lengths {
        if length >= LONG as u64 {
            blocks.push(Block::Follows(length));
        } else if length > packed.len() as u64 {
            return Err(format!("a block of {length} bytes, but only {} are left", packed.len()));
        } else {
            blocks.push(Block::Here(packed.split_to(length as usize)));
        }
    }
    if packed.is_empty() { Ok(blocks) } else { Err(format!("{} bytes follow the last block", packed.len())) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn unpacking_inverts_packing(lengths_of in prop::collection::vec(0..2 * LONG, 0..9)) {
            let blocks: Vec<Bytes> = lengths_of.iter().map(|length| vec![*length as u8; *length].into()).collect();
            let here_or_follows = |block: &Bytes| {
                if block.len() < LONG { Block::Here(block.clone()) } else { Block::Follows(block.len() as u64) }
            };
            let packed = pack(&lengths(&blocks), &blocks).concat();
            prop_assert_eq!(unpack(packed.into(), blocks.len()), Ok(blocks.iter().map(here_or_follows).collect()));
        }

        #[test]
        fn unpacking_never_panics(bytes in prop::collection::vec(any::<u8>(), 0..100), count in 0_usize..20) {
            if let Ok(blocks) = unpack(Bytes::from(bytes.clone()), count) {
                let here = blocks.iter().filter_map(|block| match block {
                    Block::Here(block) => Some(block.len()),
                    Block::Follows(_) => None,
                });
                prop_assert_eq!(8 * count + here.sum::<usize>(), bytes.len());
            }
        }
    }
}
