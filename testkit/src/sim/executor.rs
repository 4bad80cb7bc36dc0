//! Runs all ranks on one thread: who can go on does, in the order in which they were woken; then the clock moves.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Wake, Waker};
use std::time::Duration;

use transport::{Rank, Tag};

use super::network::duration;
use super::world::World;

/// No rank can go on, and nothing is on its way.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Deadlock {
    /// When.
    pub at: Duration,
    /// The futures that have not ended, by their place: ranks, for [`run`](super::run).
    pub unfinished: Vec<Rank>,
    /// The receives that wait: who, for whom, under which tag. A rank that waits for none waits for a send, or for
    /// something that is not of this world.
    pub waits: Vec<(Rank, Rank, Tag)>,
}

/// How many waits a message tells.
const TOLD: usize = 8;

impl fmt::Display for Deadlock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { at, unfinished, waits } = self;
        let list = |ranks: &[Rank]| {
            let told: Vec<_> = ranks.iter().take(TOLD).map(ToString::to_string).collect();
            let more = ranks.len().saturating_sub(TOLD);
            let more = if more > 0 { format!(" and {more} more") } else { String::new() };
            told.join(", ") + &more
        };
        write!(
            f,
            "deadlock after {at:?}: nothing is on its way, and these ranks wait: {}",
            list(unfinished)
        )?;
        for (rank, from, tag) in waits.iter().filter(|(rank, ..)| unfinished.contains(rank)).take(TOLD) {
            write!(f, "; rank {rank} for rank {from} under tag {tag}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Deadlock {}

/// Runs the futures to their ends.
pub(super) fn drive<F: Future>(world: &World, futures: Vec<F>) -> Result<Vec<F::Output>, Deadlock> {
    let mut outputs: Vec<_> = futures.iter().map(|_| None).collect();
    let mut parts: Vec<Part<'_>> = Vec::with_capacity(futures.len());
    for (future, output) in futures.into_iter().zip(&mut outputs) {
        parts.push(Box::pin(async move { *output = Some(future.await) }));
    }
    drive_parts(world, parts)?;
    Ok(outputs.into_iter().flatten().collect())
}

/// A future without a type of its own, so that what drives it is compiled once.
type Part<'p> = Pin<Box<dyn Future<Output = ()> + 'p>>;

fn drive_parts(world: &World, parts: Vec<Part<'_>>) -> Result<(), Deadlock> {
    let ready = Arc::new(Mutex::new(VecDeque::new()));
    let mut tasks: Vec<_> = parts
        .into_iter()
        .enumerate()
        .map(|(place, part)| {
            let task = Arc::new(Task { place, queued: AtomicBool::new(false), ready: Arc::clone(&ready) });
            task.wake_by_ref();
            (Some(part), Arc::clone(&task), Waker::from(task))
        })
        .collect();
    let mut running = tasks.len();
    while running > 0 {
        let Some(place) = lock(&ready).pop_front() else {
            if world.step() {
                continue;
            }
            let unfinished = tasks.iter().enumerate().filter(|(_, (part, ..))| part.is_some());
            return Err(Deadlock {
                at: duration(world.now()),
                unfinished: unfinished.map(|(place, _)| Rank::from_index(place)).collect(),
                waits: world.waits(),
            });
        };
        let Some((slot, task, waker)) = tasks.get_mut(place) else { continue };
        let Some(part) = slot else { continue };
        task.queued.store(false, Ordering::Relaxed);
        if part.as_mut().poll(&mut Context::from_waker(waker)).is_ready() {
            *slot = None;
            running -= 1;
        }
    }
    Ok(())
}

struct Task {
    place: usize,
    queued: AtomicBool,
    ready: Arc<Mutex<VecDeque<usize>>>,
}

impl Wake for Task {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if !self.queued.swap(true, Ordering::Relaxed) {
            lock(&self.ready).push_back(self.place);
        }
    }
}

fn lock<D>(mutex: &Mutex<D>) -> std::sync::MutexGuard<'_, D> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

thread_local! {
    /// In whose time this thread runs its worlds.
    static CURRENT: RefCell<Option<Arc<World>>> = const { RefCell::new(None) };
}

/// The simulated world in whose time this thread runs its worlds, if any.
pub(crate) fn current() -> Option<Arc<World>> {
    CURRENT.with_borrow(Clone::clone)
}

pub(super) fn within<R>(world: &Arc<World>, f: impl FnOnce() -> R) -> R {
    struct Restore(Option<Arc<World>>);
    impl Drop for Restore {
        fn drop(&mut self) {
            CURRENT.set(self.0.take());
        }
    }
    let _restore = Restore(CURRENT.replace(Some(Arc::clone(world))));
    f()
}

/// [`drive`] for tests: a deadlock is a panic.
#[track_caller]
pub(crate) fn drive_or_panic<F: Future>(world: &World, futures: Vec<F>) -> Vec<F::Output> {
    match drive(world, futures) {
        Ok(outputs) => outputs,
        Err(deadlock) => panic!("{deadlock}"),
    }
}
