//! A real rank against a peer that breaks the rules, breaks down, or merely behaves oddly.

#![allow(clippy::unwrap_used, reason = "a test panics when it fails")]

mod common;

use std::future::Future;
use std::io::Read;
use std::pin::pin;
use std::task::{Context, Waker};
use std::thread;
use std::time::{Duration, Instant};

use bytes::Bytes;
use common::{ABORT, ANNOUNCE, CREDIT, EAGER, FETCH, GOODBYE, HEARTBEAT, PART, header, puppet};
use proptest::prelude::*;
use transport::{Error, ErrorKind, Rank, Scope, Tag, Transport, block_on};
use transport_tcp::{Options, TcpTransport};

const PEER: Rank = Rank(1);
const TAG: Tag = Tag::new(3, 4);

fn recv(world: &TcpTransport) -> Result<Bytes, Error> {
    block_on(world.recv(PEER, TAG))
}

fn is_pending(future: impl Future) -> bool {
    pin!(future).poll(&mut Context::from_waker(Waker::noop())).is_pending()
}

fn eager(payload: &[u8]) -> Vec<u8> {
    [&header(EAGER, 0, TAG, payload.len() as u64, 0), payload].concat()
}

#[test]
fn broken_rules_end_the_connection_and_name_the_peer() {
    let small = Options { eager_window: 1000, max_message: 5000, max_waiting: 2, ..Options::default() };
    let announce = |id| header(ANNOUNCE, 0, TAG, 100, id);
    let cases: [(&str, Vec<u8>); 12] = [
        ("unknown kind 0", vec![0; 32]),
        ("unknown kind 1397311572", b"THIS is not a frame of any kind.".to_vec()),
        ("2000 bytes unasked", header(EAGER, 0, TAG, 2000, 0)),
        ("18446744073709551615 bytes unasked", header(EAGER, 0, TAG, u64::MAX, 0)),
        ("6000 bytes, the limit is 5000", header(ANNOUNCE, 0, TAG, 6000, 0)),
        ("announced message 1 where 0 comes next", announce(1)),
        ("announced more than 2 messages", [announce(0), announce(1), announce(2)].concat()),
        ("part of message 0, which was not asked for", header(PART, 0, TAG, 10, 0)),
        ("asked for message 0, which was never announced", header(FETCH, 0, TAG, 0, 0)),
        ("gave back 5 bytes", header(CREDIT, 5, TAG, 0, 0)),
        ("Heartbeat with 1 bytes", header(HEARTBEAT, 0, TAG, 1, 0)),
        ("there is no rank 9", [header(ABORT, 0, Tag::new(1, 9), 3, 0), b"why".to_vec()].concat()),
    ];
    for (says, bytes) in cases {
        let (world, mut peer) = puppet(&small);
        let pending = world.recv(PEER, TAG);
        peer.say(&eager(b"before"));
        peer.say(&bytes);
        assert_eq!(block_on(pending).unwrap(), "before");
        for _ in 0..2 {
            let error = recv(&world).unwrap_err();
            assert!(error.to_string().contains("rank 1 broke the protocol"), "{error}");
            assert!(error.to_string().contains(says), "{error}");
        }
        let error = block_on(world.send(PEER, TAG, Bytes::new())).unwrap_err();
        assert_eq!((error.kind(), error.peer()), (ErrorKind::Protocol, Some(PEER)));
        block_on(world.send(Rank(0), TAG, Bytes::new())).unwrap();
    }
}

#[test]
fn a_reset_in_the_middle_of_a_message_loses_the_peer_but_not_what_came_before() {
    let (world, mut peer) = puppet(&Options::default());
    let pending: Vec<_> = (0..2).map(|_| world.recv(PEER, TAG)).collect();
    peer.say(&eager(b"whole"));
    peer.say(&header(EAGER, 0, TAG, 1000, 0));
    peer.say(&[7; 500]);
    let mut pending = pending.into_iter();
    assert_eq!(block_on(pending.next().unwrap()).unwrap(), "whole");
    peer.say(&[7; 100]);
    socket2::SockRef::from(&peer.stream).set_linger(Some(Duration::ZERO)).unwrap();
    drop(peer);
    let begun = Instant::now();
    for outcome in [block_on(pending.next().unwrap()), recv(&world)] {
        assert!(matches!(outcome, Err(Error::PeerLost { peer: PEER, source: Some(_), .. })), "{outcome:?}");
    }
    assert_eq!(block_on(world.send(PEER, TAG, Bytes::new())).unwrap_err().kind(), ErrorKind::PeerLost);
    assert!(begun.elapsed() < Duration::from_secs(2));
}

#[test]
fn a_connection_that_closes_without_a_goodbye_is_a_dead_peer() {
    let (world, mut peer) = puppet(&Options::default());
    peer.say(&eager(b"last words"));
    drop(peer);
    assert_eq!(recv(&world).unwrap(), "last words");
    assert!(recv(&world).unwrap_err().to_string().contains("without a goodbye"));
}

#[test]
fn a_goodbye_is_told_from_a_death_and_answered() {
    let (world, mut peer) = puppet(&Options::default());
    peer.say(&eager(b"last words"));
    peer.say(&header(GOODBYE, 0, TAG, 0, 0));
    assert_eq!(recv(&world).unwrap(), "last words");
    assert_eq!(recv(&world).unwrap_err().to_string(), "rank 1 is lost: it has left the world");
    // Nothing else is sent, and this side closes too.
    let mut rest = Vec::new();
    peer.stream.read_to_end(&mut rest).unwrap();
    assert!(rest.len() % 32 == 0 && rest.len() <= 64, "at most credit and a heartbeat");
}

#[test]
fn bytes_may_come_one_by_one() {
    let (world, mut peer) = puppet(&Options::default());
    for byte in [eager(b"slow"), eager(b""), eager(b"and steady")].concat() {
        peer.say(&[byte]);
    }
    for word in ["slow", "", "and steady"] {
        assert_eq!(recv(&world).unwrap(), word);
    }
}

#[test]
fn what_does_not_fit_the_window_is_announced_and_sent_when_asked_for() {
    let (world, mut peer) = puppet(&Options::default());
    let large: Bytes = (0..(2 << 20) + 5).map(|byte: u32| byte as u8).collect();
    let sent = world.send(PEER, TAG, large.clone());
    assert_eq!(peer.hear(), (ANNOUNCE, 0, TAG, large.len() as u64, 0));
    // What fits still goes at once, though it was sent later.
    block_on(world.send(PEER, TAG, Bytes::from_static(b"small"))).unwrap();
    assert_eq!(peer.hear(), (EAGER, 0, TAG, 5, 0));
    peer.stream.read_exact(&mut [0; 5]).unwrap();
    let mut sent = Box::pin(sent);
    assert!(is_pending(sent.as_mut()));

    peer.say(&header(FETCH, 0, TAG, 0, 0));
    let mut received = Vec::new();
    while received.len() < large.len() {
        let (kind, _, tag, length, id) = peer.hear();
        assert_eq!((kind, tag, id), (PART, TAG, 0));
        assert!(length <= 1 << 20);
        let begun = received.len();
        received.resize(begun + length as usize, 0);
        peer.stream.read_exact(&mut received[begun..]).unwrap();
    }
    assert!(received == large);
    block_on(sent).unwrap();
}

#[test]
fn consumed_room_is_given_back() {
    let options = Options { eager_window: 1000, ..Options::default() };
    let (world, mut peer) = puppet(&options);
    for _ in 0..20 {
        // Three quarters of the window, again and again: only possible if it comes back.
        peer.say(&eager(&[1; 700]));
        assert_eq!(recv(&world).unwrap().len(), 700);
        let (kind, credit, ..) = peer.hear();
        assert_eq!((kind, credit), (CREDIT, 764));
    }
}

#[test]
fn a_peer_that_does_not_read_holds_up_nothing_but_its_own_messages() {
    let (world, peer) =
        puppet(&Options { failure_timeout: Duration::from_millis(1500), ..Options::default() });
    // Fills the window and the socket, as far as it goes.
    let sends: Vec<_> = (0..200).map(|_| world.send(PEER, TAG, vec![0; 100_000].into())).collect();
    let begun = Instant::now();
    world.abort(Scope::Context(TAG.context), "enough");
    assert!(begun.elapsed() < Duration::from_secs(1));
    let failed = sends.into_iter().map(block_on).filter_map(Result::err).inspect(|error| {
        assert_eq!(error.to_string(), "rank 0 aborted context 3: enough");
    });
    assert!(failed.count() > 100);
    block_on(world.send(Rank(0), Tag::new(5, 5), Bytes::new())).unwrap();
    // A peer that is silent for longer than the bound is lost.
    let error = block_on(world.recv(PEER, Tag::new(5, 5))).unwrap_err();
    assert_eq!(error.to_string(), "rank 1 is lost: nothing was heard from it for 1.5 s");
    drop(peer);
}

#[test]
fn an_abort_overtakes_a_long_message_on_its_way() {
    let (world, mut peer) = puppet(&Options::default());
    let parts = 256;
    let sent = world.send(PEER, TAG, vec![7; parts << 20].into());
    assert_eq!(peer.hear().0, ANNOUNCE);
    peer.say(&header(FETCH, 0, TAG, 0, 0));
    // Nobody reads until the socket is full and more is queued behind it.
    thread::sleep(Duration::from_millis(200));
    block_on(world.send(PEER, TAG, Bytes::new())).unwrap();
    world.abort(Scope::Context(9), "stop");
    let mut before = Vec::new();
    loop {
        let (kind, _, _, length, _) = peer.hear();
        peer.stream.read_exact(&mut vec![0; length as usize]).unwrap();
        if kind == ABORT {
            break;
        }
        before.push(kind);
    }
    assert!(before.iter().all(|kind| *kind == PART), "the message that was queued earlier comes later");
    assert!(before.len() < parts / 2, "{} parts came before the abort", before.len());
    assert!(is_pending(pin!(sent)));
}

#[test]
fn heartbeats_come_at_a_quarter_of_the_shorter_bound() {
    let options = Options { failure_timeout: Duration::from_millis(400), ..Options::default() };
    let (world, mut peer) = puppet(&options);
    let begun = Instant::now();
    for _ in 0..6 {
        assert_eq!(peer.hear().0, HEARTBEAT);
        peer.say(&header(HEARTBEAT, 0, TAG, 0, 0));
    }
    assert!(begun.elapsed() >= Duration::from_millis(450), "not more often than needed");
    assert!(is_pending(world.recv(PEER, TAG)), "a peer that is only idle is not lost");
}

#[test]
fn an_abort_is_passed_on_with_its_origin() {
    let (world, mut peer) = puppet(&Options { eager_window: 1000, ..Options::default() });
    let pending = world.recv(PEER, TAG);
    peer.say(&[&header(ABORT, 0, Tag::new(3, 1), 7, 0), &b"because"[..]].concat());
    let error = block_on(pending).unwrap_err();
    assert_eq!(error.to_string(), "rank 1 aborted context 3: because");
    assert_eq!(peer.hear(), (ABORT, 0, Tag::new(3, 1), 7, 0));
    peer.stream.read_exact(&mut [0; 7]).unwrap();
    // Frames of the aborted context are dropped, their room is given back, other contexts go on.
    for _ in 0..20 {
        peer.say(&eager(&[1; 700]));
        assert_eq!(peer.hear().1, 764);
    }
    let other = Tag::new(9, 9);
    peer.say(&[&header(EAGER, 0, other, 2, 0), &b"ok"[..]].concat());
    assert_eq!(block_on(world.recv(PEER, other)).unwrap(), "ok");
}

#[test]
fn dropping_the_last_handle_delivers_what_was_sent_and_says_goodbye() {
    let (world, mut peer) = puppet(&Options::default());
    let clone = world.clone();
    block_on(world.send(PEER, TAG, Bytes::from_static(b"bye"))).unwrap();
    let large = vec![5; 3 << 20];
    drop(world.send(PEER, TAG, large.clone().into()));
    let (pending, sleep) = (world.recv(PEER, TAG), world.sleep(Duration::from_secs(1000)));
    drop(world);
    assert_eq!(peer.hear(), (EAGER, 0, TAG, 3, 0));
    peer.stream.read_exact(&mut [0; 3]).unwrap();
    assert_eq!(peer.hear(), (ANNOUNCE, 0, TAG, 3 << 20, 0));

    let dropped = thread::spawn(move || drop(clone));
    // It waits a moment for messages to be asked for, though nobody waits for them.
    thread::sleep(Duration::from_millis(100));
    peer.say(&header(FETCH, 0, TAG, 0, 0));
    for _ in 0..3 {
        assert_eq!(peer.hear().0, PART);
        peer.stream.read_exact(&mut vec![0; 1 << 20]).unwrap();
    }
    assert_eq!(peer.hear().0, GOODBYE);
    assert_eq!(peer.stream.read(&mut [0]).unwrap(), 0);
    drop(peer);
    dropped.join().unwrap();
    assert!(block_on(pending).unwrap_err().to_string().contains("dropped on this rank"));
    block_on(sleep);
}

/// Frames that are well-formed one by one, in senseless order.
fn frames() -> impl Strategy<Value = Vec<u8>> {
    let frame = (1..=7_u32, 0..3_u32, 0..3_u32, 0..40_u64, 0..4_u64);
    let frame = frame.prop_map(|(kind, credit, context, length, id)| {
        let carried = if matches!(kind, EAGER | PART | ABORT) { length as usize } else { 0 };
        let length = if matches!(kind, EAGER | PART | ABORT | ANNOUNCE) { length } else { 0 };
        [header(kind, credit / 2, Tag::new(context, 0), length, id), vec![b'x'; carried]].concat()
    });
    prop::collection::vec(frame, 0..12).prop_map(|frames| frames.concat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn no_sequence_of_frames_breaks_the_receiver(frames in frames()) {
        let (world, mut peer) = puppet(&Options::default());
        let pending: Vec<_> = (0..6).map(|number| world.recv(PEER, Tag::new(number % 3, 0))).collect();
        // The other side may have closed already.
        let _ = std::io::Write::write_all(&mut peer.stream, &frames);
        drop(peer);
        // Every receive ends, and the I/O thread is alive: it still wakes sleepers.
        for outcome in pending.into_iter().map(block_on) {
            if let Err(error) = outcome {
                prop_assert!(matches!(error.kind(), ErrorKind::PeerLost | ErrorKind::Protocol | ErrorKind::Aborted));
            }
        }
        block_on(world.sleep(Duration::from_millis(1)));
    }
}
