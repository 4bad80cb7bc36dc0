//! Reduce, allgather and broadcast of vectors: what every rank gets, from and at every root; and errors on every rank.

use std::time::Duration;

use bytes::Bytes;
use collectives::{Communicator, Error, ErrorKind, Options};
use half::bf16;
use sparse_core::{Element, SparseVec, Stream, dense_is_shorter};
use testkit::support::{Shape, world};
use testkit::{oracle, run_world};
use transport::{AnyTransport, Rank, Transport};

use crate::common::{bits, dims};
use crate::worlds::{delayed, in_virtual_time, local_world};

#[derive(Clone, Copy, PartialEq, Debug)]
enum Operation {
    Reduce(usize),
    ReduceDense(usize),
    AllgatherSparse,
    AllgatherDense,
    BroadcastSparse(usize),
    BroadcastDense(usize),
}

use Operation::{AllgatherDense, AllgatherSparse, BroadcastDense, BroadcastSparse, Reduce, ReduceDense};

/// What stands where nothing was written.
const UNTOUCHED: f32 = 77.0;

impl Operation {
    fn rooted(root: usize) -> [Self; 4] {
        [Reduce(root), ReduceDense(root), BroadcastSparse(root), BroadcastDense(root)]
    }

    /// Each, from and at every root.
    fn all(ranks: usize) -> Vec<Self> {
        [AllgatherSparse, AllgatherDense].into_iter().chain((0..ranks).flat_map(Self::rooted)).collect()
    }

    /// All values that this rank gets, one vector after the other.
    async fn run<E: Element>(
        self,
        communicator: &Communicator<AnyTransport>,
        input: &SparseVec<E>,
    ) -> Result<Vec<E>, Error> {
        let rank = communicator.rank().index();
        match self {
            Reduce(root) => {
                let Some(sum) = communicator.reduce(Rank::from_index(root), input).await? else {
                    assert_ne!(rank, root);
                    return Ok(vec![]);
                };
                assert!(sum.is_dense() || !dense_is_shorter::<E>(sum.nnz() as u64, sum.dim()));
                Ok(sum.into_dense())
            }
            ReduceDense(root) => {
                let length = if rank == root { input.dim() as usize } else { 3 };
                let mut output = vec![E::from_f32(UNTOUCHED); length];
                communicator.reduce_dense(Rank::from_index(root), &input.to_dense(), &mut output).await?;
                if rank == root {
                    return Ok(output);
                }
                assert_eq!(output, [E::from_f32(UNTOUCHED); 3]);
                Ok(vec![])
            }
            AllgatherSparse => {
                let all = communicator.allgather_sparse(input).await?;
                assert!(all.iter().all(|vector| vector.dim() == input.dim()));
                Ok(all.iter().flat_map(SparseVec::to_dense).collect())
            }
            AllgatherDense => {
                let length = communicator.world_size() * input.dim() as usize;
                let mut all = vec![E::from_f32(UNTOUCHED); length];
                communicator.allgather_dense(&input.to_dense(), &mut all).await?;
                Ok(all)
            }
            BroadcastSparse(root) => {
                // The others pass something of the same dimension.
                let theirs = if rank == root {
                    Stream::Sparse(input.clone())
                } else {
                    Stream::Dense(input.to_dense())
                };
                let got = communicator.broadcast_stream(Rank::from_index(root), theirs).await?;
                assert!(!got.is_dense());
                Ok(got.into_dense())
            }
            BroadcastDense(root) => {
                let theirs = if rank == root {
                    Stream::Dense(input.to_dense())
                } else {
                    Stream::Sparse(input.clone())
                };
                let got = communicator.broadcast_stream(Rank::from_index(root), theirs).await?;
                assert!(got.is_dense());
                Ok(got.into_dense())
            }
        }
    }

    fn expected<E: Element>(self, inputs: &[SparseVec<E>], rank: usize) -> Vec<E> {
        match self {
            // In rank order, rounded once: whichever the root, the same bits.
            Reduce(root) | ReduceDense(root) if rank == root => oracle::sum(inputs),
            Reduce(_) | ReduceDense(_) => vec![],
            AllgatherSparse | AllgatherDense => inputs.iter().flat_map(SparseVec::to_dense).collect(),
            BroadcastSparse(root) | BroadcastDense(root) => inputs[root].to_dense(),
        }
    }
}

fn check<E: Element>(of_world: impl Fn(Vec<AnyTransport>) -> Vec<AnyTransport>) {
    for ranks in 1..=9 {
        let cases: Vec<(Shape, Vec<SparseVec<E>>)> = dims(ranks)
            .into_iter()
            .flat_map(|dim| Shape::ALL.map(|shape| (shape, world(shape, ranks, dim, dim + 3))))
            .collect();
        let part = |transport| {
            let cases = &cases;
            async move {
                let communicator = communicator(transport);
                let rank = communicator.rank().index();
                for (shape, inputs) in cases {
                    for operation in Operation::all(ranks) {
                        let got = operation.run(&communicator, &inputs[rank]).await.unwrap();
                        let expected = operation.expected(inputs, rank);
                        let name = format!("{operation:?}, P = {ranks}, N = {}, {shape:?}", inputs[0].dim());
                        assert_eq!(
                            bits(&got),
                            bits(&expected),
                            "{name}, rank {rank}: {got:?}, not {expected:?}"
                        );
                    }
                }
            }
        };
        in_virtual_time(ranks, |world| run_world(of_world(world), part));
    }
}

fn communicator(transport: AnyTransport) -> Communicator<AnyTransport> {
    Communicator::with_options(transport, Options::default().deadline(Duration::from_secs(20)))
}

#[test]
fn every_rank_gets_the_bits_of_the_oracle_with_f32() {
    check::<f32>(|world| world);
}

#[test]
fn every_rank_gets_the_bits_of_the_oracle_with_bf16() {
    check::<bf16>(|world| world);
}

#[test]
fn every_rank_gets_the_bits_of_the_oracle_with_i64() {
    check::<i64>(|world| world);
}

#[test]
fn delays_do_not_change_what_a_rank_gets() {
    check::<f32>(|world| delayed(world, 5));
}

#[test]
fn long_vectors_are_gathered_and_reduced_too() {
    // Blocks that travel alone, and dense sums.
    for ranks in [2, 3, 5] {
        let inputs: &Vec<SparseVec<f32>> = &world(Shape::Random, ranks, 200_000, 1);
        run_world(local_world(ranks), |transport| async move {
            let communicator = communicator(transport);
            let rank = communicator.rank().index();
            for operation in Operation::all(ranks) {
                let got = operation.run(&communicator, &inputs[rank]).await.unwrap();
                assert!(bits(&got) == bits(&operation.expected(inputs, rank)), "{operation:?}, P = {ranks}");
            }
        });
    }
}

#[test]
fn nan_is_passed_on_bit_by_bit_and_summed_to_one() {
    let input = |rank: usize| {
        // Two of different payloads meet at index 3; one alone stands at index 5.
        let lone = if rank == 2 { f32::from_bits(0xffc0_1234) } else { 1.0 };
        SparseVec::new(40, vec![3, 5], vec![f32::from_bits(0x7fc0_0001 + rank as u32), lone]).unwrap()
    };
    for ranks in 3..=6 {
        let inputs: &Vec<_> = &(0..ranks).map(input).collect();
        run_world(local_world(ranks), |transport| async move {
            let communicator = communicator(transport);
            let rank = communicator.rank().index();
            for operation in Operation::all(ranks) {
                let got = operation.run(&communicator, &inputs[rank]).await.unwrap();
                match operation {
                    Reduce(root) | ReduceDense(root) if rank == root => {
                        assert!(got[3].is_nan() && got[5].is_nan());
                    }
                    _ => assert_eq!(bits(&got), bits(&operation.expected(inputs, rank))),
                }
            }
        });
    }
}

fn ones<E: Element>(dim: u64) -> SparseVec<E> {
    SparseVec::new(dim, vec![0], vec![E::from_f32(1.0)]).unwrap()
}

#[test]
fn a_call_that_differs_is_an_error_on_every_rank_that_names_who_differs() {
    for ranks in 2..=9 {
        let others = Operation::rooted(0).into_iter().chain([AllgatherSparse, AllgatherDense]);
        for operation in others {
            for odd in 0..ranks {
                for fault in ["dimension", "dtype", "root", "operation"] {
                    let elsewhere = match operation {
                        Reduce(_) => Reduce(1),
                        ReduceDense(_) => ReduceDense(1),
                        BroadcastSparse(_) => BroadcastSparse(1),
                        BroadcastDense(_) => BroadcastDense(1),
                        AllgatherSparse | AllgatherDense if fault == "root" => continue,
                        other => other,
                    };
                    let another = if matches!(operation, Reduce(_)) { AllgatherDense } else { Reduce(0) };
                    let errors = run_world(local_world(ranks), |transport| async move {
                        let communicator = communicator(transport);
                        let is_odd = communicator.rank().index() == odd;
                        let (dim, chosen) = match fault {
                            "dimension" if is_odd => (101, operation),
                            "root" if is_odd => (100, elsewhere),
                            "operation" if is_odd => (100, another),
                            _ => (100, operation),
                        };
                        if fault == "dtype" && is_odd {
                            return chosen.run(&communicator, &ones::<i32>(dim)).await.unwrap_err();
                        }
                        chosen.run(&communicator, &ones::<f32>(dim)).await.unwrap_err()
                    });
                    for error in errors {
                        let what = format!("{operation:?}, P = {ranks}, {fault} of rank {odd}: {error}");
                        assert_eq!(error.kind(), ErrorKind::Mismatch, "{what}");
                        let text = error.to_string();
                        assert!(text.contains(&format!("rank {odd}")) && text.contains(fault), "{what}");
                    }
                }
            }
        }
    }
}

#[test]
fn a_lost_rank_is_named_on_every_other() {
    for ranks in 2..=6 {
        for operation in Operation::all(ranks) {
            for lost in 0..ranks {
                run_world(testkit::local_world(ranks), |transport| async move {
                    if transport.rank().index() == lost {
                        transport.kill(Rank::from_index(lost));
                        return;
                    }
                    let error = operation
                        .run(&communicator(AnyTransport::new(transport)), &ones::<f32>(100))
                        .await
                        .unwrap_err();
                    assert_eq!(error.kind(), ErrorKind::PeerLost, "{operation:?}: {error}");
                    assert!(error.to_string().contains(&format!("rank {lost}")), "{operation:?}: {error}");
                });
            }
        }
    }
}

#[test]
fn a_silent_rank_runs_into_the_deadline_of_the_others() {
    for operation in Operation::all(3) {
        let part = |transport: AnyTransport| async move {
            let options = Options::default().deadline(Duration::from_millis(60));
            let communicator = Communicator::with_options(transport, options);
            if communicator.rank() == Rank(1) {
                communicator.transport().sleep(Duration::from_millis(200)).await;
                return communicator.barrier().await.unwrap_err();
            }
            operation.run(&communicator, &ones::<f32>(10)).await.unwrap_err()
        };
        for error in in_virtual_time(3, |world| run_world(world, part)) {
            assert_eq!(error.kind(), ErrorKind::Timeout, "{operation:?}: {error}");
        }
    }
}

#[test]
fn an_overflow_is_an_error_on_every_rank() {
    for ranks in 2..=9 {
        for root in 0..ranks {
            for operation in [Reduce(root), ReduceDense(root)] {
                let errors = run_world(local_world(ranks), |transport| async move {
                    let communicator = communicator(transport);
                    let value = if communicator.rank().0 < 2 { i32::MAX } else { 1 };
                    let input = SparseVec::new(50, vec![20], vec![value]).unwrap();
                    // A rank whose range is sound may have ended: then the next call tells.
                    match operation.run(&communicator, &input).await {
                        Ok(_) => communicator.barrier().await.unwrap_err(),
                        Err(error) => error,
                    }
                });
                for error in errors {
                    let cause =
                        if let Error::Poisoned { cause } = &error { cause.kind() } else { error.kind() };
                    assert_eq!(cause, ErrorKind::Value, "{operation:?}: {error}");
                    assert!(error.to_string().contains("at index 20 overflows"), "{operation:?}: {error}");
                }
            }
        }
    }
}

#[test]
fn sums_may_overflow_on_the_way() {
    for operation in [Reduce(1), ReduceDense(1)] {
        run_world(local_world(3), |transport| async move {
            let communicator: Communicator<AnyTransport> = communicator(transport);
            let value = [i32::MAX, 1, -5][communicator.rank().index()];
            let input = SparseVec::new(2, vec![1], vec![value]).unwrap();
            let got = operation.run(&communicator, &input).await.unwrap();
            assert_eq!(got, if communicator.rank() == Rank(1) { vec![0, i32::MAX - 4] } else { vec![] });
        });
    }
}

#[test]
fn lengths_and_roots_that_cannot_be_are_refused() {
    run_world(local_world(3), |transport| async move {
        let communicator = communicator(transport);
        let (root, empty) = (Rank(3), SparseVec::<f32>::empty(5).unwrap());
        let refusals = [
            communicator.reduce(root, &empty).await.map(drop),
            communicator.reduce_dense(root, &[1.0_f32; 5], &mut []).await,
            communicator.broadcast_stream(root, Stream::from(empty.clone())).await.map(drop),
            communicator.reduce_dense(communicator.rank(), &[1.0_f32; 5], &mut [0.0; 4]).await,
            communicator.allgather_dense(&[1.0_f32; 5], &mut [0.0; 14]).await,
        ];
        for refused in refusals {
            assert_eq!(refused.unwrap_err().kind(), ErrorKind::InvalidArgument);
        }
        assert_eq!(communicator.traffic(), collectives::Traffic::default());
        communicator.barrier().await.unwrap();
    });
}

#[test]
fn blocks_of_any_length_are_gathered_and_broadcast() {
    const LONG: usize = 64 << 10;
    for ranks in [1, 2, 3, 5, 8] {
        let block = |rank: usize| -> Bytes {
            vec![rank as u8; [LONG, 0, LONG - 1, 3 * LONG, LONG + 1][rank % 5]].into()
        };
        run_world(local_world(ranks), |transport| async move {
            let communicator = communicator(transport);
            let gathered = communicator.allgather(block(communicator.rank().index())).await.unwrap();
            assert_eq!(gathered, (0..ranks).map(block).collect::<Vec<_>>());
            for root in 0..ranks {
                let payload = communicator.broadcast(Rank::from_index(root), block(root)).await.unwrap();
                assert_eq!(payload, block(root));
            }
        });
    }
}
