use std::ops::Range;

use crate::dense::scatter_add_left;
use crate::error::{check_dim, check_same_dim};
use crate::{Element, Error, Memory, SparseVec, add_assign, merge_in, scatter_add};

/// A vector that is sparse while that is the shorter form, and dense from then on.
///
/// Sums of sparse vectors fill up. [`merge`](Stream::merge) goes dense when the operands' entries
/// together take at least what `dim` values take ([`dense_is_shorter`]); it never goes back.
/// From Renggli et al., "SparCML", 2018.
///
/// ```
/// use sparse_core::{SparseVec, Stream};
///
/// # fn main() -> Result<(), sparse_core::Error> {
/// let one = |at| SparseVec::new(6, vec![at], vec![1.0_f32]).map(Stream::from);
/// let two = one(0)?.merge(one(5)?)?;
/// assert!(!two.is_dense()); // 2 * (4 + 4) bytes are less than 6 * 4
/// let three = two.merge(one(5)?)?;
/// assert!(three.is_dense()); // 3 * (4 + 4) bytes are not
/// assert_eq!(three.into_dense(), [1.0, 0.0, 0.0, 0.0, 0.0, 2.0]);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, PartialEq, Debug)]
pub enum Stream<T> {
    /// Indices and values.
    Sparse(SparseVec<T>),
    /// All values, from position 0.
    Dense(Vec<T>),
}

/// Whether `entries` sparse entries take at least as much memory as `dim` dense values.
///
/// The switch of the published delta: `entries * (4 + size) >= dim * size`. On the wire a sparse form is shorter still,
/// as [`codec`](crate::codec) has it, but a fuller vector takes longer to sum than a dense one.
#[must_use]
pub fn dense_is_shorter<T: Element>(entries: u64, dim: u64) -> bool {
    let size = size_of::<T>() as u128;
    u128::from(entries) * (4 + size) >= u128::from(dim) * size
}

impl<T: Element> Stream<T> {
    /// The number of positions.
    #[must_use]
    pub fn dim(&self) -> u64 {
        match self {
            Self::Sparse(vec) => vec.dim(),
            Self::Dense(values) => values.len() as u64,
        }
    }

    /// The number of values held: entries of a sparse stream, all positions of a dense one.
    #[must_use]
    pub fn nnz(&self) -> usize {
        match self {
            Self::Sparse(vec) => vec.nnz(),
            Self::Dense(values) => values.len(),
        }
    }

    /// Whether the stream has gone dense.
    #[must_use]
    pub fn is_dense(&self) -> bool {
        matches!(self, Self::Dense(_))
    }

    /// The sum, `self` being the left operand: give the lower ranks' sum on the left, whatever came
    /// first, and the bits do not depend on timing.
    ///
    /// A dense operand's memory is reused. Linear in the entries of sparse operands, in `dim` when both
    /// are dense or the sum goes dense.
    ///
    /// # Errors
    /// [`Error::DimensionMismatch`], [`Error::Overflow`].
    pub fn merge(self, right: Self) -> Result<Self, Error> {
        self.merge_in(right, &Memory::new())
    }

    /// [`merge`](Self::merge), to memory that is used again, giving back that of the operands.
    ///
    /// # Errors
    /// As [`merge`](Self::merge).
    pub fn merge_in(self, right: Self, memory: &Memory) -> Result<Self, Error> {
        check_same_dim(self.dim(), right.dim())?;
        let (sum, spent) = match (self, right) {
            (Self::Sparse(left), Self::Sparse(right)) => {
                let sum = if dense_is_shorter::<T>(left.nnz() as u64 + right.nnz() as u64, left.dim()) {
                    let mut sum = left.to_dense_in(memory);
                    scatter_add(&mut sum, &right)?;
                    Self::Dense(sum)
                } else {
                    Self::Sparse(merge_in(&left, &right, memory)?)
                };
                memory.put(left);
                (sum, Self::Sparse(right))
            }
            (Self::Dense(mut left), Self::Sparse(right)) => {
                scatter_add(&mut left, &right)?;
                (Self::Dense(left), Self::Sparse(right))
            }
            (Self::Sparse(left), Self::Dense(mut right)) => {
                scatter_add_left(&mut right, &left)?;
                (Self::Dense(right), Self::Sparse(left))
            }
            (Self::Dense(mut left), Self::Dense(right)) => {
                add_assign(&mut left, &right)?;
                (Self::Dense(left), Self::Dense(right))
            }
        };
        memory.put(spent);
        Ok(sum)
    }

    /// The streams one after the other, as one of the sum of their dimensions: the inverse of slicing
    /// at every boundary.
    ///
    /// Dense when the parts' values together reach the switch ([`dense_is_shorter`]), so the form
    /// depends on the parts alone. A dense part of a sparse whole loses its zeros.
    ///
    /// # Errors
    /// [`Error::DimensionTooLarge`].
    pub fn concat(parts: Vec<Self>) -> Result<Self, Error> {
        Self::concat_in(parts, &Memory::new())
    }

    /// [`concat`](Self::concat), to memory that is used again, giving back that of the parts.
    ///
    /// # Errors
    /// As [`concat`](Self::concat).
    pub fn concat_in(parts: Vec<Self>, memory: &Memory) -> Result<Self, Error> {
        let dim = parts.iter().fold(0_u64, |dim, part| dim.saturating_add(part.dim()));
        check_dim(dim)?;
        let entries = parts.iter().map(|part| part.nnz() as u64).sum();
        if dense_is_shorter::<T>(entries, dim) {
            let mut whole = memory.empty(usize::try_from(dim).unwrap_or(usize::MAX));
            for part in parts {
                let values = part.into_dense_in(memory);
                whole.extend_from_slice(&values);
                memory.put(values);
            }
            return Ok(Self::Dense(whole));
        }
        let parts =
            parts.into_iter().map(|part| part.into_sparse_in(memory)).collect::<Result<Vec<_>, _>>()?;
        let whole = SparseVec::concat_in(&parts, memory)?;
        parts.into_iter().for_each(|part| memory.put(part));
        Ok(Self::Sparse(whole))
    }

    /// The part in `range`, in the same form, with positions counted from its start.
    ///
    /// # Panics
    /// If the range is reversed or ends beyond the dimension, as slices do.
    #[must_use]
    #[track_caller]
    pub fn slice(&self, range: Range<u64>) -> Self {
        match self {
            Self::Sparse(vec) => Self::Sparse(vec.slice(range)),
            Self::Dense(values) => {
                let dim = values.len() as u64;
                assert!(
                    range.start <= range.end && range.end <= dim,
                    "the range {range:?} is not within 0..{dim}"
                );
                Self::Dense(values[range.start as usize..range.end as usize].to_vec())
            }
        }
    }

    /// All values, copied.
    #[must_use]
    pub fn to_dense(&self) -> Vec<T> {
        match self {
            Self::Sparse(vec) => vec.to_dense(),
            Self::Dense(values) => values.clone(),
        }
    }

    /// All values, with the stream's memory where it is dense.
    #[must_use]
    pub fn into_dense(self) -> Vec<T> {
        self.into_dense_in(&Memory::new())
    }

    /// [`into_dense`](Self::into_dense), to memory that is used again, giving back that of a sparse stream.
    #[must_use]
    pub fn into_dense_in(self, memory: &Memory) -> Vec<T> {
        match self {
            Self::Sparse(vec) => {
                let values = vec.to_dense_in(memory);
                memory.put(vec);
                values
            }
            Self::Dense(values) => values,
        }
    }

    /// The entries as a sparse vector; a dense stream loses its zeros.
    ///
    /// # Errors
    /// [`Error::DimensionTooLarge`].
    pub fn into_sparse(self) -> Result<SparseVec<T>, Error> {
        self.into_sparse_in(&Memory::new())
    }

    /// [`into_sparse`](Self::into_sparse), to memory that is used again, giving back that of a dense stream.
    ///
    /// # Errors
    /// [`Error::DimensionTooLarge`].
    pub fn into_sparse_in(self, memory: &Memory) -> Result<SparseVec<T>, Error> {
        match self {
            Self::Sparse(vec) => Ok(vec),
            Self::Dense(values) => {
                let vec = SparseVec::from_dense_in(&values, memory)?;
                memory.put(values);
                Ok(vec)
            }
        }
    }
}

impl<T> From<SparseVec<T>> for Stream<T> {
    fn from(vec: SparseVec<T>) -> Self {
        Self::Sparse(vec)
    }
}
