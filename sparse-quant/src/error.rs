/// Why values or bytes were refused.
///
/// The output of the call is then as it was before.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A value is NaN or infinite; a scale cannot carry it.
    #[error("the value at position {position} is {value}")]
    NotFinite {
        /// The first such position in the values given.
        position: usize,
        /// The value there.
        value: f32,
    },
    /// There are more or fewer bytes than the values take.
    #[error("{found} bytes where the values take {expected}")]
    Length {
        /// How many bytes the values take.
        expected: usize,
        /// How many there are.
        found: usize,
    },
    /// The bytes are not what the quantizer writes.
    #[error("malformed bytes: {detail}")]
    Malformed {
        /// What is wrong, and where.
        detail: String,
    },
    /// A quantizer cannot have this parameter.
    #[error("{name} cannot be {value}: {expected}")]
    Parameter {
        /// Which parameter.
        name: &'static str,
        /// What was asked for.
        value: u64,
        /// What is possible.
        expected: &'static str,
    },
}

/// The variants of [`Error`], for matching without their contents.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum ErrorKind {
    /// See [`Error::NotFinite`].
    NotFinite,
    /// See [`Error::Length`].
    Length,
    /// See [`Error::Malformed`].
    Malformed,
    /// See [`Error::Parameter`].
    Parameter,
}

impl Error {
    /// Which kind of error this is.
    #[must_use]
    pub const fn kind(&self) -> ErrorKind {
        match self {
            Self::NotFinite { .. } => ErrorKind::NotFinite,
            Self::Length { .. } => ErrorKind::Length,
            Self::Malformed { .. } => ErrorKind::Malformed,
            Self::Parameter { .. } => ErrorKind::Parameter,
        }
    }

    /// Refuses NaN and infinity.
    ///
    /// # Errors
    /// [`Error::NotFinite`].
    pub fn check_finite(values: &[f32]) -> Result<(), Self> {
        // Without an early exit the test vectorises; the search for the culprit is the rare case.
        if !values.iter().fold(true, |finite, value| finite & value.is_finite())
            && let Some(position) = values.iter().position(|value| !value.is_finite())
        {
            return Err(Self::NotFinite { position, value: values[position] });
        }
        Ok(())
    }

    /// Refuses bytes of another length than expected.
    ///
    /// # Errors
    /// [`Error::Length`].
    pub const fn check_length(expected: usize, found: usize) -> Result<(), Self> {
        if expected == found { Ok(()) } else { Err(Self::Length { expected, found }) }
    }
}
