use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use transport::Rank;

/// Why a world did not come together. Nothing is left behind: join again after mending the cause.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An environment variable is missing or does not make sense.
    #[error("{}{problem}", Variable(name, value.as_deref()))]
    Variable {
        /// The variable's name.
        name: &'static str,
        /// Its value, if it is set.
        value: Option<String>,
        /// What is wrong with it.
        problem: String,
    },
    /// The configuration contradicts itself.
    #[error("{detail}")]
    Config {
        /// What is wrong, with the value.
        detail: String,
    },
    /// A host name has no address.
    #[error("{host} does not resolve to an address after {}", Seconds(elapsed))]
    Resolve {
        /// The name and port.
        host: String,
        /// For how long it was tried.
        elapsed: Duration,
        /// The resolver's answer.
        source: io::Error,
    },
    /// Another process listens there.
    #[error("{address} is in use: another process listens on port {} already", address.port())]
    AddressInUse {
        /// The address that this rank had to listen at.
        address: SocketAddr,
    },
    /// This rank cannot listen where it has to.
    #[error("cannot listen at {address}")]
    Bind {
        /// The address.
        address: SocketAddr,
        /// The system's error.
        source: io::Error,
    },
    /// Rank 0 was not there.
    #[error("rank 0 cannot be reached at {address} after {}", Seconds(elapsed))]
    Unreachable {
        /// Where rank 0 was expected.
        address: String,
        /// For how long it was tried.
        elapsed: Duration,
        /// The outcome of the last attempt.
        source: io::Error,
    },
    /// Rank 0 does not take this process into the world.
    #[error("rank 0 at {address} refused this process: {reason}")]
    Refused {
        /// Where rank 0 listens.
        address: SocketAddr,
        /// Why, in rank 0's words.
        reason: String,
    },
    /// Some ranks did not appear in time. All that did get the same list.
    #[error("{}", Missing(ranks, *world_size, elapsed, note))]
    Missing {
        /// The ranks that are missing, in ascending order.
        ranks: Vec<Rank>,
        /// The size of the world.
        world_size: usize,
        /// For how long rank 0 waited for them.
        elapsed: Duration,
        /// What rank 0 knows beside: whose patience ended, which connections it refused and why.
        note: String,
    },
    /// The rendezvous ended for another reason.
    #[error("the rendezvous failed: {reason}")]
    Failed {
        /// What happened; the same words on all ranks that rank 0 could still tell.
        reason: String,
    },
    /// The system failed this process.
    #[error("{detail} failed")]
    Io {
        /// What was being done.
        detail: String,
        /// The system's error.
        source: io::Error,
    },
}

/// The variants of [`enum@Error`], for matching without their contents.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum ErrorKind {
    /// See [`Error::Variable`].
    Variable,
    /// See [`Error::Config`].
    Config,
    /// See [`Error::Resolve`].
    Resolve,
    /// See [`Error::AddressInUse`].
    AddressInUse,
    /// See [`Error::Bind`].
    Bind,
    /// See [`Error::Unreachable`].
    Unreachable,
    /// See [`Error::Refused`].
    Refused,
    /// See [`Error::Missing`].
    Missing,
    /// See [`Error::Failed`].
    Failed,
    /// See [`Error::Io`].
    Io,
}

impl Error {
    /// Which kind of error this is.
    #[must_use]
    pub const fn kind(&self) -> ErrorKind {
        match self {
            Self::Variable { .. } => ErrorKind::Variable,
            Self::Config { .. } => ErrorKind::Config,
            Self::Resolve { .. } => ErrorKind::Resolve,
            Self::AddressInUse { .. } => ErrorKind::AddressInUse,
            Self::Bind { .. } => ErrorKind::Bind,
            Self::Unreachable { .. } => ErrorKind::Unreachable,
            Self::Refused { .. } => ErrorKind::Refused,
            Self::Missing { .. } => ErrorKind::Missing,
            Self::Failed { .. } => ErrorKind::Failed,
            Self::Io { .. } => ErrorKind::Io,
        }
    }

    pub(crate) fn io(detail: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Io { detail: detail.into(), source }
    }
}

struct Variable<'a>(&'a str, Option<&'a str>);

impl fmt::Display for Variable<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.1 {
            Some(value) => write!(f, "{}={value:?}: ", self.0),
            None => write!(f, "{} is not set: ", self.0),
        }
    }
}

struct Seconds<'a>(&'a Duration);

impl fmt::Display for Seconds<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.1} s", self.0.as_secs_f64())
    }
}

struct Missing<'a>(&'a [Rank], usize, &'a Duration, &'a str);

impl fmt::Display for Missing<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(ranks, world_size, elapsed, note) = self;
        let (plural, list) = (if ranks.len() == 1 { "" } else { "s" }, list(ranks));
        write!(f, "rank{plural} {list} of {world_size} did not appear within {}", Seconds(elapsed))?;
        if note.is_empty() { Ok(()) } else { write!(f, " ({note})") }
    }
}

/// "1", "1 and 2", "1, 2 and 3"; long lists are cut.
pub(crate) fn list(ranks: &[Rank]) -> String {
    const SHOWN: usize = 20;
    let mut words: Vec<String> = ranks.iter().take(SHOWN).map(ToString::to_string).collect();
    if ranks.len() > SHOWN {
        words.push(format!("{} more", ranks.len() - SHOWN));
    }
    match words.split_last() {
        None => String::new(),
        Some((last, [])) => last.clone(),
        Some((last, rest)) => format!("{} and {last}", rest.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_name_what_is_concerned() {
        let missing = |ranks: &[u32], note: &str| Error::Missing {
            ranks: ranks.iter().copied().map(Rank).collect(),
            world_size: 8,
            elapsed: Duration::from_millis(30_040),
            note: note.into(),
        };
        assert_eq!(missing(&[2], "").to_string(), "rank 2 of 8 did not appear within 30.0 s");
        assert_eq!(
            missing(&[2, 3, 5], "rank 1 waits no longer").to_string(),
            "ranks 2, 3 and 5 of 8 did not appear within 30.0 s (rank 1 waits no longer)"
        );
        let variable = |value: Option<&str>| Error::Variable {
            name: "RANK",
            value: value.map(Into::into),
            problem: "not a number".into(),
        };
        assert_eq!(variable(Some("x")).to_string(), "RANK=\"x\": not a number");
        assert_eq!(variable(None).to_string(), "RANK is not set: not a number");
    }

    #[test]
    fn a_long_list_is_cut() {
        let ranks: Vec<Rank> = (0..25).map(Rank).collect();
        assert!(list(&ranks).ends_with("18, 19 and 5 more"));
    }
}
