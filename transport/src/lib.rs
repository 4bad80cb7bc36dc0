//! Point-to-point messages between the ranks of a world: the [`Transport`] trait and its contract.
//!
//! A *world* is a fixed set of ranks `0..world_size`. A transport carries whole messages of bytes
//! between them, each under a [`Tag`]. That is all: it knows nothing of vectors, gradients or
//! collectives, and it is small enough never to change.
//!
//! - Call it through [`Transport`], or through [`AnyTransport`] where the back end is chosen at run
//!   time. Drive the futures with any executor, or with [`block_on`].
//! - To write one, read *For implementers* at [`Transport`]; the `testkit` crate has a conformance
//!   suite that a back end runs with one macro line.
//!
//! ```
//! use bytes::Bytes;
//! use transport::{Error, Rank, Tag, Transport};
//!
//! /// Sends one message around the ring and returns what the left neighbour sent.
//! async fn shift<T: Transport>(world: &T, payload: Bytes) -> Result<Bytes, Error> {
//!     let (me, size) = (world.rank().index(), world.world_size());
//!     let tag = Tag::new(0, 7);
//!     // Both are posted here, at the call: neither waits for the other.
//!     let received = world.recv(Rank::from_index((me + size - 1) % size), tag);
//!     let sent = world.send(Rank::from_index((me + 1) % size), tag, payload);
//!     sent.await?;
//!     received.await
//! }
//! ```

#![forbid(unsafe_code)]

mod any;
mod block_on;
mod buffers;
mod contract;
mod error;
mod ids;

pub use any::AnyTransport;
pub use block_on::block_on;
pub use buffers::Buffers;
pub use contract::Transport;
pub use error::{Error, ErrorKind};
pub use ids::{Rank, Scope, Tag};
