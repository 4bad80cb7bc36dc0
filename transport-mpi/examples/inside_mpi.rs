//! An MPI program that does its own halo exchange and sums sparse vectors with ours, on one communicator.
//!
//! ```text
//! cargo build --release -p transport-mpi --example inside_mpi
//! mpirun -n 4 target/release/examples/inside_mpi
//! ```
//!
//! A rod is heated at both ends. Every rank holds a piece of it and computes how heat spreads, for which it swaps its
//! outermost points with its neighbours by plain MPI. Now and then the ranks sum where the temperature still changes
//! by more than a little: a sparse vector over the whole rod, of which each rank knows its own part.

use std::error::Error;

use collectives::{Communicator, SparseAlgorithm};
use mpi::topology::SimpleCommunicator;
use mpi::traits::{Communicator as _, Destination as _, Source as _};
use sparse_core::SparseVec;
use transport::block_on;
use transport_mpi::{MpiTransport, Options};

/// How many points each rank holds.
const POINTS: usize = 1000;
const STEPS: usize = 3000;
/// A change below this is none.
const LITTLE: f64 = 1e-6;

fn main() -> Result<(), Box<dyn Error>> {
    let universe = mpi::initialize().ok_or("MPI has been initialised before")?;
    let world = universe.world();
    // Duplicates the communicator: the program goes on using it as if nothing had happened.
    let sums = Communicator::new(MpiTransport::new(&world, &Options::default())?);
    let (rank, ranks) = (world.rank() as usize, world.size() as usize);

    // The rank's points, and one on either side that belongs to the neighbour.
    let mut heat = vec![0.0_f64; POINTS + 2];
    for step in 1..=STEPS {
        exchange_halos(&world, &mut heat);
        if rank == 0 {
            heat[0] = 1.0;
        }
        if rank == ranks - 1 {
            heat[POINTS + 1] = 1.0;
        }
        let next: Vec<f64> = heat.windows(3).map(|w| w[1] + 0.25 * (w[0] - 2.0 * w[1] + w[2])).collect();
        if step % 1000 == 0 {
            let change = changes(rank, ranks, &heat[1..=POINTS], &next)?;
            let all =
                block_on(sums.allreduce(&change, &SparseAlgorithm::SsarSplitAllgather))?.into_sparse()?;
            if rank == 0 {
                let largest = all.iter().map(|(_, change)| change).fold(0.0, f64::max);
                let (changing, points) = (all.nnz(), ranks * POINTS);
                println!("step {step}: {changing} of {points} points change, by up to {largest:.1e}");
            }
        }
        heat[1..=POINTS].copy_from_slice(&next);
    }
    Ok(())
}

/// Plain MPI, on the program's own communicator.
fn exchange_halos(world: &SimpleCommunicator, heat: &mut [f64]) {
    let (rank, size) = (world.rank(), world.size());
    let (first, last) = ([heat[1]], [heat[POINTS]]);
    mpi::request::multiple_scope(4, |scope, requests| {
        let (left_halo, rest) = heat.split_at_mut(1);
        let right_halo = &mut rest[POINTS..];
        if rank > 0 {
            let left = world.process_at_rank(rank - 1);
            requests.add(left.immediate_receive_into(scope, left_halo));
            requests.add(left.immediate_send(scope, &first[..]));
        }
        if rank < size - 1 {
            let right = world.process_at_rank(rank + 1);
            requests.add(right.immediate_receive_into(scope, right_halo));
            requests.add(right.immediate_send(scope, &last[..]));
        }
        requests.wait_all(&mut Vec::new());
    });
}

/// Where this rank's points change by more than a little, in the numbering of the whole rod.
fn changes(
    rank: usize,
    ranks: usize,
    old: &[f64],
    new: &[f64],
) -> Result<SparseVec<f64>, sparse_core::Error> {
    let changes = old.iter().zip(new).map(|(old, new)| (new - old).abs()).enumerate();
    let (indices, values) = changes
        .filter(|(_, change)| *change > LITTLE)
        .map(|(point, change)| ((rank * POINTS + point) as u32, change))
        .unzip();
    SparseVec::new((ranks * POINTS) as u64, indices, values)
}
