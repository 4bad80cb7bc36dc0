use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use transport::{Rank, Scope};

/// Why a collective failed.
///
/// Except after [`Error::InvalidArgument`], which refuses a call before anything was sent, the
/// communicator is of no more use: every later collective on it fails with [`Error::Poisoned`], on
/// every rank. Other contexts of the same transport go on. Inputs are never modified. Ranks are those of the transport,
/// also in errors of a communicator of some ranks, which numbers them otherwise.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The call cannot be carried out; nothing was sent.
    #[error("{detail}")]
    InvalidArgument {
        /// What is wrong with the call.
        detail: String,
    },
    /// Two ranks did not call the same collective.
    #[error("the ranks do not call the same collective: {detail}")]
    Mismatch {
        /// The rank whose call differs from this rank's.
        peer: Rank,
        /// Which ranks differ, and how.
        detail: String,
    },
    /// A rank died, left, or fell silent.
    #[error("{source}")]
    PeerLost {
        /// The rank that is gone.
        peer: Rank,
        /// The transport's report.
        source: transport::Error,
    },
    /// The collective did not end within its deadline.
    #[error("{operation} did not end within {after:?}: rank {rank} still waits for {}", list(waiting_for))]
    Timeout {
        /// This rank.
        rank: Rank,
        /// What was called.
        operation: String,
        /// The ranks that this rank still waits for.
        waiting_for: Vec<Rank>,
        /// The deadline.
        after: Duration,
    },
    /// A rank sent what does not decode.
    #[error("rank {peer} sent a malformed message: {detail}")]
    Malformed {
        /// The sender.
        peer: Rank,
        /// What is wrong with the message.
        detail: String,
    },
    /// A sum does not fit its type, or a value cannot be quantized.
    #[error("on rank {rank}: {detail}")]
    Value {
        /// The rank on which the value stands.
        rank: Rank,
        /// Which value, and why.
        detail: String,
    },
    /// The future of a collective was dropped before its end.
    #[error("rank {rank} dropped {operation} before its end")]
    Dropped {
        /// The rank that dropped it.
        rank: Rank,
        /// What was called.
        operation: String,
    },
    /// Another rank failed and said so.
    #[error("rank {by} reports: {detail}")]
    Remote {
        /// The rank that reports.
        by: Rank,
        /// The kind of its error.
        kind: ErrorKind,
        /// The rank which that error is about, where there is one.
        peer: Option<Rank>,
        /// Its error, in words.
        detail: String,
    },
    /// The transport failed on this rank.
    #[error("{0}")]
    Transport(#[source] transport::Error),
    /// An earlier collective on this communicator failed.
    #[error("the communicator is of no more use after an earlier error: {cause}")]
    Poisoned {
        /// The earlier error.
        #[source]
        cause: Arc<Error>,
    },
}

/// The variants of [`Error`], for matching without their contents.
///
/// [`Error::Remote`] has the kind of the error that the other rank reports.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum ErrorKind {
    /// See [`Error::InvalidArgument`].
    InvalidArgument,
    /// See [`Error::Mismatch`].
    Mismatch,
    /// See [`Error::PeerLost`].
    PeerLost,
    /// See [`Error::Timeout`].
    Timeout,
    /// See [`Error::Malformed`].
    Malformed,
    /// See [`Error::Value`].
    Value,
    /// See [`Error::Dropped`].
    Dropped,
    /// The application aborted the transport.
    Aborted,
    /// See [`Error::Transport`].
    Transport,
    /// See [`Error::Poisoned`].
    Poisoned,
}

/// The kinds that a report to the other ranks can carry, by their names in the reason of an abort.
const REPORTED: [(ErrorKind, &str); 7] = [
    (ErrorKind::Mismatch, "mismatch"),
    (ErrorKind::PeerLost, "lost"),
    (ErrorKind::Timeout, "timeout"),
    (ErrorKind::Malformed, "malformed"),
    (ErrorKind::Value, "value"),
    (ErrorKind::Dropped, "dropped"),
    (ErrorKind::Transport, "transport"),
];

impl Error {
    /// Which kind of error this is.
    #[must_use]
    pub const fn kind(&self) -> ErrorKind {
        match self {
            Self::InvalidArgument { .. } => ErrorKind::InvalidArgument,
            Self::Mismatch { .. } => ErrorKind::Mismatch,
            Self::PeerLost { .. } => ErrorKind::PeerLost,
            Self::Timeout { .. } => ErrorKind::Timeout,
            Self::Malformed { .. } => ErrorKind::Malformed,
            Self::Value { .. } => ErrorKind::Value,
            Self::Dropped { .. } => ErrorKind::Dropped,
            Self::Remote { kind, .. } => *kind,
            Self::Transport(_) => ErrorKind::Transport,
            Self::Poisoned { .. } => ErrorKind::Poisoned,
        }
    }

    /// The rank that the error is about, where there is one.
    #[must_use]
    pub fn peer(&self) -> Option<Rank> {
        match self {
            Self::Mismatch { peer, .. } | Self::PeerLost { peer, .. } | Self::Malformed { peer, .. } => {
                Some(*peer)
            }
            Self::Value { rank, .. } | Self::Dropped { rank, .. } => Some(*rank),
            Self::Timeout { waiting_for, .. } => waiting_for.first().copied(),
            Self::Remote { peer, by, .. } => Some(peer.unwrap_or(*by)),
            Self::Transport(source) => source.peer(),
            Self::Poisoned { cause } => cause.peer(),
            Self::InvalidArgument { .. } => None,
        }
    }

    pub(crate) fn invalid(detail: impl Into<String>) -> Self {
        Self::InvalidArgument { detail: detail.into() }
    }

    /// An error of this rank's own values: an overflow, or what cannot be quantized.
    pub(crate) fn value(rank: usize, source: impl std::fmt::Display) -> Self {
        Self::Value { rank: Rank::from_index(rank), detail: source.to_string() }
    }

    pub(crate) fn malformed(peer: usize, source: impl std::fmt::Display) -> Self {
        Self::Malformed { peer: Rank::from_index(peer), detail: source.to_string() }
    }

    /// This error as the reason of an abort, from which the other ranks make [`Error::Remote`].
    pub(crate) fn to_reason(&self) -> String {
        let kind = self.kind();
        let name =
            REPORTED.iter().find(|(reported, _)| *reported == kind).map_or("transport", |(_, name)| name);
        match self.peer() {
            Some(peer) => format!("{name} {peer}: {self}"),
            None => format!("{name}: {self}"),
        }
    }

    fn from_reason(by: Rank, scope: Scope, reason: String) -> Self {
        let parsed = reason.split_once(": ").and_then(|(head, detail)| {
            let (name, peer) = match head.split_once(' ') {
                Some((name, peer)) => (name, Some(Rank(peer.parse().ok()?))),
                None => (head, None),
            };
            let (kind, _) = REPORTED.iter().find(|(_, reported)| *reported == name)?;
            Some((*kind, peer, detail.to_owned()))
        });
        match (scope, parsed) {
            (Scope::Context(_), Some((kind, peer, detail))) => Self::Remote { by, kind, peer, detail },
            _ => Self::Remote { by, kind: ErrorKind::Aborted, peer: None, detail: reason },
        }
    }
}

impl From<transport::Error> for Error {
    fn from(error: transport::Error) -> Self {
        match error {
            transport::Error::Aborted { by, scope, reason } => Self::from_reason(by, scope, reason),
            transport::Error::PeerLost { peer, .. } => Self::PeerLost { peer, source: error },
            transport::Error::Protocol { peer, ref detail } => {
                Self::Malformed { peer, detail: detail.clone() }
            }
            other => Self::Transport(other),
        }
    }
}

/// "rank 3", "ranks 1 and 3", "ranks 0, 1 and 3".
pub(crate) fn list(ranks: &[Rank]) -> String {
    let mut text = String::from(if ranks.len() == 1 { "rank " } else { "ranks " });
    for (i, rank) in ranks.iter().enumerate() {
        let separator = match i {
            0 => "",
            _ if i + 1 == ranks.len() => " and ",
            _ => ", ",
        };
        // Writing to a String cannot fail.
        let _ = write!(text, "{separator}{rank}");
    }
    if ranks.is_empty() { "no rank".into() } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_keeps_kind_rank_and_words() {
        let error = Error::Mismatch { peer: Rank(3), detail: "rank 3 has dimension 5: rank 0 has 4".into() };
        let remote = Error::from_reason(Rank(1), Scope::Context(7), error.to_reason());
        assert_eq!((remote.kind(), remote.peer()), (ErrorKind::Mismatch, Some(Rank(3))));
        assert!(remote.to_string().contains("rank 3 has dimension 5: rank 0 has 4"), "{remote}");

        let timeout = Error::Timeout {
            rank: Rank(0),
            operation: "barrier".into(),
            waiting_for: vec![],
            after: Duration::from_secs(1),
        };
        assert_eq!(
            Error::from_reason(Rank(0), Scope::Context(0), timeout.to_reason()).kind(),
            ErrorKind::Timeout
        );
    }

    #[test]
    fn a_reason_of_the_application_is_kept_whole() {
        for reason in ["", "out of memory", "lost cause: none", "lost 3x: y"] {
            let error = Error::from_reason(Rank(2), Scope::World, reason.into());
            assert_eq!((error.kind(), error.peer()), (ErrorKind::Aborted, Some(Rank(2))));
            assert!(error.to_string().ends_with(reason));
        }
    }

    #[test]
    fn ranks_are_listed_in_words() {
        let listed = |ranks: &[u32]| list(&ranks.iter().map(|r| Rank(*r)).collect::<Vec<_>>());
        assert_eq!(
            [listed(&[]), listed(&[3]), listed(&[1, 3]), listed(&[0, 1, 3])],
            ["no rank", "rank 3", "ranks 1 and 3", "ranks 0, 1 and 3"]
        );
    }
}
