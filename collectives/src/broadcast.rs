//! Broadcast down a binomial tree.
//!
//! Steps: a rank receives from its parent, then sends to its children, the farthest first, passing on
//! the bytes it got. Ranks count from the root. Cost: `ceil(log2 P) (alpha + n beta)`.

use std::future::Future;

use bytes::Bytes;
use futures_util::future::try_join_all;
use sparse_core::{Element, Stream, wire};
use transport::{Rank, Transport};

use crate::call::{Call, Operation};
use crate::communicator::Communicator;
use crate::decode;
use crate::error::Error;
use crate::in_flight::{Check, InFlight, Lane};
use crate::topology::{after, before, tree};

impl<T: Transport> Communicator<T> {
    /// Gives every rank the payload of `root`; what the other ranks pass is ignored.
    ///
    /// Binomial tree. Cost: `ceil(log2 P) (alpha + n beta)` for `n` bytes. Returns only after every
    /// rank has called it.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if `root` is not a rank; and what every operation can meet.
    pub fn broadcast(&self, root: Rank, payload: Bytes) -> impl Future<Output = Result<Bytes, Error>> + Send {
        let begun = self.begin_rooted(root, Call::plain(Operation::Broadcast, 0));
        async move {
            let operation = begun?;
            let algorithm = binomial(&operation, root.index(), payload);
            let result = operation.drive(Check::Everyone, algorithm).await;
            operation.finish(result)
        }
    }

    /// Gives every rank the vector of `root`, sparse or dense as it is there. Of the other ranks' vectors only type and
    /// dimension matter, which are those of the root: an empty one will do.
    ///
    /// Binomial tree. Cost: as [`broadcast`](Self::broadcast) of `nnz b` bytes of a sparse vector, `N v` of a dense one.
    /// Returns only after every rank has called it.
    ///
    /// ```
    /// use collectives::Communicator;
    /// use sparse_core::{SparseVec, Stream};
    /// use transport::Rank;
    ///
    /// let got = testkit::run_world(testkit::local_world(3), |transport| async move {
    ///     let communicator = Communicator::new(transport);
    ///     let mine = match communicator.rank() {
    ///         Rank(2) => SparseVec::new(1_000_000, vec![7, 99], vec![1.0_f32, 2.0])?,
    ///         _ => SparseVec::empty(1_000_000)?,
    ///     };
    ///     let theirs = communicator.broadcast_stream(Rank(2), Stream::from(mine)).await?;
    ///     Ok::<_, Box<dyn std::error::Error + Send + Sync>>(theirs.nnz())
    /// });
    /// assert!(got.into_iter().all(|nnz| nnz.unwrap() == 2));
    /// ```
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if `root` is not a rank; and what every operation can meet.
    pub fn broadcast_stream<E: Element>(
        &self,
        root: Rank,
        stream: Stream<E>,
    ) -> impl Future<Output = Result<Stream<E>, Error>> + Send {
        let call = Call::vector::<E>(Operation::BroadcastStream, 0, stream.dim());
        let begun = self.begin_rooted(root, call);
        async move {
            let operation = begun?;
            let algorithm = binomial_stream(&operation, root.index(), stream);
            let result = operation.drive(Check::Everyone, algorithm).await;
            operation.finish(result)
        }
    }

    /// Begins an operation that has a root.
    pub(crate) fn begin_rooted(&self, root: Rank, call: Call) -> Result<InFlight<T>, Error> {
        let ranks = self.world_size();
        if root.index() >= ranks {
            return Err(Error::invalid(format!("the root is rank {root}, but there are only {ranks} ranks")));
        }
        self.begin(call.with_root(root))
    }
}

async fn binomial<T: Transport>(
    operation: &InFlight<T>,
    root: usize,
    payload: Bytes,
) -> Result<Bytes, Error> {
    let own = operation.opaque(&[&payload]);
    let (from, frame) = down(operation, root, own).await?;
    frame.into_opaque().map_err(|source| Error::malformed(from, source))
}

async fn binomial_stream<T: Transport, E: Element>(
    operation: &InFlight<T>,
    root: usize,
    stream: Stream<E>,
) -> Result<Stream<E>, Error> {
    let is_root = operation.rank() == root;
    let own = if is_root { operation.stream(&stream) } else { Bytes::new() };
    let (from, frame) = down(operation, root, own).await?;
    if is_root { Ok(stream) } else { decode::stream(frame, from, stream.dim(), operation.memory()) }
}

/// Spreads the root's message; returns it opened, with the rank it came from.
pub(crate) async fn down<T: Transport>(
    operation: &InFlight<T>,
    root: usize,
    own: Bytes,
) -> Result<(usize, wire::Frame), Error> {
    let (rank, ranks) = (operation.rank(), operation.world_size());
    let relative = before(rank, root, ranks);
    let (from, frame, message) = match tree::parent(relative) {
        None => (rank, wire::open(own.clone()).map_err(|source| Error::malformed(rank, source))?, own),
        Some(parent) => {
            let from = after(root, parent, ranks);
            let (frame, whole) = operation.recv_whole(from, Lane::Gather).await?;
            (from, frame, whole)
        }
    };
    let sends = tree::children(relative, ranks).rev();
    try_join_all(sends.map(|child| operation.send(after(root, child, ranks), Lane::Gather, message.clone())))
        .await?;
    Ok((from, frame))
}
