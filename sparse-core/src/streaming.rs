use std::ops::Range;

#[cfg(feature = "rayon")]
use rayon::prelude::*;

use crate::collect::{BLOCK, Fetched, Pass, collect_by};
#[cfg(feature = "rayon")]
use crate::parallel;
use crate::select::{self, top_k_into};
use crate::{Element, Error, SparseVec};

/// [`top_k`](crate::top_k) of a vector that changes from step to step, found while somebody else passes over it.
///
/// Whoever computes the vector shows each part while it is still in the cache; if what separated the largest of the last
/// vector is near what separates those of this one, nothing is read again. If not, or the first time, [`top_k`](crate::top_k) finds
/// them: the result is the same, bit for bit.
///
/// Keeps room for the entries that it takes for candidates, a few for each of the k.
///
/// ```
/// use sparse_core::{TopK, top_k};
///
/// let (mut residual, mut selection) = (vec![0.0_f32; 10_000], TopK::new());
/// for step in 1..4 {
///     selection.start(residual.len(), 10);
///     selection.compute(&mut residual, |at, block| {
///         for (i, value) in block.iter_mut().enumerate() {
///             *value += ((at + i) * step % 997) as f32; // the gradient
///         }
///     });
///     let largest = selection.finish(&residual)?;
///     assert_eq!(largest, top_k(&residual, 10)?);
/// }
/// # Ok::<(), sparse_core::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct TopK<T> {
    k: usize,
    len: usize,
    /// The magnitude from which on values are candidates, by what the last vector was like.
    low: Option<u64>,
    /// How many of the last vector's values were to be as large: more than k where vectors change so that fewer are.
    aim: usize,
    /// How much of this vector has been seen, and the candidates in it.
    seen: usize,
    indices: Vec<u32>,
    values: Vec<T>,
}

impl<T: Element> Default for TopK<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T: Element> TopK<T> {
    /// One that has seen no vector yet.
    #[must_use]
    pub fn new() -> Self {
        Self { k: 0, len: 0, low: None, aim: 0, seen: 0, indices: Vec::new(), values: Vec::new() }
    }

    /// Begins with a vector of so many values, of which the `k` largest are wanted.
    pub fn start(&mut self, len: usize, k: usize) {
        if (len, k) != (self.len, self.k) {
            // What separated other numbers of entries says little about this one.
            (self.low, self.aim) = (None, k);
        }
        (self.len, self.k, self.seen) = (len, k, 0);
        self.indices.clear();
        self.values.clear();
    }

    /// The next values of the vector.
    pub fn see(&mut self, part: &[T]) {
        self.see_by(&mut Fetched(part));
    }

    /// The next values of the vector, which `compute` writes: it is given one block of `part` after the other, of at most 64
    /// values, each with the place in `part` where it begins. Most have 64 that begin with a cache line. Costs little beside
    /// that, as each block is looked at before it leaves the first-level cache. Compiled for the instructions of this processor
    /// where it is inlined.
    ///
    /// ```
    /// use sparse_core::TopK;
    ///
    /// let (gradient, mut residual) = (vec![0.5_f32; 1000], vec![1.0_f32; 1000]);
    /// let mut selection = TopK::new();
    /// selection.start(residual.len(), 1);
    /// selection.compute(&mut residual, |at, block| {
    ///     block.iter_mut().zip(&gradient[at..]).for_each(|(v, g)| *v += g);
    /// });
    /// assert_eq!(selection.finish(&residual)?.iter().collect::<Vec<_>>(), [(0, 1.5)]);
    /// # Ok::<(), sparse_core::Error>(())
    /// ```
    pub fn compute(&mut self, part: &mut [T], compute: impl FnMut(usize, &mut [T])) {
        let mut pass = Computed { values: part, compute };
        let seen = self.see_by(&mut pass);
        // Where there are too many candidates already, and at the first step, nothing is looked at.
        let len = pass.values.len();
        (seen..len).step_by(BLOCK).for_each(|at| pass.reach(at..len.min(at + BLOCK)));
    }

    /// Says how much of it was passed over: all, or as much as is of use. Too many candidates are no help: the vector is read
    /// again.
    fn see_by(&mut self, pass: &mut impl Pass<T>) -> usize {
        let start = self.seen;
        self.seen += pass.values().len();
        let Some(low) = self.low else { return 0 };
        collect_by(pass, low, start as u32, most(self.k), (&mut self.indices, &mut self.values))
    }

    /// The parts that come next, each looked at by the thread of the rayon pool that made it. Parts of some ten thousand
    /// values serve best. The result is the same, bit for bit, however many threads there are.
    ///
    /// ```
    /// use rayon::prelude::*;
    /// use sparse_core::{TopK, top_k};
    ///
    /// let (gradient, mut residual) = (vec![0.5_f32; 100_000], vec![0.0_f32; 100_000]);
    /// let mut selection = TopK::new();
    /// for _ in 0..2 {
    ///     selection.start(residual.len(), 100);
    ///     let parts = residual.par_chunks_mut(1 << 14).zip(gradient.par_chunks(1 << 14));
    ///     selection.see_parallel(parts.map(|(residual, gradient)| {
    ///         residual.iter_mut().zip(gradient).for_each(|(v, g)| *v += g);
    ///         &*residual
    ///     }));
    ///     assert_eq!(selection.finish(&residual)?, top_k(&residual, 100)?);
    /// }
    /// # Ok::<(), sparse_core::Error>(())
    /// ```
    #[cfg(feature = "rayon")]
    pub fn see_parallel<'a>(&mut self, parts: impl IndexedParallelIterator<Item = &'a [T]>) {
        let most = most(self.k);
        // Without a threshold nothing is taken, yet all parts are to be made.
        for found in parallel::find(parts, self.low.unwrap_or(u64::MAX), self.low.map_or(0, |_| most)) {
            let (start, taken) = (self.seen as u32, found.indices.len().min(most - self.indices.len()));
            self.indices.extend(found.indices[..taken].iter().map(|index| start.wrapping_add(*index)));
            self.values.extend_from_slice(&found.values[..taken]);
            self.seen += found.len;
        }
    }

    /// The k largest of the vector, which is `all`: what was seen, part after part.
    ///
    /// # Errors
    /// As [`top_k`](crate::top_k).
    ///
    /// # Panics
    /// If `all` has another length than was announced or seen. If other values were seen, the result means nothing.
    #[track_caller]
    pub fn finish(&mut self, all: &[T]) -> Result<SparseVec<T>, Error> {
        let mut largest = SparseVec::default();
        self.finish_into(all, &mut largest)?;
        Ok(largest)
    }

    /// [`finish`](Self::finish) to the memory of a vector that is no longer needed: the two exchange memory, and
    /// nothing is allocated once both have enough.
    ///
    /// # Errors
    /// As [`top_k`](crate::top_k); `largest` then has no entries.
    ///
    /// # Panics
    /// As [`finish`](Self::finish).
    #[track_caller]
    pub fn finish_into(&mut self, all: &[T], largest: &mut SparseVec<T>) -> Result<(), Error> {
        assert!(all.len() == self.len && self.seen == self.len, "another vector than was seen");
        let (k, found) = (self.k, self.values.len());
        largest.restart(all.len() as u64)?;
        if self.low.is_some() && (k..most(k)).contains(&found) {
            largest.refill(all.len() as u64, |indices, values| {
                std::mem::swap(indices, &mut self.indices);
                std::mem::swap(values, &mut self.values);
                Ok(())
            })?;
            select::keep_largest(largest, k);
        } else {
            top_k_into(all, k, largest)?;
        }
        if self.low.is_some() && !(k + k / 20..k + k / 2).contains(&found) {
            // So that the next time a fifth more than k are found, if vectors change as they just did.
            let aim = self.aim as f64 * 1.2 * k as f64 / found.max(1) as f64;
            self.aim = (aim as usize).clamp(k, 2 * k);
        }
        self.low = select::is_worth_a_sample(all, self.aim).then(|| select::low_by_sample(all, self.aim));
        Ok(())
    }
}

/// Values that are computed when they are reached.
struct Computed<'a, T, F> {
    values: &'a mut [T],
    compute: F,
}

impl<T, F: FnMut(usize, &mut [T])> Pass<T> for Computed<'_, T, F> {
    #[inline(always)]
    fn reach(&mut self, block: Range<usize>) {
        (self.compute)(block.start, &mut self.values[block]);
    }

    #[inline(always)]
    fn values(&self) -> &[T] {
        self.values
    }
}

/// So many candidates are too many.
fn most(k: usize) -> usize {
    k.saturating_mul(4)
}
