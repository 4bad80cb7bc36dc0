use std::arch::x86_64::*;
use std::ops::Range;

use super::compress::{self, GROUP, GROUPS, Instructions};
use crate::Element;
use crate::pass::Pass;

/// As [`collect::of_part`](crate::collect::of_part).
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi2,avx2,bmi1,bmi2,lzcnt,popcnt")]
pub(super) fn collect<T: Element>(
    pass: &mut impl Pass<T>,
    part: Range<usize>,
    low: u64,
    start: u32,
    found: (&mut Vec<u32>, &mut Vec<T>),
) {
    // SAFETY: this is compiled for that instruction set.
    unsafe { compress::collect::<Avx512, T>(pass, part, low, start, found) }
}

/// As [`collect::between`](crate::collect::between).
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi2,avx2,bmi1,bmi2,lzcnt,popcnt")]
pub(super) fn between<T: Element>(
    values: &[T],
    low: u64,
    above: u64,
    inside: &mut [T],
) -> Option<(usize, usize)> {
    // SAFETY: this is compiled for that instruction set.
    unsafe { compress::between::<Avx512, T>(values, low, above, inside) }
}

/// As [`collect::keep_reaching`](crate::collect::keep_reaching).
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi2,avx2,bmi1,bmi2,lzcnt,popcnt")]
pub(super) fn keep_reaching<T: Element>(low: u64, indices: &mut [u32], values: &mut [T]) -> usize {
    // SAFETY: this is compiled for that instruction set.
    unsafe { compress::keep_reaching::<Avx512, T>(low, indices, values) }
}

/// As [`collect::split_reaching`](crate::collect::split_reaching).
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi2,avx2,bmi1,bmi2,lzcnt,popcnt")]
pub(super) fn split_reaching<T: Element>(
    low: u64,
    indices: &mut [u32],
    values: &mut [T],
    others: (&mut [u32], &mut [T]),
) -> usize {
    // SAFETY: this is compiled for that instruction set.
    unsafe { compress::split_reaching::<Avx512, T>(low, indices, values, others) }
}

struct Avx512;

impl Instructions for Avx512 {
    #[inline(always)]
    unsafe fn reaching<T: Element>(group: &[T; GROUP], low: u64) -> u16 {
        let at = group.as_ptr();
        // SAFETY: a group is read.
        unsafe {
            match size_of::<T>() {
                2 => {
                    let key = _mm256_and_si256(_mm256_loadu_si256(at.cast()), _mm256_set1_epi16(i16::MAX));
                    _mm256_cmpge_epu16_mask(key, _mm256_set1_epi16(low as i16))
                }
                4 => {
                    let x = _mm512_loadu_si512(at.cast());
                    let key = if T::CAN_OVERFLOW {
                        _mm512_abs_epi32(x)
                    } else {
                        _mm512_and_si512(x, _mm512_set1_epi32(i32::MAX))
                    };
                    _mm512_cmpge_epu32_mask(key, _mm512_set1_epi32(low as i32))
                }
                _ => {
                    let first = reaching_of_half(at, low);
                    u16::from(first) | u16::from(reaching_of_half(at.add(GROUP / 2), low)) << 8
                }
            }
        }
    }

    #[inline(always)]
    unsafe fn some(masks: &[u16; GROUPS]) -> u64 {
        // SAFETY: the two halves are read.
        unsafe {
            let first = _mm512_loadu_si512(masks.as_ptr().cast());
            let second = _mm512_loadu_si512(masks.as_ptr().add(GROUPS / 2).cast());
            let some = u64::from(_mm512_test_epi16_mask(first, first));
            some | u64::from(_mm512_test_epi16_mask(second, second)) << 32
        }
    }

    #[inline(always)]
    unsafe fn compress<T: Copy>(group: &[T; GROUP], mask: u16, to: *mut T) {
        let at = group.as_ptr();
        // SAFETY: a group is read, and there is room for one, as the caller says: of two halves the second goes behind what was
        // found in the first. Compressing in registers, since to memory it is slow on some processors.
        unsafe {
            match size_of::<T>() {
                2 => _mm256_storeu_si256(
                    to.cast(),
                    _mm256_maskz_compress_epi16(mask, _mm256_loadu_si256(at.cast())),
                ),
                4 => _mm512_storeu_si512(
                    to.cast(),
                    _mm512_maskz_compress_epi32(mask, _mm512_loadu_si512(at.cast())),
                ),
                _ => {
                    let [first, second] = mask.to_le_bytes();
                    let second_to = to.add(first.count_ones() as usize);
                    for (mask, at, to) in [(first, at, to), (second, at.add(GROUP / 2), second_to)] {
                        let half = _mm512_loadu_si512(at.cast());
                        _mm512_storeu_si512(to.cast(), _mm512_maskz_compress_epi64(mask, half));
                    }
                }
            }
        }
    }

    #[inline(always)]
    unsafe fn compress_indices(first: u32, mask: u16, to: *mut u32) {
        // SAFETY: there is room for a group, as the caller says.
        unsafe {
            let places = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
            let indices = _mm512_add_epi32(_mm512_set1_epi32(first as i32), places);
            _mm512_storeu_si512(to.cast(), _mm512_maskz_compress_epi32(mask, indices));
        }
    }

    #[inline(always)]
    unsafe fn clear<T: Element>(group: &mut [T; GROUP], mask: u16) {
        let at = group.as_mut_ptr();
        // SAFETY: a group is written, to zeros, which are a value of each type.
        unsafe {
            match size_of::<T>() {
                2 => _mm256_mask_storeu_epi16(at.cast(), mask, _mm256_setzero_si256()),
                4 => _mm512_mask_storeu_epi32(at.cast(), mask, _mm512_setzero_si512()),
                _ => {
                    let [first, second] = mask.to_le_bytes();
                    _mm512_mask_storeu_epi64(at.cast(), first, _mm512_setzero_si512());
                    _mm512_mask_storeu_epi64(at.add(GROUP / 2).cast(), second, _mm512_setzero_si512());
                }
            }
        }
    }
}

/// A bit for each of 8 values of 8 bytes.
///
/// # Safety
/// So many there must be at `at`.
#[inline(always)]
unsafe fn reaching_of_half<T: Element>(at: *const T, low: u64) -> u8 {
    // SAFETY: as the caller says.
    unsafe {
        let x = _mm512_loadu_si512(at.cast());
        let key = if T::CAN_OVERFLOW {
            _mm512_abs_epi64(x)
        } else {
            _mm512_and_si512(x, _mm512_set1_epi64(i64::MAX))
        };
        _mm512_cmpge_epu64_mask(key, _mm512_set1_epi64(low as i64))
    }
}
