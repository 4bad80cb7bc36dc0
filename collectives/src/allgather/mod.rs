//! Allgather of opaque blocks: a file per algorithm.

pub(crate) mod bruck;
mod ring;

pub(crate) use bruck::bruck;
pub(crate) use ring::ring;
