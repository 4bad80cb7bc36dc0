use std::time::Duration;

use collectives::{GlobalTopk, Traffic};
use sparse_core::{SparseVec, Stream};

/// One way to sum what the ranks bring, by this project or by another library.
///
/// It has its input, and room for its result, before it is measured.
pub(super) trait Contender {
    /// Its name in the report.
    fn name(&self) -> &str;

    /// Whether it sums all values: what others are compared with.
    fn is_dense(&self) -> bool;

    /// Whether another library does it: what this project is compared with.
    fn is_peer(&self) -> bool;

    /// Gets ready for [`run`](Self::run): here it may free memory and take its time.
    fn prepare(&mut self);

    /// Sums once.
    fn run(&mut self) -> anyhow::Result<Lap>;

    /// Called again and again while this rank waits for others after a run, if it returns true: moves on what they may
    /// still need of it.
    fn progress(&self) -> bool;

    /// What this rank has after a run, and what that must be.
    fn outcome(&self) -> anyhow::Result<Outcome<'_>>;
}

/// What one sum cost this rank.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lap {
    /// The operation itself, waiting for other ranks included.
    pub(super) elapsed: Duration,
    /// What was sent and received; `None` where that is not known.
    pub(super) traffic: Option<Traffic>,
}

/// A result on one rank.
#[derive(Clone, Copy, Debug)]
pub(super) enum Outcome<'a> {
    /// The sum, exactly.
    Sum(View<'a>),
    /// The sum, rounded by chance to so many levels between zero and the largest value around.
    Rounded(View<'a>, u32),
    /// The largest entries of the sum.
    Topk(&'a GlobalTopk<f32>),
    /// A global top-k with at most a share of the entries from each range, so that larger ones may be missed.
    TopkByRange(&'a GlobalTopk<f32>),
}

/// A vector in either form.
#[derive(Clone, Copy, Debug)]
pub(super) enum View<'a> {
    Dense(&'a [f32]),
    Sparse(&'a SparseVec<f32>),
}

impl View<'_> {
    pub(super) fn dim(&self) -> u64 {
        match self {
            Self::Dense(values) => values.len() as u64,
            Self::Sparse(vector) => vector.dim(),
        }
    }
}

impl<'a> From<&'a Stream<f32>> for View<'a> {
    fn from(stream: &'a Stream<f32>) -> Self {
        match stream {
            Stream::Dense(values) => Self::Dense(values),
            Stream::Sparse(vector) => Self::Sparse(vector),
        }
    }
}
