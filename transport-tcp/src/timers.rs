use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use matching::lock;
use tokio::sync::Notify;

/// The sleepers of a transport, woken by its I/O thread, whoever polls them.
#[derive(Debug, Default)]
pub(crate) struct Timers {
    state: Mutex<State>,
    /// Signalled when a sleeper comes before all others.
    earlier: Notify,
}

#[derive(Debug, Default)]
struct State {
    sleepers: BTreeMap<(Instant, u64), Waker>,
    next_id: u64,
    /// The I/O thread is gone: nobody would wake a sleeper any more.
    over: bool,
}

impl Timers {
    /// Wakes the sleepers as their times come, for ever.
    pub(crate) async fn run(&self) {
        loop {
            let (due, next) = self.take_due(Instant::now());
            due.into_iter().for_each(Waker::wake);
            let earlier = self.earlier.notified();
            match next {
                Some(next) => {
                    // A timeout is the normal case here.
                    let _ = tokio::time::timeout_at(next.into(), earlier).await;
                }
                None => earlier.await,
            }
        }
    }

    /// Ends all sleeps, now and later.
    pub(crate) fn end(&self) {
        let mut state = lock(&self.state);
        state.over = true;
        let sleepers = std::mem::take(&mut state.sleepers);
        drop(state);
        sleepers.into_values().for_each(Waker::wake);
    }

    fn take_due(&self, now: Instant) -> (Vec<Waker>, Option<Instant>) {
        let mut state = lock(&self.state);
        let mut due = Vec::new();
        while let Some(first) = state.sleepers.first_entry() {
            if first.key().0 > now {
                return (due, Some(first.key().0));
            }
            due.push(first.remove());
        }
        (due, None)
    }

    /// Returns the sleeper's id; `None` when it need not sleep.
    fn register(&self, until: Instant, known: Option<u64>, waker: &Waker) -> Option<u64> {
        let mut state = lock(&self.state);
        if state.over {
            return None;
        }
        let id = known.unwrap_or(state.next_id);
        state.next_id = state.next_id.max(id + 1);
        state.sleepers.insert((until, id), waker.clone());
        if state.sleepers.first_key_value().is_some_and(|(first, _)| *first == (until, id)) {
            self.earlier.notify_one();
        }
        Some(id)
    }
}

/// Resolves when its time has come, or when the transport is dropped.
#[derive(Debug)]
pub(crate) struct Sleep {
    timers: Arc<Timers>,
    /// `None` when it is too far away to be represented.
    until: Option<Instant>,
    registered: Option<u64>,
}

impl Sleep {
    pub(crate) fn new(timers: &Arc<Timers>, duration: Duration) -> Self {
        Self { timers: Arc::clone(timers), until: Instant::now().checked_add(duration), registered: None }
    }
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let Some(until) = self.until else { return Poll::Pending };
        if Instant::now() >= until {
            return Poll::Ready(());
        }
        self.registered = self.timers.register(until, self.registered, context.waker());
        if self.registered.is_some() { Poll::Pending } else { Poll::Ready(()) }
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        if let (Some(until), Some(id)) = (self.until, self.registered) {
            lock(&self.timers.state).sleepers.remove(&(until, id));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::pin::pin;
    use transport::block_on;

    fn running() -> Arc<Timers> {
        let timers = Arc::new(Timers::default());
        let server = Arc::clone(&timers);
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
            let _ =
                runtime.block_on(async { tokio::time::timeout(Duration::from_secs(5), server.run()).await });
        });
        timers
    }

    #[test]
    fn a_later_sleeper_may_be_due_earlier() {
        let timers = running();
        let begun = Instant::now();
        let mut long = pin!(Sleep::new(&timers, Duration::from_millis(60)));
        assert!(long.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        block_on(Sleep::new(&timers, Duration::from_millis(10)));
        assert!(begun.elapsed() >= Duration::from_millis(10));
        block_on(long);
        assert!(begun.elapsed() >= Duration::from_millis(60));
        block_on(Sleep::new(&timers, Duration::ZERO));
    }

    #[test]
    fn a_dropped_sleep_is_forgotten_and_the_end_wakes_the_rest() {
        let timers = Arc::new(Timers::default());
        let poll = |sleep: &mut Pin<Box<Sleep>>| sleep.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        let mut long = Box::pin(Sleep::new(&timers, Duration::from_secs(60)));
        let mut endless = Box::pin(Sleep::new(&timers, Duration::MAX));
        assert!(poll(&mut long).is_pending() && poll(&mut endless).is_pending());
        assert_eq!(lock(&timers.state).sleepers.len(), 1);
        timers.end();
        assert!(poll(&mut long).is_ready());
        drop(long);
        let mut other = Box::pin(Sleep::new(&timers, Duration::from_secs(60)));
        assert!(poll(&mut other).is_ready());
        assert_eq!(lock(&timers.state).sleepers.len(), 0);
    }
}
