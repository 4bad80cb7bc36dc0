use crate::{Element, Error, SparseVec};

/// The sum of two vectors; where both have an entry, `left`'s value is the left operand.
///
/// One linear pass. Entries that cancel stay, as explicit zeros. Vectors whose indices do not
/// interleave are concatenated.
///
/// # Errors
/// [`Error::DimensionMismatch`], [`Error::Overflow`].
pub fn merge<T: Element>(left: &SparseVec<T>, right: &SparseVec<T>) -> Result<SparseVec<T>, Error> {
    left.check_same_dim(right)?;
    let most = left.nnz() + right.nnz();
    // Zeros that the system gives: nobody writes them.
    let (mut indices, mut values) = (vec![0; most], vec![T::ZERO; most]);
    let entries = merge_to(left, right, &mut indices, &mut values)?;
    indices.truncate(entries);
    values.truncate(entries);
    Ok(SparseVec::from_sorted(left.dim(), indices, values))
}

/// [`merge`] to the memory of a vector that is no longer needed. Allocates only where that is too small.
///
/// ```
/// use sparse_core::{SparseVec, merge_into};
///
/// let one = |at, value| SparseVec::new(9, vec![at], vec![value]);
/// let mut sum = SparseVec::default();
/// for _ in 0..3 {
///     merge_into(&one(2, 1.5_f32)?, &one(7, -1.0)?, &mut sum)?;
///     assert_eq!((sum.dim(), sum.indices()), (9, &[2, 7][..]));
/// }
/// # Ok::<(), sparse_core::Error>(())
/// ```
///
/// # Errors
/// As [`merge`]; `sum` then has no entries.
pub fn merge_into<T: Element>(
    left: &SparseVec<T>,
    right: &SparseVec<T>,
    sum: &mut SparseVec<T>,
) -> Result<(), Error> {
    sum.refill(left.dim(), |indices, values| {
        left.check_same_dim(right)?;
        indices.resize(left.nnz() + right.nnz(), 0);
        values.resize(left.nnz() + right.nnz(), T::ZERO);
        let entries = merge_to(left, right, indices, values)?;
        indices.truncate(entries);
        values.truncate(entries);
        Ok(())
    })
}

/// Writes the sum, and says how many entries it has.
fn merge_to<T: Element>(
    left: &SparseVec<T>,
    right: &SparseVec<T>,
    indices: &mut [u32],
    values: &mut [T],
) -> Result<usize, Error> {
    let most = left.nnz() + right.nnz();
    let (mut i, mut j) = (0, 0);
    let mut chains = Vec::with_capacity(CHAINS);
    let (mut rest_indices, mut rest_values) = (&mut *indices, &mut *values);
    for chain in 1..=CHAINS {
        let (to_i, to_j) = cut(left.indices(), right.indices(), most * chain / CHAINS);
        let room = to_i - i + to_j - j;
        let (out_indices, out_values);
        (out_indices, rest_indices) = rest_indices.split_at_mut(room);
        (out_values, rest_values) = rest_values.split_at_mut(room);
        let left = (&left.indices()[i..to_i], &left.values()[i..to_i]);
        let right = (&right.indices()[j..to_j], &right.values()[j..to_j]);
        chains.push(Chain { left, right, out_indices, out_values, at: Place::default() });
        (i, j) = (to_i, to_j);
    }
    run_together(&mut chains);
    let lengths: Vec<_> = chains.iter_mut().map(|chain| (chain.finish(), chain.out_indices.len())).collect();
    if let Some(index) = chains.iter().find_map(|chain| chain.at.overflow) {
        return Err(Error::Overflow { index: u64::from(index), dtype: T::DTYPE });
    }
    // Close the gaps that common indices left.
    let (mut end, mut start) = (0, 0);
    for (len, room) in lengths {
        indices.copy_within(start..start + len, end);
        values.copy_within(start..start + len, end);
        (end, start) = (end + len, start + room);
    }
    Ok(end)
}

/// Independent parts of a merge. An entry's place depends on the comparison before it, so that one chain waits most of
/// the time.
const CHAINS: usize = 2;

/// Where to cut both vectors so that about `entries` are before the cut, and all before it are below all after it.
fn cut(left: &[u32], right: &[u32], entries: usize) -> (usize, usize) {
    if entries >= left.len() + right.len() {
        return (left.len(), right.len());
    }
    // The first of the left that does not belong to the `entries` smallest.
    let (mut low, mut high) = (entries.saturating_sub(right.len()), entries.min(left.len()));
    while low < high {
        let middle = low.midpoint(high);
        if left[middle] < right[entries - 1 - middle] { low = middle + 1 } else { high = middle }
    }
    let next = [left.get(low), right.get(entries - low)].into_iter().flatten().min();
    let before = |vec: &[u32]| next.map_or(vec.len(), |next| vec.partition_point(|index| index < next));
    (before(left), before(right))
}

/// Lets all chains go on together while each of them can.
fn run_together<T: Element>(chains: &mut [Chain<'_, T>]) {
    let Ok([first, second]) = <&mut [Chain<'_, T>; CHAINS]>::try_from(chains) else { return };
    while let (Some(a), Some(b)) = (first.block(), second.block()) {
        let (mut a, mut b) = (a, b);
        for _ in 0..BLOCK {
            a.step();
            b.step();
        }
        let (a, b) = (a.at, b.at);
        first.advance(a);
        second.advance(b);
    }
}

/// The next entry of a merge, and whether its sum does not fit.
#[inline(always)]
fn next<T: Element>((a, x): (u32, T), (b, y): (u32, T)) -> (u32, T, bool) {
    let (sum, overflowed) = x.add(y);
    // From memory, where a choice between floats would be a branch.
    let which = usize::from(a > b) + 2 * usize::from(a == b);
    (a.min(b), [x, y, sum, sum][which % 4], overflowed & (a == b))
}

/// How far a merge is.
#[derive(Clone, Copy, Default)]
struct Place {
    /// Entries of the left that are done, of the right, and of the sum.
    i: usize,
    j: usize,
    len: usize,
    /// The first index whose sum does not fit.
    overflow: Option<u32>,
}

impl Place {
    /// Past the smaller of two indices, or both if they are equal.
    #[inline(always)]
    fn pass(&mut self, left: u32, right: u32, overflowed: bool) {
        if overflowed {
            self.overflow = self.overflow.or(Some(left));
        }
        self.i += usize::from(left <= right);
        self.j += usize::from(right <= left);
        self.len += 1;
    }
}

/// A part of a merge.
struct Chain<'a, T> {
    left: (&'a [u32], &'a [T]),
    right: (&'a [u32], &'a [T]),
    out_indices: &'a mut [u32],
    out_values: &'a mut [T],
    at: Place,
}

impl<T: Element> Chain<'_, T> {
    /// So many steps can be made whatever the entries are.
    fn sure_steps(&self) -> usize {
        (self.left.0.len() - self.at.i).min(self.right.0.len() - self.at.j)
    }

    fn step(&mut self) {
        let Place { i, j, len, .. } = self.at;
        let (left, right) = ((self.left.0[i], self.left.1[i]), (self.right.0[j], self.right.1[j]));
        let overflowed;
        (self.out_indices[len], self.out_values[len], overflowed) = next(left, right);
        self.at.pass(left.0, right.0, overflowed);
    }

    /// Merges what is left, and returns the number of all entries.
    fn finish(&mut self) -> usize {
        while self.sure_steps() > 0 {
            self.step();
        }
        // One of the two is at its end.
        let mut len = self.at.len;
        for ((indices, values), from) in [(self.left, self.at.i), (self.right, self.at.j)] {
            let end = len + indices.len() - from;
            self.out_indices[len..end].copy_from_slice(&indices[from..]);
            self.out_values[len..end].copy_from_slice(&values[from..]);
            len = end;
        }
        len
    }
}

/// Steps between two looks at whether there is enough left.
const BLOCK: usize = 64;

/// The next steps of a chain, with lengths that the compiler knows, so that it need not check any index.
struct Block<'a, T> {
    left: (&'a [u32; BLOCK], &'a [T; BLOCK]),
    right: (&'a [u32; BLOCK], &'a [T; BLOCK]),
    out_indices: &'a mut [u32; BLOCK],
    out_values: &'a mut [T; BLOCK],
    at: Place,
}

impl<T: Element> Block<'_, T> {
    #[inline(always)]
    fn step(&mut self) {
        let (i, j, len) = (self.at.i % BLOCK, self.at.j % BLOCK, self.at.len % BLOCK);
        let (left, right) = ((self.left.0[i], self.left.1[i]), (self.right.0[j], self.right.1[j]));
        let overflowed;
        (self.out_indices[len], self.out_values[len], overflowed) = next(left, right);
        self.at.pass(left.0, right.0, overflowed);
    }
}

impl<T: Element> Chain<'_, T> {
    fn block(&mut self) -> Option<Block<'_, T>> {
        let Place { i, j, len, .. } = self.at;
        Some(Block {
            left: (self.left.0.get(i..)?.first_chunk()?, self.left.1.get(i..)?.first_chunk()?),
            right: (self.right.0.get(j..)?.first_chunk()?, self.right.1.get(j..)?.first_chunk()?),
            out_indices: self.out_indices.get_mut(len..)?.first_chunk_mut()?,
            out_values: self.out_values.get_mut(len..)?.first_chunk_mut()?,
            at: Place::default(),
        })
    }

    fn advance(&mut self, by: Place) {
        self.at.i += by.i;
        self.at.j += by.j;
        self.at.len += by.len;
        self.at.overflow = self.at.overflow.or(by.overflow);
    }
}
