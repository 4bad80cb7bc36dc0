//! Recursive doubling of vectors that are long enough to be cut, by ranks that cut them differently.

use bytes::Bytes;
use collectives::{Communicator, DenseAlgorithm, ErrorKind, SparseAlgorithm};
use sparse_core::{Element, SparseVec, wire};
use testkit::{oracle, run_world};
use transport::{AnyTransport, Rank, Tag, Transport};

use crate::common::{Algorithm, bits};
use crate::worlds::{delayed, in_virtual_time, local_world};

const DIM: u64 = 150_000;

/// About so many entries, drawn from the first `among` positions.
fn input<E: Element>(rank: usize, entries: u64, among: u64) -> SparseVec<E> {
    let is_drawn = |index: u32| {
        let mixed = (u64::from(index) << 8 | rank as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (mixed ^ mixed >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 20 & 0xffff_ffff
            < (entries << 32) / among
    };
    let indices: Vec<_> = (0..among as u32).filter(|index| is_drawn(*index)).collect();
    let values = indices.iter().map(|index| E::from_f32((index % 100 + 1 + rank as u32) as f32)).collect();
    SparseVec::new(DIM, indices, values).unwrap()
}

/// Entries of each rank, in turn, and how far they lie apart.
const SHAPES: [(&[u64], u64); 5] = [
    (&[40_000], DIM),
    // One piece, two, four.
    (&[0, 20_000, 100, 45_000, 20_000], DIM),
    // All in the first pieces.
    (&[30_000, 60_000], DIM / 5),
    // Dense from the start, or after a sum.
    (&[149_000, 10, 90_000], DIM),
    (&[500, 149_000, 0], DIM),
];

fn check<E: Element>(ranks: usize) {
    for (entries, among) in SHAPES {
        let of_rank = |rank: usize| input::<E>(rank, entries[rank % entries.len()], among);
        let inputs: Vec<_> = (0..ranks).map(of_rank).collect();
        let expected = bits(&oracle::sum(&inputs));
        let inputs = &inputs;
        for algorithm in [
            Algorithm::Sparse(SparseAlgorithm::SsarRecursiveDoubling),
            Algorithm::Dense(DenseAlgorithm::RecursiveDoubling),
        ] {
            let algorithm = &algorithm;
            let part = |transport: AnyTransport| async move {
                let communicator = Communicator::new(transport);
                let sum = algorithm.sum(&communicator, &inputs[communicator.rank().index()]).await.unwrap();
                (bits(&sum), communicator.traffic().messages_sent)
            };
            let results = in_virtual_time(ranks, |world| run_world(delayed(world, 5), part));
            // More than one a round, beside the check's one and those to and from who stand aside.
            let messages = results.iter().map(|(_, messages)| *messages).max().unwrap();
            let of_wholes = 1 + ranks.ilog2() + u32::from(!ranks.is_power_of_two());
            assert!(messages > of_wholes.into(), "{entries:?}, {algorithm:?}: {messages}");
            for (rank, (sum, _)) in results.into_iter().enumerate() {
                assert!(
                    sum == expected,
                    "P = {ranks}, {entries:?}, {algorithm:?}: rank {rank}'s is another sum"
                );
            }
        }
    }
}

#[test]
fn every_rank_ends_with_the_same_sum_however_others_cut() {
    for ranks in 2..=9 {
        check::<f32>(ranks);
    }
    check::<i64>(6);
}

#[test]
fn pieces_that_cannot_be_are_refused() {
    // More than there may be, and other ones than those before.
    for marks in [[64, 64], [4, 2]] {
        let errors = run_world(local_world(2), |transport| async move {
            if transport.rank() == Rank(0) {
                let input = input::<f32>(0, 40_000, DIM);
                let communicator = Communicator::new(transport);
                return Some(communicator.allreduce(&input, &SparseAlgorithm::SsarRecursiveDoubling).await);
            }
            // Sends back what comes, with other marks.
            let (check, data) = (Tag::new(0, 0), Tag::new(0, 1));
            let header = transport.recv(Rank(0), check).await.unwrap();
            transport.send(Rank(0), check, header).await.unwrap();
            for mark in marks {
                // Once it has refused one, rank 0 sends no more.
                let Ok(piece) = transport.recv(Rank(0), data).await else { break };
                let mut piece = piece.to_vec();
                wire::mark_piece(&mut piece, mark);
                drop(transport.send(Rank(0), data, Bytes::from(piece)).await);
            }
            None
        });
        let error = errors.into_iter().flatten().next().unwrap().unwrap_err();
        assert_eq!((error.kind(), error.peer()), (ErrorKind::Malformed, Some(Rank(1))), "{error}");
        assert!(error.to_string().contains(&marks[0].to_string()), "{error}");
    }
}
