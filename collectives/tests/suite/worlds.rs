//! Worlds of ranks whose back ends' types are erased: every type would have all the algorithms compiled for it once more.

use testkit::faults::Faulty;
use testkit::sim::{Network, Simulator};
use transport::AnyTransport;

/// A thread for each rank.
pub(crate) fn local_world(ranks: usize) -> Vec<AnyTransport> {
    testkit::local_world(ranks).into_iter().map(AnyTransport::new).collect()
}

/// Runs a world of ranks, by whatever runs one, in virtual time: on this thread, over a network that takes none.
pub(crate) fn in_virtual_time<R>(ranks: usize, f: impl FnOnce(Vec<AnyTransport>) -> R) -> R {
    let simulator = Simulator::new(&Network::new(ranks));
    simulator.within(|| f(simulator.transports().into_iter().map(AnyTransport::new).collect()))
}

/// The same ranks, whose messages come late, by chance.
pub(crate) fn delayed(world: Vec<AnyTransport>, seed: u64) -> Vec<AnyTransport> {
    let late = |rank| AnyTransport::new(Faulty::new(rank).random_delays(seed));
    world.into_iter().map(late).collect()
}
