//! Worlds of threads.

#![allow(clippy::unwrap_used, reason = "a test panics when it fails")]

use std::net::{IpAddr, SocketAddr, TcpListener};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use bootstrap::{Config, Error, Method, Rendezvous, Roster};
use socket2::{Domain, Socket, Type};
use transport::Rank;

/// A port that nobody else is given while this lives, though anybody who asks for it may listen there.
pub(crate) struct Reserved {
    _socket: Socket,
    pub(crate) address: SocketAddr,
}

impl Reserved {
    pub(crate) fn at(ip: &str) -> Self {
        let any = SocketAddr::new(ip.parse::<IpAddr>().unwrap(), 0);
        let socket = Socket::new(Domain::for_address(any), Type::STREAM, None).unwrap();
        socket.set_reuse_address(true).unwrap();
        socket.bind(&any.into()).unwrap();
        let address = socket.local_addr().unwrap().as_socket().unwrap();
        Self { _socket: socket, address }
    }

    pub(crate) fn master(&self) -> Method {
        Method::Master { host: self.address.ip().to_string(), port: self.address.port() }
    }
}

/// A master's listener and what the other ranks need to find it.
pub(crate) fn master() -> (Method, Method, SocketAddr) {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let address = listener.local_addr().unwrap();
    let method = Method::Master { host: address.ip().to_string(), port: address.port() };
    (Method::Listener(Arc::new(listener)), method, address)
}

pub(crate) fn config(rank: u32, world_size: usize, method: &Method, timeout: u64) -> Config {
    let mut config = Config::new(Rank(rank), world_size, method.clone());
    config.timeout = Duration::from_millis(timeout);
    config
}

/// What every rank contributes in these tests.
pub(crate) fn blob(rank: u32) -> Vec<u8> {
    vec![rank as u8; 10 * rank as usize]
}

pub(crate) fn meet(config: &Config) -> Result<Roster, Error> {
    Rendezvous::join(config)?.exchange(&blob(config.rank.0))
}

/// Starts the ranks in the order given, each after its pause, and returns their outcomes in that order.
pub(crate) fn start(configs: Vec<(Duration, Config)>) -> Vec<Result<Roster, Error>> {
    let ranks: Vec<_> = configs
        .into_iter()
        .map(|(pause, config)| {
            thread::sleep(pause);
            thread::spawn(move || meet(&config))
        })
        .collect();
    ranks.into_iter().map(|rank| rank.join().unwrap()).collect()
}

pub(crate) fn start_at_once(configs: Vec<Config>) -> Vec<Result<Roster, Error>> {
    start(configs.into_iter().map(|config| (Duration::ZERO, config)).collect())
}

/// All ranks have the blobs of all and the same token.
pub(crate) fn assert_complete(outcomes: &[Result<Roster, Error>]) {
    let first = outcomes[0].as_ref().unwrap();
    let expected: Vec<Vec<u8>> = (0..outcomes.len() as u32).map(blob).collect();
    for outcome in outcomes {
        let roster = outcome.as_ref().unwrap();
        assert_eq!(roster.blobs, expected);
        assert!(first.token.matches(roster.token.as_bytes()));
    }
}
