use std::hint::select_unpredictable;
use std::ops::Range;

use crate::arch::{self, Entries, EntriesMut, TWINS, in_turn};
use crate::{Element, Error, Memory, SparseVec};

/// The sum of two vectors; where both have an entry, `left`'s value is the left operand.
///
/// One linear pass. Entries that cancel stay, as explicit zeros. Vectors whose indices do not
/// interleave are concatenated.
///
/// # Errors
/// [`Error::DimensionMismatch`], [`Error::Overflow`].
pub fn merge<T: Element>(left: &SparseVec<T>, right: &SparseVec<T>) -> Result<SparseVec<T>, Error> {
    merge_in(left, right, &Memory::new())
}

/// [`merge`], to memory that is used again.
///
/// # Errors
/// As [`merge`].
pub fn merge_in<T: Element>(
    left: &SparseVec<T>,
    right: &SparseVec<T>,
    memory: &Memory,
) -> Result<SparseVec<T>, Error> {
    left.check_same_dim(right)?;
    let most = left.nnz() + right.nnz();
    let (mut indices, mut values) = (memory.any(most, 0), memory.any(most, T::ZERO));
    let entries = merge_to(left, right, &mut indices, &mut values)?;
    indices.truncate(entries);
    values.truncate(entries);
    Ok(SparseVec::from_sorted(left.dim(), indices, values))
}

/// Writes the sum, and says how many entries it has.
fn merge_to<T: Element>(
    left: &SparseVec<T>,
    right: &SparseVec<T>,
    indices: &mut [u32],
    values: &mut [T],
) -> Result<usize, Error> {
    // Values are taken as integers of the same bits: of a choice between floats the compiler makes a branch.
    let [left, right] = [left, right].map(|vec| (vec.indices(), bytemuck::cast_slice(vec.values())));
    let values = bytemuck::cast_slice_mut(values);
    arch::fastest(
        #[inline(always)]
        || merge_bits::<T>(left, right, (indices, values)),
    )
}

#[inline(always)]
fn merge_bits<T: Element>(
    mut left: Entries<'_, T::Bits>,
    mut right: Entries<'_, T::Bits>,
    (indices, values): EntriesMut<'_, T::Bits>,
) -> Result<usize, Error> {
    let mut len = 0;
    if left.0.len() + right.0.len() >= 2 * BLOCK {
        let (mut twins, mut many_twins) = ([[0; TWINS]; 2], false);
        while left.0.len() + right.0.len() >= 2 * BLOCK && !left.0.is_empty() && !right.0.is_empty() {
            let end = cut(left.0, right.0, 2 * BLOCK);
            let room = end.0 + end.1;
            let sum = (&mut indices[len..][..room], &mut values[len..][..room]);
            let block = (part(left, 0..end.0), part(right, 0..end.1));
            let entries = if many_twins {
                one_by_one::<T>(block.0, block.1, sum)?
            } else {
                two_by_two::<T>(block.0, block.1, sum, &mut twins)?
            };
            // To sum them apart then costs more than it saves.
            many_twins = room - entries > room / 4;
            len += entries;
            (left, right) = (part(left, end.0..left.0.len()), part(right, end.1..right.0.len()));
        }
    }
    Ok(len + one_by_one::<T>(left, right, (&mut indices[len..], &mut values[len..]))?)
}

/// About so many entries are merged to a block: few enough that it stays in the cache until it is moved up to the one
/// before, many enough that finding where blocks begin costs little.
const BLOCK: usize = 2 * TWINS;

/// How many of the first `entries` of both come from the left, and how many from the right. An index in both is not torn
/// apart: that may be one entry more.
#[inline(always)]
fn cut(left: &[u32], right: &[u32], entries: usize) -> (usize, usize) {
    let entries = entries.min(left.len() + right.len());
    let (mut low, mut high) = (entries.saturating_sub(right.len()), entries.min(left.len()));
    while low < high {
        let middle = low.midpoint(high);
        if left[middle] <= right[entries - 1 - middle] {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    let twin = low > 0 && right.get(entries - low) == Some(&left[low - 1]);
    (low, entries - low + usize::from(twin))
}

/// Merges two neighbouring blocks in turn: where an entry comes from depends on the comparison before it, and on reading
/// what is compared, and while one block waits for that the other goes on.
#[inline(always)]
fn two_by_two<T: Element>(
    left: Entries<'_, T::Bits>,
    right: Entries<'_, T::Bits>,
    (indices, values): EntriesMut<'_, T::Bits>,
    twins: &mut [[u32; TWINS]; 2],
) -> Result<usize, Error> {
    let middle = cut(left.0, right.0, BLOCK);
    let (steps, taken) = in_turn(left, right, middle, (&mut *indices, &mut *values), twins);
    let ends = [middle, (left.0.len(), right.0.len())];
    let mut len = 0;
    for (block, (i, j)) in taken.into_iter().enumerate() {
        let start = block * (middle.0 + middle.1);
        let (its, slots) = (&mut indices[start..], &mut values[start..]);
        for &twin in &twins[block][..i + j - start - steps] {
            let (at, from) = (twin as usize >> 16, twin as usize & 0xffff);
            add::<T>(its[at], &mut slots[at], right.1[from])?;
        }
        let (left, right) = (part(left, i..ends[block].0), part(right, j..ends[block].1));
        let rest = one_by_one::<T>(left, right, (&mut its[steps..], &mut slots[steps..]))?;
        // Indices in both have left room before the second block.
        let sums = start..start + steps + rest;
        if len < start {
            indices.copy_within(sums.clone(), len);
            values.copy_within(sums, len);
        }
        len += steps + rest;
    }
    Ok(len)
}

/// Merges to the start of `sum`, and says how many entries it has.
#[inline(always)]
fn one_by_one<T: Element>(
    left: Entries<'_, T::Bits>,
    right: Entries<'_, T::Bits>,
    sum: EntriesMut<'_, T::Bits>,
) -> Result<usize, Error> {
    // As many values as indices, which the compiler sees here.
    let (left, right) = ((left.0, &left.1[..left.0.len()]), (right.0, &right.1[..right.0.len()]));
    let (indices, values) = sum;
    let values = &mut values[..indices.len()];
    let (mut i, mut j, mut len) = (0, 0, 0);
    while i < left.0.len() && j < right.0.len() {
        let ((a, x), (b, y)) = ((left.0[i], left.1[i]), (right.0[j], right.1[j]));
        let mut both = x;
        let added = add::<T>(a, &mut both, y);
        if a == b {
            added?;
        }
        // No branch depends on the entries: no predictor could foresee them.
        let value = select_unpredictable(a == b, both, select_unpredictable(a < b, x, y));
        (indices[len], values[len]) = (a.min(b), value);
        (i, j, len) = (i + usize::from(a <= b), j + usize::from(b <= a), len + 1);
    }
    // One of the two is at its end.
    for ((its, slots), from) in [(left, i), (right, j)] {
        let end = len + its.len() - from;
        indices[len..end].copy_from_slice(&its[from..]);
        values[len..end].copy_from_slice(&slots[from..]);
        len = end;
    }
    Ok(len)
}

/// Adds the right value at this index to the left.
#[inline(always)]
fn add<T: Element>(index: u32, left: &mut T::Bits, right: T::Bits) -> Result<(), Error> {
    let (sum, overflowed) = bytemuck::cast::<_, T>(*left).add(bytemuck::cast(right));
    *left = bytemuck::cast(sum);
    if overflowed { Err(Error::Overflow { index: u64::from(index), dtype: T::DTYPE }) } else { Ok(()) }
}

#[inline(always)]
fn part<B>(entries: Entries<'_, B>, range: Range<usize>) -> Entries<'_, B> {
    (&entries.0[range.clone()], &entries.1[range])
}
