//! What each algorithm costs, as pure functions: messages, bytes and the time on a link, before anything runs.
//!
//! A [`Link`] says what a message costs, a [`Workload`] what is to be summed; [`dense`], [`sparse`] and [`gtopk`] return the
//! [`Cost`] of an algorithm, and [`bounds`] what no algorithm can undercut. All are functions of what all ranks share,
//! so all ranks that compare costs choose alike.
//!
//! The model of the network is LogGP's. A message of `n` bytes occupies its sender for `overhead + n beta`; `alpha` after
//! it began to leave it begins to arrive, and occupies the receiver for as long. So it takes `alpha + overhead + n beta`
//! alone; several of one rank follow each other, and pay alpha once if none waits for an answer. Links are
//! full-duplex. After Alexandrov et al., "LogGP", 1995.
//!
//! Bytes are those that a [`Communicator`](crate::Communicator) hands to its transport: with the header of each message, the check of the
//! call, and indices as [`codec::expected_len`](sparse_core::codec::expected_len) has them for uniform supports.
//!
//! ```
//! use collectives::cost::{self, Link, Workload};
//! use collectives::{GtopkAlgorithm, SparseAlgorithm};
//!
//! // 0.1 % of 25.6 million f32 on each of 64 ranks, over 1 Gbit/s.
//! let link = Link::new(50e-6, 8e-9);
//! let work = Workload::uniform(64, 25_600_000, 25_600, 4);
//! let all = cost::sparse(&SparseAlgorithm::TopkAllgather, &work, &link);
//! let largest = cost::gtopk(GtopkAlgorithm::Butterfly, &work, &link);
//! assert_eq!((all.rounds, largest.rounds), (6, 6));
//! assert!(all.seconds() > 10.0 * largest.seconds());
//! assert!(largest.bytes > cost::bounds::exact_topk(&work));
//! ```
//!
//! To add an algorithm: a function in `phases.rs` or a sum of those there, a branch in the match below, and its row
//! in the tests that hold costs to what is counted and simulated.

pub mod bounds;
pub(crate) mod choice;
mod doubling;
mod hierarchy;
mod operations;
mod phases;
mod sizes;
#[cfg(test)]
mod tests;
mod workload;

use std::ops::Add;

use sparse_core::wire::HEADER;

use crate::topology::rounds;
use crate::{DenseAlgorithm, GtopkAlgorithm, SparseAlgorithm};

pub use choice::{choose_dense, choose_sparse};
pub use hierarchy::{hierarchical_dense, hierarchical_gtopk, hierarchical_sparse};
pub use operations::{
    allgather, allgather_dense, allgather_sparse, barrier, broadcast, reduce, reduce_dense, reduce_scatter,
    reduce_scatter_dense,
};
pub(crate) use phases::{dense_pieces, sparse_pieces};
pub use workload::Workload;

/// What a message costs between two ranks, and what a rank's own work costs. Seconds throughout.
#[derive(Clone, Copy, PartialEq, Debug)]
#[non_exhaustive]
pub struct Link {
    /// The latency: from when a message begins to leave until it begins to arrive.
    pub alpha: f64,
    /// For each byte: 8e-9 is 1 Gbit/s.
    pub beta: f64,
    /// For each message, beside its bytes, at the sender as at the receiver. 0 unless set.
    pub overhead: f64,
    /// For each entry that a rank decodes and merges. 0 unless set.
    pub entry: f64,
    /// For each dense value that a rank adds. 0 unless set.
    pub value: f64,
}

/// An Ethernet of 1 Gbit/s with 50 us of latency, 2 ns for an entry and 0.2 ns for a value.
impl Default for Link {
    fn default() -> Self {
        Self::new(50e-6, 8e-9).work(2e-9, 0.2e-9)
    }
}

impl Link {
    /// A link with this latency and this time for a byte, both in seconds; work costs nothing.
    #[must_use]
    pub const fn new(alpha: f64, beta: f64) -> Self {
        Self { alpha, beta, overhead: 0.0, entry: 0.0, value: 0.0 }
    }

    /// Sets [`overhead`](Self::overhead).
    #[must_use]
    pub const fn overhead(mut self, seconds: f64) -> Self {
        self.overhead = seconds;
        self
    }

    /// Sets [`entry`](Self::entry) and [`value`](Self::value).
    #[must_use]
    pub const fn work(mut self, entry: f64, value: f64) -> Self {
        self.entry = entry;
        self.value = value;
        self
    }

    /// For how long a message of so many bytes occupies a rank.
    fn occupancy(&self, bytes: f64) -> f64 {
        self.overhead + bytes * self.beta
    }

    /// A message of so many bytes, from its start to its end.
    fn message(&self, bytes: f64) -> f64 {
        self.alpha + self.occupancy(bytes)
    }
}

/// What an algorithm costs.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
#[non_exhaustive]
pub struct Cost {
    /// Messages that wait for each other: the longest chain.
    pub rounds: u32,
    /// Messages of the rank that sends the most.
    pub messages: u64,
    /// Bytes of the rank that sends or receives the most, headers included.
    pub bytes: f64,
    /// Entries that a rank decodes and merges.
    pub entries: f64,
    /// Dense values that a rank adds.
    pub values: f64,
    /// Seconds that the messages take: the longest path through the rounds.
    pub network: f64,
    /// Seconds that merging and adding take.
    pub work: f64,
}

impl Cost {
    /// All of the time.
    #[must_use]
    pub fn seconds(&self) -> f64 {
        self.network + self.work
    }

    /// With so much work for each rank.
    fn with_work(mut self, link: &Link, entries: f64, values: f64) -> Self {
        self.entries += entries;
        self.values += values;
        self.work += entries * link.entry + values * link.value;
        self
    }
}

/// One phase after the other.
impl Add for Cost {
    type Output = Self;

    fn add(self, next: Self) -> Self {
        Self {
            rounds: self.rounds + next.rounds,
            messages: self.messages + next.messages,
            bytes: self.bytes + next.bytes,
            entries: self.entries + next.entries,
            values: self.values + next.values,
            network: self.network + next.network,
            work: self.work + next.work,
        }
    }
}

/// The cost of [`allreduce_dense`](crate::Communicator::allreduce_dense).
#[must_use]
pub fn dense(algorithm: DenseAlgorithm, work: &Workload, link: &Link) -> Cost {
    if work.ranks < 2 {
        return Cost::default();
    }
    let values = work.dim as f64;
    let ranks = work.ranks as f64;
    let data = match algorithm {
        DenseAlgorithm::Ring => {
            phases::dense_ring(work, link).with_work(link, 0.0, values * (ranks - 1.0) / ranks)
        }
        DenseAlgorithm::RecursiveDoubling => {
            let rounds = f64::from(rounds(work.ranks));
            let pieces = dense_pieces(values, work.value, link);
            let piece = sizes::dense(work, values / pieces as f64);
            doubling::cost(work.ranks, link, pieces, |_, _| piece).with_work(link, 0.0, values * rounds)
        }
        DenseAlgorithm::Rabenseifner => phases::rabenseifner(work, link).with_work(link, 0.0, values),
        DenseAlgorithm::Auto => return choose_dense(work, link).1,
    };
    check(link) + data
}

/// The cost of [`allreduce`](crate::Communicator::allreduce).
#[must_use]
pub fn sparse(algorithm: &SparseAlgorithm, work: &Workload, link: &Link) -> Cost {
    if work.ranks < 2 {
        return Cost::default();
    }
    let (ranks, entries) = (work.ranks as f64, work.entries as f64);
    let (union, part) = (work.union(work.ranks), work.dim as f64 / ranks);
    let data = match algorithm {
        SparseAlgorithm::SsarRecursiveDoubling => phases::sparse_doubling(work, link),
        SparseAlgorithm::SsarSplitAllgather => {
            let block = sizes::shorter_on_average(work, part, union / ranks);
            phases::split(work, link) + phases::bruck(work.ranks, block, link).with_work(link, union, 0.0)
        }
        SparseAlgorithm::DsarSplitAllgather => {
            let block = HEADER as f64 + part * work.value as f64;
            phases::split(work, link)
                + phases::ring(work.ranks, block, link).with_work(link, 0.0, work.dim as f64)
        }
        SparseAlgorithm::DsarQuantized { quantizer, .. } => {
            let longest = work.dim.div_ceil(work.ranks as u64);
            let block = HEADER + quantizer.encoded_len(usize::try_from(longest).unwrap_or(usize::MAX));
            phases::split(work, link)
                + phases::ring(work.ranks, block as f64, link).with_work(link, 0.0, work.dim as f64)
        }
        SparseAlgorithm::SsarRing => phases::sparse_ring(work, link),
        SparseAlgorithm::TopkAllgather => {
            let block = sizes::sparse(work, work.dim as f64, entries);
            phases::bruck(work.ranks, block, link).with_work(link, ranks * entries, 0.0)
        }
        SparseAlgorithm::Auto => {
            return phases::bruck(work.ranks, 8.0, link) + choose_sparse(work, link).1;
        }
    };
    check(link) + data
}

/// The cost of [`gtopk`](crate::Communicator::gtopk) for as many entries as each rank brings.
#[must_use]
pub fn gtopk(algorithm: GtopkAlgorithm, work: &Workload, link: &Link) -> Cost {
    if work.ranks < 2 {
        return Cost::default();
    }
    let entries = work.entries as f64;
    let message = sizes::sparse(work, work.dim as f64, entries);
    let merged = 2.0 * entries * f64::from(rounds(work.ranks));
    check(link)
        + match algorithm {
            GtopkAlgorithm::Tree => phases::tree(work.ranks, message, link),
            GtopkAlgorithm::Butterfly => doubling::cost(work.ranks, link, 1, |_, _| message),
            // Nothing moves where all lies evenly.
            GtopkAlgorithm::Exact | GtopkAlgorithm::Oktopk => {
                return check(link) + phases::exact(work, work.entries, link);
            }
            GtopkAlgorithm::Spardl => return check(link) + phases::spardl(work, link),
        }
        .with_work(link, merged, 0.0)
}

/// The check of the call: a header to the neighbour, ahead of the data.
fn check(link: &Link) -> Cost {
    let bytes = HEADER as f64;
    Cost { messages: 1, bytes, network: link.occupancy(bytes), ..Cost::default() }
}
