//! A phase of an operation that only some of its ranks take part in.

use std::future::Future;

use transport::{Rank, Transport};

use crate::error::Error;
use crate::group::Group;
use crate::in_flight::InFlight;

/// Some of the ranks of an operation, numbered from 0 for the algorithms that run among them.
///
/// They send as the operation does, with its tags, fingerprint and deadline, so that a failure among them is a failure of the whole.
/// Two parts may use the same lanes: between any two ranks, messages of a lane come in the order of the phases.
pub(super) struct Part<T: Transport> {
    operation: InFlight<T>,
    /// What the ranks are called in the whole.
    names: Group,
}

impl<T: Transport> Part<T> {
    /// The part of these ranks of the whole, this one at `place`, for the vector from index `start` on.
    pub(super) fn new(whole: &InFlight<T>, members: &[usize], place: usize, start: u64) -> Self {
        let names = Group::new(members.iter().copied().map(Rank::from_index).collect(), place);
        Self { operation: whole.part(&names, start), names }
    }

    pub(super) fn operation(&self) -> &InFlight<T> {
        &self.operation
    }

    /// A phase among these ranks, with errors that name ranks as the whole does.
    pub(super) async fn run<R>(&self, phase: impl Future<Output = Result<R, Error>>) -> Result<R, Error> {
        phase.await.map_err(|error| self.names.name_in_world(error))
    }
}
