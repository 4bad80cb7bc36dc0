use std::cell::Cell;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};

/// Polls are worth repeating for about this many turns before the thread parks: waking a parked
/// thread costs several microseconds, as long as a small message takes on a fast network.
const SPINS: u32 = 200;

/// A future that wakes itself at every poll is polled so often before the thread offers its processor to others:
/// the offer costs as much as a small message through shared memory.
const POLLS: u32 = 16;

/// Runs a future to its end on this thread: how blocking code uses a [`Transport`](crate::Transport).
///
/// Spins briefly, then parks until woken. A future that wakes itself at every poll (a back end that
/// makes progress only when polled) is polled again and again, yielding the processor now and then.
/// Needs no runtime; inside one, it blocks the worker thread it is called on.
///
/// ```
/// assert_eq!(transport::block_on(async { 6 * 7 }), 42);
/// ```
pub fn block_on<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    let (signal, waker) = Signal::of_this_thread();
    let mut context = Context::from_waker(&waker);
    let mut polls = 0_u32;
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
            SIGNAL.set(Some((signal, waker)));
            return output;
        }
        if !signal.take() {
            signal.wait();
            continue;
        }
        // Woken during its own poll: a polling back end.
        polls = polls.wrapping_add(1);
        if polls.is_multiple_of(POLLS) {
            thread::yield_now();
        }
    }
}

thread_local! {
    /// The signal of the last call on this thread, for the next one. A late wake only costs a poll.
    static SIGNAL: Cell<Option<(Arc<Signal>, Waker)>> = const { Cell::new(None) };
}

struct Signal {
    woken: AtomicBool,
    thread: Thread,
}

impl Signal {
    fn of_this_thread() -> (Arc<Self>, Waker) {
        SIGNAL.take().unwrap_or_else(|| {
            let signal = Arc::new(Self { woken: AtomicBool::new(false), thread: thread::current() });
            (Arc::clone(&signal), Waker::from(signal))
        })
    }

    fn wait(&self) {
        for _ in 0..SPINS {
            std::hint::spin_loop();
            if self.take() {
                return;
            }
        }
        while !self.take() {
            thread::park();
        }
    }

    fn take(&self) -> bool {
        self.woken.swap(false, Ordering::Acquire)
    }
}

impl Wake for Signal {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.woken.store(true, Ordering::Release);
        self.thread.unpark();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_future_woken_from_another_thread_completes() {
        for delay in [0, 1, 20_000] {
            let flag = Arc::new(AtomicBool::new(false));
            let mut started = false;
            let seen = Arc::clone(&flag);
            block_on(std::future::poll_fn(move |context| {
                if seen.load(Ordering::Acquire) {
                    return Poll::Ready(());
                }
                if !started {
                    started = true;
                    let (waker, flag) = (context.waker().clone(), Arc::clone(&seen));
                    thread::spawn(move || {
                        thread::sleep(Duration::from_micros(delay));
                        flag.store(true, Ordering::Release);
                        waker.wake();
                    });
                }
                Poll::Pending
            }));
            assert!(flag.load(Ordering::Acquire));
        }
    }

    #[test]
    fn a_future_that_wakes_itself_is_polled_to_its_end() {
        let mut polls = 0;
        let total = block_on(std::future::poll_fn(|context| {
            polls += 1;
            if polls == 10_000 {
                return Poll::Ready(polls);
            }
            context.waker().wake_by_ref();
            Poll::Pending
        }));
        assert_eq!(total, 10_000);
    }
}
