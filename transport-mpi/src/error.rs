/// Why an [`MpiTransport`](crate::MpiTransport) could not be set up. Nothing is left behind.
///
/// What goes wrong later is a [`transport::Error`].
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// MPI is not in a state in which it can be used.
    #[error("{detail}")]
    State {
        /// What is wrong, and what to do.
        detail: String,
    },
    /// The options make no sense.
    #[error("{detail}")]
    Options {
        /// What is wrong, with the value.
        detail: String,
    },
    /// A call of MPI failed.
    #[error(transparent)]
    Mpi(#[from] MpiError),
}

/// The variants of [`enum@Error`], for matching without their contents.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum ErrorKind {
    /// See [`Error::State`].
    State,
    /// See [`Error::Options`].
    Options,
    /// See [`Error::Mpi`].
    Mpi,
}

impl Error {
    /// Which kind of error this is.
    #[must_use]
    pub const fn kind(&self) -> ErrorKind {
        match self {
            Self::State { .. } => ErrorKind::State,
            Self::Options { .. } => ErrorKind::Options,
            Self::Mpi(_) => ErrorKind::Mpi,
        }
    }
}

/// A call of MPI that failed.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{call} failed: {text} (error {code})")]
#[non_exhaustive]
pub struct MpiError {
    /// The function.
    pub call: &'static str,
    /// What it returned.
    pub code: i32,
    /// What the MPI says about that.
    pub text: String,
}
