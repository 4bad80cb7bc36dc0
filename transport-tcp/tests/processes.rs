//! Worlds of real processes, and what becomes of the others when one dies or stands still.
//!
//! Each test runs itself again as ranks 1 and up; this process is rank 0.

#![cfg(unix)]
#![allow(clippy::unwrap_used, reason = "a test panics when it fails")]

mod common;

use std::net::Ipv4Addr;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use bootstrap::{Config, Method};
use bytes::Bytes;
use common::master_at;
use transport::{Error, Rank, Tag, Transport, block_on};
use transport_tcp::{Options, TcpTransport};

const SIZE: usize = 4;
const VICTIM: Rank = Rank(2);

/// Runs `part` on this rank: on all ranks of a world of processes.
fn in_processes(test: &str, options: &Options, part: impl FnOnce(TcpTransport, Vec<Child>)) {
    if let Some(config) = Config::from_env().unwrap() {
        return part(TcpTransport::connect(&config, options).unwrap(), Vec::new());
    }
    let (own, master) = master_at(Ipv4Addr::LOCALHOST.into());
    let Method::Master { host, port } = master else { panic!("{master:?}") };
    let others = (1..SIZE).map(|rank| {
        Command::new(std::env::current_exe().unwrap())
            .args(["--exact", test])
            .envs([("RANK", &rank.to_string()), ("WORLD_SIZE", &SIZE.to_string())])
            .envs([("MASTER_ADDR", &host), ("MASTER_PORT", &port.to_string())])
            .stdout(Stdio::null())
            .spawn()
            .unwrap()
    });
    let others = others.collect();
    part(TcpTransport::connect(&Config::new(Rank(0), SIZE, own), options).unwrap(), others);
}

fn signal(name: &str, process: u32) {
    assert!(Command::new("kill").args([name, &process.to_string()]).status().unwrap().success());
}

/// Operations of every kind are under way when the victim gets `blow`; all survivors must learn of it
/// within `bound`.
fn survivors_learn(world: TcpTransport, mut others: Vec<Child>, blow: &str, bound: Duration) {
    let (ready, now, tag) = (Tag::new(0, 1), Tag::new(0, 2), Tag::new(1, 1));
    let (me, survivors) = (world.rank(), [Rank(0), Rank(1), Rank(3)]);
    let large = Bytes::from(vec![1; 1 << 20]);
    if me == VICTIM {
        let _sends = survivors.map(|to| world.send(to, tag, large.clone()));
        let _ = survivors.map(|to| world.send(to, ready, Bytes::new()));
        // Until the blow; if it never comes, the test is over some time, too.
        std::thread::sleep(Duration::from_secs(60));
        return;
    }
    block_on(world.recv(VICTIM, ready)).unwrap();
    assert_eq!(block_on(world.recv(VICTIM, tag)).unwrap(), large);
    let mut receives = vec![world.recv(VICTIM, tag), world.recv(VICTIM, Tag::new(7, 7))];
    let sends: Vec<_> = (0..64).map(|_| world.send(VICTIM, tag, large.clone())).collect();
    if me == Rank(0) {
        for rank in [Rank(1), Rank(3)] {
            block_on(world.recv(rank, ready)).unwrap();
            block_on(world.send(rank, now, Bytes::new())).unwrap();
        }
        signal(blow, others[VICTIM.index() - 1].id());
    } else {
        block_on(world.send(Rank(0), ready, Bytes::new())).unwrap();
        block_on(world.recv(Rank(0), now)).unwrap();
    }
    let begun = Instant::now();
    receives.push(world.recv(VICTIM, tag));
    for outcome in receives.into_iter().map(block_on) {
        assert!(matches!(outcome, Err(Error::PeerLost { peer: VICTIM, .. })), "{outcome:?}");
    }
    let failed = sends.into_iter().map(block_on).filter_map(Result::err).inspect(|error| {
        assert!(matches!(error, Error::PeerLost { peer: VICTIM, .. }), "{error}");
    });
    assert!(failed.count() > 0, "64 MiB were sent to nobody");
    let later = block_on(world.send(VICTIM, tag, Bytes::new()));
    assert!(matches!(later, Err(Error::PeerLost { peer: VICTIM, .. })), "{later:?}");
    assert!(begun.elapsed() < bound, "it took {:?}", begun.elapsed());

    // The survivors go on.
    let others_alive = survivors.into_iter().filter(|rank| *rank != me);
    let receives: Vec<_> = others_alive.clone().map(|from| world.recv(from, tag)).collect();
    let sends: Vec<_> = others_alive.map(|to| world.send(to, tag, large.clone())).collect();
    assert!(receives.into_iter().all(|receive| block_on(receive).is_ok_and(|bytes| bytes == large)));
    assert!(sends.into_iter().all(|send| block_on(send).is_ok()));
    drop(world);
    for (child, rank) in others.iter_mut().zip(1..) {
        if Rank(rank) == VICTIM {
            child.kill().unwrap();
        }
        assert_eq!(child.wait().unwrap().success(), Rank(rank) != VICTIM, "rank {rank}");
    }
}

#[test]
fn a_killed_process_is_noticed_at_once() {
    in_processes("a_killed_process_is_noticed_at_once", &Options::default(), |world, others| {
        survivors_learn(world, others, "-KILL", Duration::from_secs(2));
    });
}

#[test]
fn a_stopped_process_is_noticed_within_the_bound() {
    let options = Options { failure_timeout: Duration::from_secs(2), ..Options::default() };
    in_processes("a_stopped_process_is_noticed_within_the_bound", &options, |world, others| {
        survivors_learn(world, others, "-STOP", Duration::from_secs(3));
    });
}

#[test]
fn processes_keep_the_law_of_a_killed_rank() {
    let test = "processes_keep_the_law_of_a_killed_rank";
    in_processes(test, &Options::default(), |world, mut others| {
        let die = |_world: TcpTransport| {
            signal("-KILL", std::process::id());
            std::thread::sleep(Duration::from_secs(60));
        };
        testkit::conformance::a_killed_rank_is_lost(vec![world], testkit::conformance::PATIENCE, die);
        for (child, rank) in others.iter_mut().zip(1..) {
            assert_eq!(child.wait().unwrap().success(), rank != SIZE / 2, "rank {rank}");
        }
    });
}
