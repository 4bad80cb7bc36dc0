#![allow(unsafe_code, reason = "that every access is within bounds follows from what all steps together do")]

use std::hint::select_unpredictable;

/// Indices, which increase strictly, and a value for each.
pub(crate) type Entries<'a, B> = (&'a [u32], &'a [B]);
/// Room for them.
pub(crate) type EntriesMut<'a, B> = (&'a mut [u32], &'a mut [B]);

/// So many indices of a block may be in both operands.
pub(crate) const TWINS: usize = 1 << 11;

/// Merges a block, the entries before `middle`, to the start of `sum`, and in turn with it another, the entries from
/// `middle` on, to behind the room that the first may need: until a block has no more entries on one side.
///
/// Says how many entries of each block it has written, and what has been taken then. Where an index is in both, the left
/// value is written, and `place << 16 | right` added to the block's `twins`: its place in the block, and in the right.
///
/// # Panics
/// If not all entries have room, or more indices might be in both than `twins` have room for.
#[inline(always)]
pub(crate) fn in_turn<B: Copy>(
    left: Entries<'_, B>,
    right: Entries<'_, B>,
    middle: (usize, usize),
    (indices, values): EntriesMut<'_, B>,
    twins: &mut [[u32; TWINS]; 2],
) -> (usize, [(usize, usize); 2]) {
    let (start, ends) = (middle.0 + middle.1, (left.0.len(), right.0.len()));
    assert!(left.1.len() == ends.0 && right.1.len() == ends.1);
    assert!(indices.len() >= ends.0 + ends.1 && values.len() >= ends.0 + ends.1);
    assert!(middle.0 <= ends.0 && middle.1 <= ends.1);
    assert!(middle.0.min(middle.1) <= TWINS && (ends.0 - middle.0).min(ends.1 - middle.1) <= TWINS);
    let (its, slots) = ((left.0.as_ptr(), right.0.as_ptr()), (left.1.as_ptr(), right.1.as_ptr()));
    let (indices, values) = (indices.as_mut_ptr(), values.as_mut_ptr());
    let twins = twins.as_flattened_mut().as_mut_ptr();
    let ((mut i, mut j), (mut k, mut m), mut at) = ((0, 0), middle, 0);
    loop {
        let steps = (middle.0 - i).min(middle.1 - j).min(ends.0 - k).min(ends.1 - m);
        if steps == 0 {
            return (at, [(i, j), (k, m)]);
        }
        for _ in 0..steps {
            // SAFETY: a step takes at most one entry of each run, and each of the four has `steps` left: i and k are within
            // the left, j and m within the right. A block's step writes one entry and takes one or, of an index in both,
            // two: `at` is at most i + j, less than `start`, and start + at at most k + m, less than all: both are within
            // the sum. What was taken and not written, i + j - at and k + m - start - at, is how many steps took two, so
            // at most i and j, and k and m less `middle`: less than the shorter of the two runs, which is at most TWINS.
            unsafe {
                let (a, b) = (*its.0.add(i), *its.1.add(j));
                // Volatile, or the compiler chooses between the addresses first and reads after that.
                let (x, y) = (slots.0.add(i).read_volatile(), slots.1.add(j).read_volatile());
                *indices.add(at) = a.min(b);
                *values.add(at) = select_unpredictable(b < a, y, x);
                // Where it is in one only, the next is written over it.
                *twins.add(i + j - at) = (at << 16 | j) as u32;
                (i, j) = (i + 1 - usize::from(b < a), j + 1 - usize::from(a < b));

                let (a, b) = (*its.0.add(k), *its.1.add(m));
                let (x, y) = (slots.0.add(k).read_volatile(), slots.1.add(m).read_volatile());
                *indices.add(start + at) = a.min(b);
                *values.add(start + at) = select_unpredictable(b < a, y, x);
                *twins.add(TWINS + k + m - start - at) = (at << 16 | m) as u32;
                (k, m) = (k + 1 - usize::from(b < a), m + 1 - usize::from(a < b));
            }
            at += 1;
        }
    }
}
