#![allow(unsafe_code, reason = "the compiler does not know when what is written past the caches is there")]

#[cfg(target_arch = "x86_64")]
use std::arch::x86_64::{__m128i, _mm_loadu_si128, _mm_sfence, _mm_stream_si128};

use crate::Element;
use crate::collect::{BLOCK, CACHE_LINE};

/// Whether anything is written past the caches here.
pub(crate) const UNCACHED: bool = cfg!(all(target_arch = "x86_64", not(miri)));

/// Memory that blocks of whole cache lines are written to past the caches. Nobody else sees it as long as this lives.
pub(crate) struct Uncached<'a, T> {
    values: &'a mut [T],
    /// From there on nothing is written yet.
    end: usize,
}

impl<'a, T: Element> Uncached<'a, T> {
    pub(crate) fn new(values: &'a mut [T]) -> Self {
        Self { values, end: 0 }
    }

    #[inline(always)]
    pub(crate) fn len(&self) -> usize {
        self.values.len()
    }

    /// How many values are written.
    #[inline(always)]
    pub(crate) fn written(&self) -> usize {
        self.end
    }

    /// Copies these values behind those so far.
    #[inline(always)]
    pub(crate) fn push(&mut self, values: &[T]) {
        let to = &mut self.values[self.end..][..values.len()];
        self.end += values.len();
        match (to.as_chunks_mut::<BLOCK>(), values.as_chunks::<BLOCK>()) {
            (([to], []), ([values], [])) if UNCACHED && to.as_ptr().addr().is_multiple_of(CACHE_LINE) => {
                stream(values, to);
            }
            _ => to.copy_from_slice(values),
        }
    }

    /// The values that were not written.
    pub(crate) fn rest(&mut self) -> &mut [T] {
        &mut self.values[self.end..]
    }
}

impl<T> Drop for Uncached<'_, T> {
    fn drop(&mut self) {
        #[cfg(target_arch = "x86_64")]
        if UNCACHED {
            // SAFETY: every such processor has the instruction.
            unsafe { _mm_sfence() }
        }
    }
}

/// Writes a block that begins with a cache line past the caches.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn stream<T: Element>(block: &[T; BLOCK], to: &mut [T; BLOCK]) {
    let (from, to): (*const __m128i, *mut __m128i) = (block.as_ptr().cast(), to.as_mut_ptr().cast());
    for at in 0..size_of_val(block) / size_of::<__m128i>() {
        // SAFETY: both blocks have so many registers, those written to at their alignment; every such processor has
        // the instructions. Nobody reads what is written before the fence when `Uncached` is dropped.
        unsafe { _mm_stream_si128(to.add(at), _mm_loadu_si128(from.add(at))) }
    }
}

#[cfg(not(target_arch = "x86_64"))]
fn stream<T: Element>(block: &[T; BLOCK], to: &mut [T; BLOCK]) {
    to.copy_from_slice(block);
}
