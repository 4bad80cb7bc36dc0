//! Messages, bytes and rounds of every algorithm, against its documented formula, on every rank.
//!
//! The formulas are written here a second time, from the documentation and from the inputs alone.

use collectives::{Communicator, DenseAlgorithm, GtopkAlgorithm, PutBack, SparseAlgorithm};
use sparse_core::wire::HEADER;
use sparse_core::{SparseVec, Stream};
use testkit::support::{Shape, world};
use testkit::{Counted, run_world};
use transport::{AnyTransport, Rank};

use self::model::*;
use crate::common;
use crate::worlds::in_virtual_time;

mod hierarchy;
mod model;

/// Runs an operation on a counted world, and compares each rank's cost and the world's rounds.
/// `check` is the number of rounds of the check for the same call, a header each.
fn expect<F>(name: &str, ranks: usize, check: usize, expected: &(Vec<Cost>, u64), run: F)
where
    F: AsyncFn(Communicator<AnyTransport>, usize) + Sync,
{
    let run = &run;
    let part = |transport| async move {
        let transport = Counted::new(transport);
        let communicator = Communicator::new(AnyTransport::new(transport.clone()));
        run(communicator.clone(), communicator.rank().index()).await;
        let counts = transport.counts();
        assert_eq!(counts.bytes_sent, communicator.traffic().bytes_sent);
        assert_eq!(counts.messages_sent, communicator.traffic().messages_sent);
        counts
    };
    // Where every message takes as long, what runs side by side is seldom taken for a chain, and always the same way.
    let counts = in_virtual_time(ranks, |world| run_world(world, part));
    for (rank, counts) in counts.iter().enumerate() {
        let mut cost = expected.0[rank];
        if ranks > 1 {
            (0..check).for_each(|_| cost.send(0));
        }
        let counted = Cost { messages: counts.messages_sent, bytes: counts.bytes_sent };
        assert_eq!(counted, cost, "{name}, P = {ranks}, rank {rank}");
    }
    // A check of several rounds runs beside the data, so the two chains may be counted as one.
    let rounds = counts.iter().map(|counts| counts.rounds).max().unwrap();
    let of_check = if ranks > 1 { check as u64 } else { 0 };
    let longest = expected.1.max(of_check);
    let mixed = if of_check > 1 { expected.1 + of_check } else { longest };
    assert!((longest..=mixed).contains(&rounds), "{name}, P = {ranks}: {rounds} rounds, not {longest}");
}

#[test]
fn long_and_short_blocks_are_gathered_together() {
    for ranks in [2, 3, 4, 7] {
        // Every other rank's vector is long, and so is every other range of the sum.
        let dim = 40_000 * ranks as u32;
        let entries = |rank: usize| if rank.is_multiple_of(2) { 20_000 } else { 10 };
        let start = |rank: usize| rank as u32 * 40_000;
        let supports: Vec<Support> =
            (0..ranks).map(|rank| (start(rank)..start(rank) + entries(rank)).collect()).collect();
        let world = World { dim: dim as usize, supports };
        let input = |rank: usize| {
            let indices: Vec<u32> = world.supports[rank].iter().copied().collect();
            let values = indices.iter().map(|index| *index as f32).collect();
            SparseVec::new(u64::from(dim), indices, values).unwrap()
        };
        let sum = SparseVec::concat(
            &(0..ranks)
                .map(|rank| input(rank).slice(u64::from(start(rank))..u64::from(start(rank)) + 40_000))
                .collect::<Vec<_>>(),
        )
        .unwrap();
        for (algorithm, expected) in [
            (SparseAlgorithm::SsarSplitAllgather, ssar_split(&world)),
            (SparseAlgorithm::TopkAllgather, topk_allgather(&world)),
        ] {
            expect(&format!("{algorithm:?}"), ranks, 1, &expected, async |communicator, rank| {
                let found = communicator.allreduce(&input(rank), &algorithm).await.unwrap();
                assert_eq!(found.into_dense(), sum.to_dense());
            });
        }
    }
}

#[test]
fn a_long_vector_goes_round_in_pieces() {
    // Up to 1, 8 and 24 pieces of a range.
    for (ranks, dim) in [(2, 60_000), (3, 500_001), (5, 1_000_003), (2, 1_300_000)] {
        let world = World { dim, supports: vec![Support::new(); ranks] };
        expect("a long ring", ranks, 1, &dense_ring(&world), async |communicator, rank| {
            // Whole numbers, whose sums are exact.
            let values = |rank: usize| (0..dim).map(move |at| ((at * 7 + rank * 13) % 101) as f32);
            let expected: Vec<f32> = (0..dim).map(|_| 0.0).collect();
            let expected = (0..ranks).fold(expected, |mut sum, rank| {
                sum.iter_mut().zip(values(rank)).for_each(|(sum, value)| *sum += value);
                sum
            });
            let (input, mut sum) = (values(rank).collect::<Vec<_>>(), vec![f32::NAN; dim]);
            communicator.allreduce_dense(&input, &mut sum, DenseAlgorithm::Ring).await.unwrap();
            assert!(sum == expected, "P = {ranks}, N = {dim}");
        });
    }
}

#[test]
fn long_vectors_are_halved_in_pieces() {
    for (ranks, dim) in [(2, 60_000), (4, 500_001), (7, 300_003)] {
        let world = World { dim, supports: vec![Support::new(); ranks] };
        expect("long halves", ranks, 1, &rabenseifner(&world), async |communicator, rank| {
            let values = |rank: usize| (0..dim).map(move |at| ((at * 7 + rank * 13) % 101) as f32);
            let expected: Vec<f32> =
                (0..dim).map(|at| (0..ranks).map(|rank| ((at * 7 + rank * 13) % 101) as f32).sum()).collect();
            let (input, mut sum) = (values(rank).collect::<Vec<_>>(), vec![f32::NAN; dim]);
            communicator.allreduce_dense(&input, &mut sum, DenseAlgorithm::Rabenseifner).await.unwrap();
            assert!(sum == expected, "P = {ranks}, N = {dim}");
        });
    }
}

#[test]
fn long_sparse_ranges_go_round_in_pieces_each_in_its_own_form() {
    // 2, 8 and 16 pieces of a range; the lowest indices are full, so that the first pieces go dense.
    for (ranks, dim) in [(3, 1_000_000), (2, 4_000_000), (2, 5_000_000)] {
        let support = |rank: usize| (0..60_000).chain((60_000..dim).filter(move |at| at % 997 == rank * 13));
        let supports = (0..ranks).map(|rank| support(rank).map(|at| at as u32).collect()).collect();
        let world = World { dim, supports };
        let inputs: Vec<SparseVec<f32>> = (0..ranks)
            .map(|rank| {
                let indices: Vec<u32> = world.supports[rank].iter().copied().collect();
                let values = indices.iter().map(|at| (at % 101 + 1) as f32).collect();
                SparseVec::new(dim as u64, indices, values).unwrap()
            })
            .collect();
        let sum = sparse_core::reduce(&inputs).unwrap();
        expect("a long sparse ring", ranks, 1, &ssar_ring(&world), async |communicator, rank| {
            let found = communicator.allreduce(&inputs[rank], &SparseAlgorithm::SsarRing).await.unwrap();
            assert!(found.into_sparse().unwrap() == sum, "P = {ranks}, N = {dim}");
        });
    }
}

#[test]
fn every_allreduce_costs_what_it_documents() {
    for ranks in 1..=9 {
        for dim in common::dims(ranks) {
            for shape in Shape::ALL {
                let inputs: Vec<SparseVec<f32>> = world(shape, ranks, dim, 11);
                let supports = inputs.iter().map(|input| input.indices().iter().copied().collect()).collect();
                let world = World { dim: dim as usize, supports };
                let doubling_of =
                    |size: &dyn Fn(&Partial) -> usize| (doubling(&world, size), doubling_rounds(ranks));
                let name = |algorithm: &dyn std::fmt::Debug| format!("{algorithm:?}, {shape:?}, N = {dim}");

                for algorithm in
                    [DenseAlgorithm::Ring, DenseAlgorithm::RecursiveDoubling, DenseAlgorithm::Rabenseifner]
                {
                    let expected = match algorithm {
                        DenseAlgorithm::Ring => dense_ring(&world),
                        DenseAlgorithm::Rabenseifner => rabenseifner(&world),
                        _ => doubling_of(&|_| VALUE * world.dim),
                    };
                    expect(&name(&algorithm), ranks, 1, &expected, async |communicator, rank| {
                        let mut sum = vec![0.0; dim as usize];
                        let input = inputs[rank].to_dense();
                        communicator.allreduce_dense(&input, &mut sum, algorithm).await.unwrap();
                    });
                }
                let sparse = [
                    (
                        SparseAlgorithm::SsarRecursiveDoubling,
                        doubling_of(&|partial| partial.bytes(world.dim)),
                    ),
                    (SparseAlgorithm::SsarSplitAllgather, ssar_split(&world)),
                    (SparseAlgorithm::DsarSplitAllgather, dsar_split(&world)),
                    (SparseAlgorithm::TopkAllgather, topk_allgather(&world)),
                    (SparseAlgorithm::SsarRing, ssar_ring(&world)),
                ];
                for (algorithm, expected) in sparse {
                    expect(&name(&algorithm), ranks, 1, &expected, async |communicator, rank| {
                        communicator.allreduce(&inputs[rank], &algorithm).await.unwrap();
                    });
                }
            }
        }
    }
}

#[test]
fn every_reduce_scatter_costs_what_it_documents() {
    for ranks in 1..=9 {
        for dim in common::dims(ranks) {
            for shape in Shape::ALL {
                let inputs: Vec<SparseVec<f32>> = world(shape, ranks, dim, 12);
                let supports = inputs.iter().map(|input| input.indices().iter().copied().collect()).collect();
                let world = World { dim: dim as usize, supports };
                let rounds = u64::from(ranks > 1);
                let expected = ((0..ranks).map(|rank| split(&world, rank)).collect(), rounds);
                expect("reduce_scatter", ranks, 1, &expected, async |communicator, rank| {
                    communicator.reduce_scatter(&inputs[rank]).await.unwrap();
                });
                let costs = (0..ranks).map(|rank| {
                    let mut cost = Cost::default();
                    // The own range is the only one that a rank never sends.
                    (1..ranks).for_each(|step| cost.send(VALUE * world.range((rank + step) % ranks)));
                    cost
                });
                let expected = (costs.collect(), ranks as u64 - 1);
                expect("reduce_scatter_dense", ranks, 1, &expected, async |communicator, rank| {
                    let mut part = vec![0.0; world.range(rank)];
                    communicator.reduce_scatter_dense(&inputs[rank].to_dense(), &mut part).await.unwrap();
                });
            }
        }
        let blocks = vec![16; ranks];
        let costs = (0..ranks).map(|rank| {
            let mut cost = Cost::default();
            bruck(&mut cost, rank, &blocks);
            cost
        });
        expect("split", ranks, 1, &(costs.collect(), log2_ceil(ranks) as u64), async |communicator, rank| {
            communicator.split(Some(rank as u32 % 2), 0).await.unwrap();
        });
    }
}

#[test]
fn every_reduce_and_gather_costs_what_it_documents() {
    for ranks in 1..=9 {
        for dim in common::dims(ranks) {
            for shape in Shape::ALL {
                let inputs: Vec<SparseVec<f32>> = world(shape, ranks, dim, 13);
                let supports = inputs.iter().map(|input| input.indices().iter().copied().collect()).collect();
                let world = World { dim: dim as usize, supports };
                let (union, whole) = (world.union(), VALUE * world.dim);

                expect("allgather_sparse", ranks, 1, &topk_allgather(&world), async |communicator, rank| {
                    communicator.allgather_sparse(&inputs[rank]).await.unwrap();
                });
                let costs = (0..ranks).map(|rank| {
                    let mut cost = Cost::default();
                    bruck(&mut cost, rank, &vec![HEADER + whole; ranks]);
                    cost
                });
                let expected = (costs.collect(), log2_ceil(ranks) as u64);
                expect("allgather_dense", ranks, 1, &expected, async |communicator, rank| {
                    let mut all = vec![0.0; dim as usize * ranks];
                    communicator.allgather_dense(&inputs[rank].to_dense(), &mut all).await.unwrap();
                });

                for root in [0, ranks / 2, ranks - 1] {
                    let at = Rank::from_index(root);
                    let to_root = |rank: usize, mut cost: Cost, body: usize| {
                        if rank != root {
                            cost.send(body);
                        }
                        cost
                    };
                    let rounds = if ranks > 1 { 2 } else { 0 };
                    let costs = (0..ranks).map(|rank| {
                        let sum = shorter(&world.within(&union, rank), world.range(rank));
                        to_root(rank, split(&world, rank), sum)
                    });
                    expect("reduce", ranks, 1, &(costs.collect(), rounds), async |communicator, rank| {
                        communicator.reduce(at, &inputs[rank]).await.unwrap();
                    });
                    let costs = (0..ranks).map(|rank| {
                        let mut cost = Cost::default();
                        (1..ranks).for_each(|step| cost.send(VALUE * world.range((rank + step) % ranks)));
                        to_root(rank, cost, VALUE * world.range(rank))
                    });
                    expect(
                        "reduce_dense",
                        ranks,
                        1,
                        &(costs.collect(), rounds),
                        async |communicator, rank| {
                            let mut sum = vec![0.0; dim as usize];
                            communicator.reduce_dense(at, &inputs[rank].to_dense(), &mut sum).await.unwrap();
                        },
                    );
                    for (body, stream) in [
                        (sparse(&world.supports[root], world.dim), Stream::Sparse(inputs[root].clone())),
                        (whole, Stream::Dense(inputs[root].to_dense())),
                    ] {
                        let costs = broadcast(ranks, root, body);
                        expect(
                            "broadcast_stream",
                            ranks,
                            log2_ceil(ranks),
                            &costs,
                            async |communicator, _| {
                                communicator.broadcast_stream(at, stream.clone()).await.unwrap();
                            },
                        );
                    }
                }
            }
        }
    }
}

#[test]
fn every_gtopk_costs_what_it_documents() {
    for ranks in 1..=9 {
        // With 60 of 900, one owner has all that survives.
        for (dim, k) in [(40, 0), (40, 1), (40, 20), (900, 60)] {
            // The first k entries are the largest of every rank, so every message has exactly those.
            let values = |rank: usize| (0..dim).map(move |index| (1000 - index) as f32 + rank as f32);
            let inputs: Vec<_> = (0..ranks)
                .map(|rank| SparseVec::from_dense(&values(rank).collect::<Vec<_>>()).unwrap())
                .collect();
            let largest: Support = (0..k as u32).collect();
            let message = sparse(&largest, dim);
            let world = World { dim, supports: vec![largest; ranks] };
            for algorithm in common::GTOPK {
                let all = World { dim, supports: vec![(0..dim as u32).collect(); ranks] };
                let expected = match algorithm {
                    GtopkAlgorithm::Tree => gtopk_tree(ranks, message),
                    GtopkAlgorithm::Exact => gtopk_exact(&all, k),
                    GtopkAlgorithm::Spardl => spardl(&all, k),
                    GtopkAlgorithm::Oktopk => oktopk(&world, k),
                    _ => (doubling(&world, |_| message), doubling_rounds(ranks)),
                };
                let name = format!("{algorithm:?}, {k} of {dim}");
                expect(&name, ranks, 1, &expected, async |communicator, rank| {
                    communicator.gtopk(&inputs[rank], k, algorithm, PutBack::Conserving).await.unwrap();
                });
            }
        }
    }
}

#[test]
fn allgather_broadcast_and_barrier_cost_what_they_document() {
    for ranks in 1..=9 {
        let blocks: Vec<usize> = (0..ranks).map(|rank| rank * 10).collect();
        let gather = (0..ranks).map(|rank| {
            let mut cost = Cost::default();
            bruck(&mut cost, rank, &blocks);
            cost
        });
        let expected = (gather.collect(), log2_ceil(ranks) as u64);
        expect("allgather", ranks, 1, &expected, async |communicator, rank| {
            communicator.allgather(vec![0; rank * 10].into()).await.unwrap();
        });

        for root in 0..ranks {
            let expected = broadcast(ranks, root, 100);
            expect("broadcast", ranks, log2_ceil(ranks), &expected, async |communicator, _| {
                communicator.broadcast(Rank::from_index(root), vec![0; 100].into()).await.unwrap();
            });
        }

        let expected = (vec![Cost::default(); ranks], 0);
        expect("barrier", ranks, log2_ceil(ranks), &expected, async |communicator, _| {
            communicator.barrier().await.unwrap();
        });
    }
}
