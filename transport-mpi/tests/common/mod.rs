//! Tests whose ranks are processes: each test program starts itself under `mpirun`.

#![allow(dead_code, reason = "each test program uses its part")]
#![allow(clippy::unwrap_used, reason = "a test panics when it fails")]

use std::env;
use std::process::{Child, Command, ExitCode};
use std::thread;
use std::time::{Duration, Instant};

use mpi::Threading;
use mpi::environment::Universe;
use mpi::traits::{Communicator, CommunicatorCollectives as _};

/// Longer than any world takes unless it hangs.
const PATIENCE: Duration = Duration::from_secs(240);

/// Which part this process is told to play.
const PART: &str = "THINWIRE_TEST_PART";

/// Which launcher to use, for an MPI that is not the system's first.
const LAUNCHER: &str = "MPIRUN";

/// The part that this process plays in a world, or `None` if it is the test program itself.
pub(crate) fn part() -> Option<String> {
    env::var(PART).ok()
}

/// Runs this program once for each rank, in worlds of these sizes one after the other.
pub(crate) fn in_worlds_of(part: &str, sizes: &[usize]) -> ExitCode {
    for &size in sizes {
        let begun = Instant::now();
        let mut world = mpirun(part, size).spawn().unwrap_or_else(|error| {
            panic!(
                "mpirun cannot be started ({error}): install openmpi-bin, or name another one by {LAUNCHER}"
            )
        });
        if !succeeds(&mut world) {
            eprintln!("{part}: a world of {size} failed after {:.1?}", begun.elapsed());
            return ExitCode::FAILURE;
        }
        println!("{part}: a world of {size} is well, {:.1?}", begun.elapsed());
    }
    ExitCode::SUCCESS
}

/// Any launcher: what only one needs to know, it is told by its variables.
pub(crate) fn mpirun(part: &str, size: usize) -> Command {
    let mut command = Command::new(env::var_os(LAUNCHER).unwrap_or_else(|| "mpirun".into()));
    command.env("OMPI_ALLOW_RUN_AS_ROOT", "1").env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
    command.env("OMPI_MCA_rmaps_base_oversubscribe", "1").env(PART, part);
    command.arg("-n").arg(size.to_string()).arg(env::current_exe().unwrap());
    command
}

fn succeeds(world: &mut Child) -> bool {
    let begun = Instant::now();
    loop {
        if let Some(status) = world.try_wait().unwrap() {
            return status.success();
        }
        if begun.elapsed() > PATIENCE {
            world.kill().unwrap();
            world.wait().unwrap();
            return false;
        }
        thread::sleep(Duration::from_millis(20));
    }
}

/// Initialises MPI for all threads.
pub(crate) fn initialize() -> Universe {
    let (universe, threading) = mpi::initialize_with_threading(Threading::Multiple).unwrap();
    assert_eq!(threading, Threading::Multiple);
    universe
}

/// Returns once all ranks have come here, without keeping a processor busy that others need.
pub(crate) fn meet(communicator: &impl Communicator) {
    communicator.barrier();
}
