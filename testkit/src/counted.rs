use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use transport::{Error, Rank, Scope, Tag, Transport};

/// A transport that counts what passes through it, to hold an algorithm to its documented cost.
///
/// All ranks of a world must be counted: each message carries a stamp of 8 bytes. Costs a copy of every
/// payload.
///
/// ```
/// use bytes::Bytes;
/// use testkit::{Counted, local_world, run_world};
/// use transport::{Rank, Tag, Transport};
///
/// // Rank 0 to 1, 1 to 2: two messages that depend on one another.
/// let world: Vec<_> = local_world(3).into_iter().map(Counted::new).collect();
/// let counts = run_world(world, |world| async move {
///     let (me, tag) = (world.rank().0, Tag::new(0, 0));
///     let mut word = Bytes::from_static(b"hello");
///     if me > 0 {
///         word = world.recv(Rank(me - 1), tag).await.unwrap();
///     }
///     if me < 2 {
///         world.send(Rank(me + 1), tag, word).await.unwrap();
///     }
///     world.counts()
/// });
/// assert_eq!(counts[0].bytes_sent, 5);
/// assert_eq!(counts[1].messages_received, 1);
/// assert_eq!(counts[2].rounds, 2);
/// ```
///
/// A clone counts on with the original.
#[derive(Clone, Debug)]
pub struct Counted<T> {
    inner: T,
    counters: Arc<Counters>,
}

/// What a rank has sent and received so far; see [`Counted::counts`].
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
#[non_exhaustive]
pub struct Counts {
    /// Payload bytes handed to `send`, whether or not it completed.
    pub bytes_sent: u64,
    /// Payload bytes returned by `recv`.
    pub bytes_received: u64,
    /// Calls of `send`.
    pub messages_sent: u64,
    /// Messages returned by `recv`.
    pub messages_received: u64,
    /// The longest chain of messages that ends here: each was sent after the one before had been
    /// received. The rounds of an algorithm are the most over all ranks.
    ///
    /// A receive that was not awaited when the next message was sent is not part of its chain. What runs
    /// at the same time on one rank is taken to depend on one another.
    pub rounds: u64,
}

impl<T: Transport> Counted<T> {
    /// Counts from zero.
    pub fn new(inner: T) -> Self {
        Self { inner, counters: Arc::default() }
    }

    /// The counts so far.
    pub fn counts(&self) -> Counts {
        let counters = &*self.counters;
        Counts {
            bytes_sent: counters.bytes_sent.load(Relaxed),
            bytes_received: counters.bytes_received.load(Relaxed),
            messages_sent: counters.messages_sent.load(Relaxed),
            messages_received: counters.messages_received.load(Relaxed),
            rounds: counters.clock.load(Relaxed),
        }
    }

    /// The transport within.
    pub fn inner(&self) -> &T {
        &self.inner
    }
}

#[derive(Debug, Default)]
struct Counters {
    bytes_sent: AtomicU64,
    bytes_received: AtomicU64,
    messages_sent: AtomicU64,
    messages_received: AtomicU64,
    /// The highest stamp received: Lamport's clock, advanced by messages only.
    clock: AtomicU64,
}

impl Counters {
    fn stamp(&self, payload: &Bytes) -> Bytes {
        self.messages_sent.fetch_add(1, Relaxed);
        self.bytes_sent.fetch_add(payload.len() as u64, Relaxed);
        let mut stamped = BytesMut::with_capacity(size_of::<u64>() + payload.len());
        stamped.put_u64_le(self.clock.load(Relaxed) + 1);
        stamped.put_slice(payload);
        stamped.freeze()
    }

    fn strip(&self, from: Rank, stamped: &Bytes) -> Result<Bytes, Error> {
        let Some((stamp, payload)) = stamped.split_first_chunk() else {
            let detail = "a message has no stamp: count all ranks of a world".into();
            return Err(Error::Protocol { peer: from, detail });
        };
        self.clock.fetch_max(u64::from_le_bytes(*stamp), Relaxed);
        self.messages_received.fetch_add(1, Relaxed);
        self.bytes_received.fetch_add(payload.len() as u64, Relaxed);
        Ok(stamped.slice_ref(payload))
    }
}

impl<T: Transport> Transport for Counted<T> {
    fn rank(&self) -> Rank {
        self.inner.rank()
    }

    fn world_size(&self) -> usize {
        self.inner.world_size()
    }

    fn send(
        &self,
        to: Rank,
        tag: Tag,
        payload: Bytes,
    ) -> impl Future<Output = Result<(), Error>> + Send + use<T> {
        self.inner.send(to, tag, self.counters.stamp(&payload))
    }

    fn recv(&self, from: Rank, tag: Tag) -> impl Future<Output = Result<Bytes, Error>> + Send + use<T> {
        let (received, counters) = (self.inner.recv(from, tag), Arc::clone(&self.counters));
        async move { counters.strip(from, &received.await?) }
    }

    fn abort(&self, scope: Scope, reason: &str) {
        self.inner.abort(scope, reason);
    }

    fn now(&self) -> Duration {
        self.inner.now()
    }

    fn sleep(&self, duration: Duration) -> impl Future<Output = ()> + Send + use<T> {
        self.inner.sleep(duration)
    }
}
