//! One rank's view of the world: what its threads share.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use transport::{Error, Rank, Scope};

use crate::engine::Engine;
use crate::guard::{Guard, Refusal};

pub(crate) struct World {
    pub(crate) rank: Rank,
    pub(crate) size: usize,
    pub(crate) start: Instant,
    /// Somebody takes leave already.
    pub(crate) leaving: AtomicBool,
    pub(crate) engine: Guard<Engine>,
}

impl World {
    /// Whether the caller is the one to take leave.
    pub(crate) fn begin_leave(&self) -> bool {
        !self.leaving.swap(true, Ordering::AcqRel)
    }

    pub(crate) fn check(&self, peer: Rank) -> Result<(), Error> {
        if peer.index() < self.size {
            return Ok(());
        }
        Err(Error::NoSuchRank { rank: peer, world_size: self.size })
    }

    /// Uses the engine, if this thread may call MPI.
    #[inline]
    pub(crate) fn with_engine<R>(&self, f: impl FnOnce(&mut Engine) -> R) -> Result<R, Error> {
        let (result, later) = self.engine.with(|engine| (f(engine), engine.later.take())).map_err(refused)?;
        if let Some(later) = later {
            later.run();
        }
        Ok(result)
    }

    /// Uses the engine; if this thread may not, one does that may.
    pub(crate) fn ask(&self, errand: impl FnOnce(&mut Engine) + Send + 'static) {
        if self.engine.is_free() {
            // It is not refused.
            let _ = self.with_engine(errand);
        } else {
            self.engine.leave(errand);
        }
    }

    /// Ends a scope, here and everywhere.
    pub(crate) fn abort(&self, scope: Scope, reason: &str) {
        let (rank, reason) = (self.rank, matching::shorten(reason).to_owned());
        self.ask(move |engine| engine.abort(rank, scope, &reason));
    }
}

#[cold]
fn refused(refusal: Refusal) -> Error {
    let detail = match refusal {
        Refusal::Thread => {
            "MPI was initialised for calls from its main thread only: use the transport on that thread, or \
             initialise MPI with MPI_THREAD_SERIALIZED or MPI_THREAD_MULTIPLE"
        }
        Refusal::Busy => "the transport is used by what it calls: by the end of a message's memory",
    };
    Error::Unsupported { detail: detail.into() }
}
