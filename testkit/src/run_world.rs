use std::any::Any;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::thread;
use std::time::{Duration, Instant};

use transport::{Transport, block_on};

use crate::timer::Sleep;

/// How long a rank may take before [`run_world`] calls it a deadlock.
const PATIENCE: Duration = Duration::from_secs(60);

/// How long a rank may go on after another one has panicked.
const GRACE: Duration = Duration::from_secs(1);

/// How often a rank that waits looks whether it should.
const BEAT: Duration = Duration::from_millis(10);

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
    let watch = Watch { patience, begun: Instant::now(), panics: Mutex::new(Vec::new()) };
    let run = |transport: T| {
        let name = format!("rank {}", transport.rank());
        let outcome = catch_unwind(AssertUnwindSafe(|| block_on(watch.over(f(transport)))));
        outcome.map_err(|panic| watch.note(format!("{name} panicked: {}", message(&*panic)))).ok()
    };
    let outputs: Vec<_> = thread::scope(|scope| {
        let spawn = |transport: T| {
            let name = format!("rank {}", transport.rank());
            thread::Builder::new().name(name).spawn_scoped(scope, || run(transport))
        };
        let ranks: Vec<_> = transports.into_iter().map(spawn).collect();
        ranks.into_iter().map(|rank| rank.ok()?.join().ok()?).collect()
    });
    let panics = watch.panics.into_inner().unwrap_or_else(PoisonError::into_inner);
    let panics: Vec<_> = panics.into_iter().map(|(_, panic)| panic).collect();
    assert!(panics.is_empty(), "{}", panics.join("; "));
    let finished = outputs.len();
    let outputs: Vec<_> = outputs.into_iter().flatten().collect();
    assert_eq!(outputs.len(), finished, "the system refused a thread");
    outputs
}

/// Ends ranks that wait for ever.
struct Watch {
    patience: Duration,
    begun: Instant,
    panics: Mutex<Vec<(Instant, String)>>,
}

impl Watch {
    async fn over<F: Future>(&self, future: F) -> F::Output {
        let (mut future, mut beat) = (pin!(future), pin!(Sleep::new(BEAT)));
        std::future::poll_fn(|context| {
            if let Poll::Ready(output) = future.as_mut().poll(context) {
                return Poll::Ready(output);
            }
            while beat.as_mut().poll(context).is_ready() {
                assert!(self.begun.elapsed() < self.patience, "not finished after {:?}", self.patience);
                let bereaved = self.lock().first().is_some_and(|(when, _)| when.elapsed() > GRACE);
                assert!(!bereaved, "still waiting {GRACE:?} after another rank had panicked");
                beat.set(Sleep::new(BEAT));
            }
            Poll::Pending
        })
        .await
    }

    fn note(&self, panic: String) {
        self.lock().push((Instant::now(), panic));
    }

    fn lock(&self) -> MutexGuard<'_, Vec<(Instant, String)>> {
        self.panics.lock().unwrap_or_else(PoisonError::into_inner)
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
    use transport::{Rank, Tag};

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
