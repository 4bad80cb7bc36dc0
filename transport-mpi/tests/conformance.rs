//! The contract's laws, each in worlds of processes.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use std::process::ExitCode;

use common::{in_worlds_of, initialize, meet, part};
use mpi::traits::Communicator as _;
use testkit::conformance::{LAWS, PATIENCE, erased};
use transport_mpi::{MpiTransport, Options};

fn main() -> ExitCode {
    let Some(part) = part() else {
        let sizes: [usize; 6] = [1, 2, 3, 4, 7, 8];
        let small_pieces = in_worlds_of("small pieces", &[2]);
        return if small_pieces == ExitCode::SUCCESS {
            in_worlds_of("default", &sizes)
        } else {
            small_pieces
        };
    };
    // Small, so that the laws on back-pressure have something to find.
    let mut options = Options { eager_window: 1 << 20, ..Options::default() };
    if part == "small pieces" {
        options.max_piece = 5_000;
    }
    let universe = initialize();
    let communicator = universe.world();
    let (rank, size) = (communicator.rank() as usize, communicator.size() as usize);
    for law in LAWS.iter().filter(|law| law.sizes.contains(&size)) {
        let begun = std::time::Instant::now();
        let transport = MpiTransport::new(&communicator, &options).unwrap();
        let kept = (!(law.leaves)(rank, size)).then(|| transport.clone());
        (law.check)(erased([transport]), PATIENCE);
        meet(&communicator);
        drop(kept);
        if std::env::var_os("VERBOSE").is_some() && communicator.rank() == 0 {
            eprintln!("{}: {:.2?}", law.name, begun.elapsed());
        }
    }
    ExitCode::SUCCESS
}
