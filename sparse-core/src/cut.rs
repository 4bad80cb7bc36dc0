//! What separates the k largest of some values from the others.

use crate::collect::ROOM;
use crate::{Element, arch};

/// What separates the entries that are kept: those above a magnitude, and the first few equal to it.
pub(crate) struct Cut {
    /// What is kept is at least of this magnitude.
    pub(crate) magnitude: u64,
    pub(crate) ties: usize,
    /// Whether all of that magnitude are known to be kept.
    pub(crate) suffices: bool,
}

impl Cut {
    /// That which keeps the k largest of these values, and all that are larger.
    #[inline(always)]
    fn among<V>(values: &mut [V], k: usize, magnitude: impl Fn(&V) -> u64) -> Self {
        let descending = |a: &V, b: &V| magnitude(b).cmp(&magnitude(a));
        let (larger, kth, smaller) = values.select_nth_unstable_by(k - 1, descending);
        let kth = magnitude(kth);
        let ties = k - larger.iter().filter(|other| magnitude(other) > kth).count();
        Self { magnitude: kth, ties, suffices: !smaller.iter().any(|other| magnitude(other) == kth) }
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

/// The cut that keeps exactly `k` of the values; `None` when it would keep all. Faster with [`scratch`] for so many.
#[inline(always)]
pub(crate) fn cut<T: Element>(values: &[T], k: usize, scratch: &mut [T]) -> Option<Cut> {
    if k >= values.len() {
        return None;
    }
    if k == 0 {
        return Some(Cut { magnitude: u64::MAX, ties: 0, suffices: true });
    }
    if let Some((above, inside)) = sampled(values, k, scratch) {
        return Some(Cut::among(inside, k - above, |value| value.magnitude()));
    }
    let slot = Slot::spanning(values).narrowed(values, k, FEW);
    if slot.width == 0 {
        let ties = k - slot.above;
        return Some(Cut { magnitude: slot.low, ties, suffices: ties == slot.inside });
    }
    let mut inside = Vec::with_capacity(slot.inside);
    inside.extend(values.iter().map(|value| value.magnitude()).filter(|&magnitude| slot.holds(magnitude)));
    Some(Cut::among(&mut inside, k - slot.above, |magnitude| *magnitude))
}

/// How much scratch it takes to cut so many values.
pub(crate) fn scratch(values: usize) -> usize {
    if values < FEWEST_SAMPLED { 0 } else { values / 8 + ROOM }
}

/// The values in a range of magnitudes that a sample tells to hold the k-th largest, all of them, and how many are above it.
/// `None` if there are too few values or too little scratch, or the sample misleads: then it takes counting.
#[inline(always)]
fn sampled<'a, T: Element>(values: &[T], k: usize, scratch: &'a mut [T]) -> Option<(usize, &'a mut [T])> {
    let mut sample = [0; MOST_SAMPLED];
    let sample = match values.len() {
        ..FEWEST_SAMPLED => return None,
        FEWEST_SAMPLED..MANY => &mut sample[..MOST_SAMPLED / 4],
        _ => &mut sample,
    };
    let evenly = values.iter().step_by(values.len() / sample.len());
    sample.iter_mut().zip(evenly).for_each(|(slot, value)| *slot = value.magnitude());
    let (share, all) = (k as f64 / values.len() as f64, sample.len() as f64);
    let (rank, deviation) = (all * share, (all * share * (1.0 - share)).sqrt());
    let [first, last] = [-1.0, 1.0].map(|side| rank + side * (3.0 * deviation + 2.0));
    let mut nth = |nth: f64| *sample.select_nth_unstable_by(nth as usize, |a, b| b.cmp(a)).1;
    let low = if last < all { nth(last) } else { 0 };
    let high = if first >= 0.0 { nth(first) } else { u64::MAX };
    // Nothing is above what is not a number.
    let above = if high == T::from_f32(f32::NAN).magnitude() { u64::MAX } else { high.saturating_add(1) };
    let (above, inside) = arch::between(values, low, above, scratch)?;
    (above < k && k <= above + inside).then(|| (above, &mut scratch[..inside]))
}

/// The range of magnitudes that holds the k-th largest: `low .. low + (1 << width)`.
pub(crate) struct Slot {
    pub(crate) low: u64,
    pub(crate) width: u32,
    /// How many values are above the range.
    pub(crate) above: usize,
    /// How many values are in it.
    pub(crate) inside: usize,
}

/// Counters for this many bits at a time: small enough for the first-level cache, fine enough to
/// leave a few per cent of the values in the slot of the k-th.
const DIGIT: u32 = 11;

impl Slot {
    /// Needs `1 <= k <= values.len()`.
    pub(crate) fn of_kth<T: Element>(values: &[T], k: usize) -> Self {
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

/// Fewer values are not worth a sample, and from so many on it is the larger one: what the k-th is sought between is about 6
/// deviations wide, a tenth of the values or half as much.
const FEWEST_SAMPLED: usize = 1 << 12;
const MANY: usize = 1 << 17;
const MOST_SAMPLED: usize = 1 << 12;
/// So few values are not worth counting.
pub(crate) const FEW: usize = 1 << 11;
