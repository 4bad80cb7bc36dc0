use super::*;

const LINK: Link = Link::new(50e-6, 8e-9);

#[test]
fn the_union_of_uniform_supports_is_known() {
    let work = |ranks| Workload::uniform(ranks, 16_000_000, 125_000, 4);
    for (ranks, percent) in [(1, 0.78), (8, 6.1), (32, 22.2), (128, 63.3)] {
        let union = work(ranks).union(ranks) / 16e6 * 100.0;
        assert!((union - percent).abs() < 0.1, "{ranks}: {union}");
    }
}

#[test]
fn a_measured_union_is_met_again() {
    let work = Workload::uniform(8, 1_000_000, 1_000, 4);
    for union in [1_000.0, 1_001.0, 3_000.0, 7_900.0, 8_000.0] {
        let measured = work.with_union(union);
        assert!((measured.union(8) / union - 1.0).abs() < 1e-3, "{union}: {measured:?}");
    }
    assert!((work.with_union(work.union(8)).spread / work.spread - 1.0).abs() < 1e-6);
}

#[test]
fn a_broadcast_tree_takes_what_its_longest_path_takes() {
    // By recursion over all children: the i-th from the far end leaves as the i-th.
    fn down(ranks: usize, message: f64) -> f64 {
        let mut paths = vec![0.0];
        for (place, level) in (0..rounds(ranks)).rev().enumerate() {
            let subtree = (1 << level).min(ranks - (1 << level));
            paths.push(LINK.alpha + (place + 1) as f64 * LINK.occupancy(message) + down(subtree, message));
        }
        paths.into_iter().fold(0.0, f64::max)
    }
    for ranks in 1..=70 {
        for message in [0.0, 1_000.0, 1e6] {
            let cost = phases::broadcast(ranks, message, &LINK).network;
            assert!((cost - down(ranks, message)).abs() < 1e-12, "{ranks}");
        }
    }
}

#[test]
fn factorials_are_exact() {
    let sixteen_of_64 = 488_526_937_079_580_f64;
    assert!((bounds::entropy(64.0, 16.0) - sixteen_of_64.log2() / 8.0).abs() < 1e-9);
    assert!((bounds::entropy(2.0, 1.0) - 1.0 / 8.0).abs() < 1e-9);
    assert!(bounds::entropy(10.0, 0.0).abs() < 1e-12 && bounds::entropy(10.0, 10.0).abs() < 1e-12);
}

#[test]
fn nothing_costs_less_than_its_bound() {
    let below = |cost: Cost, bytes: f64, what: &str, work: &Workload| {
        assert!(cost.bytes >= bytes, "{what}: {} < {bytes}, {work:?}", cost.bytes);
        assert!(cost.network >= bounds::time(bytes, &LINK), "{what}: {work:?}");
    };
    for ranks in 1..=70 {
        for (dim, entries) in [(0, 0), (1, 1), (1000, 0), (1000, 20), (1000, 900), (25_600_000, 25_600)] {
            let work = Workload::uniform(ranks, dim, entries, 4);
            for algorithm in
                [DenseAlgorithm::Ring, DenseAlgorithm::RecursiveDoubling, DenseAlgorithm::Rabenseifner]
            {
                below(dense(algorithm, &work, &LINK), bounds::dense(&work), "dense", &work);
            }
            for algorithm in [
                SparseAlgorithm::SsarRecursiveDoubling,
                SparseAlgorithm::SsarSplitAllgather,
                SparseAlgorithm::SsarRing,
                SparseAlgorithm::DsarSplitAllgather,
                SparseAlgorithm::TopkAllgather,
            ] {
                below(sparse(&algorithm, &work, &LINK), bounds::sparse_sum(&work), "sparse", &work);
            }
            for algorithm in [
                GtopkAlgorithm::Tree,
                GtopkAlgorithm::Butterfly,
                GtopkAlgorithm::Exact,
                GtopkAlgorithm::Oktopk,
                GtopkAlgorithm::Spardl,
            ] {
                below(gtopk(algorithm, &work, &LINK), bounds::exact_topk(&work), "gtopk", &work);
            }
        }
    }
}

#[test]
fn full_supports_have_the_bound_of_a_dense_sum() {
    for ranks in 2..9 {
        let work = Workload::uniform(ranks, 1000, 1000, 4);
        assert!((bounds::sparse_sum(&work) - bounds::dense(&work)).abs() < 1e-6, "{ranks}");
    }
}
