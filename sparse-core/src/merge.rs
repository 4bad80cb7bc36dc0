use crate::sparse_vec::narrow_at;
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
    let (a, b) = ((left.indices(), left.values()), (right.indices(), right.values()));
    let mut sum = SparseVec::with_capacity(left.dim(), a.0.len() + b.0.len());
    let (mut i, mut j) = (0, 0);
    while let (Some(&at), Some(&other)) = (a.0.get(i), b.0.get(j)) {
        if at < other {
            sum.push(at, a.1[i]);
            i += 1;
        } else if other < at {
            sum.push(other, b.1[j]);
            j += 1;
        } else {
            let (value, overflowed) = a.1[i].add(b.1[j]);
            if overflowed {
                return Err(Error::Overflow { index: u64::from(at), dtype: T::DTYPE });
            }
            sum.push(at, value);
            i += 1;
            j += 1;
        }
    }
    sum.extend(&a.0[i..], &a.1[i..]);
    sum.extend(&b.0[j..], &b.1[j..]);
    Ok(sum)
}

/// The sum of many vectors: at each index in the order of the slice, in the accumulator type, rounded
/// once.
///
/// # Errors
/// [`Error::NothingToSum`] for an empty slice, [`Error::DimensionMismatch`], [`Error::Overflow`].
pub fn reduce<T: Element>(parts: &[SparseVec<T>]) -> Result<SparseVec<T>, Error> {
    let (first, rest) = parts.split_first().ok_or(Error::NothingToSum)?;
    rest.iter().try_for_each(|part| first.check_same_dim(part))?;
    let mut entries: Vec<(u32, T)> = parts.iter().flat_map(SparseVec::iter).collect();
    entries.sort_by_key(|&(index, _)| index);
    let mut sum = SparseVec::with_capacity(first.dim(), entries.len());
    for group in entries.chunk_by(|a, b| a.0 == b.0) {
        let Some((&(index, first), rest)) = group.split_first() else { continue };
        let acc = rest.iter().fold(first.widen(), |acc, (_, value)| value.accumulate(acc));
        sum.push(index, narrow_at(u64::from(index), acc)?);
    }
    Ok(sum)
}
