//! A back end that breaks one clause of the contract.
#![allow(clippy::unwrap_used, reason = "all of this is a test")]

use std::collections::HashMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Mutex;
use std::sync::mpsc::{Sender, channel};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use testkit::{LocalTransport, local_world_with_window};
use transport::{Error, Rank, Scope, Tag, Transport, block_on};

/// Small, so that the laws on back-pressure have something to find.
const WINDOW: usize = 4 << 20;

/// What is wrong.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum Fault {
    /// Nothing.
    None,
    /// Of each sender and tag, the second and the third message change places.
    Swaps,
    /// Of each sender and tag, the third message is lost.
    Loses,
    /// Empty messages are lost.
    LosesEmpty,
    /// Of each sender and tag, the second message comes twice.
    Doubles,
    /// The eighth message comes twice.
    DoublesLast,
    /// The last byte of long messages is cut off.
    Truncates,
    /// One bit of long messages is flipped.
    Corrupts,
    /// A message that waits stops all later ones to the same rank.
    BlocksTags,
    SendsLazily,
    ReceivesLazily,
    /// A dropped receive takes its message with it.
    TakesWhenDropped,
    /// Only the waker of a receive's first poll is woken.
    WakesTheFirst,
    /// Every send completes at once.
    AcceptsAll,
    /// Operations that need a lost rank wait for ever.
    HidesLoss,
    /// A send whose receiver has left since is called lost.
    ForgetsSent,
    BlamesAnother,
    SwallowsAborts,
    /// Every abort is one of the world.
    AbortsAll,
    ChangesReason,
    /// Who aborted seems lost.
    CallsAbortLoss,
    AbortsSlowly,
    ClockRunsBackwards,
    NeverSleeps,
    SleepsLazily,
    CountsFromOne,
    /// Operations with ranks outside the world wait for the peer.
    KnowsNoStrangers,
}

pub(crate) fn world(size: usize, fault: Fault) -> Vec<Broken> {
    local_world_with_window(size, WINDOW).into_iter().map(|inner| Broken::new(inner, fault)).collect()
}

pub(crate) struct Broken {
    inner: LocalTransport,
    fault: Fault,
    sent: Mutex<HashMap<(Rank, Tag), usize>>,
    held: Mutex<HashMap<(Rank, Tag), Bytes>>,
    lines: Mutex<HashMap<Rank, Sender<(Tag, Bytes)>>>,
}

type Boxed<T> = Pin<Box<dyn Future<Output = T> + Send>>;

impl Broken {
    fn new(inner: LocalTransport, fault: Fault) -> Self {
        Self { inner, fault, sent: Mutex::default(), held: Mutex::default(), lines: Mutex::default() }
    }

    fn send_faultily(&self, to: Rank, tag: Tag, payload: Bytes) -> Boxed<Result<(), Error>> {
        let index = {
            let mut sent = self.sent.lock().unwrap();
            let count = sent.entry((to, tag)).or_default();
            *count += 1;
            *count - 1
        };
        let long = payload.len() > 1_000;
        match (self.fault, index) {
            (Fault::Swaps, 1) => {
                self.held.lock().unwrap().insert((to, tag), payload);
                Box::pin(async { Ok(()) })
            }
            (Fault::Swaps, 2) => {
                let first = self.inner.send(to, tag, payload);
                let held = self.held.lock().unwrap().remove(&(to, tag)).unwrap();
                drop(self.inner.send(to, tag, held));
                Box::pin(first)
            }
            (Fault::Loses, 2) => Box::pin(async { Ok(()) }),
            (Fault::LosesEmpty, 1..) if payload.is_empty() => Box::pin(async { Ok(()) }),
            (Fault::Doubles, 1) | (Fault::DoublesLast, 7) => {
                drop(self.inner.send(to, tag, payload.clone()));
                Box::pin(self.inner.send(to, tag, payload))
            }
            (Fault::Truncates, _) if long => {
                Box::pin(self.inner.send(to, tag, payload.slice(..payload.len() - 1)))
            }
            (Fault::Corrupts, _) if long => {
                let mut copy = payload.to_vec();
                copy[payload.len() / 2] ^= 1;
                Box::pin(self.inner.send(to, tag, copy.into()))
            }
            (Fault::BlocksTags, _) => {
                let line = self.line_to(to);
                line.send((tag, payload)).unwrap();
                Box::pin(async { Ok(()) })
            }
            (Fault::SendsLazily, _) => {
                let inner = self.inner.clone();
                Box::pin(async move { inner.send(to, tag, payload).await })
            }
            (Fault::AcceptsAll, _) => {
                drop(self.inner.send(to, tag, payload));
                Box::pin(async { Ok(()) })
            }
            _ => Box::pin(self.inner.send(to, tag, payload)),
        }
    }

    /// A thread that sends one message after the other.
    fn line_to(&self, to: Rank) -> Sender<(Tag, Bytes)> {
        let start = || {
            let (sender, receiver) = channel();
            let inner = self.inner.clone();
            std::thread::spawn(move || {
                for (tag, payload) in receiver {
                    // The world may have ended.
                    let _outcome = block_on(inner.send(to, tag, payload));
                }
            });
            sender
        };
        self.lines.lock().unwrap().entry(to).or_insert_with(start).clone()
    }
}

impl Transport for Broken {
    fn rank(&self) -> Rank {
        match self.fault {
            Fault::CountsFromOne => Rank(self.inner.rank().0 + 1),
            _ => self.inner.rank(),
        }
    }

    fn world_size(&self) -> usize {
        self.inner.world_size()
    }

    fn send(
        &self,
        to: Rank,
        tag: Tag,
        payload: Bytes,
    ) -> impl Future<Output = Result<(), Error>> + Send + use<> {
        let (fault, size) = (self.fault, self.world_size());
        let sent = self.send_faultily(to, tag, payload);
        let inner = self.inner.clone();
        async move {
            let outcome = sent.await;
            if fault == Fault::ForgetsSent {
                let mut probe = Box::pin(inner.recv(to, Tag::new(u32::MAX, u32::MAX)));
                if let Poll::Ready(left) = probe.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
                    return left.map(drop);
                }
            }
            drop(inner);
            tell(fault, size, outcome).await
        }
    }

    fn recv(&self, from: Rank, tag: Tag) -> impl Future<Output = Result<Bytes, Error>> + Send + use<> {
        let (fault, size) = (self.fault, self.world_size());
        let received: Boxed<Result<Bytes, Error>> = match fault {
            Fault::ReceivesLazily => {
                let inner = self.inner.clone();
                Box::pin(async move { inner.recv(from, tag).await })
            }
            _ => Box::pin(self.inner.recv(from, tag)),
        };
        let received = Receive { inner: Some(received), fault, first: None };
        async move { tell(fault, size, received.await).await }
    }

    fn abort(&self, scope: Scope, reason: &str) {
        match self.fault {
            Fault::SwallowsAborts => {}
            Fault::AbortsAll => self.inner.abort(Scope::World, reason),
            Fault::ChangesReason => self.inner.abort(scope, "something happened"),
            Fault::AbortsSlowly => {
                std::thread::sleep(Duration::from_millis(1_100));
                self.inner.abort(scope, reason);
            }
            _ => self.inner.abort(scope, reason),
        }
    }

    fn now(&self) -> Duration {
        match self.fault {
            Fault::ClockRunsBackwards => Duration::from_secs(1_000).saturating_sub(self.inner.now()),
            _ => self.inner.now(),
        }
    }

    fn sleep(&self, duration: Duration) -> impl Future<Output = ()> + Send + use<> {
        let sleep: Boxed<()> = match self.fault {
            Fault::NeverSleeps => Box::pin(self.inner.sleep(Duration::ZERO)),
            Fault::SleepsLazily => {
                let inner = self.inner.clone();
                Box::pin(async move { inner.sleep(duration).await })
            }
            _ => Box::pin(self.inner.sleep(duration)),
        };
        sleep
    }
}

/// What a faulty back end says of an outcome.
async fn tell<T>(fault: Fault, size: usize, outcome: Result<T, Error>) -> Result<T, Error> {
    match (fault, outcome) {
        (Fault::HidesLoss, Err(Error::PeerLost { .. })) => std::future::pending().await,
        (Fault::CallsAbortLoss, Err(Error::Aborted { by, .. })) => Err(Error::peer_lost(by, "it has left")),
        (Fault::KnowsNoStrangers, Err(Error::NoSuchRank { rank, .. })) => {
            Err(Error::peer_lost(rank, "it does not answer"))
        }
        (Fault::BlamesAnother, Err(Error::PeerLost { peer, detail, source })) => {
            Err(Error::PeerLost { peer: Rank::from_index((peer.index() + 1) % size), detail, source })
        }
        (_, outcome) => outcome,
    }
}

struct Receive {
    inner: Option<Boxed<Result<Bytes, Error>>>,
    fault: Fault,
    first: Option<Waker>,
}

impl Future for Receive {
    type Output = Result<Bytes, Error>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        let first = this.first.get_or_insert_with(|| context.waker().clone());
        let waker = if this.fault == Fault::WakesTheFirst { &*first } else { context.waker() };
        let outcome = this.inner.as_mut().unwrap().as_mut().poll(&mut Context::from_waker(waker));
        if outcome.is_ready() {
            this.inner = None;
        }
        outcome
    }
}

impl Drop for Receive {
    fn drop(&mut self) {
        if self.fault == Fault::TakesWhenDropped
            && let Some(inner) = &mut self.inner
        {
            let _taken = inner.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        }
    }
}
