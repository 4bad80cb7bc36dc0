//! What a loop allocates that gives its results back, once it is warm.

use collectives::cost::Workload;
use collectives::{
    Communicator, DenseAlgorithm, GtopkAlgorithm, Options, Progress, PutBack, SparseAlgorithm,
};
use sparse_core::SparseVec;
use testkit::sim::{self, Network};
use transport::{AnyTransport, Rank};

use crate::common::GTOPK;
use crate::simulated;

const RANKS: usize = 4;
/// The shorter of two lengths of vectors: all that is allocated for them is long even then.
const DIM: u64 = 1 << 19;
const ENTRIES: u64 = 1 << 15;

#[derive(Clone, Copy, Debug)]
enum Call<'a> {
    Dense(DenseAlgorithm),
    StartedDense,
    Sparse(&'a SparseAlgorithm),
    /// Without giving the result back.
    Kept(&'a SparseAlgorithm),
    Gtopk(GtopkAlgorithm),
    ReduceScatter,
    AllgatherSparse,
    Reduce,
}

impl Call<'_> {
    /// Calls it and gives the result back.
    async fn run(
        self,
        communicator: &Communicator<AnyTransport>,
        input: &SparseVec<f32>,
        dense: &mut [Vec<f32>; 2],
    ) {
        let k = input.nnz();
        match self {
            Self::Dense(algorithm) => {
                let [values, sum] = dense;
                communicator.allreduce_dense(values, sum, algorithm).await.unwrap();
            }
            Self::StartedDense => {
                // The result of the last one is the next input.
                let values = std::mem::take(&mut dense[0]);
                dense[0] = communicator.start_allreduce_dense(values, DenseAlgorithm::Ring).await.unwrap();
            }
            Self::Sparse(algorithm) => {
                communicator.recycle(communicator.allreduce(input, algorithm).await.unwrap());
            }
            Self::Kept(algorithm) => drop(communicator.allreduce(input, algorithm).await.unwrap()),
            Self::Gtopk(algorithm) => {
                let found = communicator.gtopk(input, k, algorithm, PutBack::Conserving).await;
                communicator.recycle(found.unwrap());
            }
            Self::ReduceScatter => communicator.recycle(communicator.reduce_scatter(input).await.unwrap()),
            Self::AllgatherSparse => {
                let all = communicator.allgather_sparse(input).await.unwrap();
                all.into_iter().for_each(|one| communicator.recycle(one));
            }
            Self::Reduce => {
                if let Some(sum) = communicator.reduce(Rank(0), input).await.unwrap() {
                    communicator.recycle(sum);
                }
            }
        }
    }
}

/// Bytes that all ranks together allocate in a call, once warm; vectors are so many times longer.
fn steady(call: Call<'_>, times: u64) -> u64 {
    let work = Workload::uniform(RANKS, DIM * times, ENTRIES * times, 4);
    let inputs: Vec<_> = (0..RANKS as u64).map(|rank| simulated::input(&work, rank)).collect();
    let inputs = &inputs;
    let allocated = |calls: usize| {
        let world = || {
            sim::run(&Network::new(RANKS), |transport| async move {
                let options = Options::default().progress(Progress::Caller);
                let communicator = Communicator::with_options(AnyTransport::new(transport), options);
                let input = &inputs[communicator.rank().index()];
                let mut dense = [input.to_dense(), input.to_dense()];
                for _ in 0..calls {
                    call.run(&communicator, input, &mut dense).await;
                }
            })
        };
        allocation_counter::measure(|| drop(world())).bytes_total
    };
    (allocated(6) - allocated(4)) / 2
}

#[test]
fn a_warm_loop_allocates_nothing_that_grows_with_the_vectors() {
    let sparse = [
        SparseAlgorithm::SsarRecursiveDoubling,
        SparseAlgorithm::SsarSplitAllgather,
        SparseAlgorithm::SsarRing,
        SparseAlgorithm::DsarSplitAllgather,
        SparseAlgorithm::TopkAllgather,
    ];
    let dense = [DenseAlgorithm::Ring, DenseAlgorithm::RecursiveDoubling, DenseAlgorithm::Rabenseifner];
    let others = [Call::StartedDense, Call::ReduceScatter, Call::AllgatherSparse, Call::Reduce];
    let calls = dense.map(Call::Dense).into_iter().chain(sparse.iter().map(Call::Sparse));
    for call in calls.chain(GTOPK.map(Call::Gtopk)).chain(others) {
        let grown = steady(call, 2).saturating_sub(steady(call, 1));
        let each = match call {
            Call::Dense(_) | Call::StartedDense => 4 * DIM,
            _ => 8 * ENTRIES,
        };
        // A tenth, for what each message of a vector in pieces takes, and the simulator for it.
        let few = RANKS as u64 * each / 10;
        assert!(
            grown < few,
            "{call:?} allocates {grown} bytes more for vectors of twice the length, not {few}"
        );
    }
}

#[test]
fn without_giving_back_results_are_allocated() {
    let split = SparseAlgorithm::SsarSplitAllgather;
    assert!(steady(Call::Kept(&split), 1) > RANKS as u64 * 8 * ENTRIES);
}
