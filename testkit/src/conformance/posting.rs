//! Posted at the call, and what a dropped future leaves behind.

use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;

use futures_util::future::join_all;
use futures_util::stream::{FuturesUnordered, StreamExt};
use transport::{AnyTransport, Tag, Transport};

use super::{
    KIB, Letters, MIB, left, meet_neighbours, on_each_rank, payload, poll_once, right, same_bytes,
    stays_pending,
};

/// A beat in which a message may arrive. Too short a beat cannot fail a right back end.
const BEAT: Duration = Duration::from_millis(10);

/// Receives take messages in the order of their calls, not of their polls.
///
/// Contract: *Posted at the call*.
pub fn receives_are_posted_at_the_call(world: Vec<AnyTransport>, patience: Duration) {
    on_each_rank(world, patience, |world| async move {
        let (me, from, to) = (world.rank(), left(&world), right(&world));
        let tag = Tag::new(1, 0);
        let first = world.recv(from, tag);
        let second = world.recv(from, tag);
        let third = world.recv(from, tag);
        meet_neighbours(&world, Tag::new(0, 1)).await;
        let letters = Letters { from: me, to, tag, limit: 10 * KIB };
        for index in 0..3 {
            world.send(to, tag, letters.number(index)).await.expect("a send to a posted receive completes");
        }
        let letters = Letters { from, to: me, ..letters };
        letters.check(2, third.await);
        letters.check(0, first.await);
        letters.check(1, second.await);
    });
}

/// Messages travel while their sends are kept and never polled.
///
/// Contract: *Posted at the call*.
pub fn sends_are_posted_at_the_call(world: Vec<AnyTransport>, patience: Duration) {
    on_each_rank(world, patience, |world| async move {
        let (me, from, to) = (world.rank(), left(&world), right(&world));
        let letters = Letters { from: me, to, tag: Tag::new(1, 0), limit: 300 * KIB };
        let sends: Vec<_> = (0..10).map(|index| world.send(to, letters.tag, letters.number(index))).collect();
        let letters = Letters { from, to: me, ..letters };
        for index in 0..10 {
            letters.check(index, world.recv(from, letters.tag).await);
        }
        meet_neighbours(&world, Tag::new(0, 1)).await;
        drop(sends);
    });
}

/// A receive takes no message if it is dropped: before the message arrives, unpolled or polled; after it
/// arrived; or when it was first in line and others wait behind it.
///
/// Contract: *Dropping a future abandons it*: the message goes to the next `recv` of that sender and tag.
pub fn a_dropped_receive_takes_no_message(world: Vec<AnyTransport>, patience: Duration) {
    on_each_rank(world, patience, |world| async move {
        let (me, from, to) = (world.rank(), left(&world), right(&world));
        for (limit, number) in [(KIB, 0), (3 * MIB, 1)] {
            let tag = Tag::new(1, number);
            let (mine, theirs) = (Letters { from: me, to, tag, limit }, Letters { from, to: me, tag, limit });
            let sync = |step| Tag::new(2 + number, step);

            drop(world.recv(from, tag));
            let mut pending = Box::pin(world.recv(from, tag));
            assert!(poll_once(&mut pending).is_pending(), "nothing was sent yet");
            drop(pending);
            let arrived = [world.recv(from, tag), world.recv(from, tag), world.recv(from, tag)];
            meet_neighbours(&world, sync(0)).await;

            let sends: Vec<_> = (0..8).map(|index| world.send(to, tag, mine.number(index))).collect();
            meet_neighbours(&world, sync(1)).await;
            world.sleep(BEAT).await;
            drop(arrived);
            theirs.check(0, world.recv(from, tag).await);

            let (first, second, third) =
                (world.recv(from, tag), world.recv(from, tag), world.recv(from, tag));
            world.sleep(BEAT).await;
            drop(first);
            theirs.check(1, second.await);
            let mut fourth = Box::pin(world.recv(from, tag));
            let polled = poll_once(&mut fourth);
            drop(third);
            match polled {
                // It was the second in line then, and has moved up if it was not served.
                Poll::Ready(received) => {
                    theirs.check(3, received);
                    theirs.check(2, world.recv(from, tag).await);
                }
                Poll::Pending => {
                    theirs.check(2, fourth.await);
                    theirs.check(3, world.recv(from, tag).await);
                }
            }
            for index in 4..8 {
                theirs.check(index, world.recv(from, tag).await);
            }
            for send in sends {
                send.await.expect("a send completes");
            }
            let more = Box::pin(world.recv(from, tag));
            assert!(stays_pending(&world, more, BEAT).await, "a message came twice");
        }
    });
}

/// A message arrives although its send was dropped, unpolled or polled, small or large, and those around
/// it arrive in order.
///
/// Contract: *Dropping a future abandons it*: a dropped `send` still delivers its message.
pub fn a_dropped_send_still_delivers(world: Vec<AnyTransport>, patience: Duration) {
    on_each_rank(world, patience, |world| async move {
        let (me, from, to) = (world.rank(), left(&world), right(&world));
        for (limit, number) in [(KIB, 0), (12 * MIB / world.world_size(), 1)] {
            let letters = Letters { from: me, to, tag: Tag::new(1, number), limit };
            let mut last = None;
            for index in 0..9 {
                let mut send = Box::pin(world.send(to, letters.tag, letters.number(index)));
                if index % 3 == 1 {
                    let _either_way = poll_once(&mut send);
                }
                if index == 8 {
                    last = Some(send);
                }
            }
            let letters = Letters { from, to: me, ..letters };
            for index in 0..9 {
                letters.check(index, world.recv(from, letters.tag).await);
            }
            if let Some(last) = last {
                last.await.expect("the send that was kept completes");
            }
        }
    });
}

/// Any number of operations at once; the order of awaiting them says nothing.
///
/// Contract: *Posted at the call*: keep any number of futures, await them in any order.
pub fn futures_may_be_awaited_in_any_order(world: Vec<AnyTransport>, patience: Duration) {
    on_each_rank(world, patience, |world| async move {
        let (me, from, to) = (world.rank(), left(&world), right(&world));
        let letters = |from, to, number| Letters { from, to, tag: Tag::new(7, number), limit: 20 * KIB };
        let receives: Vec<_> = (0..64).map(|number| world.recv(from, Tag::new(7, number))).collect();
        let sends: Vec<_> = (0..64)
            .rev()
            .map(|number| world.send(to, Tag::new(7, number), letters(me, to, number).number(0)))
            .collect();
        for (number, receive) in (0..64).zip(receives).rev() {
            letters(from, me, number).check(0, receive.await);
        }
        for send in sends.into_iter().rev() {
            send.await.expect("a send completes");
        }

        let letters = letters(me, to, 64);
        let receives: Vec<_> = (0..32).map(|_| world.recv(from, letters.tag)).collect();
        let sends: Vec<_> = (0..32).map(|index| world.send(to, letters.tag, letters.number(index))).collect();
        let letters = Letters { from, to: me, ..letters };
        for (index, receive) in (0..32).zip(receives).rev() {
            letters.check(index, receive.await);
        }
        assert!(join_all(sends).await.iter().all(Result::is_ok), "sends complete");
    });
}

/// A future that is polled by one task and then by another wakes the other.
///
/// Contract: the futures are futures: the waker of the last poll counts.
pub fn the_last_waker_is_woken(world: Vec<AnyTransport>, patience: Duration) {
    on_each_rank(world, patience, |world| async move {
        let (world, tag, large) = (&world, Tag::new(0, 5), payload(1, MIB));
        let count = (80 / world.world_size()).max(12);
        let mut receive = Box::pin(world.recv(left(world), tag));
        assert!(poll_once(&mut receive).is_pending(), "nothing was sent yet");
        let mut sleep = Box::pin(world.sleep(BEAT));
        let _either_way = poll_once(&mut sleep);
        meet_neighbours(world, Tag::new(0, 6)).await;

        // Each of these is polled only when it is woken itself.
        let mut tasks = FuturesUnordered::<Pin<Box<dyn Future<Output = ()> + Send>>>::new();
        tasks.push(Box::pin(async {
            let received = receive.await.expect("a message arrives");
            same_bytes(&received, &large, "the first message");
            world.sleep(2 * BEAT).await;
            for _ in 1..count {
                let received = world.recv(left(world), tag).await.expect("a message arrives");
                same_bytes(&received, &large, "a message");
            }
        }));
        tasks.push(Box::pin(async {
            sleep.await;
            world.sleep(BEAT).await;
            for _ in 0..count {
                let mut send = Box::pin(world.send(right(world), tag, large.clone()));
                if poll_once(&mut send).is_pending() {
                    send.await.expect("a send completes");
                }
            }
        }));
        while tasks.next().await.is_some() {}
    });
}
