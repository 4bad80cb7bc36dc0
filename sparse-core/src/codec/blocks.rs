//! Gaps in blocks: each block of 128 is a byte that says how many bits its widest gap needs, and all its gaps in
//! so many bits.
//!
//! A gap is the number of positions skipped since the index before, so a run of neighbours has width 0. Best where the
//! density changes along the vector. The method is that of frame-of-reference codecs (Lemire and Boytsov, "Decoding
//! billions of integers per second through vectorization", 2015), without their exceptions.

use super::pack::{is_padded, pack, packed_len, unpack};
use crate::Error;

/// Indices in a block; the last may have fewer.
pub(super) const BLOCK: usize = 128;

/// The bytes of a block of so many gaps.
pub(super) const fn block_len(count: usize, width: u32) -> usize {
    1 + packed_len(count, width)
}

/// Writes to the start of `out`, which is longer than needed by `SLACK`.
pub(super) fn write(indices: &[u32], base: u32, out: &mut [u8]) {
    let mut gaps = [0; BLOCK];
    let mut before = base.wrapping_sub(1);
    let mut at = 0;
    for block in indices.chunks(BLOCK) {
        let gaps = &mut gaps[..block.len()];
        gaps[0] = gap(before, block[0]);
        for (slot, (&before, &index)) in gaps[1..].iter_mut().zip(block.iter().zip(&block[1..])) {
            *slot = gap(before, index);
        }
        before = block[block.len() - 1];
        let width = width(gaps);
        out[at] = width as u8;
        pack(gaps, width, &mut out[at + 1..]);
        at += block_len(gaps.len(), width);
    }
}

/// Appends `count` indices, each and `base`, from exactly all of `bytes`.
pub(super) fn read(
    mut bytes: &[u8],
    dim: u64,
    count: usize,
    base: u32,
    out: &mut Vec<u32>,
) -> Result<(), Error> {
    out.reserve(count);
    let mut gaps = [0; BLOCK];
    // One more than the index before.
    let mut next = 0_u64;
    for first in (0..count).step_by(BLOCK) {
        let block = &mut gaps[..BLOCK.min(count - first)];
        let width = match bytes.split_first() {
            Some((&width, rest)) if width <= 32 && packed_len(block.len(), width.into()) <= rest.len() => {
                bytes = rest;
                u32::from(width)
            }
            _ => return Err(Error::malformed("coded indices: a block is cut short or wider than 32 bits")),
        };
        unpack(bytes, width, block);
        let (packed, rest) = bytes.split_at(packed_len(block.len(), width));
        if self::width(block) != width || !is_padded(packed, block.len() as u64 * u64::from(width)) {
            return Err(Error::malformed("coded indices: a block is wider than its gaps"));
        }
        for gap in &mut *block {
            next += u64::from(*gap);
            *gap = base.wrapping_add(next as u32);
            next += 1;
        }
        out.extend_from_slice(block);
        // All below the last are below the dimension with it.
        if next > dim {
            return Err(Error::malformed("coded indices: a block passes the dimension"));
        }
        bytes = rest;
    }
    if bytes.is_empty() {
        Ok(())
    } else {
        Err(Error::malformed("coded indices: bytes follow the last block"))
    }
}

/// The positions between two indices.
#[inline(always)]
pub(super) fn gap(before: u32, index: u32) -> u32 {
    index.wrapping_sub(before).wrapping_sub(1)
}

/// The bits of the widest gap.
fn width(gaps: &[u32]) -> u32 {
    u32::BITS - gaps.iter().fold(0, |any, gap| any | gap).leading_zeros()
}
