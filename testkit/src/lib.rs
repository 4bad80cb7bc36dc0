//! What collectives and back ends are tested with, and an in-process back end that is fit for use.
//!
//! | to | use |
//! |---|---|
//! | run ranks in one process | [`local_world`], and [`run_world`] for a thread per rank |
//! | run thousands of ranks in virtual time | [`sim`]: links with latency and rate, on one thread |
//! | test a back end | [`conformance_suite!`], one macro line |
//! | write a back end | [`Mailbox`], the matching engine; [`Sleep`], a timer without a runtime |
//! | make things go wrong | [`faults::Faulty`]: delays, a death, a corrupted message; [`LocalTransport::kill`] |
//! | hold an algorithm to its cost | [`Counted`]: messages, bytes and rounds |
//! | know what is right | [`oracle`]: dense and naive |
//! | find what is wrong | [`strategies`] for proptest, [`support`] for tables of cases |
//!
//! The last two rows are for sparse vectors and come with the feature `vectors`, a default. Tests of a back end
//! do without: `default-features = false` leaves few dependencies.
//!
//! # A collective of your own
//!
//! Say it sums one sparse vector per rank, by passing all vectors on around a ring. It is generic over the
//! transport, so it runs in the in-process world, where a property test compares it with an oracle:
//!
//! ```
//! use bytes::Bytes;
//! use proptest::prelude::*;
//! use sparse_core::{SparseVec, Stream, wire};
//! use testkit::{local_world, oracle, run_world, strategies};
//! use transport::{Rank, Tag, Transport};
//!
//! type Error = Box<dyn std::error::Error + Send + Sync>;
//!
//! async fn ring_sum<T: Transport>(world: &T, mine: &SparseVec<f32>) -> Result<Vec<f32>, Error> {
//!     let (me, size) = (world.rank().index(), world.world_size());
//!     let (left, right) = (Rank::from_index((me + size - 1) % size), Rank::from_index((me + 1) % size));
//!     let fingerprint = wire::Fingerprint::new::<f32>(1, 1, 0, mine.dim(), 0);
//!     let mut parts = vec![SparseVec::empty(mine.dim())?; size];
//!     parts[me] = mine.clone();
//!     let mut passing = wire::encode_sparse(&fingerprint, mine);
//!     for step in 1..size {
//!         let received = world.recv(left, Tag::new(0, step as u32));
//!         world.send(right, Tag::new(0, step as u32), passing).await?;
//!         passing = received.await?;
//!         let stream: Stream<f32> = wire::open(passing.clone())?.into_stream(mine.dim())?;
//!         parts[(me + size - step) % size] = stream.into_sparse()?;
//!     }
//!     // In the order of ranks, so that all ranks end with the same bits.
//!     Ok(sparse_core::reduce(&parts)?.to_dense())
//! }
//!
//! // In a test this is `fn every_rank_ends_with_the_sum(inputs in ...)` within `proptest! { ... }`.
//! proptest!(ProptestConfig::with_cases(20), |(inputs in strategies::world::<f32>(1..=5))| {
//!     let sums = run_world(local_world(inputs.len()), |world| {
//!         let mine = inputs[world.rank().index()].clone();
//!         async move { ring_sum(&world, &mine).await.unwrap() }
//!     });
//!     for sum in &sums {
//!         prop_assert_eq!(sum, &oracle::sum(&inputs));
//!     }
//! });
//! ```
//!
//! A thing that a test should hold a collective to, beside the sum: the cost that it documents. Here every
//! rank sends P - 1 messages, one after the other:
//!
//! ```
//! # use bytes::Bytes;
//! # use testkit::{Counted, local_world, run_world};
//! # use transport::{Rank, Tag, Transport};
//! # async fn ring_sum<T: Transport>(world: &T, mine: &[u8]) -> Result<(), transport::Error> {
//! #     let (me, size) = (world.rank().index(), world.world_size());
//! #     let mut passing = Bytes::copy_from_slice(mine);
//! #     for step in 1..size as u32 {
//! #         let received = world.recv(Rank::from_index((me + size - 1) % size), Tag::new(0, step));
//! #         world.send(Rank::from_index((me + 1) % size), Tag::new(0, step), passing).await?;
//! #         passing = received.await?;
//! #     }
//! #     Ok(())
//! # }
//! # let mine = [0; 40];
//! let world = local_world(5).into_iter().map(Counted::new).collect();
//! let counts = run_world(world, |world| async move {
//!     ring_sum(&world, &mine).await.unwrap();
//!     world.counts()
//! });
//! assert!(counts.iter().all(|counts| counts.messages_sent == 4 && counts.rounds == 4));
//! ```
//!
//! # A failure
//!
//! A rank that dies in the middle must be an error on every rank that needs it, and never a hang. A
//! [`Faulty`](faults::Faulty) rank dies when it posts its n-th operation, whatever n is:
//!
//! ```
//! use bytes::Bytes;
//! use testkit::{faults::Faulty, local_world, run_world};
//! use transport::{ErrorKind, Rank, Tag, Transport};
//!
//! /// Everyone's word to everyone.
//! async fn allgather<T: Transport>(world: &T, mine: Bytes) -> Result<Vec<Bytes>, transport::Error> {
//!     let ranks = || (0..world.world_size()).map(Rank::from_index);
//!     let receives: Vec<_> = ranks().map(|from| world.recv(from, Tag::new(0, 0))).collect();
//!     for to in ranks() {
//!         world.send(to, Tag::new(0, 0), mine.clone()).await?;
//!     }
//!     let mut words = Vec::new();
//!     for receive in receives {
//!         words.push(receive.await?);
//!     }
//!     Ok(words)
//! }
//!
//! for operation in 0..4 {
//!     let world = local_world(4).into_iter().map(|rank| match rank.rank() {
//!         Rank(2) => Faulty::new(rank).die_at(operation),
//!         _ => Faulty::new(rank).random_delays(operation),
//!     });
//!     let results = run_world(world.collect(), |world| async move {
//!         allgather(&world, Bytes::from_static(b"word")).await
//!     });
//!     for (rank, result) in results.iter().enumerate() {
//!         let error = result.as_ref().unwrap_err();
//!         match rank {
//!             2 => assert_eq!(error.kind(), ErrorKind::Backend),
//!             _ => assert_eq!(error.kind(), ErrorKind::PeerLost, "rank {rank}, operation {operation}"),
//!         }
//!     }
//! }
//! ```
//!
//! [`run_world`] ends a test whose ranks wait for ever, and names them.

#![forbid(unsafe_code)]

pub mod conformance;
mod counted;
pub mod faults;
mod local;
mod mailbox;
#[cfg(feature = "vectors")]
pub mod oracle;
mod random;
mod run_world;
pub mod sim;
#[cfg(feature = "vectors")]
pub mod strategies;
#[cfg(feature = "vectors")]
pub mod support;
mod timer;

pub use counted::{Counted, Counts};
pub use local::{DEFAULT_WINDOW, LocalTransport, local_world, local_world_with_window};
pub use mailbox::{MESSAGE_COST, Mailbox, Receiving, Sending};
pub use run_world::{run_world, run_world_within};
pub use timer::Sleep;

/// What the macros name.
#[doc(hidden)]
pub mod __private {
    pub use transport::Transport;
}
