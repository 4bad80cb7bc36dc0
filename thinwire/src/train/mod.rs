//! `thinwire train`.

mod outcome;
mod world;

use transport::Rank;

use crate::cli::TrainArgs;
use crate::error::{Error, When as _};
use crate::output::progress::Progress;
use crate::output::{self, Files};
use crate::plan::Plan;
use crate::process::starter;
use crate::ranks::{self, Place};
use crate::tasks::Data;

pub(crate) use outcome::{Outcome, compare_with_dense};

/// Trains as asked: joins the world of the environment, or makes one.
pub(crate) fn train(args: &TrainArgs) -> Result<(), Error> {
    let plan = Plan::new(args)?;
    let files = Files { json: args.json.clone(), plot: args.plot.clone() };
    match Place::find(args.transport, false, "--workers", args.workers)? {
        Place::World(world) => {
            ranks::use_one_thread();
            world.enter(args.timeout, |entrance| {
                let leads = entrance.rank == Rank(0);
                if leads {
                    files.check().setup()?;
                }
                let data = load(&plan, entrance.world_size)?;
                let communicator = ranks::communicator((entrance.connect)()?, args.transport);
                let mut progress = if leads { Progress::shown() } else { Progress::silent() };
                let outcomes = world::train(&communicator, &plan, &data, &mut progress)?;
                if leads { output::present(outcomes, &files) } else { Ok(()) }
            })
        }
        Place::Threads(workers) => {
            ranks::use_one_thread();
            files.check().setup()?;
            let data = load(&plan, workers)?;
            let outcomes = ranks::in_threads(workers, |transport| {
                let communicator = ranks::communicator(transport, args.transport);
                let leads = communicator.rank() == Rank(0);
                let mut progress = if leads { Progress::shown() } else { Progress::silent() };
                world::train(&communicator, &plan, &data, &mut progress)
            })?;
            output::present(outcomes, &files)
        }
        Place::Processes(workers) => {
            files.check().setup()?;
            // The program's own data need no check; the user's file gets it once, before four processes read it.
            if plan.data().is_some() {
                load(&plan, workers)?;
            }
            starter::start(workers)
        }
    }
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
