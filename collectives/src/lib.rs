//! Sparse and dense allreduce, global top-k, allgather, broadcast and barrier over any
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
//! | [`allgather`](Communicator::allgather) | Bruck |
//! | [`broadcast`](Communicator::broadcast) | binomial tree |
//! | [`barrier`](Communicator::barrier) | dissemination |
//! | [`split`](Communicator::split), a communicator of some ranks | Bruck |
//!
//! An allreduce or gtopk can also be [started](Communicator::start_allreduce) and waited for later, by its [`Handle`].
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
mod broadcast;
mod calibration;
mod call;
mod communicator;
pub mod cost;
mod decode;
mod error;
mod group;
mod gtopk;
mod in_flight;
mod reduce_scatter;
mod ring;
mod split;
mod topology;

pub use allreduce::{DenseAlgorithm, SparseAlgorithm};
pub use background::{Handle, Progress};
pub use communicator::{Communicator, Options, Traffic};
pub use error::{Error, ErrorKind};
pub use gtopk::{GlobalTopk, GtopkAlgorithm, PutBack};
