//! Half round trips and bandwidth of the transport and of plain `MPI_Send` and `MPI_Recv`, in turn, in one run.
//!
//! ```text
//! mpirun -n 2 target/release/examples/pingpong [BYTES]...
//! ```

use std::error::Error;
use std::time::Instant;

use bytes::Bytes;
use mpi::topology::SimpleCommunicator;
use mpi::traits::{Communicator as _, CommunicatorCollectives as _, Destination as _, Source as _};
use transport::{Rank, Tag, Transport as _, block_on};
use transport_mpi::{MpiTransport, Options};

const ROUNDS: usize = 15;

fn main() -> Result<(), Box<dyn Error>> {
    let universe = mpi::initialize().ok_or("MPI has been initialised before")?;
    let communicator = universe.world();
    if communicator.size() != 2 {
        return Err("start two ranks: mpirun -n 2 ...".into());
    }
    let world = MpiTransport::new(&communicator, &Options::default())?;
    if communicator.rank() == 0 {
        println!("{:>10} {:>12} {:>12} {:>12} {:>8}", "bytes", "ours, us", "MPI, us", "ours, GB/s", "ratio");
    }
    let mut lengths =
        std::env::args().skip(1).map(|length| length.parse()).collect::<Result<Vec<usize>, _>>()?;
    if lengths.is_empty() {
        lengths = vec![8, 1 << 10, 64 << 10, 1 << 20, 16 << 20];
    }
    for length in lengths {
        let repeats = (300_000_000 / (length + 10_000)).clamp(20, 20_000);
        let (mut ours, mut raw) = (Vec::new(), Vec::new());
        // The first round warms up; then each is measured right after the other, so that they see the same machine.
        for round in 0..=ROUNDS {
            communicator.barrier();
            let ours_now = with_transport(&world, length, repeats)?;
            communicator.barrier();
            let raw_now = with_mpi(&communicator, length, repeats);
            if round > 0 {
                ours.push(ours_now);
                raw.push(raw_now);
            }
        }
        let mut ratios: Vec<_> = ours.iter().zip(&raw).map(|(ours, raw)| ours / raw).collect();
        if communicator.rank() == 0 {
            let (ours, raw) = (median(&mut ours), median(&mut raw));
            let rate = length as f64 / ours / 1e3;
            let ratio = median(&mut ratios);
            println!("{length:>10} {ours:>12.3} {raw:>12.3} {rate:>12.2} {ratio:>8.3}");
        }
    }
    Ok(())
}

/// Microseconds for one way.
fn with_transport(world: &MpiTransport, length: usize, repeats: usize) -> Result<f64, transport::Error> {
    let (peer, tag) = (Rank(1 - world.rank().0), Tag::new(0, 7));
    let mut message = Bytes::from(vec![1; length]);
    let begun = Instant::now();
    for _ in 0..repeats {
        if world.rank() == Rank(0) {
            block_on(world.send(peer, tag, message))?;
            message = block_on(world.recv(peer, tag))?;
        } else {
            message = block_on(world.recv(peer, tag))?;
            block_on(world.send(peer, tag, message))?;
            message = Bytes::new();
        }
    }
    drop(message);
    Ok(begun.elapsed().as_secs_f64() * 1e6 / (2 * repeats) as f64)
}

/// The same with plain MPI, which sends what is in one buffer and receives into it.
fn with_mpi(communicator: &SimpleCommunicator, length: usize, repeats: usize) -> f64 {
    let (rank, peer) = (communicator.rank(), communicator.process_at_rank(1 - communicator.rank()));
    let mut buffer = vec![1_u8; length];
    let begun = Instant::now();
    for _ in 0..repeats {
        if rank == 0 {
            peer.send(&buffer[..]);
            peer.receive_into(&mut buffer[..]);
        } else {
            peer.receive_into(&mut buffer[..]);
            peer.send(&buffer[..]);
        }
    }
    begun.elapsed().as_secs_f64() * 1e6 / (2 * repeats) as f64
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
