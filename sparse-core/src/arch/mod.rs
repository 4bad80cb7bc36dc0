//! The same code, compiled once more for newer processors and chosen at run time.
//!
//! Whatever is inlined into [`fastest`] is compiled for each of the instruction sets here. It is the same safe code, and
//! the compiler neither fuses nor reorders its sums: the bits are the same everywhere. Where an inner function is not
//! inlined, it is compiled for every machine only; so those that matter say `#[inline(always)]`.
//!
//! What selections consist of is written for x86 besides: the compiler makes no use of instructions that compress.
//!
//! The other things that need unsafe code are here too: [`in_turn`], the same for every machine, where checking each access
//! would cost more than what is done with it, and [`Uncached`], memory that is written past the caches.
//!
//! With `SPARSE_CORE_ISA=portable` in the environment, what is compiled for every machine is used on this one too; with `avx2`
//! nothing newer than that.

mod in_turn;
mod uncached;
#[cfg(target_arch = "x86_64")]
mod x86_64;

pub(crate) use in_turn::{Entries, EntriesMut, TWINS, in_turn};
pub(crate) use uncached::{UNCACHED, Uncached};

#[cfg(target_arch = "x86_64")]
pub(crate) use x86_64::{between, collect, fastest, keep_reaching, prefetch, split_reaching};

#[cfg(not(target_arch = "x86_64"))]
pub(crate) use crate::collect::{between, keep_reaching, of_part as collect, split_reaching};

/// Runs `work`: there is no newer instruction set to choose.
#[cfg(not(target_arch = "x86_64"))]
#[inline(always)]
pub(crate) fn fastest<R>(work: impl FnOnce() -> R) -> R {
    work()
}

/// Does nothing: there is no such hint to give.
#[cfg(not(target_arch = "x86_64"))]
#[inline(always)]
pub(crate) fn prefetch<T>(_value: &T) {}
