//! What every networked back end needs before and beside its data path.
//!
//! - [`Config`]: who this process is in the world and where the ranks meet, by hand or from the
//!   variables that torchrun and its like set ([`Config::from_env`]).
//! - [`Rendezvous`]: the ranks find each other in a bounded time, whatever the start order, and
//!   exchange one opaque address each. All get the same [`Roster`]: everyone's address and a random
//!   [`JobToken`] by which data connections recognise each other.
//! - [`liveness`]: the failure detector, a state machine without I/O and without a clock.
//!
//! Blocking, on the standard library: a back end calls it before its own I/O begins.
//!
//! ```
//! use std::net::TcpListener;
//! use std::sync::Arc;
//! use std::thread;
//!
//! use bootstrap::{Config, Method, Rendezvous};
//! use transport::Rank;
//!
//! // Two ranks as two threads. Rank 0 serves at a listener that is bound already, so that no other
//! // process can take the port in between.
//! let listener = TcpListener::bind(("127.0.0.1", 0))?;
//! let address = listener.local_addr()?;
//! let master = Method::Master { host: address.ip().to_string(), port: address.port() };
//! let configs = [
//!     Config::new(Rank(0), 2, Method::Listener(Arc::new(listener))),
//!     Config::new(Rank(1), 2, master),
//! ];
//! let ranks = configs.map(|config| {
//!     thread::spawn(move || {
//!         let rendezvous = Rendezvous::join(&config)?;
//!         let address = format!("{}:4000{}", rendezvous.local_ip(), config.rank);
//!         rendezvous.exchange(address.as_bytes())
//!     })
//! });
//! for rank in ranks {
//!     let roster = rank.join().expect("no panic")?;
//!     assert_eq!(roster.blobs, [b"127.0.0.1:40000", b"127.0.0.1:40001"]);
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # What the secrets protect against
//!
//! [`Secret`] and [`JobToken`] travel in the clear. They keep out strangers, port scanners and other
//! jobs; they do not resist somebody who reads the network.

#![forbid(unsafe_code)]

pub mod liveness;

mod address;
mod config;
mod environment;
mod error;
mod rendezvous;
mod secret;
mod server;
mod wire;

pub use config::{Config, DEFAULT_TIMEOUT, Method};
pub use error::{Error, ErrorKind};
pub use rendezvous::{Rendezvous, Roster};
pub use secret::{JobToken, Secret};
pub use wire::MAX_BLOB;
