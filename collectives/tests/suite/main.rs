//! One crate for all tests over worlds of several ranks: they share the algorithms, each dear to compile.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may panic")]

mod auto;
mod background;
mod common;
mod costs;
mod drawings;
mod failures;
mod gtopk;
mod gtopk_exact;
mod hierarchy;
mod laws;
mod memory;
mod oktopk;
mod operations;
mod pieces;
mod reduce_scatter;
mod reductions;
mod simulated;
mod spardl;
mod split;
mod worlds;
