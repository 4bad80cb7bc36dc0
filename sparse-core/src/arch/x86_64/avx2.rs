use std::arch::x86_64::*;
use std::ops::Range;

use super::compress::{self, GROUP, GROUPS, Instructions};
use crate::Element;
use crate::pass::Pass;

/// Whether values of this type are compressed. What is said of the other functions holds for these.
pub(super) const fn compresses<T>() -> bool {
    size_of::<T>() == 4
}

/// As [`collect::of_part`](crate::collect::of_part).
#[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,popcnt")]
pub(super) fn collect<T: Element>(
    pass: &mut impl Pass<T>,
    part: Range<usize>,
    low: u64,
    start: u32,
    found: (&mut Vec<u32>, &mut Vec<T>),
) {
    // SAFETY: this is compiled for that instruction set.
    unsafe { compress::collect::<Avx2, T>(pass, part, low, start, found) }
}

/// As [`collect::between`](crate::collect::between).
#[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,popcnt")]
pub(super) fn between<T: Element>(
    values: &[T],
    low: u64,
    above: u64,
    inside: &mut [T],
) -> Option<(usize, usize)> {
    // SAFETY: this is compiled for that instruction set.
    unsafe { compress::between::<Avx2, T>(values, low, above, inside) }
}

/// As [`collect::keep_reaching`](crate::collect::keep_reaching).
#[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,popcnt")]
pub(super) fn keep_reaching<T: Element>(low: u64, indices: &mut [u32], values: &mut [T]) -> usize {
    // SAFETY: this is compiled for that instruction set.
    unsafe { compress::keep_reaching::<Avx2, T>(low, indices, values) }
}

/// As [`collect::split_reaching`](crate::collect::split_reaching).
#[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,popcnt")]
pub(super) fn split_reaching<T: Element>(
    low: u64,
    indices: &mut [u32],
    values: &mut [T],
    others: (&mut [u32], &mut [T]),
) -> usize {
    // SAFETY: this is compiled for that instruction set.
    unsafe { compress::split_reaching::<Avx2, T>(low, indices, values, others) }
}

struct Avx2;

/// Values of a register.
const LANES: usize = 8;

impl Instructions for Avx2 {
    #[inline(always)]
    unsafe fn reaching<T: Element>(group: &[T; GROUP], low: u64) -> u16 {
        assert!(compresses::<T>());
        let at = group.as_ptr();
        // SAFETY: the two halves are read.
        unsafe { reaching_of_half(at, low) | reaching_of_half(at.add(LANES), low) << LANES }
    }

    #[inline(always)]
    unsafe fn some(masks: &[u16; GROUPS]) -> u64 {
        let (mut some, at) = (0, masks.as_ptr().cast::<__m256i>());
        for pair in (0..GROUPS / 32).rev() {
            // SAFETY: two registers of 16 masks are read.
            unsafe {
                let first = _mm256_cmpeq_epi16(_mm256_loadu_si256(at.add(2 * pair)), _mm256_setzero_si256());
                let second =
                    _mm256_cmpeq_epi16(_mm256_loadu_si256(at.add(2 * pair + 1)), _mm256_setzero_si256());
                // Packing takes the halves of the two in turn.
                let zero = _mm256_permute4x64_epi64::<0b11_01_10_00>(_mm256_packs_epi16(first, second));
                some = some << 32 | u64::from(!_mm256_movemask_epi8(zero) as u32);
            }
        }
        some
    }

    #[inline(always)]
    unsafe fn compress<T: Copy>(group: &[T; GROUP], mask: u16, to: *mut T) {
        assert!(compresses::<T>());
        let [first, second] = mask.to_le_bytes();
        let at = group.as_ptr();
        // SAFETY: a group is read, and there is room for one, as the caller says: the second half goes behind what was found in the
        // first.
        unsafe {
            let second_to = to.add(first.count_ones() as usize);
            for (mask, at, to) in [(first, at, to), (second, at.add(LANES), second_to)] {
                let order = _mm256_loadu_si256(ORDERS[usize::from(mask)].as_ptr().cast());
                let half = _mm256_loadu_si256(at.cast());
                _mm256_storeu_si256(to.cast(), _mm256_permutevar8x32_epi32(half, order));
            }
        }
    }

    #[inline(always)]
    unsafe fn compress_indices(first: u32, mask: u16, to: *mut u32) {
        let [low, high] = mask.to_le_bytes();
        // SAFETY: as for the values.
        unsafe {
            let high_to = to.add(low.count_ones() as usize);
            for (mask, first, to) in [(low, first, to), (high, first.wrapping_add(LANES as u32), high_to)] {
                let places = _mm256_loadu_si256(ORDERS[usize::from(mask)].as_ptr().cast());
                _mm256_storeu_si256(to.cast(), _mm256_add_epi32(_mm256_set1_epi32(first as i32), places));
            }
        }
    }

    #[inline(always)]
    unsafe fn clear<T: Element>(group: &mut [T; GROUP], mask: u16) {
        assert!(compresses::<T>());
        let at = group.as_mut_ptr();
        // SAFETY: the two halves are read and written.
        unsafe {
            let lanes = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
            for (mask, at) in mask.to_le_bytes().into_iter().zip([at, at.add(LANES)]) {
                let others = _mm256_andnot_si256(_mm256_set1_epi32(mask.into()), lanes);
                let kept = _mm256_cmpeq_epi32(others, lanes);
                _mm256_storeu_si256(at.cast(), _mm256_and_si256(_mm256_loadu_si256(at.cast()), kept));
            }
        }
    }
}

/// A bit for each of the values of a register.
///
/// # Safety
/// So many there must be at `at`.
#[inline(always)]
unsafe fn reaching_of_half<T: Element>(at: *const T, low: u64) -> u16 {
    // SAFETY: as the caller says.
    unsafe {
        let x = _mm256_loadu_si256(at.cast());
        let key = if T::CAN_OVERFLOW {
            _mm256_abs_epi32(x)
        } else {
            _mm256_and_si256(x, _mm256_set1_epi32(i32::MAX))
        };
        let larger = _mm256_max_epu32(key, _mm256_set1_epi32(low as i32));
        _mm256_movemask_ps(_mm256_castsi256_ps(_mm256_cmpeq_epi32(larger, key))) as u16
    }
}

/// For each mask the lanes that have a bit; then any.
static ORDERS: [[u32; LANES]; 1 << LANES] = {
    let mut orders = [[0; LANES]; 1 << LANES];
    let mut mask = 0;
    while mask < orders.len() {
        let (mut lane, mut found) = (0, 0);
        while lane < LANES {
            orders[mask][found] = lane as u32;
            found += mask >> lane & 1;
            lane += 1;
        }
        mask += 1;
    }
    orders
};
