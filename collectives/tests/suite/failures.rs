//! What happens when ranks disagree, die, fall silent or send nonsense: an error on every rank.

use std::time::Duration;

use collectives::{
    Communicator, DenseAlgorithm, Error, ErrorKind, GtopkAlgorithm, Options, PutBack, SparseAlgorithm,
};
use sparse_core::{Element, SparseVec};
use sparse_quant::{Norm, Qsgd};
use testkit::faults::Faulty;
use testkit::run_world;
use transport::{AnyTransport, Rank, Transport};

use crate::common::{self, Algorithm};
use crate::worlds::{in_virtual_time, local_world};

/// Long enough never to be reached unless a rank hangs.
const DEADLINE: Duration = Duration::from_secs(20);

fn communicator(transport: AnyTransport) -> Communicator<AnyTransport> {
    Communicator::with_options(transport, Options::default().deadline(DEADLINE))
}

fn ones<E: Element>(dim: u64) -> SparseVec<E> {
    SparseVec::new(dim, vec![0], vec![E::from_f32(1.0)]).unwrap()
}

/// The error of every rank of a world in which each rank runs `f` with its rank.
fn errors<F>(ranks: usize, f: F) -> Vec<Error>
where
    F: AsyncFn(&Communicator<AnyTransport>, usize) -> Result<(), Error> + Sync,
{
    let f = &f;
    run_world(local_world(ranks), |transport| async move {
        let communicator = communicator(transport);
        let rank = communicator.rank().index();
        f(&communicator, rank).await.expect_err("a rank did not notice")
    })
}

/// Every rank reports a mismatch, and every report names the rank that differs.
fn all_name(errors: &[Error], odd: usize, name: &str) {
    for (rank, error) in errors.iter().enumerate() {
        assert_eq!(error.kind(), ErrorKind::Mismatch, "{name}, rank {rank}: {error}");
        assert!(error.to_string().contains(&format!("rank {odd}")), "{name}, rank {rank}: {error}");
    }
}

/// Every position of the odd rank in every small world.
fn odd_ranks() -> impl Iterator<Item = (usize, usize)> {
    (2..=9).flat_map(|ranks| (0..ranks).map(move |odd| (ranks, odd)))
}

#[test]
fn a_different_dimension_is_an_error_on_every_rank() {
    for (ranks, odd) in odd_ranks() {
        for algorithm in Algorithm::all() {
            let errors = errors(ranks, async |communicator, rank| {
                let dim = if rank == odd { 101 } else { 100 };
                algorithm.sum::<_, f32>(communicator, &ones(dim)).await.map(drop)
            });
            all_name(&errors, odd, &format!("{algorithm:?}, P = {ranks}"));
            assert!(errors.iter().all(|error| error.to_string().contains("dimension")), "{errors:?}");
        }
    }
}

#[test]
fn a_different_dtype_is_an_error_on_every_rank() {
    for (ranks, odd) in odd_ranks() {
        for algorithm in Algorithm::all() {
            let errors = errors(ranks, async |communicator, rank| {
                if rank == odd {
                    algorithm.sum::<_, i32>(communicator, &ones(100)).await.map(drop)
                } else {
                    algorithm.sum::<_, f32>(communicator, &ones(100)).await.map(drop)
                }
            });
            all_name(&errors, odd, &format!("{algorithm:?}, P = {ranks}"));
        }
    }
}

#[test]
fn a_different_algorithm_is_an_error_on_every_rank() {
    for (ranks, odd) in odd_ranks() {
        let algorithms: Vec<_> = Algorithm::all().into_iter().collect();
        for (at, most) in algorithms.iter().enumerate() {
            // Each beside those that stand next to it, which are most alike, and one that is far.
            for distance in [1, algorithms.len() / 2, algorithms.len() - 1] {
                let other = &algorithms[(at + distance) % algorithms.len()];
                let errors = errors(ranks, async |communicator, rank| {
                    let algorithm = if rank == odd { other } else { most };
                    algorithm.sum::<_, f32>(communicator, &ones(100)).await.map(drop)
                });
                all_name(&errors, odd, &format!("{most:?}, one {other:?}, P = {ranks}"));
            }
        }
    }
}

#[test]
fn a_different_k_or_put_back_is_an_error_on_every_rank() {
    for (ranks, odd) in odd_ranks() {
        for algorithm in common::GTOPK {
            let with_k = errors(ranks, async |communicator, rank| {
                let k = if rank == odd { 5 } else { 4 };
                communicator.gtopk::<f32>(&ones(100), k, algorithm, PutBack::Conserving).await.map(drop)
            });
            all_name(&with_k, odd, &format!("{algorithm:?}, P = {ranks}, k"));
            let with_mode = errors(ranks, async |communicator, rank| {
                let put_back = common::PUT_BACK[usize::from(rank == odd)];
                communicator.gtopk::<f32>(&ones(100), 4, algorithm, put_back).await.map(drop)
            });
            all_name(&with_mode, odd, &format!("{algorithm:?}, P = {ranks}, put-back"));
        }
        let tree_and_butterfly = errors(ranks, async |communicator, rank| {
            let algorithm = common::GTOPK[usize::from(rank == odd)];
            communicator.gtopk::<f32>(&ones(100), 4, algorithm, PutBack::Conserving).await.map(drop)
        });
        all_name(&tree_and_butterfly, odd, &format!("tree and butterfly, P = {ranks}"));
    }
}

#[test]
fn another_operation_or_root_is_an_error_on_every_rank() {
    for (ranks, odd) in odd_ranks() {
        let operations = errors(ranks, async |communicator, rank| {
            if rank == odd {
                communicator.barrier().await
            } else {
                communicator.broadcast(Rank(0), bytes::Bytes::new()).await.map(drop)
            }
        });
        all_name(&operations, odd, &format!("barrier in broadcast, P = {ranks}"));
        let roots = errors(ranks, async |communicator, rank| {
            let root = if rank == odd { 1 } else { 0 };
            communicator.broadcast(Rank(root), bytes::Bytes::new()).await.map(drop)
        });
        all_name(&roots, odd, &format!("roots, P = {ranks}"));
    }
}

#[test]
fn worlds_split_down_the_middle_do_not_hang() {
    for ranks in 2..=9 {
        for lower in Algorithm::all() {
            for upper in Algorithm::all() {
                if format!("{lower:?}") == format!("{upper:?}") {
                    continue;
                }
                for interleaved in [false, true] {
                    let errors = errors(ranks, async |communicator, rank| {
                        let is_upper = if interleaved { rank % 2 == 1 } else { 2 * rank >= ranks };
                        let algorithm = if is_upper { &upper } else { &lower };
                        algorithm.sum::<_, f32>(communicator, &ones(100)).await.map(drop)
                    });
                    assert!(errors.iter().all(|error| error.kind() == ErrorKind::Mismatch), "{errors:?}");
                }
            }
        }
    }
}

#[test]
fn a_lost_rank_is_named_on_every_other() {
    for (ranks, lost) in odd_ranks() {
        for algorithm in Algorithm::all() {
            let algorithm = &algorithm;
            let errors = run_world(testkit::local_world(ranks), |transport| async move {
                let rank = transport.rank().index();
                if rank == lost {
                    transport.kill(Rank::from_index(lost));
                    return None;
                }
                let communicator = communicator(AnyTransport::new(transport));
                let error = algorithm.sum::<_, f32>(&communicator, &ones(100)).await.unwrap_err();
                Some(error)
            });
            for error in errors.into_iter().flatten() {
                assert_eq!(error.kind(), ErrorKind::PeerLost, "{algorithm:?}, P = {ranks}: {error}");
                assert!(error.to_string().contains(&format!("rank {lost}")), "{error}");
            }
        }
    }
}

#[test]
fn a_silent_rank_runs_into_the_deadline_of_the_others() {
    for ranks in 2..=4 {
        let part = |transport: AnyTransport| async move {
            let options = Options::default().deadline(Duration::from_millis(60));
            let communicator = Communicator::with_options(transport, options);
            if communicator.rank() == Rank(1) {
                communicator.transport().sleep(Duration::from_millis(200)).await;
                return communicator.barrier().await.unwrap_err();
            }
            // The owners of the ranges wait for every rank directly.
            communicator.allreduce::<f32>(&ones(10), &SparseAlgorithm::SsarSplitAllgather).await.unwrap_err()
        };
        for error in in_virtual_time(ranks, |world| run_world(world, part)) {
            assert_eq!((error.kind(), error.peer()), (ErrorKind::Timeout, Some(Rank(1))), "{error}");
            assert!(error.to_string().ends_with("still waits for rank 1"), "{error}");
        }
    }
}

#[test]
fn a_dropped_operation_is_an_error_for_the_others() {
    for ranks in 2..=5 {
        let errors = errors(ranks, async |communicator, rank| {
            if rank == 1 {
                drop(communicator.barrier());
            }
            communicator.barrier().await
        });
        for (rank, error) in errors.iter().enumerate() {
            let kind = if rank == 1 { ErrorKind::Poisoned } else { ErrorKind::Dropped };
            assert_eq!((error.kind(), error.peer()), (kind, Some(Rank(1))), "{error}");
        }
    }
}

#[test]
fn an_error_spoils_the_communicator_and_no_other() {
    let ranks = 4;
    run_world(local_world(ranks), |transport| async move {
        let spoilt = communicator(transport.clone());
        let other = Communicator::with_options(transport, Options::default().deadline(DEADLINE).context(1));
        let rank = spoilt.rank().0;
        let input = ones::<f32>(100 + u64::from(rank / 3));
        let first = spoilt.allreduce(&input, &SparseAlgorithm::SsarRecursiveDoubling).await.unwrap_err();
        assert_eq!(first.kind(), ErrorKind::Mismatch);
        let second = spoilt.barrier().await.unwrap_err();
        assert_eq!(second.kind(), ErrorKind::Poisoned);
        assert!(second.to_string().contains(&first.to_string()), "{second}");
        other.barrier().await.unwrap();
    });
}

#[test]
fn a_refused_call_sends_nothing_and_spoils_nothing() {
    run_world(local_world(3), |transport| async move {
        let communicator = communicator(transport);
        let mut short = [0.0_f32; 2];
        let refused =
            communicator.allreduce_dense(&[1.0; 3], &mut short, DenseAlgorithm::Ring).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::InvalidArgument);
        let refused = communicator.broadcast(Rank(3), bytes::Bytes::new()).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::InvalidArgument);
        let quantizer = std::sync::Arc::new(Qsgd::new(4, 64, Norm::Max).unwrap());
        let quantized = SparseAlgorithm::DsarQuantized { quantizer, seed: 0, step: 0 };
        let refused = communicator.allreduce::<i32>(&ones(10), &quantized).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::InvalidArgument);
        assert_eq!(communicator.traffic(), collectives::Traffic::default());
        communicator.barrier().await.unwrap();
    });
}

#[test]
fn a_corrupted_message_names_its_sender() {
    for ranks in 2..=5 {
        for algorithm in Algorithm::all() {
            let algorithm = &algorithm;
            let mut transports = local_world(ranks);
            let corrupting = Faulty::new(transports.remove(1)).corrupt_message(0);
            transports.insert(1, AnyTransport::new(corrupting));
            let errors = run_world(transports, |transport| async move {
                let communicator = communicator(transport);
                // The message may be one that not every rank depends on: then the next call tells.
                let first = algorithm.sum::<_, f32>(&communicator, &ones(100)).await.map(drop);
                match first {
                    Ok(()) => communicator.barrier().await.unwrap_err(),
                    Err(error) => error,
                }
            });
            for error in errors {
                let about = matches!(error.kind(), ErrorKind::Malformed | ErrorKind::Mismatch);
                assert!(about && error.to_string().contains("rank 1"), "{algorithm:?}: {error}");
            }
        }
    }
}

#[test]
fn an_integer_overflow_is_an_error_on_every_rank() {
    for ranks in 2..=9 {
        let input = |rank: usize| {
            let value = if rank < 2 { i32::MAX } else { 1 };
            SparseVec::new(50, vec![20], vec![value]).unwrap()
        };
        let check = |errors: &[Error]| {
            for error in errors {
                assert_eq!(error.kind(), ErrorKind::Value, "{error}");
                // The index in the whole vector, wherever it is summed.
                assert!(error.to_string().contains("at index 20 overflows"), "{error}");
            }
        };
        for algorithm in Algorithm::all() {
            check(&errors(ranks, async |communicator, rank| {
                algorithm.sum(communicator, &input(rank)).await.map(drop)
            }));
        }
        check(&errors(ranks, async |communicator, rank| {
            let tree = GtopkAlgorithm::Tree;
            communicator.gtopk(&input(rank), 1, tree, PutBack::Conserving).await.map(drop)
        }));
    }
}

#[test]
fn what_cannot_be_quantized_names_rank_and_position() {
    let quantizer = std::sync::Arc::new(Qsgd::new(4, 64, Norm::Max).unwrap());
    let algorithm = SparseAlgorithm::DsarQuantized { quantizer, seed: 0, step: 0 };
    let errors = errors(4, async |communicator, rank| {
        let value = if rank == 0 { f32::NAN } else { 1.0 };
        let input = SparseVec::new(100, vec![60], vec![value]).unwrap();
        communicator.allreduce(&input, &algorithm).await.map(drop)
    });
    for error in errors {
        // Index 60 is position 10 of the range of rank 2, which starts at 50.
        assert_eq!((error.kind(), error.peer()), (ErrorKind::Value, Some(Rank(2))), "{error}");
        assert!(error.to_string().contains("10") && error.to_string().contains("50"), "{error}");
    }
}
