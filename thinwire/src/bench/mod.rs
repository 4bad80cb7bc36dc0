//! `thinwire bench`: `allreduce`, [`overlap`], and [`kernels`].
//!
//! Every rank makes its input and the oracle ([`input`], [`oracle`]), then lets one [`Contender`] after the
//! other sum ([`measure`]); rank 0 shows a [`report::Row`] for each. What other libraries can do is a
//! contender of its own, as MPI's collectives are.

mod collective;
mod contender;
mod fused;
pub(crate) mod input;
mod kernel_peers;
mod kernels;
mod measure;
mod oracle;
mod overlap;
#[cfg(feature = "mpi")]
mod peers;
mod plan;
mod report;
mod stream;

use anyhow::Context as _;
use collectives::Communicator;
use collectives::cost::{Cost, Workload, bounds};
use transport::{AnyTransport, Rank, Transport as _, block_on};

use crate::cli::{AllreduceArgs, TransportName};
use crate::error::{Error, When as _};
use crate::mpi;
use crate::process::starter;
use crate::ranks::{self, Place};
use crate::rate::Rate;

use collective::Collective;
use contender::Contender;
use oracle::Oracle;
use plan::Plan;
use report::{Report, Row};

pub(crate) use kernels::kernels;
pub(crate) use overlap::{DEFAULT_ALGORITHMS as OVERLAP_ALGORITHMS, overlap};
pub(crate) use plan::DEFAULT_ALGORITHMS;

/// Measures as asked: joins the world of the environment or of mpirun, or makes one.
pub(crate) fn allreduce(args: &AllreduceArgs) -> Result<(), Error> {
    let plan = Plan::new(args)?;
    let json = args.json;
    let over_tcp = args.transport == TransportName::Tcp;
    match Place::find(args.transport, args.peers, "--ranks", args.ranks)? {
        Place::World(world) => world.enter(args.timeout, |entrance| {
            take_part((entrance.connect)()?, entrance.peers, &plan, over_tcp, json)
        }),
        Place::Threads(ranks) => {
            ranks::in_threads(ranks, |transport| take_part(transport, None, &plan, over_tcp, json))
        }
        Place::Processes(ranks) => starter::start(ranks),
    }
}

/// What each rank of the world does.
fn take_part(
    transport: AnyTransport,
    world: Option<&mpi::World>,
    plan: &Plan,
    over_tcp: bool,
    json: bool,
) -> Result<(), Error> {
    let leads = transport.rank() == Rank(0);
    let mut report = if leads { Report::shown(json) } else { Report::silent() };
    let communicator = Communicator::new(transport);
    ranks::agree(&communicator, plan.terms())?;
    report.progress("a plain TCP stream".to_owned());
    // Threads have no network between them.
    let goodput = if over_tcp { stream::goodput(&communicator).run()? } else { None };
    let input = plan.input(communicator.rank()).run()?;
    let ranks = (0..communicator.world_size()).map(Rank::from_index);
    let oracle = Oracle::new(plan.dim, ranks.map(|rank| plan.input(rank))).run()?;
    let (mut number, own) = (0, plan.algorithms.len());
    let work = Workload::uniform(communicator.world_size(), plan.dim, plan.nnz as u64, size_of::<f32>());
    let mut link = block_on(communicator.calibrate()).run()?;
    let stream = goodput.map(|bytes| 1.0 / bytes);
    link.beta = plan.rate.map(Rate::seconds_per_byte).or(stream).unwrap_or(link.beta);
    let mut measure = |contender: &mut dyn Contender, costs: Option<(Cost, f64)>| {
        number += 1;
        let of_own = if number <= own { format!(", {number} of {own}") } else { String::new() };
        report.progress(format!("{}{of_own}", contender.name()));
        let row = measure::measure(&communicator, contender, &input, &oracle, plan.iterations)
            .with_context(|| contender.name().to_owned())
            .run()?;
        report.add(Row {
            stream_mbps: goodput.map(|bytes| bytes * 8.0 / 1e6),
            rounds: costs.map(|(cost, _)| cost.rounds),
            lower_bound_ms: costs.map(|(_, bytes)| bounds::time(bytes, &link) * 1e3),
            ..row
        })
    };
    for algorithm in &plan.algorithms {
        let mut contender = Collective::new(&communicator, *algorithm, &input, plan.seed).run()?;
        measure(&mut contender, Some(algorithm.cost(&work, &link).run()?))?;
    }
    let note = match world {
        Some(world) => {
            let mut measure = |contender: &mut dyn Contender| measure(contender, None);
            peers::each(world, &communicator, &input, &mut measure)?
        }
        None => None,
    };
    report.end(note.as_deref());
    Ok(())
}

/// Without the feature there is no world to find peers in.
#[cfg(not(feature = "mpi"))]
mod peers {
    use super::{AnyTransport, Communicator, Contender, Error, mpi};

    pub(super) fn each(
        world: &mpi::World,
        _communicator: &Communicator<AnyTransport>,
        _input: &sparse_core::SparseVec<f32>,
        _measure: &mut dyn FnMut(&mut dyn Contender) -> Result<(), Error>,
    ) -> Result<Option<String>, Error> {
        match *world {}
    }
}
