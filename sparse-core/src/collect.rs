use std::ops::Range;

use crate::pass::{Fetched, Pass};
use crate::{Element, arch};

/// Appends the values of at least this magnitude to `found`, with their indices, the first of them `start`, until it has
/// `enough` entries.
pub(crate) fn collect<T: Element>(
    values: &[T],
    low: u64,
    start: u32,
    enough: usize,
    found: (&mut Vec<u32>, &mut Vec<T>),
) {
    let (indices, kept) = found;
    collect_by(&mut Fetched(values), low, start, enough, (&mut *indices, &mut *kept));
    indices.truncate(enough);
    kept.truncate(enough);
}

/// Appends the values of at least this magnitude of what this passes over, until there are enough: up to [`PART`] more may be
/// found. Says how much was reached.
pub(crate) fn collect_by<T: Element>(
    pass: &mut impl Pass<T>,
    low: u64,
    start: u32,
    enough: usize,
    found: (&mut Vec<u32>, &mut Vec<T>),
) -> usize {
    let (indices, kept) = found;
    let (mut at, (len, mut end)) = (0, pass.lengths());
    // Registers of values that lie in two cache lines take twice as long to load and store: the first part ends with a line.
    while at < len && indices.len() < enough {
        let part = at..len.min(end);
        (at, end) = (part.end, part.end + PART);
        arch::collect(pass, part, low, start, (&mut *indices, &mut *kept));
    }
    at
}

/// After so many values it is seen whether enough are found: there is room for so many more than that at least.
pub(crate) const PART: usize = 1 << 10;
/// Room for so many more entries than there will be is never too little.
pub(crate) const ROOM: usize = PART + BLOCK;
/// Values that are looked at together.
pub(crate) const BLOCK: usize = 64;
/// Bytes.
pub(crate) const CACHE_LINE: usize = 64;

/// How many values there are before the first that begins a cache line: no more than a part.
pub(crate) fn before_line<T>(values: &[T]) -> usize {
    values.as_ptr().align_offset(CACHE_LINE).min(PART)
}

/// [`collect`] of a part whole, on every machine.
#[inline(always)]
pub(crate) fn of_part<T: Element>(
    pass: &mut impl Pass<T>,
    part: Range<usize>,
    low: u64,
    start: u32,
    (indices, kept): (&mut Vec<u32>, &mut Vec<T>),
) {
    for at in part.clone().step_by(BLOCK) {
        let block = at..part.end.min(at + BLOCK);
        pass.reach(block.clone());
        let values = pass.values(block);
        let mut found = match values.first_chunk::<BLOCK>() {
            // Most blocks hold none at the usual densities.
            Some(block) if !block.iter().fold(false, |any, value| any | value.reaches(low)) => 0,
            Some(block) => which(block, low),
            None => each(values, low),
        };
        // Without a branch on each value, which no predictor could foresee.
        while found != 0 {
            let at = at + found.trailing_zeros() as usize;
            found &= found - 1;
            indices.push(start.wrapping_add(at as u32));
            kept.push(pass.values(at..at + 1)[0]);
            if let Some(values) = pass.taken(at..at + 1) {
                values[0] = T::ZERO;
            }
        }
    }
}

/// A bit for each value of a part of a block, as [`which`].
#[inline(always)]
fn each<T: Element>(values: &[T], low: u64) -> u64 {
    (0..).zip(values).fold(0, |bits, (at, value)| bits | u64::from(value.reaches(low)) << at)
}

/// A bit for each value that is of at least this magnitude.
#[inline(always)]
fn which<T: Element>(block: &[T; BLOCK], low: u64) -> u64 {
    let mut each = [0_u8; BLOCK];
    for (byte, value) in each.iter_mut().zip(block) {
        *byte = value.reaches(low).into();
    }
    // The multiplication moves the lowest bits of 8 bytes to its highest byte, each to its place.
    let bits = |bytes: &[u8; 8]| u64::from_le_bytes(*bytes).wrapping_mul(0x0102_0408_1020_4080) >> 56;
    let bytes = each.as_chunks::<8>().0.iter().enumerate();
    bytes.fold(0, |all, (at, bytes)| all | bits(bytes) << (8 * at))
}

/// Writes the values of at least the magnitude `low` that are not of `above`, on every machine. Says how many are, and how many
/// it has written; nothing when they leave less than [`ROOM`].
#[inline(always)]
pub(crate) fn between<T: Element>(
    values: &[T],
    low: u64,
    above: u64,
    inside: &mut [T],
) -> Option<(usize, usize)> {
    let (mut larger, mut len) = (0, 0);
    for block in values.chunks(BLOCK) {
        let to = inside.get_mut(len..len + ROOM)?;
        let (reaching, mut found) = match block.first_chunk() {
            Some(block) => (which(block, above), which(block, low)),
            None => (each(block, above), each(block, low)),
        };
        found &= !reaching;
        larger += reaching.count_ones() as usize;
        len += found.count_ones() as usize;
        for slot in to.iter_mut().take(found.count_ones() as usize) {
            *slot = block[found.trailing_zeros() as usize];
            found &= found - 1;
        }
    }
    Some((larger, len))
}

/// Moves the entries of at least this magnitude to the front, on every machine; says how many these are.
#[inline(always)]
pub(crate) fn keep_reaching<T: Element>(low: u64, indices: &mut [u32], values: &mut [T]) -> usize {
    let mut kept = 0;
    for at in 0..indices.len().min(values.len()) {
        let (index, value) = (indices[at], values[at]);
        // Written whether it stays or not: which of the two no predictor could foresee.
        (indices[kept], values[kept]) = (index, value);
        kept += usize::from(value.reaches(low));
    }
    kept
}

/// [`split`] by a magnitude, on every machine.
#[inline(always)]
pub(crate) fn split_reaching<T: Element>(
    low: u64,
    indices: &mut [u32],
    values: &mut [T],
    others: (&mut [u32], &mut [T]),
) -> usize {
    split(indices, values, others, |value| value.reaches(low))
}

/// Moves the entries that are kept to the front, and the others to that of `others`; says how many are kept. There must be
/// [`ROOM`] for more than there are others.
#[inline(always)]
pub(crate) fn split<T: Element>(
    indices: &mut [u32],
    values: &mut [T],
    (places, slots): (&mut [u32], &mut [T]),
    mut keeps: impl FnMut(T) -> bool,
) -> usize {
    let (mut kept, mut out) = (0, 0);
    for at in 0..indices.len().min(values.len()) {
        let (index, value) = (indices[at], values[at]);
        // Written to both: which of them no predictor could foresee.
        (indices[kept], values[kept]) = (index, value);
        (places[out], slots[out]) = (index, value);
        let keep = usize::from(keeps(value));
        (kept, out) = (kept + keep, out + 1 - keep);
    }
    kept
}
