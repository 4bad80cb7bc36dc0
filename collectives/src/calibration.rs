//! The measurement of a [`Link`]: what a message costs between neighbours, and what a rank's own work costs.
//!
//! Steps: rounds of a ring shift, each rank sending to the right while it receives from the left; a header alone for alpha, many of
//! them at once for the overhead, 64 KiB and, unless that took long, 1 MiB for beta. The rounds begin after a
//! message from everybody. Each rank takes the median of its rounds and times a merge and an addition of its own;
//! of all ranks' measurements the largest hold, since a collective is as slow as its slowest rank.

use std::future::Future;
use std::time::Duration;

use bytes::{Buf, Bytes};
use futures_util::future::{try_join, try_join_all};
use sparse_core::wire::{self, HEADER};
use sparse_core::{SparseVec, add_assign};
use transport::Transport;

use crate::allgather;
use crate::call::{Call, Operation};
use crate::communicator::Communicator;
use crate::cost::Link;
use crate::error::Error;
use crate::in_flight::{Check, InFlight, Lane, lock};
use crate::topology::{after, before};

const ROUNDS: usize = 31;
const LONG_ROUNDS: usize = 5;
const BURST: usize = 64;
const SHORT: usize = 64 << 10;
const LONG: usize = 1 << 20;
/// Above this time for 64 KiB, less than 5 MB/s, a MiB would take too long.
const SLOW: f64 = 0.0125;

impl<T: Transport> Communicator<T> {
    /// Measures what messages, merging and adding cost, and lets the `Auto` algorithms of this communicator and its clones choose by
    /// it.
    ///
    /// Every rank calls it, and all get the same link: the largest of what the ranks measured with the transport's
    /// clock, alpha from headers that each rank passes to the next, beta from 1 MiB so passed, in both directions at once. It takes
    /// about 50 rounds, 12 MiB for each rank; where 64 KiB take more than 12.5 ms, no more than these. Other operations
    /// beside it disturb it: await it first. A rank alone keeps what it had of messages.
    ///
    /// Measurements vary, so the choice of `Auto` after it, and with it the last bits of a sum, may differ from one run to
    /// the next: set [`Options::link`](crate::Options::link) to what was measured once where that matters.
    ///
    /// # Errors
    /// What every operation can meet.
    ///
    /// ```
    /// use collectives::{Communicator, SparseAlgorithm};
    /// use sparse_core::SparseVec;
    ///
    /// let sums = testkit::run_world(testkit::local_world(3), |transport| async move {
    ///     let communicator = Communicator::new(transport);
    ///     let link = communicator.calibrate().await?;
    ///     assert_eq!(communicator.link(), link);
    ///     let mine = SparseVec::new(1_000_000, vec![7, 100 + communicator.rank().0], vec![1.0_f32, 2.0])?;
    ///     let sum = communicator.allreduce(&mine, &SparseAlgorithm::Auto).await?;
    ///     Ok::<_, Box<dyn std::error::Error + Send + Sync>>(sum.nnz())
    /// });
    /// assert!(sums.into_iter().all(|nnz| nnz.unwrap() == 4));
    /// ```
    pub fn calibrate(&self) -> impl Future<Output = Result<Link, Error>> + Send {
        let begun = self.begin(Call::plain(Operation::Calibrate, 0));
        async move {
            let operation = begun?;
            let result = operation.drive(Check::Neighbour, calibrate(&operation)).await;
            if let Ok(link) = result {
                *lock(&self.shared().link) = link;
            }
            operation.finish(result)
        }
    }
}

pub(crate) async fn calibrate<T: Transport>(operation: &InFlight<T>) -> Result<Link, Error> {
    let (entry, value) = work(operation)?;
    let mut link = operation.link().work(entry, value);
    if operation.world_size() > 1 {
        // Everybody is here.
        largest_of(operation, []).await?;
        let small = shifts(operation, ROUNDS, 1, 0).await?;
        let burst = shifts(operation, LONG_ROUNDS, BURST, 0).await?;
        let short = shifts(operation, LONG_ROUNDS, 1, SHORT).await?;
        let [small, burst, short] = largest_of(operation, [small, burst, short]).await?;
        let (bytes, long) = if short > SLOW {
            (SHORT, short)
        } else {
            let long = shifts(operation, LONG_ROUNDS, 1, LONG).await?;
            (LONG, largest_of(operation, [long]).await?[0])
        };
        let header = HEADER as f64;
        // Of a clock that stands still comes no rate; a byte then costs next to nothing.
        link.beta = ((long - small) / bytes as f64).max(1e-15);
        link.overhead = ((burst - small) / (BURST as f64 - 1.0) - header * link.beta).max(0.0);
        link.alpha = (small - link.overhead - header * link.beta).max(0.0);
    }
    let [entry, value] = largest_of(operation, [link.entry, link.value]).await?;
    Ok(link.work(entry, value))
}

/// The median time of so many rounds, in each of which so many messages go to the right.
async fn shifts<T: Transport>(
    operation: &InFlight<T>,
    rounds: usize,
    messages: usize,
    bytes: usize,
) -> Result<f64, Error> {
    let (rank, ranks) = (operation.rank(), operation.world_size());
    let (to, from) = (after(rank, 1, ranks), before(rank, 1, ranks));
    let message = operation.opaque(&[&vec![0; bytes]]);
    let mut times = Vec::with_capacity(rounds);
    // The first round warms up.
    for _ in 0..=rounds {
        let begun = operation.now();
        let received: Vec<_> = (0..messages).map(|_| operation.recv(from, Lane::Reduce)).collect();
        let sent: Vec<_> = (0..messages).map(|_| operation.send(to, Lane::Reduce, message.clone())).collect();
        try_join(try_join_all(received), try_join_all(sent)).await?;
        times.push(operation.now() - begun);
    }
    Ok(median(&mut times[1..]))
}

/// Seconds for each entry to decode and merge, and for each dense value to add.
fn work<T: Transport>(operation: &InFlight<T>) -> Result<(f64, f64), Error> {
    const ENTRIES: u32 = 16_384;
    const REPEATS: usize = 7;
    let rank = operation.rank();
    let vector = |first| {
        let indices = (0..ENTRIES).map(|place| place * 96 + place * 31 % 64 + first).collect();
        SparseVec::new(u64::from(ENTRIES) * 96 + 128, indices, vec![1.0_f32; ENTRIES as usize])
    };
    let invalid = |source| Error::value(rank, source);
    let (left, right) = (vector(0).map_err(invalid)?, vector(7).map_err(invalid)?);
    let mut sum = vec![0.0_f32; 1 << 16];
    let ones = vec![1.0_f32; sum.len()];
    let (mut merging, mut adding) = (Vec::new(), Vec::new());
    for _ in 0..REPEATS {
        let message = operation.sparse(right.view());
        let begun = operation.now();
        let frame = wire::open(message).map_err(|source| Error::malformed(rank, source))?;
        let body = frame.sparse(right.dim()).map_err(|source| Error::malformed(rank, source))?;
        std::hint::black_box(sparse_core::reduce_views(&[left.view(), body.view()]).map_err(invalid)?);
        merging.push(operation.now() - begun);
        let begun = operation.now();
        add_assign(std::hint::black_box(&mut sum), &ones).map_err(invalid)?;
        adding.push(operation.now() - begun);
    }
    Ok((median(&mut merging) / f64::from(2 * ENTRIES), median(&mut adding) / f64::from(1 << 16)))
}

fn median(times: &mut [Duration]) -> f64 {
    times.sort_unstable();
    times.get(times.len() / 2).map_or(0.0, Duration::as_secs_f64)
}

/// The largest of each of the ranks' numbers.
async fn largest_of<T: Transport, const N: usize>(
    operation: &InFlight<T>,
    mine: [f64; N],
) -> Result<[f64; N], Error> {
    let block: Vec<u8> = mine.iter().flat_map(|number| number.to_le_bytes()).collect();
    let mut largest = [0.0; N];
    for (from, mut block) in allgather::bruck(operation, Bytes::from(block)).await?.into_iter().enumerate() {
        if block.len() != N * 8 {
            return Err(Error::malformed(
                from,
                format!("{} bytes of measurements, not {}", block.len(), N * 8),
            ));
        }
        for number in &mut largest {
            *number = f64::max(*number, block.get_f64_le());
        }
    }
    Ok(largest)
}
