//! The ranks of a command: where they run, and what they tell each other before and after the work.

use std::fmt;
use std::process::Command;
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use anyhow::Context as _;
use bootstrap::Config;
use bytes::Bytes;
use collectives::{Communicator, Progress};
use serde::Serialize;
use serde::de::DeserializeOwned;
use transport::{AnyTransport, Rank, block_on};
use transport_tcp::{Options, TcpTransport};

use crate::cli::TransportName;
use crate::error::{Error, When as _};
use crate::mpi::{self, Use};
use crate::process::watch;

/// How many ranks there are unless a world or the user says so.
const DEFAULT: usize = 4;

/// The variable by which rayon, and with it candle, learns how many threads to use.
pub(crate) const THREADS: &str = "RAYON_NUM_THREADS";

/// Where the ranks of a command run.
#[derive(Debug)]
pub(crate) enum Place {
    /// This process is one of them, in a world that somebody else has started.
    World(World),
    /// Threads of this process, so many.
    Threads(usize),
    /// Processes that are still to be started, so many.
    Processes(usize),
}

impl Place {
    /// Reads the environment, and refuses options that contradict it.
    ///
    /// `asked` is the number of ranks that the user gave, by `option`. With `peers`, MPI's collectives are wanted
    /// beside the transport.
    pub(crate) fn find(
        transport: TransportName,
        peers: bool,
        option: &'static str,
        asked: Option<usize>,
    ) -> Result<Self, Error> {
        let ranks = asked.unwrap_or(DEFAULT);
        let usage = match (transport, peers) {
            (TransportName::Mpi, false) => Some(Use::Transport),
            (TransportName::Mpi, true) => Some(Use::TransportAndPeers),
            (TransportName::Tcp, true) => Some(Use::Peers),
            (TransportName::Local, true) => {
                return Err(Error::setup(
                    "--peers measures MPI, whose ranks are processes that mpirun starts: leave --transport local out",
                ));
            }
            (_, false) => None,
        };
        if let Some(usage) = usage {
            return Ok(Self::World(World { option, asked, by: By::Mpi(usage) }));
        }
        let Some(config) = Config::from_env().setup()? else {
            return Ok(match transport {
                TransportName::Local => Self::Threads(ranks),
                _ => Self::Processes(ranks),
            });
        };
        if transport == TransportName::Local {
            return Err(Error::setup(
                "RANK and WORLD_SIZE are set, so this process is to join that world: unset them, or leave \
                 --transport local out",
            ));
        }
        watch::end_with_starter();
        Ok(Self::World(World { option, asked, by: By::Tcp(config) }))
    }
}

/// A world of processes that this one belongs to.
#[derive(Debug)]
pub(crate) struct World {
    option: &'static str,
    asked: Option<usize>,
    by: By,
}

#[derive(Debug)]
enum By {
    Tcp(Config),
    Mpi(Use),
}

impl World {
    /// Does this rank's work, which is told its rank and the number of ranks, and connects when it is ready to.
    ///
    /// `timeout` is the time that the user gave for all ranks to appear, if he did.
    pub(crate) fn enter<R>(
        self,
        timeout: Option<Duration>,
        work: impl FnOnce(Entrance<'_>) -> Result<R, Error>,
    ) -> Result<R, Error> {
        match self.by {
            By::Tcp(mut config) => {
                let (rank, world_size) = (config.rank, config.world_size);
                if let Some(ranks) = self.asked.filter(|ranks| *ranks != world_size) {
                    let option = self.option;
                    return Err(Error::setup(format!(
                        "{option} {ranks} contradicts WORLD_SIZE={world_size}: leave one of them out"
                    )));
                }
                if let Some(timeout) = timeout {
                    config.timeout = timeout;
                }
                let connect = &mut || {
                    let transport = TcpTransport::connect(&config, &Options::default()).setup()?;
                    Ok(AnyTransport::new(transport))
                };
                work(Entrance { rank, world_size, connect, peers: None })
            }
            By::Mpi(usage) => mpi::enter(usage, self.option, self.asked, timeout, work),
        }
    }
}

/// What a rank knows before it is connected.
pub(crate) struct Entrance<'a> {
    pub(crate) rank: Rank,
    pub(crate) world_size: usize,
    pub(crate) connect: &'a mut dyn FnMut() -> Result<AnyTransport, Error>,
    /// Where MPI's own collectives run, if they are wanted.
    pub(crate) peers: Option<&'a mpi::World>,
}

/// Runs a whole world in this process, a thread for each rank, and returns what rank 0 returns.
///
/// # Errors
/// That of the rank that fails first: it is the cause of the others'.
pub(crate) fn in_threads<R: Send>(
    ranks: usize,
    work: impl Fn(AnyTransport) -> Result<R, Error> + Sync,
) -> Result<R, Error> {
    let failures = Mutex::new(Vec::new());
    let fail = |error| failures.lock().unwrap_or_else(PoisonError::into_inner).push(error);
    let first = thread::scope(|scope| {
        let mut threads = Vec::new();
        for (rank, transport) in testkit::local_world(ranks).into_iter().enumerate() {
            let (work, fail) = (&work, &fail);
            let run = move || work(AnyTransport::new(transport)).map_err(fail).ok();
            match thread::Builder::new().name(format!("rank {rank}")).spawn_scoped(scope, run) {
                Ok(thread) => threads.push(thread),
                Err(error) => fail(Error::Setup(error.into())),
            }
        }
        let results: Vec<_> = threads.into_iter().map(|thread| thread.join().ok().flatten()).collect();
        results.into_iter().next().flatten()
    });
    match failures.into_inner().unwrap_or_else(PoisonError::into_inner).into_iter().next() {
        Some(first) => Err(first),
        None => first.context("a rank panicked").run(),
    }
}

/// Makes this process compute on one thread for each rank: several ranks share the machine, and results must
/// not depend on how many cores it has.
///
/// The libraries read that from the environment, which a process cannot change safely for itself: it starts
/// anew, as the same process.
pub(crate) fn use_one_thread() {
    use std::os::unix::process::CommandExt as _;

    if std::env::var_os(THREADS).is_none()
        && let Ok(program) = std::env::current_exe()
    {
        // Returns only if that is not possible; then it goes on with more threads.
        let _ = Command::new(program).args(std::env::args_os().skip(1)).env(THREADS, "1").exec();
    }
}

/// All ranks together, over what the user named.
pub(crate) fn communicator(transport: AnyTransport, name: TransportName) -> Communicator<AnyTransport> {
    let progress = match name {
        // MPI may allow its calls to one thread only.
        TransportName::Mpi => Progress::Caller,
        TransportName::Tcp | TransportName::Local => Progress::Thread,
    };
    Communicator::with_options(transport, collectives::Options::default().progress(progress))
}

/// Refuses ranks that were started with other terms than rank 0: options and data, in words.
pub(crate) fn agree(
    communicator: &Communicator<AnyTransport>,
    terms: impl fmt::Display,
) -> Result<(), Error> {
    let own = Bytes::from(terms.to_string().into_bytes());
    let all = block_on(communicator.allgather(own)).run()?;
    let text = |block: &Bytes| String::from_utf8_lossy(block).into_owned();
    let Some(first) = all.first() else { return Ok(()) };
    match all.iter().enumerate().find(|(_, block)| *block != first) {
        None => Ok(()),
        Some((rank, other)) => Err(Error::setup(format!(
            "the ranks were started with different options: rank 0 with {}; rank {rank} with {}",
            text(first),
            text(other)
        ))),
    }
}

/// The records of all ranks, by rank.
pub(crate) fn exchange<R: Serialize + DeserializeOwned>(
    communicator: &Communicator<AnyTransport>,
    own: &R,
) -> anyhow::Result<Vec<R>> {
    let blocks = block_on(communicator.allgather(Bytes::from(serde_json::to_vec(own)?)))?;
    let read = |(rank, block): (usize, &Bytes)| {
        serde_json::from_slice(block).with_context(|| format!("rank {rank} sent a record that is none"))
    };
    blocks.iter().enumerate().map(read).collect()
}
