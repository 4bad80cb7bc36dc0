use crate::error::check_dim;
use crate::{Element, Error, SparseVec};

/// The `k` entries of largest magnitude of a dense vector: exact, for any `k`.
///
/// Zeros are never taken, so the result may have fewer entries. Ties go to the lowest index; NaN
/// ranks above everything.
///
/// Linear time: one pass counts the high bits of the magnitudes, one pass collects what may be in the
/// result, and a selection, never a sort, settles the rest among those.
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
    let slot = Slot::of_kth(values, k);
    let (mut cut, most) = match slot {
        Slot { low: 0, above, inside, width } => {
            // Zeros are never wanted: the smallest magnitude above them is 1.
            (Cut { magnitude: 0, ties: 0 }, if width == 0 { above } else { above + inside })
        }
        Slot { low, width: 0, above, .. } => (Cut { magnitude: low, ties: k - above }, k),
        Slot { low, above, inside, .. } => (Cut { magnitude: low - 1, ties: 0 }, above + inside),
    };
    let mut candidates = SparseVec::with_capacity(values.len() as u64, most);
    collect(values, slot.low.max(1), |index, value| {
        if cut.keeps(value) {
            candidates.push(index, value);
        }
    });
    Ok(candidates.top_k(k).0)
}

/// Calls `take` for every value of at least this magnitude, by increasing index.
fn collect<T: Element>(values: &[T], low: u64, mut take: impl FnMut(u32, T)) {
    let mut offsets = [0_u8; BLOCK];
    for (block, part) in values.chunks(BLOCK).enumerate() {
        // Most blocks hold none at the usual densities, and this test vectorises.
        if !part.iter().fold(false, |any, value| any | (value.magnitude() >= low)) {
            continue;
        }
        // Without a branch on the data, which no predictor could foresee.
        let mut found = 0;
        for (offset, value) in part.iter().enumerate() {
            offsets[found % BLOCK] = offset as u8;
            found += usize::from(value.magnitude() >= low);
        }
        for &offset in &offsets[..found] {
            let offset = usize::from(offset);
            take((block * BLOCK + offset) as u32, part[offset]);
        }
    }
}

/// Values that are looked at together before any is looked at alone.
const BLOCK: usize = 64;

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
