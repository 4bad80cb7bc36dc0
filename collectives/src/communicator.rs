use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use sparse_core::{Memory, Reusable};
use transport::{Buffers, Rank, Transport};

use crate::allreduce::auto::{Learned, model};
use crate::background::{Pool, Progress};
use crate::call::{AUTO, Call};
use crate::cost::Link;
use crate::error::Error;
use crate::group::{FIRST_DERIVED, Group};
use crate::in_flight::{InFlight, lock};
use crate::reduction::Reduction;

/// Collective operations of one group of ranks over one [`Transport`].
///
/// Every rank calls the same operations in the same order. An operation takes its place in that
/// order when it is called, not when its future is first polled; several may be in flight at once.
/// Await the futures on any executor, or block with [`transport::block_on`].
///
/// Results are the same bits on all ranks, and in every run with the same inputs. Inputs are only
/// read. A call that differs between ranks, a lost rank and an exceeded deadline are errors on
/// every rank that has not finished yet; see [`Error`] for what remains usable. Dropping a future
/// before its end counts as a failure, since the other ranks depend on it.
///
/// Each message carries a header of [`sparse_core::wire::HEADER`] bytes, and each operation sends one
/// (broadcast and barrier: `ceil(log2 P)`) extra message of a header alone to check that the ranks
/// agree; it travels beside the data.
///
/// ```
/// use collectives::{Communicator, SparseAlgorithm};
/// use sparse_core::SparseVec;
///
/// let sums = testkit::run_world(testkit::local_world(4), |transport| async move {
///     let communicator = Communicator::new(transport);
///     let rank = communicator.rank().0;
///     let mine = SparseVec::new(1_000_000, vec![7, 100 + rank], vec![1.0_f32, 2.0])?;
///     let sum = communicator.allreduce(&mine, &SparseAlgorithm::SsarRecursiveDoubling).await?;
///     Ok::<_, Box<dyn std::error::Error + Send + Sync>>(sum.nnz())
/// });
/// assert!(sums.into_iter().all(|nnz| nnz.unwrap() == 5));
/// ```
pub struct Communicator<T: Transport> {
    shared: Arc<Shared<T>>,
    /// The collectives that go on by themselves.
    pool: Arc<Pool>,
    /// What reducing operations of this handle give.
    pub(crate) reduction: Reduction,
}

/// How a [`Communicator`] behaves.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Options {
    /// The time within which each operation must end, from its first poll. A warning names the
    /// ranks waited for at a third of it. Default: 5 minutes.
    pub deadline: Duration,
    /// The communication context: communicators over one transport need different ones, the same
    /// on every rank, and below 2^31, where those of [`Communicator::split`] begin. Default: 0.
    pub context: u32,
    /// Who makes started collectives go on. Default: a thread.
    pub progress: Progress,
    /// What the `Auto` algorithms choose by, until a [calibration](Communicator::calibrate); the same on every rank.
    /// Default: that of [`Link`].
    pub link: Link,
    /// Whether [`SparseAlgorithm::Auto`](crate::SparseAlgorithm::Auto) corrects its predictions by the times that its calls
    /// took; the same on every rank. The choice, and with it the last bits of a sum, then depends on timing; all ranks still choose alike.
    /// Default: no.
    pub learn: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            deadline: Duration::from_secs(300),
            context: 0,
            progress: Progress::default(),
            link: Link::default(),
            learn: false,
        }
    }
}

impl Options {
    /// Sets [`deadline`](Self::deadline).
    #[must_use]
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.deadline = deadline;
        self
    }

    /// Sets [`context`](Self::context).
    #[must_use]
    pub fn context(mut self, context: u32) -> Self {
        self.context = context;
        self
    }

    /// Sets [`progress`](Self::progress).
    #[must_use]
    pub fn progress(mut self, progress: Progress) -> Self {
        self.progress = progress;
        self
    }

    /// Sets [`link`](Self::link).
    #[must_use]
    pub fn link(mut self, link: Link) -> Self {
        self.link = link;
        self
    }

    /// Sets [`learn`](Self::learn).
    #[must_use]
    pub fn learn(mut self, learn: bool) -> Self {
        self.learn = learn;
        self
    }
}

/// What a communicator handed to its transport and got from it so far: payloads with their headers.
///
/// Below it, a back end adds its own framing (see its docs).
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Traffic {
    /// Bytes handed to `send`.
    pub bytes_sent: u64,
    /// Bytes returned by `recv`.
    pub bytes_received: u64,
    /// Messages handed to `send`.
    pub messages_sent: u64,
    /// Messages returned by `recv`.
    pub messages_received: u64,
}

impl<T: Transport> Communicator<T> {
    /// A communicator of the whole world with the default [`Options`].
    pub fn new(transport: T) -> Self {
        Self::with_options(transport, Options::default())
    }

    /// A communicator of the whole world.
    pub fn with_options(transport: T, options: Options) -> Self {
        let group = Group::world(&transport);
        Self::of_group(Arc::new(transport), options, group)
    }

    pub(crate) fn of_group(transport: Arc<T>, options: Options, group: Group) -> Self {
        let pool = Arc::new(Pool::new(options.progress));
        let shared = Shared {
            transport,
            group,
            link: Mutex::new(options.link),
            learned: Mutex::default(),
            options,
            sequence: AtomicU32::new(0),
            traffic: TrafficCounters::default(),
            poison: Mutex::new(None),
            buffers: Buffers::default(),
            memory: Memory::new(),
        };
        Self { shared: Arc::new(shared), pool, reduction: Reduction::Sum }
    }

    /// This process's rank among those that take part: that of the transport, but for communicators made by
    /// [`split`](Self::split).
    pub fn rank(&self) -> Rank {
        Rank::from_index(self.shared.group.rank())
    }

    /// How many ranks take part.
    pub fn world_size(&self) -> usize {
        self.shared.group.size()
    }

    /// The transport below.
    pub fn transport(&self) -> &T {
        &self.shared.transport
    }

    /// The bytes and messages so far, by all operations of this communicator and its clones.
    pub fn traffic(&self) -> Traffic {
        self.shared.traffic.read()
    }

    /// Gives back the memory of a result that is no longer needed: a [`SparseVec`](sparse_core::SparseVec), a
    /// [`Stream`](sparse_core::Stream), a vector of values, a [`GlobalTopk`](crate::GlobalTopk). Of this communicator and its clones.
    ///
    /// A loop that gives its results back allocates nothing that grows with the vectors, once it is warm. What operations need on
    /// their way they always use again.
    ///
    /// ```
    /// use collectives::{Communicator, SparseAlgorithm};
    /// use sparse_core::{SparseVec, Stream};
    ///
    /// testkit::run_world(testkit::local_world(2), |transport| async move {
    ///     let communicator = Communicator::new(transport);
    ///     let mine = SparseVec::new(1 << 20, (0..10_000).collect(), vec![1.0_f32; 10_000])?;
    ///     for _ in 0..3 {
    ///         let sum: Stream<f32> = communicator.allreduce(&mine, &SparseAlgorithm::SsarSplitAllgather).await?;
    ///         // Apply it here.
    ///         communicator.recycle(sum);
    ///     }
    ///     Ok::<_, Box<dyn std::error::Error + Send + Sync>>(())
    /// });
    /// ```
    pub fn recycle(&self, result: impl Reusable) {
        self.shared.memory.put(result);
    }

    /// What the `Auto` algorithms choose by: the link of the [`Options`], or what was measured since.
    pub fn link(&self) -> Link {
        *lock(&self.shared.link)
    }

    pub(crate) fn pool(&self) -> &Arc<Pool> {
        &self.pool
    }

    pub(crate) fn begin(&self, call: Call) -> Result<InFlight<T>, Error> {
        let context = self.shared.options.context;
        if context >= FIRST_DERIVED && self.shared.group.is_world() {
            return Err(Error::invalid(format!(
                "contexts from 2^31 on are those of split communicators: choose one below {context}"
            )));
        }
        self.shared.check_poison()?;
        let link = self.link();
        // A call whose algorithm is to be chosen says by what.
        let chosen = call.0.algorithm == AUTO;
        let call = if chosen { call.with_parameter(model(&link, self.shared.options.learn)) } else { call };
        Ok(InFlight::new(Arc::clone(&self.shared), call, link))
    }

    pub(crate) fn shared(&self) -> &Arc<Shared<T>> {
        &self.shared
    }
}

impl<T: Transport> Clone for Communicator<T> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared), pool: Arc::clone(&self.pool), reduction: self.reduction }
    }
}

impl<T: Transport> std::fmt::Debug for Communicator<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Communicator")
            .field("rank", &self.rank())
            .field("world_size", &self.world_size())
            .field("reduction", &self.reduction)
            .field("options", &self.shared.options)
            .finish_non_exhaustive()
    }
}

/// What the handles of a communicator and its operations in flight share.
pub(crate) struct Shared<T> {
    pub(crate) transport: Arc<T>,
    pub(crate) group: Group,
    pub(crate) options: Options,
    pub(crate) link: Mutex<Link>,
    pub(crate) learned: Mutex<Learned>,
    pub(crate) sequence: AtomicU32,
    pub(crate) traffic: TrafficCounters,
    pub(crate) poison: Mutex<Option<Arc<Error>>>,
    /// Memory of the messages that this rank sends.
    pub(crate) buffers: Buffers,
    /// Memory of vectors: of what operations need on their way, and of results that were given back.
    pub(crate) memory: Memory,
}

#[derive(Default)]
pub(crate) struct TrafficCounters {
    bytes_sent: AtomicU64,
    bytes_received: AtomicU64,
    messages_sent: AtomicU64,
    messages_received: AtomicU64,
}

impl TrafficCounters {
    pub(crate) fn sent(&self, bytes: usize) {
        self.bytes_sent.fetch_add(bytes as u64, Ordering::Relaxed);
        self.messages_sent.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn received(&self, bytes: usize) {
        self.bytes_received.fetch_add(bytes as u64, Ordering::Relaxed);
        self.messages_received.fetch_add(1, Ordering::Relaxed);
    }

    fn read(&self) -> Traffic {
        Traffic {
            bytes_sent: self.bytes_sent.load(Ordering::Relaxed),
            bytes_received: self.bytes_received.load(Ordering::Relaxed),
            messages_sent: self.messages_sent.load(Ordering::Relaxed),
            messages_received: self.messages_received.load(Ordering::Relaxed),
        }
    }
}
