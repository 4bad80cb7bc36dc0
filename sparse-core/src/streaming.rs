#[cfg(feature = "rayon")]
use rayon::prelude::*;

use crate::arch::UNCACHED;
use crate::collect::{collect, collect_by};
use crate::dense::{clear, put};
#[cfg(feature = "rayon")]
use crate::parallel;
use crate::pass::{Computed, Pass, Written};
use crate::select::{self, top_k_into};
use crate::{Element, Error, SparseVec};

/// [`top_k`](crate::top_k) of a vector that changes from step to step, found while somebody else passes over it.
///
/// Whoever computes the vector shows each part while it is still in the cache; if what separated the largest of the last
/// vector is near what separates those of this one, nothing is read again. If not, or the first time, [`top_k`](crate::top_k) finds
/// them: the result is the same, bit for bit.
///
/// A vector that is looked at ([`see`](Self::see), [`finish`](Self::finish)) stays as it is; from one that is computed here
/// ([`compute`](Self::compute), [`take`](Self::take)) the largest are taken out, as error feedback does with what it sends.
///
/// Keeps room for the entries that it takes for candidates, a few for each of the k.
///
/// ```
/// use sparse_core::TopK;
///
/// let (mut residual, mut selection) = (vec![0.0_f32; 10_000], TopK::new());
/// for step in 1..4 {
///     selection.start(residual.len(), 10);
///     selection.compute(&mut residual, |at, block| {
///         for (i, value) in block.iter_mut().enumerate() {
///             *value += ((at + i) * step % 997) as f32; // the gradient
///         }
///     });
///     let sent = selection.take(&mut residual)?;
///     assert_eq!(sent.nnz(), 10);
///     assert!(sent.indices().iter().all(|&at| residual[at as usize] == 0.0));
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
    /// How much of this vector has been seen, of how much of it candidates were set to zero, and the candidates.
    seen: usize,
    taken: usize,
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
        let (indices, values) = (Vec::new(), Vec::new());
        Self { k: 0, len: 0, low: None, aim: 0, seen: 0, taken: 0, indices, values }
    }

    /// Begins with a vector of so many values, of which the `k` largest are wanted.
    pub fn start(&mut self, len: usize, k: usize) {
        if len != self.len || k > self.k || k < self.k / 2 {
            // What separated fewer entries, or many more, says little about these.
            (self.low, self.aim) = (None, k);
        } else if k < self.k {
            let aim = self.aim as f64 * k as f64 / self.k as f64;
            self.aim = (aim as usize).clamp(k, 2 * k);
        }
        (self.len, self.k, self.seen, self.taken) = (len, k, 0, 0);
        self.indices.clear();
        self.values.clear();
    }

    /// The next values of the vector.
    pub fn see(&mut self, part: &[T]) {
        let start = self.seen as u32;
        self.seen += part.len();
        if let Some(low) = self.low {
            // None is forgotten that was set to zero.
            let enough = most(self.k).max(self.indices.len());
            collect(part, low, start, enough, (&mut self.indices, &mut self.values));
        }
    }

    /// The next values of the vector, which `compute` writes: it is given one block of `part` after the other, of at most 64
    /// values, each with the place in `part` where it begins. Most have 64 that begin with a cache line. Costs little beside
    /// that, as each block is looked at before it leaves the first-level cache. Compiled for the instructions of this processor
    /// where it is inlined.
    ///
    /// Values that may be among the largest are set to zero then and there: the vector is whole only when
    /// [`take`](Self::take) has put back those that are not.
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
    /// assert_eq!(selection.take(&mut residual)?.iter().collect::<Vec<_>>(), [(0, 1.5)]);
    /// assert_eq!(residual[..3], [0.0, 1.5, 1.5]);
    /// # Ok::<(), sparse_core::Error>(())
    /// ```
    pub fn compute(&mut self, part: &mut [T], compute: impl FnMut(usize, &mut [T])) {
        let mut pass = Computed { values: part, compute };
        let reached = self.take_by(&mut pass);
        pass.finish(reached);
    }

    /// The next values of the vector, as [`compute`](Self::compute), but the blocks do not have what is in `part`: `compute` is to
    /// write all of each, from what lies elsewhere. A vector too large for caches is written past them, without reading first
    /// what is overwritten.
    ///
    /// ```
    /// use sparse_core::TopK;
    ///
    /// let (gradient, residual) = (vec![0.5_f32; 1000], vec![1.0_f32; 1000]);
    /// let (mut next, mut selection) = (vec![0.0; 1000], TopK::new());
    /// selection.start(next.len(), 1);
    /// selection.write(&mut next, |at, block| {
    ///     let sums = residual[at..].iter().zip(&gradient[at..]).map(|(v, g)| v + g);
    ///     block.iter_mut().zip(sums).for_each(|(next, sum)| *next = sum);
    /// });
    /// assert_eq!(selection.take(&mut next)?.iter().collect::<Vec<_>>(), [(0, 1.5)]);
    /// # Ok::<(), sparse_core::Error>(())
    /// ```
    pub fn write(&mut self, part: &mut [T], mut compute: impl FnMut(usize, &mut [T])) {
        self.write_with(
            part,
            &mut [],
            #[inline(always)]
            |at, block, _| compute(at, block),
        );
    }

    /// [`write`](Self::write), and with each block that of `others` which lies there: values that are not selected from, such as
    /// velocities. There are as many of them, or none.
    ///
    /// # Panics
    /// If there are not.
    #[track_caller]
    pub fn write_with(
        &mut self,
        part: &mut [T],
        others: &mut [T],
        mut compute: impl FnMut(usize, &mut [T], &mut [T]),
    ) {
        assert!(others.is_empty() || others.len() == part.len(), "another number of others");
        if !UNCACHED || self.len * size_of::<T>() <= CACHED {
            return self.compute(
                part,
                #[inline(always)]
                |at, block| {
                    let others = others.get_mut(at..at + block.len()).unwrap_or_default();
                    compute(at, block, others);
                },
            );
        }
        let mut pass = Written::new(part, others, compute);
        let reached = self.take_by(&mut pass);
        pass.finish(reached);
    }

    /// Says how much was reached. Where there are too many candidates already, and at the first step, nothing is looked at: the
    /// vector is read again.
    fn take_by(&mut self, pass: &mut impl Pass<T>) -> usize {
        let (start, (len, _)) = (self.seen as u32, pass.lengths());
        self.seen += len;
        self.taken += len;
        let found = (&mut self.indices, &mut self.values);
        self.low.map_or(0, |low| collect_by(pass, low, start, most(self.k), found))
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
        // Without a threshold nothing is found, yet all parts are to be made.
        for found in parallel::find(parts, self.low.unwrap_or(u64::MAX), self.low.map_or(0, |_| most)) {
            let more = found.indices.len().min(most.saturating_sub(self.indices.len()));
            let start = self.seen as u32;
            self.indices.extend(found.indices[..more].iter().map(|index| start.wrapping_add(*index)));
            self.values.extend_from_slice(&found.values[..more]);
            self.seen += found.len;
        }
    }

    /// The k largest of the vector, which is `all`: what was seen, part after part.
    ///
    /// # Errors
    /// As [`top_k`](crate::top_k).
    ///
    /// # Panics
    /// If `all` has another length than was announced or seen, or parts of it were computed here, so that it is to be
    /// taken from. If other values were seen, the result means nothing.
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
        assert!(self.taken == 0, "values were taken out of this vector: take what is to stay out");
        let found = self.values.len();
        if self.candidates_into(all, largest)? {
            select::keep_largest(largest, self.k);
        } else {
            top_k_into(all, self.k, largest)?;
        }
        self.aim(found);
        self.low = select::low_by_sample(all, self.k, self.aim);
        Ok(())
    }

    /// The k largest of the vector, which is `all`: what was computed here or seen, part after part. Now it has zeros in their
    /// places.
    ///
    /// # Errors
    /// As [`top_k`](crate::top_k).
    ///
    /// # Panics
    /// If `all` has another length than was announced or seen. If other values were seen, the result means nothing.
    #[track_caller]
    pub fn take(&mut self, all: &mut [T]) -> Result<SparseVec<T>, Error> {
        let mut largest = SparseVec::default();
        self.take_into(all, &mut largest)?;
        Ok(largest)
    }

    /// [`take`](Self::take) to the memory of a vector that is no longer needed, as [`finish_into`](Self::finish_into).
    ///
    /// # Errors
    /// As [`top_k`](crate::top_k); `largest` then has no entries.
    ///
    /// # Panics
    /// As [`take`](Self::take).
    #[track_caller]
    pub fn take_into(&mut self, all: &mut [T], largest: &mut SparseVec<T>) -> Result<(), Error> {
        let found = self.values.len();
        if self.candidates_into(all, largest)? {
            largest.split_off_others(self.k, &mut self.indices, &mut self.values);
            self.put_back(all);
            if self.taken < all.len() {
                clear(all, largest)?;
            }
        } else {
            self.put_back(all);
            top_k_into(all, self.k, largest)?;
            clear(all, largest)?;
        }
        self.aim(found);
        // The k largest are not there any more.
        self.low = select::low_by_sample(all, self.k, self.aim - self.k);
        Ok(())
    }

    /// Moves the candidates to `largest` if the k largest are among them, and says so. If not, that has no entries.
    #[track_caller]
    fn candidates_into(&mut self, all: &[T], largest: &mut SparseVec<T>) -> Result<bool, Error> {
        assert!(all.len() == self.len && self.seen == self.len, "another vector than was seen");
        largest.restart(all.len() as u64)?;
        let are_enough = self.low.is_some() && (self.k..most(self.k)).contains(&self.values.len());
        if are_enough {
            largest.refill(all.len() as u64, |indices, values| {
                std::mem::swap(indices, &mut self.indices);
                std::mem::swap(values, &mut self.values);
                Ok(())
            })?;
        }
        Ok(are_enough)
    }

    /// Puts what is left of the candidates to their places.
    fn put_back(&mut self, all: &mut [T]) {
        let (indices, values) = (std::mem::take(&mut self.indices), std::mem::take(&mut self.values));
        let candidates = SparseVec::from_sorted(all.len() as u64, indices, values);
        put(all, &candidates);
        (self.indices, self.values) = candidates.into_parts();
    }

    /// So that the next time a fifth more than k are found, if vectors change as they just did.
    fn aim(&mut self, found: usize) {
        if self.low.is_some() && !(self.k + self.k / 20..self.k + self.k / 2).contains(&found) {
            let aim = self.aim as f64 * 1.2 * self.k as f64 / found.max(1) as f64;
            self.aim = (aim as usize).clamp(self.k, 2 * self.k);
        }
    }
}

/// So many candidates are too many.
fn most(k: usize) -> usize {
    k.saturating_mul(4)
}

/// Bytes of a vector that may be in a cache from one step to the next, where writing past it would only cost.
const CACHED: usize = 8 << 20;
