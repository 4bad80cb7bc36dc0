#![allow(
    unsafe_code,
    reason = "that the processor has an instruction set is beyond what the compiler can see"
)]

use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
use std::sync::LazyLock;

/// Runs `work`, compiled for the newest of the instruction sets that this processor has.
///
/// Give it all of a loop: the choice costs about a nanosecond, and nothing is inlined across it.
#[inline]
pub(crate) fn fastest<R>(work: impl FnOnce() -> R) -> R {
    if *HAS_V3 {
        // SAFETY: the processor has all that is enabled there.
        return unsafe { v3(work) };
    }
    work()
}

/// Whether the processor is of the level x86-64-v3: AVX2 and its contemporaries.
static HAS_V3: LazyLock<bool> = LazyLock::new(|| {
    std::env::var_os("SPARSE_CORE_ISA").is_none_or(|isa| isa != "portable")
        && is_x86_feature_detected!("avx2")
        && is_x86_feature_detected!("bmi1")
        && is_x86_feature_detected!("bmi2")
        && is_x86_feature_detected!("lzcnt")
        && is_x86_feature_detected!("popcnt")
});

#[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,popcnt")]
fn v3<R>(work: impl FnOnce() -> R) -> R {
    work()
}

/// Hints that this value's cache line will be read soon.
#[inline(always)]
pub(crate) fn prefetch<T>(value: &T) {
    // SAFETY: a hint, which reads nothing as far as the program can tell.
    unsafe { _mm_prefetch::<_MM_HINT_T0>(std::ptr::from_ref(value).cast()) }
}
