//! Worlds of threads in this process.

#![allow(dead_code, reason = "each test file uses its part")]
#![allow(clippy::unwrap_used, reason = "a test panics when it fails")]

use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;

use bootstrap::{Config, Method, Rendezvous};
use transport::{Rank, Tag};
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

/// Rank 1 of a world of two as a bare socket, to say what a real one never would.
pub(crate) struct Puppet {
    pub(crate) stream: TcpStream,
}

/// What frames are called on the wire.
pub(crate) const EAGER: u32 = 1;
pub(crate) const ANNOUNCE: u32 = 2;
pub(crate) const FETCH: u32 = 3;
pub(crate) const PART: u32 = 4;
pub(crate) const CREDIT: u32 = 5;
pub(crate) const HEARTBEAT: u32 = 6;
pub(crate) const ABORT: u32 = 7;
pub(crate) const GOODBYE: u32 = 8;

/// A real rank 0 and the puppet that is its only peer.
pub(crate) fn puppet(options: &Options) -> (TcpTransport, Puppet) {
    let (own, master) = master_at(Ipv4Addr::LOCALHOST.into());
    let (config, options) = (Config::new(Rank(0), 2, own), options.clone());
    let real = thread::spawn(move || TcpTransport::connect(&config, &options).unwrap());
    let rendezvous = Rendezvous::join(&Config::new(Rank(1), 2, master)).unwrap();
    let roster = rendezvous.exchange(b"127.0.0.1:1").unwrap();
    let mut stream = TcpStream::connect(std::str::from_utf8(&roster.blobs[0]).unwrap()).unwrap();
    stream.set_nodelay(true).unwrap();
    stream.write_all(&hello(2, 1, 0, roster.token.as_bytes())).unwrap();
    stream.read_exact(&mut [0; 72]).unwrap();
    (real.join().unwrap(), Puppet { stream })
}

/// The first bytes of a connection, with a window of 1 MiB.
pub(crate) fn hello(world_size: u32, from: u32, to: u32, token: &[u8; 16]) -> Vec<u8> {
    let mut bytes = b"thinwTCP".to_vec();
    for word in [1, world_size, from, to] {
        bytes.extend_from_slice(&word.to_le_bytes());
    }
    bytes.extend_from_slice(token);
    for limit in [1_u64 << 20, 1 << 30, 1 << 20, 10_000] {
        bytes.extend_from_slice(&limit.to_le_bytes());
    }
    bytes
}

pub(crate) fn header(kind: u32, credit: u32, tag: Tag, length: u64, id: u64) -> Vec<u8> {
    let mut bytes = [kind.to_le_bytes(), credit.to_le_bytes()].concat();
    for word in [tag.to_u64(), length, id] {
        bytes.extend_from_slice(&word.to_le_bytes());
    }
    bytes
}

impl Puppet {
    pub(crate) fn say(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).unwrap();
    }

    /// Reads one header: its kind, credit, tag, length and id.
    pub(crate) fn hear(&mut self) -> (u32, u32, Tag, u64, u64) {
        let mut header = [0; 32];
        self.stream.read_exact(&mut header).unwrap();
        let word = |at: usize| u64::from_le_bytes(header[at..at + 8].try_into().unwrap());
        (word(0) as u32, (word(0) >> 32) as u32, Tag::from_u64(word(8)), word(16), word(24))
    }
}
