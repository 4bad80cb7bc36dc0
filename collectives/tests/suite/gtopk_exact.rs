//! The exact global top-k: what it finds, what it returns, and what it sends however the supports lie.

use collectives::{Communicator, GlobalTopk, GtopkAlgorithm, PutBack, Traffic};
use half::{bf16, f16};
use proptest::prelude::*;
use sparse_core::{Element, SparseVec, reduce};
use testkit::run_world;
use testkit::support::{Shape, world};
use transport::AnyTransport;

use crate::common::{self, PUT_BACK, bits};
use crate::worlds::{delayed, in_virtual_time, local_world};

fn exact<E: Element>(
    transports: Vec<AnyTransport>,
    inputs: &[SparseVec<E>],
    k: usize,
    put_back: PutBack,
) -> Vec<(GlobalTopk<E>, Traffic)> {
    run_world(transports, |transport| async move {
        let communicator = Communicator::new(transport);
        let input = &inputs[communicator.rank().index()];
        let result = communicator.gtopk(input, k, GtopkAlgorithm::Exact, put_back).await.unwrap();
        (result, communicator.traffic())
    })
}

/// Every rank has the k largest of the sum, bit for bit, and gets back its entries at other indices.
fn check<E: Element>(
    name: &str,
    transports: Vec<AnyTransport>,
    inputs: &[SparseVec<E>],
    k: usize,
    mode: PutBack,
) {
    let expected = reduce(inputs).unwrap().top_k(k).0;
    for (input, (result, _)) in inputs.iter().zip(exact(transports, inputs, k, mode)) {
        let GlobalTopk { sum, put_back } = result;
        assert_eq!(sum.dim(), expected.dim(), "{name}, k = {k}");
        assert_eq!(sum.indices(), expected.indices(), "{name}, k = {k}");
        assert_eq!(bits(sum.values()), bits(expected.values()), "{name}, k = {k}");
        let (indices, values): (Vec<_>, Vec<_>) =
            input.iter().filter(|(index, _)| sum.get(*index).is_none()).unzip();
        assert_eq!(put_back.indices(), indices, "{name}, k = {k}");
        assert_eq!(bits(put_back.values()), bits(&values), "{name}, k = {k}");
    }
}

fn check_every_shape<E: Element>(ks: &[usize]) {
    for ranks in 1..=9 {
        for shape in Shape::ALL {
            for dim in common::dims(ranks) {
                let inputs: Vec<SparseVec<E>> = world(shape, ranks, dim, 5 + dim);
                for &k in ks {
                    let name = format!("P = {ranks}, N = {dim}, {shape:?}, {}", E::DTYPE);
                    let mode = PUT_BACK[(ranks + k % 2) % 2];
                    in_virtual_time(ranks, |world| check(&name, world, &inputs, k, mode));
                }
            }
        }
    }
}

#[test]
fn it_is_the_top_k_of_the_sum_in_f32_and_i32() {
    check_every_shape::<f32>(&[0, 1, 10, 200, 990, usize::MAX]);
    check_every_shape::<i32>(&[3, 100, 900]);
}

#[test]
fn it_is_the_top_k_of_the_sum_in_the_other_types() {
    check_every_shape::<f64>(&[20, 600]);
    check_every_shape::<f16>(&[20, 600]);
    check_every_shape::<bf16>(&[20, 600]);
    check_every_shape::<i64>(&[20, 600]);
}

#[test]
fn delays_do_not_change_a_bit() {
    for ranks in [2, 3, 5, 8] {
        for seed in 0..3 {
            let inputs: Vec<SparseVec<f32>> = world(Shape::Random, ranks, 20_000, seed);
            let shaken = delayed(local_world(ranks), seed);
            check(&format!("P = {ranks}"), shaken, &inputs, 2500, PutBack::Conserving);
        }
    }
}

/// Sums that cancel to zero, of one magnitude, and that are not a number.
fn odd_values(ranks: usize, dim: u32, kinds: u32) -> Vec<SparseVec<f32>> {
    let value = |rank: usize, index: u32| match (index / 3 % kinds, rank % 2) {
        (0, _) => 1.0,
        (1, 0) => 2.0,
        (1, _) => -2.0,
        (2, _) => f32::from_bits(0xffc0_0001 + index),
        (_, 0) => f32::INFINITY,
        _ => f32::MIN_POSITIVE / 4.0,
    };
    let vector = |rank| {
        let (indices, values) =
            (0..dim).filter(|index| index % 7 != rank as u32).map(|i| (i, value(rank, i))).unzip();
        SparseVec::new(u64::from(dim), indices, values).unwrap()
    };
    (0..ranks).map(vector).collect()
}

#[test]
fn ties_zeros_and_nan_are_ranked_as_by_top_k() {
    for ranks in 1..=9 {
        for kinds in 1..=4 {
            for (dim, k) in [(40, 7), (3000, 1), (3000, 500), (3000, 1200), (3000, 2900)] {
                let inputs = odd_values(ranks, dim, kinds);
                check(
                    &format!("P = {ranks}, {kinds} kinds"),
                    local_world(ranks),
                    &inputs,
                    k,
                    PutBack::Conserving,
                );
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn integers_with_many_ties_are_ranked_as_by_top_k(
        inputs in (1_usize..=9).prop_flat_map(|ranks| {
            let vector = prop::collection::btree_map(0_u32..2000, -3_i32..=3, 0..700);
            let vector = vector.prop_map(|map| {
                let (indices, values) = map.into_iter().unzip();
                SparseVec::new(2000, indices, values).unwrap()
            });
            prop::collection::vec(vector, ranks)
        }),
        k in 0_usize..1500,
    ) {
        check("ties", local_world(inputs.len()), &inputs, k, PutBack::Conserving);
    }
}

/// How the ranks' supports of k entries lie, and how large their values are.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Layers {
    /// Everywhere.
    Uniform,
    /// All in a tenth of the dimension.
    InATenth,
    /// Three layers of very different density; the densest has the largest values.
    Three,
    /// Each rank's in a part of its own.
    Apart,
    /// All of the large values in a hundredth of the dimension: one owner has all that survives.
    OneOwner,
}

/// k entries a rank, at different indices almost everywhere, so that nothing but the algorithm saves bytes.
pub(crate) fn layered(layers: Layers, ranks: usize, dim: u64, k: usize) -> Vec<SparseVec<f32>> {
    let vector = |rank: usize| {
        // A sequence that fills [0, 1) evenly, another for each rank.
        let places =
            (0..).map(|i| ((f64::from(i) + 0.5) * 0.618_033_988_75 + rank as f64 * 0.414_213_56).fract());
        let at = |place: f64| match layers {
            Layers::Uniform => place,
            Layers::InATenth => 0.53 + place / 10.0,
            Layers::Three if place < 0.7 => 0.01 + place / 100.0,
            Layers::Three if place < 0.9 => 0.4 + (place - 0.7) / 4.0,
            Layers::Three => place,
            Layers::Apart => (rank as f64 + place) / ranks as f64,
            Layers::OneOwner => place,
        };
        let mut map = std::collections::BTreeMap::new();
        for place in places {
            let index = (at(place) * dim as f64) as u32;
            let noise = (index.wrapping_mul(2_654_435_769) >> 8) as f32 / 16e6;
            let large = match layers {
                Layers::Three => f64::from(index) < 0.02 * dim as f64,
                Layers::OneOwner => f64::from(index) < 0.12 * dim as f64,
                _ => false,
            };
            map.insert(index, noise + if large { 10.0 } else { 0.1 });
            if map.len() == k {
                break;
            }
        }
        let (indices, values) = map.into_iter().unzip();
        SparseVec::new(dim, indices, values).unwrap()
    };
    (0..ranks).map(vector).collect()
}

/// The most bytes that a rank sent or received, in units of what k entries of a rank take.
fn volume(layers: Layers, ranks: usize, k: usize) -> f64 {
    let inputs = layered(layers, ranks, 100 * k as u64, k);
    let whole = sparse_core::wire::sparse_len(&inputs[0].view());
    let expected = reduce(&inputs).unwrap().top_k(k).0;
    let results = exact(local_world(ranks), &inputs, k, PutBack::Conserving);
    assert!(results.iter().all(|(result, _)| result.sum == expected), "{layers:?}, P = {ranks}");
    let most = |traffic: &Traffic| traffic.bytes_sent.max(traffic.bytes_received);
    results.iter().map(|(_, traffic)| most(traffic)).max().unwrap() as f64 / whole as f64
}

#[test]
fn balanced_supports_cost_the_least_volume_but_for_a_twentieth() {
    for ranks in [2, 4, 8] {
        let least = 2.0 * (ranks - 1) as f64 / ranks as f64;
        let volume = volume(Layers::Uniform, ranks, 20_000);
        assert!((0.9 * least..1.05 * least).contains(&volume), "P = {ranks}: {volume} k, not {least} k");
    }
}

#[test]
fn skewed_supports_cost_at_most_three_k() {
    for ranks in [2, 3, 5, 8, 9] {
        for layers in [Layers::InATenth, Layers::Three, Layers::Apart, Layers::OneOwner] {
            let volume = volume(layers, ranks, 20_000);
            assert!(volume < 3.0, "{layers:?}, P = {ranks}: {volume} k");
        }
    }
}
