//! What buckets are chosen by, the same on all ranks.

use std::time::Duration;

use collectives::cost::{self, Link, Workload};
use collectives::{Communicator, DenseAlgorithm};
use transport::Transport;

use crate::{Config, Error, Method};

/// The ranks' average of each time, the same bits on all.
pub(crate) async fn agree<T: Transport>(
    communicator: &Communicator<T>,
    own: &[Duration],
) -> Result<Vec<Duration>, Error> {
    let own: Vec<_> = own.iter().map(Duration::as_secs_f64).collect();
    let mut sum = vec![0.0; own.len()];
    communicator.allreduce_dense(&own, &mut sum, DenseAlgorithm::RecursiveDoubling).await?;
    let ranks = communicator.world_size() as f64;
    // What no clock can show counts as ready at once.
    Ok(sum.into_iter().map(|sum| Duration::try_from_secs_f64(sum / ranks).unwrap_or_default()).collect())
}

/// What the sum of a bucket of so many entries takes once the density is the final one, in seconds.
pub(crate) fn seconds(config: &Config, ranks: usize, link: Link) -> impl Fn(usize) -> f64 {
    move |entries| {
        let selected = config.density.selected(u64::MAX, entries) as u64;
        let work = |entries_sent| Workload::uniform(ranks, entries as u64, entries_sent, 4);
        let cost = match &config.method {
            Method::Dense(algorithm) => cost::dense(*algorithm, &work(entries as u64), &link),
            Method::Sparse(algorithm) => cost::sparse(algorithm, &work(selected), &link),
            Method::Gtopk(algorithm) => cost::gtopk(*algorithm, &work(selected), &link),
        };
        cost.seconds()
    }
}
