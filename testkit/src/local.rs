//! The in-process back end: ranks that are threads or tasks of one program.

use std::fmt;
use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use transport::{Error, Rank, Scope, Tag, Transport};

use crate::mailbox::Mailbox;
use crate::timer::Sleep;

/// How many bytes of messages that nobody asked for yet a pair of ranks holds, by default.
pub const DEFAULT_WINDOW: usize = 64 << 20;

/// A world of `size` ranks in this process, rank by rank.
///
/// A message costs one move of its `Bytes` and a few short locks, nothing that grows with its length.
///
/// ```
/// use bytes::Bytes;
/// use transport::{Rank, Tag, Transport, block_on};
///
/// let world = testkit::local_world(2);
/// let received = world[1].recv(Rank(0), Tag::new(0, 1));
/// block_on(world[0].send(Rank(1), Tag::new(0, 1), Bytes::from_static(b"hello")))?;
/// assert_eq!(block_on(received)?, "hello");
/// # Ok::<(), transport::Error>(())
/// ```
#[must_use]
pub fn local_world(size: usize) -> Vec<LocalTransport> {
    local_world_with_window(size, DEFAULT_WINDOW)
}

/// As [`local_world`], with another bound on the messages that a pair of ranks holds unasked.
///
/// With a window of 0 every send waits for its receive.
#[must_use]
pub fn local_world_with_window(size: usize, window: usize) -> Vec<LocalTransport> {
    let world = Arc::new(World {
        size,
        mailboxes: (0..size * size).map(|_| Mailbox::new(window)).collect(),
        aborted: Mutex::new(Vec::new()),
        begun: Instant::now(),
    });
    let handle = |rank| {
        let handle = Handle { world: Arc::clone(&world), rank: Rank::from_index(rank) };
        LocalTransport { handle: Arc::new(handle) }
    };
    (0..size).map(handle).collect()
}

/// One rank of an in-process world; every clone is the same rank.
///
/// The rank leaves when the last clone is dropped.
#[derive(Clone)]
pub struct LocalTransport {
    handle: Arc<Handle>,
}

impl LocalTransport {
    /// Kills a rank as a crash would, for tests: every other rank loses it at once, and its own
    /// operations fail with [`Error::Backend`]. Completed sends of the rank can still be received.
    ///
    /// A rank outside the world is ignored.
    pub fn kill(&self, rank: Rank) {
        let own = Error::Backend { detail: format!("rank {rank} was killed"), source: None };
        self.handle.world.end(rank, "it was killed", &own, |outgoing| outgoing.close_sends(&own));
    }
}

impl fmt::Debug for LocalTransport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LocalTransport")
            .field("rank", &self.rank())
            .field("world_size", &self.world_size())
            .finish_non_exhaustive()
    }
}

impl Transport for LocalTransport {
    fn rank(&self) -> Rank {
        self.handle.rank
    }

    fn world_size(&self) -> usize {
        self.handle.world.size
    }

    fn send(
        &self,
        to: Rank,
        tag: Tag,
        payload: Bytes,
    ) -> impl Future<Output = Result<(), Error>> + Send + use<> {
        let posted = self.handle.world.mailbox(self.rank(), to).map(|mailbox| mailbox.send(tag, payload));
        async move { posted?.await }
    }

    fn recv(&self, from: Rank, tag: Tag) -> impl Future<Output = Result<Bytes, Error>> + Send + use<> {
        let posted = self.handle.world.mailbox(from, self.rank()).map(|mailbox| mailbox.recv(tag));
        async move { posted?.await }
    }

    fn abort(&self, scope: Scope, reason: &str) {
        let world = &self.handle.world;
        // Held to the end, so that the first abort of a scope wins in every mailbox alike.
        let mut aborted = world.aborted.lock().unwrap_or_else(PoisonError::into_inner);
        if !aborted.contains(&scope) {
            aborted.push(scope);
            let error = Error::Aborted { by: self.rank(), scope, reason: reason.into() };
            for mailbox in &world.mailboxes {
                mailbox.abort(scope, &error);
            }
        }
    }

    fn now(&self) -> Duration {
        self.handle.world.begun.elapsed()
    }

    fn sleep(&self, duration: Duration) -> impl Future<Output = ()> + Send + use<> {
        Sleep::new(duration)
    }
}

/// What the clones of a rank share.
struct Handle {
    world: Arc<World>,
    rank: Rank,
}

impl Drop for Handle {
    fn drop(&mut self) {
        let own =
            Error::Backend { detail: "this rank has left: its last handle is gone".into(), source: None };
        // Its own sends still wait for their receivers: nothing that was sent is lost.
        self.world.end(self.rank, "it has left", &own, |_| ());
    }
}

struct World {
    size: usize,
    /// From sender `s` to receiver `r` at `s * size + r`.
    mailboxes: Box<[Mailbox]>,
    aborted: Mutex<Vec<Scope>>,
    begun: Instant,
}

impl World {
    fn mailbox(&self, from: Rank, to: Rank) -> Result<&Mailbox, Error> {
        Error::check_rank(from, self.size)?;
        Error::check_rank(to, self.size)?;
        let index = from.index() * self.size + to.index();
        self.mailboxes.get(index).ok_or(Error::NoSuchRank { rank: to, world_size: self.size })
    }

    /// Ends a rank: `own` is what its own operations see, and `outgoing` treats what it was sending.
    fn end(&self, rank: Rank, detail: &str, own: &Error, outgoing: impl Fn(&Mailbox)) {
        // An abort in progress comes first: a rank that leaves because of it must not seem lost.
        let _no_abort_meanwhile = self.aborted.lock().unwrap_or_else(PoisonError::into_inner);
        let lost = Error::peer_lost(rank, detail);
        for peer in (0..self.size).map(Rank::from_index) {
            if let Ok(mailbox) = self.mailbox(peer, rank) {
                mailbox.close_sends(if peer == rank { own } else { &lost });
                drop(mailbox.drain());
                mailbox.close_receives(own);
            }
            if let Ok(mailbox) = self.mailbox(rank, peer) {
                outgoing(mailbox);
                mailbox.close_receives(&lost);
            }
        }
    }
}
