//! Worlds of thousands of ranks in virtual time: the same collectives, on one thread, over a network that is computed.
//!
//! [`run`] gives each rank a [`SimTransport`] and drives all of them. Time stands still while ranks compute, and jumps
//! to the next event when all of them wait, so only the network takes time, and deadlines work. Events at the
//! same time happen in the order in which they were caused: every run with the same [`Network`] is the same, to
//! the picosecond. A world in which all ranks wait and nothing is on its way is a [`Deadlock`], found at once.
//!
//! # The network
//!
//! Hosts hang on a switch without limits of its own, each by a full-duplex link. A message of `n` bytes occupies its
//! host's egress for `overhead + n / rate`, after the messages posted before it. It begins to arrive
//! `alpha` after it began to leave (and does not wait to be whole: *cut-through*), and needs the receiver's ingress for as long. Those that
//! arrive at a host at the same time, from different ranks, share its ingress evenly, as flows do; of one pair of ranks the
//! first is done first. So one message alone takes `alpha + overhead + n / rate`, and P - 1 messages to one rank
//! take `alpha + (P - 1)(overhead + n / rate)`: incast shows.
//!
//! A send completes when its message has arrived and is received, or lies within the receiver's window. Aborts and leaving
//! take no time. Between ranks of one host, and from a rank to itself, messages pass by memory: see
//! [`Network::hosts`]; or ranks of one host have links to each other, slower or faster than it: see [`Network::groups`].
//!
//! ```
//! use std::time::Duration;
//!
//! use bytes::Bytes;
//! use testkit::sim::{self, Network};
//! use transport::{Rank, Tag, Transport};
//!
//! // 1000 ranks send 1 MB each to rank 0, at 1 GB/s.
//! let network = Network::new(1001).alpha(Duration::from_micros(50)).rate(1e9);
//! let run = sim::run(&network, |world| async move {
//!     let tag = Tag::new(0, 0);
//!     if world.rank() != Rank(0) {
//!         return world.send(Rank(0), tag, Bytes::from(vec![0; 1_000_000])).await;
//!     }
//!     for from in 1..=1000 {
//!         world.recv(Rank(from), tag).await?;
//!     }
//!     Ok(())
//! })?;
//! assert_eq!(run.time, Duration::from_micros(50) + Duration::from_secs(1));
//! assert!(run.outputs.iter().all(Result::is_ok));
//! # Ok::<(), sim::Deadlock>(())
//! ```
//!
//! Memory is that of the messages and of the pairs of ranks that have ever exchanged one.

mod executor;
mod ingress;
mod network;
mod transport;
mod world;

use std::future::Future;
use std::time::Duration;

use ::transport::{Rank, Tag};

pub use executor::Deadlock;
pub(crate) use executor::{current, drive_or_panic};
pub use network::Network;
pub use transport::{SimTransport, Simulator};

/// What came of a simulation.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Run<R> {
    /// What the ranks returned, by rank.
    pub outputs: Vec<R>,
    /// When each rank ended, by rank.
    pub ended: Vec<Duration>,
    /// When the last rank ended.
    pub time: Duration,
    /// The messages in the order of their arrival, if the network is [traced](Network::traced); none otherwise.
    pub trace: Vec<Record>,
}

/// One message of a trace.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Record {
    /// The sender.
    pub from: Rank,
    /// The receiver.
    pub to: Rank,
    /// What it was sent under.
    pub tag: Tag,
    /// The length of its payload.
    pub bytes: usize,
    /// When it was handed to `send`.
    pub posted: Duration,
    /// When it began to leave.
    pub sent: Duration,
    /// When it had arrived whole.
    pub arrived: Duration,
}

/// Runs one future per rank to their ends, from time 0.
///
/// All on this thread: the futures need not be `Send`, though those of the transport are. A panic of a rank is passed on.
///
/// # Errors
/// [`Deadlock`]: no rank can go on, and no message or sleep is pending.
pub fn run<F, Fut>(network: &Network, f: F) -> Result<Run<Fut::Output>, Deadlock>
where
    F: Fn(SimTransport) -> Fut,
    Fut: Future,
{
    let simulator = Simulator::new(network);
    // Kept to the end, so that no rank is lost to the others while they run.
    let world = simulator.transports();
    let ranks = world.iter().cloned().map(|transport| {
        let part = f(transport.clone());
        async move { (part.await, ::transport::Transport::now(&transport)) }
    });
    let ended = simulator.drive(ranks.collect())?;
    let (outputs, ended): (_, Vec<_>) = ended.into_iter().unzip();
    let time = ended.iter().max().copied().unwrap_or_default();
    Ok(Run { outputs, ended, time, trace: simulator.take_trace() })
}
