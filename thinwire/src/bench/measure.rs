use std::future::{Future as _, poll_fn};
use std::pin::pin;

use anyhow::{bail, ensure};
use collectives::Communicator;
use serde::{Deserialize, Serialize};
use sparse_core::SparseVec;
use transport::{AnyTransport, block_on};

use super::contender::{Contender, Lap, Outcome};
use super::oracle::{self, Oracle};
use super::report::Row;
use crate::ranks;

/// Lets a contender sum once to check the result, and then so many times to measure it.
///
/// Every rank calls this alike, and all get the same row.
pub(super) fn measure(
    communicator: &Communicator<AnyTransport>,
    contender: &mut dyn Contender,
    input: &SparseVec<f32>,
    oracle: &Oracle,
    iterations: u32,
) -> anyhow::Result<Row> {
    run(communicator, contender)?;
    let is_exact = matches!(contender.outcome()?, Outcome::Sum(_));
    verify(communicator, contender.outcome()?, input, oracle)?;
    let mut record = Record::default();
    for _ in 0..iterations {
        record.add(&run(communicator, contender)?);
    }
    let records = ranks::exchange(communicator, &record)?;
    let slowest = slowest(&records, iterations)?;
    let most = |bytes: fn(&Record) -> Option<u64>| {
        records.iter().map(bytes).reduce(|most, next| Some(most?.max(next?))).flatten()
    };
    Ok(Row {
        algorithm: contender.name().to_owned(),
        ranks: records.len(),
        dim: input.dim(),
        nnz: input.nnz(),
        median_ms: ms(median(&slowest)),
        min_ms: ms(slowest.first().copied().unwrap_or_default()),
        max_ms: ms(slowest.last().copied().unwrap_or_default()),
        bytes_sent_max: most(|record| record.bytes_sent),
        bytes_received_max: most(|record| record.bytes_received),
        stream_mbps: None,
        rounds: None,
        lower_bound_ms: None,
        is_dense: contender.is_dense(),
        is_exact,
        is_peer: contender.is_peer(),
    })
}

/// Lets a contender sum once, from a common start to a common end.
///
/// Whatever it uses is then still: another library may keep this rank from moving what came before, and afterwards a
/// rank that waits in a collective of ours may still owe that library's messages to others.
fn run(communicator: &Communicator<AnyTransport>, contender: &mut dyn Contender) -> anyhow::Result<Lap> {
    contender.prepare();
    meet(communicator, contender)?;
    let lap = contender.run()?;
    meet(communicator, contender)?;
    Ok(lap)
}

/// Waits for all ranks, and lets the contender help them meanwhile.
fn meet(communicator: &Communicator<AnyTransport>, contender: &dyn Contender) -> anyhow::Result<()> {
    let mut barrier = pin!(communicator.barrier());
    block_on(poll_fn(|context| {
        let outcome = barrier.as_mut().poll(context);
        if outcome.is_pending() && contender.progress() {
            context.waker().wake_by_ref();
        }
        outcome
    }))?;
    Ok(())
}

/// What a rank found when it checked its result.
#[derive(Serialize, Deserialize)]
struct Verdict {
    hash: u64,
    fault: Option<String>,
}

/// Checks the results of all ranks, so that all of them stop for the same reason.
fn verify(
    communicator: &Communicator<AnyTransport>,
    outcome: Outcome<'_>,
    input: &SparseVec<f32>,
    oracle: &Oracle,
) -> anyhow::Result<()> {
    let fault = oracle.check(outcome, input).err();
    settle(communicator, &Verdict { hash: oracle::hash(outcome), fault })?;
    if let Outcome::Topk(result) | Outcome::TopkByRange(result) = outcome {
        // The ranks have the same indices by now.
        let returned = ranks::exchange(communicator, &oracle::returned(result))?;
        let fault = oracle.check_returned(&result.sum, &returned).err();
        settle(communicator, &Verdict { hash: 0, fault })?;
    }
    Ok(())
}

/// Fails on every rank if the result of one is wrong or differs.
fn settle(communicator: &Communicator<AnyTransport>, own: &Verdict) -> anyhow::Result<()> {
    let verdicts = ranks::exchange(communicator, own)?;
    for (rank, verdict) in verdicts.iter().enumerate() {
        if let Some(fault) = &verdict.fault {
            bail!("the result on rank {rank} is wrong: {fault}");
        }
    }
    let other = verdicts.iter().position(|verdict| verdict.hash != own.hash);
    ensure!(
        other.is_none(),
        "the ranks differ in the bits of the result: rank {} and rank {}",
        communicator.rank(),
        other.unwrap_or_default()
    );
    Ok(())
}

/// What one rank measured.
#[derive(Serialize, Deserialize, Default)]
struct Record {
    laps_ns: Vec<u64>,
    /// Of one sum; `None` where that is not known.
    bytes_sent: Option<u64>,
    bytes_received: Option<u64>,
}

impl Record {
    fn add(&mut self, lap: &Lap) {
        self.laps_ns.push(lap.elapsed.as_nanos() as u64);
        // The same at every lap, as the input is.
        self.bytes_sent = lap.traffic.map(|traffic| traffic.bytes_sent);
        self.bytes_received = lap.traffic.map(|traffic| traffic.bytes_received);
    }
}

/// Of each lap the time of the slowest rank, in order of length.
fn slowest(records: &[Record], iterations: u32) -> anyhow::Result<Vec<u64>> {
    let mut slowest = vec![0; iterations as usize];
    for (rank, record) in records.iter().enumerate() {
        let laps = record.laps_ns.len();
        ensure!(laps == slowest.len(), "rank {rank} tells of {laps} iterations, not {iterations}");
        slowest.iter_mut().zip(&record.laps_ns).for_each(|(most, lap)| *most = (*most).max(*lap));
    }
    slowest.sort_unstable();
    Ok(slowest)
}

/// The middle of what is sorted, or the mean of the two in the middle.
pub(super) fn median(sorted: &[u64]) -> u64 {
    let upper = sorted.get(sorted.len() / 2);
    let lower = sorted.get(sorted.len().saturating_sub(1) / 2);
    upper.zip(lower).map_or(0, |(upper, lower)| upper.midpoint(*lower))
}

fn ms(ns: u64) -> f64 {
    ns as f64 / 1e6
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::contender::View;
    use crate::error::When as _;
    use crate::ranks::in_threads;
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::thread;
    use std::time::{Duration, Instant};
    use transport::Rank;

    #[test]
    fn a_lap_takes_as_long_as_the_slowest_rank() {
        let record = |laps: &[u64]| Record { laps_ns: laps.to_vec(), ..Record::default() };
        let laps = slowest(&[record(&[1, 5, 3]), record(&[2, 1, 1])], 3);
        assert_eq!(laps.unwrap(), [2, 3, 5]);
        let missing = slowest(&[record(&[1]), record(&[])], 1).unwrap_err().to_string();
        assert!(missing.contains("rank 1 tells of 0 iterations"), "{missing}");
    }

    /// Ends with what it was given, on every rank as it says, and on all but rank 0 only with the help of rank 0, which
    /// has ended before.
    struct Given<'a> {
        sum: Vec<f32>,
        rank: Rank,
        runs: u32,
        /// The runs that rank 0 has helped with.
        helped: &'a AtomicU32,
    }

    impl Contender for Given<'_> {
        fn name(&self) -> &str {
            "given"
        }

        fn is_dense(&self) -> bool {
            true
        }

        fn is_peer(&self) -> bool {
            false
        }

        fn prepare(&mut self) {}

        fn run(&mut self) -> anyhow::Result<Lap> {
            self.runs += 1;
            let begun = Instant::now();
            while self.rank != Rank(0) && self.helped.load(Ordering::Relaxed) < self.runs {
                ensure!(begun.elapsed() < Duration::from_secs(10), "rank 0 does not help");
                thread::yield_now();
            }
            Ok(Lap { elapsed: Duration::from_micros(1), traffic: None })
        }

        fn progress(&self) -> bool {
            let helps = self.rank == Rank(0);
            if helps {
                self.helped.store(self.runs, Ordering::Relaxed);
            }
            helps
        }

        fn outcome(&self) -> anyhow::Result<Outcome<'_>> {
            Ok(Outcome::Sum(View::Dense(&self.sum)))
        }
    }

    /// What rank 0 gets when three ranks that bring [1, 0] each end with these sums.
    fn measured(sums: [[f32; 2]; 3]) -> Result<Row, String> {
        let helped = AtomicU32::new(0);
        let result = in_threads(3, |transport| {
            let communicator = Communicator::new(transport);
            let input = SparseVec::new(2, vec![0], vec![1.0]).run()?;
            let oracle = Oracle::new(2, std::iter::repeat_n(Ok(input.clone()), 3)).run()?;
            let rank = communicator.rank();
            let mut contender = Given { sum: sums[rank.index()].to_vec(), rank, runs: 0, helped: &helped };
            measure(&communicator, &mut contender, &input, &oracle, 2).run()
        });
        result.map_err(|error| error.to_string())
    }

    #[test]
    fn a_wrong_result_is_named_with_its_rank_and_position() {
        let row = measured([[3.0, 0.0]; 3]).unwrap();
        assert_eq!((row.ranks, row.median_ms, row.bytes_sent_max), (3, 0.001, None));
        let wrong = measured([[3.0, 0.0], [3.0, 0.0], [3.0, 1.0]]).unwrap_err();
        assert_eq!(wrong, "the result on rank 2 is wrong: at position 1 it is 1, not 0");
    }

    #[test]
    fn results_of_different_bits_are_refused() {
        let differs = measured([[3.0, 0.0], [3.0, -0.0], [3.0, 0.0]]).unwrap_err();
        assert!(differs.contains("differ in the bits") && differs.contains("rank 1"), "{differs}");
    }

    #[test]
    fn the_median_is_in_the_middle() {
        let medians = [&[3][..], &[1, 3], &[1, 2, 9], &[1, 2, 4, 9]].map(median);
        assert_eq!(medians, [3, 2, 2, 3]);
    }
}
