//! The choice among algorithms, and the measurement that it rests on.

use collectives::cost::{self, Link, Workload};
use collectives::{Communicator, DenseAlgorithm, Error, Options, SparseAlgorithm};
use sparse_core::SparseVec;
use testkit::run_world;
use testkit::sim;
use testkit::support::{Shape, world};
use transport::AnyTransport;

use crate::common::bits;
use crate::simulated::Algorithm::{self, Dense, Sparse};
use crate::simulated::{input, network};
use crate::worlds::{delayed, local_world};

/// What there is to choose from: a new algorithm gets its row here.
const SPARSE: [SparseAlgorithm; 4] = [
    SparseAlgorithm::SsarRecursiveDoubling,
    SparseAlgorithm::SsarSplitAllgather,
    SparseAlgorithm::DsarSplitAllgather,
    SparseAlgorithm::TopkAllgather,
];
const DENSE: [DenseAlgorithm; 2] = [DenseAlgorithm::Ring, DenseAlgorithm::RecursiveDoubling];

/// P, N, k and links: from where latency is all to where bytes are, from one entry in a thousand to one in two.
fn grid() -> Vec<(Workload, Link)> {
    let mut grid = Vec::new();
    for ranks in [2, 3, 4, 6, 8, 16] {
        for dim in [2_000, 20_000] {
            for per_mille in [1, 10, 50, 200, 500] {
                for link in [
                    Link::new(50e-6, 0.8e-9),
                    Link::new(50e-6, 8e-9),
                    Link::new(5e-6, 8e-9),
                    Link::new(20e-6, 200e-9),
                ] {
                    grid.push((Workload::uniform(ranks, dim, dim * per_mille / 1000, 4), link));
                }
            }
        }
    }
    grid
}

/// The simulated times of all, and that of what `chosen` says as a share of the least.
fn excess(all: &[Algorithm], chosen: &Algorithm, work: &Workload, link: &Link) -> f64 {
    let time = |algorithm: &Algorithm| algorithm.simulate(work, link).0;
    let least = all.iter().map(time).fold(f64::INFINITY, f64::min);
    time(chosen) / least - 1.0
}

#[test]
fn the_choice_is_within_a_tenth_of_the_best() {
    let grid = grid();
    assert!(grid.len() >= 200);
    let (sparse, dense) = (SPARSE.map(Sparse), DENSE.map(Dense));
    let mut taken = std::collections::BTreeSet::new();
    for (work, link) in &grid {
        let (chosen, _) = cost::choose_sparse(work, link);
        taken.insert(format!("{chosen:?}"));
        let above = excess(&sparse, &Sparse(chosen.clone()), work, link);
        assert!(above < 0.1, "{chosen:?} takes {above} more than the best: {work:?}, {link:?}");
        if work.entries * 10 == work.dim / 2 {
            let (chosen, _) = cost::choose_dense(work, link);
            taken.insert(format!("{chosen:?}"));
            let above = excess(&dense, &Dense(chosen), work, link);
            assert!(above < 0.1, "{chosen:?} takes {above} more than the best: {work:?}, {link:?}");
        }
    }
    // A grid on which one algorithm always wins would show nothing.
    assert!(taken.len() >= 5, "{taken:?}");
}

#[test]
fn auto_takes_the_time_of_its_choice_and_of_sharing_nnz() {
    for (work, link) in grid().into_iter().step_by(7) {
        let (chosen, _) = cost::choose_sparse(&work, &link);
        let sharing = cost::sparse(&SparseAlgorithm::Auto, &work, &link).network
            - cost::sparse(&chosen, &work, &link).network;
        let (auto, _) = Sparse(SparseAlgorithm::Auto).simulate(&work, &link);
        let (alone, _) = Sparse(chosen.clone()).simulate(&work, &link);
        assert!(
            (auto / (alone + sharing) - 1.0).abs() < 0.03,
            "{chosen:?}, {work:?}, {link:?}: {auto}, {alone}"
        );
    }
}

#[test]
fn auto_has_the_bits_of_its_choice_on_all_ranks() {
    let link = Link::new(20e-6, 200e-9);
    for ranks in 1..=9 {
        let work = Workload::uniform(ranks, 5_000, 250, 4);
        let chosen = &cost::choose_sparse(&work, &link).0;
        let sums = run_world(local_world(ranks), |transport| async move {
            let input = input(&work, u64::from(transport::Transport::rank(&transport).0));
            let communicator = Communicator::with_options(transport, Options::default().link(link));
            let mut sums = Vec::new();
            for algorithm in [SparseAlgorithm::Auto, chosen.clone()] {
                sums.push(bits(&communicator.allreduce(&input, &algorithm).await.unwrap().into_dense()));
            }
            sums
        });
        assert!(sums.iter().flatten().all(|sum| *sum == sums[0][0]), "{ranks}");
    }
}

#[test]
fn ranks_that_learn_choose_alike_with_many_calls_in_flight() {
    for ranks in [2, 3, 7, 8] {
        // Sums of other algorithms have other bits, and ranks that chose apart would never end.
        let inputs: &Vec<Vec<SparseVec<f32>>> =
            &(0..40).map(|seed| world(Shape::Random, ranks, 300, seed)).collect();
        let sums = run_world(delayed(local_world(ranks), 3), |transport| async move {
            let communicator = Communicator::with_options(transport, Options::default().learn(true));
            let rank = communicator.rank().index();
            let mut sums = Vec::new();
            for together in inputs.chunks(4) {
                let calls = together
                    .iter()
                    .map(|inputs| communicator.allreduce(&inputs[rank], &SparseAlgorithm::Auto));
                for sum in futures_util::future::join_all(calls).await {
                    sums.push(bits(&sum.unwrap().into_dense()));
                }
            }
            sums
        });
        assert!(sums.iter().all(|sum| *sum == sums[0]), "{ranks}");
    }
}

#[test]
fn learning_mends_a_wrong_link() {
    // They believe that latency is nothing: what sends the least bytes in the most rounds seems the fastest.
    let (believed, truth) = (Link::new(1e-9, 8e-9), Link::new(1e-3, 8e-9));
    let work = Workload::uniform(16, 20_000, 10_000, 4);
    let run = |learn| {
        let run = sim::run(&network(work.ranks, &truth), |transport| async move {
            let input = input(&work, u64::from(transport::Transport::rank(&transport).0));
            let options = Options::default().link(believed).learn(learn);
            let communicator = Communicator::with_options(AnyTransport::new(transport), options);
            for _ in 0..40 {
                communicator.allreduce(&input, &SparseAlgorithm::Auto).await.unwrap();
            }
        });
        run.unwrap().time.as_secs_f64()
    };
    let (fixed, learning) = (run(false), run(true));
    assert!(learning < 0.8 * fixed, "{learning} s with learning, {fixed} s without");
}

#[test]
fn ranks_with_other_links_are_told_so() {
    for algorithm in [true, false] {
        let outcomes = run_world(local_world(3), |transport| async move {
            let rank = transport::Transport::rank(&transport).0;
            let options = Options::default().link(Link::new(f64::from(rank / 2), 1e-9));
            let communicator = Communicator::with_options(transport, options);
            let mut output = [0.0; 9];
            if algorithm {
                let input = SparseVec::new(9, vec![1], vec![1.0_f32]).unwrap();
                communicator.allreduce(&input, &SparseAlgorithm::Auto).await.map(drop)
            } else {
                communicator.allreduce_dense(&[1.0; 9], &mut output, DenseAlgorithm::Auto).await
            }
        });
        let told = |outcome: &Result<(), Error>| {
            outcome.as_ref().is_err_and(|error| error.to_string().contains("calibration"))
        };
        assert!(outcomes.iter().all(Result::is_err) && outcomes.iter().any(told), "{outcomes:?}");
    }
}

#[test]
fn calibration_measures_the_simulated_link() {
    for ranks in [2, 3, 8] {
        for (alpha, beta, overhead) in [(50e-6, 8e-9, 5e-6), (1e-6, 0.1e-9, 0.0), (1e-3, 1e-6, 0.0)] {
            let truth = Link::new(alpha, beta).overhead(overhead);
            let run = sim::run(&network(ranks, &truth), |transport| async move {
                Communicator::new(AnyTransport::new(transport)).calibrate().await.unwrap()
            });
            let run = run.unwrap();
            let near = |a: f64, b: f64| (a - b).abs() <= 0.02 * b + 1e-8;
            for link in &run.outputs {
                assert_eq!(link, &run.outputs[0]);
                assert!(
                    near(link.alpha, alpha) && near(link.beta / 1e-9, beta / 1e-9),
                    "{link:?}, {truth:?}"
                );
                assert!(near(link.overhead, overhead), "{link:?}, {truth:?}");
                // Computing takes no virtual time.
                assert_eq!((link.entry, link.value), (0.0, 0.0));
            }
            assert!(run.time.as_secs_f64() < 1.0, "{:?}", run.time);
        }
    }
}

#[test]
fn calibration_measures_work_and_is_the_same_on_all_ranks() {
    for ranks in 1..=5 {
        let links = run_world(local_world(ranks), |transport| async move {
            let communicator = Communicator::new(transport);
            let link = communicator.calibrate().await.unwrap();
            assert_eq!(communicator.link(), link);
            link
        });
        assert!(links.iter().all(|link| *link == links[0]), "{links:?}");
        assert!(links[0].entry > 0.0 && links[0].value > 0.0, "{links:?}");
    }
}
