//! The contract's laws, each in worlds of processes.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use std::process::ExitCode;

use common::{in_worlds_of, meet, part, play};
use mpi::traits::Communicator as _;
use testkit::conformance::{LAWS, PATIENCE, erased};
use transport_mpi::{MpiTransport, Options};

fn main() -> ExitCode {
    match part().as_deref() {
        None => in_worlds_of(&[("default", &[1, 2, 3, 4, 7, 8]), ("small pieces", &[2])]),
        // Small, so that the laws on back-pressure have something to find.
        Some("default") => check(&Options { eager_window: 1 << 20, ..Options::default() }),
        Some(_) => check(&Options { max_piece: 5_000, ..Options::default() }),
    }
}

fn check(options: &Options) -> ExitCode {
    play(|communicator| {
        let (rank, size) = (communicator.rank() as usize, communicator.size() as usize);
        for law in LAWS.iter().filter(|law| law.sizes.contains(&size)) {
            let transport = MpiTransport::new(communicator, options).unwrap();
            let kept = (!(law.leaves)(rank, size)).then(|| transport.clone());
            (law.check)(erased([transport]), PATIENCE);
            meet(communicator, kept.as_ref());
            drop(kept);
        }
    })
}
