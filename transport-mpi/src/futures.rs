//! The futures of the transport. MPI moves only when it is called, so each makes progress when it is polled, and
//! wakes itself while it is pending.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use bytes::Bytes;
use matching::Completion;
use transport::{Error, Rank, Tag};

use crate::world::World;

/// Tries, makes progress, tries again.
fn poll_with<R>(world: &World, context: &Context<'_>, mut attempt: impl FnMut() -> Option<R>) -> Poll<R> {
    if let Some(result) = attempt() {
        return Poll::Ready(result);
    }
    world.progress();
    match attempt() {
        Some(result) => Poll::Ready(result),
        None => {
            context.waker().wake_by_ref();
            Poll::Pending
        }
    }
}

/// The future of a send; dropping it does not withdraw the message.
pub(crate) enum Sending {
    Finished(Option<Result<(), Error>>),
    Waiting { world: Arc<World>, sent: Arc<Completion> },
}

impl Sending {
    pub(crate) fn new(world: &Arc<World>, posted: matching::Posted) -> Self {
        match posted {
            Ok(None) => Self::Finished(Some(Ok(()))),
            Ok(Some(sent)) => Self::Waiting { world: Arc::clone(world), sent },
            Err(error) => Self::Finished(Some(Err(error))),
        }
    }
}

impl Future for Sending {
    type Output = Result<(), Error>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let outcome = match &mut *self {
            Self::Finished(outcome) => return outcome.take().map_or(Poll::Pending, Poll::Ready),
            Self::Waiting { world, sent } => {
                if let Err(error) = world.check_thread() {
                    Poll::Ready(Err(error))
                } else {
                    poll_with(world, context, || sent.outcome())
                }
            }
        };
        if outcome.is_ready() {
            *self = Self::Finished(None);
        }
        outcome
    }
}

/// The future of a receive; dropping it leaves its message to the next receive.
pub(crate) struct Receiving {
    refused: Option<Error>,
    /// Until it has returned its message.
    posted: Option<Posted>,
}

struct Posted {
    world: Arc<World>,
    from: Rank,
    tag: Tag,
    ticket: u64,
}

impl Receiving {
    pub(crate) fn new(world: &Arc<World>, from: Rank, tag: Tag) -> Self {
        match world.post(from, tag) {
            Ok(ticket) => {
                Self { refused: None, posted: Some(Posted { world: Arc::clone(world), from, tag, ticket }) }
            }
            Err(error) => Self { refused: Some(error), posted: None },
        }
    }
}

impl Future for Receiving {
    type Output = Result<Bytes, Error>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let Some(Posted { world, from, tag, ticket }) = &self.posted else {
            return self.refused.take().map_or(Poll::Pending, |error| Poll::Ready(Err(error)));
        };
        if let Err(error) = world.check_thread() {
            return Poll::Ready(Err(error));
        }
        let Ok(inbox) = world.inbox(*from) else { return Poll::Pending };
        let Poll::Ready((outcome, effects)) = poll_with(world, context, || inbox.take(*tag, *ticket)) else {
            return Poll::Pending;
        };
        world.settle(*from, effects);
        self.posted = None;
        Poll::Ready(outcome)
    }
}

impl Drop for Receiving {
    fn drop(&mut self) {
        if let Some(Posted { world, from, tag, ticket }) = self.posted.take()
            && let Ok(inbox) = world.inbox(from)
        {
            world.settle(from, inbox.withdraw(tag, ticket));
        }
    }
}

/// The future of a sleep.
pub(crate) struct Sleep {
    world: Arc<World>,
    /// `None` when it is too far away to be represented.
    until: Option<Instant>,
}

impl Sleep {
    pub(crate) fn new(world: &Arc<World>, duration: Duration) -> Self {
        Self { world: Arc::clone(world), until: Instant::now().checked_add(duration) }
    }
}

impl Future for Sleep {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let over = || self.until.is_some_and(|until| Instant::now() >= until).then_some(());
        // A thread that may not call MPI can sleep all the same.
        if self.world.check_thread().is_ok() {
            return poll_with(&self.world, context, over);
        }
        context.waker().wake_by_ref();
        over().map_or(Poll::Pending, Poll::Ready)
    }
}
