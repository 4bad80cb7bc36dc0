use std::time::Instant;

use anyhow::{Context as _, bail};
use collectives::{
    Communicator, DenseAlgorithm, GlobalTopk, GtopkAlgorithm, PutBack, SparseAlgorithm, Traffic,
};
use sparse_core::{SparseVec, Stream};
use sparse_sgd::Method;
use transport::{AnyTransport, block_on};

use super::contender::{Contender, Lap, Outcome, View};
use crate::algorithm::Algorithm;

/// A collective of this project.
pub(super) struct Collective<'a> {
    communicator: &'a Communicator<AnyTransport>,
    name: &'static str,
    input: &'a SparseVec<f32>,
    operation: Operation,
}

/// What is called, with what only that call needs, and where its result goes.
enum Operation {
    Dense { algorithm: DenseAlgorithm, input: Vec<f32>, output: Vec<f32> },
    Sparse { algorithm: SparseAlgorithm, levels: Option<u32>, result: Option<Stream<f32>> },
    Gtopk { algorithm: GtopkAlgorithm, result: Option<GlobalTopk<f32>> },
}

impl<'a> Collective<'a> {
    pub(super) fn new(
        communicator: &'a Communicator<AnyTransport>,
        algorithm: Algorithm,
        input: &'a SparseVec<f32>,
        seed: u64,
    ) -> anyhow::Result<Self> {
        let operation = match algorithm.method(seed)? {
            Method::Dense(algorithm) => {
                let input = input.to_dense();
                Operation::Dense { algorithm, output: vec![0.0; input.len()], input }
            }
            Method::Sparse(sparse) => {
                Operation::Sparse { algorithm: sparse, levels: algorithm.levels()?, result: None }
            }
            Method::Gtopk(algorithm) => Operation::Gtopk { algorithm, result: None },
            other => bail!("there is no benchmark of {other:?}"),
        };
        Ok(Self { communicator, name: algorithm.name, input, operation })
    }
}

impl Contender for Collective<'_> {
    fn name(&self) -> &str {
        self.name
    }

    fn is_dense(&self) -> bool {
        matches!(self.operation, Operation::Dense { .. })
    }

    fn is_peer(&self) -> bool {
        false
    }

    fn prepare(&mut self) {
        match &mut self.operation {
            Operation::Dense { .. } => {}
            Operation::Sparse { algorithm, result, .. } => {
                if let Some(result) = result.take() {
                    self.communicator.recycle(result);
                }
                if let SparseAlgorithm::DsarQuantized { step, .. } = algorithm {
                    *step += 1;
                }
            }
            Operation::Gtopk { result, .. } => {
                if let Some(result) = result.take() {
                    self.communicator.recycle(result);
                }
            }
        }
    }

    fn run(&mut self) -> anyhow::Result<Lap> {
        let (communicator, input) = (self.communicator, self.input);
        let before = communicator.traffic();
        let begun = Instant::now();
        match &mut self.operation {
            Operation::Dense { algorithm, input, output } => {
                block_on(communicator.allreduce_dense(input, output, *algorithm))?;
            }
            Operation::Sparse { algorithm, result, .. } => {
                *result = Some(block_on(communicator.allreduce(input, algorithm))?);
            }
            Operation::Gtopk { algorithm, result } => {
                let k = input.nnz();
                *result = Some(block_on(communicator.gtopk(input, k, *algorithm, PutBack::Conserving))?);
            }
        }
        let elapsed = begun.elapsed();
        Ok(Lap { elapsed, traffic: Some(since(before, communicator.traffic())) })
    }

    /// The transport makes its own.
    fn progress(&self) -> bool {
        false
    }

    fn outcome(&self) -> anyhow::Result<Outcome<'_>> {
        let never = "nothing has been summed yet";
        Ok(match &self.operation {
            Operation::Dense { output, .. } => Outcome::Sum(View::Dense(output)),
            Operation::Sparse { levels, result, .. } => {
                let sum = View::from(result.as_ref().context(never)?);
                levels.map_or(Outcome::Sum(sum), |levels| Outcome::Rounded(sum, levels))
            }
            Operation::Gtopk { algorithm, result } => {
                let result = result.as_ref().context(never)?;
                match algorithm {
                    GtopkAlgorithm::Spardl => Outcome::TopkByRange(result),
                    _ => Outcome::Topk(result),
                }
            }
        })
    }
}

/// What passed between two moments.
fn since(before: Traffic, after: Traffic) -> Traffic {
    Traffic {
        bytes_sent: after.bytes_sent - before.bytes_sent,
        bytes_received: after.bytes_received - before.bytes_received,
        messages_sent: after.messages_sent - before.messages_sent,
        messages_received: after.messages_received - before.messages_received,
    }
}
