//! Collectives over groups of ranks that are close to each other: much inside the groups, little across.

use std::future::Future;
use std::sync::Arc;

use sparse_core::{Element, SparseVec, Stream};
use transport::Transport;

use self::layout::Layout;
use crate::allreduce::{DenseAlgorithm, SparseAlgorithm};
use crate::call::{Call, Operation};
use crate::communicator::Communicator;
use crate::error::Error;
use crate::group::Group;
use crate::gtopk::{GlobalTopk, GtopkAlgorithm, PutBack};
use crate::in_flight::Check;
use crate::reduction::Reduction;
use crate::split;

mod allreduce;
mod gtopk;
mod layout;
mod part;
mod start;

/// The ranks of a communicator in groups, such as those of one machine each: a fast network inside the groups, a slow one
/// across them. Made by [`Communicator::hierarchy`].
///
/// An operation sums inside each group, then across the groups, and spreads the result inside: over the slow network goes one
/// vector for each group, not one for each rank, shared among the ranks of the group. With S ranks in the smallest group, S ranks of each
/// take part across, each for a shard of the vector. Groups may be of any sizes.
///
/// Everything that holds for a [`Communicator`] holds here: an operation is one collective of all ranks, with one deadline; a call
/// that differs, a lost rank and a failure anywhere end it on every rank, with the name of the rank in the transport. Results are the same bits on
/// all ranks, of sums in an order that ranks and groups fix, which is another than that of one flat sum.
///
/// ```
/// use collectives::{Communicator, SparseAlgorithm};
/// use sparse_core::SparseVec;
///
/// // Six ranks on two machines.
/// let sums = testkit::run_world(testkit::local_world(6), |transport| async move {
///     let communicator = Communicator::new(transport);
///     let rank = communicator.rank().0;
///     let hierarchy = communicator.hierarchy(rank / 3).await?;
///     let mine = SparseVec::new(1_000_000, vec![7, 100 + rank], vec![1.0_f32, 2.0])?;
///     let sum = hierarchy.allreduce(&mine, &SparseAlgorithm::SsarRecursiveDoubling).await?;
///     Ok::<_, Box<dyn std::error::Error + Send + Sync>>((hierarchy.groups(), sum.nnz()))
/// });
/// assert!(sums.into_iter().all(|sum| sum.unwrap() == (2, 7)));
/// ```
pub struct Hierarchy<T: Transport> {
    communicator: Communicator<T>,
    layout: Arc<Layout>,
}

impl<T: Transport> Communicator<T> {
    /// The ranks of this communicator in groups: those that give the same `color`. Every rank calls it.
    ///
    /// Its operations run beside those of this communicator: as one that [`split`](Self::split) makes of all ranks, it has a context
    /// of its own, the same options and reduction, its own traffic, and spoils no other when it fails.
    /// Cost: as [`allgather`](Self::allgather) of 16 bytes.
    ///
    /// # Errors
    /// As [`split`](Self::split).
    pub fn hierarchy(&self, color: u32) -> impl Future<Output = Result<Hierarchy<T>, Error>> + Send {
        let begun = self.begin(Call::plain(Operation::Hierarchy, 0));
        let parent = self.clone();
        async move {
            let operation = begun?;
            let context = split::draw_context(parent.shared());
            let gather = split::gather(&operation, Some(color), 0, context);
            let members = operation.drive(Check::Neighbour, gather).await;
            let members = operation.finish(members)?;
            let colors: Vec<u32> = members.iter().filter_map(|member| member.color).collect();
            let rank = parent.rank().index();
            let layout = Layout::new(&colors, rank)
                .filter(|_| colors.len() == members.len())
                .ok_or_else(|| Error::invalid("a rank came without a color"))?;
            let ranks = (0..members.len()).map(|rank| parent.shared().group.in_world(rank)).collect();
            let communicator = split::derive(&parent, &members, Group::new(ranks, rank))?;
            Ok(Hierarchy { communicator, layout: Arc::new(layout) })
        }
    }
}

impl<T: Transport> Hierarchy<T> {
    /// All ranks, as one communicator: for operations that need no hierarchy, beside these and in order with them.
    pub fn communicator(&self) -> &Communicator<T> {
        &self.communicator
    }

    /// How many groups there are.
    #[must_use]
    pub fn groups(&self) -> usize {
        self.layout.groups()
    }

    /// This rank's group: they are numbered in the order of their lowest ranks.
    #[must_use]
    pub fn group(&self) -> usize {
        self.layout.group()
    }

    /// This hierarchy, giving the sum or the mean over all ranks: see [`Communicator::with_reduction`].
    #[must_use]
    pub fn with_reduction(&self, reduction: Reduction) -> Self {
        Self { communicator: self.communicator.with_reduction(reduction), layout: Arc::clone(&self.layout) }
    }

    /// Sums dense vectors of N values over all ranks, as [`Communicator::allreduce_dense`] does, `algorithm` across the groups.
    ///
    /// Cost, for groups of g ranks each: `alpha + (g-1)/g N v beta` and `ceil(log2 g) alpha + (g-1)/g N v beta` inside, and what the
    /// algorithm costs for N/g values over as many ranks as there are groups across. For groups that differ,
    /// those of the smallest for all; see [`cost::hierarchical_dense`](crate::cost::hierarchical_dense).
    /// [`Auto`](DenseAlgorithm::Auto) takes the communicator's [link](Communicator::link) for that across.
    ///
    /// # Errors
    /// As [`Communicator::allreduce_dense`]; integer sums may overflow in a group or across.
    pub fn allreduce_dense<E: Element>(
        &self,
        input: &[E],
        output: &mut [E],
        algorithm: DenseAlgorithm,
    ) -> impl Future<Output = Result<(), Error>> + Send {
        let begun = self.communicator.begin_allreduce_dense::<E>(
            Operation::HierarchicalAllreduceDense,
            input.len(),
            output.len(),
            algorithm,
        );
        async move {
            let operation = begun?;
            let sum = allreduce::dense(&operation, &self.layout, input, output, algorithm);
            let result = operation.drive(Check::Neighbour, sum).await;
            operation.finish(result)
        }
    }

    /// Sums sparse vectors over all ranks, as [`Communicator::allreduce`] does, `algorithm` across the groups.
    ///
    /// Cost, for groups of g ranks each with a union of K' entries: `alpha + k(g-1)/g b beta` and
    /// `ceil(log2 g) alpha + K(g-1)/g b beta` inside, and what the algorithm costs for K'/g entries of N/g positions across.
    ///
    /// # Errors
    /// As [`Communicator::allreduce`]; integer sums may overflow in a group or across.
    pub fn allreduce<E: Element>(
        &self,
        input: &SparseVec<E>,
        algorithm: &SparseAlgorithm,
    ) -> impl Future<Output = Result<Stream<E>, Error>> + Send {
        let begun =
            self.communicator.begin_allreduce::<E>(Operation::HierarchicalAllreduce, input.dim(), algorithm);
        async move {
            let operation = begun?;
            let sum = allreduce::sparse(&operation, &self.layout, input, algorithm);
            let result = operation.drive(Check::Neighbour, sum).await;
            operation.finish(result)
        }
    }

    /// The `k` largest entries of the sum, as [`Communicator::gtopk`] finds them: the truncating algorithms inside each group and
    /// then among the groups' first ranks; [`Exact`](GtopkAlgorithm::Exact) across the groups, of sums that are not truncated.
    ///
    /// With conserving put-back, inputs and results are balanced as there. Cost: of the truncating algorithms, what they cost
    /// for g ranks inside, for as many ranks as there are groups across, and a broadcast inside; of the exact one, as
    /// [`allreduce`](Self::allreduce) with at most k entries of each shard in the result.
    ///
    /// # Errors
    /// As [`Communicator::gtopk`].
    pub fn gtopk<E: Element>(
        &self,
        input: &SparseVec<E>,
        k: usize,
        algorithm: GtopkAlgorithm,
        put_back: PutBack,
    ) -> impl Future<Output = Result<GlobalTopk<E>, Error>> + Send {
        let begun = self.communicator.begin_gtopk::<E>(
            Operation::HierarchicalGtopk,
            input.dim(),
            k,
            algorithm,
            put_back,
        );
        async move {
            let operation = begun?;
            let largest = gtopk::gtopk(&operation, &self.layout, input, k, algorithm, put_back);
            let result = operation.drive(Check::Neighbour, largest).await;
            operation.finish(result)
        }
    }
}

impl<T: Transport> Clone for Hierarchy<T> {
    fn clone(&self) -> Self {
        Self { communicator: self.communicator.clone(), layout: Arc::clone(&self.layout) }
    }
}

impl<T: Transport> std::fmt::Debug for Hierarchy<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Hierarchy")
            .field("communicator", &self.communicator)
            .field("layout", &self.layout)
            .finish()
    }
}
