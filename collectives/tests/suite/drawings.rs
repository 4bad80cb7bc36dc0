//! The drawings of `docs/algorithms.md` are what the algorithms send.

use std::time::Duration;

use bytes::Bytes;
use collectives::{Communicator, DenseAlgorithm, GtopkAlgorithm, PutBack, SparseAlgorithm};
use sparse_core::SparseVec;
use testkit::sim::{self, Network};
use transport::{AnyTransport, Rank};

use crate::common::Algorithm;

/// To which ranks each rank sends, in order.
type Sent = Vec<Vec<usize>>;

/// A drawing under a heading, of so many ranks.
fn drawn(heading: &str, ranks: usize) -> Sent {
    // Read when the test runs, so that a word changed there compiles nothing.
    let document =
        std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/algorithms.md")).unwrap();
    let after = |text: &str, mark: &str| {
        let at = text.find(mark).unwrap_or_else(|| panic!("no {mark:?} for {heading}"));
        text[at + mark.len()..].to_owned()
    };
    let section = after(&document, &format!("\n## {heading}\n"));
    let section = section.split("\n## ").next().unwrap_or_default();
    let drawing = after(section, &format!("P = {ranks}\n"));
    let lines = drawing.lines().take_while(|line| !line.is_empty() && !line.starts_with("```"));
    let mut sent = vec![Vec::new(); ranks];
    for word in lines.flat_map(str::split_whitespace) {
        let Some((left, right)) = word.split_once('>') else { continue };
        let (from, to) =
            (left.trim_end_matches('<').parse::<usize>().unwrap(), right.parse::<usize>().unwrap());
        sent[from].push(to);
        if left.ends_with('<') {
            sent[to].push(from);
        }
    }
    sent
}

/// What the ranks send beside the check of their calls, on a network where bytes take time, so that what leaves together has
/// an order.
fn sent<Fut: Future>(ranks: usize, run: impl Fn(Communicator<AnyTransport>) -> Fut) -> Sent {
    const CHECK: u64 = 0;
    const LANES: u64 = 4;
    let network = Network::new(ranks).alpha(Duration::from_micros(50)).rate(1e9).traced();
    let mut trace =
        sim::run(&network, |transport| run(Communicator::new(AnyTransport::new(transport)))).unwrap().trace;
    trace.sort_by_key(|message| (message.posted, message.sent));
    let mut sent = vec![Vec::new(); ranks];
    for message in trace.iter().filter(|message| message.tag.to_u64() % LANES != CHECK) {
        sent[message.from.index()].push(message.to.index());
    }
    sent
}

/// So many entries that ranges are agreed on; the `large` first ones, in the order of the positions, are the largest.
fn input(rank: usize, large: u32) -> SparseVec<f32> {
    let indices: Vec<u32> = (0..1500).map(|at| 20 * at + rank as u32).collect();
    let value = |at: &u32| if at / 20 < large { 10.0 } else { 1.0 } + (at / 20 * 389 % 1500) as f32 / 1e4;
    let values = indices.iter().map(value).collect();
    SparseVec::new(30_000, indices, values).unwrap()
}

const DRAWN: [usize; 2] = [4, 6];

#[test]
fn every_algorithm_sends_what_is_drawn() {
    use Algorithm::{Dense, Gtopk, Sparse};
    for (heading, algorithm) in [
        ("dense_ring", Dense(DenseAlgorithm::Ring)),
        ("dense_recursive_doubling", Dense(DenseAlgorithm::RecursiveDoubling)),
        ("rabenseifner", Dense(DenseAlgorithm::Rabenseifner)),
        ("ssar_recursive_doubling", Sparse(SparseAlgorithm::SsarRecursiveDoubling)),
        ("ssar_split_allgather", Sparse(SparseAlgorithm::SsarSplitAllgather)),
        ("ssar_ring", Sparse(SparseAlgorithm::SsarRing)),
        ("dsar_split_allgather", Sparse(SparseAlgorithm::DsarSplitAllgather)),
        ("topk_allgather", Sparse(SparseAlgorithm::TopkAllgather)),
        ("gtopk_tree", Gtopk(GtopkAlgorithm::Tree)),
        ("gtopk_butterfly", Gtopk(GtopkAlgorithm::Butterfly)),
        ("gtopk_exact", Gtopk(GtopkAlgorithm::Exact)),
        ("oktopk", Gtopk(GtopkAlgorithm::Oktopk)),
        ("spardl", Gtopk(GtopkAlgorithm::Spardl)),
        ("Auto", Sparse(SparseAlgorithm::Auto)),
    ] {
        for ranks in DRAWN {
            let algorithm = &algorithm;
            let mut sent = sent(ranks, |communicator| async move {
                let rank = communicator.rank().index();
                match algorithm {
                    // Of what is largest, rank 0 has all in its range.
                    Gtopk(GtopkAlgorithm::Oktopk) => {
                        let input = input(rank, 1500 / ranks as u32 * 2 / 3);
                        let k = 1100;
                        drop(
                            communicator
                                .gtopk(&input, k, GtopkAlgorithm::Oktopk, PutBack::Paper)
                                .await
                                .unwrap(),
                        );
                    }
                    Gtopk(algorithm) => {
                        drop(
                            communicator
                                .gtopk(&input(rank, 0), 1500, *algorithm, PutBack::Paper)
                                .await
                                .unwrap(),
                        );
                    }
                    other => drop(other.sum(&communicator, &input(rank, 0).slice(0..2000)).await.unwrap()),
                }
            });
            let drawn = drawn(heading, ranks);
            if heading == "Auto" {
                // Then comes what was chosen.
                sent.iter_mut().zip(&drawn).for_each(|(sent, drawn)| sent.truncate(drawn.len()));
            }
            assert_eq!(sent, drawn, "{heading}, P = {ranks}");
        }
    }
}

#[test]
fn every_other_operation_sends_what_is_drawn() {
    for ranks in DRAWN {
        let of = |heading, sent| assert_eq!(sent, drawn(heading, ranks), "{heading}, P = {ranks}");
        of(
            "reduce_scatter",
            sent(ranks, |communicator| async move {
                communicator.reduce_scatter(&input(communicator.rank().index(), 0)).await.unwrap();
            }),
        );
        of(
            "reduce_scatter_dense",
            sent(ranks, |communicator| async move {
                let mut part = vec![0.0; 10];
                communicator.reduce_scatter_dense(&vec![1.0_f32; 10 * ranks], &mut part).await.unwrap();
            }),
        );
        of(
            "allgather",
            sent(ranks, |communicator| async move {
                communicator.allgather(Bytes::from_static(b"block")).await.unwrap();
            }),
        );
        of(
            "broadcast",
            sent(ranks, |communicator| async move {
                communicator.broadcast(Rank(0), Bytes::from_static(b"payload")).await.unwrap();
            }),
        );
    }
}

/// A barrier is nothing but its check, which sends first what is drawn first.
#[test]
fn a_barrier_sends_what_is_drawn() {
    for ranks in DRAWN {
        let network = Network::new(ranks).alpha(Duration::from_micros(50)).traced();
        let run = sim::run(&network, |transport| async move {
            Communicator::new(AnyTransport::new(transport)).barrier().await.unwrap();
        });
        let mut sent = vec![Vec::new(); ranks];
        run.unwrap().trace.iter().for_each(|message| sent[message.from.index()].push(message.to.index()));
        assert_eq!(sent, drawn("barrier", ranks), "P = {ranks}");
    }
}
