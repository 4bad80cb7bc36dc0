//! One rank's view of the world: its links, and what concerns all of them.

use std::net::Shutdown;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use matching::{Aborts, gone, shorten};
use transport::{Error, Rank, Scope};

use crate::link::Link;
use crate::options::Limits;
use crate::timers::Timers;

#[derive(Debug)]
pub(crate) struct World {
    pub(crate) rank: Rank,
    /// By rank; this rank's own is the link to itself.
    pub(crate) links: Vec<Arc<Link>>,
    pub(crate) own: Limits,
    pub(crate) aborts: Arc<Aborts>,
    pub(crate) timers: Arc<Timers>,
    pub(crate) start: Instant,
}

impl World {
    pub(crate) fn link(&self, rank: Rank) -> Result<&Arc<Link>, Error> {
        let world_size = self.links.len();
        self.links.get(rank.index()).ok_or(Error::NoSuchRank { rank, world_size })
    }

    /// Ends a scope that a rank aborted, here and everywhere. What a peer aborted is passed on: this rank may
    /// give up and leave before the others have heard it from there, and must not seem lost to them.
    pub(crate) fn abort(&self, by: Rank, scope: Scope, reason: &str) {
        let reason = shorten(reason);
        if self.aborts.note(scope, by, reason) {
            tracing::debug!(%scope, by = by.0, reason, "aborted");
            let bytes = Bytes::copy_from_slice(reason.as_bytes());
            self.links.iter().for_each(|link| link.abort(by, scope, &bytes));
        }
    }

    /// Ends what is left when the transport is gone.
    pub(crate) fn end(&self) {
        let error = gone();
        self.links.iter().for_each(|link| link.end(&error, Shutdown::Both));
        self.timers.end();
    }
}
