//! One user at a time for a value, at no cost where only one thread may use it anyway.
//!
//! Every locked instruction waits until what the thread wrote before is visible to the other cores, and MPI writes to
//! memory that it shares with its peers: there a lock around each operation doubles the time of a short message. So
//! where MPI allows but one thread, that thread goes without.

use std::cell::{Cell, UnsafeCell};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard};

use matching::lock;

/// A thread's number, unlike that of any other one of the process.
///
/// The standard library's costs a counted reference at each look.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Thread(u64);

impl Thread {
    pub(crate) fn current() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        thread_local!(static OWN: u64 = NEXT.fetch_add(1, Ordering::Relaxed));
        Self(OWN.with(|own| *own))
    }
}

/// Why the value cannot be had now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Refusal {
    /// Only another thread may have it.
    Thread,
    /// This thread has it already.
    Busy,
}

type Errand<T> = Box<dyn FnOnce(&mut T) + Send>;

pub(crate) struct Guard<T> {
    /// The only thread that may use the value; without one, all may, under the lock.
    only: Option<Thread>,
    lock: Mutex<()>,
    /// Whether `only` uses the value. Used by no other thread.
    busy: Cell<bool>,
    /// What those wanted who could not have the value, and whether there is any.
    errands: Mutex<Vec<Errand<T>>>,
    any: AtomicBool,
    value: UnsafeCell<T>,
}

// SAFETY: with `only`, `busy` and `value` are used by that thread alone, and `busy` keeps it from using the value
// twice; numbers of threads are never used again. Without `only`, `busy` is not used, and `value` under the lock. A
// value that may be sent may be used by one thread after the other, and dropped by any.
unsafe impl<T: Send> Sync for Guard<T> {}

impl<T> Guard<T> {
    pub(crate) fn new(only: Option<Thread>, value: T) -> Self {
        Self {
            only,
            lock: Mutex::default(),
            busy: false.into(),
            errands: Mutex::default(),
            any: false.into(),
            value: value.into(),
        }
    }

    /// Uses the value, after what others left to do.
    #[inline]
    pub(crate) fn with<R>(&self, f: impl FnOnce(&mut T) -> R) -> Result<R, Refusal> {
        let _turn = self.turn()?;
        // SAFETY: nobody else uses the value until `_turn` is dropped: see there.
        let value = unsafe { &mut *self.value.get() };
        if self.any.load(Ordering::Relaxed) {
            self.run_errands(value);
        }
        Ok(f(value))
    }

    /// Whether this thread can use the value.
    pub(crate) fn is_free(&self) -> bool {
        self.only.is_none_or(|only| only == Thread::current() && !self.busy.get())
    }

    /// Leaves something to do to the next who uses the value.
    pub(crate) fn leave(&self, errand: impl FnOnce(&mut T) + Send + 'static) {
        lock(&self.errands).push(Box::new(errand));
        self.any.store(true, Ordering::Release);
    }

    #[cold]
    fn run_errands(&self, value: &mut T) {
        self.any.store(false, Ordering::Relaxed);
        let errands = std::mem::take(&mut *lock(&self.errands));
        errands.into_iter().for_each(|errand| errand(value));
    }

    #[inline]
    fn turn(&self) -> Result<Turn<'_>, Refusal> {
        match self.only {
            None => Ok(Turn::Locked(lock(&self.lock))),
            Some(only) if only != Thread::current() => Err(Refusal::Thread),
            Some(_) if self.busy.replace(true) => Err(Refusal::Busy),
            Some(_) => Ok(Turn::Alone(&self.busy)),
        }
    }
}

/// The right to use the value, until it is dropped.
enum Turn<'a> {
    Locked(#[allow(dead_code, reason = "held, not read")] MutexGuard<'a, ()>),
    Alone(&'a Cell<bool>),
}

impl Drop for Turn<'_> {
    #[inline]
    fn drop(&mut self) {
        if let Self::Alone(busy) = self {
            busy.set(false);
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use super::*;
    use std::thread;

    #[test]
    fn any_thread_has_its_turn_where_all_may() {
        let guard = Guard::new(None, 0);
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..1000).for_each(|_| guard.with(|value| *value += 1).unwrap()));
            }
        });
        assert_eq!(guard.with(|value| *value), Ok(4000));
    }

    #[test]
    fn what_another_thread_asks_for_happens_when_the_only_one_comes() {
        let guard = Guard::new(Some(Thread::current()), 1);
        thread::scope(|scope| {
            scope.spawn(|| {
                assert_eq!(guard.with(|value| *value), Err(Refusal::Thread));
                assert!(!guard.is_free());
                guard.leave(|value| *value *= 10);
                guard.leave(|value| *value += 2);
            });
        });
        assert!(guard.is_free());
        assert_eq!(guard.with(|value| *value), Ok(12));
    }

    #[test]
    fn nobody_has_the_value_twice() {
        let guard = Guard::new(Some(Thread::current()), 1);
        let inner = guard.with(|_| (guard.is_free(), guard.with(|value| *value)));
        assert_eq!(inner, Ok((false, Err(Refusal::Busy))));
        assert_eq!(guard.with(|value| *value), Ok(1));
    }

    #[test]
    fn a_panic_gives_the_value_back() {
        let guard = Guard::new(Some(Thread::current()), 1);
        let panicked =
            std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| guard.with(|_| panic!("on purpose"))));
        assert!(panicked.is_err());
        assert_eq!(guard.with(|value| *value), Ok(1));
    }
}
