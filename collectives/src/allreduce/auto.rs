//! The algorithm whose predicted time is the least.
//!
//! Steps: of sparse vectors, Bruck's allgather of the ranks' nnz, so that all choose alike: `ceil(log2 P) alpha`; dense vectors need
//! none. Then the algorithm that [`cost`](crate::cost) predicts to be the fastest on the communicator's link, for the longest
//! vector of all ranks, and supports that lie uniformly.
//!
//! Learning: each rank keeps, for each algorithm, an average of actual over predicted time, and sends them with its nnz. Predictions
//! are multiplied by the largest of all ranks. A choice thus depends on nothing but what was gathered in its own call, and ranks
//! agree however many calls are in flight.

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use bytes::{Buf, Bytes};
use sparse_core::{Element, SparseVec, Stream};
use transport::Transport;

use crate::allgather;
use crate::cost::choice::{SPARSE, choose_dense, least, sparse_costs};
use crate::cost::{Link, Workload};
use crate::error::Error;
use crate::in_flight::{InFlight, lock};

/// Behind a pointer, since the algorithm that is chosen is run by what calls this.
type Boxed<'a, R> = Pin<Box<dyn Future<Output = Result<R, Error>> + Send + 'a>>;

pub(super) fn dense<'a, T: Transport, E: Element>(
    operation: &'a InFlight<T>,
    input: &'a [E],
    output: &'a mut [E],
) -> Boxed<'a, ()> {
    Box::pin(async move {
        let work =
            Workload::uniform(operation.world_size(), input.len() as u64, input.len() as u64, size_of::<E>());
        let (algorithm, cost) = choose_dense(&work, operation.link());
        let begun = operation.now();
        super::dense_sum(operation, input, output, algorithm).await?;
        tell(operation, &algorithm, cost.seconds(), operation.now() - begun);
        Ok(())
    })
}

pub(super) fn sparse<'a, T: Transport, E: Element>(
    operation: &'a InFlight<T>,
    input: &'a SparseVec<E>,
) -> Boxed<'a, Stream<E>> {
    Box::pin(async move {
        let shared = share(operation, input).await?;
        let work = shared.workload(input.dim(), size_of::<E>());
        let predicted = sparse_costs(&work, operation.link()).map(|cost| cost.seconds());
        let mut corrected = predicted;
        corrected.iter_mut().zip(shared.factors).for_each(|(seconds, factor)| *seconds *= factor);
        let chosen = least(&corrected);
        let begun = operation.now();
        let sum = super::sparse_sum(operation, input, &SPARSE[chosen]).await?;
        let actual = operation.now() - begun;
        tell(operation, &SPARSE[chosen], corrected[chosen], actual);
        if let Some(learned) = operation.learned() {
            lock(learned).learn(chosen, predicted[chosen], actual.as_secs_f64());
        }
        Ok(sum)
    })
}

fn tell<T: Transport>(
    operation: &InFlight<T>,
    algorithm: &dyn std::fmt::Debug,
    predicted: f64,
    actual: Duration,
) {
    tracing::debug!(
        rank = operation.rank(),
        ?algorithm,
        predicted,
        actual = actual.as_secs_f64(),
        "chose the algorithm of least predicted time",
    );
}

/// What a rank has learned of each algorithm: actual over predicted time.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Learned([f32; SPARSE.len()]);

impl Default for Learned {
    fn default() -> Self {
        Self([1.0; SPARSE.len()])
    }
}

impl Learned {
    /// A quarter of what is new, which counts as four times what was expected at most, so that one delay moves no average far.
    /// What is not tried returns slowly to 1, so that no algorithm is given up for good.
    fn learn(&mut self, chosen: usize, predicted: f64, actual: f64) {
        if !(predicted > 0.0 && actual > 0.0) {
            return;
        }
        let ratio = (actual / predicted).min(1e6) as f32;
        for (place, factor) in self.0.iter_mut().enumerate() {
            let (towards, share) = if place == chosen {
                (ratio.clamp(*factor / 4.0, *factor * 4.0), 0.25)
            } else {
                (1.0, 1.0 / 64.0)
            };
            *factor += (towards - *factor) * share;
        }
    }
}

/// What all ranks know of each other.
struct Shared {
    ranks: usize,
    most: u64,
    total: u64,
    factors: [f64; SPARSE.len()],
}

impl Shared {
    fn workload(&self, dim: u64, value: usize) -> Workload {
        let longest = Workload::uniform(self.ranks, dim, self.most, value);
        if self.most * self.ranks as u64 == self.total {
            return longest;
        }
        let mean = self.total / self.ranks as u64;
        longest.with_union(Workload::uniform(self.ranks, dim, mean, value).union(self.ranks))
    }
}

async fn share<T: Transport, E: Element>(
    operation: &InFlight<T>,
    input: &SparseVec<E>,
) -> Result<Shared, Error> {
    let factors = operation.learned().map(|learned| lock(learned).0);
    let mut block = (input.nnz() as u64).to_le_bytes().to_vec();
    block.extend(factors.iter().flatten().flat_map(|factor| factor.to_le_bytes()));
    let length = block.len();
    let ranks = operation.world_size();
    let mut shared = Shared { ranks, most: 0, total: 0, factors: [0.0; SPARSE.len()] };
    for (from, mut block) in allgather::bruck(operation, Bytes::from(block)).await?.into_iter().enumerate() {
        if block.len() != length {
            return Err(Error::malformed(from, format!("{} bytes to choose by, not {length}", block.len())));
        }
        let nnz = block.get_u64_le();
        if nnz > input.dim() {
            return Err(Error::malformed(from, format!("{nnz} entries of dimension {}", input.dim())));
        }
        shared.most = shared.most.max(nnz);
        shared.total += nnz;
        for factor in &mut shared.factors {
            let theirs = if block.has_remaining() { f64::from(block.get_f32_le()) } else { 1.0 };
            *factor = factor.max(theirs);
        }
    }
    Ok(shared)
}

/// What all ranks choose by, in short: ranks that differ in it would choose apart.
pub(crate) fn model(link: &Link, learns: bool) -> u64 {
    let parts = [link.alpha, link.beta, link.overhead, link.entry, link.value].map(f64::to_bits);
    // FNV-1a.
    let bytes = parts.iter().flat_map(|bits| bits.to_le_bytes()).chain([u8::from(learns)]);
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}
