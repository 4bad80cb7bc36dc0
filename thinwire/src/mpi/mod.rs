//! The world that mpirun has started.

#[cfg(feature = "mpi")]
mod rendezvous;
#[cfg(feature = "mpi")]
#[allow(unsafe_code, reason = "the safe bindings leave MPI's tool interface out")]
pub(crate) mod tuned;

use std::time::Duration;

use crate::error::Error;
use crate::ranks::Entrance;

/// What MPI is used for, beside starting the ranks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Use {
    /// The transport.
    Transport,
    /// Collectives of its own, beside a transport over TCP.
    Peers,
    /// Both.
    TransportAndPeers,
}

/// The communicator of all ranks.
#[cfg(feature = "mpi")]
pub(crate) type World = ::mpi::topology::SimpleCommunicator;

/// Without the feature there is none.
#[cfg(not(feature = "mpi"))]
pub(crate) enum World {}

/// Does this rank's work in the world of MPI, which has to have as many ranks as the user asked for, if he did.
///
/// When the work fails, the whole world is ended, with the error's exit code: the others may wait for this rank where
/// nothing tells them that it is gone.
#[cfg(feature = "mpi")]
pub(crate) fn enter<R>(
    usage: Use,
    option: &str,
    asked: Option<usize>,
    timeout: Option<Duration>,
    work: impl FnOnce(Entrance<'_>) -> Result<R, Error>,
) -> Result<R, Error> {
    use ::mpi::Threading;
    use ::mpi::traits::Communicator as _;
    use transport::{AnyTransport, Rank};
    use transport_mpi::MpiTransport;
    use transport_tcp::TcpTransport;

    use crate::error::When as _;

    if usage != Use::Transport {
        tuned::allow_choice();
    }
    // A transport over TCP has a thread of its own, which calls no MPI.
    let (universe, _) = ::mpi::initialize_with_threading(Threading::Funneled)
        .ok_or_else(|| Error::setup("MPI is initialised already"))?;
    let communicator = universe.world();
    let (rank, world_size) =
        (communicator.rank().unsigned_abs(), communicator.size().unsigned_abs() as usize);
    let work = || {
        if let Some(ranks) = asked.filter(|ranks| *ranks != world_size) {
            return Err(Error::setup(format!(
                "{option} {ranks} contradicts mpirun, which has started {world_size}: leave one of them out"
            )));
        }
        let connect = &mut || {
            Ok(match usage {
                Use::Peers => {
                    let config = rendezvous::config(&communicator, timeout)?;
                    let connect = || TcpTransport::connect(&config, &transport_tcp::Options::default());
                    AnyTransport::new(beside(&communicator, connect)?.setup()?)
                }
                Use::Transport | Use::TransportAndPeers => AnyTransport::new(
                    MpiTransport::new(&communicator, &transport_mpi::Options::default()).setup()?,
                ),
            })
        };
        let peers = (usage != Use::Transport).then_some(&communicator);
        work(Entrance { rank: Rank(rank), world_size, connect, peers })
    };
    let result = work();
    if let Err(error) = &result
        && world_size > 1
    {
        crate::complain(error);
        communicator.abort(i32::from(error.exit_code()));
    }
    result
}

/// Lets MPI move what it has taken from this rank and others may still wait for.
#[cfg(feature = "mpi")]
pub(crate) fn progress(world: &World) {
    use ::mpi::point_to_point::Source as _;
    use ::mpi::traits::Communicator as _;

    // Nobody sends such messages: looking for one is what makes MPI move.
    let _ = world.any_process().immediate_probe();
}

/// Waits for other ranks without MPI, on a thread of its own, while MPI moves on.
#[cfg(feature = "mpi")]
fn beside<R: Send>(world: &World, wait: impl FnOnce() -> R + Send) -> Result<R, Error> {
    use std::panic::resume_unwind;
    use std::thread;

    use crate::error::When as _;

    thread::scope(|scope| {
        let thread = thread::Builder::new().name("connect".into()).spawn_scoped(scope, wait).setup()?;
        while !thread.is_finished() {
            progress(world);
            thread::sleep(Duration::from_millis(1));
        }
        thread.join().map_err(|panic| resume_unwind(panic))
    })
}

/// Without the feature there is no MPI.
#[cfg(not(feature = "mpi"))]
pub(crate) fn enter<R>(
    _usage: Use,
    _option: &str,
    _asked: Option<usize>,
    _timeout: Option<Duration>,
    _work: impl FnOnce(Entrance<'_>) -> Result<R, Error>,
) -> Result<R, Error> {
    Err(Error::setup(
        "this program was built without MPI: build it with `cargo build --release --features mpi`, on a machine with \
         an MPI (mpicc) and libclang",
    ))
}
