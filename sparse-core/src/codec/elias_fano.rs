//! Elias-Fano: the low bits of each number as they are, the high bits in unary.
//!
//! The numbers are the positions that each index skips in all, `index - its place`: they only do not decrease, and at
//! high densities cost less than the indices. Of numbers up to `m`, `k` of them, the lowest `l = floor(log2(m / k))` bits
//! are packed; of the rest, number `i` sets bit `(number >> l) + i` of a bitmap of `k + (m >> l)` bits, where the
//! distances between set bits are the steps of the high parts. That is at most 2 + log2(m / k) bits an index or so, and
//! always within 0.6 bits of the entropy for uniform supports. Without low bits it is the bitmap of the support.
//!
//! After Elias (1974) and Fano (1971), in the form of Vigna, "Quasi-succinct indices" (2013).

use super::pack::{is_padded, pack, packed_len, unpack};
use crate::{Error, arch};

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
    arch::fastest(
        #[inline(always)]
        || write_parts(shape, indices, base, out),
    );
}

#[inline(always)]
fn write_parts(shape: Shape, indices: &[u32], base: u32, out: &mut [u8]) {
    let (high, low) = out.split_at_mut(shape.high_len());
    let (mut places, mut lows) = ([0; TILE], [0; TILE]);
    for (tile, part) in indices.chunks(TILE).enumerate() {
        let first = tile * TILE;
        let skipped = base.wrapping_add(first as u32);
        for (i, ((&index, place), low)) in part.iter().zip(&mut places).zip(&mut lows).enumerate() {
            let number = index.wrapping_sub(skipped).wrapping_sub(i as u32);
            *low = number & ((1 << shape.low) - 1);
            *place = (number >> shape.low).wrapping_add(first as u32).wrapping_add(i as u32);
        }
        pack(&lows[..part.len()], shape.low, &mut low[packed_len(first, shape.low)..]);
        // Neither do bytes wait for each other, as the same word would for each of its bits, nor parts of the tile.
        let mut set = |place: u32| high[place as usize / 8] |= 1 << (place % 8);
        if let ([one, two, three, four], []) = places[..part.len()].as_chunks::<{ TILE / 4 }>() {
            for (((&a, &b), &c), &d) in one.iter().zip(two).zip(three).zip(four) {
                [a, b, c, d].into_iter().for_each(&mut set);
            }
        } else {
            places[..part.len()].iter().copied().for_each(set);
        }
    }
}

/// Numbers whose low bits are handled at once. A multiple of 8, so that each tile starts at a byte, and at least 64.
const TILE: usize = 512;

/// Appends `count` indices, each and `base`, from exactly all of `bytes`.
pub(super) fn read(
    shape: Shape,
    bytes: &[u8],
    count: usize,
    base: u32,
    out: &mut Vec<u32>,
) -> Result<(), Error> {
    if bytes.len() != shape.len(count) {
        return Err(Error::malformed(format!("coded indices: {count} in {} bytes", bytes.len())));
    }
    let (high, low) = bytes.split_at(shape.high_len());
    if !is_padded(high, shape.high_bits) || !is_padded(low, count as u64 * u64::from(shape.low)) {
        return Err(Error::malformed("coded indices: the padding is not 0"));
    }
    out.reserve(count);
    arch::fastest(
        #[inline(always)]
        || read_parts(shape, high, low, count, base, out),
    )
}

#[inline(always)]
fn read_parts(
    shape: Shape,
    high: &[u8],
    low: &[u8],
    count: usize,
    base: u32,
    out: &mut Vec<u32>,
) -> Result<(), Error> {
    let mut words = words(high).enumerate();
    // The places of set bits, as many as a tile needs and what else the last word had.
    let (mut places, mut found) = ([0; TILE + 128], 0);
    let (mut last, mut sorted) = (0, true);
    // The indices are written to memory once, when they are done.
    let mut tile = [0; TILE];
    for first in (0..count).step_by(TILE) {
        let part = &mut tile[..TILE.min(count - first)];
        while found < part.len() {
            let Some((at, bits)) = words.next() else { return Err(wrong_count()) };
            found += spread(bits, (at * 64) as u32, &mut places[found..]);
        }
        unpack(&low[packed_len(first, shape.low)..], shape.low, part);
        join(&places, shape.low, first as u32, part);
        sorted &= last <= part[0] && part.windows(2).fold(true, |sorted, pair| sorted & (pair[0] <= pair[1]));
        last = part[part.len() - 1];
        for (i, number) in part.iter_mut().enumerate() {
            *number = number.wrapping_add(base).wrapping_add((first + i) as u32);
        }
        out.extend_from_slice(part);
        places.copy_within(part.len()..part.len() + 64, 0);
        found -= part.len();
    }
    if found > 0 || words.any(|(_, bits)| bits != 0) {
        return Err(wrong_count());
    }
    // Numbers that do not decrease are indices that increase; all below the last are in range with it.
    if !sorted || last > shape.most {
        return Err(Error::malformed("coded indices: they do not increase, or pass the dimension"));
    }
    Ok(())
}

/// Writes the places of the set bits, and up to 8 places more that mean nothing; says how many are set.
#[inline(always)]
fn spread(bits: u64, mut first: u32, places: &mut [u32]) -> usize {
    let mut found = 0;
    for byte in bits.to_le_bytes() {
        // All 8, whatever is set: without a branch on the data.
        for (place, &offset) in places[found..found + 8].iter_mut().zip(&OFFSETS[usize::from(byte)]) {
            *place = first.wrapping_add(offset.into());
        }
        found += usize::from(COUNTS[usize::from(byte)]);
        first = first.wrapping_add(8);
    }
    found
}

/// Where the set bits of each byte are, then zeros.
static OFFSETS: [[u8; 8]; 256] = {
    let mut all = [[0; 8]; 256];
    let mut byte = 0;
    while byte < 256 {
        let (mut offset, mut found) = (0, 0);
        while offset < 8 {
            if byte >> offset & 1 == 1 {
                all[byte][found] = offset;
                found += 1;
            }
            offset += 1;
        }
        byte += 1;
    }
    all
};

/// How many bits of each byte are set: far from all processors have an instruction for it.
static COUNTS: [u8; 256] = {
    let mut counts = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        counts[byte] = byte.count_ones() as u8;
        byte += 1;
    }
    counts
};

/// Makes numbers of the low parts in `part`, whose first is number `first`.
#[inline(always)]
fn join(places: &[u32; TILE + 128], low: u32, first: u32, part: &mut [u32]) {
    for (i, (number, place)) in part.iter_mut().zip(places).enumerate() {
        *number |= place.wrapping_sub(first).wrapping_sub(i as u32) << low;
    }
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
