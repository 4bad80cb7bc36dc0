//! What the methods have in common with plain SGD, and with each other.

use super::*;

/// Rank's gradient of 1/2 |a x - b|^2 for a few rows (a, b) of its own.
fn slope(values: &[f64], rank: u64) -> Vec<f64> {
    let mut slope = vec![0.0; values.len()];
    for row in 0..5 {
        let features = gradient(rank, 1000 + row, values.len() + 1);
        let (target, features) = features.split_first().unwrap();
        let error: f64 =
            features.iter().zip(values).map(|(a, x)| f64::from(*a) * x).sum::<f64>() - f64::from(*target);
        for (slope, a) in slope.iter_mut().zip(features) {
            *slope += error * f64::from(*a);
        }
    }
    slope
}

/// One process that sees all ranks' data.
fn single_process(start: &[f32], world_size: usize, momentum: f64, rate: f64, steps: usize) -> Vec<f64> {
    let mut values: Vec<f64> = start.iter().copied().map(f64::from).collect();
    let mut velocity = vec![0.0; values.len()];
    for _ in 0..steps {
        let slopes: Vec<_> = (0..world_size as u64).map(|rank| slope(&values, rank)).collect();
        for i in 0..values.len() {
            let mean = slopes.iter().map(|s| s[i]).sum::<f64>() / world_size as f64;
            velocity[i] = momentum * velocity[i] + mean;
            values[i] -= rate * velocity[i];
        }
    }
    values
}

async fn distributed(transport: LocalTransport, config: Config, rate: f32, steps: usize) -> Worker {
    let mut worker = Worker::new(transport, config);
    for _ in 0..steps {
        let values: Vec<f64> = worker.values.iter().copied().map(f64::from).collect();
        let slope: Vec<f32> = slope(&values, worker.rank()).into_iter().map(|s| s as f32).collect();
        worker.step(&slope, rate).await.unwrap();
    }
    worker
}

#[test]
fn dense_is_sgd_with_momentum_on_the_whole_batch() {
    for size in [1, 3, 4] {
        for algorithm in [DenseAlgorithm::Ring, DenseAlgorithm::RecursiveDoubling] {
            for momentum in [0.0, 0.5] {
                let config = Config { momentum, ..Config::new(Method::Dense(algorithm), constant(1.0)) };
                let workers = run(size, async |t| distributed(t, config.clone(), 0.02, 30).await.values);
                let start = Worker::new(testkit::local_world(1).remove(0), config.clone()).values;
                let oracle = single_process(&start, size, momentum.into(), 0.02_f32.into(), 30);
                assert_close(&workers[0], &oracle, &format!("{config:?} on {size}"));
            }
        }
    }
}

#[test]
fn density_one_is_sgd_with_momentum_unless_masked() {
    for size in [1, 2, 5, 8] {
        for method in methods() {
            for (momentum, momentum_masking) in [(0.0, false), (0.5, false), (0.5, true)] {
                let config =
                    Config { momentum, momentum_masking, ..Config::new(method.clone(), constant(1.0)) };
                let workers = run(size, async |t| distributed(t, config.clone(), 0.02, 10).await);
                // A rank that sends everything forgets all its velocity.
                let masked = momentum_masking && !matches!(method, Method::Dense(_));
                let momentum = if masked { 0.0 } else { momentum.into() };
                let start = Worker::new(testkit::local_world(1).remove(0), config.clone()).values;
                let oracle = single_process(&start, size, momentum, 0.02_f32.into(), 10);
                assert_close(&workers[0].values, &oracle, &format!("{config:?} on {size}"));
                assert!(workers.iter().all(|w| w.optimizer.residual().iter().all(|v| *v == 0.0)));
            }
        }
    }
}

#[test]
fn recursive_doubling_gives_the_same_bits_sparse_and_dense() {
    for size in 1..=9 {
        let of = |method: Method| {
            let config = Config::new(method, constant(1.0));
            run(size, async |t| bits(&distributed(t, config.clone(), 0.02, 5).await.values)).remove(0)
        };
        assert_eq!(
            of(Method::Dense(DenseAlgorithm::RecursiveDoubling)),
            of(Method::Sparse(SparseAlgorithm::SsarRecursiveDoubling)),
            "on {size}"
        );
    }
}

#[test]
fn every_method_keeps_the_replicas_the_same_bits() {
    for size in [1, 2, 3, 7, 8] {
        for method in methods() {
            for put_back in PUT_BACK {
                let config = Config { put_back, ..rich(method.clone()) };
                let replicas = run(size, async |transport| {
                    let mut worker = Worker::new(transport, config.clone());
                    for step in 0..8 {
                        let gradient = gradient(worker.rank(), step, ENTRIES);
                        worker.step(&gradient, 0.1).await.unwrap();
                    }
                    let parameters = parameters(&mut worker.values, &[0.0; ENTRIES]);
                    let hash = worker.optimizer.check_replicas(&parameters).await.unwrap();
                    assert_eq!(hash, sparse_sgd::parameters_hash(&parameters));
                    bits(&worker.values)
                });
                all_equal(&replicas);
            }
        }
    }
}

#[test]
fn a_replica_that_differs_is_named_on_every_rank() {
    let errors = run(4, async |transport| {
        let mut worker = Worker::new(transport, rich(Method::Dense(DenseAlgorithm::Ring)));
        if worker.rank() == 2 {
            // The last bit of one value.
            worker.values[ENTRIES - 1] = worker.values[ENTRIES - 1].next_up();
        }
        let pairs = [("w", &worker.values[..])];
        worker.optimizer.check_replicas(pairs).await.unwrap_err()
    });
    for error in errors {
        assert_eq!(error.peer(), Some(transport::Rank(2)));
        assert_eq!(error.kind(), sparse_sgd::ErrorKind::ReplicasDiffer);
    }
}

#[test]
fn a_not_a_number_reaches_every_replica() {
    for method in methods() {
        for broken in [f32::NAN, f32::INFINITY] {
            let config = rich(method.clone());
            let replicas = run(5, async |transport| {
                let mut worker = Worker::new(transport, config.clone());
                let mut gradient = gradient(worker.rank(), 0, ENTRIES);
                if worker.rank() == 3 {
                    gradient[30] = broken;
                }
                worker.step(&gradient, 0.1).await.unwrap();
                worker.values
            });
            for values in replicas {
                let finite: Vec<_> = (0..ENTRIES).filter(|i| !values[*i].is_finite()).collect();
                assert_eq!(finite, [30], "{method:?}");
                assert_eq!(values[30].is_nan(), broken.is_nan());
            }
        }
    }
}

#[test]
fn clipping_is_a_smaller_gradient() {
    // A gradient of norm 5, a bound of 5 and four ranks: half of it passes.
    for method in methods() {
        let updates = [None, Some(5.0)].map(|clip_norm| {
            let config = Config { clip_norm, ..Config::new(method.clone(), constant(1.0)) };
            let replicas = run(4, async |transport| {
                let mut worker = Worker::new(transport, config.clone());
                worker.values = vec![0.0; ENTRIES];
                let mut gradient = [0.0; ENTRIES];
                (gradient[0], gradient[ENTRIES - 1]) = (3.0, -4.0);
                worker.step(&gradient, 1.0).await.unwrap();
                worker.values
            });
            (replicas[0][0], replicas[0][ENTRIES - 1])
        });
        assert_eq!(updates, [(-3.0, 4.0), (-1.5, 2.0)], "{method:?}");
    }
}

#[test]
fn empty_models_and_more_ranks_than_entries_work() {
    for method in methods() {
        for len in [0, 1, 2] {
            let config = rich(method.clone());
            let replicas = run(5, async |transport| {
                let rank = transport::Transport::rank(&transport).0;
                let mut optimizer = Optimizer::new(Communicator::new(transport), config.clone()).unwrap();
                let (mut values, gradient) = (vec![0.0; len], vec![rank as f32; len]);
                for _ in 0..3 {
                    let parameter = Parameter { name: "w", values: &mut values, gradient: &gradient };
                    optimizer.step(&mut [parameter], 0.1).await.unwrap();
                }
                optimizer.step(&mut [], 0.1).await.unwrap_err();
                bits(&values)
            });
            all_equal(&replicas);
            let nothing = run(3, async |transport| {
                let mut optimizer = Optimizer::new(Communicator::new(transport), config.clone()).unwrap();
                optimizer.step(&mut [], 0.1).await.unwrap().nnz_result
            });
            assert_eq!(nothing, [0; 3]);
        }
    }
}
