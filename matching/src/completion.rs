use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use transport::Error;

/// What a waiting send and its message share: the outcome, and whom to tell.
#[derive(Debug, Default)]
pub struct Completion(Mutex<Slot>);

#[derive(Debug, Default)]
struct Slot {
    outcome: Option<Result<(), Error>>,
    waker: Option<Waker>,
}

impl Completion {
    /// The first outcome counts.
    pub fn complete(&self, outcome: Result<(), Error>) {
        let mut slot = lock(&self.0);
        if slot.outcome.is_none() {
            slot.outcome = Some(outcome);
        }
        let waker = slot.waker.take();
        drop(slot);
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// The outcome, once there is one.
    pub fn outcome(&self) -> Option<Result<(), Error>> {
        lock(&self.0).outcome.clone()
    }

    /// The outcome, or `Pending` with the waker noted.
    pub fn poll(&self, context: &Context<'_>) -> Poll<Result<(), Error>> {
        let mut slot = lock(&self.0);
        match &slot.outcome {
            Some(outcome) => Poll::Ready(outcome.clone()),
            None => {
                register(&mut slot.waker, context);
                Poll::Pending
            }
        }
    }
}

/// How a send stands once it is posted: refused, complete, or to be waited for.
pub type Posted = Result<Option<Arc<Completion>>, Error>;

/// Locks what no panic leaves half-changed, so that a poisoned lock is no reason to stop.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Notes the waker to call, without cloning one that is known.
pub fn register(slot: &mut Option<Waker>, context: &Context<'_>) {
    match slot {
        Some(known) => known.clone_from(context.waker()),
        None => *slot = Some(context.waker().clone()),
    }
}
