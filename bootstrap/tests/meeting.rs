//! Worlds that come together.

#![allow(clippy::unwrap_used, reason = "a test panics when it fails")]

mod common;

use std::net::{IpAddr, TcpListener};
use std::thread;
use std::time::Duration;

use bootstrap::{Config, Method, Rendezvous, Secret};
use common::{Reserved, assert_complete, blob, config, master, start, start_at_once};
use transport::Rank;

/// All orders of `0..size` (Heap's algorithm).
fn permutations(size: u32) -> Vec<Vec<u32>> {
    fn heap(k: usize, order: &mut Vec<u32>, all: &mut Vec<Vec<u32>>) {
        if k <= 1 {
            all.push(order.clone());
            return;
        }
        for i in 0..k {
            heap(k - 1, order, all);
            order.swap(if k.is_multiple_of(2) { i } else { 0 }, k - 1);
        }
    }
    let mut all = Vec::new();
    heap(size as usize, &mut (0..size).collect(), &mut all);
    all
}

#[test]
fn every_start_order_leads_to_the_same_world() {
    for size in [1, 2, 3, 5] {
        // Many worlds at a time, each with its own port, its own order and its own pauses.
        for (batch, orders) in permutations(size).chunks(20).enumerate() {
            thread::scope(|scope| {
                for (number, order) in orders.iter().enumerate() {
                    scope.spawn(move || {
                        let port = Reserved::at("127.0.0.1");
                        let started = order.iter().map(|&rank| {
                            let pause = (batch * 7 + number * 3 + rank as usize * 5) % 9;
                            let config = config(rank, size as usize, &port.master(), 10_000);
                            (Duration::from_millis(pause as u64), config)
                        });
                        assert_complete(&start(started.collect()));
                    });
                }
            });
        }
    }
}

#[test]
fn ranks_that_come_much_earlier_wait() {
    let port = Reserved::at("127.0.0.1");
    let pauses = [(2, 0), (1, 100), (0, 300)];
    let started =
        pauses.map(|(rank, pause)| (Duration::from_millis(pause), config(rank, 3, &port.master(), 5_000)));
    assert_complete(&start(started.to_vec()));
}

#[test]
fn ipv6_and_names_work() {
    for (ip, host) in [("::1", "::1"), ("::1", "[::1]"), ("127.0.0.1", "localhost")] {
        let port = Reserved::at(ip);
        let method = Method::Master { host: host.into(), port: port.address.port() };
        assert_complete(&start_at_once((0..3).map(|rank| config(rank, 3, &method, 5_000)).collect()));
    }
}

#[test]
fn a_listener_bound_beforehand_is_used() {
    let (own, method, _) = master();
    let configs = (0..4).map(|rank| config(rank, 4, if rank == 0 { &own } else { &method }, 5_000));
    assert_complete(&start_at_once(configs.collect()));
}

#[test]
fn a_world_of_one_needs_no_socket() {
    let occupied = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let port = occupied.local_addr().unwrap().port();
    let method = Method::Master { host: "127.0.0.1".into(), port };
    let roster = common::meet(&config(0, 1, &method, 1_000)).unwrap();
    assert_eq!(roster.blobs, [blob(0)]);
}

#[test]
fn peers_listen_at_their_own_entries() {
    let ports: Vec<Reserved> = ["127.0.0.1", "::1", "127.0.0.1"].into_iter().map(Reserved::at).collect();
    let entries: Vec<String> = ports.iter().map(|port| port.address.to_string()).collect();
    let method = Method::Peers(entries.clone());
    let ranks = [2, 0, 1].map(|rank| {
        let (config, entry) = (config(rank, 3, &method, 5_000), entries[rank as usize].clone());
        thread::spawn(move || {
            let mut rendezvous = Rendezvous::join(&config).unwrap();
            let (listener, listed) = rendezvous.take_listener().unwrap();
            assert_eq!((listener.local_addr().unwrap().to_string(), &listed), (entry.clone(), &entry));
            assert!(rendezvous.take_listener().is_none());
            rendezvous.exchange(listed.as_bytes()).unwrap().blobs
        })
    });
    let expected: Vec<Vec<u8>> = entries.iter().map(|entry| entry.clone().into_bytes()).collect();
    for rank in ranks {
        assert_eq!(rank.join().unwrap(), expected);
    }
}

#[test]
fn the_data_path_binds_where_the_master_is_reached_or_where_it_is_told() {
    let everywhere: IpAddr = "0.0.0.0".parse().unwrap();
    let special: IpAddr = "127.0.0.2".parse().unwrap();
    let local: IpAddr = "127.0.0.1".parse().unwrap();
    for (bind, local_ip, bind_ip) in
        [(None, local, local), (Some(special), special, special), (Some(everywhere), local, everywhere)]
    {
        let (own, method, _) = master();
        let ranks = [own, method].into_iter().zip(0..).map(|(method, rank)| {
            let mut config = Config::new(Rank(rank), 2, method);
            config.bind = bind;
            thread::spawn(move || Rendezvous::join(&config).unwrap())
        });
        // All have joined before the first may leave.
        let ranks: Vec<_> = ranks.collect::<Vec<_>>().into_iter().map(|rank| rank.join().unwrap()).collect();
        for joined in ranks {
            assert_eq!((joined.local_ip(), joined.bind_ip()), (local_ip, bind_ip));
        }
    }
}

#[test]
fn a_common_secret_lets_in() {
    let (own, method, _) = master();
    let configs = (0..3).map(|rank| {
        let mut config = config(rank, 3, if rank == 0 { &own } else { &method }, 5_000);
        config.secret = Some(Secret::new("hush").unwrap());
        config
    });
    assert_complete(&start_at_once(configs.collect()));
}

/// The test runs itself again as rank 0, with the listener as its standard input.
#[cfg(unix)]
#[test]
fn a_child_process_inherits_the_masters_listener() {
    if std::env::var_os("THINWIRE_LISTENER").is_some() {
        let config = Config::from_env().unwrap().unwrap();
        assert_eq!(common::meet(&config).unwrap().blobs, [blob(0), blob(1)]);
        return;
    }
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    let mut child = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "a_child_process_inherits_the_masters_listener"])
        .envs([
            ("RANK", "0"),
            ("WORLD_SIZE", "2"),
            ("THINWIRE_LISTENER", "stdin"),
            ("THINWIRE_TIMEOUT", "10"),
        ])
        .stdin(std::os::fd::OwnedFd::from(listener))
        .stdout(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let method = Method::Master { host: "127.0.0.1".into(), port };
    let roster = common::meet(&config(1, 2, &method, 10_000)).unwrap();
    assert_eq!(roster.blobs, [blob(0), blob(1)]);
    assert!(child.wait().unwrap().success());
}
