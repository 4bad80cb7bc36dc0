use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use transport::{Error, Rank, Scope, Tag, Transport};

use super::network::{Network, Time, duration, picoseconds};
use super::world::{Delivery, When, World};
use super::{Deadlock, Record, executor};

/// A world in virtual time whose ranks are driven by hand; usually [`run`](super::run) is enough.
#[derive(Clone)]
pub struct Simulator {
    world: Arc<World>,
}

impl Simulator {
    /// A world at time 0.
    #[must_use]
    pub fn new(network: &Network) -> Self {
        Self { world: Arc::new(World::new(network)) }
    }

    /// The ranks; to be asked for once, since a rank leaves when its last handle is gone.
    #[must_use]
    pub fn transports(&self) -> Vec<SimTransport> {
        let handle = |rank| {
            let handle = Handle { world: Arc::clone(&self.world), rank: Rank::from_index(rank) };
            SimTransport { handle: Arc::new(handle) }
        };
        (0..self.world.network.ranks).map(handle).collect()
    }

    /// Runs these futures to their ends, in virtual time, on this thread.
    ///
    /// # Errors
    /// [`Deadlock`].
    pub fn drive<F: Future>(&self, futures: Vec<F>) -> Result<Vec<F::Output>, Deadlock> {
        executor::drive(&self.world, futures)
    }

    /// Runs `f`, in which [`run_world`](crate::run_world) drives its ranks in this simulator's time instead of starting threads; a deadlock
    /// is then a panic. So tests that were written for threads, as the laws of [`conformance`](crate::conformance), hold here too.
    pub fn within<R>(&self, f: impl FnOnce() -> R) -> R {
        executor::within(&self.world, f)
    }

    /// The messages so far in the order of their arrival, if the network is [traced](Network::traced).
    #[must_use]
    pub fn take_trace(&self) -> Vec<Record> {
        self.world.take_trace()
    }
}

impl fmt::Debug for Simulator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Simulator").field("network", &self.world.network).finish_non_exhaustive()
    }
}

/// One rank of a world in virtual time; every clone is the same rank.
///
/// Its futures make progress only while [`run`](super::run) or [`Simulator::drive`] drives the world.
#[derive(Clone)]
pub struct SimTransport {
    handle: Arc<Handle>,
}

impl fmt::Debug for SimTransport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SimTransport")
            .field("rank", &self.rank())
            .field("world_size", &self.world_size())
            .finish_non_exhaustive()
    }
}

impl Transport for SimTransport {
    fn rank(&self) -> Rank {
        self.handle.rank
    }

    fn world_size(&self) -> usize {
        self.handle.world.network.ranks
    }

    fn send(
        &self,
        to: Rank,
        tag: Tag,
        payload: Bytes,
    ) -> impl Future<Output = Result<(), Error>> + Send + use<> {
        let world = &self.handle.world;
        let posted = world.check_rank(to).map(|()| Sent(world.post(self.rank(), to, tag, payload)));
        async move { posted?.await }
    }

    fn recv(&self, from: Rank, tag: Tag) -> impl Future<Output = Result<Bytes, Error>> + Send + use<> {
        let world = &self.handle.world;
        let posted = world.check_rank(from).map(|()| world.mailbox(from, self.rank()).recv(tag));
        async move { posted?.await }
    }

    fn abort(&self, scope: Scope, reason: &str) {
        self.handle.world.abort(self.rank(), scope, reason);
    }

    fn now(&self) -> Duration {
        duration(self.handle.world.now())
    }

    fn sleep(&self, duration: Duration) -> impl Future<Output = ()> + Send + use<> {
        let world = Arc::clone(&self.handle.world);
        let until = world.now().saturating_add(picoseconds(duration));
        Sleep { world, until, planned: None }
    }
}

/// What the clones of a rank share.
struct Handle {
    world: Arc<World>,
    rank: Rank,
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.world.leave(self.rank);
    }
}

/// The future of a send; its message travels whatever becomes of it.
struct Sent(Arc<Mutex<Delivery>>);

impl Future for Sent {
    type Output = Result<(), Error>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        match &mut *self.0.lock().unwrap_or_else(PoisonError::into_inner) {
            Delivery::Travels(waker) => {
                *waker = Some(context.waker().clone());
                Poll::Pending
            }
            Delivery::Arrived(sending) => Pin::new(sending).poll(context),
        }
    }
}

struct Sleep {
    world: Arc<World>,
    until: Time,
    planned: Option<When>,
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if self.world.now() >= self.until {
            return Poll::Ready(());
        }
        // What is beyond the end of time never comes.
        if self.until < Time::MAX {
            self.planned = Some(self.world.wake_at(self.until, self.planned, context.waker()));
        }
        Poll::Pending
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        if let Some(planned) = self.planned {
            self.world.forget(planned);
        }
    }
}
