//! Ok-Topk: what it finds, what it returns, and what it sends however the supports and the results lie.

use collectives::{Communicator, GlobalTopk, GtopkAlgorithm, PutBack, Traffic};
use sparse_core::{Element, SparseVec, reduce};
use testkit::run_world;
use testkit::support::{Shape, world};
use transport::AnyTransport;

use crate::common::{self, bits};
use crate::gtopk_exact::{Layers, layered};
use crate::worlds::{delayed, in_virtual_time, local_world};

fn oktopk<E: Element>(
    transports: Vec<AnyTransport>,
    inputs: &[SparseVec<E>],
    k: usize,
) -> Vec<(GlobalTopk<E>, Traffic)> {
    run_world(transports, |transport| async move {
        let communicator = Communicator::new(transport);
        let input = &inputs[communicator.rank().index()];
        let result = communicator.gtopk(input, k, GtopkAlgorithm::Oktopk, PutBack::Conserving).await.unwrap();
        (result, communicator.traffic())
    })
}

/// Every rank has the k largest of the sum of the ranks' k largest, bit for bit.
fn check<E: Element>(name: &str, transports: Vec<AnyTransport>, inputs: &[SparseVec<E>], k: usize) {
    let selected: Vec<_> = inputs.iter().map(|input| input.clone().top_k(k).0).collect();
    let expected = reduce(&selected).unwrap().top_k(k).0;
    for (result, _) in oktopk(transports, inputs, k) {
        assert_eq!(result.sum.indices(), expected.indices(), "{name}, k = {k}");
        assert_eq!(bits(result.sum.values()), bits(expected.values()), "{name}, k = {k}");
    }
}

fn check_every_shape<E: Element>(ks: &[usize]) {
    for ranks in 1..=9 {
        for shape in Shape::ALL {
            for dim in common::dims(ranks) {
                let inputs: Vec<SparseVec<E>> = world(shape, ranks, dim, 5 + dim);
                for &k in ks {
                    let name = format!("P = {ranks}, N = {dim}, {shape:?}, {}", E::DTYPE);
                    in_virtual_time(ranks, |world| check(&name, world, &inputs, k));
                }
            }
        }
    }
}

#[test]
fn it_is_the_top_k_of_the_sum_of_the_ranks_top_k() {
    check_every_shape::<f32>(&[0, 1, 10, 200, 990, usize::MAX]);
    check_every_shape::<i32>(&[3, 100, 900]);
}

#[test]
fn delays_do_not_change_a_bit() {
    for ranks in [3, 5, 8] {
        for layers in [Layers::Uniform, Layers::OneOwner] {
            let inputs = layered(layers, ranks, 250_000, 2500);
            let shaken = delayed(local_world(ranks), 7);
            check(&format!("{layers:?}, P = {ranks}"), shaken, &inputs, 2500);
        }
    }
}

const K: usize = 10_000;

/// The most bytes that a rank sent or received, in units of what k entries of a rank take.
fn volume(layers: Layers, ranks: usize) -> f64 {
    let inputs = layered(layers, ranks, 100 * K as u64, K);
    let whole = sparse_core::wire::sparse_len(&inputs[0].view());
    check(&format!("{layers:?}, P = {ranks}"), local_world(ranks), &inputs, K);
    let results = oktopk(local_world(ranks), &inputs, K);
    let most = |traffic: &Traffic| traffic.bytes_sent.max(traffic.bytes_received);
    results.iter().map(|(_, traffic)| most(traffic)).max().unwrap() as f64 / whole as f64
}

/// An entry is two words, so `6k(P-1)/P` words are `3k(P-1)/P` entries. A twentieth more: for the entries beyond the k,
/// for what is told, and for ranges that are even within some per cent.
#[test]
fn the_volume_is_at_most_that_of_the_paper_where_supports_are_alike() {
    for ranks in 2..=9 {
        let share = (ranks - 1) as f64 / ranks as f64;
        for layers in [Layers::Uniform, Layers::InATenth, Layers::Three, Layers::OneOwner] {
            let volume = volume(layers, ranks);
            assert!(
                volume < 1.05 * 3.0 * share,
                "{layers:?}, P = {ranks}: {volume} k, bound {} k",
                3.0 * share
            );
            let is_even = matches!(layers, Layers::Uniform | Layers::InATenth);
            assert!(!is_even || volume < 1.1 * 2.0 * share, "{layers:?}, P = {ranks}: {volume} k");
        }
    }
}

#[test]
fn it_is_at_most_k_more_however_they_lie() {
    for ranks in 2..=9 {
        let share = (ranks - 1) as f64 / ranks as f64;
        let volume = volume(Layers::Apart, ranks);
        assert!(volume < 1.05 * (1.0 + 2.0 * share), "P = {ranks}: {volume} k");
    }
}
