//! Worlds that do not come together, and strangers that must not matter.

#![allow(clippy::unwrap_used, reason = "a test panics when it fails")]

mod common;

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use bootstrap::{Error, Method, Rendezvous, Roster, Secret};
use common::{Reserved, assert_complete, config, master, meet, start, start_at_once};
use transport::Rank;

fn text(outcome: &Result<Roster, Error>) -> String {
    outcome.as_ref().unwrap_err().to_string()
}

#[test]
fn every_rank_learns_who_is_missing() {
    let (own, method, _) = master();
    let configs = vec![config(0, 5, &own, 300), config(4, 5, &method, 10_000), config(1, 5, &method, 10_000)];
    for outcome in start_at_once(configs) {
        assert!(
            matches!(&outcome, Err(Error::Missing { ranks, world_size: 5, .. }) if ranks == &[Rank(2), Rank(3)]),
            "{outcome:?}"
        );
        assert!(text(&outcome).starts_with("ranks 2 and 3 of 5 did not appear within 0.3 s"), "{outcome:?}");
    }
}

#[test]
fn the_rank_that_began_first_ends_it_for_all() {
    let (own, method, _) = master();
    let begun = Instant::now();
    for outcome in start_at_once(vec![config(0, 3, &own, 20_000), config(1, 3, &method, 300)]) {
        assert!(text(&outcome).contains("rank 2 of 3 did not appear"), "{outcome:?}");
        assert!(text(&outcome).contains("rank 1 began earlier"), "{outcome:?}");
    }
    assert!(begun.elapsed() < Duration::from_secs(10));
}

#[test]
fn a_master_that_is_not_there_is_named_with_its_address() {
    let port = Reserved::at("127.0.0.1");
    let outcome = meet(&config(1, 2, &port.master(), 300));
    assert!(matches!(outcome, Err(Error::Unreachable { .. })));
    assert!(text(&outcome).starts_with(&format!("rank 0 cannot be reached at {} after 0.", port.address)));
}

#[test]
fn a_master_that_never_speaks_is_given_up_in_time() {
    let silent = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let method = Method::Master { host: "127.0.0.1".into(), port: silent.local_addr().unwrap().port() };
    let begun = Instant::now();
    assert!(matches!(meet(&config(1, 2, &method, 300)), Err(Error::Unreachable { .. })));
    assert!(begun.elapsed() < Duration::from_secs(5));
}

#[test]
fn a_master_that_talks_nonsense_is_no_master() {
    let stranger = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let method = Method::Master { host: "127.0.0.1".into(), port: stranger.local_addr().unwrap().port() };
    thread::spawn(move || {
        for stream in stranger.incoming() {
            let _ = stream.unwrap().write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n");
        }
    });
    let error = meet(&config(1, 2, &method, 300)).unwrap_err();
    let cause = std::error::Error::source(&error).unwrap().to_string();
    assert!(cause.contains("not rank 0 of a thinwire world") || cause.contains("reset"), "{cause}");
}

#[test]
fn a_port_in_use_is_named() {
    let other = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let address = other.local_addr().unwrap();
    let method = Method::Master { host: "localhost".into(), port: address.port() };
    let outcome = meet(&config(0, 2, &method, 1_000));
    assert!(matches!(outcome, Err(Error::AddressInUse { address: used }) if used == address));
    assert!(text(&outcome).contains(&format!("{address} is in use")));

    let entries = vec!["127.0.0.1:1".to_owned(), address.to_string()];
    let outcome = meet(&config(1, 2, &Method::Peers(entries), 1_000));
    assert!(matches!(outcome, Err(Error::AddressInUse { address: used }) if used == address));
}

#[test]
fn two_processes_of_one_rank_are_told_apart() {
    let (own, method, _) = master();
    let pause = Duration::from_millis(100);
    let outcomes = start(vec![
        (Duration::ZERO, config(0, 3, &own, 600)),
        (pause, config(1, 3, &method, 5_000)),
        (pause, config(1, 3, &method, 5_000)),
    ]);
    assert!(matches!(&outcomes[2], Err(Error::Refused { .. })));
    assert!(
        text(&outcomes[2]).contains("rank 1 is taken already, by the process at 127.0.0.1:"),
        "{outcomes:?}"
    );
    for outcome in &outcomes[..2] {
        assert!(text(outcome).contains("rank 2 of 3 did not appear"), "{outcome:?}");
        assert!(text(outcome).contains("rank 1 is taken already"), "{outcome:?}");
    }
}

#[test]
fn a_second_process_of_a_rank_does_not_disturb_the_world() {
    let (own, method, _) = master();
    let pause = Duration::from_millis(100);
    let mut outcomes = start(vec![
        (Duration::ZERO, config(0, 3, &own, 5_000)),
        (pause, config(1, 3, &method, 5_000)),
        (pause, config(1, 3, &method, 5_000)),
        (pause, config(2, 3, &method, 5_000)),
    ]);
    assert!(text(&outcomes.remove(2)).contains("taken already"));
    assert_complete(&outcomes);
}

#[test]
fn impossible_members_are_refused_with_the_reason() {
    let secret = |secret: &str| Some(Secret::new(secret).unwrap());
    let (own, method, _) = master();
    let mut master = config(0, 2, &own, 5_000);
    master.secret = secret("hush");
    let server = thread::spawn(move || meet(&master));

    let refused = |rank, size, key| {
        let mut config = config(rank, size, &method, 5_000);
        config.secret = key;
        text(&meet(&config))
    };
    assert!(refused(1, 2, None).contains("its secret is not the one of this job"));
    assert!(refused(1, 2, secret("Hush")).contains("its secret is not the one of this job"));
    assert!(refused(2, 3, secret("hush")).contains("it is rank 2 of a world of 3, but this world has 2"));

    let mut last = config(1, 2, &method, 5_000);
    last.secret = secret("hush");
    let member = meet(&last);
    assert_complete(&[server.join().unwrap(), member]);
}

#[test]
fn refusals_are_part_of_the_final_word() {
    let (own, method, _) = master();
    let server = thread::spawn(move || meet(&config(0, 2, &own, 400)));
    assert!(text(&meet(&config(1, 4, &method, 5_000))).contains("this world has 2"));
    let outcome = server.join().unwrap();
    assert!(text(&outcome).contains("rank 1 of 2 did not appear"), "{outcome:?}");
    assert!(text(&outcome).contains("it is rank 1 of a world of 4"), "{outcome:?}");
}

#[test]
fn strangers_neither_break_nor_stall_the_rendezvous() {
    let (own, method, address) = master();
    let server = thread::spawn(move || meet(&config(0, 2, &own, 10_000)));
    let connect = || TcpStream::connect(address).unwrap();
    let silent: Vec<TcpStream> = (0..100).map(|_| connect()).collect();
    let mut half_a_hello = connect();
    half_a_hello.write_all(b"thinwire\x01\0\0\0").unwrap();
    let mut web = connect();
    web.write_all(&b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n".repeat(10)).unwrap();
    drop(connect());
    let mut later_version = connect();
    later_version.write_all(&[b"thinwire".as_slice(), &[9; 88]].concat()).unwrap();

    let begun = Instant::now();
    let member = meet(&config(1, 2, &method, 10_000));
    assert_complete(&[server.join().unwrap(), member]);
    assert!(begun.elapsed() < Duration::from_secs(3), "silent connections must not be waited for");
    drop(silent);

    let mut answer = Vec::new();
    later_version.read_to_end(&mut answer).unwrap();
    assert!(String::from_utf8_lossy(&answer).contains("speaks version 151587081 of the rendezvous"));
}

#[test]
fn a_process_that_died_while_waiting_can_be_replaced() {
    let (own, method, _) = master();
    let server = thread::spawn(move || meet(&config(0, 3, &own, 10_000)));
    drop(Rendezvous::join(&config(1, 3, &method, 10_000)).unwrap());
    let (first, second) = (config(1, 3, &method, 10_000), config(2, 3, &method, 10_000));
    let mut outcomes = start_at_once(vec![first, second]);
    outcomes.insert(0, server.join().unwrap());
    assert_complete(&outcomes);
}

#[test]
fn a_rank_that_leaves_during_the_exchange_is_named_to_all() {
    let (own, method, _) = master();
    let (complete, left) = (Barrier::new(2), Barrier::new(2));
    thread::scope(|scope| {
        let server = scope.spawn(|| {
            let rendezvous = Rendezvous::join(&config(0, 3, &own, 10_000)).unwrap();
            complete.wait();
            left.wait();
            rendezvous.exchange(b"")
        });
        let stayer = scope.spawn(|| meet(&config(2, 3, &method, 10_000)));
        let leaver = Rendezvous::join(&config(1, 3, &method, 10_000)).unwrap();
        complete.wait();
        drop(leaver);
        left.wait();
        for outcome in [server.join().unwrap(), stayer.join().unwrap()] {
            assert!(text(&outcome).contains("rank 1 at 127.0.0.1:"), "{outcome:?}");
            assert!(text(&outcome).contains("left during the exchange"), "{outcome:?}");
        }
    });
}

#[test]
fn an_address_is_bounded() {
    let config = config(0, 1, &Method::Master { host: "localhost".into(), port: 1 }, 1_000);
    assert!(Rendezvous::join(&config).unwrap().exchange(&vec![0; bootstrap::MAX_BLOB]).is_ok());
    let refused = Rendezvous::join(&config).unwrap().exchange(&vec![0; bootstrap::MAX_BLOB + 1]);
    assert!(text(&refused).contains("4097 bytes exceeds the limit of 4096"));
}

#[test]
fn an_address_that_nobody_can_reach_is_refused() {
    let method = Method::Master { host: "0.0.0.0".into(), port: Reserved::at("127.0.0.1").address.port() };
    assert!(text(&meet(&config(0, 2, &method, 1_000))).contains("none that other ranks can connect to"));
}
