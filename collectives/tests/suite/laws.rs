//! What every allreduce must do, at every world size, dimension, support shape and type.

use collectives::{Communicator, SparseAlgorithm};
use half::bf16;
use sparse_core::{DType, Element, SparseVec};
use sparse_quant::{Norm, Qsgd, Quantizer};
use std::sync::Arc;
use testkit::run_world;
use testkit::support::{Shape, world};
use transport::{AnyTransport, Transport};

use crate::common::{Algorithm, bits, dims};
use crate::worlds::{delayed, local_world};

/// One world's inputs.
struct Case<E> {
    name: String,
    inputs: Vec<SparseVec<E>>,
}

fn cases<E: Element>(ranks: usize) -> Vec<Case<E>> {
    let mut cases = Vec::new();
    for dim in dims(ranks) {
        for shape in Shape::ALL {
            let name = format!("P = {ranks}, N = {dim}, {shape:?}, {}", E::DTYPE);
            cases.push(Case { name, inputs: world(shape, ranks, dim, dim + ranks as u64) });
        }
    }
    cases
}

/// Sums every case with every algorithm; by rank, then case, then algorithm.
fn sums<E: Element>(transports: Vec<AnyTransport>, cases: &[Case<E>]) -> Vec<Vec<Vec<Vec<E>>>> {
    run_world(transports, |transport| async move {
        let communicator = Communicator::new(transport);
        let mut sums = Vec::new();
        for case in cases {
            let mut by_algorithm = Vec::new();
            for algorithm in Algorithm::all() {
                let input = &case.inputs[communicator.rank().index()];
                let sum = algorithm.sum(&communicator, input).await;
                by_algorithm
                    .push(sum.unwrap_or_else(|error| panic!("{}, {algorithm:?}: {error}", case.name)));
            }
            sums.push(by_algorithm);
        }
        sums
    })
}

/// Half a unit in the last place of 1, for one rounding.
fn epsilon(dtype: DType) -> f64 {
    match dtype {
        DType::F32 => f64::from(f32::EPSILON) / 2.0,
        DType::F64 => f64::EPSILON / 2.0,
        DType::F16 => half::f16::EPSILON.to_f64() / 2.0,
        DType::Bf16 => bf16::EPSILON.to_f64() / 2.0,
        DType::I32 | DType::I64 => 0.0,
    }
}

fn check<E: Element>() {
    for ranks in 1..=9 {
        let cases = cases::<E>(ranks);
        let by_rank = sums(local_world(ranks), &cases);
        for (index, case) in cases.iter().enumerate() {
            let dim = case.inputs[0].dim() as usize;
            let (mut exact, mut magnitude) = (vec![0.0; dim], vec![0.0; dim]);
            for (at, value) in case.inputs.iter().flat_map(SparseVec::iter) {
                exact[at as usize] += value.to_f64();
                magnitude[at as usize] += value.to_f64().abs();
            }
            for (choice, algorithm) in Algorithm::all().iter().enumerate() {
                let name = format!("{}, {algorithm:?}", case.name);
                let first = &by_rank[0][index][choice];
                assert_eq!(first.len(), dim, "{name}");
                for (at, value) in first.iter().enumerate() {
                    // At most one rounding for each of the P-1 additions, and one at the end.
                    let bound = ranks as f64 * epsilon(E::DTYPE) * magnitude[at];
                    let error = (value.to_f64() - exact[at]).abs();
                    assert!(error <= bound, "{name}: {value:?} at {at} where {} belongs", exact[at]);
                }
                for (rank, sums) in by_rank.iter().enumerate() {
                    assert_eq!(bits(&sums[index][choice]), bits(first), "{name}: rank {rank} has other bits");
                }
            }
        }
    }
}

#[test]
fn every_sum_of_f32_is_the_oracles_and_the_same_on_all_ranks() {
    check::<f32>();
}

#[test]
fn every_sum_of_f64_is_the_oracles_and_the_same_on_all_ranks() {
    check::<f64>();
}

#[test]
fn every_sum_of_bf16_is_the_oracles_and_the_same_on_all_ranks() {
    check::<bf16>();
}

#[test]
fn every_sum_of_i32_is_the_oracles_and_the_same_on_all_ranks() {
    check::<i32>();
}

#[test]
fn delays_do_not_change_a_bit() {
    for ranks in [2, 3, 4, 7, 8] {
        let cases: Vec<Case<f32>> =
            cases(ranks).into_iter().filter(|case| case.inputs[0].dim() > 1).collect();
        let calm = sums(local_world(ranks), &cases);
        for seed in 0..2 {
            let delayed = delayed(local_world(ranks), seed);
            let shaken = sums(delayed, &cases);
            for (calm, shaken) in calm.iter().flatten().flatten().zip(shaken.iter().flatten().flatten()) {
                assert_eq!(bits(calm), bits(shaken));
            }
        }
    }
}

#[test]
fn nan_reaches_every_rank_with_the_same_bits() {
    let inputs = |rank: usize| {
        // Two NaN of different payloads meet at index 3; one alone stands at index 5.
        let payload = f32::from_bits(0x7fc0_0001 + rank as u32);
        let lone = if rank == 2 { f32::from_bits(0xffc0_1234) } else { 1.0 };
        SparseVec::new(40, vec![3, 5], vec![payload, lone]).unwrap()
    };
    for ranks in 3..=9 {
        for algorithm in Algorithm::all() {
            let (inputs, algorithm) = (&inputs, &algorithm);
            let sums = run_world(local_world(ranks), |transport| async move {
                let communicator = Communicator::new(transport);
                algorithm.sum(&communicator, &inputs(communicator.rank().index())).await.unwrap()
            });
            for sum in &sums {
                assert!(sum[3].is_nan() && sum[5].is_nan(), "{algorithm:?}: {sum:?}");
                assert_eq!(bits(sum), bits(&sums[0]), "{algorithm:?}, P = {ranks}");
            }
        }
    }
}

#[test]
fn a_quantized_sum_is_near_and_the_same_on_all_ranks() {
    for ranks in 1..=9 {
        for bits_per_value in [2, 4, 8] {
            let quantizer: Arc<dyn Quantizer> = Arc::new(Qsgd::new(bits_per_value, 64, Norm::Max).unwrap());
            let algorithm = SparseAlgorithm::DsarQuantized { quantizer, seed: 7, step: 1 };
            let inputs: Vec<SparseVec<f32>> = world(Shape::Random, ranks, 1000, 3);
            let (algorithm, inputs) = (&algorithm, &inputs);
            let sums = run_world(local_world(ranks), |transport| async move {
                let communicator = Communicator::new(transport);
                communicator
                    .allreduce(&inputs[communicator.rank().index()], algorithm)
                    .await
                    .unwrap()
                    .into_dense()
            });
            let mut exact = vec![0.0_f32; 1000];
            for (at, value) in inputs.iter().flat_map(SparseVec::iter) {
                exact[at as usize] += value;
            }
            let largest = exact.iter().fold(0.0_f32, |largest, value| largest.max(value.abs()));
            let step = largest / ((1 << (bits_per_value - 1)) - 1) as f32;
            for sum in &sums {
                assert_eq!(bits(sum), bits(&sums[0]), "P = {ranks}, {bits_per_value} bits");
                assert!(sum.iter().zip(&exact).all(|(sum, exact)| (sum - exact).abs() <= step * 1.001));
            }
        }
    }
}

#[test]
fn blocks_are_gathered_in_rank_order_and_broadcast_from_any_root() {
    for ranks in 1..=9 {
        run_world(local_world(ranks), |transport| async move {
            let communicator = Communicator::new(transport);
            let rank = communicator.rank().index();
            let block = |rank: usize| bytes::Bytes::from(vec![rank as u8; rank * 100]);
            let gathered = communicator.allgather(block(rank)).await.unwrap();
            assert_eq!(gathered, (0..ranks).map(block).collect::<Vec<_>>());
            for root in 0..ranks {
                let root = transport::Rank::from_index(root);
                let payload = communicator.broadcast(root, block(rank)).await.unwrap();
                assert_eq!(payload, block(root.index()));
            }
            communicator.barrier().await.unwrap();
        });
    }
}

#[test]
fn a_barrier_holds_everyone_until_the_last_has_come() {
    use std::sync::atomic::{AtomicUsize, Ordering};
    for ranks in 1..=9 {
        let arrived = &AtomicUsize::new(0);
        run_world(local_world(ranks), |transport| async move {
            let rank = transport.rank().index();
            let communicator = Communicator::new(transport);
            for round in 1..=20 {
                if round % ranks == rank {
                    communicator.transport().sleep(std::time::Duration::from_micros(300)).await;
                }
                arrived.fetch_add(1, Ordering::SeqCst);
                communicator.barrier().await.unwrap();
                assert!(arrived.load(Ordering::SeqCst) >= ranks * round);
            }
        });
    }
}

#[test]
fn operations_in_flight_together_do_not_mix() {
    for ranks in 1..=9 {
        let inputs: &Vec<Vec<SparseVec<i32>>> =
            &(0..6).map(|seed| world(Shape::Random, ranks, 200, seed)).collect::<Vec<_>>();
        run_world(local_world(ranks), |transport| async move {
            let communicator = Communicator::new(transport);
            let rank = communicator.rank().index();
            let algorithms = Algorithm::all();
            let started = inputs.iter().zip(&algorithms).map(|(inputs, algorithm)| {
                let communicator = communicator.clone();
                let input = &inputs[rank];
                async move { algorithm.sum(&communicator, input).await.unwrap() }
            });
            let sums = futures_util::future::join_all(started).await;
            for (sum, inputs) in sums.iter().zip(inputs) {
                assert_eq!(*sum, sparse_core::reduce(inputs).unwrap().to_dense());
            }
        });
    }
}

#[test]
fn futures_may_move_between_threads() {
    fn check(future: impl Future + Send) {
        drop(future);
    }
    let communicator = Communicator::new(local_world(1).remove(0));
    let mut output = [0.0];
    check(communicator.allreduce_dense(&[1.0], &mut output, collectives::DenseAlgorithm::Ring));
    check(communicator.barrier());
}
