use std::time::Instant;

use ::mpi::collective::SystemOperation;
use ::mpi::traits::CommunicatorCollectives as _;
use sparse_core::SparseVec;

use crate::bench::contender::{Contender, Lap, Outcome, View};
use crate::mpi::{self, World};

/// MPI_Allreduce of the dense vectors.
pub(super) struct Allreduce<'a> {
    name: String,
    world: &'a World,
    input: Vec<f32>,
    output: Vec<f32>,
}

impl<'a> Allreduce<'a> {
    /// By the algorithm that the communicator was made for.
    pub(super) fn new(algorithm: &str, world: &'a World, input: &SparseVec<f32>) -> Self {
        let input = input.to_dense();
        Self { name: format!("mpi_allreduce_{algorithm}"), world, output: vec![0.0; input.len()], input }
    }
}

impl Contender for Allreduce<'_> {
    fn name(&self) -> &str {
        &self.name
    }

    fn is_dense(&self) -> bool {
        true
    }

    fn is_peer(&self) -> bool {
        true
    }

    fn prepare(&mut self) {}

    fn run(&mut self) -> anyhow::Result<Lap> {
        let begun = Instant::now();
        self.world.all_reduce_into(&self.input[..], &mut self.output[..], SystemOperation::sum());
        Ok(Lap { elapsed: begun.elapsed(), traffic: None })
    }

    fn progress(&self) -> bool {
        mpi::progress(self.world);
        true
    }

    fn outcome(&self) -> anyhow::Result<Outcome<'_>> {
        Ok(Outcome::Sum(View::Dense(&self.output)))
    }
}
