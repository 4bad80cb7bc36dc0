//! The time that a simulated network takes, and what was counted, against `collectives::cost`.

use std::time::Duration;

use collectives::cost::{self, Cost, Link, Workload};
use collectives::{Communicator, DenseAlgorithm, GtopkAlgorithm, Options, PutBack, SparseAlgorithm, Traffic};
use sparse_core::SparseVec;
use testkit::sim::{self, Network, SimTransport};
use transport::Transport;

#[derive(Clone, Debug)]
pub(crate) enum Algorithm {
    Dense(DenseAlgorithm),
    Sparse(SparseAlgorithm),
    Gtopk(GtopkAlgorithm),
}

use Algorithm::{Dense, Gtopk, Sparse};

/// A new algorithm gets its row here.
fn all() -> [Algorithm; 15] {
    [
        Dense(DenseAlgorithm::Ring),
        Dense(DenseAlgorithm::RecursiveDoubling),
        Dense(DenseAlgorithm::Rabenseifner),
        Sparse(SparseAlgorithm::SsarRecursiveDoubling),
        Sparse(SparseAlgorithm::SsarSplitAllgather),
        Sparse(SparseAlgorithm::SsarRing),
        Sparse(SparseAlgorithm::DsarSplitAllgather),
        Sparse(SparseAlgorithm::TopkAllgather),
        Dense(DenseAlgorithm::Auto),
        Sparse(SparseAlgorithm::Auto),
        Gtopk(GtopkAlgorithm::Tree),
        Gtopk(GtopkAlgorithm::Butterfly),
        Gtopk(GtopkAlgorithm::Exact),
        Gtopk(GtopkAlgorithm::Oktopk),
        Gtopk(GtopkAlgorithm::Spardl),
    ]
}

impl Algorithm {
    fn cost(&self, work: &Workload, link: &Link) -> Cost {
        match self {
            Dense(algorithm) => cost::dense(*algorithm, work, link),
            Sparse(algorithm) => cost::sparse(algorithm, work, link),
            Gtopk(algorithm) => cost::gtopk(*algorithm, work, link),
        }
    }

    async fn run(&self, communicator: &Communicator<SimTransport>, input: &SparseVec<f32>) {
        match self {
            Dense(algorithm) => {
                let input = input.to_dense();
                let mut sum = vec![0.0; input.len()];
                communicator.allreduce_dense(&input, &mut sum, *algorithm).await.unwrap();
            }
            Sparse(algorithm) => drop(communicator.allreduce(input, algorithm).await.unwrap()),
            Gtopk(algorithm) => {
                let k = input.nnz();
                drop(communicator.gtopk(input, k, *algorithm, PutBack::Conserving).await.unwrap());
            }
        }
    }

    /// Seconds of one collective, and each rank's traffic.
    pub(crate) fn simulate(&self, work: &Workload, link: &Link) -> (f64, Vec<Traffic>) {
        let run = sim::run(&network(work.ranks, link), |transport| async move {
            let input = input(work, u64::from(transport.rank().0));
            let communicator = Communicator::with_options(transport, Options::default().link(*link));
            self.run(&communicator, &input).await;
            communicator.traffic()
        });
        let run = run.unwrap();
        (run.time.as_secs_f64(), run.outputs)
    }
}

pub(crate) fn network(ranks: usize, link: &Link) -> Network {
    Network::new(ranks)
        .alpha(Duration::from_secs_f64(link.alpha))
        .rate(1.0 / link.beta)
        .overhead(Duration::from_secs_f64(link.overhead))
}

/// Uniform and independent of other ranks', one entry in each k-th of the positions, so that all ranges of the index space
/// have as many; values differ, so that no order of indices decides which are largest.
pub(crate) fn input(work: &Workload, rank: u64) -> SparseVec<f32> {
    let mut state = rank << 32;
    let mut draw = || {
        // SplitMix64.
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    };
    let cut = |part: u64| work.dim * part / work.entries;
    let indices: Vec<u32> =
        (0..work.entries).map(|part| (cut(part) + draw() % (cut(part + 1) - cut(part))) as u32).collect();
    let values = indices.iter().map(|_| (draw() as i64) as f32).collect();
    SparseVec::new(work.dim, indices, values).unwrap()
}

/// Asserts that a simulation takes the time, the bytes and the messages that the formulas say.
fn expect(algorithm: &Algorithm, work: &Workload, link: &Link) {
    let cost = algorithm.cost(work, link);
    let (time, traffic) = algorithm.simulate(work, link);
    let messages = traffic.iter().map(|traffic| traffic.messages_sent).max().unwrap();
    let bytes = traffic.iter().map(|traffic| traffic.bytes_sent.max(traffic.bytes_received)).max().unwrap();
    let what = format!("{algorithm:?}, {work:?}, {link:?}: {cost:?}, but {time} s, {bytes} bytes");
    assert_eq!(messages, cost.messages, "{what}");
    // The owners' shares of the largest differ by chance.
    let by_chance = matches!(algorithm, Gtopk(GtopkAlgorithm::Exact | GtopkAlgorithm::Oktopk));
    let tolerance = if by_chance { 0.05 } else { 0.02 };
    assert!((bytes as f64 / cost.bytes - 1.0).abs() < tolerance, "{what}");
    assert!((time / cost.network - 1.0).abs() < 0.03, "{what}");
    assert_eq!(cost.seconds(), cost.network, "{what}");
}

/// Whether the formula says less than the whole: where so few entries more or less decide whether a sum goes dense that
/// chance does, where Rabenseifner's folded ranks and their neighbours share links, and where bytes alone count and
/// what owners have differs by chance: whoever is ahead shares the link of one who is behind, and makes it later, by more the
/// more rounds there are.
fn is_rough(algorithm: &Algorithm, work: &Workload, link: &Link) -> bool {
    let share = work.union(work.ranks) / work.dim as f64;
    match algorithm {
        Sparse(SparseAlgorithm::SsarSplitAllgather | SparseAlgorithm::SsarRing | SparseAlgorithm::Auto) => {
            (0.46..0.54).contains(&share)
        }
        Gtopk(GtopkAlgorithm::Exact | GtopkAlgorithm::Oktopk) => link.alpha < 1e-5,
        Gtopk(GtopkAlgorithm::Spardl) => link.alpha < 1e-5 && work.ranks > 24,
        Dense(DenseAlgorithm::Rabenseifner) => !work.ranks.is_power_of_two(),
        _ => false,
    }
}

#[test]
fn every_algorithm_takes_the_time_that_its_formula_says() {
    let links = [
        // Latency and bytes count alike; bytes alone.
        Link::new(50e-6, 8e-9).overhead(5e-6),
        Link::new(1e-6, 200e-9),
    ];
    for link in links {
        for ranks in (2..=17).chain([24, 33, 64]) {
            let work = Workload::uniform(ranks, 60_000, 1_200, 4);
            for algorithm in all() {
                if !is_rough(&algorithm, &work, &link) {
                    expect(&algorithm, &work, &link);
                }
            }
        }
    }
}

#[test]
fn formulas_hold_for_very_short_vectors_and_for_none() {
    for ranks in [2, 3, 5, 8] {
        for (dim, entries) in [(1, 1), (7, 1), (200, 0)] {
            let work = Workload::uniform(ranks, dim, entries, 4);
            for algorithm in [Gtopk(GtopkAlgorithm::Tree), Gtopk(GtopkAlgorithm::Butterfly)] {
                expect(&algorithm, &work, &Link::new(50e-6, 8e-9));
            }
        }
    }
}

#[test]
fn global_top_k_takes_time_with_the_logarithm_of_thousands_of_ranks() {
    let link = Link::new(50e-6, 8e-9);
    for algorithm in [Gtopk(GtopkAlgorithm::Tree), Gtopk(GtopkAlgorithm::Butterfly)] {
        let time = |ranks| {
            let work = Workload::uniform(ranks, 100_000, 100, 4);
            expect(&algorithm, &work, &link);
            algorithm.simulate(&work, &link).0
        };
        let (of_64, of_4096) = (time(64), time(4096));
        // 12 rounds, not 6; the check is one message more.
        assert!((of_4096 / of_64 - 2.0).abs() < 0.03, "{algorithm:?}: {of_64}, {of_4096}");
    }
}

#[test]
fn a_thousand_ranks_take_the_time_that_the_formulas_say() {
    let work = Workload::uniform(1024, 10_240, 10, 4);
    for algorithm in [
        Dense(DenseAlgorithm::RecursiveDoubling),
        Sparse(SparseAlgorithm::SsarRecursiveDoubling),
        Sparse(SparseAlgorithm::TopkAllgather),
    ] {
        expect(&algorithm, &work, &Link::new(50e-6, 8e-9));
    }
}

#[test]
fn a_deadline_passes_in_virtual_time() {
    let network = Network::new(3).alpha(Duration::from_micros(50));
    let run = sim::run(&network, |transport| async move {
        let rank = transport.rank().0;
        let options = Options::default().deadline(Duration::from_secs(3600));
        let communicator = Communicator::with_options(transport.clone(), options);
        // Rank 2 never comes.
        let outcome = if rank < 2 { communicator.barrier().await } else { Ok(()) };
        (outcome.map_err(|error| error.kind()), transport.now())
    });
    let outputs = run.unwrap().outputs;
    for (outcome, at) in &outputs[..2] {
        assert!(outcome.is_err());
        assert_eq!(at.as_secs(), 3600);
    }
}
