//! Sums and means.

use std::sync::Arc;
use std::time::Duration;

use collectives::{Communicator, DenseAlgorithm, ErrorKind, Options, PutBack, Reduction, SparseAlgorithm};
use half::bf16;
use sparse_core::{Element, SparseVec, Stream, divide};
use sparse_quant::{Norm, Qsgd};
use testkit::run_world;
use testkit::support::{Shape, world};
use transport::{AnyTransport, Rank};

use crate::common::{Algorithm, GTOPK, bits};
use crate::worlds::local_world;

type Local = Communicator<AnyTransport>;

fn communicator(transport: AnyTransport) -> Local {
    Communicator::with_options(transport, Options::default().deadline(Duration::from_secs(20)))
}

fn quotients<E: Element>(mut sums: Vec<E>, ranks: usize) -> Vec<E> {
    divide(&mut sums, ranks as u32);
    sums
}

/// What a rank gets of everything that reduces, as values: name, and values.
async fn everything<E: Element>(communicator: &Local, input: &SparseVec<E>) -> Vec<(String, Vec<E>)> {
    let mut all = Vec::new();
    for algorithm in Algorithm::all() {
        all.push((format!("{algorithm:?}"), algorithm.sum(communicator, input).await.unwrap()));
    }
    let root = Rank::from_index(communicator.world_size() / 2);
    let sum = communicator.reduce(root, input).await.unwrap();
    all.push(("reduce".into(), sum.map(Stream::into_dense).unwrap_or_default()));
    let mut sum = vec![E::ZERO; if communicator.rank() == root { input.dim() as usize } else { 0 }];
    communicator.reduce_dense(root, &input.to_dense(), &mut sum).await.unwrap();
    all.push(("reduce_dense".into(), sum));
    all.push(("reduce_scatter".into(), communicator.reduce_scatter(input).await.unwrap().into_dense()));
    let range = communicator.range(input.dim());
    let mut part = vec![E::ZERO; (range.end - range.start) as usize];
    communicator.reduce_scatter_dense(&input.to_dense(), &mut part).await.unwrap();
    all.push(("reduce_scatter_dense".into(), part));
    all.push(("started".into(), {
        let algorithm = SparseAlgorithm::SsarSplitAllgather;
        communicator.start_allreduce(input.clone(), algorithm).await.unwrap().into_dense()
    }));
    all.push(("started dense".into(), {
        let algorithm = DenseAlgorithm::RecursiveDoubling;
        communicator.start_allreduce_dense(input.to_dense(), algorithm).await.unwrap()
    }));
    all
}

fn a_mean_is_the_sum_divided_once<E: Element>() {
    for ranks in 1..=9 {
        for (dim, shape) in [(0, Shape::Random), (2, Shape::Full), (400, Shape::Random), (400, Shape::Skewed)]
        {
            let inputs: &Vec<SparseVec<E>> = &world(shape, ranks, dim, 21);
            run_world(local_world(ranks), |transport| async move {
                let sums = communicator(transport);
                let means = sums.with_reduction(Reduction::Mean);
                let input = &inputs[sums.rank().index()];
                let of_sums = everything(&sums, input).await;
                for ((name, mean), (_, sum)) in everything(&means, input).await.into_iter().zip(of_sums) {
                    assert_eq!(bits(&mean), bits(&quotients(sum, ranks)), "{name}, P = {ranks}, {shape:?}");
                }
            });
        }
    }
}

#[test]
fn a_mean_of_f32_is_the_sum_divided_once() {
    a_mean_is_the_sum_divided_once::<f32>();
}

#[test]
fn a_mean_of_bf16_is_the_sum_divided_once() {
    a_mean_is_the_sum_divided_once::<bf16>();
}

#[test]
fn a_quantized_mean_is_the_sum_divided_once() {
    for ranks in 1..=5 {
        let inputs: &Vec<SparseVec<f32>> = &world(Shape::Random, ranks, 300, 2);
        run_world(local_world(ranks), |transport| async move {
            let sums = communicator(transport);
            let quantizer = Arc::new(Qsgd::new(4, 64, Norm::Max).unwrap());
            let algorithm = SparseAlgorithm::DsarQuantized { quantizer, seed: 7, step: 1 };
            let input = &inputs[sums.rank().index()];
            let sum = sums.allreduce(input, &algorithm).await.unwrap().into_dense();
            let mean = sums.with_reduction(Reduction::Mean).allreduce(input, &algorithm).await.unwrap();
            assert_eq!(bits(&mean.into_dense()), bits(&quotients(sum, ranks)));
        });
    }
}

#[test]
fn a_mean_of_the_largest_returns_what_their_sum_returns() {
    for ranks in 1..=9 {
        let inputs: &Vec<SparseVec<f32>> = &world(Shape::Skewed, ranks, 100, 4);
        for algorithm in GTOPK {
            run_world(local_world(ranks), |transport| async move {
                let sums = communicator(transport);
                let means = sums.with_reduction(Reduction::Mean);
                let input = &inputs[sums.rank().index()];
                for put_back in [PutBack::Conserving, PutBack::Paper] {
                    let sum = sums.gtopk(input, 7, algorithm, put_back).await.unwrap();
                    let mean = means.gtopk(input, 7, algorithm, put_back).await.unwrap();
                    assert_eq!(mean.put_back, sum.put_back, "{algorithm:?}, P = {ranks}");
                    assert_eq!(mean.sum.indices(), sum.sum.indices());
                    assert_eq!(bits(mean.sum.values()), bits(&quotients(sum.sum.values().to_vec(), ranks)));
                }
            });
        }
    }
}

#[test]
fn a_rank_that_wants_the_mean_of_what_others_sum_is_named_on_every_rank() {
    for ranks in 2..=9 {
        for odd in 0..ranks {
            for (operation, name) in
                ["allreduce", "auto", "dense", "gtopk", "reduce", "reduce_scatter"].iter().enumerate()
            {
                let errors = run_world(local_world(ranks), |transport| async move {
                    let sums = communicator(transport);
                    let is_odd = sums.rank().index() == odd;
                    let either = sums.with_reduction(if is_odd { Reduction::Mean } else { Reduction::Sum });
                    let input = SparseVec::new(100, vec![0], vec![1.0_f32]).unwrap();
                    let result = match operation {
                        0 => either.allreduce(&input, &SparseAlgorithm::SsarRing).await.map(drop),
                        1 => either.allreduce(&input, &SparseAlgorithm::Auto).await.map(drop),
                        2 => either.allreduce_dense(&[1.0], &mut [0.0], DenseAlgorithm::Auto).await,
                        3 => either.gtopk(&input, 3, GTOPK[1], PutBack::Paper).await.map(drop),
                        4 => either.reduce(Rank(1), &input).await.map(drop),
                        _ => either.reduce_scatter(&input).await.map(drop),
                    };
                    result.unwrap_err()
                });
                for error in errors {
                    assert_eq!(error.kind(), ErrorKind::Mismatch, "{name}: {error}");
                    let text = error.to_string();
                    assert!(
                        text.contains(&format!("rank {odd}")) && text.contains("reduction"),
                        "{name}: {error}"
                    );
                    assert!(!text.contains("mode"), "{name}: {error}");
                }
            }
        }
    }
}

#[test]
fn integers_have_no_mean() {
    run_world(local_world(3), |transport| async move {
        let means = communicator(transport).with_reduction(Reduction::Mean);
        let input = SparseVec::new(5, vec![1], vec![3_i64]).unwrap();
        let (algorithm, dense) = (SparseAlgorithm::SsarRing, DenseAlgorithm::Ring);
        let refusals = [
            means.allreduce(&input, &algorithm).await.map(drop),
            means.allreduce_dense(&[1_i32], &mut [0], dense).await,
            means.gtopk(&input, 1, GTOPK[2], PutBack::Paper).await.map(drop),
            means.reduce(Rank(0), &input).await.map(drop),
            means.reduce_dense(Rank(0), &[1_i32], &mut [0]).await,
            means.reduce_scatter(&input).await.map(drop),
            means.reduce_scatter_dense(&[1_i32; 3], &mut [0]).await,
            means.start_allreduce(input.clone(), algorithm).await.map(drop),
        ];
        for refused in refusals {
            assert_eq!(refused.unwrap_err().kind(), ErrorKind::InvalidArgument);
        }
        assert_eq!(means.traffic(), collectives::Traffic::default());
        // What does not reduce does not care.
        means.allgather_sparse(&input).await.unwrap();
    });
}

#[test]
fn a_group_gives_what_its_parent_gives() {
    run_world(local_world(6), |transport| async move {
        let means = communicator(transport).with_reduction(Reduction::Mean);
        let group = means.split(Some(means.rank().0 % 2), 0).await.unwrap().unwrap();
        let mut mean = [0.0_f32];
        group.allreduce_dense(&[means.rank().0 as f32], &mut mean, DenseAlgorithm::Ring).await.unwrap();
        assert_eq!((mean[0], group.reduction()), ([2.0, 3.0][means.rank().index() % 2], Reduction::Mean));
    });
}
