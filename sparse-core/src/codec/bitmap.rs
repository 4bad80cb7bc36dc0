//! A bit for each position: the shortest where more than a third are taken.

use super::elias_fano::{words, wrong_count};
use super::pack::is_padded;
use crate::Error;

pub(super) const fn len(dim: u64) -> usize {
    dim.div_ceil(8) as usize
}

/// Writes to the start of `out`, which is all 0 and longer than needed by `SLACK`.
pub(super) fn write(indices: &[u32], base: u32, out: &mut [u8]) {
    let words = out.as_chunks_mut::<8>().0;
    let (mut word, mut bits) = (0, 0_u64);
    for index in indices {
        let at = (index - base) as usize;
        bits = if at / 64 == word { bits } else { 0 };
        word = at / 64;
        bits |= 1 << (at % 64);
        words[word] = bits.to_le_bytes();
    }
}

/// Appends `count` indices, each and `base`, from exactly all of `bytes`.
pub(super) fn read(bytes: &[u8], dim: u64, count: usize, base: u32, out: &mut Vec<u32>) -> Result<(), Error> {
    if bytes.len() as u64 != dim.div_ceil(8) || !is_padded(bytes, dim) {
        return Err(Error::malformed(format!("coded indices: a bitmap of {dim} in {} bytes", bytes.len())));
    }
    out.reserve(count);
    let (mut left, mut places) = (count, [0; 64]);
    for (at, mut bits) in words(bytes).enumerate() {
        let set = bits.count_ones() as usize;
        left = left.checked_sub(set).ok_or_else(wrong_count)?;
        for place in &mut places[..set] {
            *place = base.wrapping_add((at * 64) as u32 + bits.trailing_zeros());
            bits &= bits.wrapping_sub(1);
        }
        out.extend_from_slice(&places[..set]);
    }
    if left == 0 { Ok(()) } else { Err(wrong_count()) }
}
