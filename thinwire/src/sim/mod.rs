//! `thinwire sim`: the collectives over a simulated network, beside what their formulas say.
//!
//! A [`Case`] is one algorithm at one number of ranks; [`model`] decides how large the vectors of its simulation are.

mod draw;
mod model;
mod report;

use std::time::Duration;

use anyhow::Context as _;
use chacha20::ChaCha8Rng;
use collectives::cost::{Link, Workload, bounds};
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
    let ranks = ranks(args);
    let nnz = ((args.dim as f64 * args.density).round() as u64).max(1);
    let progress = ProgressBar::new_spinner();
    let (mut rows, mut last) = (Vec::new(), Vec::new());
    for algorithm in &args.algorithms {
        for ranks in &ranks {
            progress.set_message(format!("{algorithm}, {ranks} ranks"));
            let case =
                Case { algorithm: *algorithm, work: Workload::uniform(*ranks, args.dim, nnz, VALUE), args };
            let (row, trace) =
                case.simulate().with_context(|| format!("{algorithm}, {ranks} ranks")).run()?;
            if args.json {
                let line = serde_json::to_string(&row).run()?;
                progress.suspend(|| print(&line));
            }
            rows.push(row);
            last = trace;
        }
    }
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
fn ranks(args: &SimArgs) -> Vec<usize> {
    let mut ranks = args.ranks.clone();
    if let (Some(_), [most]) = (&args.plot, &args.ranks[..]) {
        ranks.extend((1..usize::BITS).map(|bit| 1 << bit).take_while(|ranks| ranks < most));
    }
    ranks.sort_unstable();
    ranks.dedup();
    ranks
}

/// One simulation.
struct Case<'a> {
    algorithm: Algorithm,
    /// In full size.
    work: Workload,
    args: &'a SimArgs,
}

impl Case<'_> {
    fn simulate(&self) -> anyhow::Result<(Row, Vec<Record>)> {
        let Self { algorithm, work, args } = self;
        let method = algorithm.method(args.seed)?;
        let model = Model::of(&method, work);
        let (network, link) = (self.network(&model), self.link());
        let (formula, bound) = algorithm.cost(work, &link)?;
        // Whatever the values are, dense vectors take as long: all ranks sum the same one.
        let dense =
            if matches!(method, Method::Dense(_)) { vec![0.0_f32; model.dim as usize] } else { Vec::new() };
        let part = |transport: SimTransport| {
            let (method, dense, seed, rank) = (&method, &dense[..], args.seed, transport.rank().0);
            async move {
                let communicator = Communicator::new(transport);
                match method {
                    Method::Dense(algorithm) => {
                        let mut sum = vec![0.0; dense.len()];
                        communicator.allreduce_dense(dense, &mut sum, *algorithm).await?;
                    }
                    Method::Sparse(algorithm) => {
                        let input = draw(&model, seed, rank)?;
                        communicator.allreduce(&input, algorithm).await?;
                    }
                    Method::Gtopk(algorithm) => {
                        let input = draw(&model, seed, rank)?;
                        communicator.gtopk(&input, input.nnz(), *algorithm, PutBack::Paper).await?;
                    }
                    other => anyhow::bail!("there is no simulation of {other:?}"),
                }
                let traffic = communicator.traffic();
                let full = |bytes, messages| model.full_size(bytes, messages, HEADER as u64);
                let sent = full(traffic.bytes_sent, traffic.messages_sent);
                Ok(sent.max(full(traffic.bytes_received, traffic.messages_received)))
            }
        };
        let run = sim::run(&network, part)?;
        let bytes = run.outputs.into_iter().collect::<anyhow::Result<Vec<f64>>>()?;
        let row = Row {
            algorithm: algorithm.name,
            ranks: work.ranks,
            dim: work.dim,
            nnz: work.entries,
            virtual_ms: run.time.as_secs_f64() * 1e3,
            formula_ms: formula.network * 1e3,
            lower_bound_ms: bounds::time(bound, &link) * 1e3,
            bytes_max: bytes.into_iter().fold(0.0, f64::max).round() as u64,
            rounds: formula.rounds,
            scale: model.scale,
        };
        Ok((row, run.trace))
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
        if args.ranks_per_host > 1 {
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
