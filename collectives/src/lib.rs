//! Sparse and dense allreduce, reduce, global top-k, allgather, broadcast and barrier over any
//! [`Transport`](transport::Transport).
//!
//! The way in is [`Communicator`]. Its operations are futures that any executor drives; blocking code
//! wraps them in [`transport::block_on`]. Each algorithm is one file, whose head has its steps, its
//! cost and its source.
//!
//! | operation | algorithms |
//! |---|---|
//! | [`allreduce_dense`](Communicator::allreduce_dense) | [`DenseAlgorithm`] |
//! | [`allreduce`](Communicator::allreduce) of sparse vectors | [`SparseAlgorithm`] |
//! | [`gtopk`](Communicator::gtopk) | [`GtopkAlgorithm`] |
//! | [`reduce_scatter`](Communicator::reduce_scatter) of sparse vectors | each range to its owner |
//! | [`reduce_scatter_dense`](Communicator::reduce_scatter_dense) | ring |
//! | [`reduce`](Communicator::reduce) of sparse vectors, [`reduce_dense`](Communicator::reduce_dense) | each range to its owner, then to the root |
//! | [`allgather`](Communicator::allgather), [`allgather_sparse`](Communicator::allgather_sparse), [`allgather_dense`](Communicator::allgather_dense) | Bruck |
//! | [`broadcast`](Communicator::broadcast), [`broadcast_stream`](Communicator::broadcast_stream) | binomial tree |
//! | [`barrier`](Communicator::barrier) | dissemination |
//! | [`split`](Communicator::split), a communicator of some ranks | Bruck |
//! | allreduce and gtopk of a [`Hierarchy`], with fast and slow links | inside groups, across them, inside again |
//!
//! Those that sum give the mean to who [asks for it](Communicator::with_reduction). An allreduce or gtopk can also be [started](Communicator::start_allreduce) and waited for later, by its [`Handle`].
//! [`cost`] has what each algorithm costs as functions, and the lower bounds; `Auto` of either enum takes the algorithm that it
//! predicts to be the fastest, on a link that is set or [measured](Communicator::calibrate).
//!
//! `docs/algorithms.md` in this crate's folder draws the steps of each, with its cost, its bound, its memory and when to take it.
//!
//! In the costs, P is the number of ranks, N the dimension, `k` the entries of one rank, K those of
//! the union, `b` the bytes of an entry, `v` those of a dense value, alpha the latency, beta the time
//! per byte; links are full-duplex.

#![forbid(unsafe_code)]

mod allgather;
mod allreduce;
mod background;
mod barrier;
mod broadcast;
mod calibration;
mod call;
mod communicator;
pub mod cost;
mod decode;
mod doubling;
mod error;
mod group;
mod gtopk;
mod hierarchy;
mod in_flight;
mod reduce;
mod reduce_scatter;
mod reduction;
mod ring;
mod split;
mod topology;

pub use allreduce::{DenseAlgorithm, SparseAlgorithm};
pub use background::{Handle, Progress};
pub use communicator::{Communicator, Options, Traffic};
pub use error::{Error, ErrorKind};
pub use gtopk::{GlobalTopk, GtopkAlgorithm, PutBack};
pub use hierarchy::Hierarchy;
pub use reduction::Reduction;
