//! The laws of the global top-k.

use collectives::{Communicator, GlobalTopk, GtopkAlgorithm, PutBack};
use proptest::prelude::*;
use sparse_core::{Element, SparseVec, reduce};
use testkit::run_world;
use testkit::support::{Shape, world};

use crate::common::{self, GTOPK, PUT_BACK};
use crate::worlds::in_virtual_time;

fn gtopk<E: Element>(
    inputs: &[SparseVec<E>],
    k: usize,
    algorithm: GtopkAlgorithm,
    put_back: PutBack,
) -> Vec<GlobalTopk<E>> {
    let part = |transport| async move {
        let communicator = Communicator::new(transport);
        let input = &inputs[communicator.rank().index()];
        communicator.gtopk(input, k, algorithm, put_back).await.unwrap()
    };
    in_virtual_time(inputs.len(), |world| run_world(world, part))
}

fn total<E: Element>(vectors: impl IntoIterator<Item = SparseVec<E>>) -> Vec<E> {
    reduce(&vectors.into_iter().collect::<Vec<_>>()).unwrap().to_dense()
}

#[test]
fn every_rank_ends_with_the_same_k_entries() {
    for ranks in 1..=9 {
        for shape in Shape::ALL {
            for dim in common::dims(ranks) {
                let inputs: Vec<SparseVec<f32>> = world(shape, ranks, dim, 5);
                for k in [0, 1, 10, 2000] {
                    for algorithm in GTOPK {
                        let results = gtopk(&inputs, k, algorithm, PutBack::Conserving);
                        assert!(results.iter().all(|result| result.sum == results[0].sum));
                        assert!(results[0].sum.nnz() <= k);
                        assert_eq!(results[0].sum.dim(), dim);
                    }
                }
            }
        }
    }
}

#[test]
fn conserving_put_back_loses_nothing() {
    for ranks in 1..=9 {
        for shape in Shape::ALL {
            for (seed, k) in [(1, 0), (2, 1), (3, 5), (4, 20), (5, 200)] {
                let inputs: Vec<SparseVec<i32>> = world(shape, ranks, 60, seed);
                for algorithm in GTOPK {
                    let results = gtopk(&inputs, k, algorithm, PutBack::Conserving);
                    let global = results[0].sum.clone();
                    let after = total(results.into_iter().map(|result| result.put_back).chain([global]));
                    assert_eq!(
                        after,
                        total(inputs.clone()),
                        "P = {ranks}, {shape:?}, k = {k}, {algorithm:?}"
                    );
                }
            }
        }
    }
}

#[test]
fn paper_put_back_returns_what_is_outside_the_global_set() {
    for ranks in 1..=9 {
        let inputs: Vec<SparseVec<i32>> = world(Shape::Random, ranks, 60, 9);
        for algorithm in GTOPK {
            for (input, result) in inputs.iter().zip(gtopk(&inputs, 5, algorithm, PutBack::Paper)) {
                let outside = input.iter().filter(|(index, _)| result.sum.get(*index).is_none());
                assert_eq!(result.put_back.iter().collect::<Vec<_>>(), outside.collect::<Vec<_>>());
            }
        }
    }
}

#[test]
fn the_butterfly_finds_what_the_tree_finds() {
    for ranks in [1, 2, 4, 8] {
        for seed in 0..10 {
            let inputs: Vec<SparseVec<f32>> = world(Shape::Skewed, ranks, 100, seed);
            for put_back in PUT_BACK {
                let [tree, butterfly] = [GtopkAlgorithm::Tree, GtopkAlgorithm::Butterfly]
                    .map(|algorithm| gtopk(&inputs, 7, algorithm, put_back));
                assert_eq!(tree[0].sum, butterfly[0].sum);
            }
        }
    }
}

#[test]
fn nan_is_among_the_k() {
    for ranks in 1..=9 {
        for at in 0..ranks {
            let mut inputs: Vec<SparseVec<f32>> = world(Shape::Disjoint, ranks, 900, 1);
            inputs[at] = SparseVec::new(900, vec![450], vec![f32::NAN]).unwrap();
            for algorithm in GTOPK {
                for result in gtopk(&inputs, 1, algorithm, PutBack::Conserving) {
                    assert!(result.sum.get(450).is_some_and(f32::is_nan), "P = {ranks}, {algorithm:?}");
                }
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn disjoint_supports_give_the_exact_top_k_unless_ranges_have_shares(ranks in 1_usize..=9, k in 0_usize..50, seed: u64) {
        let inputs: Vec<SparseVec<i32>> = world(Shape::Disjoint, ranks, 300, seed);
        let (exact, _) = reduce(&inputs).unwrap().top_k(k);
        for algorithm in GTOPK.into_iter().filter(|algorithm| *algorithm != GtopkAlgorithm::Spardl) {
            prop_assert_eq!(&gtopk(&inputs, k, algorithm, PutBack::Conserving)[0].sum, &exact);
        }
    }

    #[test]
    fn a_k_that_holds_the_union_gives_the_whole_sum(ranks in 1_usize..=9, seed: u64) {
        let inputs: Vec<SparseVec<i32>> = world(Shape::Random, ranks, 100, seed);
        let sum = reduce(&inputs).unwrap();
        for algorithm in GTOPK {
            for result in gtopk(&inputs, 100, algorithm, PutBack::Conserving) {
                prop_assert_eq!(&result.sum, &sum);
                prop_assert_eq!(result.put_back.nnz(), 0);
            }
        }
    }
}
