//! `thinwire sim`: the collectives over a simulated network, beside what their formulas say.
//!
//! A [`Case`] is one algorithm at one number of ranks; [`model`] decides how large the vectors of its simulation are. Cases are worlds
//! of their own, and run at the same time.

mod draw;
mod in_order;
mod model;
mod report;

use std::fmt;
use std::time::Duration;

use anyhow::Context as _;
use chacha20::ChaCha8Rng;
use collectives::cost::{Cost, Link, Workload, bounds};
use collectives::{Communicator, PutBack};
use indicatif::ProgressBar;
use rand::{RngExt as _, SeedableRng as _};
use sparse_core::SparseVec;
use sparse_core::wire::HEADER;
use sparse_sgd::Method;
use testkit::sim::{self, Network, Record, SimTransport};
use transport::Transport as _;

use crate::algorithm::Algorithm;
use crate::bench::input;
use crate::cli::SimArgs;
use crate::error::{Error, When as _};
use crate::output::{check, print, write};

use model::Model;
use report::Row;

/// The bytes of a value.
const VALUE: usize = 4;

/// Simulates as asked.
pub(crate) fn sim(args: &SimArgs) -> Result<(), Error> {
    for (option, path) in [("--plot", &args.plot), ("--trace", &args.trace)] {
        path.as_deref().map_or(Ok(()), |path| check(option, path)).setup()?;
    }
    let ranks = ranks(args).setup()?;
    let nnz = ((args.dim as f64 * args.density).round() as u64).max(1);
    let case = |algorithm: &Algorithm, ranks: &usize, in_groups| {
        let work = Workload::uniform(*ranks, args.dim, nnz, VALUE);
        Case { algorithm: *algorithm, work, in_groups, args }
    };
    let mut cases = Vec::new();
    for algorithm in &args.algorithms {
        for in_groups in [false, true].iter().take(if args.groups.is_some() { 2 } else { 1 }) {
            cases.extend(ranks.iter().map(|ranks| case(algorithm, ranks, *in_groups)));
        }
    }
    let progress = ProgressBar::new_spinner();
    let (mut rows, mut last) = (Vec::new(), Vec::new());
    let tell =
        |done: usize| progress.set_message(cases.get(done).map(ToString::to_string).unwrap_or_default());
    tell(0);
    let simulate = |case: &Case<'_>| case.simulate().with_context(|| case.to_string());
    in_order::run(&cases, simulate, |simulated| {
        let (row, trace) = simulated.run()?;
        if args.json {
            let line = serde_json::to_string(&row).run()?;
            progress.suspend(|| print(&line));
        }
        rows.push(row);
        last = trace;
        tell(rows.len());
        Ok(())
    })?;
    progress.finish_and_clear();
    if !args.json {
        print(&report::render(&rows, args));
    }
    if let Some(path) = &args.plot {
        write(path, draw::times(&rows).run()?.as_bytes()).run()?;
    }
    if let Some(path) = &args.trace {
        write(path, draw::messages(&last).run()?.as_bytes()).run()?;
    }
    Ok(())
}

/// Each number once, in their order; with a plot, one number stands for all powers of two up to it, and itself.
fn ranks(args: &SimArgs) -> anyhow::Result<Vec<usize>> {
    let mut ranks = args.ranks.clone();
    let size = args.groups.unwrap_or(1);
    if let Some(ranks) = ranks.iter().find(|ranks| !ranks.is_multiple_of(size)) {
        anyhow::bail!(
            "--groups {size}: {ranks} ranks are no whole number of groups; let it divide each of --ranks"
        );
    }
    if let (Some(_), [most]) = (&args.plot, &args.ranks[..]) {
        let powers = (1..usize::BITS).map(|bit| 1_usize << bit).take_while(|ranks| ranks < most);
        ranks.extend(powers.filter(|ranks| ranks.is_multiple_of(size)));
    }
    ranks.sort_unstable();
    ranks.dedup();
    Ok(ranks)
}

/// One simulation.
struct Case<'a> {
    algorithm: Algorithm,
    /// In full size.
    work: Workload,
    /// Whether the algorithm knows of the groups.
    in_groups: bool,
    args: &'a SimArgs,
}

impl fmt::Display for Case<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, {} ranks", self.name(), self.work.ranks)
    }
}

/// When the ranks begin that have had to make their groups first.
const BEGIN: Duration = Duration::from_secs(1_000_000);

impl Case<'_> {
    fn name(&self) -> String {
        let Self { algorithm, in_groups, .. } = self;
        if *in_groups { format!("hierarchical_{algorithm}") } else { algorithm.to_string() }
    }

    fn simulate(&self) -> anyhow::Result<(Row, Vec<Record>)> {
        let Self { algorithm, work, in_groups, args } = self;
        let method = algorithm.method(args.seed)?;
        let model = Model::of(&method, work);
        let network = self.network(&model);
        let (formula, bound) = self.formula_and_bound()?;
        // Whatever the values are, dense vectors take as long: all ranks sum the same one.
        let dense =
            if matches!(method, Method::Dense(_)) { vec![0.0_f32; model.dim as usize] } else { Vec::new() };
        let group = args.groups.filter(|_| *in_groups);
        let part = |transport: SimTransport| {
            let (method, dense, seed, rank) = (&method, &dense[..], args.seed, transport.rank().0);
            async move {
                let communicator = Communicator::new(transport);
                let input = || draw(&model, seed, rank);
                let traffic = if let Some(group) = group {
                    let hierarchy = communicator.hierarchy(rank / group as u32).await?;
                    let transport = communicator.transport();
                    transport.sleep(BEGIN.saturating_sub(transport.now())).await;
                    match method {
                        Method::Dense(algorithm) => {
                            let mut sum = vec![0.0; dense.len()];
                            hierarchy.allreduce_dense(dense, &mut sum, *algorithm).await?;
                        }
                        Method::Sparse(algorithm) => drop(hierarchy.allreduce(&input()?, algorithm).await?),
                        Method::Gtopk(algorithm) => {
                            let input = input()?;
                            hierarchy.gtopk(&input, input.nnz(), *algorithm, PutBack::Paper).await?;
                        }
                        other => anyhow::bail!("there is no simulation of {other:?}"),
                    }
                    hierarchy.communicator().traffic()
                } else {
                    match method {
                        Method::Dense(algorithm) => {
                            let mut sum = vec![0.0; dense.len()];
                            communicator.allreduce_dense(dense, &mut sum, *algorithm).await?;
                        }
                        Method::Sparse(algorithm) => {
                            drop(communicator.allreduce(&input()?, algorithm).await?);
                        }
                        Method::Gtopk(algorithm) => {
                            let input = input()?;
                            communicator.gtopk(&input, input.nnz(), *algorithm, PutBack::Paper).await?;
                        }
                        other => anyhow::bail!("there is no simulation of {other:?}"),
                    }
                    communicator.traffic()
                };
                let full = |bytes, messages| model.full_size(bytes, messages, HEADER as u64);
                let sent = full(traffic.bytes_sent, traffic.messages_sent);
                Ok(sent.max(full(traffic.bytes_received, traffic.messages_received)))
            }
        };
        let mut run = sim::run(&network, part)?;
        let bytes = run.outputs.into_iter().collect::<anyhow::Result<Vec<f64>>>()?;
        if *in_groups {
            run.time = run.time.saturating_sub(BEGIN);
            run.trace.retain(|record| record.posted >= BEGIN);
            for time in run.trace.iter_mut().flat_map(|r| [&mut r.posted, &mut r.sent, &mut r.arrived]) {
                *time -= BEGIN;
            }
        }
        let row = Row {
            algorithm: self.name(),
            ranks: work.ranks,
            dim: work.dim,
            nnz: work.entries,
            virtual_ms: run.time.as_secs_f64() * 1e3,
            formula_ms: formula.network * 1e3,
            lower_bound_ms: bounds::time(bound, &self.link()) * 1e3,
            bytes_max: bytes.into_iter().fold(0.0, f64::max).round() as u64,
            rounds: formula.rounds,
            scale: model.scale,
        };
        Ok((row, run.trace))
    }

    fn formula_and_bound(&self) -> anyhow::Result<(Cost, f64)> {
        let Self { algorithm, work, in_groups, args } = self;
        let Some(size) = args.groups else { return algorithm.cost(work, &self.link()) };
        // What no host can do without, whose ranks know all of each other.
        let union = work.union(size).round() as u64;
        let of_hosts = Workload::uniform(
            work.ranks / size,
            work.dim,
            if algorithm.is_truncating() { work.entries } else { union },
            work.value,
        );
        let (flat, bound) =
            (algorithm.cost(work, &self.link())?.0, algorithm.cost(&of_hosts, &self.link())?.1);
        let inside = Link::new(args.inner_alpha.as_secs_f64(), args.inner_rate.seconds_per_byte());
        let formula =
            if *in_groups { algorithm.hierarchical_cost(work, size, &inside, &self.link())? } else { flat };
        Ok((formula, bound))
    }

    fn network(&self, model: &Model) -> Network {
        let args = self.args;
        let mut network = Network::new(self.work.ranks)
            .alpha(args.alpha)
            .rate(args.rate.bytes_per_second())
            .overhead(args.overhead)
            .jitter(args.jitter)
            .magnified(model.scale, HEADER)
            .seed(args.seed);
        if let Some(size) = args.groups {
            network = network.groups(size, args.inner_alpha, args.inner_rate.bytes_per_second());
        } else if args.ranks_per_host > 1 {
            network = network.hosts(args.ranks_per_host, Duration::ZERO, f64::INFINITY);
        }
        if let Some((share, times)) = args.stragglers {
            network = network.stragglers(share, times);
        }
        if args.trace.is_some() { network.traced() } else { network }
    }

    fn link(&self) -> Link {
        let args = self.args;
        Link::new(args.alpha.as_secs_f64(), args.rate.seconds_per_byte())
            .overhead(args.overhead.as_secs_f64())
    }
}

/// A rank's vector: entries at places that are uniformly distributed. No two values are alike, or else those at low
/// indices would be the larger ones.
fn draw(model: &Model, seed: u64, rank: u32) -> Result<SparseVec<f32>, sparse_core::Error> {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    rng.set_stream(rank.into());
    let indices = input::support(&mut rng, model.dim, model.entries as usize);
    let values = indices.iter().map(|_| rng.random_range(0.5..1.5)).collect();
    SparseVec::new(model.dim, indices, values)
}
