//! One rank's view of the world: what its threads share.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use matching::lock;
use transport::{Error, Rank, Scope};

use crate::engine::Engine;

/// How often a pending future tries to make progress before it lets others have the thread.
const TURNS: usize = 16;

pub(crate) struct World {
    pub(crate) rank: Rank,
    pub(crate) size: usize,
    /// The only thread that may call MPI, where that matters.
    pub(crate) main: Option<Thread>,
    pub(crate) start: Instant,
    /// Somebody takes leave already.
    pub(crate) leaving: AtomicBool,
    pub(crate) engine: Mutex<Engine>,
}

impl World {
    /// Whether the caller is the one to take leave.
    pub(crate) fn begin_leave(&self) -> bool {
        !self.leaving.swap(true, Ordering::AcqRel)
    }

    /// Refuses ranks that do not exist, and threads that may not call MPI.
    pub(crate) fn check(&self, peer: Rank) -> Result<(), Error> {
        if peer.index() >= self.size {
            return Err(Error::NoSuchRank { rank: peer, world_size: self.size });
        }
        self.check_thread()
    }

    /// Refuses the threads that may not call MPI.
    pub(crate) fn check_thread(&self) -> Result<(), Error> {
        if Thread::may_call(self.main) {
            return Ok(());
        }
        Err(Error::Unsupported {
            detail: "MPI was initialised for calls from its main thread only: use the transport on that thread, or \
                     initialise MPI with MPI_THREAD_SERIALIZED or MPI_THREAD_MULTIPLE"
                .into(),
        })
    }

    /// Tries, makes some progress, tries again.
    pub(crate) fn attempt<R>(&self, mut attempt: impl FnMut(&mut Engine) -> Option<R>) -> Option<R> {
        self.with_engine(|engine| {
            attempt(engine)
                .or_else(|| (0..TURNS).find_map(|_| if engine.turn() { attempt(engine) } else { None }))
        })
    }

    pub(crate) fn progress(&self) {
        self.attempt(|_| None::<()>);
    }

    pub(crate) fn with_engine<R>(&self, f: impl FnOnce(&mut Engine) -> R) -> R {
        let mut engine = lock(&self.engine);
        let result = f(&mut engine);
        let later = engine.later.take();
        drop(engine);
        later.run();
        result
    }

    /// Ends a scope, here and everywhere.
    pub(crate) fn abort(&self, scope: Scope, reason: &str) {
        self.with_engine(|engine| engine.abort(self.rank, scope, matching::shorten(reason)));
    }
}

/// A thread's number, unlike that of any other one of the process.
///
/// The standard library's costs a counted reference at each look.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Thread(u64);

impl Thread {
    pub(crate) fn current() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        thread_local!(static OWN: u64 = NEXT.fetch_add(1, Ordering::Relaxed));
        Self(OWN.with(|own| *own))
    }

    /// Whether this thread may call MPI, where only `main` may if there is one.
    pub(crate) fn may_call(main: Option<Self>) -> bool {
        main.is_none_or(|main| main == Self::current())
    }
}
