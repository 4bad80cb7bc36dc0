//! One peer: its inbox, its outbox, and what happens between them.

use std::future::Future;
use std::net::Shutdown;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use bytes::Bytes;
use matching::{Aborts, Completion, Effects, Inbox, Posted, lock};
use socket2::SockRef;
use tokio::net::tcp::OwnedWriteHalf;
use transport::{Buffers, Error, Rank, Scope, Tag};

use crate::options::Limits;
use crate::outbox::Outbox;

#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) peer: Rank,
    pub(crate) inbox: Mutex<Inbox>,
    /// `None` for the link to oneself.
    pub(crate) outbox: Option<Outbox>,
    /// What this rank can take.
    own: Limits,
    /// The peer's failure timeout.
    pub(crate) its_patience: Duration,
}

impl Link {
    pub(crate) fn to_self(rank: Rank, own: Limits, aborts: &Arc<Aborts>, buffers: &Buffers) -> Self {
        Self {
            peer: rank,
            inbox: Inbox::new(own.of_inbox(), Arc::clone(aborts), buffers.clone()).into(),
            outbox: None,
            own,
            its_patience: own.failure_timeout,
        }
    }

    pub(crate) fn to_peer(
        peer: Rank,
        own: Limits,
        its: Limits,
        aborts: &Arc<Aborts>,
        buffers: &Buffers,
        start: Instant,
        socket: OwnedWriteHalf,
    ) -> Self {
        let outbox = Outbox::new(peer, its, own, Arc::clone(aborts), socket, start);
        let link = Self::to_self(peer, own, aborts, buffers);
        Self { outbox: Some(outbox), its_patience: its.failure_timeout, ..link }
    }

    pub(crate) fn send(&self, tag: Tag, payload: Bytes) -> Sending {
        let posted = match &self.outbox {
            Some(outbox) => {
                let (posted, written) = outbox.send(tag, payload);
                self.check(written);
                posted
            }
            None => {
                let (posted, effects) = lock(&self.inbox).post_own(self.peer, tag, payload);
                self.apply(effects);
                posted
            }
        };
        Sending::new(posted)
    }

    pub(crate) fn recv(self: &Arc<Self>, tag: Tag) -> Receiving {
        let (ticket, effects) = lock(&self.inbox).post(tag);
        self.apply(effects);
        Receiving::Posted { link: Arc::clone(self), tag, ticket }
    }

    /// Lets something happen to the inbox, and does what follows from it.
    pub(crate) fn change(&self, f: impl FnOnce(&mut Inbox) -> Effects) {
        let effects = f(&mut lock(&self.inbox));
        self.apply(effects);
    }

    /// Does what the inbox could not do under its lock.
    pub(crate) fn apply(&self, effects: Effects) {
        let Effects { wake, fetch, credit, sent } = effects;
        for waker in wake {
            waker.wake();
        }
        for (receipt, outcome) in sent {
            receipt.complete(outcome);
        }
        if let Some(outbox) = self.outbox.as_ref().filter(|_| credit > 0 || !fetch.is_empty()) {
            self.check(outbox.request(&fetch, credit, self.own.window));
        }
    }

    /// Ends what belongs to an aborted scope, and tells the peer.
    pub(crate) fn abort(&self, by: Rank, scope: Scope, reason: &Bytes) {
        self.change(|inbox| inbox.abort(scope));
        if let Some(outbox) = &self.outbox {
            self.check(outbox.abort(by, scope, reason));
        }
    }

    pub(crate) fn heartbeat(&self) {
        if let Some(outbox) = &self.outbox {
            self.check(outbox.heartbeat());
        }
    }

    /// A failed write ends the connection.
    pub(crate) fn check(&self, written: std::io::Result<()>) {
        if let Err(error) = written {
            self.fail(error);
        }
    }

    /// The connection failed.
    pub(crate) fn fail(&self, error: std::io::Error) {
        let detail = format!("the connection failed: {error}");
        self.end(&Error::PeerLost { peer: self.peer, detail, source: Some(Arc::new(error)) }, Shutdown::Both);
    }

    /// The peer did what it must not.
    pub(crate) fn violated(&self, detail: String) {
        self.end(&Error::Protocol { peer: self.peer, detail }, Shutdown::Both);
    }

    /// The peer was silent for too long.
    pub(crate) fn silent(&self) {
        let detail = format!("nothing was heard from it for {:.1} s", self.own.failure_timeout.as_secs_f64());
        self.end(&Error::peer_lost(self.peer, detail), Shutdown::Both);
    }

    /// Ends all operations with the peer, and one or both directions of the connection. The first
    /// error counts.
    pub(crate) fn end(&self, error: &Error, directions: Shutdown) {
        if let Some(outbox) = &self.outbox {
            if !outbox.end(error) {
                return;
            }
            tracing::debug!(peer = self.peer.0, %error, "connection ended");
            // Fails when the connection is gone already.
            let _ = SockRef::from(outbox.socket()).shutdown(directions);
        }
        self.change(|inbox| inbox.end(error));
    }
}

/// The future of a send; dropping it does not withdraw the message.
#[derive(Debug)]
pub(crate) enum Sending {
    Finished(Option<Result<(), Error>>),
    Waiting(Arc<Completion>),
}

impl Sending {
    pub(crate) fn new(posted: Posted) -> Self {
        match posted {
            Ok(None) => Self::Finished(Some(Ok(()))),
            Ok(Some(receipt)) => Self::Waiting(receipt),
            Err(error) => Self::Finished(Some(Err(error))),
        }
    }
}

impl Future for Sending {
    type Output = Result<(), Error>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let outcome = match &mut *self {
            Self::Finished(outcome) => outcome.take().map_or(Poll::Pending, Poll::Ready),
            Self::Waiting(receipt) => receipt.poll(context),
        };
        if outcome.is_ready() {
            *self = Self::Finished(None);
        }
        outcome
    }
}

/// The future of a receive; dropping it leaves its message to the next receive.
#[derive(Debug)]
pub(crate) enum Receiving {
    Refused(Option<Error>),
    Posted { link: Arc<Link>, tag: Tag, ticket: u64 },
}

impl Future for Receiving {
    type Output = Result<Bytes, Error>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let outcome = match &mut *self {
            Self::Refused(error) => {
                return error.take().map_or(Poll::Pending, |error| Poll::Ready(Err(error)));
            }
            Self::Posted { link, tag, ticket } => {
                let polled = lock(&link.inbox).poll(*tag, *ticket, context);
                let Poll::Ready((outcome, effects)) = polled else { return Poll::Pending };
                link.apply(effects);
                outcome
            }
        };
        *self = Self::Refused(None);
        Poll::Ready(outcome)
    }
}

impl Drop for Receiving {
    fn drop(&mut self) {
        if let Self::Posted { link, tag, ticket } = self {
            link.change(|inbox| inbox.withdraw(*tag, *ticket));
        }
    }
}
