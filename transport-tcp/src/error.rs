use std::net::SocketAddr;
use std::time::Duration;

use transport::Rank;

/// Why a [`TcpTransport`](crate::TcpTransport) could not be set up. Nothing is left behind.
///
/// What goes wrong later is a [`transport::Error`].
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The ranks did not find each other.
    #[error(transparent)]
    Bootstrap(#[from] bootstrap::Error),
    /// The options make no sense.
    #[error("{detail}")]
    Options {
        /// What is wrong, with the value.
        detail: String,
    },
    /// This rank cannot listen for its peers.
    #[error("cannot listen for peers at {address}")]
    Listen {
        /// Where it had to listen.
        address: SocketAddr,
        /// The system's error.
        source: std::io::Error,
    },
    /// The connection to a rank that was at the rendezvous did not come about.
    #[error("no connection to rank {peer} after {:.1} s: {detail}", elapsed.as_secs_f64())]
    Peer {
        /// The other rank.
        peer: Rank,
        /// For how long it was tried, from the start of the rendezvous.
        elapsed: Duration,
        /// What happened, with the address where there is one.
        detail: String,
    },
    /// The system refused a thread, a socket or the like.
    #[error("{detail} failed")]
    System {
        /// What was being done.
        detail: String,
        /// The system's error.
        source: std::io::Error,
    },
}

/// The variants of [`enum@Error`], for matching without their contents.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum ErrorKind {
    /// See [`Error::Bootstrap`].
    Bootstrap,
    /// See [`Error::Options`].
    Options,
    /// See [`Error::Listen`].
    Listen,
    /// See [`Error::Peer`].
    Peer,
    /// See [`Error::System`].
    System,
}

impl Error {
    /// Which kind of error this is.
    #[must_use]
    pub const fn kind(&self) -> ErrorKind {
        match self {
            Self::Bootstrap(_) => ErrorKind::Bootstrap,
            Self::Options { .. } => ErrorKind::Options,
            Self::Listen { .. } => ErrorKind::Listen,
            Self::Peer { .. } => ErrorKind::Peer,
            Self::System { .. } => ErrorKind::System,
        }
    }

    /// The other rank concerned, where there is one.
    #[must_use]
    pub const fn peer(&self) -> Option<Rank> {
        match self {
            Self::Peer { peer, .. } => Some(*peer),
            _ => None,
        }
    }

    pub(crate) fn system(detail: &str) -> impl FnOnce(std::io::Error) -> Self {
        let detail = detail.to_owned();
        move |source| Self::System { detail, source }
    }
}
