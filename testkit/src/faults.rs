//! Failures on purpose: delays, a death, a corrupted message.

use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use bytes::Bytes;
use transport::{Error, Rank, Scope, Tag, Transport};

use crate::random::mix;
use crate::timer::Sleep;

/// A rank to which bad things happen, as planned; without a plan, a transport like the one within.
///
/// A plan is of one rank: wrap one or all ranks of a world. The same plan does the same in every run, as
/// far as the rank posts its operations in the same order.
///
/// ```
/// use bytes::Bytes;
/// use testkit::{faults::Faulty, local_world, run_world};
/// use transport::{ErrorKind, Rank, Tag, Transport};
///
/// // Rank 1 dies when it posts its third operation.
/// let world = local_world(2).into_iter().map(|rank| match rank.rank() {
///     Rank(1) => Faulty::new(rank).die_at(2),
///     _ => Faulty::new(rank),
/// });
/// let errors = run_world(world.collect(), |world| async move {
///     let (peer, tag) = (Rank(1 - world.rank().0), Tag::new(0, 0));
///     loop {
///         let received = world.recv(peer, tag);
///         world.send(peer, tag, Bytes::new()).await?;
///         received.await?;
///     }
///     #[allow(unreachable_code)]
///     Ok::<(), transport::Error>(())
/// });
/// assert_eq!(errors[0].as_ref().unwrap_err().peer(), Some(Rank(1)));
/// assert_eq!(errors[1].as_ref().unwrap_err().kind(), ErrorKind::Backend);
/// ```
pub struct Faulty<T> {
    rank: Rank,
    world_size: usize,
    plan: Plan,
    /// How many operations were posted, and how many of them were sends.
    operations: AtomicU64,
    messages: AtomicU64,
    life: Arc<Mutex<Life<T>>>,
}

#[derive(Clone, Copy, Default, Debug)]
struct Plan {
    delays: Option<u64>,
    death: Option<u64>,
    corrupted: Option<u64>,
}

impl<T: Transport> Faulty<T> {
    /// A rank without faults yet.
    pub fn new(inner: T) -> Self {
        let (rank, world_size) = (inner.rank(), inner.world_size());
        let life = Life { inner: Some(Arc::new(inner)), death: None, wakers: BTreeMap::new() };
        Self {
            rank,
            world_size,
            plan: Plan::default(),
            operations: AtomicU64::new(0),
            messages: AtomicU64::new(0),
            life: Arc::new(Mutex::new(life)),
        }
    }

    /// Delays the completion of operations at random, by up to a third of a millisecond each.
    ///
    /// What the contract promises holds: operations are posted at the call, and messages of one sender and
    /// tag keep their order. Everything else arrives in another order than usual.
    #[must_use]
    pub fn random_delays(mut self, seed: u64) -> Self {
        self.plan.delays = Some(mix(mix(seed) ^ u64::from(self.rank.0)));
        self
    }

    /// Dies when it posts operation number `operation`, a send or a receive, counted from 0.
    ///
    /// That operation and all others of this rank, pending or later, fail with [`Error::Backend`]. The
    /// transport within is dropped, so the peers lose the rank; what it sent before is received.
    #[must_use]
    pub fn die_at(mut self, operation: u64) -> Self {
        self.plan.death = Some(operation);
        self
    }

    /// Inverts the first byte of the message number `message` that this rank sends, counted from 0. An
    /// empty message gets a byte instead.
    #[must_use]
    pub fn corrupt_message(mut self, message: u64) -> Self {
        self.plan.corrupted = Some(message);
        self
    }

    /// Dies now, as in [`die_at`](Faulty::die_at).
    pub fn die(&self) {
        let mut life = lock(&self.life);
        let Some(inner) = life.inner.take() else { return };
        life.death = Some(Death { at: inner.now(), real: Instant::now() });
        let wakers = std::mem::take(&mut life.wakers);
        drop(life);
        // Outside of the lock: leaving a world may take a while.
        drop(inner);
        wakers.into_values().for_each(Waker::wake);
    }

    /// Counts an operation: its number and the transport within, if this rank still lives.
    fn operate(&self) -> (u64, Option<Arc<T>>) {
        let number = self.operations.fetch_add(1, Relaxed);
        if self.plan.death.is_some_and(|death| number >= death) {
            self.die();
        }
        (number, self.inner())
    }

    fn inner(&self) -> Option<Arc<T>> {
        lock(&self.life).inner.clone()
    }

    fn spoil<F>(&self, number: u64, inner: Option<F>) -> Spoiled<T, F> {
        Spoiled {
            inner: inner.map(Box::pin),
            life: Arc::clone(&self.life),
            number,
            dice: self.plan.delays.map(|seed| mix(seed ^ number)),
            woken: true,
            nap: None,
        }
    }
}

impl<T> Drop for Faulty<T> {
    fn drop(&mut self) {
        // Its operations may be pending still, but they do not keep the rank in the world.
        let inner = lock(&self.life).inner.take();
        drop(inner);
    }
}

impl<T: Transport> fmt::Debug for Faulty<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { rank, world_size, plan, .. } = self;
        f.debug_struct("Faulty")
            .field("rank", rank)
            .field("world_size", world_size)
            .field("plan", plan)
            .finish_non_exhaustive()
    }
}

impl<T: Transport> Transport for Faulty<T> {
    fn rank(&self) -> Rank {
        self.rank
    }

    fn world_size(&self) -> usize {
        self.world_size
    }

    fn send(
        &self,
        to: Rank,
        tag: Tag,
        mut payload: Bytes,
    ) -> impl Future<Output = Result<(), Error>> + Send + use<T> {
        if self.plan.corrupted == Some(self.messages.fetch_add(1, Relaxed)) {
            payload = corrupt(&payload);
        }
        let (number, inner) = self.operate();
        self.spoil(number, inner.map(|inner| inner.send(to, tag, payload)))
    }

    fn recv(&self, from: Rank, tag: Tag) -> impl Future<Output = Result<Bytes, Error>> + Send + use<T> {
        let (number, inner) = self.operate();
        self.spoil(number, inner.map(|inner| inner.recv(from, tag)))
    }

    fn abort(&self, scope: Scope, reason: &str) {
        if let Some(inner) = self.inner() {
            inner.abort(scope, reason);
        }
    }

    fn now(&self) -> Duration {
        let life = lock(&self.life);
        let after_death =
            || life.death.as_ref().map_or(Duration::ZERO, |death| death.at + death.real.elapsed());
        life.inner.as_ref().map_or_else(after_death, Transport::now)
    }

    fn sleep(&self, duration: Duration) -> impl Future<Output = ()> + Send + use<T> {
        let sleep = self.inner().map(|inner| inner.sleep(duration)).ok_or_else(|| Sleep::new(duration));
        async move {
            match sleep {
                Ok(sleep) => sleep.await,
                Err(sleep) => sleep.await,
            }
        }
    }
}

/// What a faulty rank's operations share.
struct Life<T> {
    /// `None` once the rank is dead or has left.
    inner: Option<Arc<T>>,
    death: Option<Death>,
    /// Of the pending operations, by number.
    wakers: BTreeMap<u64, Waker>,
}

/// When a rank died, on both clocks, so that its own goes on.
struct Death {
    at: Duration,
    real: Instant,
}

fn lock<T>(life: &Mutex<Life<T>>) -> MutexGuard<'_, Life<T>> {
    life.lock().unwrap_or_else(PoisonError::into_inner)
}

/// An operation that may be late, or never end well.
///
/// It delays before it polls what is within, never after: a receive that is dropped meanwhile has taken
/// no message.
struct Spoiled<T, F> {
    /// `None` if the rank was dead at the call.
    inner: Option<Pin<Box<F>>>,
    life: Arc<Mutex<Life<T>>>,
    number: u64,
    dice: Option<u64>,
    /// Whether it was woken since the last poll within: then something arrived, which may be late.
    woken: bool,
    nap: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
}

impl<T: Transport, R, F: Future<Output = Result<R, Error>>> Future for Spoiled<T, F> {
    type Output = Result<R, Error>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        if !this.lives(context.waker()) {
            this.inner = None;
        }
        let Some(inner) = &mut this.inner else {
            let detail = "this rank is dead: its fault plan said so".into();
            return Poll::Ready(Err(Error::Backend { detail, source: None }));
        };
        if std::mem::take(&mut this.woken) && this.nap.is_none() {
            match this.dice.as_mut().map_or(0, roll) {
                pause @ 1..300 => {
                    let inner = lock(&this.life).inner.clone();
                    this.nap = inner.map(|inner| Box::pin(inner.sleep(Duration::from_micros(pause))) as _);
                }
                300..500 => {
                    context.waker().wake_by_ref();
                    return Poll::Pending;
                }
                _ => {}
            }
        }
        if let Some(nap) = &mut this.nap {
            std::task::ready!(nap.as_mut().poll(context));
            this.nap = None;
        }
        let outcome = inner.as_mut().poll(context);
        this.woken = outcome.is_pending();
        outcome
    }
}

impl<T, F> Spoiled<T, F> {
    /// Whether the rank lives; if so, the waker is woken when it dies.
    fn lives(&self, waker: &Waker) -> bool {
        let mut life = lock(&self.life);
        let lives = life.death.is_none();
        if lives {
            life.wakers.insert(self.number, waker.clone());
        }
        lives
    }
}

impl<T, F> Drop for Spoiled<T, F> {
    fn drop(&mut self) {
        lock(&self.life).wakers.remove(&self.number);
    }
}

/// A number below 1000, another one each time.
fn roll(dice: &mut u64) -> u64 {
    *dice = mix(*dice);
    *dice % 1_000
}

fn corrupt(payload: &Bytes) -> Bytes {
    let mut copy = payload.to_vec();
    match copy.first_mut() {
        Some(first) => *first = !*first,
        None => copy.push(0xff),
    }
    copy.into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{local_world, run_world};

    fn tag(number: u32) -> Tag {
        Tag::new(0, number)
    }

    #[test]
    fn a_death_ends_pending_operations_and_is_seen_by_the_peers() {
        let mut world: Vec<_> = local_world(2).into_iter().map(Faulty::new).collect();
        let (one, zero) = (world.pop().unwrap(), world.pop().unwrap());
        let last_words = one.send(Rank(0), tag(1), Bytes::from_static(b"last words"));
        let pending = one.recv(Rank(0), tag(2));
        let killer = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(20));
            let before = one.now();
            one.die();
            assert!(one.now() >= before);
            transport::block_on(one.sleep(Duration::from_millis(1)));
            transport::block_on(one.send(Rank(0), tag(3), Bytes::new()))
        });
        assert!(matches!(transport::block_on(pending), Err(Error::Backend { .. })));
        assert!(matches!(killer.join().unwrap(), Err(Error::Backend { .. })));
        assert!(matches!(transport::block_on(last_words), Err(Error::Backend { .. })));
        assert_eq!(transport::block_on(zero.recv(Rank(1), tag(1))).unwrap(), "last words");
        let lost = transport::block_on(zero.recv(Rank(1), tag(1))).unwrap_err();
        assert_eq!(lost.peer(), Some(Rank(1)));
    }

    #[test]
    fn only_the_planned_message_is_corrupted() {
        let world = local_world(1).into_iter().map(|rank| Faulty::new(rank).corrupt_message(1)).collect();
        let received = run_world(world, |world| async move {
            let mut received = Vec::new();
            for word in ["first", "second", "third"] {
                world.send(Rank(0), tag(0), word.into()).await.unwrap();
                received.push(world.recv(Rank(0), tag(0)).await.unwrap());
            }
            received
        });
        assert_eq!(received[0], [&b"first"[..], b"\x8cecond", b"third"]);
    }

    #[test]
    fn the_same_seed_delays_alike() {
        let pauses = |seed| {
            let mut dice = seed;
            (0..100).map(|_| roll(&mut dice)).collect::<Vec<_>>()
        };
        assert_eq!(pauses(1), pauses(1));
        assert_ne!(pauses(1), pauses(2));
        assert!(pauses(1).iter().any(|pause| *pause < 300) && pauses(1).iter().any(|pause| *pause >= 500));
    }
}
