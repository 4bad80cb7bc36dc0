//! Back-pressure: bounded, but never between tags and never between ranks that exchange.

use std::pin::pin;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::{Either, join_all, select};
use transport::{AnyTransport, Rank, Tag, Transport};

use super::{
    KIB, Letters, MIB, left, meet_all, meet_neighbours, on_each_rank, payload, ranks, right, same_bytes,
    size_of,
};

/// Every rank sends up to 64 MiB to every rank, and awaits its sends before its receives.
///
/// Contract: *Drive sends and receives together*: both are posted before either is awaited, which is
/// enough whatever the size.
pub fn large_sends_before_receives_do_not_deadlock(world: Vec<AnyTransport>, patience: Duration) {
    let length = match size_of(&world) {
        0..=2 => 64 * MIB,
        3 | 4 => 8 * MIB,
        _ => 2 * MIB,
    };
    on_each_rank(world, patience, move |world| async move {
        let tag = Tag::new(0, 1);
        let mine = payload(u64::from(world.rank().0), length);
        let sends: Vec<_> = ranks(&world).map(|to| world.send(to, tag, mine.clone())).collect();
        let receives: Vec<_> = ranks(&world).map(|from| world.recv(from, tag)).collect();
        for send in sends {
            send.await.expect("a send to a posted receive completes");
        }
        for (from, receive) in ranks(&world).zip(receives) {
            let received = receive.await.expect("a message arrives");
            let sent = payload(u64::from(from.0), length);
            same_bytes(&received, &sent, &format!("the message of rank {from}"));
        }
    });
}

/// A receive that is posted completes the send of a large message, although nobody polls it.
///
/// Contract: *Posted at the call*, with *drive sends and receives together*.
pub fn a_posted_receive_completes_its_send(world: Vec<AnyTransport>, patience: Duration) {
    let length = 64 * MIB / size_of(&world).next_power_of_two();
    on_each_rank(world, patience, move |world| async move {
        let tag = Tag::new(0, 1);
        let mine = payload(u64::from(world.rank().0), length);
        let receive = world.recv(left(&world), tag);
        world.send(right(&world), tag, mine).await.expect("a send to a posted receive completes");
        // The right neighbour has not polled its receive yet: it waits here.
        meet_all(&world, Tag::new(0, 2)).await;
        let sent = payload(u64::from(left(&world).0), length);
        same_bytes(&receive.await.expect("a message arrives"), &sent, "the message");
    });
}

/// Thousands of messages and tens of MiB that nobody receives under some tags stop neither a small nor a
/// large message under another; afterwards they are all received, in order.
///
/// Contract: *Matching*: different tags never block each other.
pub fn tags_do_not_block_each_other(world: Vec<AnyTransport>, patience: Duration) {
    let size = size_of(&world);
    on_each_rank(world, patience, move |world| async move {
        let (me, from, to) = (world.rank(), left(&world), right(&world));
        let (many, large, through) = (Tag::new(0, 1), Tag::new(0, 2), Tag::new(0, 3));
        let (count, length) = (4_000 / size, 64 * MIB / size.next_power_of_two());
        let small = Letters { from: me, to, tag: many, limit: 200 };
        let mut backlog: Vec<_> = (0..count).map(|index| world.send(to, many, small.number(index))).collect();
        let pieces: Vec<_> = (0..8).map(|piece| payload(piece, length / 16)).collect();
        backlog.extend(pieces.iter().map(|piece| world.send(to, large, piece.clone())));
        let huge = payload(8, length / 2);
        backlog.push(world.send(to, large, huge.clone()));
        let small = Letters { from, to: me, ..small };

        for length in [1, 2 * MIB] {
            let received = world.recv(from, through);
            let passing = payload(9, length);
            world.send(to, through, passing.clone()).await.expect("a send to a posted receive completes");
            let received = received.await.expect("the message comes through");
            same_bytes(&received, &passing, "the message that comes through");
        }
        meet_neighbours(&world, Tag::new(0, 4)).await;
        for piece in pieces.iter().chain([&huge]) {
            let received = world.recv(from, large).await.expect("the backlog arrives");
            same_bytes(&received, piece, "a large message of the backlog");
        }
        for index in 0..count {
            small.check(index, world.recv(from, many).await);
        }
        assert!(join_all(backlog).await.iter().all(Result::is_ok), "sends complete");
    });
}

/// With no receive posted, sends of 1 MiB stop completing before 256 MiB; then all arrive, in order.
///
/// Contract: *bound what arrives unexpected by back-pressure*.
pub fn unexpected_messages_are_bounded(world: Vec<AnyTransport>, patience: Duration) {
    fill(world, patience, 256, |index| {
        // One allocation, and still no two messages alike.
        static PAYLOAD: std::sync::LazyLock<Bytes> = std::sync::LazyLock::new(|| payload(0, MIB + KIB));
        PAYLOAD.slice(index % KIB..index % KIB + MIB)
    });
}

/// With no receive posted, sends of nothing stop completing before there are two million of them.
///
/// Contract: *bound what arrives unexpected by back-pressure*: a message is not free because it is empty.
pub fn unexpected_empty_messages_are_bounded(world: Vec<AnyTransport>, patience: Duration) {
    fill(world, patience, 2_000_000, |_| Bytes::new());
}

/// Rank 0 sends to the last rank until a send waits, which must be before the `limit`-th.
fn fill<T: Transport>(
    world: Vec<T>,
    patience: Duration,
    limit: usize,
    message: impl Fn(usize) -> Bytes + Sync,
) {
    let message = &message;
    on_each_rank(world, patience, move |world| async move {
        let (tag, told) = (Tag::new(0, 1), Tag::new(0, 2));
        let last = Rank::from_index(world.world_size() - 1);
        let told_by_first = (world.rank() == last).then(|| world.recv(Rank(0), told));
        let mut waiting = None;
        if world.rank() == Rank(0) {
            let mut accepted = 0;
            while waiting.is_none() {
                assert!(accepted < limit, "{limit} sends that nobody receives completed");
                let send = Box::pin(world.send(last, tag, message(accepted)));
                match select(send, pin!(world.sleep(Duration::from_millis(300)))).await {
                    Either::Left((sent, _)) => sent.expect("a send completes"),
                    Either::Right(((), send)) => waiting = Some(send),
                }
                accepted += 1;
            }
            let count = Bytes::copy_from_slice(&accepted.to_le_bytes());
            world.send(last, told, count).await.expect("the count is sent under another tag");
        }
        if let Some(told_by_first) = told_by_first {
            let count = told_by_first.await.expect("the count arrives");
            let count = usize::from_le_bytes(count.as_ref().try_into().expect("the count is a number"));
            let mut index = 0;
            while index < count {
                let batch: Vec<_> =
                    (index..count.min(index + 256)).map(|_| world.recv(Rank(0), tag)).collect();
                for receive in batch {
                    let received = receive.await.expect("a message arrives");
                    same_bytes(&received, &message(index), &format!("message {index}"));
                    index += 1;
                }
            }
        }
        if let Some(waiting) = waiting {
            waiting.await.expect("the send that waited completes");
        }
    });
}
