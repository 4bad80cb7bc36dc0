//! The optimizer on the in-process world.

// Clippy excuses test functions only, not what they share.
#![allow(clippy::unwrap_used)]

mod conservation;
mod equivalence;
mod failures;
mod fusion;
mod quantized;
mod reports;
mod sparse_gradients;
mod state;

use collectives::{Communicator, Options};
use sparse_sgd::{
    Config, DenseAlgorithm, DensitySchedule, Error, GtopkAlgorithm, Method, Optimizer, OptimizerState,
    Parameter, PutBack, SparseAlgorithm, StepReport,
};
use testkit::LocalTransport;

/// Odd lengths, one of them empty: 37 entries.
const SHAPES: [(&str, usize); 4] = [("weight", 23), ("nothing", 0), ("bias", 1), ("head", 13)];
const ENTRIES: usize = 37;

fn methods() -> Vec<Method> {
    vec![
        Method::Dense(DenseAlgorithm::Ring),
        Method::Dense(DenseAlgorithm::RecursiveDoubling),
        Method::Dense(DenseAlgorithm::Rabenseifner),
        Method::Sparse(SparseAlgorithm::SsarRecursiveDoubling),
        Method::Sparse(SparseAlgorithm::SsarSplitAllgather),
        Method::Sparse(SparseAlgorithm::DsarSplitAllgather),
        Method::Sparse(SparseAlgorithm::TopkAllgather),
        Method::Sparse(SparseAlgorithm::SsarRing),
        Method::Gtopk(GtopkAlgorithm::Tree),
        Method::Gtopk(GtopkAlgorithm::Butterfly),
        Method::Gtopk(GtopkAlgorithm::Exact),
        Method::Gtopk(GtopkAlgorithm::Oktopk),
        Method::Gtopk(GtopkAlgorithm::Spardl),
    ]
}

fn constant(density: f64) -> DensitySchedule {
    DensitySchedule::constant(density).unwrap()
}

/// Everything on.
fn rich(method: Method) -> Config {
    let density = DensitySchedule::warm_up(0.1, 4).unwrap();
    Config { momentum: 0.9, momentum_masking: true, clip_norm: Some(3.0), ..Config::new(method, density) }
}

/// One rank: its optimizer and its replica.
struct Worker {
    optimizer: Optimizer<LocalTransport>,
    values: Vec<f32>,
}

impl Worker {
    fn new(transport: LocalTransport, config: Config) -> Self {
        let values = (0..ENTRIES).map(|i| i as f32 / 8.0 - 2.0).collect();
        Self { optimizer: Optimizer::new(Communicator::new(transport), config).unwrap(), values }
    }

    fn rank(&self) -> u64 {
        u64::from(self.optimizer.communicator().rank().0)
    }

    async fn step(&mut self, gradient: &[f32], rate: f32) -> Result<StepReport, Error> {
        let mut parameters = parameters(&mut self.values, gradient);
        self.optimizer.step(&mut parameters, rate).await
    }

    /// Returns once every rank is here. On a communicator of its own, which other errors do not end.
    async fn everyone(&self) {
        let transport = self.optimizer.communicator().transport().clone();
        Communicator::with_options(transport, Options::default().context(1)).barrier().await.unwrap();
    }

    /// Everything that a failed step must leave alone, as bits.
    fn bits(&self) -> [Vec<u32>; 4] {
        let state = self.optimizer.state();
        [bits(&self.values), bits(&state.residual), bits(&state.velocity), vec![state.steps as u32]]
    }
}

/// The parameters of [`SHAPES`] in one buffer.
fn parameters<'a>(mut values: &'a mut [f32], mut gradient: &'a [f32]) -> Vec<Parameter<'a>> {
    let mut all = Vec::new();
    for (name, len) in SHAPES {
        let (value, values_after) = values.split_at_mut(len);
        let (slope, gradient_after) = gradient.split_at(len);
        (values, gradient) = (values_after, gradient_after);
        all.push(Parameter { name, values: value, gradient: slope });
    }
    all
}

fn run<R: Send>(size: usize, worker: impl AsyncFn(LocalTransport) -> R + Sync) -> Vec<R> {
    testkit::run_world(testkit::local_world(size), |transport| worker(transport))
}

/// Whole numbers from -4 to 4, many of them 0, different for each rank and step.
fn whole_gradient(rank: u64, step: u64, entries: usize) -> Vec<f32> {
    (0..entries as u64)
        .map(|i| (hash(rank, step, i) % 13) as f32 - 6.0)
        .map(|g| if g.abs() > 4.0 { 0.0 } else { g })
        .collect()
}

/// Numbers in [-1, 1) that use all the bits of an f32.
fn gradient(rank: u64, step: u64, entries: usize) -> Vec<f32> {
    (0..entries as u64).map(|i| (hash(rank, step, i) >> 40) as f32 / (1_u64 << 23) as f32 - 1.0).collect()
}

/// The finalizer of SplitMix64.
fn hash(rank: u64, step: u64, i: u64) -> u64 {
    let mut x = (rank << 48 ^ step << 24 ^ i).wrapping_add(0x9e37_79b9_7f4a_7c15);
    x = (x ^ x >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ x >> 31
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|v| v.to_bits()).collect()
}

fn assert_close(given: &[f32], oracle: &[f64], what: &str) {
    assert_eq!(given.len(), oracle.len());
    for (i, (given, oracle)) in given.iter().zip(oracle).enumerate() {
        let bound = 1e-4 * oracle.abs().max(1.0);
        assert!((f64::from(*given) - oracle).abs() <= bound, "{what}: entry {i} is {given}, not {oracle}");
    }
}

fn all_equal<R: PartialEq + std::fmt::Debug>(outputs: &[R]) {
    for (rank, output) in outputs.iter().enumerate() {
        assert_eq!(output, &outputs[0], "rank {rank} is not rank 0");
    }
}

/// Both put-back modes, for tests that must hold in each.
const PUT_BACK: [PutBack; 2] = [PutBack::Conserving, PutBack::Paper];

#[test]
fn futures_can_move_between_threads() {
    fn check<F: Future + Send>(_: &F) {}
    let worker = &mut Worker::new(testkit::local_world(1).remove(0), rich(methods().remove(0)));
    check(&worker.step(&[0.0; ENTRIES], 0.1));
    check(&worker.optimizer.begin(&SHAPES).unwrap().finish(&mut [], 0.1));
    let gradient = sparse_core::SparseVec::empty(1).unwrap();
    check(&worker.optimizer.step_sparse("w", &mut [0.0], &gradient, 0.1));
    check(&worker.optimizer.check_replicas([("w", &[0.0][..])]));
}
