//! The [`Transport`] on a communicator of an MPI program.
//!
//! [`MpiTransport::new`] takes a communicator that the program already has and duplicates it, so its messages never
//! meet the program's own, whatever their tags. MPI is used as it was initialised.
//!
//! ```no_run
//! use bytes::Bytes;
//! use mpi::traits::Communicator as _;
//! use transport::{Rank, Tag, Transport, block_on};
//! use transport_mpi::{MpiTransport, Options};
//!
//! let universe = mpi::initialize().expect("MPI was not initialised before");
//! let world = MpiTransport::new(&universe.world(), &Options::default())?;
//! let (tag, size) = (Tag::new(0, 7), world.world_size() as u32);
//! // Everybody's rank goes once round the ring.
//! let received = world.recv(Rank((world.rank().0 + size - 1) % size), tag);
//! let sent = world.send(Rank((world.rank().0 + 1) % size), tag, Bytes::from(vec![world.rank().0 as u8]));
//! block_on(sent)?;
//! println!("rank {} got {:?}", world.rank(), block_on(received)?);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Tested with Open MPI 4.1 and MPICH 4.0.
//!
//! # Threads
//!
//! MPI says at which level it was initialised. At `MPI_THREAD_MULTIPLE` every thread can use the transport. At
//! `MPI_THREAD_SERIALIZED` as well, while no other thread is in a call of MPI: the transport's own calls never are at
//! the same time, but it cannot see the program's. At `MPI_THREAD_FUNNELED` and `MPI_THREAD_SINGLE` only MPI's main
//! thread can; operations on another one end with [`transport::Error::Unsupported`].
//!
//! # Progress
//!
//! There is no helper thread: MPI moves while a future of the transport is polled, any of them. A pending future
//! wakes itself, so [`transport::block_on`] polls it again and again; on another executor it keeps a thread busy. A
//! rank that computes for long without polling lets others wait, as in any MPI program.
//!
//! # Lost ranks
//!
//! A rank that drops its transport takes leave of the others. A rank that dies is the MPI's affair: by default,
//! `mpirun` of Open MPI and of MPICH ends the whole job with it, and no error needs to be handled. An MPI that lets the
//! others live reports the loss, if at all, as a failed call, which ends the operations with that rank as
//! [`transport::Error::PeerLost`]; what MPI does not report ends by the deadline of the collective.
//!
//! When MPI is finalised before the transport is dropped, the transport takes leave first, and its operations end with
//! [`transport::Error::Backend`].

mod engine;
mod error;
mod finalize;
mod frame;
mod futures;
mod guard;
mod options;
mod raw;
mod world;

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use matching::{Limits, gone};
use mpi::traits::Communicator;
use transport::{Rank, Scope, Tag, Transport};

pub use error::{Error, ErrorKind, MpiError};
pub use options::Options;

use engine::{Engine, Terms};
use futures::{Receiving, Sending, Sleep};
use guard::{Guard, Thread};
use raw::Comm;
use world::World;

/// Both sides check that they speak the same protocol.
const VERSION: u64 = 1;

/// One rank of a world over MPI; cheap to clone, every clone the same rank.
///
/// Dropping the last clone is an orderly end: it waits until what was sent is out, up to a second for messages that
/// nobody has received yet, and up to ten for a peer that does not poll.
#[derive(Clone)]
pub struct MpiTransport {
    world: Arc<World>,
    _last: Arc<LastHandle>,
}

struct LastHandle(Arc<World>);

impl Drop for LastHandle {
    fn drop(&mut self) {
        if self.0.begin_leave() {
            engine::leave::leave(&self.0, &gone());
        }
    }
}

impl MpiTransport {
    /// A transport between the ranks of a communicator. Collective: all of its ranks call this, in the same order as
    /// other collective calls on it.
    ///
    /// # Errors
    /// [`Error::State`] when MPI is not initialised, already finalised, or may not be called on this thread, when the
    /// communicator connects two groups, or when another rank runs an incompatible version; [`Error::Options`];
    /// [`Error::Mpi`] when a call fails.
    pub fn new(communicator: &impl Communicator, options: &Options) -> Result<Self, Error> {
        options.validate()?;
        let state = |detail: &str| Err(Error::State { detail: detail.into() });
        if !raw::is_running() {
            return state("MPI is not initialised, or already finalised");
        }
        let (main_only, is_main) = raw::threads()?;
        if main_only && !is_main {
            return state(
                "MPI was initialised for calls from its main thread only: make the transport there, or initialise \
                 MPI with MPI_THREAD_SERIALIZED or MPI_THREAD_MULTIPLE",
            );
        }
        if Comm::is_inter(communicator)? {
            return state("the communicator connects two groups of ranks: merge them first");
        }
        engine::leave::sweep();
        let comm = Comm::duplicate(communicator)?;
        let (rank, size) = (Rank(comm.rank()?), comm.size()?);
        let own = [
            VERSION,
            options.eager_window,
            options.max_message,
            u64::from(options.max_waiting),
            u64::from(options.max_piece),
        ];
        let all = comm.allgather(own, size)?;
        if let Some(other) = all.iter().position(|[version, ..]| *version != VERSION) {
            return state(&format!("rank {other} runs another version of this transport"));
        }
        let terms = |[_, window, max_message, max_announced, _]: &[u64; 5]| Terms {
            window: *window,
            max_message: (*max_message).min(options.max_message),
            max_announced: u32::try_from(*max_announced).unwrap_or(u32::MAX),
        };
        let terms: Vec<_> = all.iter().map(terms).collect();
        let max_piece = all.iter().map(|[.., piece]| *piece).min().unwrap_or(u64::from(options.max_piece));
        let limits = Limits {
            window: options.eager_window,
            max_message: options.max_message,
            max_announced: options.max_waiting,
            max_part: u64::MAX,
        };
        let max_piece = usize::try_from(max_piece).unwrap_or(usize::MAX);
        let engine = Engine::start(comm, rank, limits, &terms, max_piece)?;
        let world = Arc::new(World {
            rank,
            size,
            start: Instant::now(),
            leaving: false.into(),
            engine: Guard::new(main_only.then(Thread::current), engine),
        });
        finalize::watch(&world)?;
        Ok(Self { _last: Arc::new(LastHandle(Arc::clone(&world))), world })
    }
}

impl fmt::Debug for MpiTransport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MpiTransport")
            .field("rank", &self.rank())
            .field("world_size", &self.world_size())
            .finish_non_exhaustive()
    }
}

impl Transport for MpiTransport {
    fn rank(&self) -> Rank {
        self.world.rank
    }

    fn world_size(&self) -> usize {
        self.world.size
    }

    fn send(
        &self,
        to: Rank,
        tag: Tag,
        payload: Bytes,
    ) -> impl Future<Output = Result<(), transport::Error>> + Send + use<> {
        Sending::new(&self.world, to, tag, payload)
    }

    fn recv(
        &self,
        from: Rank,
        tag: Tag,
    ) -> impl Future<Output = Result<Bytes, transport::Error>> + Send + use<> {
        Receiving::new(&self.world, from, tag)
    }

    fn abort(&self, scope: Scope, reason: &str) {
        self.world.abort(scope, reason);
    }

    fn now(&self) -> Duration {
        self.world.start.elapsed()
    }

    fn sleep(&self, duration: Duration) -> impl Future<Output = ()> + Send + use<> {
        Sleep::new(&self.world, duration)
    }
}
