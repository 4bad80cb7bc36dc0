use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use transport::Error;

/// What a waiting send and its message share: the outcome, and whom to tell.
#[derive(Debug, Default)]
pub(crate) struct Completion(Mutex<Slot>);

#[derive(Debug, Default)]
struct Slot {
    outcome: Option<Result<(), Error>>,
    waker: Option<Waker>,
}

impl Completion {
    /// The first outcome counts.
    pub(crate) fn complete(&self, outcome: Result<(), Error>) {
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

    pub(crate) fn poll(&self, context: &Context<'_>) -> Poll<Result<(), Error>> {
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
pub(crate) type Posted = Result<Option<Arc<Completion>>, Error>;

/// Nothing in this crate panics half-way through a change, so what a poisoned lock guards is whole.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(crate) fn register(slot: &mut Option<Waker>, context: &Context<'_>) {
    match slot {
        Some(known) => known.clone_from(context.waker()),
        None => *slot = Some(context.waker().clone()),
    }
}
