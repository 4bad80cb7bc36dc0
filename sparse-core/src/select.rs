use crate::error::check_dim;
use crate::{Element, Error, SparseVec, arch};

/// The `k` entries of largest magnitude of a dense vector: exact, for any `k`.
///
/// Zeros are never taken, so the result may have fewer entries. Ties go to the lowest index; NaN
/// ranks above everything.
///
/// Linear time: a sample tells about how large the k-th is, one pass collects what is larger, and a selection, never a
/// sort, settles the rest among those. Where the sample misleads, one pass more counts the high bits of the magnitudes
/// first.
///
/// # Errors
/// [`Error::DimensionTooLarge`].
///
/// ```
/// let top = sparse_core::top_k(&[1_i32, -7, 0, 7, 3], 2)?;
/// assert_eq!(top.iter().collect::<Vec<_>>(), [(1, -7), (3, 7)]);
/// # Ok::<(), sparse_core::Error>(())
/// ```
pub fn top_k<T: Element>(values: &[T], k: usize) -> Result<SparseVec<T>, Error> {
    check_dim(values.len() as u64)?;
    if k >= values.len() {
        return SparseVec::from_dense(values);
    }
    if k == 0 {
        return SparseVec::empty(values.len() as u64);
    }
    let (slot, cut) = match guess(values, k) {
        Guess::Candidates(candidates) => return Ok(largest_of(candidates, k)),
        Guess::Cut(cut) => {
            (Slot { low: cut.magnitude, width: 0, above: k - cut.ties, inside: cut.ties }, cut)
        }
        Guess::None => {
            let slot = Slot::of_kth(values, k);
            let (magnitude, ties) = match slot {
                // Zeros are never wanted: the smallest magnitude above them is 1.
                Slot { low: 0, .. } => (0, 0),
                Slot { low, width: 0, above, .. } => (low, k - above),
                Slot { low, .. } => (low - 1, 0),
            };
            (slot, Cut { magnitude, ties })
        }
    };
    let most = match slot {
        Slot { low: 0, width: 0, above, .. } => above,
        Slot { width: 0, .. } => k,
        Slot { above, inside, .. } => above + inside,
    };
    let mut candidates = SparseVec::with_capacity(values.len() as u64, most);
    let mut cut = cut;
    collect(values, slot.low.max(1), |index, value| {
        if cut.keeps(value) {
            candidates.push(index, value);
        }
        candidates.nnz() < most
    });
    Ok(largest_of(candidates, k))
}

fn largest_of<T: Element>(candidates: SparseVec<T>, k: usize) -> SparseVec<T> {
    if candidates.nnz() <= k {
        return candidates;
    }
    largest(candidates.dim(), candidates.indices(), candidates.values(), k)
}

/// The k largest of these entries, in their order; all if there are no more.
pub(crate) fn largest<T: Element>(dim: u64, indices: &[u32], values: &[T], k: usize) -> SparseVec<T> {
    let Some(mut cut) = cut(values, k) else {
        return SparseVec::from_sorted(dim, indices.to_vec(), values.to_vec());
    };
    let mut largest = SparseVec::with_capacity(dim, k);
    let (mut kept, (its, slots)) = (0, largest.grow(k));
    for (&index, &value) in indices.iter().zip(values) {
        // Written whether it stays or not: which of the two no predictor could foresee.
        let (Some(its), Some(slot)) = (its.get_mut(kept), slots.get_mut(kept)) else { break };
        (*its, *slot) = (index, value);
        kept += usize::from(cut.keeps(value));
    }
    largest
}

/// The entries of at least the magnitude of `least`: as many as there are.
///
/// Zeros are never taken; NaN is above everything. One pass.
///
/// # Errors
/// [`Error::DimensionTooLarge`].
///
/// ```
/// let large = sparse_core::at_least(&[1.0_f32, -7.0, 0.0, f32::NAN, 6.5], 6.5)?;
/// assert_eq!(large.indices(), [1, 3, 4]);
/// # Ok::<(), sparse_core::Error>(())
/// ```
pub fn at_least<T: Element>(values: &[T], least: T) -> Result<SparseVec<T>, Error> {
    let mut large = SparseVec::empty(values.len() as u64)?;
    collect(values, least.magnitude().max(1), |index, value| {
        large.push(index, value);
        true
    });
    Ok(large)
}

/// What one pass, or two, can say without counting.
enum Guess<T> {
    /// A few more than the k largest.
    Candidates(SparseVec<T>),
    /// What separates the k largest.
    Cut(Cut),
    None,
}

/// Tries to find the k largest by what a sample says.
fn guess<T: Element>(values: &[T], k: usize) -> Guess<T> {
    if !is_worth_a_sample(values, k) {
        return Guess::None;
    }
    let low = low_by_sample(values, k);
    let mut candidates = SparseVec::with_capacity(values.len() as u64, 2 * k);
    let enough = 4 * k + 4 * SAMPLED;
    collect(values, low, |index, value| {
        candidates.push(index, value);
        candidates.nnz() < enough
    });
    if candidates.nnz() >= enough {
        // Perhaps many are equal.
        let nan = T::from_f32(f32::NAN).magnitude();
        let count = |low| values.iter().filter(|value| value.reaches(low)).count();
        let above = if low == nan { 0 } else { count(low + 1) };
        if above < k && count(low) >= k {
            Guess::Cut(Cut { magnitude: low, ties: k - above })
        } else {
            Guess::None
        }
    } else if candidates.nnz() >= k || low == 1 {
        // With nothing but zeros below there are no more.
        Guess::Candidates(candidates)
    } else {
        Guess::None
    }
}

pub(crate) fn is_worth_a_sample<T>(values: &[T], k: usize) -> bool {
    values.len() >= MANY && (1..=values.len() / 8).contains(&k)
}

/// A magnitude, not zero, that a few more than k values reach, if the sample is a fair one.
pub(crate) fn low_by_sample<T: Element>(values: &[T], k: usize) -> u64 {
    // Whole cache lines at even distances.
    let wanted = (SAMPLED * (values.len() / k)).max(MANY / 2).max(values.len() >> 10).min(values.len() / 4);
    let lines = values.chunks(values.len() / (wanted / LINE));
    let sample = lines.flat_map(|part| part.iter().take(LINE)).map(|value| value.magnitude());
    let mut sample: Vec<_> = sample.collect();
    // Deep enough to hold k values but for one case in a thousand.
    let expected = sample.len() as f64 * k as f64 / values.len() as f64;
    let rank = ((expected + 3.0 * expected.sqrt() + 3.0) as usize).min(sample.len() - 1);
    let (_, &mut low, _) = sample.select_nth_unstable_by(rank, |a, b| b.cmp(a));
    low.max(1)
}

/// Fewer values are not worth a sample.
const MANY: usize = 1 << 14;
/// About so many of the k largest are in the sample at least.
const SAMPLED: usize = 16;
/// Values that are sampled together.
const LINE: usize = 16;
/// Values that are looked at together first.
const BLOCK: usize = 64;

/// Calls `take` for every value of at least this magnitude, by increasing index, until it returns false.
pub(crate) fn collect<T: Element>(values: &[T], low: u64, take: impl FnMut(u32, T) -> bool) {
    arch::fastest(
        #[inline(always)]
        || collect_here(values, low, take),
    );
}

#[inline(always)]
fn collect_here<T: Element>(values: &[T], low: u64, mut take: impl FnMut(u32, T) -> bool) {
    let (blocks, rest) = values.as_chunks::<BLOCK>();
    for (at, block) in blocks.iter().enumerate() {
        // Most blocks hold none at the usual densities.
        if !block.iter().fold(false, |any, value| any | value.reaches(low)) {
            continue;
        }
        // Without a branch on each value, which no predictor could foresee.
        let mut found = which(block, low);
        while found != 0 {
            let offset = found.trailing_zeros() as usize;
            found &= found - 1;
            if !take((at * BLOCK + offset) as u32, block[offset % BLOCK]) {
                return;
            }
        }
    }
    for (offset, &value) in rest.iter().enumerate().filter(|(_, value)| value.reaches(low)) {
        if !take((blocks.len() * BLOCK + offset) as u32, value) {
            return;
        }
    }
}

/// A bit for each value that is of at least this magnitude.
#[inline(always)]
fn which<T: Element>(block: &[T; BLOCK], low: u64) -> u64 {
    let mut each = [0_u8; BLOCK];
    for (byte, value) in each.iter_mut().zip(block) {
        *byte = value.reaches(low).into();
    }
    // The multiplication moves the lowest bits of 8 bytes to its highest byte, each to its place.
    let bits = |bytes: &[u8; 8]| u64::from_le_bytes(*bytes).wrapping_mul(0x0102_0408_1020_4080) >> 56;
    let bytes = each.as_chunks::<8>().0.iter().enumerate();
    bytes.fold(0, |all, (at, bytes)| all | bits(bytes) << (8 * at))
}

/// What separates the entries that are kept: those above a magnitude, and the first few equal to it.
pub(crate) struct Cut {
    magnitude: u64,
    ties: usize,
}

impl Cut {
    /// Whether the next value in index order is kept.
    #[inline]
    pub(crate) fn keeps<T: Element>(&mut self, value: T) -> bool {
        let magnitude = value.magnitude();
        if magnitude == self.magnitude && self.ties > 0 {
            self.ties -= 1;
            return true;
        }
        magnitude > self.magnitude
    }
}

/// The cut that keeps exactly `k` of the values; `None` when it would keep all.
pub(crate) fn cut<T: Element>(values: &[T], k: usize) -> Option<Cut> {
    if k >= values.len() {
        return None;
    }
    if k == 0 {
        return Some(Cut { magnitude: u64::MAX, ties: 0 });
    }
    let slot = Slot::of_kth(values, k);
    if slot.width == 0 {
        return Some(Cut { magnitude: slot.low, ties: k - slot.above });
    }
    let mut inside = Vec::with_capacity(slot.inside);
    inside.extend(values.iter().map(|value| value.magnitude()).filter(|&magnitude| slot.holds(magnitude)));
    let wanted = k - slot.above;
    let (larger, &mut magnitude, _) = inside.select_nth_unstable_by(wanted - 1, |a, b| b.cmp(a));
    let ties = wanted - larger.iter().filter(|&&other| other > magnitude).count();
    Some(Cut { magnitude, ties })
}

/// The range of magnitudes that holds the k-th largest: `low .. low + (1 << width)`.
struct Slot {
    low: u64,
    width: u32,
    /// How many values are above the range.
    above: usize,
    /// How many values are in it.
    inside: usize,
}

/// Counters for this many bits at a time: small enough for the first-level cache, fine enough to
/// leave a few per cent of the values in the slot of the k-th.
const DIGIT: u32 = 11;

impl Slot {
    /// Needs `1 <= k <= values.len()`.
    fn of_kth<T: Element>(values: &[T], k: usize) -> Self {
        let mut slot = Self { low: 0, width: T::MAGNITUDE_BITS, above: 0, inside: values.len() };
        // Once is enough for most floats. Narrow integers and constant vectors share their high bits.
        while slot.width > 0 && slot.inside > FEW && slot.inside > values.len() / 16 {
            slot.split(values, k);
        }
        slot
    }

    /// Narrows the range by one digit.
    fn split<T: Element>(&mut self, values: &[T], k: usize) {
        let width = self.width.saturating_sub(DIGIT);
        let mut counts = [0_usize; 1 << DIGIT];
        let digits = 1 << (self.width - width);
        let counts = &mut counts[..digits];
        for value in values {
            // What is below or above the range wraps or lands beyond the counters.
            let digit = value.magnitude().wrapping_sub(self.low) >> width;
            if let Some(count) = counts.get_mut(digit as usize) {
                *count += 1;
            }
        }
        let mut above = self.above;
        for (digit, &count) in counts.iter().enumerate().rev() {
            if above + count >= k {
                *self = Self { low: self.low + ((digit as u64) << width), width, above, inside: count };
                return;
            }
            above += count;
        }
    }

    #[inline]
    fn holds(&self, magnitude: u64) -> bool {
        magnitude.wrapping_sub(self.low).checked_shr(self.width).is_none_or(|high| high == 0)
    }
}

/// So few values are not worth counting.
const FEW: usize = 1 << 10;
