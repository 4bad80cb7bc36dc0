//! An algorithm that rounds at random.

use std::sync::Arc;

use sparse_core::SparseVec;
use sparse_quant::{Norm, Qsgd};

use super::*;

fn quantized(step: u64) -> Method {
    let quantizer = Arc::new(Qsgd::new(4, 8, Norm::Max).unwrap());
    Method::Sparse(SparseAlgorithm::DsarQuantized { quantizer, seed: 7, step })
}

#[test]
fn quantized_sums_keep_the_replicas_the_same_bits() {
    for size in [1, 3, 4] {
        let replicas = run(size, async |transport| {
            let mut worker = Worker::new(transport, rich(quantized(0)));
            for step in 0..6 {
                let gradient = gradient(worker.rank(), step, ENTRIES);
                worker.step(&gradient, 0.1).await.unwrap();
            }
            bits(&worker.values)
        });
        all_equal(&replicas);
    }
}

/// The updates that the same gradient makes in each of four calls, the second of them on a parameter whose
/// gradient is sparse.
fn updates(first: u64) -> Vec<Vec<u32>> {
    let replicas = run(3, async |transport| {
        let mut worker = Worker::new(transport, Config::new(quantized(first), constant(1.0)));
        let gradient = gradient(worker.rank(), 0, ENTRIES);
        let sparse = SparseVec::from_dense(&gradient).unwrap();
        let mut updates = Vec::new();
        for call in 0..4 {
            worker.values = vec![0.0; ENTRIES];
            if call == 1 {
                worker.optimizer.step_sparse("w", &mut worker.values, &sparse, 1.0).await.unwrap();
            } else {
                worker.step(&gradient, 1.0).await.unwrap();
            }
            updates.push(bits(&worker.values));
        }
        updates
    });
    replicas[0].clone()
}

#[test]
fn no_two_calls_round_alike_and_two_runs_do() {
    let (first, second) = (updates(0), updates(0));
    assert_eq!(first, second);
    for (i, update) in first.iter().enumerate() {
        assert!(!first[..i].contains(update), "call {i}");
    }
    // The configured step is that of the first call.
    assert_eq!(first[1..], updates(1)[..3]);
}

#[test]
fn a_not_a_number_is_refused_and_changes_nothing() {
    run(3, async |transport| {
        let mut worker = Worker::new(transport, rich(quantized(0)));
        let mut gradient = gradient(worker.rank(), 0, ENTRIES);
        worker.step(&gradient, 0.1).await.unwrap();
        worker.everyone().await;
        let before = worker.bits();
        if worker.rank() == 1 {
            gradient[5] = f32::NAN;
        }
        let error = worker.step(&gradient, 0.1).await.unwrap_err();
        assert_eq!(error.kind(), sparse_sgd::ErrorKind::Collective);
        assert_eq!(worker.bits(), before);
    });
}
