use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use crate::{Error, Rank, Scope, Tag};

/// Whole messages of bytes between the ranks of a world, under tags.
///
/// # For callers
///
/// - **Posted at the call.** `send` and `recv` begin when they are called, not when their future is
///   first polled, and the futures borrow nothing: keep any number of them, await them in any order.
/// - **Drive sends and receives together.** A `send` may wait until the peer receives. Two ranks that
///   exchange large messages both call `recv` and `send` before they await either.
/// - **Matching.** Messages of one (from, to, tag) arrive in the order of their `send` calls, whole,
///   exactly once. Different tags never block each other. A zero-length message is a message. A
///   message may exceed 2 GiB. A rank may send to itself.
/// - **Dropping a future abandons it.** A dropped `send` still delivers its message; nobody learns
///   when. A dropped `recv` that had not returned its message takes none: the message goes to the
///   next `recv` of that sender and tag.
/// - **A completed `send`** means that the message will be delivered if neither rank dies. It does not
///   mean that it was received.
/// - **A lost peer** ends every pending and later operation that needs it with
///   [`Error::PeerLost`], at once where the system tells, otherwise within the back end's configured
///   bound. Messages that arrived whole before the loss can still be received.
/// - **Dropping the last handle** is an orderly end: messages whose `send` completed still reach
///   peers that stay, and peers learn that the rank has left.
///
/// # For implementers
///
/// The conformance suite in `testkit` checks all of this, at worlds of 1, 2, 3, 4, 7 and 8.
///
/// - Post at the call; own the payload until the operation is complete. Where the system's requests
///   borrow a buffer (MPI, RDMA), the back end keeps request and buffer together and outlives the
///   future. Never let a dropped or leaked future free memory that hardware still reads or writes.
/// - A future may make its own progress when it is polled. A back end that must be polled to
///   progress wakes its waker before it returns `Pending`; [`block_on`](crate::block_on) then spins.
/// - A `recv` that is dropped after its message was matched puts the message back at the front.
/// - Bound what arrives unexpected by back-pressure (a window per peer beyond which `send` waits for
///   its `recv`), without letting one tag's backlog stop another tag.
/// - Allocate nothing on the word of a length that was not authenticated and bounded; answer a
///   violation of the protocol with [`Error::Protocol`], never a panic.
/// - Treat a large transfer in progress as a sign of life.
/// - After `abort(Scope::Context(c), ..)`, operations in context `c` fail at once on this rank and soon
///   on the others, queued messages of `c` may be dropped, and everything else goes on undisturbed.
/// - A rank passes on an abort that it learns of, with its origin: otherwise one that gives up and leaves
///   at once could seem lost to peers that have not heard of the abort yet. What works: decide which abort
///   is the first, end the operations and pass it on under one lock that leaving takes as well.
/// - Futures may outlive the last handle: pending receives then end with [`Error::Backend`], pending sends
///   still deliver.
/// - There are no default methods, so a wrapper cannot silently miss one.
pub trait Transport: Send + Sync + 'static {
    /// This process's rank.
    fn rank(&self) -> Rank;

    /// How many ranks the world has; at least 1, never changes.
    fn world_size(&self) -> usize;

    /// Sends one message. Resolves when the back end no longer depends on the caller for it.
    ///
    /// # Errors
    /// [`Error::PeerLost`], [`Error::Aborted`], [`Error::NoSuchRank`], [`Error::TooLarge`]; by the
    /// future, never by a panic.
    fn send(
        &self,
        to: Rank,
        tag: Tag,
        payload: Bytes,
    ) -> impl Future<Output = Result<(), Error>> + Send + use<Self>;

    /// Receives the next message from `from` under `tag`.
    ///
    /// # Errors
    /// [`Error::PeerLost`], [`Error::Aborted`], [`Error::NoSuchRank`], [`Error::Protocol`].
    fn recv(&self, from: Rank, tag: Tag) -> impl Future<Output = Result<Bytes, Error>> + Send + use<Self>;

    /// Ends every pending and later operation in `scope`, on every rank, with
    /// [`Error::Aborted`] carrying `reason`. The first abort of a scope wins.
    ///
    /// Returns within a second, whatever the state of the network; callable from any thread that may
    /// use the transport.
    fn abort(&self, scope: Scope, reason: &str);

    /// Time since some fixed moment, monotonic. Virtual in a simulator: measure and set deadlines
    /// with this clock and [`sleep`](Transport::sleep) only.
    fn now(&self) -> Duration;

    /// Resolves once `duration` has passed on the clock of [`now`](Transport::now), counted from
    /// the call.
    fn sleep(&self, duration: Duration) -> impl Future<Output = ()> + Send + use<Self>;
}

impl<T: Transport> Transport for Arc<T> {
    fn rank(&self) -> Rank {
        (**self).rank()
    }

    fn world_size(&self) -> usize {
        (**self).world_size()
    }

    fn send(
        &self,
        to: Rank,
        tag: Tag,
        payload: Bytes,
    ) -> impl Future<Output = Result<(), Error>> + Send + use<T> {
        (**self).send(to, tag, payload)
    }

    fn recv(&self, from: Rank, tag: Tag) -> impl Future<Output = Result<Bytes, Error>> + Send + use<T> {
        (**self).recv(from, tag)
    }

    fn abort(&self, scope: Scope, reason: &str) {
        (**self).abort(scope, reason);
    }

    fn now(&self) -> Duration {
        (**self).now()
    }

    fn sleep(&self, duration: Duration) -> impl Future<Output = ()> + Send + use<T> {
        (**self).sleep(duration)
    }
}
