use std::any::Any;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::{Mutex, PoisonError};
use std::task::Poll;
use std::thread;
use std::time::Duration;

use transport::{Rank, Transport, block_on};

use crate::timer::Sleep;

/// How long a rank may take before [`run_world`] calls it a deadlock.
const PATIENCE: Duration = Duration::from_secs(60);

/// Runs one future per rank, each on a thread of its own, and returns their outputs by rank.
///
/// # Panics
/// If a rank panics, after all ranks have ended, naming every rank that did, the first one first; and
/// if a rank has not finished after 60 seconds, so that a deadlock fails instead of hanging.
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
    let panics = Mutex::new(Vec::new());
    let run = |transport: T| {
        let rank = transport.rank();
        let outcome = catch_unwind(AssertUnwindSafe(|| block_on(bounded(rank, f(transport)))));
        let note = |panic: Box<dyn Any + Send>| {
            let mut panics = panics.lock().unwrap_or_else(PoisonError::into_inner);
            panics.push(format!("rank {rank} panicked: {}", message(&*panic)));
        };
        outcome.map_err(note).ok()
    };
    let outputs: Vec<_> = thread::scope(|scope| {
        let spawn = |transport: T| {
            let name = format!("rank {}", transport.rank());
            thread::Builder::new().name(name).spawn_scoped(scope, || run(transport))
        };
        let ranks: Vec<_> = transports.into_iter().map(spawn).collect();
        ranks.into_iter().map(|rank| rank.ok()?.join().ok()?).collect()
    });
    let panics = panics.into_inner().unwrap_or_else(PoisonError::into_inner);
    assert!(panics.is_empty(), "{}", panics.join("; "));
    let finished = outputs.len();
    let outputs: Vec<_> = outputs.into_iter().flatten().collect();
    assert_eq!(outputs.len(), finished, "the system refused a thread");
    outputs
}

/// The future itself, unless it takes too long.
async fn bounded<F: Future>(rank: Rank, future: F) -> F::Output {
    let (mut future, mut timeout) = (pin!(future), pin!(Sleep::new(PATIENCE)));
    std::future::poll_fn(|context| {
        if let Poll::Ready(output) = future.as_mut().poll(context) {
            return Poll::Ready(output);
        }
        assert!(timeout.as_mut().poll(context).is_pending(), "rank {rank} did not finish in {PATIENCE:?}");
        Poll::Pending
    })
    .await
}

fn message(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or(panic.downcast_ref::<&str>().copied()).unwrap_or("(no message)")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::local_world;

    #[test]
    #[should_panic(expected = "rank 2 panicked: two is bad")]
    fn a_panic_names_its_rank() {
        run_world(local_world(3), |world| async move { assert!(world.rank() != Rank(2), "two is bad") });
    }
}
