use crate::collect::{PART, ROOM, collect};
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
    let mut largest = SparseVec::default();
    top_k_into(values, k, &mut largest)?;
    Ok(largest)
}

/// [`top_k`] to the memory of a vector that is no longer needed. Allocates only where that is too small: it takes room
/// for some more than k entries, the candidates.
///
/// ```
/// use sparse_core::{SparseVec, top_k_into};
///
/// let mut largest = SparseVec::default();
/// for step in 1..4 {
///     top_k_into(&[1.5_f32, 0.0, -3.0 * step as f32, 2.0], 2, &mut largest)?;
///     assert_eq!(largest.indices(), [2, 3]);
/// }
/// # Ok::<(), sparse_core::Error>(())
/// ```
///
/// # Errors
/// As [`top_k`]; `largest` then has no entries.
pub fn top_k_into<T: Element>(values: &[T], k: usize, largest: &mut SparseVec<T>) -> Result<(), Error> {
    top_k_by(values, k, largest, push_reaching)
}

/// [`top_k_into`] with this way to do what [`push_reaching`] does.
pub(crate) fn top_k_by<T: Element>(
    values: &[T],
    k: usize,
    largest: &mut SparseVec<T>,
    push_reaching: impl Fn(&[T], u64, usize, &mut SparseVec<T>),
) -> Result<(), Error> {
    largest.restart(values.len() as u64)?;
    if k >= values.len() {
        push_reaching(values, 1, usize::MAX, largest);
        return Ok(());
    }
    if k == 0 {
        return Ok(());
    }
    let (slot, mut cut) = match guess(values, k, largest, push_reaching) {
        Guess::Collected => {
            keep_largest(largest, k);
            return Ok(());
        }
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
            (slot, Cut { magnitude, ties, suffices: false })
        }
    };
    let most = match slot {
        Slot { low: 0, width: 0, above, .. } => above,
        Slot { width: 0, .. } => k,
        Slot { above, inside, .. } => above + inside,
    };
    largest.restart(values.len() as u64)?;
    largest.reserve(most + ROOM);
    for (part, values) in values.chunks(PART).enumerate() {
        let before = largest.nnz();
        if before >= most {
            break;
        }
        collect(values, slot.low.max(1), (part * PART) as u32, usize::MAX, largest.ends());
        largest.retain_from(before, |_, value| cut.keeps(value));
    }
    keep_largest(largest, k);
    Ok(())
}

/// Appends the values of at least this magnitude until there are `enough` entries.
fn push_reaching<T: Element>(values: &[T], low: u64, enough: usize, to: &mut SparseVec<T>) {
    collect(values, low, 0, enough, to.ends());
}

/// Leaves the k largest of these entries, in their order; all if there are no more.
pub(crate) fn keep_largest<T: Element>(entries: &mut SparseVec<T>, k: usize) {
    let cut = arch::fastest(
        #[inline(always)]
        || cut(entries.values(), k),
    );
    let Some(mut cut) = cut else { return };
    entries.keep_reaching(cut.magnitude);
    if entries.nnz() > k {
        entries.retain(|_, value| cut.keeps(value));
    }
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
    push_reaching(values, least.magnitude().max(1), usize::MAX, &mut large);
    Ok(large)
}

/// What one pass, or two, can say without counting.
enum Guess {
    /// The entries hold the k largest, and a few more.
    Collected,
    /// What separates the k largest.
    Cut(Cut),
    None,
}

/// Tries to find the k largest by what a sample says; appends what may be among them to `entries`.
fn guess<T: Element>(
    values: &[T],
    k: usize,
    entries: &mut SparseVec<T>,
    push_reaching: impl Fn(&[T], u64, usize, &mut SparseVec<T>),
) -> Guess {
    let Some(low) = low_by_sample(values, k, k) else { return Guess::None };
    let enough = 4 * k + 4 * SAMPLED;
    entries.reserve(k + k / 4 + 2 * SAMPLED + ROOM);
    push_reaching(values, low, enough, entries);
    if entries.nnz() >= enough {
        // Perhaps many are equal.
        let nan = T::from_f32(f32::NAN).magnitude();
        let count = |low| values.iter().filter(|value| value.reaches(low)).count();
        let above = if low == nan { 0 } else { count(low + 1) };
        if above < k && count(low) >= k {
            Guess::Cut(Cut { magnitude: low, ties: k - above, suffices: false })
        } else {
            Guess::None
        }
    } else if entries.nnz() >= k || low == 1 {
        // With nothing but zeros below there are no more.
        Guess::Collected
    } else {
        Guess::None
    }
}

/// A magnitude, not zero, that a few more values than `reaching` reach, if the sample is a fair one; it is large enough for k
/// values. `None` where it is not worth that.
pub(crate) fn low_by_sample<T: Element>(values: &[T], k: usize, reaching: usize) -> Option<u64> {
    if values.len() < MANY || k == 0 || k.max(reaching) > values.len() / 8 {
        return None;
    }
    // Whole cache lines at even distances.
    let wanted = (SAMPLED * (values.len() / k)).max(MANY / 2).max(values.len() >> 10).min(values.len() / 4);
    let distance = values.len() / (wanted / LINE);
    let lines = values.chunks(distance).enumerate().map(|(at, part)| {
        if let Some(ahead) = values.get((at + LINES_AHEAD) * distance) {
            arch::prefetch(ahead);
        }
        &part[..part.len().min(LINE)]
    });
    let mut sample = Vec::with_capacity(wanted + LINE);
    lines.for_each(|line| sample.extend(line.iter().map(|value| value.magnitude())));
    // Deep enough to hold them but for one case in a thousand.
    let expected = sample.len() as f64 * reaching as f64 / values.len() as f64;
    let rank = ((expected + 3.0 * expected.sqrt() + 3.0) as usize).min(sample.len() - 1);
    let (_, &mut low, _) = sample.select_nth_unstable_by(rank, |a, b| b.cmp(a));
    Some(low.max(1))
}

/// Fewer values are not worth a sample.
const MANY: usize = 1 << 14;
/// About so many of the k largest are in the sample at least.
const SAMPLED: usize = 16;
/// Values that are sampled together.
const LINE: usize = 16;
/// How many lines of the sample are on their way from memory at a time.
const LINES_AHEAD: usize = 16;
/// What separates the entries that are kept: those above a magnitude, and the first few equal to it.
pub(crate) struct Cut {
    magnitude: u64,
    ties: usize,
    /// Whether it is known that no others are equal to it.
    suffices: bool,
}

impl Cut {
    /// What is kept is at least of this magnitude.
    pub(crate) fn magnitude(&self) -> u64 {
        self.magnitude
    }

    /// Whether all of that magnitude are known to be kept.
    pub(crate) fn suffices(&self) -> bool {
        self.suffices
    }

    /// Whether the next value in index order is kept.
    #[inline(always)]
    pub(crate) fn keeps<T: Element>(&mut self, value: T) -> bool {
        let magnitude = value.magnitude();
        let tie = magnitude == self.magnitude && self.ties > 0;
        self.ties -= usize::from(tie);
        magnitude > self.magnitude || tie
    }
}

/// The cut that keeps exactly `k` of the values; `None` when it would keep all.
#[inline(always)]
pub(crate) fn cut<T: Element>(values: &[T], k: usize) -> Option<Cut> {
    if k >= values.len() {
        return None;
    }
    if k == 0 {
        return Some(Cut { magnitude: u64::MAX, ties: 0, suffices: true });
    }
    let slot = Slot::spanning(values).narrowed(values, k, FEW);
    if slot.width == 0 {
        let ties = k - slot.above;
        return Some(Cut { magnitude: slot.low, ties, suffices: ties == slot.inside });
    }
    let mut inside = Vec::with_capacity(slot.inside);
    inside.extend(values.iter().map(|value| value.magnitude()).filter(|&magnitude| slot.holds(magnitude)));
    let wanted = k - slot.above;
    let (larger, &mut magnitude, smaller) = inside.select_nth_unstable_by(wanted - 1, |a, b| b.cmp(a));
    let ties = wanted - larger.iter().filter(|&&other| other > magnitude).count();
    Some(Cut { magnitude, ties, suffices: !smaller.contains(&magnitude) })
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
        Self { low: 0, width: T::MAGNITUDE_BITS, above: 0, inside: values.len() }.narrowed(
            values,
            k,
            FEW.max(values.len() / 16),
        )
    }

    /// The range of these magnitudes, found by one pass more. Of candidates all share the high bits.
    #[inline(always)]
    fn spanning<T: Element>(values: &[T]) -> Self {
        let span = |(low, high): (u64, u64), value: &T| {
            let magnitude = value.magnitude();
            (low.min(magnitude), high.max(magnitude))
        };
        let (low, high) = values.iter().fold((u64::MAX, 0), span);
        Self { low, width: u64::BITS - (high - low).leading_zeros(), above: 0, inside: values.len() }
    }

    /// A part of the range that holds the k-th, with so few values or all alike.
    #[inline(always)]
    fn narrowed<T: Element>(self, values: &[T], k: usize, few: usize) -> Self {
        let mut slot = self;
        // Once is mostly enough for floats. Narrow integers and constant vectors share their high bits.
        while slot.width > 0 && slot.inside > few {
            slot.split(values, k);
        }
        slot
    }

    /// Narrows the range by one digit.
    #[inline(always)]
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
const FEW: usize = 1 << 11;
