//! `thinwire train`.

mod outcome;
mod world;

use std::process::Command;
use std::sync::{Mutex, PoisonError};
use std::thread;

use bootstrap::Config;
use transport::{AnyTransport, Rank};
use transport_tcp::{Options, TcpTransport};

use crate::cli::{TrainArgs, TransportName};
use crate::error::{Error, When as _};
use crate::output::progress::Progress;
use crate::output::{self, Files};
use crate::plan::Plan;
use crate::process::{starter, watch};
use crate::tasks::Data;

pub(crate) use outcome::{Outcome, compare_with_dense};

/// The variable by which rayon, and with it candle, learns how many threads to use.
pub(crate) const THREADS: &str = "RAYON_NUM_THREADS";

/// Trains as asked: joins the world of the environment, or makes one.
pub(crate) fn train(args: &TrainArgs) -> Result<(), Error> {
    let plan = Plan::new(args)?;
    let files = Files { json: args.json.clone(), plot: args.plot.clone() };
    match (Config::from_env().setup()?, args.transport) {
        (Some(_), TransportName::Local) => Err(Error::setup(
            "RANK and WORLD_SIZE are set, so this process is to join that world: unset them, or leave \
             --transport local out",
        )),
        (Some(config), TransportName::Tcp) => join(args, &plan, &files, config),
        (None, TransportName::Local) => local(workers(args), &plan, &files),
        (None, TransportName::Tcp) => {
            files.check().setup()?;
            // The program's own data need no check; the user's file gets it once, before four processes read it.
            if plan.data().is_some() {
                load(&plan, workers(args))?;
            }
            starter::start(workers(args))
        }
    }
}

/// How many workers there are unless a world says so.
fn workers(args: &TrainArgs) -> usize {
    args.workers.unwrap_or(4)
}

fn load(plan: &Plan, workers: usize) -> Result<Vec<Data>, Error> {
    let mut all = Vec::new();
    for task in plan.tasks() {
        let data = Data::load(task, plan.data()).setup()?;
        let examples = data.training_examples();
        if examples < workers {
            return Err(Error::setup(format!(
                "{} has {examples} examples to train on, not enough for {workers} workers",
                task.name()
            )));
        }
        all.push(data);
    }
    Ok(all)
}

/// One rank of a world of processes.
fn join(args: &TrainArgs, plan: &Plan, files: &Files, mut config: Config) -> Result<(), Error> {
    let (rank, world_size) = (config.rank, config.world_size);
    if let Some(workers) = args.workers.filter(|workers| *workers != world_size) {
        return Err(Error::setup(format!(
            "--workers {workers} contradicts WORLD_SIZE={world_size}: leave one of them out"
        )));
    }
    use_one_thread();
    watch::end_with_starter();
    if let Some(timeout) = args.timeout {
        config.timeout = timeout;
    }
    let leads = rank == Rank(0);
    if leads {
        files.check().setup()?;
    }
    let data = load(plan, world_size)?;
    let transport = TcpTransport::connect(&config, &Options::default()).setup()?;
    let mut progress = if leads { Progress::shown() } else { Progress::silent() };
    let outcomes = world::train(AnyTransport::new(transport), plan, &data, &mut progress)?;
    if leads { output::present(outcomes, files) } else { Ok(()) }
}

/// A whole world in this process, a thread for each rank.
fn local(workers: usize, plan: &Plan, files: &Files) -> Result<(), Error> {
    use_one_thread();
    files.check().setup()?;
    let data = load(plan, workers)?;
    let failures = Mutex::new(Vec::new());
    let fail = |error| failures.lock().unwrap_or_else(PoisonError::into_inner).push(error);
    let outcomes = thread::scope(|scope| {
        let mut ranks = Vec::new();
        for (rank, transport) in testkit::local_world(workers).into_iter().enumerate() {
            let (data, fail) = (&data, &fail);
            let work = move || {
                let mut progress = if rank == 0 { Progress::shown() } else { Progress::silent() };
                world::train(AnyTransport::new(transport), plan, data, &mut progress).map_err(fail).ok()
            };
            match thread::Builder::new().name(format!("rank {rank}")).spawn_scoped(scope, work) {
                Ok(thread) => ranks.push(thread),
                Err(error) => fail(Error::Setup(error.into())),
            }
        }
        let outcomes: Vec<_> = ranks.into_iter().map(|rank| rank.join().ok().flatten()).collect();
        outcomes.into_iter().next().flatten()
    });
    // The first failure is the cause of the others.
    if let Some(first) = failures.into_inner().unwrap_or_else(PoisonError::into_inner).into_iter().next() {
        return Err(first);
    }
    let outcomes = outcomes.ok_or_else(|| anyhow::anyhow!("a rank panicked")).run()?;
    output::present(outcomes, files)
}

/// Makes this process compute on one thread for each rank: several ranks share the machine, and results must
/// not depend on how many cores it has.
///
/// The libraries read that from the environment, which a process cannot change safely for itself: it starts
/// anew, as the same process.
fn use_one_thread() {
    use std::os::unix::process::CommandExt as _;

    if std::env::var_os(THREADS).is_none()
        && let Ok(program) = std::env::current_exe()
    {
        // Returns only if that is not possible; then it goes on with more threads.
        let _ = Command::new(program).args(std::env::args_os().skip(1)).env(THREADS, "1").exec();
    }
}
