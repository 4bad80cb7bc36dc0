//! `thinwire bench overlap`: whether a sum that was started goes on while its caller computes.
//!
//! Each iteration measures three things in turn, each from a common start: the sum alone, a computation that takes about as
//! long, and the sum started before the computation and waited for after it. Were the two independent, both would take
//! what the longer one takes.

use std::hint::black_box;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use collectives::{Communicator, GlobalTopk, Handle, PutBack};
use serde::{Deserialize, Serialize};
use sparse_core::{SparseVec, Stream};
use sparse_sgd::Method;
use transport::{AnyTransport, Rank, block_on};

use super::measure::median;
use super::plan::Plan;
use crate::algorithm::Algorithm;
use crate::cli::{OverlapArgs, TransportName};
use crate::error::{Error, When as _};
use crate::output::{print, table};
use crate::process::starter;
use crate::ranks::{self, Place};

/// What is measured unless the user says so: a long sum, a short one, and one of many rounds.
pub(crate) const DEFAULT_ALGORITHMS: [&str; 3] = ["dense_ring", "ssar_split_allgather", "gtopk_butterfly"];

/// How long the computation is watched to learn its speed.
const WATCHED: Duration = Duration::from_millis(50);
/// Sums before the first that counts.
const WARM_UP: u32 = 3;

/// What was measured of one algorithm: a line of the output. Times are medians, each iteration's that of the slowest rank.
#[derive(Serialize, Debug)]
struct Row {
    algorithm: &'static str,
    ranks: usize,
    dim: u64,
    nnz: usize,
    communicate_ms: f64,
    compute_ms: f64,
    both_ms: f64,
    /// Of both to the longer of the two.
    ratio: f64,
}

/// What one rank measured, in ns: the sum, the computation, and both, in each iteration.
#[derive(Serialize, Deserialize, Default)]
struct Record {
    laps: Vec<[u64; 3]>,
}

/// Measures as asked: joins the world of the environment or of mpirun, or makes one.
pub(crate) fn overlap(args: &OverlapArgs) -> Result<(), Error> {
    let default =
        || DEFAULT_ALGORITHMS.iter().map(|name| name.parse()).collect::<Result<Vec<Algorithm>, _>>();
    let algorithms =
        if args.algorithms.is_empty() { default().map_err(Error::setup)? } else { args.algorithms.clone() };
    let plan = Plan::of(args.dim, args.density, &algorithms, args.iterations, args.seed);
    let take_part = |transport| take_part(&ranks::communicator(transport, args.transport), &plan, args);
    match Place::find(args.transport, false, "--ranks", args.ranks)? {
        Place::World(world) => world.enter(args.timeout, |entrance| take_part((entrance.connect)()?)),
        Place::Threads(ranks) => ranks::in_threads(ranks, take_part),
        Place::Processes(ranks) => starter::start(ranks),
    }
}

/// What each rank of the world does.
fn take_part(
    communicator: &Communicator<AnyTransport>,
    plan: &Plan,
    args: &OverlapArgs,
) -> Result<(), Error> {
    ranks::agree(communicator, format!("overlap of {}", plan.terms()))?;
    let input = plan.input(communicator.rank()).run()?;
    let mut rows = Vec::new();
    for algorithm in &plan.algorithms {
        let sum = Sum::new(communicator, *algorithm, &input, plan.seed).run()?;
        // Without a thread for it, the sum goes on when it is asked how it goes.
        let asks = args.transport == TransportName::Mpi;
        let row = measure(communicator, &sum, plan, asks).with_context(|| algorithm.name).run()?;
        if communicator.rank() != Rank(0) {
            continue;
        }
        if args.json {
            print(&serde_json::to_string(&row).run()?);
        } else {
            rows.push(row);
        }
    }
    if !rows.is_empty() {
        print(&render(&rows));
    }
    Ok(())
}

fn measure(
    communicator: &Communicator<AnyTransport>,
    sum: &Sum<'_>,
    plan: &Plan,
    asks: bool,
) -> anyhow::Result<Row> {
    let meet = || block_on(communicator.barrier());
    let mut alone = Vec::new();
    for _ in 0..WARM_UP.max(plan.iterations.min(7)) {
        let ready = sum.prepare();
        meet()?;
        let begun = Instant::now();
        sum.start(ready)?.wait()?;
        alone.push([begun.elapsed().as_nanos() as u64, 0, 0]);
    }
    let alone = Record { laps: alone.split_off(WARM_UP as usize - 1) };
    let [communicate, ..] = medians(&ranks::exchange(communicator, &alone)?)?;
    meet()?;
    let units = units_of(communicate, seconds_of_a_unit());
    let mut record = Record::default();
    for _ in 0..plan.iterations {
        let (first, second) = (sum.prepare(), sum.prepare());
        meet()?;
        let begun = Instant::now();
        let expected = sum.start(first)?.wait()?;
        let communicate = begun.elapsed();
        meet()?;
        let begun = Instant::now();
        compute(units, || {});
        let compute_alone = begun.elapsed();
        meet()?;
        let begun = Instant::now();
        let going = sum.start(second)?;
        compute(units, || {
            if asks {
                going.test();
            }
        });
        let found = going.wait()?;
        let both = begun.elapsed();
        ensure!(found == expected, "the sum beside a computation is not that alone");
        record.laps.push([communicate, compute_alone, both].map(|lap| lap.as_nanos() as u64));
    }
    let records = ranks::exchange(communicator, &record)?;
    let [communicate_ms, compute_ms, both_ms] = medians(&records)?.map(|ns| ns / 1e6);
    Ok(Row {
        algorithm: sum.algorithm.name,
        ranks: records.len(),
        dim: plan.dim,
        nnz: plan.nnz,
        communicate_ms,
        compute_ms,
        both_ms,
        ratio: both_ms / communicate_ms.max(compute_ms),
    })
}

/// The medians over the iterations of each lap of the slowest rank.
fn medians(records: &[Record]) -> anyhow::Result<[f64; 3]> {
    let mut slowest = records.first().context("no rank measured anything")?.laps.clone();
    for record in records {
        ensure!(record.laps.len() == slowest.len(), "the ranks tell of different numbers of iterations");
        for (slowest, laps) in slowest.iter_mut().zip(&record.laps) {
            slowest.iter_mut().zip(laps).for_each(|(slowest, lap)| *slowest = (*slowest).max(*lap));
        }
    }
    Ok([0, 1, 2].map(|what: usize| {
        let mut laps: Vec<u64> = slowest.iter().filter_map(|laps| laps.get(what).copied()).collect();
        laps.sort_unstable();
        median(&laps) as f64
    }))
}

/// Computes in the first-level cache, for so many units of some microseconds, between which it does something else.
fn compute(units: u64, between: impl Fn()) {
    let mut values = [1.0_f32; 1024];
    for _ in 0..units {
        for _ in 0..64 {
            values.iter_mut().for_each(|value| *value = *value * 0.999 + 0.001);
            black_box(&mut values);
        }
        between();
    }
}

/// How many units take as long.
fn units_of(ns: f64, seconds_of_a_unit: f64) -> u64 {
    (ns / 1e9 / seconds_of_a_unit).ceil() as u64
}

fn seconds_of_a_unit() -> f64 {
    const UNITS: u64 = 16;
    let (begun, mut units) = (Instant::now(), 0);
    while begun.elapsed() < WATCHED {
        compute(UNITS, || {});
        units += UNITS;
    }
    begun.elapsed().as_secs_f64() / units as f64
}

/// An algorithm and its input.
struct Sum<'a> {
    communicator: &'a Communicator<AnyTransport>,
    algorithm: Algorithm,
    method: Method,
    sparse: &'a SparseVec<f32>,
}

/// A copy of the input, which a sum takes.
enum Input {
    Dense(Vec<f32>),
    Sparse(SparseVec<f32>),
}

enum Going {
    Dense(Handle<Vec<f32>>),
    Sparse(Handle<Stream<f32>>),
    Gtopk(Handle<GlobalTopk<f32>>),
}

#[derive(PartialEq)]
enum Found {
    Dense(Vec<f32>),
    Sparse(Stream<f32>),
    Gtopk(GlobalTopk<f32>),
}

impl<'a> Sum<'a> {
    fn new(
        communicator: &'a Communicator<AnyTransport>,
        algorithm: Algorithm,
        sparse: &'a SparseVec<f32>,
        seed: u64,
    ) -> anyhow::Result<Self> {
        Ok(Self { communicator, algorithm, method: algorithm.method(seed)?, sparse })
    }

    fn prepare(&self) -> Input {
        match self.method {
            Method::Dense(_) => Input::Dense(self.sparse.to_dense()),
            _ => Input::Sparse(self.sparse.clone()),
        }
    }

    fn start(&self, input: Input) -> anyhow::Result<Going> {
        Ok(match (input, &self.method) {
            (Input::Dense(input), Method::Dense(algorithm)) => {
                Going::Dense(self.communicator.start_allreduce_dense(input, *algorithm))
            }
            (Input::Sparse(input), Method::Sparse(algorithm)) => {
                Going::Sparse(self.communicator.start_allreduce(input, algorithm.clone()))
            }
            (Input::Sparse(input), Method::Gtopk(algorithm)) => {
                let k = input.nnz();
                Going::Gtopk(self.communicator.start_gtopk(input, k, *algorithm, PutBack::Conserving))
            }
            (_, other) => bail!("there is no benchmark of {other:?}"),
        })
    }
}

impl Going {
    fn test(&self) {
        let _ended = match self {
            Self::Dense(sum) => sum.test(),
            Self::Sparse(sum) => sum.test(),
            Self::Gtopk(largest) => largest.test(),
        };
    }

    fn wait(self) -> anyhow::Result<Found> {
        Ok(match self {
            Self::Dense(sum) => Found::Dense(sum.wait()?),
            Self::Sparse(sum) => Found::Sparse(sum.wait()?),
            Self::Gtopk(largest) => Found::Gtopk(largest.wait()?),
        })
    }
}

const HEADER: [&str; 5] = ["algorithm", "communicate, ms", "compute, ms", "both, ms", "ratio"];

fn render(rows: &[Row]) -> String {
    let cells = |row: &Row| {
        let ms = |ms: f64| format!("{ms:.3}");
        let ratio = format!("{:.2}", row.ratio);
        [row.algorithm.to_owned(), ms(row.communicate_ms), ms(row.compute_ms), ms(row.both_ms), ratio]
    };
    let table = table::ruled(1, HEADER, rows.iter().map(cells));
    let Some(Row { ranks, dim, nnz, .. }) = rows.first() else { return String::new() };
    format!(
        "{table}\n{ranks} ranks, each with {nnz} of {dim} values. Medians, of the slowest rank: a sum alone, a computation alone, and \
         the sum started before the computation. `ratio`: both to the longer of the two."
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_are_of_the_slowest_rank() {
        let record = |laps: &[[u64; 3]]| Record { laps: laps.to_vec() };
        let records =
            [record(&[[1, 2, 3], [9, 2, 1], [5, 2, 2]]), record(&[[2, 8, 1], [3, 3, 7], [6, 1, 1]])];
        assert_eq!(medians(&records).unwrap(), [6.0, 3.0, 3.0]);
        assert!(medians(&[record(&[[1; 3]]), record(&[])]).is_err() && medians(&[]).is_err());
    }

    #[test]
    fn units_take_as_long_as_the_sum() {
        assert_eq!((units_of(3e6, 1e-5), units_of(3e6 + 1.0, 1e-5), units_of(0.0, 1e-5)), (300, 301, 0));
    }

    #[test]
    fn twice_the_units_are_computed_twice() {
        let count = std::cell::Cell::new(0);
        compute(6, || count.set(count.get() + 1));
        assert_eq!(count.get(), 6);
        assert!(seconds_of_a_unit() > 0.0);
    }
}
