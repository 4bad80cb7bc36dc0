//! How worlds come together, and what must not disturb it.

#![allow(clippy::unwrap_used, reason = "a test panics when it fails")]

mod common;

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use bootstrap::{Config, Method, Rendezvous};
use bytes::Bytes;
use common::{hello, master_at, world, world_at};
use testkit::conformance::erased;
use transport::{Rank, Tag, Transport, block_on};
use transport_tcp::{Error, Options, TcpTransport};

/// Every rank sends to every rank.
fn talk(world: &[TcpTransport]) {
    let tag = Tag::new(0, 1);
    let receives: Vec<_> =
        world.iter().flat_map(|to| world.iter().map(move |from| to.recv(from.rank(), tag))).collect();
    for from in world {
        for to in world {
            block_on(from.send(to.rank(), tag, Bytes::copy_from_slice(&from.rank().0.to_le_bytes())))
                .unwrap();
        }
    }
    for (receive, from) in receives.into_iter().zip((0..world.len() as u32).cycle()) {
        assert_eq!(block_on(receive).unwrap(), from.to_le_bytes().as_slice());
    }
}

#[test]
fn ipv6_carries_the_laws() {
    let patience = testkit::conformance::PATIENCE;
    for size in [2, 3] {
        let world = || world_at(Ipv6Addr::LOCALHOST, size, &Options::default());
        testkit::conformance::messages_arrive_in_order_whole_and_once(erased(world()), patience);
        testkit::conformance::tags_do_not_block_each_other(erased(world()), patience);
        testkit::conformance::a_rank_that_leaves_is_lost_after_its_messages(erased(world()), patience);
        testkit::conformance::an_abort_of_the_world_ends_everything(erased(world()), patience);
    }
}

#[test]
fn a_tiny_window_only_costs_round_trips() {
    let patience = testkit::conformance::PATIENCE;
    for eager_window in [0, 64, 200] {
        let world = || world_at(Ipv4Addr::LOCALHOST, 3, &Options { eager_window, ..Options::default() });
        testkit::conformance::random_traffic_arrives(erased(world()), patience);
        testkit::conformance::empty_messages_are_messages(erased(world()), patience);
    }
}

#[test]
fn ranks_with_different_options_work_together() {
    let (own, master) = master_at(Ipv4Addr::LOCALHOST.into());
    let other = thread::spawn(move || {
        let options = Options { eager_window: 100, max_message: 2000, ..Options::default() };
        TcpTransport::connect(&Config::new(Rank(1), 2, master), &options).unwrap()
    });
    let first = TcpTransport::connect(&Config::new(Rank(0), 2, own), &Options::default()).unwrap();
    let world = [first, other.join().unwrap()];
    talk(&world);
    for (from, to) in [(0, 1), (1, 0), (1, 1)] {
        let refused = block_on(world[from].send(Rank(to), Tag::new(0, 2), vec![0; 2001].into())).unwrap_err();
        assert_eq!(
            refused.to_string(),
            format!("a message of 2001 bytes to rank {to} exceeds the limit of 2000")
        );
    }
    talk(&world);
}

#[test]
fn impossible_options_are_refused() {
    let config = Config::new(Rank(0), 1, Method::Master { host: "localhost".into(), port: 1 });
    let refused = |options| TcpTransport::connect(&config, &options).unwrap_err().to_string();
    assert!(
        refused(Options { failure_timeout: Duration::ZERO, ..Options::default() })
            .contains("failure timeout")
    );
    assert!(refused(Options { eager_window: 3 << 30, ..Options::default() }).contains("eager window"));
}

#[test]
fn a_world_of_one_needs_no_network() {
    let config = Config::new(Rank(0), 1, Method::Master { host: "no-such-host.invalid".into(), port: 1 });
    talk(&[TcpTransport::connect(&config, &Options::default()).unwrap()]);
}

#[test]
fn a_failed_rendezvous_is_the_error() {
    let (own, _) = master_at(Ipv4Addr::LOCALHOST.into());
    let mut config = Config::new(Rank(0), 2, own);
    config.timeout = Duration::from_millis(100);
    let error = TcpTransport::connect(&config, &Options::default()).unwrap_err();
    assert!(matches!(error, Error::Bootstrap(bootstrap::Error::Missing { .. })));
    assert!(error.to_string().contains("rank 1 of 2 did not appear"));
}

#[test]
fn a_rank_that_dies_after_the_rendezvous_is_named() {
    // Rank 1 meets the others, but never connects; then rank 0 does not listen any more.
    let (own, master) = master_at(Ipv4Addr::LOCALHOST.into());
    let mut config = Config::new(Rank(0), 2, own);
    config.timeout = Duration::from_millis(400);
    let real = thread::spawn(move || TcpTransport::connect(&config, &Options::default()));
    let rendezvous = Rendezvous::join(&Config::new(Rank(1), 2, master)).unwrap();
    rendezvous.exchange(b"nowhere").unwrap();
    let error = real.join().unwrap().unwrap_err();
    assert!(matches!(error, Error::Peer { peer: Rank(1), .. }), "{error}");

    let (own, master) = master_at(Ipv4Addr::LOCALHOST.into());
    let real =
        thread::spawn(move || TcpTransport::connect(&Config::new(Rank(1), 2, master), &Options::default()));
    let rendezvous = Rendezvous::join(&Config::new(Rank(0), 2, own)).unwrap();
    let unused = TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap();
    rendezvous.exchange(unused.to_string().as_bytes()).unwrap();
    let error = real.join().unwrap().unwrap_err();
    assert!(matches!(error, Error::Peer { peer: Rank(0), .. }), "{error}");
    assert!(error.to_string().contains("must have died after the rendezvous"), "{error}");
}

/// Free ports that other tests are not given meanwhile.
fn reserve(ip: &str) -> (socket2::Socket, SocketAddr) {
    let any = SocketAddr::new(ip.parse().unwrap(), 0);
    let socket =
        socket2::Socket::new(socket2::Domain::for_address(any), socket2::Type::STREAM, None).unwrap();
    socket.set_reuse_address(true).unwrap();
    socket.bind(&any.into()).unwrap();
    let address = socket.local_addr().unwrap().as_socket().unwrap();
    (socket, address)
}

#[test]
fn listed_peers_connect_at_their_entries_whatever_strangers_do() {
    let ports = ["127.0.0.1", "::1", "127.0.0.1"].map(reserve);
    let entries: Vec<String> = ports.iter().map(|(_, address)| address.to_string()).collect();
    let connect = |rank: u32| {
        let config = Config::new(Rank(rank), 3, Method::Peers(entries.clone()));
        thread::spawn(move || TcpTransport::connect(&config, &Options::default()).unwrap())
    };
    // Ranks 1 and 2 listen before rank 0 is there, and the strangers are first in the queue of rank 1.
    let (one, two) = (connect(1), connect(2));
    let stranger = || {
        let begun = Instant::now();
        loop {
            match TcpStream::connect(ports[1].1) {
                Ok(stream) => return stream,
                Err(error) => assert!(begun.elapsed() < Duration::from_secs(5), "{error}"),
            }
            thread::sleep(Duration::from_millis(5));
        }
    };
    let silent: Vec<_> = (0..20).map(|_| stranger()).collect();
    let (mut web, mut forger, mut half) = (stranger(), stranger(), stranger());
    web.write_all(&b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n".repeat(9)).unwrap();
    forger.write_all(&hello(3, 2, 1, &[7; 16])).unwrap();
    half.write_all(&hello(3, 2, 1, &[7; 16])[..40]).unwrap();

    let begun = Instant::now();
    let world = [connect(0), one, two].map(|rank| rank.join().unwrap());
    assert!(begun.elapsed() < Duration::from_secs(4), "strangers must not be waited for");
    talk(&world);
    // The forger gets no answer, and the ports are closed once the world is complete.
    assert!(matches!(forger.read(&mut [0]), Ok(0) | Err(_)));
    for (_, address) in &ports {
        assert!(TcpStream::connect(address).is_err(), "{address} is still open");
    }
    drop(silent);
    talk(&world);
}

#[test]
fn a_second_world_does_not_disturb_the_first() {
    let first = world(3);
    let second = world(2);
    talk(&second);
    drop(second);
    talk(&first);
}

#[test]
fn futures_run_on_any_executor() {
    let world = world(2);
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let echoed = runtime.block_on(async {
        // A world can be made inside another runtime, too.
        let nested = common::world(2);
        drop(nested);
        let received = world[1].recv(Rank(0), Tag::new(0, 0));
        world[0].send(Rank(1), Tag::new(0, 0), Bytes::from_static(b"hello")).await.unwrap();
        world[0].sleep(Duration::from_millis(1)).await;
        received.await.unwrap()
    });
    assert_eq!(echoed, "hello");
}
