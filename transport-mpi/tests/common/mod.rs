//! Tests whose ranks are processes: each test program starts itself under `mpirun`.

#![allow(dead_code, reason = "each test program uses its part")]
#![allow(clippy::unwrap_used, reason = "a test panics when it fails")]

use std::env;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::{Child, Command, ExitCode};
use std::thread;
use std::time::{Duration, Instant};

use mpi::Threading;
use mpi::topology::SimpleCommunicator;
use mpi::traits::{Communicator as _, CommunicatorCollectives as _};
use transport::{Transport as _, block_on};
use transport_mpi::MpiTransport;

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

/// Runs this program once for each rank, in worlds of these sizes for each part, one after the other.
pub(crate) fn in_worlds_of(parts: &[(&str, &[usize])]) -> ExitCode {
    for (part, size) in parts.iter().flat_map(|(part, sizes)| sizes.iter().map(move |size| (part, *size))) {
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

/// Plays this rank's part with MPI initialised for all threads. A panic ends the whole world.
pub(crate) fn play(part: impl FnOnce(&SimpleCommunicator)) -> ExitCode {
    let (universe, threading) = mpi::initialize_with_threading(Threading::Multiple).unwrap();
    assert_eq!(threading, Threading::Multiple);
    let world = universe.world();
    if catch_unwind(AssertUnwindSafe(|| part(&world))).is_err() {
        world.abort(1);
    }
    ExitCode::SUCCESS
}

/// Returns once all ranks have come here. Meanwhile the transport serves those who have not.
pub(crate) fn meet(communicator: &SimpleCommunicator, transport: Option<&MpiTransport>) {
    let mut all_are_here = communicator.immediate_barrier();
    loop {
        match all_are_here.test() {
            Ok(_) => return,
            Err(not_yet) => all_are_here = not_yet,
        }
        match transport {
            Some(transport) => block_on(transport.sleep(Duration::from_micros(100))),
            None => thread::sleep(Duration::from_micros(100)),
        }
    }
}
