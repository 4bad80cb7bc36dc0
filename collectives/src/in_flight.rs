//! One collective in flight: its tags, its check, its deadline, and what its failure does.

use std::collections::BTreeSet;
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::{Either, select, try_join};
use sparse_core::wire::{self, Frame};
use sparse_core::{Element, ErrorKind, Memory, SparseView, Stream};
use transport::{Rank, Scope, Tag, Transport};

use crate::allreduce::auto::Learned;
use crate::call::Call;
use crate::communicator::Shared;
use crate::cost::Link;
use crate::error::{Error, list};
use crate::group::Group;
use crate::topology;

/// Tag numbers of one collective: the low bits of a tag number, below the collective's sequence.
#[derive(Clone, Copy)]
#[repr(u32)]
pub(crate) enum Lane {
    Check = 0,
    Reduce = 1,
    Gather = 2,
}

const LANE_BITS: u32 = 2;

/// How far the check of the fingerprints reaches before a collective may return.
#[derive(Clone, Copy)]
pub(crate) enum Check {
    /// Each rank compares with its left neighbour: enough where the result needs every rank's data,
    /// since whoever differs and its neighbour both notice, and nobody can finish without them.
    Neighbour,
    /// Each rank has heard, through others, of every rank: for operations whose data flow one way.
    Everyone,
}

pub(crate) struct InFlight<T: Transport> {
    shared: Arc<Shared<T>>,
    /// Those who take part.
    group: Group,
    call: Call,
    /// What this operation chooses by.
    link: Link,
    /// Where in the whole vector the one begins that this is called with.
    start: u64,
    sequence: u32,
    waiting: Arc<Waiting>,
    finished: bool,
}

impl<T: Transport> InFlight<T> {
    pub(crate) fn new(shared: Arc<Shared<T>>, call: Call, link: Link) -> Self {
        // Wraps after 2^30 collectives; only those in flight at once must differ.
        let sequence = shared.sequence.fetch_add(1, Ordering::Relaxed) << LANE_BITS;
        let group = shared.group.clone();
        Self { shared, group, call, link, start: 0, sequence, waiting: Arc::default(), finished: false }
    }

    /// This operation for some of its ranks alone and for the part of the vector from index `start` on, for the algorithm of
    /// a phase. It ends with the whole, which it must not outlive.
    pub(crate) fn part(&self, members: &Group, start: u64) -> Self {
        Self {
            shared: Arc::clone(&self.shared),
            group: self.group.part(members),
            call: self.call,
            link: self.link,
            start,
            sequence: self.sequence,
            waiting: Arc::clone(&self.waiting),
            // Its end is that of the whole.
            finished: true,
        }
    }

    pub(crate) fn rank(&self) -> usize {
        self.group.rank()
    }

    pub(crate) fn world_size(&self) -> usize {
        self.group.size()
    }

    /// This rank's number in the whole, of which this may be a part.
    pub(crate) fn rank_in_whole(&self) -> usize {
        self.shared.group.rank()
    }

    pub(crate) fn link(&self) -> &Link {
        &self.link
    }

    /// What this rank has learned of the algorithms, if it may learn.
    pub(crate) fn learned(&self) -> Option<&Mutex<Learned>> {
        self.shared.options.learn.then_some(&self.shared.learned)
    }

    /// The transport's clock.
    pub(crate) fn now(&self) -> Duration {
        self.shared.transport.now()
    }

    /// For vectors.
    pub(crate) fn memory(&self) -> &Memory {
        &self.shared.memory
    }

    pub(crate) fn call(&self) -> &Call {
        &self.call
    }

    /// The header of every message of this collective.
    pub(crate) fn fingerprint(&self) -> &wire::Fingerprint {
        &self.call.0
    }

    /// Dense values as a message.
    pub(crate) fn dense<E: Element>(&self, values: &[E]) -> Bytes {
        self.dense_piece(values, 1)
    }

    /// Dense values as one of so many pieces, a message each.
    pub(crate) fn dense_piece<E: Element>(&self, values: &[E], pieces: usize) -> Bytes {
        let length = wire::HEADER + size_of_val(values);
        self.shared.buffers.fill(length, |out| {
            wire::write_dense(out, self.fingerprint(), values);
            wire::mark_piece(out, pieces);
        })
    }

    /// `left`, which starts at index `start`, plus the dense values in the frame of `from`, as a message.
    pub(crate) fn dense_sum<E: Element>(
        &self,
        start: u64,
        left: &[E],
        right: &Frame,
        from: usize,
    ) -> Result<Bytes, Error> {
        let length = wire::HEADER + size_of_val(left);
        let mut written = Ok(());
        let message = self.shared.buffers.fill(length, |out| {
            written = wire::write_dense_sum(out, self.fingerprint(), left, right);
        });
        written.map_err(|source| self.refused_from(from, source, start))?;
        Ok(message)
    }

    /// A sparse vector as a message.
    pub(crate) fn sparse<E: Element>(&self, view: SparseView<'_, E>) -> Bytes {
        self.sparse_piece(view, 1)
    }

    /// A sparse vector as one of so many pieces, a message each.
    fn sparse_piece<E: Element>(&self, view: SparseView<'_, E>, pieces: usize) -> Bytes {
        let length = wire::sparse_room::<E>(view.nnz());
        self.shared.buffers.fill(length, |out| {
            wire::write_sparse(out, self.fingerprint(), &view);
            wire::mark_piece(out, pieces);
        })
    }

    /// A stream as a message, in the form that it has.
    pub(crate) fn stream<E: Element>(&self, stream: &Stream<E>) -> Bytes {
        self.stream_piece(stream, 1)
    }

    /// A stream as one of so many pieces, a message each, in the form that it has.
    pub(crate) fn stream_piece<E: Element>(&self, stream: &Stream<E>, pieces: usize) -> Bytes {
        match stream {
            Stream::Sparse(vector) => self.sparse_piece(vector.view(), pieces),
            Stream::Dense(values) => self.dense_piece(values, pieces),
        }
    }

    /// [`stream`](Self::stream) of one that is not needed any more.
    pub(crate) fn spent_stream<E: Element>(&self, stream: Stream<E>) -> Bytes {
        let message = self.stream(&stream);
        self.memory().put(stream);
        message
    }

    /// These bytes, one after the other, as a message.
    pub(crate) fn opaque(&self, body: &[&[u8]]) -> Bytes {
        let length = wire::HEADER + body.iter().map(|part| part.len()).sum::<usize>();
        self.shared.buffers.fill(length, |out| wire::write_opaque(out, self.fingerprint(), body))
    }

    /// Why this rank could not sum in the range that starts at index `start`.
    pub(crate) fn refused(&self, source: sparse_core::Error, start: u64) -> Error {
        Error::value(self.rank(), source.in_whole(self.start.saturating_add(start)))
    }

    /// Why it could not add what `from` sent, which may be malformed.
    pub(crate) fn refused_from(&self, from: usize, source: sparse_core::Error, start: u64) -> Error {
        match source.kind() {
            ErrorKind::Overflow => self.refused(source, start),
            _ => Error::malformed(from, source),
        }
    }

    /// Posts a send.
    pub(crate) fn send(
        &self,
        to: usize,
        lane: Lane,
        message: Bytes,
    ) -> impl Future<Output = Result<(), Error>> + Send {
        self.shared.traffic.sent(message.len());
        let sent = self.shared.transport.send(self.in_world(to), self.tag(lane), message);
        async move { sent.await.map_err(|error| self.group.name_in_group(error)) }
    }

    /// Posts a receive of a message and checks that it belongs to the same call.
    pub(crate) fn recv(&self, from: usize, lane: Lane) -> impl Future<Output = Result<Frame, Error>> + Send {
        let whole = self.recv_whole(from, lane);
        async move { Ok(whole.await?.0) }
    }

    /// [`recv`](Self::recv), together with the whole message for passing on as it came.
    pub(crate) fn recv_whole(
        &self,
        from: usize,
        lane: Lane,
    ) -> impl Future<Output = Result<(Frame, Bytes), Error>> + Send {
        let received = self.shared.transport.recv(self.in_world(from), self.tag(lane));
        let waits = self.waiting.enter(self.in_world(from));
        async move {
            let message = received.await.map_err(|error| self.group.name_in_group(error))?;
            drop(waits);
            self.shared.traffic.received(message.len());
            Ok((self.open(from, message.clone())?, message))
        }
    }

    /// Opens what `from` encoded, and checks that it belongs to the same call.
    pub(crate) fn open(&self, from: usize, message: Bytes) -> Result<Frame, Error> {
        let frame = wire::open(message).map_err(|source| Error::malformed(from, source))?;
        if frame.fingerprint == self.call.0 {
            return Ok(frame);
        }
        let (here, peer) = (self.in_world(self.rank()), self.in_world(from));
        let detail = self.call.difference(here.index(), &frame.fingerprint, peer.index());
        Err(Error::Mismatch { peer, detail })
    }

    /// Posts a receive and a send.
    pub(crate) fn exchange(
        &self,
        to: usize,
        from: usize,
        lane: Lane,
        message: Bytes,
    ) -> impl Future<Output = Result<Frame, Error>> + Send {
        let received = self.recv(from, lane);
        let sent = self.send(to, lane, message);
        async move { Ok(try_join(sent, received).await?.1) }
    }

    /// Runs the algorithm beside the check, within the communicator's deadline.
    pub(crate) async fn drive<R>(
        &self,
        check: Check,
        algorithm: impl Future<Output = Result<R, Error>> + Send,
    ) -> Result<R, Error>
    where
        R: Send,
    {
        if self.world_size() == 1 {
            return algorithm.await;
        }
        let mut result = None;
        let algorithm = async {
            result = Some(algorithm.await?);
            Ok(())
        };
        self.watch(check, pin!(algorithm)).await?;
        let Some(result) = result else { unreachable!("a call that succeeds waits for its algorithm") };
        Ok(result)
    }

    /// [`drive`](Self::drive) without the type of an algorithm, of which there are many.
    async fn watch(
        &self,
        check: Check,
        algorithm: Pin<&mut (dyn Future<Output = Result<(), Error>> + Send)>,
    ) -> Result<(), Error> {
        let deadline = self.shared.options.deadline;
        let transport = &self.shared.transport;
        // Posted first, so that a mismatch is noticed soon even where the data are large.
        let first = self.check_round(0);
        let both = pin!(async { try_join(algorithm, self.check(check, first)).await.map(drop) });
        let both = match select(both, pin!(transport.sleep(deadline / 3))).await {
            Either::Left((result, _)) => return result,
            Either::Right(((), both)) => both,
        };
        tracing::warn!(
            rank = transport.rank().index(),
            "{:?} has taken {:?}, a third of its deadline, and still waits for {}",
            self.call,
            deadline / 3,
            list(&self.waited_for()),
        );
        match select(both, pin!(transport.sleep(deadline - deadline / 3))).await {
            Either::Left((result, _)) => result,
            Either::Right(_) => Err(Error::Timeout {
                rank: transport.rank(),
                operation: self.call.to_string(),
                waiting_for: self.waited_for(),
                after: deadline,
            }),
        }
    }

    /// Ends the collective; a failure is told to all ranks and spoils the communicator.
    pub(crate) fn finish<R>(mut self, result: Result<R, Error>) -> Result<R, Error> {
        self.finished = true;
        let result = result.map_err(|error| self.group.name_in_world(error));
        if let Err(error) = &result {
            self.shared.poison(error);
        }
        result
    }

    fn in_world(&self, rank: usize) -> Rank {
        self.group.in_world(rank)
    }

    fn waited_for(&self) -> Vec<Rank> {
        self.waiting.ranks()
    }

    fn tag(&self, lane: Lane) -> Tag {
        Tag::new(self.shared.options.context, self.sequence | lane as u32)
    }

    async fn check(
        &self,
        check: Check,
        first_round: impl Future<Output = Result<Frame, Error>>,
    ) -> Result<(), Error> {
        first_round.await?;
        if let Check::Everyone = check {
            for round in 1..topology::rounds(self.world_size()) {
                self.check_round(round).await?;
            }
        }
        Ok(())
    }

    /// A round of dissemination: a rank hears from the one `2^round` before it.
    fn check_round(&self, round: u32) -> impl Future<Output = Result<Frame, Error>> + Send {
        let (rank, ranks, distance) = (self.rank(), self.world_size(), 1 << round);
        let (to, from) = (topology::after(rank, distance, ranks), topology::before(rank, distance, ranks));
        self.exchange(to, from, Lane::Check, wire::encode_empty(&self.call.0))
    }
}

impl<T: Transport> Drop for InFlight<T> {
    fn drop(&mut self) {
        if !self.finished {
            let rank = self.shared.transport.rank();
            self.shared.poison(&Error::Dropped { rank, operation: self.call.to_string() });
        }
    }
}

impl<T: Transport> Shared<T> {
    /// Spoils the communicator on this rank and, unless they have heard already, tells the others.
    fn poison(&self, error: &Error) {
        let mut poison = lock(&self.poison);
        if poison.is_some() {
            return;
        }
        *poison = Some(Arc::new(error.clone()));
        drop(poison);
        if !matches!(error, Error::Remote { .. }) {
            self.transport.abort(Scope::Context(self.options.context), &error.to_reason());
        }
    }

    pub(crate) fn check_poison(&self) -> Result<(), Error> {
        match &*lock(&self.poison) {
            Some(cause) => Err(Error::Poisoned { cause: Arc::clone(cause) }),
            None => Ok(()),
        }
    }
}

/// The ranks that a collective waits for, for warnings and timeouts: a place for each receive that waits.
#[derive(Default)]
struct Waiting(Mutex<Vec<Option<Rank>>>);

impl Waiting {
    fn enter(&self, rank: Rank) -> Wait<'_> {
        let mut places = lock(&self.0);
        places.push(Some(rank));
        Wait { waiting: self, place: places.len() - 1 }
    }

    fn ranks(&self) -> Vec<Rank> {
        let ranks: BTreeSet<_> = lock(&self.0).iter().flatten().copied().collect();
        ranks.into_iter().collect()
    }
}

struct Wait<'w> {
    waiting: &'w Waiting,
    place: usize,
}

impl Drop for Wait<'_> {
    fn drop(&mut self) {
        let mut places = lock(&self.waiting.0);
        if let Some(place) = places.get_mut(self.place) {
            *place = None;
        }
        while places.pop_if(|place| place.is_none()).is_some() {}
    }
}

/// The guarded data are valid after every statement, so a panic elsewhere does not spoil them.
pub(crate) fn lock<D>(mutex: &Mutex<D>) -> MutexGuard<'_, D> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
