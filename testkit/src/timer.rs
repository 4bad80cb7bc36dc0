use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Condvar, LazyLock, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::{Duration, Instant};

/// A future that resolves once a duration has passed, counted from the call of [`Sleep::new`].
///
/// For back ends without a clock of their own: it needs no runtime. All sleepers of the process share
/// one thread, which starts when it is first needed.
///
/// ```
/// use std::time::{Duration, Instant};
///
/// let begun = Instant::now();
/// transport::block_on(testkit::Sleep::new(Duration::from_millis(5)));
/// assert!(begun.elapsed() >= Duration::from_millis(5));
/// ```
#[derive(Debug)]
#[must_use = "a sleep does nothing unless awaited"]
pub struct Sleep {
    /// `None` when it is too far away to be represented.
    until: Option<Instant>,
    /// Under which number the timer knows it.
    registered: Option<u64>,
}

impl Sleep {
    /// Begins to sleep.
    pub fn new(duration: Duration) -> Self {
        Self { until: Instant::now().checked_add(duration), registered: None }
    }

    fn cancel(&mut self) {
        if let (Some(until), Some(id)) = (self.until, self.registered.take()) {
            TIMER.lock().sleepers.remove(&(until, id));
        }
    }
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let Some(until) = self.until else { return Poll::Pending };
        if Instant::now() >= until {
            self.cancel();
            return Poll::Ready(());
        }
        let id = TIMER.register(until, self.registered, context.waker());
        self.registered = Some(id);
        Poll::Pending
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        self.cancel();
    }
}

static TIMER: LazyLock<Timer> = LazyLock::new(|| Timer {
    state: Mutex::new(State::default()),
    earlier: Condvar::new(),
    running: thread::Builder::new().name("timer".into()).spawn(|| TIMER.run()).is_ok(),
});

struct Timer {
    state: Mutex<State>,
    /// Signalled when a sleeper comes before all others.
    earlier: Condvar,
    /// False if the system refused a thread; then sleepers keep themselves awake.
    running: bool,
}

#[derive(Default)]
struct State {
    sleepers: BTreeMap<(Instant, u64), Waker>,
    next_id: u64,
}

impl Timer {
    fn register(&self, until: Instant, known: Option<u64>, waker: &Waker) -> u64 {
        if !self.running {
            waker.wake_by_ref();
        }
        let mut state = self.lock();
        let id = known.unwrap_or(state.next_id);
        state.next_id = state.next_id.max(id + 1);
        state.sleepers.insert((until, id), waker.clone());
        if state.sleepers.first_key_value().is_some_and(|(first, _)| *first == (until, id)) {
            self.earlier.notify_one();
        }
        id
    }

    fn run(&self) {
        let mut state = self.lock();
        loop {
            let now = Instant::now();
            let Some((until, _)) = state.sleepers.first_key_value().map(|(key, _)| *key) else {
                state = self.earlier.wait(state).unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            if until > now {
                let wait = self.earlier.wait_timeout(state, until - now);
                state = wait.unwrap_or_else(PoisonError::into_inner).0;
                continue;
            }
            let due = state.sleepers.pop_first();
            drop(state);
            if let Some((_, waker)) = due {
                waker.wake();
            }
            state = self.lock();
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use transport::block_on;

    #[test]
    fn sleepers_wake_in_the_order_of_their_times() {
        let begun = Instant::now();
        let (long, short) = (Sleep::new(Duration::from_millis(30)), Sleep::new(Duration::from_millis(5)));
        let order = Mutex::new(Vec::new());
        thread::scope(|scope| {
            scope.spawn(|| {
                block_on(long);
                order.lock().unwrap().push("long");
            });
            scope.spawn(|| {
                block_on(short);
                order.lock().unwrap().push("short");
            });
        });
        assert_eq!(*order.lock().unwrap(), ["short", "long"]);
        assert!(begun.elapsed() >= Duration::from_millis(30));
    }

    #[test]
    fn a_dropped_sleep_is_forgotten() {
        let mut sleep = Box::pin(Sleep::new(Duration::from_secs(3_600)));
        assert!(sleep.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        let key = (sleep.until.unwrap(), sleep.registered.unwrap());
        assert!(TIMER.lock().sleepers.contains_key(&key));
        drop(sleep);
        assert!(!TIMER.lock().sleepers.contains_key(&key));
    }

    #[test]
    fn an_endless_sleep_is_not_an_overflow() {
        let mut sleep = Box::pin(Sleep::new(Duration::MAX));
        assert!(sleep.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    }
}
