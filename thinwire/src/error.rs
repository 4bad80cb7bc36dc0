use std::fmt;

/// Why the program stops.
///
/// The exit code tells a mistake that was noticed before anything ran from a failure of the run.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// Wrong options or data, a world that did not come together: exit code 2.
    Setup(anyhow::Error),
    /// A failure while training, or while writing what came of it: exit code 1.
    Run(anyhow::Error),
    /// A process that this one started failed, and this process ends as that one did.
    Child {
        /// The exit code to pass on.
        code: u8,
        /// What became of the process, and its last words: the whole text, printed as it is.
        report: Vec<u8>,
    },
    /// A signal asked this process to end: exit code 128 and the signal's number.
    Interrupted {
        /// The signal's number.
        signal: i32,
    },
}

/// The variants of [`Error`], for matching without their contents.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum ErrorKind {
    /// See [`Error::Setup`].
    Setup,
    /// See [`Error::Run`].
    Run,
    /// See [`Error::Child`].
    Child,
    /// See [`Error::Interrupted`].
    Interrupted,
}

impl Error {
    /// Which kind of error this is.
    #[must_use]
    pub const fn kind(&self) -> ErrorKind {
        match self {
            Self::Setup(_) => ErrorKind::Setup,
            Self::Run(_) => ErrorKind::Run,
            Self::Child { .. } => ErrorKind::Child,
            Self::Interrupted { .. } => ErrorKind::Interrupted,
        }
    }

    /// The exit code of a process that stops for this reason.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Setup(_) => 2,
            Self::Run(_) => 1,
            Self::Child { code, .. } => *code,
            Self::Interrupted { signal } => signal_code(*signal),
        }
    }

    /// A mistake noticed before anything ran.
    pub(crate) fn setup(message: impl fmt::Display) -> Self {
        Self::Setup(anyhow::anyhow!("{message}"))
    }
}

/// The exit code that a shell gives to a process ended by a signal.
pub(crate) fn signal_code(signal: i32) -> u8 {
    u8::try_from(128 + signal).unwrap_or(u8::MAX)
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Setup(cause) | Self::Run(cause) => f.write_str(&chain(cause)),
            Self::Child { report, .. } => f.write_str(String::from_utf8_lossy(report).trim_end()),
            Self::Interrupted { signal } => write!(f, "ended by signal {signal}"),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Setup(cause) | Self::Run(cause) => Some(cause.as_ref()),
            Self::Child { .. } | Self::Interrupted { .. } => None,
        }
    }
}

/// The error and its causes in one line, without those that an outer one quotes already.
fn chain(error: &anyhow::Error) -> String {
    let mut line = String::new();
    for cause in error.chain().map(ToString::to_string) {
        if line.is_empty() {
            line = cause;
        } else if !line.contains(&cause) {
            line = format!("{line}: {cause}");
        }
    }
    line
}

/// Says of a foreign error when it happened.
pub(crate) trait When<T> {
    fn setup(self) -> Result<T, Error>;
    fn run(self) -> Result<T, Error>;
}

impl<T, E: Into<anyhow::Error>> When<T> for Result<T, E> {
    fn setup(self) -> Result<T, Error> {
        self.map_err(|error| Error::Setup(error.into()))
    }

    fn run(self) -> Result<T, Error> {
        self.map_err(|error| Error::Run(error.into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::Context as _;

    #[test]
    fn causes_that_are_quoted_already_are_not_repeated() {
        let lost = std::io::Error::other("rank 2 is lost");
        let error = Err::<(), _>(lost).context("the step failed: rank 2 is lost").context("epoch 3").run();
        assert_eq!(error.unwrap_err().to_string(), "epoch 3: the step failed: rank 2 is lost");
    }

    #[test]
    fn the_exit_code_tells_mistakes_from_failures() {
        let child = Error::Child { code: 7, report: b"boom\n".to_vec() };
        assert_eq!(Error::setup("no").exit_code(), 2);
        assert_eq!(Error::Run(anyhow::anyhow!("no")).exit_code(), 1);
        assert_eq!((child.exit_code(), child.to_string()), (7, "boom".into()));
        assert_eq!(Error::Interrupted { signal: 15 }.exit_code(), 143);
    }
}
