//! Groups of any sizes: sums, the global top-k, and failures, through all levels.

use std::sync::Arc;
use std::time::Duration;

use collectives::{
    Communicator, DenseAlgorithm, Error, ErrorKind, GtopkAlgorithm, Hierarchy, Options, Progress, PutBack,
    Reduction, SparseAlgorithm,
};
use sparse_core::{Element, SparseVec, reduce};
use sparse_quant::{Norm, Qsgd, Quantizer};
use testkit::support::{Shape, world};
use testkit::{oracle, run_world};
use transport::{AnyTransport, Rank, Transport};

use crate::common::{Algorithm, GTOPK, PUT_BACK, bits, dims};
use crate::worlds::{delayed, in_virtual_time, local_world};

fn communicator(transport: AnyTransport) -> Communicator<AnyTransport> {
    Communicator::with_options(transport, Options::default().deadline(Duration::from_secs(20)))
}

/// Ways to make groups: all in one, each alone, interleaved, in turn, one apart, and of three sizes whose ranks lie mixed.
const GROUPINGS: [fn(usize) -> u32; 6] = [
    |_| 7,
    |rank| rank as u32,
    |rank| rank as u32 % 2,
    |rank| 9 - rank as u32 / 3,
    |rank| u32::from(rank == 1),
    |rank| [0, 1, 1, 2, 2, 2, 1, 2, 2][rank],
];

/// Those that make different groups of so many ranks.
fn groupings(ranks: usize) -> Vec<fn(usize) -> u32> {
    let mut different: Vec<fn(usize) -> u32> = Vec::new();
    for color in GROUPINGS {
        if different.iter().all(|other| groups(*other, ranks) != groups(color, ranks)) {
            different.push(color);
        }
    }
    different
}

/// The groups' members, in the order of their lowest ranks.
fn groups(color: fn(usize) -> u32, ranks: usize) -> Vec<Vec<usize>> {
    let mut groups: Vec<Vec<usize>> = Vec::new();
    for rank in 0..ranks {
        match groups.iter_mut().find(|group| color(group[0]) == color(rank)) {
            Some(group) => group.push(rank),
            None => groups.push(vec![rank]),
        }
    }
    groups
}

async fn sum<E: Element>(
    algorithm: &Algorithm,
    hierarchy: &Hierarchy<AnyTransport>,
    input: &SparseVec<E>,
) -> Result<Vec<E>, Error> {
    match algorithm {
        Algorithm::Dense(algorithm) => {
            let mut output = vec![E::from_f32(77.0); input.dim() as usize];
            hierarchy.allreduce_dense(&input.to_dense(), &mut output, *algorithm).await?;
            Ok(output)
        }
        Algorithm::Sparse(algorithm) => Ok(hierarchy.allreduce(input, algorithm).await?.into_dense()),
        Algorithm::Gtopk(algorithm) => {
            let k = input.dim() as usize;
            Ok(hierarchy.gtopk(input, k, *algorithm, PutBack::Conserving).await?.sum.to_dense())
        }
    }
}

/// The sum in rank order in each group, rounded, and of those in the order of groups.
fn in_order<E: Element>(groups: &[Vec<usize>], inputs: &[SparseVec<E>]) -> SparseVec<E> {
    let of_group = |group: &Vec<usize>| {
        reduce(&group.iter().map(|rank| inputs[*rank].clone()).collect::<Vec<_>>()).unwrap()
    };
    reduce(&groups.iter().map(of_group).collect::<Vec<_>>()).unwrap()
}

/// Whether the algorithm sums whole parts in the order of ranks.
fn sums_in_rank_order(algorithm: &Algorithm) -> bool {
    use SparseAlgorithm::{DsarSplitAllgather, SsarSplitAllgather, TopkAllgather};
    match algorithm {
        Algorithm::Sparse(SsarSplitAllgather | DsarSplitAllgather | TopkAllgather) => true,
        Algorithm::Gtopk(algorithm) => *algorithm == GtopkAlgorithm::Exact,
        _ => false,
    }
}

fn check_sums<E: Element>(worlds: impl IntoIterator<Item = usize>) {
    for ranks in worlds {
        let cases: Vec<(Shape, Vec<SparseVec<E>>)> = dims(ranks)
            .into_iter()
            .flat_map(|dim| Shape::ALL.map(|shape| (shape, world(shape, ranks, dim, dim + 5))))
            .collect();
        for color in groupings(ranks) {
            let groups = groups(color, ranks);
            let part = |transport| {
                let (cases, groups) = (&cases, &groups);
                async move {
                    let whole = communicator(transport);
                    let rank = whole.rank().index();
                    let hierarchy = whole.hierarchy(color(rank)).await.unwrap();
                    assert_eq!(hierarchy.groups(), groups.len());
                    assert!(groups[hierarchy.group()].contains(&rank));
                    let mut sums = Vec::new();
                    for (_, inputs) in cases {
                        for algorithm in Algorithm::all() {
                            sums.push(sum(&algorithm, &hierarchy, &inputs[rank]).await.unwrap());
                        }
                    }
                    sums
                }
            };
            let by_rank = in_virtual_time(ranks, |world| run_world(world, part));
            let all = Algorithm::all();
            for (case, (shape, inputs)) in cases.iter().enumerate() {
                let (exact, bound) = (oracle::sum_f64(inputs), oracle::rounding_bound(inputs));
                for (choice, algorithm) in all.iter().enumerate() {
                    let of_rank = |rank: usize| &by_rank[rank][case * all.len() + choice];
                    let name = format!("{algorithm:?}, {groups:?}, N = {}, {shape:?}", inputs[0].dim());
                    assert_eq!(of_rank(0).len(), exact.len(), "{name}");
                    for ((sum, exact), bound) in of_rank(0).iter().zip(&exact).zip(&bound) {
                        assert!((sum.to_f64() - exact).abs() <= *bound, "{name}: {sum:?}, not {exact}");
                    }
                    if sums_in_rank_order(algorithm) {
                        let expected = in_order(&groups, inputs).to_dense();
                        assert_eq!(bits(of_rank(0)), bits(&expected), "{name}");
                    }
                    for rank in 1..ranks {
                        assert_eq!(bits(of_rank(rank)), bits(of_rank(0)), "{name}, rank {rank}");
                    }
                }
            }
        }
    }
}

#[test]
fn a_sum_of_floats_is_that_of_groups_and_has_the_same_bits_on_all_ranks() {
    check_sums::<f32>(1..=9);
}

#[test]
fn a_sum_of_integers_is_exact() {
    // Whose rounding bound is 0.
    check_sums::<i64>([2, 5, 8]);
}

#[test]
fn delays_do_not_change_a_bit() {
    for color in [GROUPINGS[3], GROUPINGS[5]] {
        let inputs: &Vec<SparseVec<f32>> = &world(Shape::Random, 8, 300, 2);
        let sums = |transports| {
            run_world(transports, |transport| async move {
                let whole = communicator(transport);
                let rank = whole.rank().index();
                let hierarchy = whole.hierarchy(color(rank)).await.unwrap();
                let mut sums = Vec::new();
                for algorithm in Algorithm::all() {
                    sums.push(bits(&sum(&algorithm, &hierarchy, &inputs[rank]).await.unwrap()));
                }
                sums
            })
        };
        assert_eq!(sums(local_world(8)), sums(delayed(local_world(8), 3)));
    }
}

#[test]
fn the_global_top_k_loses_nothing_and_is_the_same_everywhere() {
    for ranks in 1..=9 {
        for color in groupings(ranks) {
            for (shape, k) in [
                (Shape::Random, 0),
                (Shape::Random, 5),
                (Shape::Skewed, 7),
                (Shape::Identical, 5),
                (Shape::Disjoint, 9),
                (Shape::Random, 200),
            ] {
                let inputs: &Vec<SparseVec<i32>> = &world(shape, ranks, 60, k as u64 + 4);
                for algorithm in GTOPK {
                    for put_back in PUT_BACK {
                        let part = |transport| async move {
                            let whole = communicator(transport);
                            let rank = whole.rank().index();
                            let hierarchy = whole.hierarchy(color(rank)).await.unwrap();
                            hierarchy.gtopk(&inputs[rank], k, algorithm, put_back).await.unwrap()
                        };
                        let results = in_virtual_time(ranks, |world| run_world(world, part));
                        let name = format!("{algorithm:?}, {:?}, k = {k}, {shape:?}", groups(color, ranks));
                        let global = &results[0].sum;
                        assert!(results.iter().all(|result| result.sum == *global), "{name}");
                        assert!(global.nnz() <= k, "{name}");
                        let total = reduce(inputs).unwrap();
                        if algorithm == GtopkAlgorithm::Exact {
                            assert_eq!(*global, total.clone().top_k(k).0, "{name}");
                        }
                        if put_back == PutBack::Conserving {
                            let returned = results.iter().map(|result| result.put_back.clone());
                            let after =
                                reduce(&returned.chain([global.clone()]).collect::<Vec<_>>()).unwrap();
                            assert_eq!(after.to_dense(), total.to_dense(), "{name}");
                        } else {
                            for (input, result) in inputs.iter().zip(&results) {
                                let outside = input.iter().filter(|(index, _)| global.get(*index).is_none());
                                let returned: Vec<_> = result.put_back.iter().collect();
                                assert_eq!(returned, outside.collect::<Vec<_>>(), "{name}");
                            }
                        }
                    }
                }
            }
        }
    }
}

#[test]
fn a_mean_is_the_sum_divided_by_all_ranks_once() {
    for color in GROUPINGS {
        let inputs: &Vec<SparseVec<f32>> = &world(Shape::Random, 7, 200, 6);
        run_world(local_world(7), |transport| async move {
            let whole = communicator(transport);
            let rank = whole.rank().index();
            let sums = whole.hierarchy(color(rank)).await.unwrap();
            let means = sums.with_reduction(Reduction::Mean);
            for algorithm in Algorithm::all() {
                let mut expected = sum(&algorithm, &sums, &inputs[rank]).await.unwrap();
                sparse_core::divide(&mut expected, 7);
                let mean = sum(&algorithm, &means, &inputs[rank]).await.unwrap();
                assert_eq!(bits(&mean), bits(&expected), "{algorithm:?}");
            }
            for algorithm in GTOPK {
                let of_sums = sums.gtopk(&inputs[rank], 5, algorithm, PutBack::Conserving).await.unwrap();
                let of_means = means.gtopk(&inputs[rank], 5, algorithm, PutBack::Conserving).await.unwrap();
                assert_eq!(of_means.put_back, of_sums.put_back);
                let mut expected = of_sums.sum.values().to_vec();
                sparse_core::divide(&mut expected, 7);
                assert_eq!(bits(of_means.sum.values()), bits(&expected));
            }
        });
    }
}

#[test]
fn what_is_started_and_waited_for_in_another_order_is_what_one_gets_at_once() {
    for progress in [Progress::Thread, Progress::Caller] {
        for color in GROUPINGS {
            let inputs: &Vec<SparseVec<f32>> = &world(Shape::Random, 7, 200, 8);
            run_world(local_world(7), |transport| async move {
                let options = Options::default().deadline(Duration::from_secs(20)).progress(progress);
                let whole = Communicator::with_options(transport, options);
                let rank = whole.rank().index();
                let hierarchy = whole.hierarchy(color(rank)).await.unwrap().with_reduction(Reduction::Mean);
                let (input, split) = (&inputs[rank], SparseAlgorithm::SsarSplitAllgather);
                let (dense, exact) = (DenseAlgorithm::Rabenseifner, GtopkAlgorithm::Exact);
                let sum = hierarchy.start_allreduce(input.clone(), split.clone());
                let all = hierarchy.start_allreduce_dense(input.to_dense(), dense);
                let largest = hierarchy.start_gtopk(input.clone(), 5, exact, PutBack::Conserving);
                let (largest, all, sum) = (largest.await.unwrap(), all.await.unwrap(), sum.await.unwrap());
                assert_eq!(sum, hierarchy.allreduce(input, &split).await.unwrap());
                let mut expected = vec![0.0; 200];
                hierarchy.allreduce_dense(&input.to_dense(), &mut expected, dense).await.unwrap();
                assert_eq!(all, expected);
                let found = hierarchy.gtopk(input, 5, exact, PutBack::Conserving).await.unwrap();
                assert_eq!(largest, found);
            });
        }
    }
}

#[test]
fn a_quantized_sum_is_near_and_the_same_on_all_ranks() {
    for color in GROUPINGS {
        let inputs: &Vec<SparseVec<f32>> = &world(Shape::Random, 8, 1000, 3);
        let sums = run_world(local_world(8), |transport| async move {
            let whole = communicator(transport);
            let rank = whole.rank().index();
            let quantizer: Arc<dyn Quantizer> = Arc::new(Qsgd::new(8, 64, Norm::Max).unwrap());
            let algorithm = SparseAlgorithm::DsarQuantized { quantizer, seed: 7, step: 1 };
            let hierarchy = whole.hierarchy(color(rank)).await.unwrap();
            hierarchy.allreduce(&inputs[rank], &algorithm).await.unwrap().into_dense()
        });
        let exact = oracle::sum(inputs);
        let step = exact.iter().fold(0.0_f32, |largest, value| largest.max(value.abs())) / 127.0;
        for sum in &sums {
            assert_eq!(bits(sum), bits(&sums[0]));
            assert!(sum.iter().zip(&exact).all(|(sum, exact)| (sum - exact).abs() <= step * 1.001));
        }
    }
}

#[test]
fn hierarchies_groups_and_the_whole_work_at_the_same_time() {
    let inputs: &Vec<SparseVec<i64>> = &world(Shape::Random, 6, 300, 4);
    run_world(local_world(6), |transport| async move {
        let whole = communicator(transport);
        let rank = whole.rank().index();
        let pairs = whole.hierarchy(rank as u32 / 2).await.unwrap();
        let mixed = whole.hierarchy(GROUPINGS[5](rank)).await.unwrap();
        let half = whole.split(Some(rank as u32 % 2), 6 - rank as u32).await.unwrap().unwrap();
        let of_half = half.hierarchy(u32::from(half.rank() == Rank(1))).await.unwrap();
        let ring = Algorithm::Sparse(SparseAlgorithm::SsarRing);
        let input = &inputs[rank];
        let (a, b, c, d) = futures_util::future::join4(
            sum(&ring, &pairs, input),
            ring.sum(&whole, input),
            sum(&ring, &mixed, input),
            sum(&ring, &of_half, input),
        )
        .await;
        let all = oracle::sum(inputs);
        let mine: Vec<_> = inputs.iter().skip(rank % 2).step_by(2).cloned().collect();
        assert_eq!([a.unwrap(), b.unwrap(), c.unwrap()], [&all, &all, &all].map(Clone::clone));
        assert_eq!(d.unwrap(), oracle::sum(&mine));
        pairs.communicator().barrier().await.unwrap();
    });
}

fn ones<E: Element>(dim: u64) -> SparseVec<E> {
    SparseVec::new(dim, vec![0], vec![E::from_f32(1.0)]).unwrap()
}

/// A sum, a dense sum, and the top-k.
async fn each<E: Element>(
    which: usize,
    hierarchy: &Hierarchy<AnyTransport>,
    input: &SparseVec<E>,
) -> Result<(), Error> {
    match which {
        0 => sum(&Algorithm::Sparse(SparseAlgorithm::SsarSplitAllgather), hierarchy, input).await.map(drop),
        1 => sum(&Algorithm::Dense(DenseAlgorithm::Ring), hierarchy, input).await.map(drop),
        2 => hierarchy.gtopk(input, 3, GtopkAlgorithm::Tree, PutBack::Paper).await.map(drop),
        _ => hierarchy.gtopk(input, 3, GtopkAlgorithm::Exact, PutBack::Paper).await.map(drop),
    }
}

#[test]
fn a_call_that_differs_in_one_group_is_an_error_in_all() {
    for ranks in [2, 3, 5, 8] {
        for color in groupings(ranks) {
            for odd in 0..ranks {
                for which in 0..4 {
                    for fault in ["dimension", "dtype", "operation", "reduction"] {
                        let errors = run_world(local_world(ranks), |transport| async move {
                            let whole = communicator(transport);
                            let rank = whole.rank().index();
                            let mut hierarchy = whole.hierarchy(color(rank)).await.unwrap();
                            let is_odd = |what| fault == what && rank == odd;
                            let dim = if is_odd("dimension") { 101 } else { 100 };
                            let which = if is_odd("operation") { (which + 1) % 3 } else { which };
                            if is_odd("dtype") {
                                return each(which, &hierarchy, &ones::<i32>(dim)).await.unwrap_err();
                            }
                            if is_odd("reduction") {
                                hierarchy = hierarchy.with_reduction(Reduction::Mean);
                            }
                            each(which, &hierarchy, &ones::<f32>(dim)).await.unwrap_err()
                        });
                        for error in errors {
                            let what = format!("{which}, {:?}, {fault}: {error}", groups(color, ranks));
                            assert_eq!(error.kind(), ErrorKind::Mismatch, "{what}");
                            let text = error.to_string();
                            assert!(text.contains(&format!("rank {odd}")) && text.contains(fault), "{what}");
                        }
                    }
                }
            }
        }
    }
}

#[test]
fn a_rank_lost_in_one_group_is_named_in_all() {
    for ranks in [2, 3, 5, 8] {
        for color in groupings(ranks) {
            for lost in 0..ranks {
                for which in 0..4 {
                    run_world(testkit::local_world(ranks), |transport| async move {
                        let whole = communicator(AnyTransport::new(transport.clone()));
                        let rank = whole.rank().index();
                        let hierarchy = whole.hierarchy(color(rank)).await.unwrap();
                        whole.barrier().await.unwrap();
                        if rank == lost {
                            transport.kill(Rank::from_index(lost));
                            return;
                        }
                        let error = each(which, &hierarchy, &ones::<f32>(100)).await.unwrap_err();
                        assert_eq!(error.kind(), ErrorKind::PeerLost, "{error}");
                        assert!(error.to_string().contains(&format!("rank {lost}")), "{error}");
                    });
                }
            }
        }
    }
}

#[test]
fn a_silent_rank_runs_into_the_deadline_in_all_groups() {
    for color in GROUPINGS {
        for which in 0..4 {
            let part = |transport: AnyTransport| async move {
                let options = Options::default().deadline(Duration::from_millis(300));
                let whole = Communicator::with_options(transport, options);
                let rank = whole.rank().index();
                let hierarchy = whole.hierarchy(color(rank)).await.unwrap();
                if rank == 1 {
                    whole.transport().sleep(Duration::from_millis(500)).await;
                    return hierarchy.communicator().barrier().await.unwrap_err();
                }
                each(which, &hierarchy, &ones::<f32>(10)).await.unwrap_err()
            };
            for error in in_virtual_time(5, |world| run_world(world, part)) {
                assert_eq!(error.kind(), ErrorKind::Timeout, "{error}");
            }
        }
    }
}

#[test]
fn an_overflow_in_a_group_or_across_is_an_error_that_names_the_rank_in_the_world() {
    // Ranks 5, 4, .. of the world are 0, 1, .. of the communicator; two groups of three.
    for (values, owner) in [([i32::MAX, 1, 0, 0, 0, 0], Rank(5)), ([0, 0, 0, i32::MAX, 1, 0], Rank(2))] {
        let errors = run_world(local_world(6), |transport| async move {
            let world = communicator(transport);
            let turned = world.split(Some(0), 5 - world.rank().0).await.unwrap().unwrap();
            let rank = turned.rank().index();
            let hierarchy = turned.hierarchy(rank as u32 / 3).await.unwrap();
            // In the shard of each group's first rank.
            let input = SparseVec::new(30, vec![2], vec![values[rank]]).unwrap();
            let split = Algorithm::Sparse(SparseAlgorithm::SsarSplitAllgather);
            sum(&split, &hierarchy, &input).await.unwrap_err()
        });
        for error in errors {
            assert_eq!((error.kind(), error.peer()), (ErrorKind::Value, Some(owner)), "{error}");
        }
    }
    let errors = run_world(local_world(6), |transport| async move {
        let world = communicator(transport);
        let turned = world.split(Some(0), 5 - world.rank().0).await.unwrap().unwrap();
        let rank = turned.rank().index();
        let hierarchy = turned.hierarchy(rank as u32 / 3).await.unwrap();
        // The second half of the last shard, which rank 5 of the communicator owns across: rank 0 of the world.
        let input = SparseVec::new(30, vec![29], vec![i32::MAX / 4]).unwrap();
        let split = Algorithm::Sparse(SparseAlgorithm::SsarSplitAllgather);
        sum(&split, &hierarchy, &input).await.unwrap_err()
    });
    for error in errors {
        assert_eq!((error.kind(), error.peer()), (ErrorKind::Value, Some(Rank(0))), "{error}");
        assert!(error.to_string().contains("at index 29 overflows"), "{error}");
    }
}

#[test]
fn a_failure_spoils_the_hierarchy_and_not_its_parent() {
    run_world(local_world(4), |transport| async move {
        let whole = communicator(transport);
        let hierarchy = whole.hierarchy(whole.rank().0 / 2).await.unwrap();
        let other = whole.hierarchy(whole.rank().0 / 2).await.unwrap();
        let dim = 100 + u64::from(whole.rank().0 / 3);
        assert!(each(0, &hierarchy, &ones::<f32>(dim)).await.is_err());
        let error = each(1, &hierarchy, &ones::<f32>(100)).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Poisoned);
        let refused = other.allreduce_dense(&[1.0_f32], &mut [], DenseAlgorithm::Ring).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::InvalidArgument);
        each(1, &other, &ones::<f32>(100)).await.unwrap();
        whole.barrier().await.unwrap();
    });
}
