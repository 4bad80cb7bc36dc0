//! One rank's view of the world: what its threads share.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, TryLockError};
use std::task::Waker;
use std::thread::{self, ThreadId};
use std::time::Instant;

use bytes::Bytes;
use matching::{Aborts, Completion, Effects, Inbox, Posted, lock};
use transport::{Error, Rank, Scope, Tag};

use crate::engine::Engine;
use crate::frame::MAX_REASON;

/// How often a pending future tries to make progress before it lets others have the thread.
const TURNS: usize = 16;

pub(crate) struct World {
    pub(crate) rank: Rank,
    /// By rank; this rank's own holds what it sends to itself.
    pub(crate) inboxes: Vec<Inbox>,
    /// By rank, what of the window was consumed and the peer does not know yet.
    pub(crate) owed: Vec<AtomicU64>,
    /// So much may be owed before the peer is told by a message of its own.
    pub(crate) owed_limit: u64,
    pub(crate) aborts: Arc<Aborts>,
    /// The only thread that may call MPI, where that matters.
    pub(crate) main: Option<ThreadId>,
    pub(crate) start: Instant,
    /// Somebody takes leave already.
    pub(crate) leaving: AtomicBool,
    pub(crate) engine: Mutex<Engine>,
}

impl World {
    pub(crate) fn inbox(&self, rank: Rank) -> Result<&Inbox, Error> {
        let world_size = self.inboxes.len();
        self.inboxes.get(rank.index()).ok_or(Error::NoSuchRank { rank, world_size })
    }

    /// Whether the caller is the one to take leave.
    pub(crate) fn begin_leave(&self) -> bool {
        !self.leaving.swap(true, Ordering::AcqRel)
    }

    /// Refuses the threads that may not call MPI.
    pub(crate) fn check_thread(&self) -> Result<(), Error> {
        match self.main {
            Some(main) if main != thread::current().id() => Err(Error::Unsupported {
                detail: "MPI was initialised for calls from its main thread only: use the transport on that thread, or \
                         initialise MPI with MPI_THREAD_SERIALIZED or MPI_THREAD_MULTIPLE"
                    .into(),
            }),
            _ => Ok(()),
        }
    }

    pub(crate) fn send(&self, to: Rank, tag: Tag, payload: Bytes) -> Posted {
        let inbox = self.inbox(to)?;
        self.check_thread()?;
        if to == self.rank {
            let (posted, effects) = inbox.post_own(to, tag, payload);
            self.settle(to, effects);
            return posted;
        }
        self.with_engine(|engine, later| engine.send(self, to, tag, payload, later))
    }

    pub(crate) fn post(&self, from: Rank, tag: Tag) -> Result<u64, Error> {
        let inbox = self.inbox(from)?;
        self.check_thread()?;
        let (ticket, effects) = inbox.post(tag);
        self.settle(from, effects);
        Ok(ticket)
    }

    /// Does what an inbox could not do under its lock.
    pub(crate) fn settle(&self, peer: Rank, effects: Effects) {
        let Effects { wake, fetch, credit, sent } = effects;
        Later { wake, sent }.run();
        if peer != self.rank && (self.owe(peer, credit) || !fetch.is_empty()) {
            self.with_engine(|engine, later| engine.request(self, peer, &fetch, later));
        }
    }

    /// Notes room that was given back. True: the peer should be told.
    pub(crate) fn owe(&self, peer: Rank, credit: u64) -> bool {
        credit > 0
            && self
                .owed
                .get(peer.index())
                .is_some_and(|owed| owed.fetch_add(credit, Ordering::Relaxed) + credit >= self.owed_limit)
    }

    /// Makes some progress, if this thread can and no other one does.
    pub(crate) fn progress(&self) {
        let mut later = Later::default();
        let mut engine: MutexGuard<'_, Engine> = match self.engine.try_lock() {
            Ok(engine) => engine,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return,
        };
        for _ in 0..TURNS {
            if engine.turn(self, &mut later) {
                break;
            }
        }
        drop(engine);
        later.run();
    }

    /// Ends a scope, here and everywhere.
    pub(crate) fn abort(&self, scope: Scope, reason: &str) {
        let mut end = reason.len().min(MAX_REASON);
        while !reason.is_char_boundary(end) {
            end -= 1;
        }
        let reason = reason.get(..end).unwrap_or_default();
        self.with_engine(|engine, later| engine.abort(self, self.rank, scope, reason, later));
    }

    pub(crate) fn with_engine<R>(&self, f: impl FnOnce(&mut Engine, &mut Later) -> R) -> R {
        let mut later = Later::default();
        let result = f(&mut lock(&self.engine), &mut later);
        later.run();
        result
    }
}

/// What must wait until the engine's lock is released, since it runs code of others.
#[derive(Default)]
pub(crate) struct Later {
    pub(crate) wake: Vec<Waker>,
    pub(crate) sent: Vec<(Arc<Completion>, Result<(), Error>)>,
}

impl Later {
    fn run(self) {
        self.sent.into_iter().for_each(|(sent, outcome)| sent.complete(outcome));
        self.wake.into_iter().for_each(Waker::wake);
    }
}

/// Why operations fail after the transport was dropped.
pub(crate) fn gone() -> Error {
    Error::Backend { detail: "the transport has been dropped on this rank".into(), source: None }
}
