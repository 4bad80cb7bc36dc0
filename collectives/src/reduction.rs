//! Whether ranks' vectors are summed or averaged.

use sparse_core::{DType, Element, Stream};
use transport::Transport;

use crate::call::Call;
use crate::communicator::Communicator;
use crate::error::Error;
use crate::in_flight::InFlight;

/// What operations that reduce give: of all ranks' vectors the sum, or the mean.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
#[non_exhaustive]
pub enum Reduction {
    /// The sum.
    #[default]
    Sum,
    /// The sum divided by the number of ranks: the sum has the bits that [`Sum`](Self::Sum) gives, and each value is divided
    /// once, alike on all ranks. Half types are divided in `f32`: a mean of them is rounded twice at the end, as a sum and as a
    /// mean, and infinite where the sum is. Integers are refused, since how to round is the caller's to say.
    Mean,
}

impl<T: Transport> Communicator<T> {
    /// This communicator, giving the sum or the mean: the same ranks, order of operations, traffic and started collectives. All ranks
    /// have to give the same, operation for operation; which is checked.
    ///
    /// [`allreduce`](Self::allreduce), [`gtopk`](Self::gtopk), [`reduce`](Self::reduce), [`reduce_scatter`](Self::reduce_scatter), those
    /// of dense vectors, and those that are started, obey it. What is made of it by [`split`](Self::split) does too.
    ///
    /// ```
    /// use collectives::{Communicator, DenseAlgorithm, Reduction};
    ///
    /// let means = testkit::run_world(testkit::local_world(4), |transport| async move {
    ///     let communicator = Communicator::new(transport);
    ///     let average = communicator.with_reduction(Reduction::Mean);
    ///     let mine = [communicator.rank().0 as f32];
    ///     let (mut mean, mut sum) = ([0.0], [0.0]);
    ///     average.allreduce_dense(&mine, &mut mean, DenseAlgorithm::Ring).await?;
    ///     communicator.allreduce_dense(&mine, &mut sum, DenseAlgorithm::Ring).await?;
    ///     Ok::<_, collectives::Error>((mean[0], sum[0]))
    /// });
    /// assert!(means.into_iter().all(|mean| mean.unwrap() == (1.5, 6.0)));
    /// ```
    #[must_use]
    pub fn with_reduction(&self, reduction: Reduction) -> Self {
        let mut communicator = self.clone();
        communicator.reduction = reduction;
        communicator
    }

    /// Whether this gives sums or means.
    #[must_use]
    pub fn reduction(&self) -> Reduction {
        self.reduction
    }

    /// A call that gives the sum or the mean of such values.
    pub(crate) fn reducing<E: Element>(&self, call: Call) -> Result<Call, Error> {
        let integers = matches!(E::DTYPE, DType::I32 | DType::I64);
        match self.reduction {
            Reduction::Sum => Ok(call),
            Reduction::Mean if integers => {
                let dtype = E::DTYPE.name();
                Err(Error::invalid(format!(
                    "{dtype} has no mean: sum, and divide the sum as it should be rounded"
                )))
            }
            Reduction::Mean => Ok(call.of_mean()),
        }
    }
}

impl<T: Transport> InFlight<T> {
    /// Makes sums over all ranks what the call is to give.
    pub(crate) fn reduce_values<E: Element>(&self, sums: &mut [E]) {
        if self.call().is_of_mean() {
            sparse_core::divide(sums, self.world_size() as u32);
        }
    }

    /// [`reduce_values`](Self::reduce_values) of a stream.
    pub(crate) fn reduce_stream<E: Element>(&self, mut sums: Stream<E>) -> Stream<E> {
        match &mut sums {
            Stream::Sparse(vector) => self.reduce_values(vector.values_mut()),
            Stream::Dense(values) => self.reduce_values(values),
        }
        sums
    }
}
