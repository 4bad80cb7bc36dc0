//! Ranks that leave, ranks that die, and ranks that are merely slow.

use std::fmt::Debug;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::join_all;
use transport::{AnyTransport, Error, Rank, Tag, Transport};

use super::{KIB, Letters, MIB, on_each_rank, payload, poll_once, ranks, same_bytes, size_of};

/// A rank leaves by dropping its last handle: what it sent is received, then it is lost on every rank,
/// and the others go on.
///
/// Contract: *Dropping the last handle* is an orderly end; *a lost peer* ends later operations too.
pub fn a_rank_that_leaves_is_lost_after_its_messages(world: Vec<AnyTransport>, patience: Duration) {
    let leaver = Rank::from_index(size_of(&world) - 1);
    on_each_but(leaver, world, patience, |world| async move {
        let (me, tag) = (world.rank(), Tag::new(1, 1));
        let letters = |to| Letters { from: leaver, to, tag, limit: 20 * KIB };
        if me == leaver {
            let peers = ranks(&world).filter(|to| *to != leaver);
            let letters = peers.flat_map(|to| (0..40).map(move |index| (to, letters(to).number(index))));
            let sends = letters.map(|(to, letter)| world.send(to, tag, letter));
            assert!(join_all(sends).await.iter().all(Result::is_ok), "sends complete");
            return;
        }
        world.sleep(Duration::from_millis(20)).await;
        for index in 0..40 {
            letters(me).check(index, world.recv(leaver, tag).await);
        }
        expect_lost(leaver, world.recv(leaver, tag).await);
        expect_lost(leaver, world.recv(leaver, Tag::new(9, 9)).await);
        expect_lost(leaver, world.send(leaver, tag, Bytes::new()).await);
        go_on_without(leaver, &world).await;
    });
}

/// What a rank has received before it left was sent: nobody is told that it was lost on the way, however late he asks.
///
/// Contract: *Dropping the last handle* is an orderly end, and *a completed `send`*.
pub fn what_a_leaver_has_received_was_sent(world: Vec<AnyTransport>, patience: Duration) {
    let leaver = Rank::from_index(size_of(&world) - 1);
    on_each_but(leaver, world, patience, |world| async move {
        let (me, tag) = (world.rank(), Tag::new(1, 1));
        let letters = |from| [20, 20 * KIB, 300 * KIB].map(|length| payload(u64::from(from), length));
        let peers: Vec<_> = ranks(&world).filter(|peer| *peer != leaver).collect();
        if me == leaver {
            for from in peers {
                for letter in letters(from.0) {
                    same_bytes(&world.recv(from, tag).await.expect("a letter arrives"), &letter, "a letter");
                }
            }
            return;
        }
        let sends = letters(me.0).map(|letter| world.send(leaver, tag, letter));
        // By now it may have left, and this rank has not looked since.
        std::thread::sleep(Duration::from_millis(50));
        assert!(join_all(sends).await.iter().all(Result::is_ok), "what was received was sent");
    });
}

/// Receives and sends that wait for a rank end when it leaves.
///
/// Contract: *a lost peer* ends every pending operation that needs it.
pub fn operations_that_wait_for_a_leaver_end(world: Vec<AnyTransport>, patience: Duration) {
    operations_end_with(world, patience, drop);
}

/// As [`operations_that_wait_for_a_leaver_end`], with a rank that `kill` ends abruptly, given its only
/// handle. For back ends whose ranks can be killed in a test.
///
/// Contract: *a lost peer*, and that messages that arrived whole before the loss can still be received.
pub fn a_killed_rank_is_lost<T: Transport>(world: Vec<T>, patience: Duration, kill: impl Fn(T) + Sync) {
    operations_end_with(world, patience, kill);
}

fn operations_end_with<T: Transport>(world: Vec<T>, patience: Duration, end: impl Fn(T) + Sync) {
    let (victim, end) = (Rank::from_index(size_of(&world) / 2), &end);
    let (last_words, probe, ready) = (Tag::new(1, 100), Tag::new(1, 101), Tag::new(0, 1));
    on_each_but(victim, world, patience, move |world| async move {
        let words = payload(7, 10 * KIB);
        let peers = || ranks(&world).filter(|peer| *peer != victim);
        if world.rank() == victim {
            let signals: Vec<_> = peers().map(|peer| world.recv(peer, ready)).collect();
            let mut sends: Vec<_> =
                peers().map(|peer| Box::pin(world.send(peer, last_words, words.clone()))).collect();
            assert!(join_all(signals).await.iter().all(Result::is_ok), "signals arrive");
            for (peer, send) in peers().zip(&mut sends) {
                let completed = poll_once(send).is_ready();
                let told = world.send(peer, probe, Bytes::from(vec![u8::from(completed)]));
                told.await.expect("a send to a posted receive completes");
            }
            end(Arc::into_inner(world).expect("this is the only handle"));
            return;
        }
        let completed = world.recv(victim, probe);
        let receives: Vec<_> = (0..10).map(|number| world.recv(victim, Tag::new(1, number))).collect();
        // More than a back end accepts without a receive: some of these wait.
        let large = payload(0, MIB);
        let sends: Vec<_> = (0..256).map(|_| world.send(victim, Tag::new(1, 0), large.clone())).collect();
        world.send(victim, ready, Bytes::new()).await.expect("a signal passes the backlog");
        let completed = completed.await.expect("a message arrives") == [1].as_slice();

        for receive in receives {
            expect_lost(victim, receive.await);
        }
        let failed: Vec<_> = join_all(sends).await.into_iter().filter(Result::is_err).collect();
        assert!(!failed.is_empty(), "all sends completed, though nobody received");
        failed.into_iter().for_each(|outcome| expect_lost(victim, outcome));

        match world.recv(victim, last_words).await {
            Ok(received) => same_bytes(&received, &words, "what was sent before"),
            lost => {
                assert!(!completed, "a message whose send completed is gone");
                expect_lost(victim, lost);
            }
        }
        expect_lost(victim, world.recv(victim, last_words).await);
        expect_lost(victim, world.send(victim, last_words, Bytes::new()).await);
        go_on_without(victim, &world).await;
    });
}

/// A rank that receives late and in small portions, while tens of MiB are on their way to it, is not lost.
///
/// Contract: *treat a large transfer in progress as a sign of life*.
pub fn a_slow_reader_is_not_lost(world: Vec<AnyTransport>, patience: Duration) {
    on_each_rank(world, patience, |world| async move {
        let (tag, first, last) = (Tag::new(0, 1), Rank(0), Rank::from_index(world.world_size() - 1));
        let pieces: Vec<_> = (0..6).map(|piece| payload(piece, 12 * MIB)).collect();
        if world.rank() == first {
            let sends = pieces.iter().map(|piece| world.send(last, tag, piece.clone()));
            assert!(join_all(sends).await.iter().all(Result::is_ok), "sends complete");
        }
        if world.rank() == last {
            world.sleep(Duration::from_millis(1_000)).await;
            for piece in &pieces {
                world.sleep(Duration::from_millis(100)).await;
                let received = world.recv(first, tag).await.expect("a slow rank is alive");
                same_bytes(&received, piece, "a piece");
            }
        }
    });
}

/// Runs one rank's part of a law on each. The `leaver` is gone when its part is over, the others stay in
/// the world until the last has ended.
#[track_caller]
fn on_each_but<T, F, Fut>(leaver: Rank, world: Vec<T>, patience: Duration, part: F)
where
    T: Transport,
    F: Fn(Arc<T>) -> Fut + Sync,
    Fut: Future<Output = ()>,
{
    let world: Vec<_> = world.into_iter().map(Arc::new).collect();
    let _staying: Vec<_> = world.iter().filter(|rank| rank.rank() != leaver).cloned().collect();
    crate::run_world_within(patience, world, part);
}

#[track_caller]
fn expect_lost<R: Debug>(peer: Rank, outcome: Result<R, Error>) {
    let lost = matches!(&outcome, Err(Error::PeerLost { peer: named, .. }) if *named == peer);
    assert!(lost, "rank {peer} is lost, but the operation ends with {:?}", outcome.map(drop));
}

async fn go_on_without<T: Transport>(lost: Rank, world: &T) {
    let (tag, words) = (Tag::new(0, 2), payload(3, 50 * KIB));
    let survivors: Vec<_> = ranks(world).filter(|rank| *rank != lost).collect();
    let receives: Vec<_> = survivors.iter().map(|from| world.recv(*from, tag)).collect();
    let sends: Vec<_> = survivors.iter().map(|to| world.send(*to, tag, words.clone())).collect();
    assert!(join_all(sends).await.iter().all(Result::is_ok), "the others still send");
    let received = join_all(receives).await;
    assert!(received.into_iter().all(|received| received.is_ok_and(|bytes| bytes == words)), "they receive");
}
