//! `thinwire bench allreduce`.
//!
//! Every rank makes its input and the oracle ([`input`], [`oracle`]), then lets one [`Contender`] after the
//! other sum ([`measure`]); rank 0 shows a [`report::Row`] for each. What other libraries can do is a
//! contender of its own.

mod collective;
mod contender;
mod input;
mod measure;
mod oracle;
mod plan;
mod report;

use anyhow::Context as _;
use collectives::Communicator;
use transport::{AnyTransport, Rank, Transport as _};

use crate::cli::AllreduceArgs;
use crate::error::{Error, When as _};
use crate::process::starter;
use crate::ranks::{self, Place};

use collective::Collective;
use oracle::Oracle;
use plan::Plan;
use report::Report;

pub(crate) use plan::DEFAULT_ALGORITHMS;

/// Measures as asked: joins the world of the environment, or makes one.
pub(crate) fn allreduce(args: &AllreduceArgs) -> Result<(), Error> {
    let plan = Plan::new(args)?;
    match Place::find(args.transport, "--ranks", args.ranks)? {
        Place::World(world) => {
            world.enter(args.timeout, |entrance| take_part((entrance.connect)()?, &plan, args.json))
        }
        Place::Threads(ranks) => ranks::in_threads(ranks, |transport| take_part(transport, &plan, args.json)),
        Place::Processes(ranks) => starter::start(ranks),
    }
}

/// What each rank of the world does.
fn take_part(transport: AnyTransport, plan: &Plan, json: bool) -> Result<(), Error> {
    let leads = transport.rank() == Rank(0);
    let mut report = if leads { Report::shown(json) } else { Report::silent() };
    let communicator = Communicator::new(transport);
    ranks::agree(&communicator, plan.terms())?;
    let input = plan.input(communicator.rank()).run()?;
    let ranks = (0..communicator.world_size()).map(Rank::from_index);
    let oracle = Oracle::new(plan.dim, ranks.map(|rank| plan.input(rank))).run()?;
    for (number, algorithm) in plan.algorithms.iter().enumerate() {
        report.progress(format!("{algorithm}, {} of {}", number + 1, plan.algorithms.len()));
        let mut contender = Collective::new(&communicator, *algorithm, &input, plan.seed).run()?;
        let row = measure::measure(&communicator, &mut contender, &input, &oracle, plan.iterations)
            .with_context(|| algorithm.to_string())
            .run()?;
        report.add(row)?;
    }
    report.end();
    Ok(())
}
