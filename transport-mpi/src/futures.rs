//! The futures of the transport. MPI moves only when it is called, so each makes progress when it is polled, and
//! wakes itself while it is pending.

use std::cell::Cell;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use bytes::Bytes;
use matching::Completion;
use transport::{Error, Rank, Tag};

use crate::engine::Engine;
use crate::world::World;

/// A future that is pending until MPI moves: who waits for it has to poll it.
fn again<T>(context: &Context<'_>) -> Poll<T> {
    context.waker().wake_by_ref();
    Poll::Pending
}

thread_local! {
    /// The handle of the last receive on this thread, for the next: counting handles is dear while what MPI wrote is on
    /// its way to another core.
    static HANDLE: Cell<Option<Arc<World>>> = const { Cell::new(None) };
}

fn handle(world: &Arc<World>) -> Arc<World> {
    HANDLE.take().filter(|last| Arc::ptr_eq(last, world)).unwrap_or_else(|| Arc::clone(world))
}

fn give_back(world: Arc<World>) {
    // Fails, and drops it, when the thread ends.
    let _ = HANDLE.try_with(|last| last.set(Some(world)));
}

/// The future of a send; dropping it does not withdraw the message.
pub(crate) enum Sending {
    Finished(Option<Result<(), Error>>),
    Waiting { world: Arc<World>, sent: Arc<Completion> },
}

impl Sending {
    pub(crate) fn new(world: &Arc<World>, to: Rank, tag: Tag, payload: Bytes) -> Self {
        match world.check(to).and_then(|()| world.with_engine(|engine| engine.send(to, tag, payload))?) {
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
                sent.outcome().or_else(|| match world.with_engine(Engine::progress) {
                    // What is sent is told once nobody uses the engine.
                    Ok(()) => sent.outcome(),
                    Err(error) => Some(Err(error)),
                })
            }
        };
        let Some(outcome) = outcome else { return again(context) };
        *self = Self::Finished(None);
        Poll::Ready(outcome)
    }
}

/// The future of a receive; dropping it leaves its message to the next receive.
pub(crate) struct Receiving(Receive);

enum Receive {
    Finished(Option<Error>),
    Posted { world: Arc<World>, from: Rank, tag: Tag, ticket: u64 },
}

impl Receiving {
    pub(crate) fn new(world: &Arc<World>, from: Rank, tag: Tag) -> Self {
        match world.check(from).and_then(|()| world.with_engine(|engine| engine.post(from, tag))) {
            Ok(ticket) => Self(Receive::Posted { world: handle(world), from, tag, ticket }),
            Err(error) => Self(Receive::Finished(Some(error))),
        }
    }
}

impl Future for Receiving {
    type Output = Result<Bytes, Error>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let outcome = match &mut self.0 {
            Receive::Finished(error) => {
                return error.take().map_or(Poll::Pending, |error| Poll::Ready(Err(error)));
            }
            Receive::Posted { world, from, tag, ticket } => {
                world.with_engine(|engine| engine.receive(*from, *tag, *ticket))
            }
        };
        let outcome = match outcome {
            Ok(Some(outcome)) => outcome,
            Ok(None) => return again(context),
            // Still posted: the thread that may use it can have the message.
            Err(error) => return Poll::Ready(Err(error)),
        };
        if let Receive::Posted { world, .. } = std::mem::replace(&mut self.0, Receive::Finished(None)) {
            give_back(world);
        }
        Poll::Ready(outcome)
    }
}

impl Drop for Receiving {
    fn drop(&mut self) {
        if let Receive::Posted { world, from, tag, ticket } = &self.0 {
            let (from, tag, ticket) = (*from, *tag, *ticket);
            world.ask(move |engine| engine.withdraw(from, tag, ticket));
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
        // A thread that may not call MPI can sleep all the same.
        let _ = self.world.with_engine(Engine::progress);
        if self.until.is_some_and(|until| Instant::now() >= until) { Poll::Ready(()) } else { again(context) }
    }
}
