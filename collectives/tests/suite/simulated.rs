//! The time that a simulated network takes, and what was counted, against `collectives::cost`.

use std::time::Duration;

use bytes::Bytes;
use collectives::cost::{self, Cost, Link, Workload};
use collectives::{Communicator, DenseAlgorithm, GtopkAlgorithm, Options, PutBack, SparseAlgorithm, Traffic};
use sparse_core::wire::HEADER;
use sparse_core::{SparseVec, Stream};
use testkit::sim::{self, Network};
use transport::{AnyTransport, Rank, Transport};

#[derive(Clone, Debug)]
pub(crate) enum Algorithm {
    Dense(DenseAlgorithm),
    Sparse(SparseAlgorithm),
    Gtopk(GtopkAlgorithm),
    Other(Operation),
}

/// Operations that have one algorithm.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Operation {
    ReduceScatter,
    ReduceScatterDense,
    Reduce,
    ReduceDense,
    Allgather,
    AllgatherSparse,
    AllgatherDense,
    Broadcast,
    BroadcastStream,
    Barrier,
}

use Algorithm::{Dense, Gtopk, Other, Sparse};

/// A new algorithm gets its row here.
fn all() -> [Algorithm; 25] {
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
        Other(Operation::ReduceScatter),
        Other(Operation::ReduceScatterDense),
        Other(Operation::Reduce),
        Other(Operation::ReduceDense),
        Other(Operation::Allgather),
        Other(Operation::AllgatherSparse),
        Other(Operation::AllgatherDense),
        Other(Operation::Broadcast),
        Other(Operation::BroadcastStream),
        Other(Operation::Barrier),
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
            Other(operation) => operation.cost(work, link),
        }
    }

    async fn run(&self, communicator: &Communicator<AnyTransport>, input: &SparseVec<f32>) {
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
            Other(operation) => operation.run(communicator, input).await,
        }
    }

    /// Seconds of one collective, and each rank's traffic.
    pub(crate) fn simulate(&self, work: &Workload, link: &Link) -> (f64, Vec<Traffic>) {
        let run = sim::run(&network(work.ranks, link), |transport| async move {
            let input = input(work, u64::from(transport.rank().0));
            let communicator =
                Communicator::with_options(AnyTransport::new(transport), Options::default().link(*link));
            self.run(&communicator, &input).await;
            communicator.traffic()
        });
        let run = run.unwrap();
        (run.time.as_secs_f64(), run.outputs)
    }
}

impl Operation {
    fn cost(self, work: &Workload, link: &Link) -> Cost {
        match self {
            Self::ReduceScatter => cost::reduce_scatter(work, link),
            Self::ReduceScatterDense => cost::reduce_scatter_dense(work, link),
            Self::Reduce => cost::reduce(work, link),
            Self::ReduceDense => cost::reduce_dense(work, link),
            Self::Allgather => cost::allgather(work.ranks, work.entries, link),
            Self::AllgatherSparse => cost::allgather_sparse(work, link),
            Self::AllgatherDense => cost::allgather_dense(work, link),
            Self::Broadcast => cost::broadcast(work.ranks, work.entries, link),
            Self::BroadcastStream => cost::broadcast(work.ranks, work.dim * work.value as u64, link),
            Self::Barrier => cost::barrier(work.ranks, link),
        }
    }

    async fn run(self, communicator: &Communicator<AnyTransport>, input: &SparseVec<f32>) {
        let (rank, ranks) = (communicator.rank().index(), communicator.world_size());
        let root = Rank::from_index(ranks / 2);
        let dense = || input.to_dense();
        let bytes = || Bytes::from(vec![0; input.nnz()]);
        match self {
            Self::ReduceScatter => drop(communicator.reduce_scatter(input).await.unwrap()),
            Self::ReduceScatterDense => {
                let range = communicator.range(input.dim());
                let mut part = vec![0.0; (range.end - range.start) as usize];
                communicator.reduce_scatter_dense(&dense(), &mut part).await.unwrap();
            }
            Self::Reduce => drop(communicator.reduce(root, input).await.unwrap()),
            Self::ReduceDense => {
                let mut sum = vec![0.0; if rank == root.index() { input.dim() as usize } else { 0 }];
                communicator.reduce_dense(root, &dense(), &mut sum).await.unwrap();
            }
            Self::Allgather => drop(communicator.allgather(bytes()).await.unwrap()),
            Self::AllgatherSparse => drop(communicator.allgather_sparse(input).await.unwrap()),
            Self::AllgatherDense => {
                let mut all = vec![0.0; input.dim() as usize * ranks];
                communicator.allgather_dense(&dense(), &mut all).await.unwrap();
            }
            Self::Broadcast => drop(communicator.broadcast(root, bytes()).await.unwrap()),
            Self::BroadcastStream => {
                drop(communicator.broadcast_stream(root, Stream::Dense(dense())).await.unwrap());
            }
            Self::Barrier => communicator.barrier().await.unwrap(),
        }
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
    // The check goes on beside a broadcast, and may keep back the data by as long as its messages take to leave.
    let is_broadcast = matches!(algorithm, Other(Operation::Broadcast | Operation::BroadcastStream));
    let beside =
        if is_broadcast { f64::from(cost.rounds) * (link.overhead + HEADER as f64 * link.beta) } else { 0.0 };
    assert!(time / cost.network > 0.97 && (time - beside) / cost.network < 1.03, "{what}");
    assert_eq!(cost.seconds(), cost.network + cost.work, "{what}");
}

/// Whether the formula says less than the whole: where so few entries more or less decide whether a sum goes dense that
/// chance does, where Rabenseifner's folded ranks and their neighbours share links, and where bytes alone count and
/// what owners have differs by chance: whoever is ahead shares the link of one who is behind, and makes it later, by more the
/// more rounds there are.
fn is_rough(algorithm: &Algorithm, work: &Workload, link: &Link) -> bool {
    let share = work.union(work.ranks) / work.dim as f64;
    match algorithm {
        Sparse(SparseAlgorithm::SsarSplitAllgather | SparseAlgorithm::SsarRing | SparseAlgorithm::Auto)
        | Other(Operation::Reduce) => (0.46..0.54).contains(&share),
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
        (Link::new(50e-6, 8e-9).overhead(5e-6), (2..=17).chain([24, 33, 64]).collect::<Vec<_>>()),
        (Link::new(1e-6, 200e-9), vec![2, 3, 4, 5, 8, 13, 33]),
    ];
    for (link, worlds) in links {
        for ranks in worlds {
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
fn pieces_of_long_vectors_take_the_time_that_the_formula_says() {
    // The latency is that of some pieces, or of less than one.
    for link in [Link::new(2e-3, 8e-9).overhead(1e-9).work(1e-8, 1e-9), Link::new(1e-6, 8e-9)] {
        for ranks in (2..=9).chain([16, 24, 33]) {
            let work = Workload::uniform(ranks, 400_000, 40_000, 4);
            for algorithm in
                [Sparse(SparseAlgorithm::SsarRecursiveDoubling), Dense(DenseAlgorithm::RecursiveDoubling)]
            {
                let cost = algorithm.cost(&work, &link);
                assert!(cost.messages > 3 * u64::from(cost.rounds), "{algorithm:?}: {cost:?}");
                expect(&algorithm, &work, &link);
            }
        }
    }
}

/// Seconds of one collective of a hierarchy of so many groups, each of neighbouring ranks, and each rank's traffic.
fn simulate_hierarchy(
    algorithm: &Algorithm,
    network: &Network,
    across: &Link,
    groups: usize,
    input: impl Fn(u64) -> SparseVec<f32>,
) -> (f64, Vec<Traffic>) {
    const BEGIN: Duration = Duration::from_secs(1);
    let input = &input;
    let run = sim::run(network, |transport| async move {
        let options = Options::default().link(*across);
        let communicator = Communicator::with_options(AnyTransport::new(transport), options);
        let (rank, ranks) = (communicator.rank().0, communicator.world_size());
        let (input, size) = (input(rank.into()), (ranks / groups) as u32);
        let hierarchy = communicator.hierarchy(rank / size).await.unwrap();
        let transport = communicator.transport();
        transport.sleep(BEGIN - transport.now()).await;
        match algorithm {
            Dense(algorithm) => {
                let mut sum = vec![0.0; input.dim() as usize];
                hierarchy.allreduce_dense(&input.to_dense(), &mut sum, *algorithm).await.unwrap();
            }
            Sparse(algorithm) => drop(hierarchy.allreduce(&input, algorithm).await.unwrap()),
            Gtopk(algorithm) => {
                let k = input.nnz();
                drop(hierarchy.gtopk(&input, k, *algorithm, PutBack::Conserving).await.unwrap());
            }
            Other(_) => unreachable!("not of a hierarchy"),
        }
        (transport.now() - BEGIN, hierarchy.communicator().traffic())
    });
    let (times, traffic): (Vec<_>, Vec<_>) = run.unwrap().outputs.into_iter().unzip();
    (times.into_iter().max().unwrap().as_secs_f64(), traffic)
}

fn cost_of_hierarchy(
    algorithm: &Algorithm,
    work: &Workload,
    groups: usize,
    inside: &Link,
    across: &Link,
) -> Cost {
    match algorithm {
        Dense(algorithm) => cost::hierarchical_dense(*algorithm, work, groups, inside, across),
        Sparse(algorithm) => cost::hierarchical_sparse(algorithm, work, groups, inside, across),
        Gtopk(algorithm) => cost::hierarchical_gtopk(*algorithm, work, groups, inside, across),
        Other(_) => unreachable!("not of a hierarchy"),
    }
}

#[test]
fn a_hierarchy_takes_the_time_that_its_formula_says() {
    let link = Link::new(50e-6, 8e-9).overhead(5e-6);
    for (ranks, groups) in [(4, 2), (6, 3), (8, 4), (8, 2), (9, 3), (16, 4), (6, 1), (6, 6)] {
        let work = Workload::uniform(ranks, 60_000, 1_200, 4);
        for algorithm in [
            Dense(DenseAlgorithm::Ring),
            Dense(DenseAlgorithm::RecursiveDoubling),
            Sparse(SparseAlgorithm::SsarRecursiveDoubling),
            Sparse(SparseAlgorithm::SsarSplitAllgather),
            Sparse(SparseAlgorithm::TopkAllgather),
            Gtopk(GtopkAlgorithm::Tree),
            Gtopk(GtopkAlgorithm::Butterfly),
            Gtopk(GtopkAlgorithm::Exact),
        ] {
            let cost = cost_of_hierarchy(&algorithm, &work, groups, &link, &link);
            let network = network(ranks, &link);
            let (time, traffic) =
                simulate_hierarchy(&algorithm, &network, &link, groups, |rank| input(&work, rank));
            let bytes =
                traffic.iter().map(|traffic| traffic.bytes_sent.max(traffic.bytes_received)).max().unwrap();
            let messages = traffic.iter().map(|traffic| traffic.messages_sent).max().unwrap();
            let what =
                format!("{algorithm:?}, P = {ranks}, {groups} groups: {cost:?}, but {time} s, {bytes} bytes");
            // Who sends the most inside need not send the most across.
            let size = ranks / groups;
            let is_bound =
                matches!(algorithm, Gtopk(_)) && !(size.is_power_of_two() && groups.is_power_of_two());
            assert!(messages == cost.messages || is_bound && messages < cost.messages, "{what}");
            // Owners' shares of the largest differ by chance; and who has found the largest of its group goes on before the
            // others of the group know them.
            let (least, tolerance) = if matches!(algorithm, Gtopk(_)) { (0.7, 0.1) } else { (0.97, 0.03) };
            let share = bytes as f64 / cost.bytes;
            assert!(share < 1.0 + tolerance && (share > 1.0 - tolerance || is_bound), "{what}");
            assert!(time / cost.network > least && time / cost.network < 1.0 + tolerance, "{what}");
        }
    }
}

#[test]
fn a_hierarchy_of_groups_that_share_a_link_takes_the_time_that_its_formula_says_where_bytes_alone_count() {
    // Where ranks are folded, one rank's messages leave while another's wait: it takes less.
    for (ranks, groups) in [(4, 2), (8, 2)] {
        let size = ranks / groups;
        for (alpha, least) in [(1e-6, 0.97), (50e-6, 0.0)] {
            let (inside, beta) = (Link::new(alpha / 10.0, 2e-8), 2e-7);
            // All ranks of a group use its link, which latency alone does not occupy.
            let across = Link::new(alpha, size as f64 * beta);
            let network = Network::new(ranks).alpha(Duration::from_secs_f64(alpha)).rate(1.0 / beta);
            let network = network.groups(size, Duration::from_secs_f64(inside.alpha), 1.0 / inside.beta);
            let work = Workload::uniform(ranks, 60_000, 1_200, 4);
            for algorithm in [
                Dense(DenseAlgorithm::Ring),
                Dense(DenseAlgorithm::RecursiveDoubling),
                Sparse(SparseAlgorithm::SsarSplitAllgather),
                Sparse(SparseAlgorithm::SsarRecursiveDoubling),
            ] {
                let cost = cost_of_hierarchy(&algorithm, &work, groups, &inside, &across);
                let (time, _) =
                    simulate_hierarchy(&algorithm, &network, &across, groups, |rank| input(&work, rank));
                let share = time / cost.network;
                let what =
                    format!("{algorithm:?}, P = {ranks}, {groups} groups, {alpha}: {cost:?}, but {time} s");
                assert!(share > least && share < 1.03, "{what}");
            }
        }
    }
}

#[test]
fn a_hierarchy_saves_what_groups_have_in_common_on_the_links_between_hosts() {
    // Four hosts of four ranks each, who share a link of 1 Gbit/s.
    let (ranks, hosts) = (16, 4);
    let network = Network::new(ranks).alpha(Duration::from_micros(50)).rate(125e6);
    let network = network.hosts(ranks / hosts, Duration::from_nanos(100), 1e11);
    let (inside, across) = (Link::new(1e-7, 1e-11), Link::new(50e-6, 4.0 * 8e-9));
    // All ranks have the same support.
    let work = Workload::uniform(ranks, 400_000, 20_000, 4).with_union(20_000.0);
    for algorithm in
        &[SparseAlgorithm::SsarSplitAllgather, SparseAlgorithm::SsarRecursiveDoubling].map(Sparse)
    {
        let (time, _) = simulate_hierarchy(algorithm, &network, &across, hosts, |_| input(&work, 0));
        let expected = cost_of_hierarchy(algorithm, &work, hosts, &inside, &across).network;
        assert!((time / expected - 1.0).abs() < 0.1, "{algorithm:?}: {time}, not {expected}");
        let flat = sim::run(&network, |transport| async move {
            algorithm.run(&Communicator::new(AnyTransport::new(transport)), &input(&work, 0)).await;
        });
        let flat = flat.unwrap().time.as_secs_f64();
        assert!(time < 0.5 * flat, "{algorithm:?}: {time}, flat {flat}");
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
