use std::any::Any;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::task::Waker;
use std::thread;
use std::time::{Duration, Instant};

use transport::{Rank, Transport, block_on};

/// How long a rank may take before [`run_world`] calls it a deadlock.
const PATIENCE: Duration = Duration::from_secs(60);

/// How long a rank may go on after another one has panicked.
const GRACE: Duration = Duration::from_secs(1);

/// Runs one future per rank, each on a thread of its own, and returns their outputs by rank.
///
/// # Panics
/// If a rank panics, naming every rank that did, the first one first. The others are given a second to
/// end by themselves. Also if a rank has not finished after 60 seconds, so that a deadlock fails instead
/// of hanging.
///
/// ```
/// use transport::Transport;
///
/// let ranks = testkit::run_world(testkit::local_world(3), |world| async move { world.rank().index() });
/// assert_eq!(ranks, [0, 1, 2]);
/// ```
#[track_caller]
pub fn run_world<T, F, Fut>(transports: Vec<T>, f: F) -> Vec<Fut::Output>
where
    T: Transport,
    F: Fn(T) -> Fut + Sync,
    Fut: Future,
    Fut::Output: Send,
{
    run_world_within(PATIENCE, transports, f)
}

/// As [`run_world`], with another bound on the time.
///
/// # Panics
/// As [`run_world`], after `patience`.
#[track_caller]
pub fn run_world_within<T, F, Fut>(patience: Duration, transports: Vec<T>, f: F) -> Vec<Fut::Output>
where
    T: Transport,
    F: Fn(T) -> Fut + Sync,
    Fut: Future,
    Fut::Output: Send,
{
    if let Some(world) = crate::sim::current() {
        return crate::sim::drive_or_panic(&world, transports.into_iter().map(f).collect());
    }
    let mut outputs: Vec<_> = transports.iter().map(|_| None).collect();
    let (f, mut parts) = (&f, Vec::with_capacity(transports.len()));
    for (transport, output) in transports.into_iter().zip(&mut outputs) {
        let rank = transport.rank();
        let part: Part<'_> = Box::new(move |run| run(pin!(async { *output = Some(f(transport).await) })));
        parts.push((rank, part));
    }
    run_parts(patience, parts);
    outputs.into_iter().flatten().collect()
}

/// What a rank does on its thread: has its future run. Without a type of its own, so that what runs it is compiled once.
type Part<'p> = Box<dyn FnOnce(&dyn Fn(Pin<&mut dyn Future<Output = ()>>)) + Send + 'p>;

#[track_caller]
fn run_parts(patience: Duration, parts: Vec<(Rank, Part<'_>)>) {
    let state = State { running: parts.len(), ..State::default() };
    let watch = Watch { state: Mutex::new(state), changed: Condvar::new() };
    let run = |rank: Rank, part: Part<'_>| {
        let on_this_thread = |future: Pin<&mut dyn Future<Output = ()>>| block_on(watch.over(future));
        let outcome = catch_unwind(AssertUnwindSafe(|| part(&on_this_thread)));
        let panic = outcome.as_ref().err();
        watch.ended(panic.map(|panic| format!("rank {rank} panicked: {}", message(&**panic))));
    };
    let run = &run;
    thread::scope(|scope| {
        for (rank, part) in parts {
            let thread = thread::Builder::new().name(format!("rank {rank}"));
            if let Err(error) = thread.spawn_scoped(scope, move || run(rank, part)) {
                watch.ended(Some(format!("rank {rank} got no thread: {error}")));
            }
        }
        watch.wait(patience);
    });
    let panics = std::mem::take(&mut watch.lock().panics);
    assert!(panics.is_empty(), "{}", panics.join("; "));
}

/// Ends ranks that wait for ever, and disturbs no others: a spurious poll would hide a forgotten waker.
struct Watch {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    running: usize,
    panics: Vec<String>,
    /// Why those who still run must end.
    expired: Option<String>,
    wakers: Vec<Waker>,
}

impl Watch {
    /// The future, or a panic once the time is over.
    async fn over(&self, mut future: Pin<&mut dyn Future<Output = ()>>) {
        std::future::poll_fn(|context| {
            let outcome = future.as_mut().poll(context);
            if outcome.is_pending() {
                let mut state = self.lock();
                let expired = state.expired.clone();
                if expired.is_none() && !state.wakers.iter().any(|known| known.will_wake(context.waker())) {
                    state.wakers.push(context.waker().clone());
                }
                drop(state);
                assert!(expired.is_none(), "{}", expired.unwrap_or_default());
            }
            outcome
        })
        .await;
    }

    fn ended(&self, panic: Option<String>) {
        let mut state = self.lock();
        state.running -= 1;
        state.panics.extend(panic);
        self.changed.notify_one();
    }

    /// Returns once no rank runs any more, or those who do have been told to end.
    fn wait(&self, patience: Duration) {
        let begun = Instant::now();
        let (mut limit, mut reason) = (patience, format!("not finished after {patience:?}"));
        let mut state = self.lock();
        let mut bereaved = false;
        while state.running > 0 {
            if !bereaved && !state.panics.is_empty() {
                bereaved = true;
                limit = limit.min(begun.elapsed() + GRACE);
                reason = format!("still waiting {GRACE:?} after another rank had panicked");
            }
            let left = limit.saturating_sub(begun.elapsed());
            if left.is_zero() {
                state.expired = Some(reason);
                let wakers = std::mem::take(&mut state.wakers);
                drop(state);
                wakers.into_iter().for_each(Waker::wake);
                return;
            }
            state = self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn message(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or(panic.downcast_ref::<&str>().copied()).unwrap_or("(no message)")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::local_world;
    use transport::Tag;

    #[test]
    #[should_panic(expected = "rank 2 panicked: two is bad")]
    fn a_panic_names_its_rank() {
        run_world(local_world(3), |world| async move { assert!(world.rank() != Rank(2), "two is bad") });
    }

    #[test]
    #[should_panic(expected = "rank 1 panicked: not finished after 20ms")]
    fn a_rank_that_waits_for_ever_is_named() {
        run_world_within(Duration::from_millis(20), local_world(2), |world| async move {
            if world.rank() == Rank(1) {
                world.recv(Rank(1), Tag::new(0, 0)).await.unwrap();
            }
        });
    }
}
