//! Collecting by instructions that move the values found in a register to its front.

use std::ops::Range;

use crate::Element;
use crate::collect::{self, BLOCK, PART, ROOM};
use crate::pass::Pass;

/// Values that are compressed together.
pub(super) const GROUP: usize = 16;
/// Groups of a part, a bit for each.
pub(super) const GROUPS: usize = PART / GROUP;
const _: () = assert!(GROUPS == u64::BITS as usize);

/// What an instruction set does with a group.
///
/// # Safety
/// Its functions may be called only where the processor has the instruction set, and are to be inlined where it is enabled.
pub(super) trait Instructions {
    /// A bit for each value that is of at least this magnitude.
    unsafe fn reaching<T: Element>(group: &[T; GROUP], low: u64) -> u16;

    /// A bit for each mask that has one.
    unsafe fn some(masks: &[u16; GROUPS]) -> u64;

    /// Writes the values that have a bit, one after the other; what follows them, up to the length of a group, is overwritten.
    ///
    /// # Safety
    /// There must be room for a group at `to`.
    unsafe fn compress<T: Copy>(group: &[T; GROUP], mask: u16, to: *mut T);

    /// Writes the indices of the values that have a bit, as [`compress`](Self::compress) writes the values. `first` is that of
    /// the first.
    ///
    /// # Safety
    /// There must be room for a group at `to`.
    unsafe fn compress_indices(first: u32, mask: u16, to: *mut u32);

    /// Sets the values that have a bit to zero.
    unsafe fn clear<T: Element>(group: &mut [T; GROUP], mask: u16);
}

/// As [`of_part`](crate::collect::of_part). No branch depends on the values, but for how many groups have any.
///
/// # Safety
/// The processor must have the instructions.
#[inline(always)]
pub(super) unsafe fn collect<I: Instructions, T: Element>(
    pass: &mut impl Pass<T>,
    part: Range<usize>,
    low: u64,
    start: u32,
    (indices, kept): (&mut Vec<u32>, &mut Vec<T>),
) {
    const BLOCKED: usize = BLOCK / GROUP;
    let mut masks = [0; GROUPS];
    for (at, masks) in part.clone().step_by(BLOCK).zip(masks.as_chunks_mut::<BLOCKED>().0) {
        let block = at..part.end.min(at + BLOCK);
        pass.reach(block.clone());
        let values = pass.values(block);
        // A whole block is known to have as many groups.
        let groups = values.first_chunk::<BLOCK>().map_or(values, |block| block).as_chunks().0;
        for (mask, group) in masks.iter_mut().zip(groups) {
            // SAFETY: as the caller says.
            *mask = unsafe { I::reaching(group, low) };
        }
    }
    // A group is written whole, wherever the last of those found ends.
    indices.reserve(part.len() + GROUP);
    kept.reserve(part.len() + GROUP);
    let (ends, slots) = (indices.spare_capacity_mut().as_mut_ptr(), kept.spare_capacity_mut().as_mut_ptr());
    // SAFETY: as the caller says.
    let (mut some, mut len) = (unsafe { I::some(&masks) }, 0);
    while some != 0 {
        let group = some.trailing_zeros() as usize;
        some &= some - 1;
        let (at, mask) = (part.start + group * GROUP, masks[group]);
        let Some(group) = pass.values(at..at + GROUP).first_chunk() else { break };
        // SAFETY: as the caller says; of the groups before, at most all values were found, so there is room for this one.
        unsafe {
            I::compress_indices(start.wrapping_add(at as u32), mask, ends.add(len).cast());
            I::compress(group, mask, slots.add(len).cast());
        }
        if let Some(group) = pass.taken(at..at + GROUP).and_then(|values| values.first_chunk_mut()) {
            // SAFETY: as the caller says.
            unsafe { I::clear(group, mask) };
        }
        len += mask.count_ones() as usize;
    }
    // SAFETY: so many have been written behind the old ends, and so many there was room for.
    unsafe {
        indices.set_len(indices.len() + len);
        kept.set_len(kept.len() + len);
    }
    for at in part.end - part.len() % GROUP..part.end {
        let value = pass.values(at..at + 1)[0];
        if value.reaches(low) {
            indices.push(start.wrapping_add(at as u32));
            kept.push(value);
            if let Some(values) = pass.taken(at..at + 1) {
                values[0] = T::ZERO;
            }
        }
    }
}

/// As [`between`](crate::collect::between). No branch depends on the values.
///
/// # Safety
/// The processor must have the instructions.
#[inline(always)]
pub(super) unsafe fn between<I: Instructions, T: Element>(
    values: &[T],
    low: u64,
    above: u64,
    inside: &mut [T],
) -> Option<(usize, usize)> {
    let (mut larger, mut len, (groups, rest)) = (0, 0, values.as_chunks());
    for group in groups {
        let to = inside.get_mut(len..len + ROOM)?;
        // SAFETY: as the caller says; there is room for a group.
        unsafe {
            let (reaching, found) = (I::reaching(group, above), I::reaching(group, low));
            I::compress(group, found & !reaching, to.as_mut_ptr());
            larger += reaching.count_ones() as usize;
            len += (found & !reaching).count_ones() as usize;
        }
    }
    let (reaching, found) = collect::between(rest, low, above, inside.get_mut(len..)?)?;
    Some((larger + reaching, len + found))
}

/// As [`keep_reaching`](crate::collect::keep_reaching). No branch depends on the values.
///
/// # Safety
/// The processor must have the instructions.
#[inline(always)]
pub(super) unsafe fn keep_reaching<I: Instructions, T: Element>(
    low: u64,
    indices: &mut [u32],
    values: &mut [T],
) -> usize {
    let entries = indices.len().min(values.len());
    let mut kept = 0;
    for from in (0..entries / GROUP).map(|group| group * GROUP) {
        let (its, slots) = (indices[from..].first_chunk(), values[from..].first_chunk());
        let (Some(&its), Some(&slots)) = (its, slots) else { break };
        // SAFETY: as the caller says. These groups have been read, and no more are kept than were before them: what is written is
        // at most up to their ends.
        unsafe {
            let mask = I::reaching(&slots, low);
            I::compress(&its, mask, indices.as_mut_ptr().add(kept));
            I::compress(&slots, mask, values.as_mut_ptr().add(kept));
            kept += mask.count_ones() as usize;
        }
    }
    for at in entries - entries % GROUP..entries {
        let (index, value) = (indices[at], values[at]);
        (indices[kept], values[kept]) = (index, value);
        kept += usize::from(value.reaches(low));
    }
    kept
}

/// As [`split_reaching`](crate::collect::split_reaching). No branch depends on the values.
///
/// # Safety
/// The processor must have the instructions.
#[inline(always)]
pub(super) unsafe fn split_reaching<I: Instructions, T: Element>(
    low: u64,
    indices: &mut [u32],
    values: &mut [T],
    (places, slots): (&mut [u32], &mut [T]),
) -> usize {
    let entries = indices.len().min(values.len());
    let (mut kept, mut out) = (0, 0);
    for from in (0..entries / GROUP).map(|group| group * GROUP) {
        let group = (indices[from..].first_chunk(), values[from..].first_chunk());
        let (Some(&its), Some(&group)) = group else { break };
        let others = (&mut places[out..][..GROUP], &mut slots[out..][..GROUP]);
        // SAFETY: as the caller says. These groups have been read, and no more are kept than were before them: what is written is
        // at most up to their ends.
        unsafe {
            let mask = I::reaching(&group, low);
            I::compress(&its, mask, indices.as_mut_ptr().add(kept));
            I::compress(&group, mask, values.as_mut_ptr().add(kept));
            I::compress(&its, !mask, others.0.as_mut_ptr());
            I::compress(&group, !mask, others.1.as_mut_ptr());
            kept += mask.count_ones() as usize;
            out += mask.count_zeros() as usize;
        }
    }
    for at in entries - entries % GROUP..entries {
        let (index, value) = (indices[at], values[at]);
        (indices[kept], values[kept]) = (index, value);
        (places[out], slots[out]) = (index, value);
        let keep = usize::from(value.reaches(low));
        (kept, out) = (kept + keep, out + 1 - keep);
    }
    kept
}
