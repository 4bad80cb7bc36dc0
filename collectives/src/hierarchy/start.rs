//! Hierarchical operations that are started now and waited for later.

use std::sync::Arc;

use sparse_core::{Element, SparseVec, Stream};
use transport::Transport;

use super::{Hierarchy, allreduce, gtopk};
use crate::allreduce::{DenseAlgorithm, SparseAlgorithm};
use crate::background::Handle;
use crate::call::Operation;
use crate::gtopk::{GlobalTopk, GtopkAlgorithm, PutBack};
use crate::in_flight::Check;

impl<T: Transport + 'static> Hierarchy<T> {
    /// [`allreduce`](Self::allreduce), started now and waited for later: see [`Communicator::start_allreduce`](crate::Communicator::start_allreduce).
    pub fn start_allreduce<E: Element>(
        &self,
        input: SparseVec<E>,
        algorithm: SparseAlgorithm,
    ) -> Handle<Stream<E>> {
        let operation = Operation::HierarchicalAllreduce;
        let begun = self.communicator.begin_allreduce::<E>(operation, input.dim(), &algorithm);
        let layout = Arc::clone(&self.layout);
        self.communicator.start(async move {
            let operation = begun?;
            let run = allreduce::sparse(&operation, &layout, &input, &algorithm);
            let result = operation.drive(Check::Neighbour, run).await;
            operation.memory().put(input);
            operation.finish(result)
        })
    }

    /// [`allreduce_dense`](Self::allreduce_dense) to other memory, started now and waited for later: see
    /// [`Communicator::start_allreduce_dense`](crate::Communicator::start_allreduce_dense).
    pub fn start_allreduce_dense<E: Element>(
        &self,
        input: Vec<E>,
        algorithm: DenseAlgorithm,
    ) -> Handle<Vec<E>> {
        let (operation, len) = (Operation::HierarchicalAllreduceDense, input.len());
        let begun = self.communicator.begin_allreduce_dense::<E>(operation, len, len, algorithm);
        let layout = Arc::clone(&self.layout);
        self.communicator.start(async move {
            let operation = begun?;
            let mut output = operation.memory().any(len, E::ZERO);
            let run = allreduce::dense(&operation, &layout, &input, &mut output, algorithm);
            let result = operation.drive(Check::Neighbour, run).await;
            operation.memory().put(input);
            operation.finish(result)?;
            Ok(output)
        })
    }

    /// [`gtopk`](Self::gtopk), started now and waited for later: see [`Communicator::start_gtopk`](crate::Communicator::start_gtopk).
    pub fn start_gtopk<E: Element>(
        &self,
        input: SparseVec<E>,
        k: usize,
        algorithm: GtopkAlgorithm,
        put_back: PutBack,
    ) -> Handle<GlobalTopk<E>> {
        let operation = Operation::HierarchicalGtopk;
        let begun = self.communicator.begin_gtopk::<E>(operation, input.dim(), k, algorithm, put_back);
        let layout = Arc::clone(&self.layout);
        self.communicator.start(async move {
            let operation = begun?;
            let run = gtopk::gtopk(&operation, &layout, &input, k, algorithm, put_back);
            let result = operation.drive(Check::Neighbour, run).await;
            operation.memory().put(input);
            operation.finish(result)
        })
    }
}
