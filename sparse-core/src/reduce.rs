use crate::error::check_same_dim;
use crate::{Element, Error, Memory, SparseVec, SparseView, arch};

/// The sum of many vectors: at each index in the order of the slice, in the accumulator type, rounded
/// once.
///
/// # Errors
/// [`Error::NothingToSum`] for an empty slice, [`Error::DimensionMismatch`], [`Error::Overflow`].
pub fn reduce<T: Element>(parts: &[SparseVec<T>]) -> Result<SparseVec<T>, Error> {
    reduce_views(&parts.iter().map(SparseVec::view).collect::<Vec<_>>())
}

/// [`reduce`] of borrowed vectors.
///
/// # Errors
/// As [`reduce`].
pub fn reduce_views<T: Element>(parts: &[SparseView<'_, T>]) -> Result<SparseVec<T>, Error> {
    reduce_views_in(parts, &Memory::new())
}

/// [`reduce_views`], to memory that is used again.
///
/// # Errors
/// As [`reduce`].
pub fn reduce_views_in<T: Element>(
    parts: &[SparseView<'_, T>],
    memory: &Memory,
) -> Result<SparseVec<T>, Error> {
    let (first, rest) = parts.split_first().ok_or(Error::NothingToSum)?;
    rest.iter().try_for_each(|part| check_same_dim(first.dim(), part.dim()))?;
    let total: usize = parts.iter().map(SparseView::nnz).sum();
    let most = total.min(usize::try_from(first.dim()).unwrap_or(total));
    let mut sum = SparseVec::from_sorted(first.dim(), memory.empty(most), memory.empty(most));
    arch::fastest(
        #[inline(always)]
        || sum_windows(parts, &mut sum),
    )?;
    Ok(sum)
}

/// Appends the sum to `sum`.
#[inline(always)]
fn sum_windows<T: Element>(parts: &[SparseView<'_, T>], sum: &mut SparseVec<T>) -> Result<(), Error> {
    let mut window = Window::<T>::new();
    let rest = parts.iter().map(|part| (part.shifted_indices(), part.values()));
    let mut rest: Vec<_> = rest.map(|((indices, base), values)| (indices, base, values)).collect();
    let mut taken = vec![0; rest.len()];
    // Windows that nobody has entries in are never visited.
    while let Some(next) = rest.iter().filter_map(|(indices, base, _)| Some(indices.first()? - base)).min() {
        let start = next - next % WINDOW as u32;
        for ((indices, base, values), taken) in rest.iter().zip(&mut taken) {
            *taken = window.add(start.wrapping_add(*base), indices, values);
        }
        let (mut room, mut overflow) = (sum.grow(window.number()), None);
        for ((indices, base, values), &taken) in rest.iter_mut().zip(&taken) {
            let first = window.move_out(start, *base, &indices[..taken], &mut room);
            overflow = [overflow, first].into_iter().flatten().min();
            (*indices, *values) = (&indices[taken..], &values[taken..]);
        }
        if let Some(index) = overflow {
            return Err(Error::Overflow { index: u64::from(index), dtype: T::DTYPE });
        }
        window.clear();
    }
    Ok(())
}

/// So many neighbouring indices are summed at a time: small enough for the first-level cache.
const WINDOW: usize = 1 << 12;
const WORDS: usize = WINDOW / 64;

/// Dense sums of a window of the index range, and a bit for each that has been touched.
struct Window<T: Element> {
    sums: Vec<T::Acc>,
    touched: [u64; WORDS],
    /// A bit for each word that is not zero: all that has to be looked at where entries are few.
    words: u64,
    /// How many sums before the word were touched.
    before: [u32; WORDS],
}

impl<T: Element> Window<T> {
    fn new() -> Self {
        Self { sums: vec![T::ZERO.widen(); WINDOW], touched: [0; WORDS], words: 0, before: [0; WORDS] }
    }

    /// Adds the entries before the end of the window; returns how many.
    #[inline(always)]
    fn add(&mut self, start: u32, indices: &[u32], values: &[T]) -> usize {
        let (mut taken, mut words) = (0, self.words);
        for (&index, &value) in indices.iter().zip(values) {
            let offset = index.wrapping_sub(start) as usize;
            let Some(sum) = self.sums.get_mut(offset) else { break };
            let (word, bit) = (&mut self.touched[offset / 64 % WORDS], 1 << (offset % 64));
            // The first value is taken as it is: 0.0 + -0.0 would lose a sign.
            *sum = if *word & bit == 0 { value.widen() } else { value.accumulate(*sum) };
            *word |= bit;
            words |= 1 << (offset / 64);
            taken += 1;
        }
        self.words = words;
        taken
    }

    /// Numbers the touched sums in order; returns how many there are.
    #[inline(always)]
    fn number(&mut self) -> usize {
        let mut all = 0;
        for word in ones(self.words) {
            self.before[word] = all;
            all += self.touched[word].count_ones();
        }
        all as usize
    }

    /// Makes it as new.
    #[inline(always)]
    fn clear(&mut self) {
        for word in ones(self.words) {
            self.touched[word] = 0;
        }
        self.words = 0;
    }

    /// Writes the sums at these indices, rounded, to their places among all that were touched; returns the first index
    /// whose sum does not fit. Following the entries costs less than searching for bits: no branch depends on the data.
    #[inline(always)]
    fn move_out(
        &self,
        start: u32,
        base: u32,
        indices: &[u32],
        (places, values): &mut (&mut [u32], &mut [T]),
    ) -> Option<u32> {
        let mut overflow = None;
        for index in indices.iter().map(|index| index - base) {
            let offset = (index - start) as usize % WINDOW;
            let (word, bit) = (offset / 64, 1_u64 << (offset % 64));
            let place = (self.before[word] + (self.touched[word] & (bit - 1)).count_ones()) as usize;
            let (value, overflowed) = T::narrow(self.sums[offset]);
            if overflowed {
                overflow = overflow.or(Some(index));
            }
            if let (Some(its), Some(slot)) = (places.get_mut(place), values.get_mut(place)) {
                (*its, *slot) = (index, value);
            }
        }
        overflow
    }
}

/// The places of the bits that are one.
#[inline(always)]
fn ones(mut bits: u64) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let place = bits.trailing_zeros() as usize;
        bits &= bits.wrapping_sub(1);
        (place < WORDS).then_some(place)
    })
}
