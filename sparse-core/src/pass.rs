//! Ways in which values come to be looked at.

use std::ops::Range;

use crate::collect::{BLOCK, CACHE_LINE, PART, before_line};
use crate::{Element, arch};

/// Values that are looked at in order, a block at a time.
pub(crate) trait Pass<T> {
    /// This block is looked at next: it is the time to fetch some that follow from memory, or to compute it.
    fn reach(&mut self, block: Range<usize>);

    /// How many values there are, and how many of them before the first that begins a cache line.
    fn lengths(&self) -> (usize, usize);

    /// Some of those that were reached, all of one part, which is the last.
    fn values(&self, range: Range<usize>) -> &[T];

    /// The same, if those that are found are to be set to zero.
    fn taken(&mut self, range: Range<usize>) -> Option<&mut [T]>;
}

/// Values in memory, fetched ahead. A branch guessed wrong, when collecting at every other block where many have entries,
/// would hold up reading.
pub(crate) struct Fetched<'a, T>(pub(crate) &'a [T]);

/// How many values are on their way from memory at a time.
const AHEAD: usize = 16 * BLOCK;

impl<T> Pass<T> for Fetched<'_, T> {
    #[inline(always)]
    fn reach(&mut self, block: Range<usize>) {
        let ahead = block.start + AHEAD..self.0.len().min(block.end + AHEAD);
        let block = self.0.get(ahead).unwrap_or_default();
        block.iter().step_by(CACHE_LINE / size_of::<T>()).for_each(arch::prefetch);
    }

    #[inline(always)]
    fn lengths(&self) -> (usize, usize) {
        (self.0.len(), before_line(self.0))
    }

    #[inline(always)]
    fn values(&self, range: Range<usize>) -> &[T] {
        &self.0[range]
    }

    #[inline(always)]
    fn taken(&mut self, _range: Range<usize>) -> Option<&mut [T]> {
        None
    }
}

/// Values that are computed in their place when they are reached.
pub(crate) struct Computed<'a, T, F> {
    pub(crate) values: &'a mut [T],
    pub(crate) compute: F,
}

impl<T, F: FnMut(usize, &mut [T])> Computed<'_, T, F> {
    /// Computes what was not reached.
    pub(crate) fn finish(mut self, reached: usize) {
        let len = self.values.len();
        (reached..len).step_by(BLOCK).for_each(|at| self.reach(at..len.min(at + BLOCK)));
    }
}

impl<T, F: FnMut(usize, &mut [T])> Pass<T> for Computed<'_, T, F> {
    #[inline(always)]
    fn reach(&mut self, block: Range<usize>) {
        (self.compute)(block.start, &mut self.values[block]);
    }

    #[inline(always)]
    fn lengths(&self) -> (usize, usize) {
        (self.values.len(), before_line(self.values))
    }

    #[inline(always)]
    fn values(&self, range: Range<usize>) -> &[T] {
        &self.values[range]
    }

    #[inline(always)]
    fn taken(&mut self, range: Range<usize>) -> Option<&mut [T]> {
        Some(&mut self.values[range])
    }
}

/// Values that are computed beside their place when they are reached, and written to it a part later, past the caches: memory
/// is not read to be overwritten. Others, which are not looked at, may be computed and written with them.
pub(crate) struct Written<'a, T, F> {
    to: arch::Uncached<'a, T>,
    others: arch::Uncached<'a, T>,
    compute: F,
    /// What was computed last, in the cache lines of a ring.
    recent: Recent<T>,
    others_block: Block<T>,
    before_line: usize,
}

/// The last part that was looked through, and the one that is.
#[repr(align(64))]
struct Recent<T>([T; 2 * PART]);
const _: () = assert!(align_of::<Recent<u8>>() == CACHE_LINE);

/// A block of others.
#[repr(align(64))]
struct Block<T>([T; BLOCK]);

impl<'a, T: Element, F: FnMut(usize, &mut [T], &mut [T])> Written<'a, T, F> {
    /// `others` are as many, or none.
    pub(crate) fn new(to: &'a mut [T], others: &'a mut [T], compute: F) -> Self {
        let (before_line, recent) = (before_line(to), Recent([T::ZERO; 2 * PART]));
        let (to, others) = (arch::Uncached::new(to), arch::Uncached::new(others));
        Self { to, others, compute, recent, others_block: Block([T::ZERO; BLOCK]), before_line }
    }

    /// Where in the ring these values are: together, if they are of one part.
    #[inline(always)]
    fn recent(&self, range: Range<usize>) -> Range<usize> {
        let start = range.start.wrapping_sub(self.before_line) % (2 * PART);
        start..start + range.len()
    }

    /// Writes the values up to there to their place.
    #[inline(always)]
    fn write(&mut self, end: usize) {
        let recent = self.recent(self.to.written()..end);
        self.to.push(&self.recent.0[recent]);
    }

    /// Writes what was reached, and computes the others.
    pub(crate) fn finish(mut self, reached: usize) {
        while self.to.written() < reached {
            // To the end of a part: where the ring ends, one does.
            let room = PART - self.recent(self.to.written()..reached).start % PART;
            self.write(reached.min(self.to.written() + room));
        }
        let mut others = self.others.rest().chunks_mut(BLOCK);
        for (at, block) in (reached..).step_by(BLOCK).zip(self.to.rest().chunks_mut(BLOCK)) {
            (self.compute)(at, block, others.next().unwrap_or_default());
        }
    }
}

impl<T: Element, F: FnMut(usize, &mut [T], &mut [T])> Pass<T> for Written<'_, T, F> {
    #[inline(always)]
    fn reach(&mut self, block: Range<usize>) {
        // In turn with reading what it is computed from, which is as fast as memory; one part after the other is not.
        let end = block.end.saturating_sub(PART);
        if end > self.to.written() {
            self.write(end);
        }
        let recent = self.recent(block.clone());
        let recent = &mut self.recent.0[recent];
        if self.others.len() == 0 {
            (self.compute)(block.start, recent, &mut []);
        } else {
            let others = &mut self.others_block.0[..block.len()];
            (self.compute)(block.start, recent, others);
            self.others.push(others);
        }
    }

    #[inline(always)]
    fn lengths(&self) -> (usize, usize) {
        (self.to.len(), self.before_line)
    }

    #[inline(always)]
    fn values(&self, range: Range<usize>) -> &[T] {
        &self.recent.0[self.recent(range)]
    }

    #[inline(always)]
    fn taken(&mut self, range: Range<usize>) -> Option<&mut [T]> {
        let recent = self.recent(range);
        Some(&mut self.recent.0[recent])
    }
}

#[cfg(test)]
mod tests {
    use half::bf16;
    use proptest::prelude::*;

    use super::*;
    use crate::collect::collect_by;

    /// What is found, how much is reached, and what is in the values' place in the end.
    type Outcome<T> = (Vec<u32>, Vec<T>, usize, Vec<T>);
    type Compute<'a, T> = &'a mut dyn FnMut(usize, &mut [T]);
    type Found<'a, T> = (&'a mut Vec<u32>, &'a mut Vec<T>);

    /// By `pass`, to memory that begins so many values before a cache line.
    fn outcome<T: Element>(
        source: &[T],
        skipped: usize,
        pass: impl FnOnce(&mut [T], Compute<'_, T>, Found<'_, T>) -> usize,
    ) -> Outcome<T> {
        let mut memory = vec![T::ZERO; source.len() + 2 * CACHE_LINE];
        let start = before_line(&memory) + CACHE_LINE - skipped;
        let to = &mut memory[start..][..source.len()];
        let (mut indices, mut values, mut next) = (Vec::new(), Vec::new(), 0);
        let mut compute = |at: usize, block: &mut [T]| {
            assert_eq!(at, next, "the blocks follow each other");
            next += block.len();
            block.copy_from_slice(&source[at..next]);
        };
        let reached = pass(to, &mut compute, (&mut indices, &mut values));
        assert_eq!(next, source.len());
        (indices, values, reached, memory[start..][..source.len()].to_vec())
    }

    fn is_computed_where_it_is_written<T: Element>(
        source: &[T],
        low: T,
        (skipped, enough, with_others): (usize, usize, bool),
    ) {
        let low = low.magnitude().max(1);
        let computed = outcome(source, skipped, |values, compute, found| {
            let mut pass = Computed { values, compute };
            let reached = collect_by(&mut pass, low, 7, enough, found);
            pass.finish(reached);
            reached
        });
        let written = outcome(source, skipped, |values, compute, found| {
            let mut others = vec![T::ZERO; values.len() * usize::from(with_others)];
            let mut pass =
                Written::new(values, &mut others, |at: usize, block: &mut [T], others: &mut [T]| {
                    compute(at, block);
                    others.iter_mut().zip(block).for_each(|(other, value)| *other = *value);
                });
            let reached = collect_by(&mut pass, low, 7, enough, found);
            pass.finish(reached);
            assert!(others.is_empty() || others == source);
            reached
        });
        assert!(computed == written);
    }

    proptest! {
        #[test]
        fn what_is_written_past_the_caches_is_what_is_computed_in_place(
            source in prop::collection::vec(-9..9_i32, 0..9000),
            low in 0..9_i32, skipped in 0..CACHE_LINE, enough in prop_oneof![0..5000_usize, Just(usize::MAX)],
            with_others in any::<bool>(),
        ) {
            fn as_type<T: Element>(source: &[i32]) -> Vec<T> {
                source.iter().map(|&value| T::from_f32(value as f32)).collect()
            }
            let how = (skipped, enough, with_others);
            is_computed_where_it_is_written(&source, low, how);
            is_computed_where_it_is_written(&as_type::<f32>(&source), low as f32, how);
            is_computed_where_it_is_written(&as_type::<f64>(&source), low.into(), how);
            is_computed_where_it_is_written(&as_type::<bf16>(&source), bf16::from_f32(low as f32), how);
        }
    }
}
