use collectives::cost::Workload;
use sparse_sgd::Method;

/// The vectors of a simulation: those of the workload, or smaller ones that stand for them.
///
/// All ranks are in one process, so where each of them ends with a long result, there is no room for them, or no time to sum
/// them. Smaller vectors with the same density take as long if each of their bytes takes longer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Model {
    pub(super) dim: u64,
    pub(super) entries: u64,
    /// How many times smaller they are.
    pub(super) scale: f64,
}

/// Values that all ranks together may hold: 400 MB of them.
const VALUES: f64 = 1e8;

/// Entries that all ranks together may merge.
const ENTRIES: f64 = 6e8;

impl Model {
    pub(super) fn of(method: &Method, work: &Workload) -> Self {
        let (ranks, dim, entries) = (work.ranks as f64, work.dim as f64, work.entries as f64);
        let union = work.union(work.ranks);
        let needed = match method {
            // Vectors are merged in each round; every rank merges all.
            Method::Gtopk(_) => ranks * ranks.log2().max(1.0) * entries / ENTRIES,
            Method::Sparse(collectives::SparseAlgorithm::TopkAllgather) => {
                (ranks * ranks * entries / ENTRIES).max(ranks * union / VALUES)
            }
            // Sums may be dense.
            _ => ranks * dim / VALUES,
        };
        if needed <= 1.0 {
            return Self { dim: work.dim, entries: work.entries, scale: 1.0 };
        }
        // As many values for each rank, as far as that goes, and an entry at least.
        let least = ranks.max((dim / entries).ceil()).min(dim);
        let small = ((dim / needed / ranks).floor() * ranks).max(least);
        let entries = (entries * small / dim).round().max(1.0);
        Self { dim: small as u64, entries: entries as u64, scale: dim / small }
    }

    /// What so many bytes in so many messages stand for.
    pub(super) fn full_size(&self, bytes: u64, messages: u64, header: u64) -> f64 {
        let headers = messages * header;
        headers as f64 + bytes.saturating_sub(headers) as f64 * self.scale
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use collectives::{DenseAlgorithm, GtopkAlgorithm, SparseAlgorithm};

    #[test]
    fn what_fits_is_simulated_in_full_size() {
        for method in [
            Method::Dense(DenseAlgorithm::Ring),
            Method::Sparse(SparseAlgorithm::TopkAllgather),
            Method::Gtopk(GtopkAlgorithm::Tree),
        ] {
            let model = Model::of(&method, &Workload::uniform(4, 1_000_000, 10_000, 4));
            assert_eq!((model.dim, model.entries, model.scale), (1_000_000, 10_000, 1.0));
        }
    }

    #[test]
    fn what_does_not_fit_keeps_its_density() {
        for ranks in [64, 1000, 1024] {
            let work = Workload::uniform(ranks, 25_600_000, 25_600, 4);
            let model = Model::of(&Method::Dense(DenseAlgorithm::Ring), &work);
            assert!(model.scale > 1.0 && model.dim.is_multiple_of(ranks as u64), "{model:?}");
            assert!(model.dim as f64 * ranks as f64 <= VALUES);
            assert!((model.dim as f64 * model.scale - 25.6e6).abs() < 1.0);
            let model = Model::of(&Method::Sparse(SparseAlgorithm::TopkAllgather), &work);
            assert!((model.entries as f64 / model.dim as f64 / 0.001 - 1.0).abs() < 0.01, "{model:?}");
        }
    }
}
