//! Communicators of some of the ranks.

use std::time::Duration;

use collectives::{Communicator, ErrorKind, Options, SparseAlgorithm};
use sparse_core::SparseVec;
use testkit::run_world;
use testkit::support::{Shape, world};
use transport::{AnyTransport, Rank, Transport};

use crate::common::{Algorithm, bits};
use crate::worlds::local_world;

const DEADLINE: Duration = Duration::from_secs(20);

fn communicator(transport: AnyTransport) -> Communicator<AnyTransport> {
    Communicator::with_options(transport, Options::default().deadline(DEADLINE))
}

/// Colors and keys of a world, among them none, one for all, one for each, and keys that turn the order round.
fn splits(rank: usize, ranks: usize) -> [(Option<u32>, u32); 5] {
    let (rank, ranks) = (rank as u32, ranks as u32);
    [
        (Some(7), 0),
        (Some(rank), 0),
        (Some(rank % 2), ranks - rank),
        ((rank % 3 != 1).then_some(u32::MAX), rank / 2),
        (None, 0),
    ]
}

/// The members, by their rank in the group, that a rank of the world must find itself among.
fn members(which: usize, rank: usize, ranks: usize) -> Vec<usize> {
    let color = splits(rank, ranks)[which].0;
    let mut members: Vec<usize> =
        (0..ranks).filter(|other| color.is_some() && splits(*other, ranks)[which].0 == color).collect();
    members.sort_by_key(|other| (splits(*other, ranks)[which].1, *other));
    members
}

#[test]
fn a_group_has_the_ranks_of_its_color_by_key_and_sums_what_they_have() {
    for ranks in 1..=9 {
        let inputs: &Vec<SparseVec<i64>> = &world(Shape::Random, ranks, 300, 3);
        run_world(local_world(ranks), |transport| async move {
            let world = communicator(transport);
            let rank = world.rank().index();
            for (which, (color, key)) in splits(rank, ranks).into_iter().enumerate() {
                let expected = members(which, rank, ranks);
                let group = world.split(color, key).await.unwrap();
                let Some(group) = group else {
                    assert!(expected.is_empty(), "P = {ranks}, rank {rank}, split {which}");
                    continue;
                };
                assert_eq!(group.world_size(), expected.len());
                assert_eq!(expected[group.rank().index()], rank);
                let theirs: Vec<_> = expected.iter().map(|member| inputs[*member].clone()).collect();
                let sum = sparse_core::reduce(&theirs).unwrap().to_dense();
                for algorithm in Algorithm::all() {
                    assert_eq!(algorithm.sum(&group, &inputs[rank]).await.unwrap(), sum, "{algorithm:?}");
                }
            }
        });
    }
}

#[test]
fn groups_parent_and_groups_of_groups_work_at_the_same_time() {
    for ranks in 1..=9 {
        let inputs: &Vec<SparseVec<f32>> = &world(Shape::Random, ranks, 300, 4);
        let sums = run_world(local_world(ranks), |transport| async move {
            let world = communicator(transport);
            let rank = world.rank().index();
            let half = world.split(Some(rank as u32 % 2), 0).await.unwrap().unwrap();
            let quarter = half.split(Some(rank as u32 / 2 % 2), 0).await.unwrap().unwrap();
            let again = world.split(Some(rank as u32 % 2), 0).await.unwrap().unwrap();
            let all = [&world, &half, &quarter, &again].map(|communicator| async move {
                let ring = Algorithm::Sparse(SparseAlgorithm::SsarRing);
                bits(&ring.sum(communicator, &inputs[rank]).await.unwrap())
            });
            futures_util::future::join_all(all).await
        });
        for (rank, of_rank) in sums.iter().enumerate() {
            // The same bits on all members, and on both communicators of the same members.
            assert_eq!(of_rank[0], sums[0][0]);
            assert_eq!(of_rank[1], sums[rank % 2][1]);
            assert_eq!(of_rank[2], sums[rank % 4][2]);
            assert_eq!(of_rank[3], of_rank[1]);
        }
    }
}

#[test]
fn a_failure_in_a_group_names_ranks_of_the_world_and_spoils_no_other() {
    for ranks in 2..=9 {
        for odd in 0..ranks {
            run_world(local_world(ranks), |transport| async move {
                let world = communicator(transport);
                let rank = world.rank().index();
                let upper = odd >= ranks / 2;
                // Turned round, so that ranks of the group are not those of the world.
                let color = u32::from(rank >= ranks / 2);
                let group = world.split(Some(color), (ranks - rank) as u32).await.unwrap().unwrap();
                let dim = if rank == odd { 11 } else { 10 };
                let input = SparseVec::new(dim, vec![0], vec![1.0_f32]).unwrap();
                let result = group.allreduce(&input, &SparseAlgorithm::SsarRing).await;
                if (color == 1) == upper && group.world_size() > 1 {
                    let error = result.unwrap_err();
                    assert_eq!(error.kind(), ErrorKind::Mismatch, "{error}");
                    assert!(
                        error.to_string().contains(&format!("rank {odd} has dimension 11"))
                            || error.to_string().contains(&format!("where rank {odd} has 11")),
                        "{error}"
                    );
                    assert_eq!(group.barrier().await.unwrap_err().kind(), ErrorKind::Poisoned);
                } else {
                    result.unwrap();
                    group.barrier().await.unwrap();
                }
                world.barrier().await.unwrap();
            });
        }
    }
}

#[test]
fn overflow_timeout_and_loss_in_a_group_name_ranks_of_the_world() {
    run_world(testkit::local_world(5), |local| async move {
        let transport = AnyTransport::new(local.clone());
        let world = communicator(transport.clone());
        let rank = world.rank().0;
        // Ranks 4, 3 and 2 are 0, 1 and 2 of their group.
        let group = || async { world.split((rank >= 2).then_some(0), 5 - rank).await.unwrap() };
        let (overflowing, losing) = (group().await, group().await);
        let hasty = Communicator::with_options(
            transport.clone(),
            Options::default().deadline(Duration::from_millis(60)).context(9),
        );
        let late = hasty.split((rank >= 2).then_some(0), 5 - rank).await.unwrap();
        let (Some(overflowing), Some(losing), Some(late)) = (overflowing, losing, late) else { return };
        // The only entry is in the first of three ranges, which rank 4 of the world sums.
        let input = SparseVec::new(3, vec![0], vec![i32::MAX]).unwrap();
        let split = SparseAlgorithm::SsarSplitAllgather;
        let error = overflowing.allreduce(&input, &split).await.unwrap_err();
        assert_eq!((error.kind(), error.peer()), (ErrorKind::Value, Some(Rank(4))), "{error}");
        if rank == 3 {
            transport.sleep(Duration::from_millis(200)).await;
        } else {
            let error = late.allreduce(&input.slice(1..3), &split).await.unwrap_err();
            assert_eq!((error.kind(), error.peer()), (ErrorKind::Timeout, Some(Rank(3))), "{error}");
        }
        if rank == 3 {
            local.kill(Rank(3));
            return;
        }
        let error = losing.barrier().await.unwrap_err();
        assert_eq!((error.kind(), error.peer()), (ErrorKind::PeerLost, Some(Rank(3))), "{error}");
    });
}

#[test]
fn a_context_of_split_communicators_is_refused() {
    let options = Options::default().context(1 << 31);
    let refused = Communicator::with_options(local_world(1).remove(0), options);
    let error = transport::block_on(refused.barrier()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
}
