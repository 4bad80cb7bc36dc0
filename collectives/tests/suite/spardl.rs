//! SparDL: what it finds, against the same merges written down without messages, and what it sends.

use collectives::{Communicator, GtopkAlgorithm, PutBack};
use sparse_core::{Element, SparseVec, merge};
use testkit::run_world;
use testkit::support::{Shape, world};
use transport::AnyTransport;

use crate::common::{self, bits};
use crate::gtopk_exact::{Layers, layered};
use crate::worlds::{delayed, in_virtual_time, local_world};

/// Block by block: `sums[i]` is what the rank `i` places before the owner holds.
fn expected<E: Element>(inputs: &[SparseVec<E>], k: usize) -> SparseVec<E> {
    let (ranks, dim) = (inputs.len(), inputs[0].dim());
    let most = k.div_ceil(ranks);
    let largest = |vector: &SparseVec<E>| vector.clone().top_k(most).0;
    let cut = |owner: usize| dim * owner as u64 / ranks as u64;
    let block = |owner: usize| {
        let of =
            |distance: usize| inputs[(owner + ranks - distance) % ranks].slice(cut(owner)..cut(owner + 1));
        let mut sums: Vec<_> = (0..ranks).map(of).collect();
        for distance in (0..usize::BITS - 1).rev().map(|bit| 1 << bit).filter(|distance| *distance < ranks) {
            for from in distance..ranks.min(2 * distance) {
                sums[from - distance] = merge(&sums[from - distance], &largest(&sums[from])).unwrap();
            }
        }
        largest(&sums[0])
    };
    SparseVec::concat(&(0..ranks).map(block).collect::<Vec<_>>()).unwrap().top_k(k).0
}

fn check<E: Element>(name: &str, transports: Vec<AnyTransport>, inputs: &[SparseVec<E>], k: usize) -> u64 {
    let expected = expected(inputs, k);
    let results = run_world(transports, |transport| async move {
        let communicator = Communicator::new(transport);
        let input = &inputs[communicator.rank().index()];
        let result = communicator.gtopk(input, k, GtopkAlgorithm::Spardl, PutBack::Conserving).await.unwrap();
        (result.sum, communicator.traffic())
    });
    for (sum, _) in &results {
        assert_eq!(sum.indices(), expected.indices(), "{name}, k = {k}");
        assert_eq!(bits(sum.values()), bits(expected.values()), "{name}, k = {k}");
    }
    results.iter().map(|(_, traffic)| traffic.bytes_sent.max(traffic.bytes_received)).max().unwrap()
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
fn it_is_the_merges_of_the_blocks() {
    check_every_shape::<f32>(&[0, 1, 10, 200, usize::MAX]);
    check_every_shape::<i32>(&[3, 100, 900]);
}

#[test]
fn delays_do_not_change_a_bit() {
    for ranks in [3, 5, 8] {
        let inputs: Vec<SparseVec<f32>> = world(Shape::Random, ranks, 5000, 3);
        let shaken = delayed(local_world(ranks), 7);
        check(&format!("P = {ranks}"), shaken, &inputs, 500);
    }
}

#[test]
fn no_support_makes_it_send_more_than_twice_its_share() {
    const K: usize = 10_000;
    for ranks in 2..=9 {
        for layers in [Layers::Uniform, Layers::InATenth, Layers::Three, Layers::Apart, Layers::OneOwner] {
            let inputs = layered(layers, ranks, 100 * K as u64, K);
            let bytes = check(&format!("{layers:?}, P = {ranks}"), local_world(ranks), &inputs, K);
            // An entry of a hundredth of the positions takes 4 bytes, and 1.1 for its index.
            let most = 2 * K.div_ceil(ranks) * (ranks - 1);
            assert!((bytes as f64) < 1.02 * 5.1 * most as f64, "{layers:?}, P = {ranks}: {bytes} for {most}");
        }
    }
}
