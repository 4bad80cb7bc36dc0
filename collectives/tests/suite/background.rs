//! Collectives that are started and waited for later.

use std::time::Duration;

use collectives::{
    Communicator, DenseAlgorithm, ErrorKind, GtopkAlgorithm, Handle, Options, Progress, PutBack,
    SparseAlgorithm,
};
use proptest::prelude::*;
use sparse_core::{SparseVec, Stream};
use testkit::{oracle, run_world, strategies};
use transport::{AnyTransport, Rank, Transport};

use crate::common::bits;
use crate::worlds::local_world;

const PROGRESS: [Progress; 2] = [Progress::Thread, Progress::Caller];

fn communicator(transport: AnyTransport, progress: Progress) -> Communicator<AnyTransport> {
    Communicator::with_options(
        transport,
        Options::default().progress(progress).deadline(Duration::from_secs(20)),
    )
}

fn algorithms() -> [SparseAlgorithm; 4] {
    [
        SparseAlgorithm::SsarSplitAllgather,
        SparseAlgorithm::SsarRecursiveDoubling,
        SparseAlgorithm::DsarSplitAllgather,
        SparseAlgorithm::TopkAllgather,
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    #[test]
    fn many_in_flight_end_as_if_one_after_the_other(
        worlds in prop::collection::vec(strategies::world::<i32>(5..=5), 1..7),
        seed in any::<u64>(),
        polled in any::<bool>(),
    ) {
        let worlds = &worlds;
        let progress = PROGRESS[usize::from(polled)];
        let sums = run_world(local_world(5), |transport| async move {
            let communicator = communicator(transport, progress);
            let rank = communicator.rank().index();
            let started = worlds.iter().zip(algorithms().into_iter().cycle()).enumerate();
            let mut handles: Vec<_> = started
                .map(|(at, (inputs, algorithm))| {
                    (at, communicator.start_allreduce(inputs[rank].clone(), algorithm))
                })
                .collect();
            // Each rank waits in another order.
            handles.sort_by_key(|(at, _)| (seed ^ rank as u64).rotate_left(7 * *at as u32 + 1));
            let mut sums = Vec::new();
            for (at, handle) in handles {
                sums.push((at, handle.await.map(Stream::into_dense)));
            }
            sums.sort_by_key(|(at, _)| *at);
            sums
        });
        for sums in sums {
            for ((_, sum), inputs) in sums.into_iter().zip(worlds) {
                prop_assert_eq!(bits(&sum.unwrap()), bits(&oracle::sum(inputs)));
            }
        }
    }
}

#[test]
fn a_thread_goes_on_while_nobody_waits() {
    run_world(local_world(4), |transport| async move {
        let communicator = communicator(transport, Progress::Thread);
        let handle = communicator.start_allreduce_dense(vec![1_i32; 1000], DenseAlgorithm::Ring);
        while !handle.test() {
            std::thread::yield_now();
        }
        assert_eq!(handle.wait().unwrap(), [4; 1000]);
    });
}

#[test]
fn tests_alone_make_progress_where_no_thread_does() {
    run_world(local_world(4), |transport| async move {
        let communicator = communicator(transport, Progress::Caller);
        let first = communicator.start_allreduce_dense(vec![1_i32; 1000], DenseAlgorithm::Ring);
        let vector = SparseVec::new(9, vec![3], vec![2.0_f32]).unwrap();
        let second = communicator.start_gtopk(vector, 1, GtopkAlgorithm::Tree, PutBack::Conserving);
        // Testing one makes both go on.
        while !second.test() {
            std::thread::yield_now();
        }
        assert_eq!(second.wait().unwrap().sum.values(), [8.0]);
        assert_eq!(first.wait().unwrap(), [4; 1000]);
    });
}

#[test]
fn a_dropped_handle_takes_nothing_from_the_others() {
    for progress in PROGRESS {
        let sums = run_world(local_world(4), |transport| async move {
            let communicator = communicator(transport, progress);
            let start =
                || communicator.start_allreduce_dense(vec![1_i32; 100], DenseAlgorithm::RecursiveDoubling);
            let (first, second) = (start(), start());
            let dropped = (communicator.rank() == Rank(2)).then_some(first);
            drop(dropped);
            let second = second.wait();
            communicator.barrier().await.unwrap();
            second
        });
        assert!(sums.into_iter().all(|sum| sum.unwrap() == [4; 100]));
    }
}

#[test]
fn a_lost_rank_ends_what_was_started() {
    for progress in PROGRESS {
        let kinds = run_world(local_world(3), |transport| async move {
            if transport.rank() == Rank(1) {
                return None;
            }
            let communicator = communicator(transport, progress);
            let handles: Vec<Handle<_>> = (0..3)
                .map(|_| communicator.start_allreduce_dense(vec![1.0_f32; 100], DenseAlgorithm::Ring))
                .collect();
            Some(handles.into_iter().map(|handle| handle.wait().unwrap_err().kind()).collect::<Vec<_>>())
        });
        for kinds in [&kinds[0], &kinds[2]] {
            let kinds = kinds.as_ref().unwrap();
            assert_eq!(kinds[0], ErrorKind::PeerLost, "{progress:?}");
            assert_eq!(kinds.len(), 3);
        }
    }
}

#[test]
fn what_nobody_is_left_to_go_on_with_is_an_error_on_the_others() {
    let results = run_world(local_world(2), |transport| async move {
        let progress = if transport.rank() == Rank(0) { Progress::Caller } else { Progress::Thread };
        let keep = transport.clone();
        let communicator = communicator(transport, progress);
        let handle = communicator.start_allreduce_dense(vec![1.0_f32; 10], DenseAlgorithm::Ring);
        if progress == Progress::Caller {
            drop((handle, communicator));
            return Some(keep);
        }
        assert_eq!(handle.wait().unwrap_err().kind(), ErrorKind::Dropped);
        None
    });
    drop(results);
}

#[test]
fn a_call_that_cannot_be_is_told_by_its_handle() {
    run_world(local_world(1), |transport| async move {
        let communicator = communicator(transport, Progress::Thread);
        let quantized = SparseAlgorithm::DsarQuantized {
            quantizer: std::sync::Arc::new(sparse_quant::Qsgd::new(8, 512, sparse_quant::Norm::Max).unwrap()),
            seed: 0,
            step: 0,
        };
        let vector = SparseVec::new(9, vec![3], vec![2_i32]).unwrap();
        let error = communicator.start_allreduce(vector, quantized).wait().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    });
}
