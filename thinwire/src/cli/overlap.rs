use std::time::Duration;

use clap::Args;

use super::TransportName;
use super::values::{density, dimension, iterations, ranks, seconds};
use crate::algorithm::Algorithm;

/// Time sums that go on while each rank computes, beside the sum and the computation alone
///
/// Starts the ranks as `thinwire bench allreduce` does. For each algorithm a rank sums, computes for about as long, and
/// then starts the sum, computes, and waits for the sum. If the two did not disturb each other, both together would take as
/// long as the longer one: `ratio` says how many times longer they take. A sum over the loopback device is mostly work of
/// the processors, which computing ranks need themselves; over a network it is mostly waiting.
#[derive(Args, Clone, Debug)]
#[command(after_long_help = notes())]
pub(crate) struct OverlapArgs {
    /// How many values a vector has: up to 2^32; 16M, 16_000_000 and 16000000 are the same
    #[arg(long, value_name = "N", default_value = "4M", value_parser = dimension)]
    pub(crate) dim: u64,

    /// Which share of them is not zero on a rank, above 0 and at most 1
    #[arg(long, value_name = "D", default_value_t = 0.01, value_parser = density)]
    pub(crate) density: f64,

    /// How vectors are summed; repeat it, or separate names by commas, to compare. `thinwire bench allreduce --help` has them
    #[arg(
        long = "algorithm",
        value_name = "NAME",
        value_delimiter = ',',
        value_parser = str::parse::<Algorithm>
    )]
    pub(crate) algorithms: Vec<Algorithm>,

    /// How many ranks take part [default: 4, or WORLD_SIZE if it is set]
    #[arg(long, value_name = "P", value_parser = ranks)]
    pub(crate) ranks: Option<usize>,

    /// How often each algorithm is measured
    #[arg(long, value_name = "I", default_value_t = 15, value_parser = iterations)]
    pub(crate) iterations: u32,

    /// `tcp`: a process for each rank; `local`: a thread for each
    #[arg(long, value_enum, default_value_t = TransportName::Tcp)]
    pub(crate) transport: TransportName,

    /// Decides the vectors, and all rounding by chance
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,

    /// How many seconds to wait until all ranks have appeared [default: 30, or THINWIRE_TIMEOUT]
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    pub(crate) timeout: Option<Duration>,

    /// Print a JSON object a line, an algorithm each, instead of the table
    #[arg(long)]
    pub(crate) json: bool,
}

fn notes() -> String {
    format!(
        "Without --algorithm: {}.

The keys of the JSON objects: algorithm, ranks, dim, nnz (of one rank's vector), communicate_ms, compute_ms, both_ms, ratio.

Examples:
  thinwire bench overlap --ranks 2
  thinwire netlab --hosts 2 --rate 1gbit -- thinwire bench overlap
  thinwire bench overlap --transport local --ranks 2 --algorithm ssar_split_allgather --json",
        crate::bench::OVERLAP_ALGORITHMS.join(", ")
    )
}
