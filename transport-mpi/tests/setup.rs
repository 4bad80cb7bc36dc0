//! How the transport lives in an MPI program: its threads, its communicators, its own messages, its end.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use std::process::ExitCode;
use std::thread;

use bytes::Bytes;
use common::{in_worlds_of, meet, part, play};
use mpi::Threading;
use mpi::topology::{Color, SimpleCommunicator};
use mpi::traits::{Communicator as _, Destination as _, Source as _};
use transport::{Error, ErrorKind, Rank, Tag, Transport, block_on};
use transport_mpi::{MpiTransport, Options};

const TAG: Tag = Tag::new(3, 7);

fn main() -> ExitCode {
    match part().as_deref() {
        None => in_worlds_of(&[("life", &[1, 4]), ("many", &[2]), ("main thread", &[2]), ("end", &[1, 3])]),
        Some("life") => play(|mpi| {
            sub_communicators_are_worlds_of_their_own(mpi);
            the_programs_messages_are_left_alone(mpi);
            transports_on_one_communicator_do_not_meet(mpi);
        }),
        Some("many") => play(communicators_are_given_back),
        Some("main thread") => only_the_main_thread_can_use_it_where_mpi_says_so(),
        Some(_) => mpi_may_end_first(),
    }
}

/// Everybody sends its rank and `salt` to the right.
fn shift(world: &MpiTransport, salt: u8) {
    let (rank, size) = (world.rank().0, world.world_size() as u32);
    let left = (rank + size - 1) % size;
    let received = world.recv(Rank(left), TAG);
    block_on(world.send(Rank((rank + 1) % size), TAG, Bytes::from(vec![rank as u8, salt]))).unwrap();
    assert_eq!(block_on(received).unwrap(), [left as u8, salt][..]);
}

fn sub_communicators_are_worlds_of_their_own(mpi: &SimpleCommunicator) {
    let parity = mpi.rank() % 2;
    let half = mpi.split_by_color_with_key(Color::with_value(parity), -mpi.rank()).unwrap();
    let (whole, part) = (transport_on(mpi), transport_on(&half));
    assert_eq!(part.world_size(), half.size() as usize);
    assert_eq!(part.rank(), Rank(half.rank() as u32));
    for round in 0..10 {
        shift(&part, round);
        shift(&whole, 100 + round);
    }
    meet(mpi, Some(&whole));
}

fn the_programs_messages_are_left_alone(mpi: &SimpleCommunicator) {
    let (rank, size) = (mpi.rank(), mpi.size());
    let right = mpi.process_at_rank((rank + 1) % size);
    let (word, mut received) = (rank + 1000, 0_i32);
    // Whatever arrives on the program's communicator, and under any tag, is the program's.
    mpi::request::scope(|scope| {
        let receive = mpi.any_process().immediate_receive_into(scope, &mut received);
        let world = transport_on(mpi);
        for round in 0..10 {
            shift(&world, round);
        }
        let send = right.immediate_send_with_tag(scope, &word, 1);
        receive.wait();
        send.wait();
        meet(mpi, Some(&world));
    });
    assert_eq!(received, (rank + size - 1) % size + 1000);
}

fn transports_on_one_communicator_do_not_meet(mpi: &SimpleCommunicator) {
    let (one, other) = (transport_on(mpi), transport_on(mpi));
    let (rank, size) = (one.rank().0, one.world_size() as u32);
    let (left, right) = (Rank((rank + size - 1) % size), Rank((rank + 1) % size));
    block_on(one.send(right, TAG, Bytes::from_static(b"one"))).unwrap();
    block_on(other.send(right, TAG, Bytes::from_static(b"other"))).unwrap();
    assert_eq!(block_on(other.recv(left, TAG)).unwrap(), "other");
    assert_eq!(block_on(one.recv(left, TAG)).unwrap(), "one");
    meet(mpi, Some(&one));
}

/// An MPI has only so many: MPICH 2048.
fn communicators_are_given_back(mpi: &SimpleCommunicator) {
    for round in 0..2500_u32 {
        let world = transport_on(mpi);
        if round.is_multiple_of(100) {
            shift(&world, 0);
        }
    }
}

fn only_the_main_thread_can_use_it_where_mpi_says_so() -> ExitCode {
    let (universe, level) = mpi::initialize_with_threading(Threading::Funneled).unwrap();
    let world = transport_on(&universe.world());
    if level == Threading::Funneled {
        let elsewhere = thread::scope(|scope| {
            let use_it = || {
                let (send, recv) = (world.send(Rank(0), TAG, Bytes::new()), world.recv(Rank(0), TAG));
                (block_on(send).unwrap_err(), block_on(recv).unwrap_err())
            };
            scope.spawn(use_it).join().unwrap()
        });
        for error in [elsewhere.0, elsewhere.1] {
            assert_eq!(error.kind(), ErrorKind::Unsupported);
            assert!(error.to_string().contains("MPI_THREAD_SERIALIZED"), "{error}");
        }
    }
    shift(&world, 1);
    meet(&universe.world(), Some(&world));
    ExitCode::SUCCESS
}

fn mpi_may_end_first() -> ExitCode {
    let universe = mpi::initialize().unwrap();
    let world = transport_on(&universe.world());
    shift(&world, 1);
    let pending = world.recv(world.rank(), TAG);
    let elsewhere = world.recv(Rank(0), Tag::new(9, 9));
    drop(universe);
    let right = Rank((world.rank().0 + 1) % world.world_size() as u32);
    for error in [
        block_on(pending).unwrap_err(),
        block_on(elsewhere).unwrap_err(),
        block_on(world.send(right, TAG, Bytes::new())).unwrap_err(),
        block_on(world.recv(right, TAG)).unwrap_err(),
        block_on(world.send(world.rank(), TAG, Bytes::new())).unwrap_err(),
    ] {
        // A peer may have left before.
        let expected = match &error {
            Error::Backend { .. } => error.to_string().contains("finalised"),
            Error::PeerLost { peer, .. } => *peer != world.rank(),
            _ => false,
        };
        assert!(expected, "{error}");
    }
    world.abort(transport::Scope::World, "nobody hears it");
    ExitCode::SUCCESS
}

fn transport_on(communicator: &SimpleCommunicator) -> MpiTransport {
    MpiTransport::new(communicator, &Options::default()).unwrap()
}
