use crate::DType;

/// Why a vector, a sum or a frame was refused.
///
/// Every operation that returns an error leaves its borrowed arguments as they were.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The dimension exceeds 2^32, the most that `u32` indices can address.
    #[error("the dimension {dim} exceeds 2^32")]
    DimensionTooLarge {
        /// The dimension asked for.
        dim: u64,
    },
    /// Two vectors that belong together have different dimensions.
    #[error("the dimensions differ: {left} and {right}")]
    DimensionMismatch {
        /// The dimension of the left operand, or of the destination.
        left: u64,
        /// The dimension of the right operand, or of the source.
        right: u64,
    },
    /// There is not one value for each index.
    #[error("{indices} indices but {values} values")]
    LengthMismatch {
        /// How many indices there are.
        indices: usize,
        /// How many values there are.
        values: usize,
    },
    /// The indices do not increase strictly.
    #[error("the indices do not increase: {index} at position {position} follows {previous}")]
    NotIncreasing {
        /// The position of the first index that is not above the one before it.
        position: usize,
        /// That index.
        index: u32,
        /// The index before it.
        previous: u32,
    },
    /// An index is not below the dimension.
    #[error("the index {index} is outside the dimension {dim}")]
    IndexOutOfRange {
        /// The offending index.
        index: u32,
        /// The dimension.
        dim: u64,
    },
    /// An index occurs twice where that was to be refused.
    #[error("the index {index} occurs more than once")]
    DuplicateIndex {
        /// The smallest such index.
        index: u32,
    },
    /// A sum of integers does not fit its type.
    #[error("the sum at index {index} overflows {dtype}")]
    Overflow {
        /// Where in the vector.
        index: u64,
        /// The type that is too narrow.
        dtype: DType,
    },
    /// A sum of no vectors at all was asked for; it has no dimension.
    #[error("there is nothing to sum: no vector was given")]
    NothingToSum,
    /// Received bytes are not a frame of this version, or lie about their contents.
    #[error("malformed frame: {detail}")]
    Malformed {
        /// What is wrong, and where.
        detail: String,
    },
    /// A frame carries another type or kind of body than the receiver expects.
    #[error("unexpected frame: {found} where {expected} was expected")]
    Unexpected {
        /// What the frame carries.
        found: String,
        /// What the receiver asked for.
        expected: String,
    },
}

/// The variants of [`Error`], for matching without their contents.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum ErrorKind {
    /// See [`Error::DimensionTooLarge`].
    DimensionTooLarge,
    /// See [`Error::DimensionMismatch`].
    DimensionMismatch,
    /// See [`Error::LengthMismatch`].
    LengthMismatch,
    /// See [`Error::NotIncreasing`].
    NotIncreasing,
    /// See [`Error::IndexOutOfRange`].
    IndexOutOfRange,
    /// See [`Error::DuplicateIndex`].
    DuplicateIndex,
    /// See [`Error::Overflow`].
    Overflow,
    /// See [`Error::NothingToSum`].
    NothingToSum,
    /// See [`Error::Malformed`].
    Malformed,
    /// See [`Error::Unexpected`].
    Unexpected,
}

impl Error {
    /// The same of a whole vector, in which that which this is about begins at index `start`: a sum's index is told there.
    #[must_use]
    pub fn in_whole(self, start: u64) -> Self {
        match self {
            Self::Overflow { index, dtype } => Self::Overflow { index: start.saturating_add(index), dtype },
            other => other,
        }
    }

    /// Which kind of error this is.
    #[must_use]
    pub const fn kind(&self) -> ErrorKind {
        match self {
            Self::DimensionTooLarge { .. } => ErrorKind::DimensionTooLarge,
            Self::DimensionMismatch { .. } => ErrorKind::DimensionMismatch,
            Self::LengthMismatch { .. } => ErrorKind::LengthMismatch,
            Self::NotIncreasing { .. } => ErrorKind::NotIncreasing,
            Self::IndexOutOfRange { .. } => ErrorKind::IndexOutOfRange,
            Self::DuplicateIndex { .. } => ErrorKind::DuplicateIndex,
            Self::Overflow { .. } => ErrorKind::Overflow,
            Self::NothingToSum => ErrorKind::NothingToSum,
            Self::Malformed { .. } => ErrorKind::Malformed,
            Self::Unexpected { .. } => ErrorKind::Unexpected,
        }
    }

    pub(crate) fn malformed(detail: impl Into<String>) -> Self {
        Self::Malformed { detail: detail.into() }
    }
}

/// Refuses dimensions that `u32` indices cannot address.
pub(crate) const fn check_dim(dim: u64) -> Result<(), Error> {
    if dim <= 1 << 32 { Ok(()) } else { Err(Error::DimensionTooLarge { dim }) }
}

/// Refuses operands of different dimensions.
pub(crate) const fn check_same_dim(left: u64, right: u64) -> Result<(), Error> {
    if left == right { Ok(()) } else { Err(Error::DimensionMismatch { left, right }) }
}
