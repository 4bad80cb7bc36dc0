use std::time::{Duration, Instant};

use collectives::Communicator;
use transport::Transport;

/// What one step did and what it cost this rank.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
#[non_exhaustive]
pub struct StepReport {
    /// Clipping, accumulating and selecting (for a dense method: clipping and gathering).
    pub select: Duration,
    /// The collective, waiting for the other ranks included; with buckets, what is waited for after the last is launched.
    pub communicate: Duration,
    /// Applying the result to values, residual and velocity.
    pub update: Duration,
    /// Bytes that this rank's communicator sent meanwhile, headers included. Counts other collectives
    /// that ran on a clone of the communicator at the same time.
    pub bytes_sent: u64,
    /// The density that the schedule asked for; 1 for a dense method; for a gradient that is sparse by
    /// nature, its own.
    pub density: f64,
    /// How many entries that density stands for.
    pub k: usize,
    /// Entries that this rank contributed: `k`, or fewer where fewer are not zero.
    pub nnz_selected: usize,
    /// Entries of the result: those that the sum holds if it is sparse, all of them if it is dense.
    pub nnz_result: usize,
}

/// Makes a [`StepReport`] from the moments at which the parts of a step end.
#[derive(Debug)]
pub(crate) struct Clock<'a, T: Transport> {
    communicator: &'a Communicator<T>,
    bytes_before: u64,
    last: Instant,
    report: StepReport,
}

impl<'a, T: Transport> Clock<'a, T> {
    pub(crate) fn start(communicator: &'a Communicator<T>) -> Self {
        let bytes_before = communicator.traffic().bytes_sent;
        Self { communicator, bytes_before, last: Instant::now(), report: StepReport::default() }
    }

    /// Forgets the time since the last part: it was the caller's.
    pub(crate) fn resume(&mut self) {
        self.lap();
    }

    pub(crate) fn selected(&mut self) {
        let lap = self.lap();
        self.report.select += lap;
    }

    pub(crate) fn communicated(&mut self) {
        let lap = self.lap();
        self.report.communicate += lap;
    }

    /// The report of all of it: what was not counted yet is the update.
    pub(crate) fn report(
        &mut self,
        density: f64,
        k: usize,
        nnz_selected: usize,
        nnz_result: usize,
    ) -> StepReport {
        let update = self.lap();
        let bytes_sent = self.communicator.traffic().bytes_sent - self.bytes_before;
        StepReport { update, bytes_sent, density, k, nnz_selected, nnz_result, ..self.report }
    }

    fn lap(&mut self) -> Duration {
        let now = Instant::now();
        now - std::mem::replace(&mut self.last, now)
    }
}
