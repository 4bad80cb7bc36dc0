use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use collectives::cost::{self, Cost, Link, Workload};
use sparse_quant::{Norm, Qsgd};
use sparse_sgd::{DenseAlgorithm, GtopkAlgorithm, Method, SparseAlgorithm};

/// How the workers' gradients are summed, by the name that the user gave.
///
/// Several names mean the same method: the short ones are those of the papers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Algorithm {
    pub(crate) name: &'static str,
    kind: Kind,
    what: &'static str,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Dense(DenseAlgorithm),
    Auto,
    TopkAllgather,
    SsarRecursiveDoubling,
    SsarSplitAllgather,
    SsarRing,
    DsarSplitAllgather,
    /// With so many bits a value in the second phase.
    DsarQuantized(u32),
    Gtopk(GtopkAlgorithm),
}

/// Values that share one scale when they are quantized: the bucket of the SparCML paper.
const BUCKET: usize = 1024;

const RING: Kind = Kind::Dense(DenseAlgorithm::Ring);
const RECURSIVE_DOUBLING: Kind = Kind::Dense(DenseAlgorithm::RecursiveDoubling);
const RABENSEIFNER: Kind = Kind::Dense(DenseAlgorithm::Rabenseifner);
const DENSE_AUTO: Kind = Kind::Dense(DenseAlgorithm::Auto);
const BUTTERFLY: Kind = Kind::Gtopk(GtopkAlgorithm::Butterfly);
const TREE: Kind = Kind::Gtopk(GtopkAlgorithm::Tree);
const EXACT: Kind = Kind::Gtopk(GtopkAlgorithm::Exact);
const OKTOPK: Kind = Kind::Gtopk(GtopkAlgorithm::Oktopk);
const SPARDL: Kind = Kind::Gtopk(GtopkAlgorithm::Spardl);

#[rustfmt::skip]
pub(crate) const KNOWN: [Algorithm; 22] = [
    known("dense", RING, "the same as dense_ring"),
    known("dense_ring", RING, "whole gradients round the ring, the usual allreduce"),
    known("dense_recursive_doubling", RECURSIVE_DOUBLING, "whole gradients, exchanged in pairs"),
    known("rabenseifner", RABENSEIFNER, "whole gradients, halves exchanged in pairs"),
    known("dense_auto", DENSE_AUTO, "the dense sum above that is predicted to be the fastest"),
    known("auto", Kind::Auto, "the sparse sum below (ssar, dsar, topk) that is predicted to be the fastest"),
    known("topk", Kind::TopkAllgather, "the same as topk_allgather"),
    known("topk_allgather", Kind::TopkAllgather, "each worker's entries go to all workers"),
    known("ssar_recursive_doubling", Kind::SsarRecursiveDoubling, "sparse sums, exchanged in pairs"),
    known("ssar_split_allgather", Kind::SsarSplitAllgather, "sparse sums, each range at its owner"),
    known("ssar_ring", Kind::SsarRing, "sparse sums, each range round the ring"),
    known("dsar_split_allgather", Kind::DsarSplitAllgather, "dense sums, each range at its owner"),
    known("dsar_quantized", Kind::DsarQuantized(8), "the same as dsar_qsgd8"),
    known("dsar_qsgd8", Kind::DsarQuantized(8), "dense ranges in 8 bits a value, rounded by chance"),
    known("dsar_qsgd4", Kind::DsarQuantized(4), "the same in 4 bits"),
    known("dsar_qsgd2", Kind::DsarQuantized(2), "the same in 2 bits"),
    known("gtopk", BUTTERFLY, "the same as gtopk_butterfly"),
    known("gtopk_butterfly", BUTTERFLY, "the largest entries of the sum, merged in pairs"),
    known("gtopk_tree", TREE, "the same up and down a tree, as first published"),
    known("gtopk_exact", EXACT, "the largest entries of the sum, missing none"),
    known("oktopk", OKTOPK, "those of the sum of each worker's largest, missing none"),
    known("spardl", SPARDL, "those of each of as many ranges as workers, nearly"),
];

const fn known(name: &'static str, kind: Kind, what: &'static str) -> Algorithm {
    Algorithm { name, kind, what }
}

impl Algorithm {
    pub(crate) fn is_dense(self) -> bool {
        matches!(self.kind, Kind::Dense(_))
    }

    /// Whether the sum lacks what is small, so that an error feedback has to bring it later.
    pub(crate) fn is_truncating(self) -> bool {
        matches!(self.kind, Kind::Gtopk(_))
    }

    /// How many magnitudes above zero the quantized phase can tell apart, if there is one.
    pub(crate) fn levels(self) -> anyhow::Result<Option<u32>> {
        Ok(match self.kind {
            Kind::DsarQuantized(bits) => Some(quantizer(bits)?.levels()),
            _ => None,
        })
    }

    pub(crate) fn method(self, seed: u64) -> anyhow::Result<Method> {
        Ok(match self.kind {
            Kind::Dense(algorithm) => Method::Dense(algorithm),
            Kind::Auto => Method::Sparse(SparseAlgorithm::Auto),
            Kind::TopkAllgather => Method::Sparse(SparseAlgorithm::TopkAllgather),
            Kind::SsarRecursiveDoubling => Method::Sparse(SparseAlgorithm::SsarRecursiveDoubling),
            Kind::SsarSplitAllgather => Method::Sparse(SparseAlgorithm::SsarSplitAllgather),
            Kind::SsarRing => Method::Sparse(SparseAlgorithm::SsarRing),
            Kind::DsarSplitAllgather => Method::Sparse(SparseAlgorithm::DsarSplitAllgather),
            Kind::DsarQuantized(bits) => {
                let quantizer = Arc::new(quantizer(bits)?);
                Method::Sparse(SparseAlgorithm::DsarQuantized { quantizer, seed, step: 0 })
            }
            Kind::Gtopk(algorithm) => Method::Gtopk(algorithm),
        })
    }

    /// What a rank's sum of this workload costs, and what no algorithm with the same result can undercut, in bytes.
    pub(crate) fn cost(self, work: &Workload, link: &Link) -> anyhow::Result<(Cost, f64)> {
        Ok(match self.method(0)? {
            Method::Dense(algorithm) => (cost::dense(algorithm, work, link), cost::bounds::dense(work)),
            Method::Sparse(algorithm) => {
                (cost::sparse(&algorithm, work, link), cost::bounds::sparse_sum(work))
            }
            Method::Gtopk(algorithm) => (cost::gtopk(algorithm, work, link), cost::bounds::exact_topk(work)),
            other => anyhow::bail!("there is no formula of {other:?}"),
        })
    }

    /// What it costs in a hierarchy of groups of so many ranks, who share the link across and have their own inside.
    pub(crate) fn hierarchical_cost(
        self,
        work: &Workload,
        size: usize,
        inside: &Link,
        across: &Link,
    ) -> anyhow::Result<Cost> {
        let groups = work.ranks / size.max(1);
        let shared =
            Link::new(across.alpha, across.beta * size as f64).overhead(across.overhead * size as f64);
        Ok(match self.method(0)? {
            Method::Dense(algorithm) => cost::hierarchical_dense(algorithm, work, groups, inside, &shared),
            Method::Sparse(algorithm) => cost::hierarchical_sparse(&algorithm, work, groups, inside, &shared),
            Method::Gtopk(algorithm) => {
                // Of the others one rank of each group goes across.
                let link = if algorithm == GtopkAlgorithm::Exact { &shared } else { across };
                cost::hierarchical_gtopk(algorithm, work, groups, inside, link)
            }
            other => anyhow::bail!("there is no formula of {other:?}"),
        })
    }

    /// One line a name, for the help.
    pub(crate) fn describe_all() -> String {
        let mut text = String::from("Algorithms:\n");
        for Algorithm { name, what, .. } in KNOWN {
            text.push_str(&format!("  {name:<26}{what}\n"));
        }
        text
    }
}

fn quantizer(bits: u32) -> Result<Qsgd, sparse_quant::Error> {
    Qsgd::new(bits, BUCKET, Norm::Max)
}

impl fmt::Display for Algorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

impl FromStr for Algorithm {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        KNOWN.into_iter().find(|known| known.name == name).ok_or_else(|| {
            let names: Vec<_> = KNOWN.iter().map(|known| known.name).collect();
            format!("unknown algorithm; the known ones are {}", names.join(", "))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_known_name_is_found_and_makes_a_method() {
        for known in KNOWN {
            assert_eq!(known.name.parse(), Ok(known));
            assert!(known.method(7).is_ok(), "{known}");
        }
    }

    #[test]
    fn an_unknown_name_gets_the_list() {
        let error = "topq".parse::<Algorithm>().unwrap_err();
        assert!(KNOWN.iter().all(|known| error.contains(known.name)));
    }
}
