//! Elias-Fano: the low bits of each number as they are, the high bits in unary.
//!
//! The numbers are the positions that each index skips in all, `index - its place`: they only do not decrease, and at
//! high densities cost less than the indices. Of numbers up to `m`, `k` of them, the lowest `l = floor(log2(m / k))` bits
//! are packed; of the rest, number `i` sets bit `(number >> l) + i` of a bitmap of `k + (m >> l)` bits, where the
//! distances between set bits are the steps of the high parts. That is at most 2 + log2(m / k) bits an index or so, and
//! always within half a bit of the entropy for uniform supports. Without low bits it is the bitmap of the support.
//!
//! After Elias (1974) and Fano (1971), in the form of Vigna, "Quasi-succinct indices" (2013).

use super::pack::{is_padded, pack, packed_len, unpack};
use crate::Error;

/// The parts of an encoding, which follow from what both sides know.
#[derive(Clone, Copy)]
pub(super) struct Shape {
    /// The largest number there can be.
    most: u32,
    /// Low bits of each number.
    low: u32,
    high_bits: u64,
}

impl Shape {
    /// Needs `1 <= count <= dim <= 2^32`, or one more if count is not 1.
    pub(super) fn new(dim: u64, count: usize) -> Self {
        let count = count as u64;
        let most = dim - count;
        let low = (most / count).checked_ilog2().unwrap_or(0);
        Self { most: most as u32, low, high_bits: count + (most >> low) }
    }

    pub(super) fn len(self, count: usize) -> usize {
        self.high_len() + packed_len(count, self.low)
    }

    fn high_len(self) -> usize {
        self.high_bits.div_ceil(8) as usize
    }
}

/// Writes to the start of `out`, which is all 0 and longer than needed by `SLACK`.
pub(super) fn write(shape: Shape, indices: &[u32], base: u32, out: &mut [u8]) {
    // In this order, since each writes a little beyond its part.
    write_high(shape, indices, base, out);
    write_low(shape, indices, base, &mut out[shape.high_len()..]);
}

fn write_high(shape: Shape, indices: &[u32], base: u32, out: &mut [u8]) {
    let words = out.as_chunks_mut::<8>().0;
    let (mut word, mut bits) = (0, 0_u64);
    for (i, &index) in indices.iter().enumerate() {
        let at = (number(index, base, i) >> shape.low) as usize + i;
        // Without a branch or a read of the word just written.
        bits = if at / 64 == word { bits } else { 0 };
        word = at / 64;
        bits |= 1 << (at % 64);
        words[word] = bits.to_le_bytes();
    }
}

fn write_low(shape: Shape, indices: &[u32], base: u32, out: &mut [u8]) {
    let mut lows = [0; TILE];
    for (tile, part) in indices.chunks(TILE).enumerate() {
        let first = tile * TILE;
        for (i, (low, &index)) in lows.iter_mut().zip(part).enumerate() {
            *low = number(index, base, first + i) & ((1 << shape.low) - 1);
        }
        pack(&lows[..part.len()], shape.low, &mut out[packed_len(first, shape.low)..]);
    }
}

#[inline]
fn number(index: u32, base: u32, place: usize) -> u32 {
    index.wrapping_sub(base).wrapping_sub(place as u32)
}

/// Numbers whose low bits are handled at once. A multiple of 8, so that each tile starts at a byte, and at least 64.
const TILE: usize = 512;

/// Fills `out` from exactly all of `bytes`.
pub(super) fn read(shape: Shape, bytes: &[u8], out: &mut [u32]) -> Result<(), Error> {
    if bytes.len() != shape.len(out.len()) {
        return Err(Error::malformed(format!("coded indices: {} in {} bytes", out.len(), bytes.len())));
    }
    let (high, low) = bytes.split_at(shape.high_len());
    if !is_padded(high, shape.high_bits) || !is_padded(low, out.len() as u64 * u64::from(shape.low)) {
        return Err(Error::malformed("coded indices: the padding is not 0"));
    }
    let (mut done, mut unpacked) = (0, 0);
    let (mut last, mut sorted) = (0, true);
    for (at, bits) in words(high).enumerate() {
        let end = done + bits.count_ones() as usize;
        if end > unpacked {
            let next = out.len().min(unpacked + TILE);
            unpack(&low[packed_len(unpacked, shape.low)..], shape.low, &mut out[unpacked..next]);
            unpacked = next;
        }
        let Some(part) = out.get_mut(done..end) else { return Err(wrong_count()) };
        let shift = ((at * 64) as u32).wrapping_sub(done as u32);
        (last, sorted) = join(part, bits, shift, shape.low, done as u32, (last, sorted));
        done = end;
    }
    if done != out.len() {
        return Err(wrong_count());
    }
    // Numbers that do not decrease are indices that increase; all below the last are in range with it.
    if !sorted || last > shape.most {
        return Err(Error::malformed("coded indices: they do not increase, or pass the dimension"));
    }
    Ok(())
}

/// Makes indices of the low parts in `out`, one for each of the bits set.
#[inline]
fn join(
    out: &mut [u32],
    mut bits: u64,
    shift: u32,
    low: u32,
    place: u32,
    (mut last, mut sorted): (u32, bool),
) -> (u32, bool) {
    for (i, slot) in out.iter_mut().enumerate() {
        let high = shift.wrapping_add(bits.trailing_zeros()).wrapping_sub(i as u32);
        bits &= bits.wrapping_sub(1);
        let number = (high << low) | *slot;
        sorted &= last <= number;
        last = number;
        *slot = number.wrapping_add(place).wrapping_add(i as u32);
    }
    (last, sorted)
}

/// Bytes as little-endian words; the last is filled up with 0.
pub(super) fn words(bytes: &[u8]) -> impl Iterator<Item = u64> + '_ {
    let (words, rest) = bytes.as_chunks::<8>();
    let mut last = [0; 8];
    last[..rest.len()].copy_from_slice(rest);
    words.iter().copied().chain((!rest.is_empty()).then_some(last)).map(u64::from_le_bytes)
}

pub(super) fn wrong_count() -> Error {
    Error::malformed("coded indices: another number of them than announced")
}
