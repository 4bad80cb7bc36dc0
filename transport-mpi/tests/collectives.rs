//! The collectives in worlds of processes: the same bits as in a world of threads, the same errors.
//!
//! What those bits must be is tested where the collectives are; here every rank computes the same world once more in
//! threads of its own and compares.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

#[path = "../../collectives/tests/suite/common.rs"]
mod algorithms;
mod common;

use std::process::ExitCode;
use std::sync::Arc;

use algorithms::{Algorithm, GTOPK, PUT_BACK, bits, dims};
use collectives::{Communicator, Error, ErrorKind, SparseAlgorithm};
use common::{in_worlds_of, meet, part, play};
use half::bf16;
use mpi::topology::SimpleCommunicator;
use sparse_core::{Element, SparseVec};
use sparse_quant::{Norm, Qsgd};
use testkit::local_world;
use testkit::support::{Shape, world};
use transport::{Rank, Transport, block_on};
use transport_mpi::{MpiTransport, Options};

fn main() -> ExitCode {
    match part() {
        None => in_worlds_of(&[("collectives", &[1, 2, 3, 4, 7])]),
        Some(_) => play(|mpi| {
            // The transport sees bytes: two types of different lengths.
            sums_have_the_bits_of_a_world_of_threads::<f32>(mpi);
            sums_have_the_bits_of_a_world_of_threads::<bf16>(mpi);
            global_topk_is_that_of_a_world_of_threads(mpi);
            blocks_reach_every_rank(mpi);
            ranks_that_differ_are_named_on_every_rank(mpi);
            a_rank_that_leaves_is_named_on_every_other(mpi);
        }),
    }
}

/// Runs this rank's part on a transport of its own, and serves the others until all have ended.
fn with_transport<R>(mpi: &SimpleCommunicator, part: impl AsyncFnOnce(MpiTransport) -> R) -> R {
    let transport = MpiTransport::new(mpi, &Options::default()).unwrap();
    let result = block_on(part(transport.clone()));
    meet(mpi, Some(&transport));
    result
}

/// What this rank computes over MPI and in a world of threads.
fn both<R: Send>(
    mpi: &SimpleCommunicator,
    part: impl AsyncFn(&Communicator<transport::AnyTransport>) -> R + Sync,
) -> (R, R) {
    let over_mpi = with_transport(mpi, async |transport| {
        let communicator = Communicator::new(transport::AnyTransport::new(transport));
        (part(&communicator).await, communicator.rank().index(), communicator.world_size())
    });
    let (over_mpi, rank, ranks) = over_mpi;
    let in_threads = std::thread::scope(|scope| {
        let world: Vec<_> = local_world(ranks).into_iter().map(transport::AnyTransport::new).collect();
        let threads: Vec<_> = world
            .into_iter()
            .map(|transport| scope.spawn(|| block_on(part(&Communicator::new(transport)))))
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).nth(rank).unwrap()
    });
    (over_mpi, in_threads)
}

fn sums_have_the_bits_of_a_world_of_threads<E: Element>(mpi: &SimpleCommunicator) {
    let (over_mpi, in_threads) = both(mpi, async |communicator| {
        let ranks = communicator.world_size();
        let mut sums = Vec::new();
        for dim in dims(ranks) {
            for shape in Shape::ALL {
                let input = &world::<E>(shape, ranks, dim, dim + 1)[communicator.rank().index()];
                for algorithm in Algorithm::all() {
                    let what = format!("P = {ranks}, N = {dim}, {shape:?}, {}, {algorithm:?}", E::DTYPE);
                    let sum = algorithm.sum(communicator, input).await;
                    sums.push((bits(&sum.unwrap_or_else(|error| panic!("{what}: {error}"))), what));
                }
            }
        }
        let quantizer = Arc::new(Qsgd::new(4, 64, Norm::Max).unwrap());
        let quantized = SparseAlgorithm::DsarQuantized { quantizer, seed: 7, step: 3 };
        if E::DTYPE == sparse_core::DType::F32 {
            let input = &world::<E>(Shape::Random, ranks, 1000, 5)[communicator.rank().index()];
            let sum = communicator.allreduce(input, &quantized).await.unwrap();
            sums.push((bits(&sum.into_dense()), "quantized".into()));
        }
        sums
    });
    for ((ours, what), (theirs, _)) in over_mpi.iter().zip(&in_threads) {
        assert!(ours == theirs, "{what}: other bits than in a world of threads");
    }
}

fn global_topk_is_that_of_a_world_of_threads(mpi: &SimpleCommunicator) {
    let (over_mpi, in_threads) = both(mpi, async |communicator| {
        let ranks = communicator.world_size();
        let mut results = Vec::new();
        for (algorithm, put_back) in GTOPK.into_iter().flat_map(|a| PUT_BACK.map(|put_back| (a, put_back))) {
            for shape in Shape::ALL {
                let input = &world::<f32>(shape, ranks, 1000, 9)[communicator.rank().index()];
                for k in [0, 1, 20, 2000] {
                    let result = communicator.gtopk(input, k, algorithm, put_back).await.unwrap();
                    results.push(format!("{algorithm:?}, {shape:?}, k = {k}: {result:?}"));
                }
            }
        }
        results
    });
    assert_eq!(over_mpi, in_threads);
}

fn blocks_reach_every_rank(mpi: &SimpleCommunicator) {
    let (over_mpi, in_threads) = both(mpi, async |communicator| {
        let own = vec![communicator.rank().0 as u8; 10_000 * communicator.rank().index()];
        communicator.barrier().await.unwrap();
        let all = communicator.allgather(own.clone().into()).await.unwrap();
        let mut roots = Vec::new();
        for root in (0..communicator.world_size()).map(Rank::from_index) {
            roots.push(communicator.broadcast(root, own.clone().into()).await.unwrap());
        }
        (all, roots)
    });
    assert_eq!(over_mpi, in_threads);
}

fn ranks_that_differ_are_named_on_every_rank(mpi: &SimpleCommunicator) {
    let ones = |dim: u64| SparseVec::<f32>::new(dim, vec![1, 2, 3], vec![1.0; 3]).unwrap();
    let size = with_transport(mpi, async |transport| transport.world_size());
    for odd in 0..if size == 1 { 0 } else { size } {
        let check = |what: &str, failed: Result<(), Error>| {
            let Err(error) = failed else { panic!("{what}: nobody noticed") };
            assert_eq!(error.kind(), ErrorKind::Mismatch, "{what}: {error}");
            assert!(error.to_string().contains(&format!("rank {odd}")), "{what}: {error}");
        };
        for algorithm in Algorithm::all() {
            let failed = with_transport(mpi, async |transport| {
                let dim = if transport.rank().index() == odd { 101 } else { 100 };
                algorithm.sum(&Communicator::new(transport), &ones(dim)).await.map(drop)
            });
            check(&format!("dimension, {algorithm:?}"), failed);
        }
        for algorithm in GTOPK {
            let failed = with_transport(mpi, async |transport| {
                let k = if transport.rank().index() == odd { 3 } else { 2 };
                Communicator::new(transport).gtopk(&ones(100), k, algorithm, PUT_BACK[0]).await.map(drop)
            });
            check(&format!("k, {algorithm:?}"), failed);
        }
    }
}

fn a_rank_that_leaves_is_named_on_every_other(mpi: &SimpleCommunicator) {
    for algorithm in Algorithm::all() {
        let transport = MpiTransport::new(mpi, &Options::default()).unwrap();
        let (rank, size) = (transport.rank().index(), transport.world_size());
        if size == 1 {
            return;
        }
        let leaver = size / 2;
        let kept = (rank != leaver).then(|| transport.clone());
        if rank == leaver {
            drop(transport);
        } else {
            let input = &world::<f32>(Shape::Random, size, 1000, 1)[rank];
            let error = block_on(algorithm.sum(&Communicator::new(transport), input)).unwrap_err();
            assert!(error.to_string().contains(&format!("rank {leaver}")), "{algorithm:?}: {error}");
        }
        meet(mpi, kept.as_ref());
    }
}
