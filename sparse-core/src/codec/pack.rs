//! Numbers of a few bits each, one after the other, the lowest bits first.

use crate::arch;

/// Bytes beyond the packed ones that [`pack`] may overwrite.
pub(super) const SLACK: usize = 32;

/// The bytes that `count` numbers of `width` bits take.
pub(super) const fn packed_len(count: usize, width: u32) -> usize {
    (count as u64 * width as u64).div_ceil(8) as usize
}

/// Packs numbers of at most `width <= 32` bits to the start of `out`, which is longer than they need by [`SLACK`].
/// The bits that are left of the last byte are 0.
pub(super) fn pack(values: &[u32], width: u32, out: &mut [u8]) {
    type Pack = fn(&[u32], &mut [u8]);
    const PACK: [Pack; 33] = each_width!(pack_groups);
    PACK[width as usize](values, out);
}

/// Unpacks as many numbers of `width <= 32` bits as `out` holds from `bytes`, which are at least [`packed_len`].
pub(super) fn unpack(bytes: &[u8], width: u32, out: &mut [u32]) {
    type Unpack = fn(&[u8], &mut [u32]);
    const UNPACK: [Unpack; 33] = each_width!(unpack_fastest);
    UNPACK[width as usize](bytes, out);
}

/// Whether all bits from `used` on are 0.
pub(super) fn is_padded(bytes: &[u8], used: u64) -> bool {
    match bytes.last() {
        Some(&last) if used < bytes.len() as u64 * 8 => last >> (8 + used - bytes.len() as u64 * 8) == 0,
        _ => true,
    }
}

/// A function for each width, so that all its shifts and offsets are constants.
macro_rules! each_width {
    ($function:ident) => {
        each_width!(@ $function 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31 32)
    };
    (@ $function:ident $($width:literal)+) => { [$($function::<$width>),+] };
}
use each_width;

/// Numbers that are packed at once: at any width their bits are whole bytes.
const GROUP: usize = 8;

fn pack_groups<const WIDTH: usize>(values: &[u32], out: &mut [u8]) {
    let (groups, rest) = values.as_chunks::<GROUP>();
    let mut at = 0;
    for group in groups {
        pack_group::<WIDTH>(group, &mut out[at..at + SLACK]);
        at += WIDTH;
    }
    if !rest.is_empty() {
        let mut group = [0; GROUP];
        group[..rest.len()].copy_from_slice(rest);
        pack_group::<WIDTH>(&group, &mut out[at..at + SLACK]);
    }
}

#[inline]
fn pack_group<const WIDTH: usize>(group: &[u32; GROUP], out: &mut [u8]) {
    let mut words = [0_u64; SLACK / 8];
    for (i, &value) in group.iter().enumerate() {
        let (word, shift) = (i * WIDTH / 64, i * WIDTH % 64);
        words[word] |= u64::from(value) << shift;
        if shift + WIDTH > 64 {
            words[word + 1] |= u64::from(value) >> (64 - shift);
        }
    }
    // What the last word has too many is overwritten by the next group.
    for (bytes, word) in out.as_chunks_mut::<8>().0.iter_mut().zip(&words[..WIDTH.div_ceil(8)]) {
        *bytes = word.to_le_bytes();
    }
}

/// The bytes that are looked at for a group: the last of its numbers may start at byte 28, and 8 are read.
const WINDOW: usize = 36;

fn unpack_fastest<const WIDTH: usize>(bytes: &[u8], out: &mut [u32]) {
    arch::fastest(
        #[inline(always)]
        || unpack_groups::<WIDTH>(bytes, out),
    );
}

#[inline(always)]
fn unpack_groups<const WIDTH: usize>(bytes: &[u8], out: &mut [u32]) {
    let (groups, rest) = out.as_chunks_mut::<GROUP>();
    let mut at = 0;
    for group in groups {
        match bytes[at..].first_chunk() {
            Some(window) => unpack_group::<WIDTH>(window, group),
            None => unpack_group::<WIDTH>(&padded(&bytes[at..]), group),
        }
        at += WIDTH;
    }
    if !rest.is_empty() {
        let mut group = [0; GROUP];
        unpack_group::<WIDTH>(&padded(&bytes[at..]), &mut group);
        rest.copy_from_slice(&group[..rest.len()]);
    }
}

#[inline(always)]
fn unpack_group<const WIDTH: usize>(window: &[u8; WINDOW], group: &mut [u32; GROUP]) {
    for (i, value) in group.iter_mut().enumerate() {
        let (byte, shift) = (i * WIDTH / 8, i * WIDTH % 8);
        let mut word = [0; 8];
        word.copy_from_slice(&window[byte..byte + 8]);
        *value = ((u64::from_le_bytes(word) >> shift) & ((1 << WIDTH) - 1)) as u32;
    }
}

#[cold]
fn padded(bytes: &[u8]) -> [u8; WINDOW] {
    let mut window = [0; WINDOW];
    let len = bytes.len().min(WINDOW);
    window[..len].copy_from_slice(&bytes[..len]);
    window
}
