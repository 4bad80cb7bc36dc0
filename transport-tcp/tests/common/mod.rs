//! Worlds of threads in this process.

#![allow(dead_code, reason = "each test file uses its part")]
#![allow(clippy::unwrap_used, reason = "a test panics when it fails")]

use std::net::{IpAddr, Ipv4Addr, TcpListener};
use std::sync::Arc;
use std::thread;

use bootstrap::{Config, Method};
use transport::Rank;
use transport_tcp::{Options, TcpTransport};

pub(crate) fn world(size: usize) -> Vec<TcpTransport> {
    world_at(Ipv4Addr::LOCALHOST, size, &Options::default())
}

/// A world on this address of the machine: a thread connects each rank.
pub(crate) fn world_at(ip: impl Into<IpAddr>, size: usize, options: &Options) -> Vec<TcpTransport> {
    let (own, master) = master_at(ip.into());
    let ranks: Vec<_> = (0..size as u32)
        .map(|rank| {
            let method = if rank == 0 { own.clone() } else { master.clone() };
            let (config, options) = (Config::new(Rank(rank), size, method), options.clone());
            thread::spawn(move || TcpTransport::connect(&config, &options).unwrap())
        })
        .collect();
    ranks.into_iter().map(|rank| rank.join().unwrap()).collect()
}

/// How rank 0 and the others find each other at a free port.
pub(crate) fn master_at(ip: IpAddr) -> (Method, Method) {
    let listener = TcpListener::bind((ip, 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    (Method::Listener(Arc::new(listener)), Method::Master { host: ip.to_string(), port })
}
