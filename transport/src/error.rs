use std::error::Error as StdError;
use std::sync::Arc;

use crate::{Rank, Scope};

/// Why an operation did not complete.
///
/// Errors are cloned to every operation they end, hence the shared source.
///
/// What is still usable afterwards: after [`Error::PeerLost`] everything that does not need that
/// peer; after [`Error::Aborted`] everything outside the aborted scope; after
/// [`Error::NoSuchRank`], [`Error::TooLarge`] and [`Error::Unsupported`] everything, since the
/// operation was refused before it began; after [`Error::Protocol`] what [`Error::PeerLost`]
/// leaves, since the connection to the offender is closed; after [`Error::Backend`] nothing.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The peer died, left, or was silent for longer than the failure detector allows.
    #[error("rank {peer} is lost: {detail}")]
    PeerLost {
        /// The rank that is gone.
        peer: Rank,
        /// How that was noticed.
        detail: String,
        /// The system's own error, where there was one.
        source: Option<Arc<dyn StdError + Send + Sync>>,
    },
    /// Some rank called [`abort`](crate::Transport::abort).
    #[error("rank {by} aborted {scope}: {reason}")]
    Aborted {
        /// The rank that called `abort`.
        by: Rank,
        /// What it ended.
        scope: Scope,
        /// The reason it gave.
        reason: String,
    },
    /// The rank is not in `0..world_size`.
    #[error("there is no rank {rank} in a world of {world_size}")]
    NoSuchRank {
        /// The rank asked for.
        rank: Rank,
        /// The size of the world.
        world_size: usize,
    },
    /// The payload exceeds what the back end was configured to carry.
    #[error("a message of {length} bytes to rank {peer} exceeds the limit of {limit}")]
    TooLarge {
        /// The receiver.
        peer: Rank,
        /// The payload's length in bytes.
        length: u64,
        /// The configured limit in bytes.
        limit: u64,
    },
    /// The peer sent what the back end's protocol does not allow.
    #[error("rank {peer} broke the protocol: {detail}")]
    Protocol {
        /// The offender.
        peer: Rank,
        /// What it did.
        detail: String,
    },
    /// The back end cannot do this here (for example: called from a thread that may not call MPI).
    #[error("not possible here: {detail}")]
    Unsupported {
        /// What was asked for, why it is impossible, and what to do instead.
        detail: String,
    },
    /// The back end itself failed on this rank.
    #[error("the transport failed: {detail}")]
    Backend {
        /// What failed.
        detail: String,
        /// The system's own error, where there was one.
        source: Option<Arc<dyn StdError + Send + Sync>>,
    },
}

/// The variants of [`Error`], for matching without their contents.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum ErrorKind {
    /// See [`Error::PeerLost`].
    PeerLost,
    /// See [`Error::Aborted`].
    Aborted,
    /// See [`Error::NoSuchRank`].
    NoSuchRank,
    /// See [`Error::TooLarge`].
    TooLarge,
    /// See [`Error::Protocol`].
    Protocol,
    /// See [`Error::Unsupported`].
    Unsupported,
    /// See [`Error::Backend`].
    Backend,
}

impl Error {
    /// Which kind of error this is.
    #[must_use]
    pub const fn kind(&self) -> ErrorKind {
        match self {
            Self::PeerLost { .. } => ErrorKind::PeerLost,
            Self::Aborted { .. } => ErrorKind::Aborted,
            Self::NoSuchRank { .. } => ErrorKind::NoSuchRank,
            Self::TooLarge { .. } => ErrorKind::TooLarge,
            Self::Protocol { .. } => ErrorKind::Protocol,
            Self::Unsupported { .. } => ErrorKind::Unsupported,
            Self::Backend { .. } => ErrorKind::Backend,
        }
    }

    /// The other rank concerned, where there is one.
    #[must_use]
    pub const fn peer(&self) -> Option<Rank> {
        match self {
            Self::PeerLost { peer, .. } | Self::TooLarge { peer, .. } | Self::Protocol { peer, .. } => {
                Some(*peer)
            }
            Self::Aborted { by, .. } => Some(*by),
            Self::NoSuchRank { rank, .. } => Some(*rank),
            Self::Unsupported { .. } | Self::Backend { .. } => None,
        }
    }

    /// A lost peer, without a system error behind it.
    #[must_use]
    pub fn peer_lost(peer: Rank, detail: impl Into<String>) -> Self {
        Self::PeerLost { peer, detail: detail.into(), source: None }
    }

    /// A failure of the back end on this rank, with the system's error.
    #[must_use]
    pub fn backend(detail: impl Into<String>, source: impl StdError + Send + Sync + 'static) -> Self {
        Self::Backend { detail: detail.into(), source: Some(Arc::new(source)) }
    }

    /// Refuses ranks that are not of the world: for the first line of `send` and `recv`.
    ///
    /// # Errors
    /// [`Error::NoSuchRank`].
    pub const fn check_rank(rank: Rank, world_size: usize) -> Result<(), Self> {
        if rank.index() < world_size { Ok(()) } else { Err(Self::NoSuchRank { rank, world_size }) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_names_its_peer_and_keeps_its_source() {
        let system = std::io::Error::from(std::io::ErrorKind::ConnectionReset);
        let error = Error::PeerLost {
            peer: Rank(3),
            detail: "connection reset".into(),
            source: Some(Arc::new(system)),
        };
        assert_eq!(error.kind(), ErrorKind::PeerLost);
        assert_eq!(error.peer(), Some(Rank(3)));
        assert_eq!(error.to_string(), "rank 3 is lost: connection reset");
        assert!(StdError::source(&error).is_some());
    }

    #[test]
    fn a_rank_outside_the_world_is_refused() {
        assert!(Error::check_rank(Rank(3), 4).is_ok());
        assert_eq!(
            Error::check_rank(Rank(4), 4).map_err(|e| e.to_string()),
            Err("there is no rank 4 in a world of 4".into())
        );
    }
}
