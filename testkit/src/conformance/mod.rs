//! The laws of [the transport contract](transport::Transport), as tests that any back end can run.
//!
//! [`conformance_suite!`](crate::conformance_suite) makes a `#[test]` of every law at every world size
//! that it makes sense at. A law is also an ordinary function over a world, which returns if the back end
//! keeps it and panics if it does not; a rank that does not end within `patience` breaks it as well. It takes
//! [`erased`] transports, so that the laws are compiled once and not for each back end.
//!
//! Nothing here asks how a back end works: ranks may be threads, processes or tasks, may share memory
//! or not, and may need to be polled to make progress.
//!
//! Give it worlds in which every send completes or fails within [`PATIENCE`], and a small window, if that
//! can be chosen: the laws on back-pressure send some ten MiB to a rank that does not receive, which a window
//! of more than 16 MiB may swallow without being put to the test. In all, a back end moves about 3 GiB.

#![allow(clippy::expect_used, reason = "a law that is broken panics")]

mod abort;
mod delivery;
mod loss;
mod posting;
mod pressure;
mod stress;
mod suite;
mod time;

use std::fmt::Display;
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::{Either, select};
use transport::{AnyTransport, Rank, Tag, Transport};

use crate::random::mix;

pub use abort::{
    an_abort_ends_its_context_on_every_rank, an_abort_of_the_world_ends_everything,
    who_leaves_after_an_abort_is_not_lost,
};
pub use delivery::{
    a_rank_may_send_to_itself, a_rank_outside_the_world_is_refused, any_transport_keeps_the_laws,
    empty_messages_are_messages, messages_arrive_in_order_whole_and_once, ranks_are_numbered,
};
pub use loss::{
    a_killed_rank_is_lost, a_rank_that_leaves_is_lost_after_its_messages, a_slow_reader_is_not_lost,
    operations_that_wait_for_a_leaver_end, what_a_leaver_has_received_was_sent,
};
pub use posting::{
    a_dropped_receive_takes_no_message, a_dropped_send_still_delivers, futures_may_be_awaited_in_any_order,
    receives_are_posted_at_the_call, sends_are_posted_at_the_call, the_last_waker_is_woken,
};
pub use pressure::{
    a_posted_receive_completes_its_send, large_sends_before_receives_do_not_deadlock,
    tags_do_not_block_each_other, unexpected_empty_messages_are_bounded, unexpected_messages_are_bounded,
};
pub use stress::{random_traffic_arrives, threads_share_a_rank};
pub use time::{a_sleep_counts_from_its_call, the_clock_never_runs_backwards};

/// How long a rank may take over a law before the law is broken.
///
/// Every bound that the contract leaves to the back end (the loss of a peer, an abort that travels) must
/// be shorter in the worlds that the suite is given.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// A law, for back ends whose ranks are processes: each runs it on its own rank, in a world of one of these sizes.
#[derive(Clone, Copy, Debug)]
pub struct Law {
    /// Its name.
    pub name: &'static str,
    /// At which sizes of the world it makes sense.
    pub sizes: &'static [usize],
    /// Runs this process's part; panics if the law is broken.
    pub check: fn(Vec<AnyTransport>, Duration),
    /// Whether a rank of a world of this size leaves in its midst, for which the law must be given the only handle. The
    /// others may not leave before the last has ended: keep a handle until all have come to the end.
    pub leaves: fn(rank: usize, size: usize) -> bool,
}

macro_rules! table {
    (@each $($law:ident: $($size:tt),*;)*) => {
        &[$(Law { name: stringify!($law), sizes: &[$($size),*], check: $law, leaves: table!(@leaves $law) }),*]
    };
    (@leaves a_rank_that_leaves_is_lost_after_its_messages) => { |rank, size| rank == size - 1 };
    (@leaves what_a_leaver_has_received_was_sent) => { |rank, size| rank == size - 1 };
    (@leaves operations_that_wait_for_a_leaver_end) => { |rank, size| rank == size / 2 };
    (@leaves who_leaves_after_an_abort_is_not_lost) => { |_, _| true };
    (@leaves $law:ident) => { |_, _| false };
}

/// All laws, in the order of the suite.
pub const LAWS: &[Law] = crate::__for_each_law! { [table] @each };

/// The same ranks without their type, as the laws take them.
pub fn erased<T: Transport>(world: impl IntoIterator<Item = T>) -> Vec<AnyTransport> {
    world.into_iter().map(AnyTransport::new).collect()
}

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;

/// Runs one rank's part of a law on each; all ranks stay in the world until the last has ended.
#[track_caller]
fn on_each_rank<T, F, Fut>(world: Vec<T>, patience: Duration, part: F)
where
    T: Transport,
    F: Fn(Arc<T>) -> Fut + Sync,
    Fut: Future<Output = ()>,
{
    let world: Vec<_> = world.into_iter().map(Arc::new).collect();
    crate::run_world_within(patience, world.clone(), part);
}

/// The size of the world that these ranks are of: all of it, or this process's part.
fn size_of<T: Transport>(world: &[T]) -> usize {
    world.first().map_or(1, Transport::world_size)
}

fn ranks<T: Transport>(world: &T) -> impl Iterator<Item = Rank> + Clone + use<T> {
    (0..world.world_size()).map(Rank::from_index)
}

/// The rank to whom the laws on pairs send; this one in a world of one.
fn right<T: Transport>(world: &T) -> Rank {
    Rank::from_index((world.rank().index() + 1) % world.world_size())
}

/// The rank of whom this one is the right neighbour.
fn left<T: Transport>(world: &T) -> Rank {
    Rank::from_index((world.rank().index() + world.world_size() - 1) % world.world_size())
}

/// Returns once both neighbours have come here.
async fn meet_neighbours<T: Transport>(world: &T, tag: Tag) {
    meet([left(world), right(world)], world, tag).await;
}

/// Returns once every rank has come here.
async fn meet_all<T: Transport>(world: &T, tag: Tag) {
    meet(ranks(world), world, tag).await;
}

async fn meet<T: Transport>(peers: impl IntoIterator<Item = Rank> + Clone, world: &T, tag: Tag) {
    let signals: Vec<_> = peers.clone().into_iter().map(|from| world.recv(from, tag)).collect();
    let sent: Vec<_> = peers.into_iter().map(|to| world.send(to, tag, Bytes::new())).collect();
    for send in sent {
        send.await.expect("a signal is sent");
    }
    for signal in signals {
        signal.await.expect("a signal arrives");
    }
}

/// Polls once, with a waker that nobody listens to.
fn poll_once<F: Future>(future: &mut Pin<Box<F>>) -> Poll<F::Output> {
    future.as_mut().poll(&mut Context::from_waker(Waker::noop()))
}

/// Whether a future is still pending after a while in which this rank makes progress.
async fn stays_pending<T: Transport, F: Future + Unpin>(world: &T, future: F, a_while: Duration) -> bool {
    matches!(select(future, pin!(world.sleep(a_while))).await, Either::Right(_))
}

/// `length` bytes that depend on every bit of `seed`.
fn payload(seed: u64, length: usize) -> Bytes {
    let mut bytes = Vec::with_capacity(length.next_multiple_of(8));
    for word in 0..length.div_ceil(8) as u64 {
        bytes.extend_from_slice(&mix(seed ^ mix(word)).to_le_bytes());
    }
    bytes.truncate(length);
    bytes.into()
}

/// The messages of one sender, receiver and tag, each of its own length and content.
#[derive(Clone, Copy)]
struct Letters {
    from: Rank,
    to: Rank,
    tag: Tag,
    /// Lengths are below this, and now and then 0.
    limit: usize,
}

impl Letters {
    fn number(self, index: usize) -> Bytes {
        let pair = u64::from(self.from.0) << 32 | u64::from(self.to.0);
        let seed = mix(mix(pair) ^ mix(self.tag.to_u64()).rotate_left(1) ^ index as u64);
        let length = if seed.is_multiple_of(8) { 0 } else { (seed >> 3) as usize % self.limit.max(1) };
        payload(seed, length)
    }

    #[track_caller]
    fn check<E: Display>(self, index: usize, received: Result<Bytes, E>) {
        let Self { from, to, tag, .. } = self;
        let what = format!("message {index} from rank {from} to rank {to} under tag {tag}");
        let (sent, received) =
            (self.number(index), received.unwrap_or_else(|e| panic!("{what} failed: {e}")));
        same_bytes(&received, &sent, &what);
    }
}

/// Compares without printing megabytes.
#[track_caller]
fn same_bytes(received: &[u8], sent: &[u8], what: &str) {
    if received != sent {
        let differs = received.iter().zip(sent).position(|(a, b)| a != b);
        let differs = differs.unwrap_or(received.len().min(sent.len()));
        let (got, expected) = (received.len(), sent.len());
        panic!("{what} is not what was sent: {got} bytes for {expected}, different from byte {differs} on");
    }
}
