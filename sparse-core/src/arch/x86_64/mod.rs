#![allow(
    unsafe_code,
    reason = "that the processor has an instruction set is beyond what the compiler can see"
)]

mod avx2;
mod avx512;
mod compress;

use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
use std::ops::Range;
use std::sync::LazyLock;

use crate::Element;
use crate::collect;
use crate::pass::Pass;

/// Instruction sets that code is compiled for, each with all of those before.
#[derive(Clone, Copy, PartialEq, PartialOrd)]
enum Level {
    /// What every such processor has.
    Portable,
    /// x86-64-v3: AVX2 and its contemporaries.
    Avx2,
    /// x86-64-v4, and what compresses small integers too.
    Avx512,
}

/// What this processor has, or less if the environment says so.
static LEVEL: LazyLock<Level> = LazyLock::new(|| {
    let most = match std::env::var_os("SPARSE_CORE_ISA") {
        Some(isa) if isa == "portable" => Level::Portable,
        Some(isa) if isa == "avx2" => Level::Avx2,
        _ => Level::Avx512,
    };
    let has_avx2 = is_x86_feature_detected!("avx2")
        && is_x86_feature_detected!("bmi1")
        && is_x86_feature_detected!("bmi2")
        && is_x86_feature_detected!("lzcnt")
        && is_x86_feature_detected!("popcnt");
    let has_avx512 = is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("avx512bw")
        && is_x86_feature_detected!("avx512dq")
        && is_x86_feature_detected!("avx512vl")
        && is_x86_feature_detected!("avx512vbmi2");
    match (has_avx2, has_avx512) {
        (true, true) if most >= Level::Avx512 => Level::Avx512,
        (true, _) if most >= Level::Avx2 => Level::Avx2,
        _ => Level::Portable,
    }
});

/// Runs `work`, compiled for AVX2 where this processor has it.
///
/// Give it all of a loop: the choice costs about a nanosecond, and nothing is inlined across it.
#[inline]
pub(crate) fn fastest<R>(work: impl FnOnce() -> R) -> R {
    if *LEVEL >= Level::Avx2 {
        // SAFETY: the processor has all that is enabled there.
        return unsafe { with_avx2(work) };
    }
    work()
}

#[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,popcnt")]
fn with_avx2<R>(work: impl FnOnce() -> R) -> R {
    work()
}

/// As [`collect::of_part`], which says what it does.
pub(crate) fn collect<T: Element>(
    pass: &mut impl Pass<T>,
    part: Range<usize>,
    low: u64,
    start: u32,
    found: (&mut Vec<u32>, &mut Vec<T>),
) {
    match *LEVEL {
        // SAFETY: the processor has all that is enabled there.
        Level::Avx512 => unsafe { avx512::collect(pass, part, low, start, found) },
        // SAFETY: as before.
        Level::Avx2 if avx2::compresses::<T>() => unsafe { avx2::collect(pass, part, low, start, found) },
        _ => fastest(
            #[inline(always)]
            || collect::of_part(pass, part, low, start, found),
        ),
    }
}

/// As [`collect::between`], which says what it does.
pub(crate) fn between<T: Element>(
    values: &[T],
    low: u64,
    above: u64,
    inside: &mut [T],
) -> Option<(usize, usize)> {
    match *LEVEL {
        // SAFETY: the processor has all that is enabled there.
        Level::Avx512 => unsafe { avx512::between(values, low, above, inside) },
        // SAFETY: as before.
        Level::Avx2 if avx2::compresses::<T>() => unsafe { avx2::between(values, low, above, inside) },
        _ => fastest(
            #[inline(always)]
            || collect::between(values, low, above, inside),
        ),
    }
}

/// As [`collect::keep_reaching`], which says what it does.
pub(crate) fn keep_reaching<T: Element>(low: u64, indices: &mut [u32], values: &mut [T]) -> usize {
    match *LEVEL {
        // SAFETY: the processor has all that is enabled there.
        Level::Avx512 => unsafe { avx512::keep_reaching(low, indices, values) },
        // SAFETY: as before.
        Level::Avx2 if avx2::compresses::<T>() => unsafe { avx2::keep_reaching(low, indices, values) },
        _ => fastest(
            #[inline(always)]
            || collect::keep_reaching(low, indices, values),
        ),
    }
}

/// As [`collect::split_reaching`], which says what it does.
pub(crate) fn split_reaching<T: Element>(
    low: u64,
    indices: &mut [u32],
    values: &mut [T],
    others: (&mut [u32], &mut [T]),
) -> usize {
    match *LEVEL {
        // SAFETY: the processor has all that is enabled there.
        Level::Avx512 => unsafe { avx512::split_reaching(low, indices, values, others) },
        // SAFETY: as before.
        Level::Avx2 if avx2::compresses::<T>() => unsafe {
            avx2::split_reaching(low, indices, values, others)
        },
        _ => fastest(
            #[inline(always)]
            || collect::split_reaching(low, indices, values, others),
        ),
    }
}

/// Hints that this value's cache line will be read soon.
#[inline(always)]
pub(crate) fn prefetch<T>(value: &T) {
    // SAFETY: a hint, which reads nothing as far as the program can tell.
    unsafe { _mm_prefetch::<_MM_HINT_T0>(std::ptr::from_ref(value).cast()) }
}
