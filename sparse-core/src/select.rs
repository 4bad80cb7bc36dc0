use crate::collect::{PART, ROOM, collect};
use crate::cut::{Cut, Slot, cut, scratch};
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
    let (len, values) = (entries.nnz(), entries.ends().1);
    if k >= len {
        return;
    }
    values.resize(len + scratch(len), T::ZERO);
    let (found, scratch) = values.split_at_mut(len);
    let cut = arch::fastest(
        #[inline(always)]
        || cut(found, k, scratch),
    );
    values.truncate(len);
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
