//! What goes where: ranks, order, wholeness.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::{join, join_all};
use transport::{AnyTransport, Error, Rank, Tag, Transport};

use super::{
    KIB, Letters, a_dropped_receive_takes_no_message, left, meet_all, on_each_rank, ranks, right, size_of,
    stays_pending,
};

/// The world is a vector of transports by rank, and all agree on its size.
///
/// Contract: [`rank`](Transport::rank) and [`world_size`](Transport::world_size), which never changes.
pub fn ranks_are_numbered(world: Vec<AnyTransport>, patience: Duration) {
    let size = size_of(&world);
    // The world may be spread over processes.
    let part = world.first().filter(|_| world.len() < size);
    let first = part.map_or(0, |transport| transport.rank().index());
    for (index, transport) in (first..).zip(&world) {
        assert_eq!(transport.rank(), Rank::from_index(index), "transports come in the order of their ranks");
        assert_eq!(transport.world_size(), size, "rank {index} knows the size of the world");
    }
    on_each_rank(world, patience, move |world| async move {
        meet_all(&world, Tag::new(0, 0)).await;
        assert_eq!(world.world_size(), size, "the size never changes");
    });
}

/// All pairs at once, several tags, lengths up to 100 KiB: every message is the next one of its sender
/// and tag, no byte differs, and no message comes twice.
///
/// Contract: *Matching*: in the order of their `send` calls, whole, exactly once.
pub fn messages_arrive_in_order_whole_and_once(world: Vec<AnyTransport>, patience: Duration) {
    on_each_rank(world, patience, |world| async move {
        let tags = [Tag::new(0, 0), Tag::new(0, u32::MAX), Tag::new(u32::MAX, 0)];
        let count = 40 / world.world_size();
        let pairs = || ranks(&world).flat_map(|peer| tags.map(|tag| (peer, tag)));
        let letters = |from, to, tag| Letters { from, to, tag, limit: 100 * KIB };
        let send_all = pairs().map(|(to, tag)| {
            let (world, letters) = (Arc::clone(&world), letters(world.rank(), to, tag));
            async move {
                let sent = (0..count).map(|index| world.send(to, tag, letters.number(index)));
                join_all(sent).await.into_iter().collect::<Result<Vec<()>, _>>().expect("sends complete");
            }
        });
        let receive_all = pairs().map(|(from, tag)| {
            let (world, letters) = (Arc::clone(&world), letters(from, world.rank(), tag));
            async move {
                for index in 0..count {
                    letters.check(index, world.recv(from, tag).await);
                }
            }
        });
        join(join_all(send_all), join_all(receive_all)).await;
        meet_all(&world, Tag::new(0, 1)).await;
        let more = pairs().map(|(from, tag)| Box::pin(world.recv(from, tag)));
        let more = futures_util::future::select_all(more);
        assert!(stays_pending(&world, more, Duration::from_millis(10)).await, "a message came twice");
    });
}

/// Messages of no bytes are counted and keep their places among others.
///
/// Contract: *Matching*: a zero-length message is a message.
pub fn empty_messages_are_messages(world: Vec<AnyTransport>, patience: Duration) {
    on_each_rank(world, patience, |world| async move {
        let tag = Tag::new(3, 3);
        let word = |index: usize| if index % 3 == 1 { Bytes::from(vec![index as u8]) } else { Bytes::new() };
        let sent: Vec<_> = (0..100).map(|index| world.send(right(&world), tag, word(index))).collect();
        for index in 0..100 {
            let received = world.recv(left(&world), tag).await.expect("a message arrives");
            assert_eq!(received, word(index), "message {index}");
        }
        assert!(join_all(sent).await.iter().all(Result::is_ok), "sends complete");
    });
}

/// A rank's messages to itself are messages as all others.
///
/// Contract: *Matching*: a rank may send to itself.
pub fn a_rank_may_send_to_itself(world: Vec<AnyTransport>, patience: Duration) {
    on_each_rank(world, patience, |world| async move {
        let me = world.rank();
        let letters = Letters { from: me, to: me, tag: Tag::new(0, 9), limit: 300 * KIB };
        let sent: Vec<_> = (0..20).map(|index| world.send(me, letters.tag, letters.number(index))).collect();
        for index in 0..20 {
            letters.check(index, world.recv(me, letters.tag).await);
        }
        assert!(join_all(sent).await.iter().all(Result::is_ok), "sends complete");
    });
}

/// Ranks that do not exist are refused by the future, and nothing is broken by asking.
///
/// Contract: [`Error::NoSuchRank`]; by the future, never by a panic.
pub fn a_rank_outside_the_world_is_refused(world: Vec<AnyTransport>, patience: Duration) {
    on_each_rank(world, patience, |world| async move {
        let (tag, size) = (Tag::new(0, 0), world.world_size());
        for stranger in [Rank::from_index(size), Rank(u32::MAX)] {
            let sent = world.send(stranger, tag, Bytes::from_static(b"?")).await;
            let received = world.recv(stranger, tag).await.map(drop);
            for refused in [sent, received] {
                let named = matches!(refused, Err(Error::NoSuchRank { rank, world_size })
                    if rank == stranger && world_size == size);
                assert!(named, "rank {stranger} is outside a world of {size}, but the answer is {refused:?}");
            }
        }
        meet_all(&world, tag).await;
    });
}

/// Three laws again, through the wrapper for back ends chosen at run time.
///
/// Contract: [`AnyTransport`] is a transport.
pub fn any_transport_keeps_the_laws(world: Vec<AnyTransport>, patience: Duration) {
    let world: Vec<_> = world.into_iter().map(AnyTransport::new).collect();
    ranks_are_numbered(world.clone(), patience);
    a_dropped_receive_takes_no_message(world.clone(), patience);
    messages_arrive_in_order_whole_and_once(world, patience);
}
