//! What a rank calls, as the fingerprint that every message carries.

use std::fmt;

use sparse_core::wire::Fingerprint;
use sparse_core::{DType, Element};
use transport::Rank;

/// The operation's code in a fingerprint.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(crate) enum Operation {
    AllreduceDense = 1,
    Allreduce = 2,
    Gtopk = 3,
    Allgather = 4,
    Broadcast = 5,
    Barrier = 6,
    Split = 7,
    ReduceScatter = 8,
    ReduceScatterDense = 9,
    Calibrate = 10,
    BroadcastStream = 11,
    AllgatherSparse = 12,
    AllgatherDense = 13,
    Reduce = 14,
    ReduceDense = 15,
    Hierarchy = 16,
    HierarchicalAllreduceDense = 17,
    HierarchicalAllreduce = 18,
    HierarchicalGtopk = 19,
}

/// Those whose parameter is a root.
const ROOTED: [Operation; 4] =
    [Operation::Broadcast, Operation::BroadcastStream, Operation::Reduce, Operation::ReduceDense];

/// Names of operations, algorithms and modes by their codes; codes are never reused.
const OPERATIONS: [&str; 20] = [
    "?",
    "dense allreduce",
    "sparse allreduce",
    "gtopk",
    "allgather",
    "broadcast",
    "barrier",
    "split",
    "sparse reduce_scatter",
    "dense reduce_scatter",
    "calibration",
    "broadcast of a stream",
    "sparse allgather",
    "dense allgather",
    "sparse reduce",
    "dense reduce",
    "hierarchy",
    "hierarchical dense allreduce",
    "hierarchical sparse allreduce",
    "hierarchical gtopk",
];
pub(crate) const ALGORITHMS: [&str; 15] = [
    "-",
    "dense_ring",
    "dense_recursive_doubling",
    "ssar_recursive_doubling",
    "ssar_split_allgather",
    "dsar_split_allgather",
    "topk_allgather",
    "gtopk_tree",
    "gtopk_butterfly",
    "gtopk_exact",
    "ssar_ring",
    "rabenseifner",
    "oktopk",
    "spardl",
    "auto",
];
/// The code of the choice among algorithms. Its parameter is what all ranks choose by.
pub(crate) const AUTO: u8 = 14;
/// Set in the mode of a call that gives means.
const MEAN: u8 = 1 << 7;
const MODES: [&str; 4] = ["-", "conserving put-back", "paper put-back", "quantized"];

/// One call of a collective: what all ranks must agree on.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Call(pub(crate) Fingerprint);

impl Call {
    /// A call without vectors.
    pub(crate) const fn plain(operation: Operation, parameter: u64) -> Self {
        Self(Fingerprint { dtype: 0, operation: operation as u8, algorithm: 0, mode: 0, dim: 0, parameter })
    }

    /// A call on vectors of `E` of this dimension.
    pub(crate) const fn vector<E: Element>(operation: Operation, algorithm: u8, dim: u64) -> Self {
        let dtype = E::DTYPE.code();
        Self(Fingerprint { dtype, operation: operation as u8, algorithm, mode: 0, dim, parameter: 0 })
    }

    pub(crate) const fn with_mode(mut self, mode: u8, parameter: u64) -> Self {
        self.0.mode = mode;
        self.with_parameter(parameter)
    }

    pub(crate) const fn with_parameter(mut self, parameter: u64) -> Self {
        self.0.parameter = parameter;
        self
    }

    /// The same, giving the mean.
    pub(crate) const fn of_mean(mut self) -> Self {
        self.0.mode |= MEAN;
        self
    }

    pub(crate) const fn is_of_mean(&self) -> bool {
        self.0.mode & MEAN != 0
    }

    /// With this root.
    pub(crate) const fn with_root(self, root: Rank) -> Self {
        self.with_parameter(root.0 as u64)
    }

    /// How the other rank's call differs, in words; only what differs is told.
    pub(crate) fn difference(&self, here: usize, other: &Fingerprint, there: usize) -> String {
        let (mine, theirs) = (self.0, *other);
        let mut parts = Vec::new();
        let mut tell = |what: &str, a: String, b: String| {
            if a != b {
                parts.push(format!("rank {there} has {what} {b} where rank {here} has {a}"));
            }
        };
        tell("operation", name(&OPERATIONS, mine.operation), name(&OPERATIONS, theirs.operation));
        tell("algorithm", name(&ALGORITHMS, mine.algorithm), name(&ALGORITHMS, theirs.algorithm));
        tell("dtype", dtype(mine.dtype), dtype(theirs.dtype));
        tell("dimension", mine.dim.to_string(), theirs.dim.to_string());
        let reduction = |mode: u8| if mode & MEAN != 0 { "mean" } else { "sum" }.to_owned();
        tell("reduction", reduction(mine.mode), reduction(theirs.mode));
        tell("mode", name(&MODES, mine.mode & !MEAN), name(&MODES, theirs.mode & !MEAN));
        let with_k = [Operation::Gtopk, Operation::HierarchicalGtopk];
        let is_one_of = |some: &[Operation]| some.iter().any(|one| mine.operation == *one as u8);
        let what = if is_one_of(&with_k) {
            "k"
        } else if is_one_of(&ROOTED) {
            "root"
        } else if mine.algorithm == AUTO && theirs.algorithm == AUTO {
            "calibration or learning (hashed)"
        } else {
            "parameter"
        };
        tell(what, mine.parameter.to_string(), theirs.parameter.to_string());
        parts.join("; ")
    }
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let call = &self.0;
        f.write_str(&name(&OPERATIONS, call.operation))?;
        match (call.algorithm, call.dtype) {
            (0, 0) => Ok(()),
            (0, _) => write!(f, " (dimension {}, {})", call.dim, dtype(call.dtype)),
            (algorithm, _) => {
                let algorithm = name(&ALGORITHMS, algorithm);
                write!(f, " ({algorithm}, dimension {}, {})", call.dim, dtype(call.dtype))
            }
        }
    }
}

impl fmt::Debug for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

fn name(names: &[&str], code: u8) -> String {
    names.get(usize::from(code)).map_or_else(|| format!("#{code}"), |name| (*name).to_owned())
}

fn dtype(code: u8) -> String {
    match DType::from_code(code) {
        Some(dtype) => dtype.name().to_owned(),
        None => format!("#{code}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_difference_names_both_ranks_and_only_what_differs() {
        let mine = Call::vector::<f32>(Operation::Gtopk, 8, 1000).with_mode(1, 10);
        let theirs = Call::vector::<f32>(Operation::Gtopk, 8, 1000).with_mode(1, 11);
        assert_eq!(mine.difference(0, &theirs.0, 3), "rank 3 has k 11 where rank 0 has 10");
        let theirs = Call::vector::<f64>(Operation::Gtopk, 7, 1000).with_mode(1, 10);
        assert_eq!(
            mine.difference(0, &theirs.0, 3),
            "rank 3 has algorithm gtopk_tree where rank 0 has gtopk_butterfly; \
             rank 3 has dtype f64 where rank 0 has f32"
        );
    }

    #[test]
    fn unknown_codes_are_told_as_numbers() {
        let mine = Call::plain(Operation::Barrier, 0);
        let mut theirs = mine.0;
        theirs.operation = 200;
        theirs.dtype = 99;
        let told = mine.difference(1, &theirs, 2);
        assert!(told.contains("#200") && told.contains("#99"), "{told}");
    }
}
