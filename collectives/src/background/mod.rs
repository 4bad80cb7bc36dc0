//! Collectives that go on while the caller computes: started now, waited for later.

use std::any::Any;
use std::fmt;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use sparse_core::{Element, SparseVec, Stream};
use transport::{Transport, block_on};

use crate::allreduce::{self, DenseAlgorithm, SparseAlgorithm};
use crate::call::Operation;
use crate::communicator::Communicator;
use crate::error::Error;
use crate::gtopk::{self, GlobalTopk, GtopkAlgorithm, PutBack};
use crate::in_flight::{Check, lock};

mod pool;

pub(crate) use pool::Pool;

/// Who makes started collectives go on.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
#[non_exhaustive]
pub enum Progress {
    /// A thread of the communicator's own, from the first collective that is started: they overlap with whatever the
    /// caller computes. It sleeps while there is nothing to do, if the transport does.
    #[default]
    Thread,
    /// Those who wait for, test or poll a [`Handle`], each for all that are in flight. For a transport that only one
    /// thread may use, that makes progress by being polled, or whose time is virtual; call [`Handle::test`] now and then
    /// while computing.
    Caller,
}

/// A collective that was started: a future of its result, which can also be waited for or tested.
///
/// Any number may be in flight, of different sizes and algorithms, and may be waited for in any order, another one on
/// each rank. Dropping a handle gives up the result, not the collective: the other ranks get theirs. Only where
/// [`Progress::Caller`] leaves nobody to go on, because the communicator's last clone and handle are gone, is an
/// unfinished one an error on all ranks.
///
/// ```
/// use collectives::{Communicator, DenseAlgorithm, SparseAlgorithm};
/// use sparse_core::SparseVec;
///
/// let sums = testkit::run_world(testkit::local_world(3), |transport| async move {
///     let communicator = Communicator::new(transport);
///     let layer = SparseVec::new(10, vec![communicator.rank().0], vec![1.0_f32])?;
///     let sparse = communicator.start_allreduce(layer, SparseAlgorithm::SsarSplitAllgather);
///     let dense = communicator.start_allreduce_dense(vec![1_i64; 4], DenseAlgorithm::Ring);
///     // Compute the next layer here. Then, in any order:
///     assert_eq!(dense.wait()?, [3; 4]);
///     Ok::<_, Box<dyn std::error::Error + Send + Sync>>(sparse.await?.nnz())
/// });
/// assert!(sums.into_iter().all(|nnz| nnz.unwrap() == 3));
/// ```
#[must_use = "the result of a collective, or its error, should be looked at"]
pub struct Handle<R> {
    slot: Arc<Slot<R>>,
    pool: Arc<Pool>,
}

impl<R> Handle<R> {
    /// Blocks until the collective has ended.
    ///
    /// # Errors
    /// What the collective meets.
    ///
    /// # Panics
    /// If the collective panicked; or if this handle was polled to its end before.
    pub fn wait(self) -> Result<R, Error> {
        block_on(self)
    }

    /// Whether the collective has ended, so that waiting takes no time. Makes progress with [`Progress::Caller`].
    #[must_use]
    pub fn test(&self) -> bool {
        self.pool.help(Waker::noop());
        !matches!(*lock(&self.slot.0), State::Going(_))
    }
}

impl<R> Future for Handle<R> {
    type Output = Result<R, Error>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        self.pool.help(context.waker());
        let mut state = lock(&self.slot.0);
        if let State::Going(waker) = &mut *state {
            *waker = Some(context.waker().clone());
            return Poll::Pending;
        }
        match std::mem::replace(&mut *state, State::Taken) {
            State::Ended(Ok(result)) => Poll::Ready(result),
            State::Ended(Err(panic)) => resume_unwind(panic),
            State::Going(_) | State::Taken => panic!("polled after its end"),
        }
    }
}

impl<R> fmt::Debug for Handle<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ended = !matches!(*lock(&self.slot.0), State::Going(_));
        f.debug_struct("Handle").field("ended", &ended).finish_non_exhaustive()
    }
}

/// Where a collective leaves its result.
struct Slot<R>(Mutex<State<R>>);

enum State<R> {
    /// With who waits for it.
    Going(Option<Waker>),
    Ended(Result<Result<R, Error>, Box<dyn Any + Send>>),
    Taken,
}

impl<T: Transport + 'static> Communicator<T> {
    /// [`allreduce`](Self::allreduce), started now and waited for later. Takes its place in the order of collectives
    /// at this call.
    pub fn start_allreduce<E: Element>(
        &self,
        input: SparseVec<E>,
        algorithm: SparseAlgorithm,
    ) -> Handle<Stream<E>> {
        let begun = self.begin_allreduce::<E>(Operation::Allreduce, input.dim(), &algorithm);
        self.start(async move {
            let operation = begun?;
            let run = allreduce::sparse(&operation, &input, &algorithm);
            let result = operation.drive(Check::Neighbour, run).await;
            operation.memory().put(input);
            operation.finish(result)
        })
    }

    /// [`allreduce_dense`](Self::allreduce_dense) to other memory, started now and waited for later. Takes its place in
    /// the order of collectives at this call.
    pub fn start_allreduce_dense<E: Element>(
        &self,
        input: Vec<E>,
        algorithm: DenseAlgorithm,
    ) -> Handle<Vec<E>> {
        let begun =
            self.begin_allreduce_dense::<E>(Operation::AllreduceDense, input.len(), input.len(), algorithm);
        self.start(async move {
            let operation = begun?;
            let mut output = operation.memory().any(input.len(), E::ZERO);
            let run = allreduce::dense(&operation, &input, &mut output, algorithm);
            let result = operation.drive(Check::Neighbour, run).await;
            operation.memory().put(input);
            operation.finish(result)?;
            Ok(output)
        })
    }

    /// [`gtopk`](Self::gtopk), started now and waited for later. Takes its place in the order of collectives at this
    /// call.
    pub fn start_gtopk<E: Element>(
        &self,
        input: SparseVec<E>,
        k: usize,
        algorithm: GtopkAlgorithm,
        put_back: PutBack,
    ) -> Handle<GlobalTopk<E>> {
        let begun = self.begin_gtopk::<E>(Operation::Gtopk, input.dim(), k, algorithm, put_back);
        self.start(async move {
            let operation = begun?;
            let run = gtopk::gtopk(&operation, &input, k, algorithm, put_back);
            let result = operation.drive(Check::Neighbour, run).await;
            operation.memory().put(input);
            operation.finish(result)
        })
    }

    /// Leaves a collective to who makes it go on.
    pub(crate) fn start<R: Send + 'static>(
        &self,
        collective: impl Future<Output = Result<R, Error>> + Send + 'static,
    ) -> Handle<R> {
        let slot = Arc::new(Slot(Mutex::new(State::Going(None))));
        let leave = Arc::clone(&slot);
        self.pool().add(Box::pin(async move {
            let mut collective = pin!(collective);
            let ended = std::future::poll_fn(|context| {
                // So that whoever waits hears of a panic, instead of waiting for ever.
                match catch_unwind(AssertUnwindSafe(|| collective.as_mut().poll(context))) {
                    Ok(poll) => poll.map(Ok),
                    Err(panic) => Poll::Ready(Err(panic)),
                }
            });
            let ended = State::Ended(ended.await);
            if let State::Going(Some(waker)) = std::mem::replace(&mut *lock(&leave.0), ended) {
                waker.wake();
            }
        }));
        Handle { slot, pool: Arc::clone(self.pool()) }
    }
}
