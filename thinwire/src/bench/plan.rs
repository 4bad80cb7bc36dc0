use sparse_core::SparseVec;
use transport::Rank;

use crate::algorithm::Algorithm;
use crate::bench::input;
use crate::cli::AllreduceArgs;
use crate::error::Error;
use crate::rate::Rate;

/// What is measured unless the user says so: one of each kind.
pub(crate) const DEFAULT_ALGORITHMS: [&str; 7] = [
    "dense_ring",
    "dense_recursive_doubling",
    "ssar_recursive_doubling",
    "ssar_split_allgather",
    "dsar_split_allgather",
    "topk_allgather",
    "gtopk_butterfly",
];

/// What is to be measured: the options, completed. All ranks of a world have the same one.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Plan {
    pub(super) dim: u64,
    /// Entries of each rank's input.
    pub(super) nnz: usize,
    /// Each name once, in the order given.
    pub(super) algorithms: Vec<Algorithm>,
    pub(super) iterations: u32,
    pub(super) seed: u64,
    /// The rate of the links, if it is not to be measured.
    pub(super) rate: Option<Rate>,
}

impl Plan {
    pub(super) fn new(args: &AllreduceArgs) -> Result<Self, Error> {
        if args.peers && i32::try_from(args.dim).is_err() {
            return Err(Error::setup(format!(
                "MPI counts values in 31 bits, so with --peers a vector has at most {} of them",
                i32::MAX
            )));
        }
        let default = || DEFAULT_ALGORITHMS.iter().map(|name| name.parse()).collect::<Result<_, _>>();
        let given = &args.algorithms;
        let wanted: Vec<Algorithm> =
            if given.is_empty() { default().map_err(Error::setup)? } else { given.clone() };
        let plan = Self::of(args.dim, args.density, &wanted, args.iterations, args.seed);
        Ok(Self { rate: args.rate, ..plan })
    }

    pub(super) fn of(dim: u64, density: f64, wanted: &[Algorithm], iterations: u32, seed: u64) -> Self {
        let mut algorithms = Vec::new();
        for &algorithm in wanted {
            if !algorithms.contains(&algorithm) {
                algorithms.push(algorithm);
            }
        }
        let nnz = ((dim as f64 * density).round() as usize).max(1);
        Self { dim, nnz, algorithms, iterations, seed, rate: None }
    }

    /// What all ranks must have in common, in words.
    pub(super) fn terms(&self) -> String {
        let Self { dim, nnz, algorithms, iterations, seed, .. } = self;
        let algorithms: Vec<_> = algorithms.iter().map(|algorithm| algorithm.name).collect();
        let algorithms = algorithms.join(", ");
        format!("{algorithms}: {iterations} times {nnz} of {dim} values with seed {seed}")
    }

    /// What a rank has to sum. Any rank can ask for that of any other.
    pub(super) fn input(&self, rank: Rank) -> Result<SparseVec<f32>, sparse_core::Error> {
        input::draw(self.dim, self.nnz, self.seed, rank)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::{Bench, Cli, Command};
    use clap::Parser as _;

    fn plan(options: &[&str]) -> Plan {
        let cli = Cli::try_parse_from([&["thinwire", "bench", "allreduce"], options].concat()).unwrap();
        let Some(Command::Bench(Bench::Allreduce(args))) = cli.command else { panic!("another command") };
        Plan::new(&args).unwrap()
    }

    #[test]
    fn the_density_gives_the_entries() {
        let nnz = |options: &[&str]| plan(options).nnz;
        assert_eq!(nnz(&[]), 10_000);
        assert_eq!(nnz(&["--dim", "150", "--density", "0.01"]), 2);
        assert_eq!(nnz(&["--dim", "10", "--density", "1e-9"]), 1);
        assert_eq!(nnz(&["--dim", "4294967296", "--density", "1"]), 1 << 32);
    }

    #[test]
    fn algorithms_are_named_one_by_one_or_in_a_list() {
        let names =
            |options: &[&str]| -> Vec<_> { plan(options).algorithms.iter().map(|a| a.name).collect() };
        let given = names(&["--algorithm", "dense,gtopk", "--algorithm", "topk,dense"]);
        assert_eq!(given, ["dense", "gtopk", "topk"]);
        assert_eq!(names(&[]), DEFAULT_ALGORITHMS);
    }

    #[test]
    fn terms_tell_plans_apart() {
        for other in
            [&["--seed", "2"][..], &["--dim", "1k"], &["--iterations", "1"], &["--algorithm", "dense"]]
        {
            assert_ne!(plan(&[]).terms(), plan(other).terms());
        }
    }
}
