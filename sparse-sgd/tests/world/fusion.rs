//! Layers in buckets, each with a sum of its own.

use std::time::Duration;

use collectives::Progress;
use sparse_sgd::{ErrorKind, Limits};

use super::*;

/// Buckets of the layers `head` and `bias`, and of `weight`, which the second of these cuts.
const LIMITS: [Limits; 2] = [Limits::bytes(4 * 15), Limits { bytes: 4 * 15, cut: 4 * 9 }];

fn fused(method: Method, limits: Limits) -> Config {
    Config { fusion: Some(limits), ..rich(method) }
}

/// The layers in an order of this rank's own.
fn order(rank: u64, step: u64) -> Vec<usize> {
    let mut layers: Vec<_> = (0..SHAPES.len()).collect();
    layers.sort_by_key(|layer| hash(rank, step, *layer as u64));
    layers
}

/// The part of what runs over all layers that is this layer's.
fn of_layer(all: &[f32], layer: usize) -> &[f32] {
    let start: usize = SHAPES[..layer].iter().map(|(_, len)| len).sum();
    &all[start..start + SHAPES[layer].1]
}

/// A step by layers in an order of the rank's own.
async fn layerwise(worker: &mut Worker, step: u64, gradient: &[f32]) -> Result<StepReport, Error> {
    let order = order(worker.rank(), step);
    let mut by_layer = worker.optimizer.begin(&SHAPES).unwrap();
    for layer in order {
        by_layer.ready(layer, of_layer(gradient, layer)).unwrap();
    }
    let mut parameters = parameters(&mut worker.values, gradient);
    let mut values: Vec<_> = parameters.iter_mut().map(|p| &mut *p.values).collect();
    by_layer.finish(&mut values, 0.1).await
}

#[test]
fn any_order_of_readiness_gives_the_same_bits() {
    for method in methods() {
        for limits in LIMITS {
            for clip_norm in [None, Some(3.0)] {
                let config = Config { clip_norm, ..fused(method.clone(), limits) };
                let run_with = |size, by_layer: bool| {
                    run(size, async |transport| {
                        let mut worker = Worker::new(transport, config.clone());
                        let mut counts = Vec::new();
                        for step in 0..4 {
                            let gradient = gradient(worker.rank(), step, ENTRIES);
                            let report = if by_layer {
                                layerwise(&mut worker, step, &gradient).await.unwrap()
                            } else {
                                worker.step(&gradient, 0.1).await.unwrap()
                            };
                            counts.push((report.k, report.nnz_selected, report.nnz_result));
                        }
                        (worker.bits(), counts)
                    })
                };
                for size in [1, 2, 5] {
                    let replicas = run_with(size, true);
                    all_equal(&replicas.iter().map(|(bits, _)| bits[0].clone()).collect::<Vec<_>>());
                    assert_eq!(replicas, run_with(size, false), "{config:?} on {size}");
                }
            }
        }
    }
}

#[test]
fn dense_sums_of_buckets_are_those_of_the_whole() {
    for algorithm in [DenseAlgorithm::RecursiveDoubling, DenseAlgorithm::Ring, DenseAlgorithm::Rabenseifner] {
        for size in 1..=9 {
            let [whole, buckets, cut] = [None, Some(LIMITS[0]), Some(LIMITS[1])].map(|fusion| {
                let config = Config { fusion, ..rich(Method::Dense(algorithm)) };
                let replicas = run(size, async |transport| {
                    let mut worker = Worker::new(transport, config.clone());
                    for step in 0..3 {
                        // Doubling adds in the same order wherever an entry is; elsewhere whole numbers are exact.
                        let gradient = match algorithm {
                            DenseAlgorithm::RecursiveDoubling => gradient(worker.rank(), step, ENTRIES),
                            _ => whole_gradient(worker.rank(), step, ENTRIES),
                        };
                        worker.optimizer = without_clipping(&worker, &config);
                        worker.step(&gradient, 0.1).await.unwrap();
                    }
                    worker.bits()
                });
                all_equal(&replicas);
                replicas[0].clone()
            });
            assert_eq!(whole, buckets, "{algorithm:?} on {size}");
            assert_eq!(whole, cut, "{algorithm:?} on {size}");
        }
    }
}

/// Clipped gradients are no whole numbers.
fn without_clipping(worker: &Worker, config: &Config) -> Optimizer<LocalTransport> {
    let communicator = worker.optimizer.communicator().clone();
    let mut optimizer = Optimizer::new(communicator, Config { clip_norm: None, ..config.clone() }).unwrap();
    optimizer.load_state(worker.optimizer.state()).unwrap();
    optimizer
}

#[test]
fn buckets_step_as_optimizers_of_their_own() {
    for method in methods() {
        for size in [1, 4] {
            let config = Config { clip_norm: None, ..fused(method.clone(), LIMITS[0]) };
            let replicas = run(size, async |transport| {
                let mut worker = Worker::new(transport.clone(), config.clone());
                let alone = [(1, 0..23), (2, 23..ENTRIES)];
                let mut alone = alone.map(|(context, entries)| {
                    let options = Options::default().context(context);
                    let communicator = Communicator::with_options(transport.clone(), options);
                    let values = worker.values[entries.clone()].to_vec();
                    let whole = Config { fusion: None, ..config.clone() };
                    (entries, values, Optimizer::new(communicator, whole).unwrap())
                });
                for step in 0..5 {
                    let gradient = gradient(worker.rank(), step, ENTRIES);
                    worker.step(&gradient, 0.1).await.unwrap();
                    for (entries, values, optimizer) in &mut alone {
                        let gradient = &gradient[entries.clone()];
                        optimizer.step(&mut [Parameter { name: "w", values, gradient }], 0.1).await.unwrap();
                    }
                }
                let values = alone.each_ref().map(|(_, values, _)| bits(values)).concat();
                let residual = alone.each_ref().map(|(.., optimizer)| bits(optimizer.residual())).concat();
                assert_eq!(worker.bits()[..2], [values, residual], "{method:?}");
                bits(&worker.values)
            });
            all_equal(&replicas);
        }
    }
}

#[test]
fn each_bucket_selects_by_itself() {
    for method in methods().into_iter().filter(|m| !matches!(m, Method::Dense(_))) {
        let config = Config { fusion: Some(LIMITS[0]), ..Config::new(method.clone(), constant(0.1)) };
        let replicas = run(1, async |transport| {
            let mut worker = Worker::new(transport, config.clone());
            worker.values = vec![0.0; ENTRIES];
            // The largest entries are all in the first layer.
            let gradient: Vec<f32> = (0..ENTRIES).map(|i| (ENTRIES - i) as f32).collect();
            let report = worker.step(&gradient, 1.0).await.unwrap();
            assert_eq!((report.k, report.nnz_selected), (3, 3));
            (0..ENTRIES).filter(|i| worker.values[*i] != 0.0).collect::<Vec<_>>()
        });
        // Two of 23 entries, and one of 14.
        assert_eq!(replicas, [vec![0, 1, 23]], "{method:?}");
    }
}

#[test]
fn nothing_is_lost_between_buckets() {
    for method in methods().into_iter().filter(|m| !matches!(m, Method::Dense(_))) {
        for size in [1, 3, 4] {
            let config = Config { fusion: Some(LIMITS[1]), ..Config::new(method.clone(), constant(0.1)) };
            let outputs = run(size, async |transport| {
                let mut worker = Worker::new(transport, config.clone());
                let mut totals = vec![0; ENTRIES];
                let first = worker.rank() == 0;
                for step in 0..60 {
                    let gradient = whole_gradient(worker.rank(), step, ENTRIES);
                    worker.values = vec![0.0; ENTRIES];
                    worker.step(&gradient, size as f32).await.unwrap();
                    for i in 0..ENTRIES {
                        let applied = if first { worker.values[i].round() as i64 } else { 0 };
                        totals[i] += gradient[i] as i64 + applied;
                    }
                }
                let residual = worker.optimizer.residual();
                (0..ENTRIES).map(|i| totals[i] - residual[i] as i64).collect::<Vec<_>>()
            });
            let left: Vec<i64> = (0..ENTRIES).map(|i| outputs.iter().map(|rank| rank[i]).sum()).collect();
            assert_eq!(left, [0; ENTRIES], "{method:?} on {size}");
        }
    }
}

#[test]
fn a_bucket_that_fails_changes_nothing() {
    for method in methods() {
        run(3, async |transport| {
            let mut worker = Worker::new(transport, fused(method.clone(), LIMITS[0]));
            for step in 0..3 {
                let gradient = gradient(worker.rank(), step, ENTRIES);
                worker.step(&gradient, 0.1).await.unwrap();
            }
            worker.everyone().await;
            let before = worker.bits();
            let gradient = gradient(worker.rank(), 3, ENTRIES);
            if worker.rank() == 1 {
                // Its first bucket is that of the others, and its second is not.
                let mut other = worker.optimizer.state();
                other.buckets = vec![14, 13, 10];
                worker.optimizer.load_state(other).unwrap();
            }
            let error = worker.step(&gradient, 0.1).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Collective, "{error}");
            assert_eq!(worker.bits(), before, "{method:?}");
        });
    }
}

#[test]
fn a_step_that_ends_early_changes_nothing_and_nobody_waits_for_it() {
    for method in methods() {
        let config = Config { clip_norm: None, ..fused(method, LIMITS[0]) };
        run(3, async |transport| {
            let mut worker = Worker::new(transport, config.clone());
            let gradient = gradient(worker.rank(), 0, ENTRIES);
            worker.step(&gradient, 0.1).await.unwrap();
            worker.everyone().await;
            let before = worker.bits();
            if worker.rank() == 1 {
                let mut step = worker.optimizer.begin(&SHAPES).unwrap();
                step.ready(3, of_layer(&gradient, 3)).unwrap();
                step.ready(2, of_layer(&gradient, 2)).unwrap();
                // The first bucket is on its way, and the second will not come.
                drop(step);
            } else {
                let error = layerwise(&mut worker, 1, &gradient).await.unwrap_err();
                assert_eq!(error.peer(), Some(transport::Rank(1)), "{error}");
            }
            assert_eq!(worker.bits(), before);
            worker.everyone().await;
        });
    }
}

#[test]
fn a_step_dropped_before_it_launched_anything_is_as_if_never_begun() {
    run(2, async |transport| {
        let mut worker = Worker::new(transport, fused(methods().remove(0), LIMITS[0]));
        let gradient = gradient(worker.rank(), 0, ENTRIES);
        let mut step = worker.optimizer.begin(&SHAPES).unwrap();
        step.ready(0, of_layer(&gradient, 0)).unwrap();
        drop(step);
        layerwise(&mut worker, 0, &gradient).await.unwrap();
    });
}

#[test]
fn a_layer_is_handed_over_once_and_whole() {
    for clip_norm in [None, Some(3.0)] {
        run(1, async |transport| {
            let config = Config { clip_norm, ..fused(methods().remove(3), LIMITS[0]) };
            let mut worker = Worker::new(transport, config);
            let mut step = worker.optimizer.begin(&SHAPES).unwrap();
            step.ready(3, &[1.0; 13]).unwrap();
            let refusals = [
                (step.ready(3, &[1.0; 13]), "layer 3 (`head`) was handed over before in this step"),
                (step.ready(4, &[1.0; 1]), "layer 4 does not exist: there are 4"),
                (step.ready(0, &[1.0; 22]), "the gradient of `weight` has 22 entries for 23 values"),
            ];
            for (refusal, says) in refusals {
                assert_eq!(refusal.unwrap_err().to_string(), says);
            }
            step.ready(0, &[1.0; 23]).unwrap();
            step.ready(1, &[]).unwrap();
            let (mut a, mut b, mut c, mut d) = ([0.0; 23], [], [0.0; 1], [0.0; 13]);
            let error = step.finish(&mut [&mut a, &mut b, &mut c, &mut d], 1.0).await.unwrap_err();
            assert_eq!(error.to_string(), "layer 2 (`bias`) has not been handed over");
        });
    }
}

#[test]
fn other_values_are_refused_at_the_end() {
    for count in [3, 5] {
        run(1, async |transport| {
            let mut worker = Worker::new(transport, fused(methods().remove(3), LIMITS[0]));
            let mut step = worker.optimizer.begin(&SHAPES).unwrap();
            for (layer, (_, len)) in SHAPES.iter().enumerate() {
                step.ready(layer, &vec![1.0; *len]).unwrap();
            }
            let lens = [23, 0, 1, 13, 0];
            let mut values: Vec<Vec<f32>> = lens[..count].iter().map(|len| vec![0.0; *len]).collect();
            let mut values: Vec<&mut [f32]> = values.iter_mut().map(|v| &mut v[..]).collect();
            let error = step.finish(&mut values, 1.0).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::ParameterCount, "{error}");
        });
    }
}

#[test]
fn without_a_thread_of_its_own_whoever_waits_makes_progress() {
    for method in methods() {
        let hashes = run(4, async |transport| {
            let options = Options::default().progress(Progress::Caller).deadline(Duration::from_secs(20));
            let communicator = Communicator::with_options(transport.clone(), options);
            let mut worker = Worker::new(transport, fused(method.clone(), LIMITS[1]));
            worker.optimizer = Optimizer::new(communicator, worker.optimizer.config().clone()).unwrap();
            for step in 0..3 {
                let gradient = gradient(worker.rank(), step, ENTRIES);
                layerwise(&mut worker, step, &gradient).await.unwrap();
            }
            bits(&worker.values)
        });
        all_equal(&hashes);
    }
}

#[test]
fn buckets_by_time_are_the_same_on_all_ranks_and_part_of_the_state() {
    for method in methods() {
        let run_with = |interrupt: bool, buckets: Option<Vec<usize>>| {
            run(3, async |transport| {
                let limits = Limits::bytes(4 * 24);
                let config = Config { fusion: Some(LIMITS[0]), ..rich(method.clone()) };
                let mut worker = Worker::new(transport, config.clone());
                let before = worker.optimizer.fuse_by_time(limits).await.unwrap_err();
                assert_eq!(before.kind(), ErrorKind::Layer);
                let first = gradient(worker.rank(), 0, ENTRIES);
                layerwise(&mut worker, 0, &first).await.unwrap();
                worker.optimizer.fuse_by_time(limits).await.unwrap();
                let mut state = worker.optimizer.state();
                if let Some(buckets) = &buckets {
                    // What the first run measured.
                    state.buckets.clone_from(buckets);
                    worker.optimizer.load_state(state.clone()).unwrap();
                }
                if interrupt {
                    let communicator = worker.optimizer.communicator().clone();
                    worker.optimizer = Optimizer::new(communicator, config.clone()).unwrap();
                    worker.optimizer.load_state(state.clone()).unwrap();
                }
                for step in 1..4 {
                    let gradient = gradient(worker.rank(), step, ENTRIES);
                    layerwise(&mut worker, step, &gradient).await.unwrap();
                }
                assert_eq!(worker.optimizer.state().buckets, state.buckets);
                (state.buckets, worker.bits())
            })
        };
        let uninterrupted = run_with(false, None);
        let buckets = uninterrupted[0].0.clone();
        assert!(uninterrupted.iter().all(|(other, _)| *other == buckets));
        assert_eq!(run_with(true, Some(buckets)), uninterrupted);
    }
}

#[test]
fn empty_models_and_layers_without_entries_work() {
    for method in methods() {
        for shapes in [&[][..], &[("a", 0)], &[("a", 0), ("b", 3), ("c", 0), ("d", 2)]] {
            for clip_norm in [None, Some(1.0)] {
                let config = Config { clip_norm, ..fused(method.clone(), Limits::bytes(8)) };
                let replicas = run(3, async |transport| {
                    let mut optimizer = Optimizer::new(Communicator::new(transport), config.clone()).unwrap();
                    let mut values: Vec<Vec<f32>> = shapes.iter().map(|(_, len)| vec![0.0; *len]).collect();
                    let mut step = optimizer.begin(shapes).unwrap();
                    for (layer, (_, len)) in shapes.iter().enumerate() {
                        step.ready(layer, &vec![1.0; *len]).unwrap();
                    }
                    let mut slices: Vec<_> = values.iter_mut().map(|v| &mut v[..]).collect();
                    step.finish(&mut slices, 1.0).await.unwrap();
                    assert_eq!(optimizer.steps(), 1);
                    values.concat()
                });
                all_equal(&replicas);
                assert!(replicas[0].is_empty() || replicas[0].iter().any(|value| *value < 0.0));
            }
        }
    }
}

#[test]
fn a_plan_that_is_loaded_has_the_parameters_entries() {
    run(1, async |transport| {
        let mut worker = Worker::new(transport, fused(methods().remove(0), LIMITS[0]));
        worker.step(&[1.0; ENTRIES], 0.1).await.unwrap();
        let state = worker.optimizer.state();
        assert!(state.buckets.is_empty());
        for buckets in [vec![ENTRIES + 1], vec![1, 1], vec![usize::MAX, ENTRIES + 1]] {
            let state = OptimizerState { buckets, ..state.clone() };
            assert_eq!(worker.optimizer.load_state(state).unwrap_err().kind(), ErrorKind::State);
        }
    });
}
