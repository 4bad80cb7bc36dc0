//! The [`Transport`] over TCP.
//!
//! A full mesh: one connection for each pair of ranks, set up through [`bootstrap`]. One thread per
//! [`TcpTransport`] reads, keeps the connections alive and wakes; a send writes from the calling
//! thread as long as the socket takes it.
//!
//! ```
//! use std::net::TcpListener;
//! use std::sync::Arc;
//! use std::thread;
//!
//! use bootstrap::{Config, Method};
//! use bytes::Bytes;
//! use transport::{Rank, Tag, Transport, block_on};
//! use transport_tcp::{Options, TcpTransport};
//!
//! // Two ranks as two threads; usually they are processes, configured by `Config::from_env`.
//! let listener = TcpListener::bind(("127.0.0.1", 0))?;
//! let address = listener.local_addr()?;
//! let master = Method::Master { host: address.ip().to_string(), port: address.port() };
//! let other = thread::spawn(move || {
//!     let world = TcpTransport::connect(&Config::new(Rank(1), 2, master), &Options::default())?;
//!     let received = block_on(world.recv(Rank(0), Tag::new(0, 7)))?;
//!     assert_eq!(received, "hello");
//!     Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
//! });
//! let config = Config::new(Rank(0), 2, Method::Listener(Arc::new(listener)));
//! let world = TcpTransport::connect(&config, &Options::default())?;
//! block_on(world.send(Rank(1), Tag::new(0, 7), Bytes::from_static(b"hello")))?;
//! other.join().expect("no panic").map_err(|error| error.to_string())?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # On the wire
//!
//! Every frame is a 32-byte header and, for some kinds, a payload. A message is sent at once while it
//! fits the *window* of bytes that its receiver grants each peer for what was not received yet.
//! Otherwise only its announcement is sent, in its place among the others of its tag; the receiver
//! asks for it when its turn has come, and it follows in parts of at most 1 MiB. So no tag ever blocks
//! another one, what arrives unexpected is bounded, and the reader never has to stop reading.
//!
//! Connections recognise each other by the job's token. Nothing is encrypted: this is for networks
//! whose hosts trust each other.

#![forbid(unsafe_code)]

mod batch;
mod driver;
mod error;
mod frame;
mod link;
mod mesh;
mod options;
mod outbox;
mod reader;
mod timers;
mod world;

use std::future::Future;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bootstrap::{Config, Rendezvous};
use bytes::Bytes;
use transport::{Rank, Scope, Tag, Transport};

pub use error::{Error, ErrorKind};
pub use options::Options;

use driver::Driver;
use link::{Receiving, Sending};
use mesh::Plan;
use timers::Sleep;
use world::World;

/// One rank of a world over TCP; cheap to clone, every clone the same rank.
///
/// Its futures run on any executor. Dropping the last clone is an orderly end: it waits until what was
/// sent is written and the peers have taken notice. That takes a round trip; up to a second while
/// messages that were never received wait for their receivers; and about two seconds, or the failure
/// timeout if something is still to be written to it, when a peer stands still.
#[derive(Clone, Debug)]
pub struct TcpTransport {
    world: Arc<World>,
    _driver: Arc<Driver>,
}

impl TcpTransport {
    /// Meets the other ranks and connects to all of them; blocks until the world is complete.
    ///
    /// A world of one rank uses no sockets.
    ///
    /// # Errors
    /// After [`Config::timeout`] and a second at the latest: [`Error::Bootstrap`] when the ranks do not
    /// find each other, [`Error::Peer`] naming a rank that was there but cannot be connected,
    /// [`Error::Listen`], [`Error::Options`], [`Error::System`].
    pub fn connect(config: &Config, options: &Options) -> Result<Self, Error> {
        options.validate()?;
        let start = Instant::now();
        let limits = options.limits();
        let mut rendezvous = Rendezvous::join(config)?;
        let plan = if config.world_size == 1 {
            None
        } else {
            let (listener, advertised) = match rendezvous.take_listener() {
                Some(listed) => listed,
                None => listen(&rendezvous)?,
            };
            let deadline = rendezvous.deadline();
            let roster = rendezvous.exchange(advertised.as_bytes())?;
            Some(Plan { rank: config.rank, roster, limits, listener, start, deadline })
        };
        let (world, driver) = driver::start(config.rank, limits, plan)?;
        Ok(Self { world, _driver: Arc::new(driver) })
    }
}

/// Listens at a free port, and says where.
fn listen(rendezvous: &Rendezvous) -> Result<(TcpListener, String), Error> {
    let address = SocketAddr::new(rendezvous.bind_ip(), 0);
    let listener = TcpListener::bind(address).map_err(|source| Error::Listen { address, source })?;
    let bound = listener.local_addr().map_err(|source| Error::Listen { address, source })?;
    let advertised = SocketAddr::new(rendezvous.local_ip(), bound.port());
    Ok((listener, advertised.to_string()))
}

impl Transport for TcpTransport {
    fn rank(&self) -> Rank {
        self.world.rank
    }

    fn world_size(&self) -> usize {
        self.world.links.len()
    }

    fn send(
        &self,
        to: Rank,
        tag: Tag,
        payload: Bytes,
    ) -> impl Future<Output = Result<(), transport::Error>> + Send + use<> {
        match self.world.link(to) {
            Ok(link) => link.send(tag, payload),
            Err(error) => Sending::new(Err(error)),
        }
    }

    fn recv(
        &self,
        from: Rank,
        tag: Tag,
    ) -> impl Future<Output = Result<Bytes, transport::Error>> + Send + use<> {
        match self.world.link(from) {
            Ok(link) => link.recv(tag),
            Err(error) => Receiving::Refused(Some(error)),
        }
    }

    fn abort(&self, scope: Scope, reason: &str) {
        self.world.abort(self.world.rank, scope, reason);
    }

    fn now(&self) -> Duration {
        self.world.start.elapsed()
    }

    fn sleep(&self, duration: Duration) -> impl Future<Output = ()> + Send + use<> {
        Sleep::new(&self.world.timers, duration)
    }
}
