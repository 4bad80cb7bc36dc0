//! The collectives of a communicator that are under way by themselves, and who makes them go on.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;

use futures_util::stream::{FuturesUnordered, StreamExt as _};
use transport::block_on;

use super::Progress;
use crate::in_flight::lock;

/// A collective that leaves its result behind.
type Task = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Shared by a communicator's clones and handles; not by the collectives in flight, which it may hold.
pub(crate) struct Pool(Arc<Inner>);

struct Inner {
    state: Mutex<State>,
    running: Mutex<FuturesUnordered<Task>>,
    waiting: Arc<Waiting>,
}

struct State {
    /// Started, and not polled yet.
    new: Vec<Task>,
    thread: Thread,
    /// Nobody can start or wait for a collective any more.
    closed: bool,
}

#[derive(PartialEq)]
enum Thread {
    /// Until a collective is started.
    Later,
    Runs,
    /// Whoever waits does its work.
    Never,
}

impl Pool {
    pub(crate) fn new(progress: Progress) -> Self {
        let thread = match progress {
            Progress::Thread => Thread::Later,
            Progress::Caller => Thread::Never,
        };
        Self(Arc::new(Inner {
            state: Mutex::new(State { new: Vec::new(), thread, closed: false }),
            running: Mutex::default(),
            waiting: Arc::default(),
        }))
    }

    /// Lets a collective go on by itself.
    pub(super) fn add(&self, task: Task) {
        let mut state = lock(&self.0.state);
        state.new.push(task);
        if state.thread == Thread::Later {
            let inner = Arc::clone(&self.0);
            let run = move || block_on(poll_fn(|context| inner.poll(context.waker())));
            state.thread = match thread::Builder::new().name("collectives".into()).spawn(run) {
                Ok(_) => Thread::Runs,
                Err(error) => {
                    tracing::warn!(
                        "no thread for collectives, which go on while they are waited for: {error}"
                    );
                    Thread::Never
                }
            };
        }
        drop(state);
        self.0.waiting.wake_by_ref();
    }

    /// Makes all collectives go on if no thread does, and has this one woken when they can go on again.
    pub(super) fn help(&self, waker: &Waker) {
        if lock(&self.0.state).thread == Thread::Never {
            let _ = self.0.poll(waker);
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        lock(&self.0.state).closed = true;
        self.0.waiting.wake_by_ref();
    }
}

impl Inner {
    /// Ready once there is nothing left to do, nor will be.
    fn poll(&self, waker: &Waker) -> Poll<()> {
        // Before the collectives are polled: what they wait for may come right after.
        self.waiting.add(waker);
        let all = Waker::from(Arc::clone(&self.waiting));
        let mut running = lock(&self.running);
        loop {
            running.extend(std::mem::take(&mut lock(&self.state).new));
            match running.poll_next_unpin(&mut Context::from_waker(&all)) {
                Poll::Ready(Some(())) => {}
                Poll::Ready(None) => {
                    let state = lock(&self.state);
                    if state.new.is_empty() {
                        return if state.closed { Poll::Ready(()) } else { Poll::Pending };
                    }
                }
                Poll::Pending => return Poll::Pending,
            }
        }
    }
}

/// Who is woken when a collective can go on: all who wait, since any of them may be the one that makes it.
#[derive(Default)]
struct Waiting(Mutex<Vec<Waker>>);

impl Waiting {
    fn add(&self, waker: &Waker) {
        let mut wakers = lock(&self.0);
        if !wakers.iter().any(|known| known.will_wake(waker)) {
            wakers.push(waker.clone());
        }
    }
}

impl Wake for Waiting {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let wakers = std::mem::take(&mut *lock(&self.0));
        wakers.into_iter().for_each(Waker::wake);
    }
}
