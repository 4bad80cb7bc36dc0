//! Communicators of some of the ranks, as MPI_Comm_split makes them.
//!
//! Steps: Bruck's allgather of every rank's color, key and a context that nobody else has; each rank finds its group, which
//! takes the context of its first member. Cost: `ceil(log2 P) alpha + 24 (P-1) beta`.

use std::future::Future;
use std::sync::Arc;

use bytes::{Buf, Bytes};
use transport::Transport;

use crate::allgather;
use crate::call::{Call, Operation};
use crate::communicator::{Communicator, Shared};
use crate::error::Error;
use crate::group::{Group, fresh_context};
use crate::in_flight::{Check, InFlight};

impl<T: Transport> Communicator<T> {
    /// A communicator of the ranks that give the same `color`, numbered by their `key`s and, where these are equal, by
    /// their ranks here; none for a rank that gives no color. Every rank of this communicator calls it.
    ///
    /// Its operations run beside those of this communicator and of other ones: it has a context of its own, which no other
    /// communicator over the same transport ever had. It has the same deadline, and counts its own
    /// [`traffic`](Self::traffic). A failed operation spoils it on its ranks, and no other communicator. Errors name the
    /// ranks of the transport, whatever the ranks are called here. Cost: as [`allgather`](Self::allgather) of 16 bytes.
    ///
    /// ```
    /// use collectives::Communicator;
    ///
    /// let rows = testkit::run_world(testkit::local_world(6), |transport| async move {
    ///     let world = Communicator::new(transport);
    ///     let rank = world.rank().0;
    ///     let row = world.split(Some(rank / 3), rank).await?.ok_or("no row")?;
    ///     Ok::<_, Box<dyn std::error::Error + Send + Sync>>((row.rank().0, row.world_size()))
    /// });
    /// let rows: Vec<_> = rows.into_iter().map(Result::unwrap).collect();
    /// assert_eq!(rows, [(0, 3), (1, 3), (2, 3), (0, 3), (1, 3), (2, 3)]);
    /// ```
    ///
    /// # Errors
    /// [`Error::InvalidArgument`], on every rank of a group, if the first one has led `2^31 / P` groups already; and what
    /// every operation can meet.
    pub fn split(
        &self,
        color: Option<u32>,
        key: u32,
    ) -> impl Future<Output = Result<Option<Self>, Error>> + Send {
        let begun = self.begin(Call::plain(Operation::Split, 0));
        let parent = self.clone();
        async move {
            let operation = begun?;
            let context = color.and_then(|_| draw_context(parent.shared()));
            let result = operation.drive(Check::Neighbour, gather(&operation, color, key, context)).await;
            let mut members = operation.finish(result)?;
            members.retain(|member| color.is_some() && member.color == color);
            members.sort_by_key(|member| (member.key, member.rank));
            let in_world = |member: &Member| parent.shared().group.in_world(member.rank);
            let group = Group::of(members.iter().map(in_world).collect(), parent.transport().rank());
            group.map(|group| derive(&parent, &members, group)).transpose()
        }
    }
}

/// A context for a communicator that this rank may be the first of.
pub(crate) fn draw_context<T: Transport>(parent: &Shared<T>) -> Option<u32> {
    fresh_context(parent.transport.rank(), parent.transport.world_size())
}

/// A communicator of these members of the parent, with the context of the first one.
pub(crate) fn derive<T: Transport>(
    parent: &Communicator<T>,
    members: &[Member],
    group: Group,
) -> Result<Communicator<T>, Error> {
    let context = members.first().and_then(|leader| leader.context).ok_or_else(|| {
        let leader = group.in_world(0);
        Error::invalid(format!("rank {leader} has no context left for another communicator"))
    })?;
    let shared = parent.shared();
    let options = shared.options.clone().context(context);
    let communicator = Communicator::of_group(Arc::clone(&shared.transport), options, group);
    Ok(communicator.with_reduction(parent.reduction()))
}

/// What a rank of the parent asks for.
pub(crate) struct Member {
    rank: usize,
    pub(crate) color: Option<u32>,
    key: u32,
    context: Option<u32>,
}

pub(crate) async fn gather<T: Transport>(
    operation: &InFlight<T>,
    color: Option<u32>,
    key: u32,
    context: Option<u32>,
) -> Result<Vec<Member>, Error> {
    // No derived context is 0. A color can be any number, so a flag says whether there is one.
    let flag = u32::from(color.is_some());
    let words = [flag, color.unwrap_or(0), key, context.unwrap_or(0)];
    let block = words.map(u32::to_le_bytes).concat();
    let blocks = allgather::bruck(operation, Bytes::from(block)).await?;
    let member = |(rank, mut block): (usize, Bytes)| {
        if block.len() != 16 {
            return Err(Error::malformed(rank, format!("{} bytes where 16 belong", block.len())));
        }
        let [flag, color, key, context] = std::array::from_fn(|_| block.get_u32_le());
        Ok(Member {
            rank,
            color: (flag != 0).then_some(color),
            key,
            context: (context != 0).then_some(context),
        })
    };
    blocks.into_iter().enumerate().map(member).collect()
}
