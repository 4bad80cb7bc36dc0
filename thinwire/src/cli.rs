use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::algorithm::Algorithm;
use crate::netlab::Rate;

/// Trains with sparse collectives over a thin wire.
///
/// Without a subcommand it does what `thinwire train` does without options.
#[derive(Parser, Debug)]
#[command(name = "thinwire", version, max_term_width = 100)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Option<Command>,
}

#[derive(Subcommand, Debug)]
pub(crate) enum Command {
    Train(TrainArgs),
    #[command(subcommand)]
    Bench(Bench),
    Launch(LaunchArgs),
    Netlab(NetlabArgs),
}

/// Train real models on real data with several workers, and compare how their gradients travel
///
/// Starts the workers as processes on this machine, connected by TCP, and trains each task once with
/// each algorithm. Shows a table at the end and writes a picture of the losses.
///
/// Two tasks come with the program. `mnist`: 10,000 handwritten digits and a network of three layers.
/// Its gradients are dense; sparse algorithms send the share of the entries that --density says and
/// keep the rest for later. `spam`: 6,046 mails and a logistic regression. Its gradients are sparse by
/// nature and summed exactly, so all algorithms end alike.
///
/// If RANK and WORLD_SIZE are set (by torchrun --no-python, `thinwire launch`, or a wrapper for Slurm or
/// mpirun), the process joins that world at MASTER_ADDR and MASTER_PORT instead of starting workers.
#[derive(Args, Clone, Debug)]
#[command(after_long_help = train_notes())]
pub(crate) struct TrainArgs {
    /// What to learn; repeat it for both [default: both]
    #[arg(long = "task", value_enum, value_name = "TASK")]
    pub(crate) tasks: Vec<TaskName>,

    /// How many workers train together [default: 4, or WORLD_SIZE if it is set]
    #[arg(long, value_name = "N", value_parser = workers)]
    pub(crate) workers: Option<usize>,

    /// How gradients are summed; repeat it to compare. See below for the names
    ///
    /// [default: dense, topk_allgather and gtopk for mnist; dense_recursive_doubling, dense_ring and
    /// ssar_recursive_doubling for spam]
    #[arg(long = "algorithm", value_name = "NAME", value_parser = str::parse::<Algorithm>)]
    pub(crate) algorithms: Vec<Algorithm>,

    /// Which share of the gradient's entries a worker sends, above 0 and at most 1 (mnist only)
    /// [default: 0.01]
    ///
    /// Reached by a warm-up over the first epoch.
    #[arg(long, value_name = "D", value_parser = density)]
    pub(crate) density: Option<f64>,

    /// How often to go through the training data [default: 8 for mnist, 6 for spam]
    #[arg(long, value_name = "E", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) epochs: Option<u32>,

    /// How many examples a worker takes at a step [default: 32 for mnist, 8 for spam]
    #[arg(long, value_name = "B", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) batch: Option<u32>,

    /// The learning rate [default: chosen for the task]
    #[arg(long, value_name = "RATE", value_parser = rate)]
    pub(crate) learning_rate: Option<f32>,

    /// `tcp`: a process for each worker; `local`: a thread for each
    #[arg(long, value_enum, default_value_t = TransportName::Tcp)]
    pub(crate) transport: TransportName,

    /// Decides the first weights, the order of the examples and all rounding by chance
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,

    /// How many seconds to wait until all workers have appeared [default: 30, or THINWIRE_TIMEOUT]
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    pub(crate) timeout: Option<Duration>,

    /// Write the results to this file as JSON
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,

    /// Write the picture to this file (SVG)
    #[arg(long, value_name = "FILE", default_value = "thinwire-train.svg")]
    pub(crate) plot: PathBuf,

    /// Train the spam task on this file instead: libsvm format, labels 0 and 1 or -1 and 1, plain or gzip
    #[arg(long, value_name = "FILE")]
    pub(crate) data: Option<PathBuf>,
}

fn train_notes() -> String {
    format!(
        "{}
mnist: with all but the dense algorithms, each worker selects its largest entries first.
spam: gtopk algorithms and --density do not apply; sums are exact, but for those in few bits.

Examples:
  thinwire train
  thinwire train --task mnist --algorithm dense --algorithm gtopk --density 0.001
  thinwire train --task spam --workers 8 --json results.json
  thinwire train --data mails.libsvm --epochs 20
  thinwire launch -n 4 -- thinwire train --task mnist
  torchrun --no-python --nproc-per-node 4 thinwire train
  mpirun -n 4 thinwire train --transport mpi",
        Algorithm::describe_all()
    )
}

/// Measure how fast gradients are summed, with inputs made up by chance
#[derive(Subcommand, Debug)]
pub(crate) enum Bench {
    Allreduce(AllreduceArgs),
    Kernels(KernelsArgs),
}

/// Time what a rank computes on its own: selecting, merging, adding, coding, rounding
///
/// Each kernel runs on one thread, in turn with a read of the memory that it reads. `topk` selects the share
/// --density of the largest of --dim values; `merge` sums two sparse vectors with so many entries, at places drawn
/// by chance; `scatter` adds one of them to a dense vector; `encode` writes its indices in as few bits as possible, and
/// `decode` reads them again, with every check; `quantize` rounds all values by chance to 8 bits, and
/// `dequantize` reads them again. Shows a table at the end.
#[derive(Args, Clone, Debug)]
pub(crate) struct KernelsArgs {
    /// How many values there are: up to 2^32; 16M, 16_000_000 and 16000000 are the same
    #[arg(long, value_name = "N", default_value = "25_600_000", value_parser = dimension)]
    pub(crate) dim: u64,

    /// Which share of them is selected, or not zero in a sparse vector, above 0 and at most 1
    #[arg(long, value_name = "D", default_value_t = 0.001, value_parser = density)]
    pub(crate) density: f64,

    /// How often each kernel is measured
    #[arg(long, value_name = "I", default_value_t = 11, value_parser = iterations)]
    pub(crate) iterations: u32,

    /// Also select with the standard library's select_nth_unstable, and with numpy and torch where python3 has them
    #[arg(long)]
    pub(crate) peers: bool,

    /// Decides the values
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,

    /// Print a JSON object a line, a kernel each, instead of the table
    #[arg(long)]
    pub(crate) json: bool,
}

/// Time sums of sparse vectors over all ranks, and count their bytes
///
/// Starts the ranks as processes on this machine, connected by TCP. Each has a vector of --dim values of
/// which --density are not zero, at places of its own, drawn by chance. Each algorithm sums these once to
/// check the result, and then as often as --iterations says; dense algorithms get the same vectors with
/// their zeros. An iteration takes as long as the slowest rank, from a common start. Shows a table at the
/// end.
///
/// If RANK and WORLD_SIZE are set (by torchrun --no-python, `thinwire launch`, or a wrapper for Slurm or
/// mpirun), the process joins that world at MASTER_ADDR and MASTER_PORT instead of starting ranks.
#[derive(Args, Clone, Debug)]
#[command(after_long_help = allreduce_notes())]
pub(crate) struct AllreduceArgs {
    /// How many values a vector has: up to 2^32; 16M, 16_000_000 and 16000000 are the same
    #[arg(long, value_name = "N", default_value = "1M", value_parser = dimension)]
    pub(crate) dim: u64,

    /// Which share of them is not zero on a rank, above 0 and at most 1
    #[arg(long, value_name = "D", default_value_t = 0.01, value_parser = density)]
    pub(crate) density: f64,

    /// How vectors are summed; repeat it, or separate names by commas, to compare. See below for the names
    ///
    /// [default: one of each kind]
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
    #[arg(long, value_name = "I", default_value_t = 20, value_parser = iterations)]
    pub(crate) iterations: u32,

    /// `tcp`: a process for each rank; `local`: a thread for each
    #[arg(long, value_enum, default_value_t = TransportName::Tcp)]
    pub(crate) transport: TransportName,

    /// Decides the vectors, and all rounding by chance
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,

    /// Measure MPI's own collectives too, in the world that mpirun has started
    ///
    /// After the algorithms of this program come MPI_Allreduce, as the library chooses and with each algorithm that
    /// Open MPI's component `tuned` has, and a sum by MPI_Allgatherv. With --transport tcp this program's own
    /// algorithms run over TCP between the same processes. Needs the feature `mpi`, as --transport mpi does.
    #[arg(long)]
    pub(crate) peers: bool,

    /// How many seconds to wait until all ranks have appeared [default: 30, or THINWIRE_TIMEOUT]
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    pub(crate) timeout: Option<Duration>,

    /// Print a JSON object a line, an algorithm each, instead of the table
    #[arg(long)]
    pub(crate) json: bool,
}

fn allreduce_notes() -> String {
    format!(
        "{}
gtopk algorithms keep as many entries of the sum as each rank brings; the others keep all.
Without --algorithm: {}.

The keys of the JSON objects: algorithm, ranks, dim, nnz (of one rank's vector), median_ms, min_ms, max_ms,
bytes_sent_max and bytes_received_max (of one sum, headers included, at the rank with the most), stream_mbps (the
goodput of a plain TCP stream from rank 1 to rank 0, measured before the sums, in 10^6 bits per second; null if not TCP).

Examples:
  thinwire bench allreduce
  thinwire bench allreduce --dim 16M --density 0.001 --algorithm dense_ring,ssar_split_allgather
  thinwire bench allreduce --transport local --ranks 8 --json
  thinwire launch -n 4 -- thinwire bench allreduce --iterations 100
  mpirun -n 4 thinwire bench allreduce --transport mpi --peers
  mpirun -n 4 --mca btl tcp,self --mca btl_tcp_if_include lo thinwire bench allreduce --peers",
        Algorithm::describe_all(),
        crate::bench::DEFAULT_ALGORITHMS.join(", ")
    )
}

/// Start a command several times as the ranks of one world
///
/// Each process gets RANK, LOCAL_RANK, WORLD_SIZE, LOCAL_WORLD_SIZE, MASTER_ADDR and MASTER_PORT, as from
/// torchrun. Each line that it prints is shown with `[RANK] ` in front. When one of them fails, the others are
/// ended, its last message is repeated, and the exit code is its own (128 + N if signal N killed it).
#[derive(Args, Debug)]
#[command(after_help = "Example:\n  thinwire launch -n 4 -- thinwire train --task spam")]
pub(crate) struct LaunchArgs {
    /// How many processes to start
    #[arg(short = 'n', long = "workers", value_name = "N", value_parser = workers)]
    pub(crate) workers: usize,

    /// The port where the ranks meet [default: a free one]
    #[arg(long, value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) master_port: Option<u16>,

    /// The command and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "CMD")]
    pub(crate) command: Vec<OsString>,
}

/// Start a command on every host of an emulated network whose links have the rate of your choice
///
/// Makes a network namespace for each host and a bridge between them (Linux, as root, with ip and tc of iproute2), and
/// limits each link, in both directions, by a token bucket. Each process gets RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT,
/// as from torchrun with one process a machine, and listens at its host's own address. Each line that it prints is
/// shown with `[RANK] ` in front. When one of them fails, the others are ended, its last message is repeated, and the
/// exit code is 1. The network is taken down at the end, and what a killed run left is cleared by the next.
#[derive(Args, Debug)]
#[command(after_help = "\
The hosts are 10.77.0.1, 10.77.0.2, .. and reach each other and nothing else; nothing of this is seen outside. Packets
have 1500 bytes, so a plain TCP stream gets 0.95 of the rate. Each token bucket holds 0.5 ms at its rate, and two packets
at least: so much passes at once after a pause. 1 MiB waits at a link before packets are dropped.

Example:
  thinwire netlab --hosts 8 --rate 1gbit -- thinwire bench allreduce --transport tcp --dim 16M")]
pub(crate) struct NetlabArgs {
    /// How many hosts there are
    #[arg(long, value_name = "N", value_parser = hosts)]
    pub(crate) hosts: usize,

    /// How fast a link is in each direction, with a unit as for tc: 1gbit, 100mbit, 10mbit
    #[arg(long, value_name = "RATE", value_parser = str::parse::<Rate>)]
    pub(crate) rate: Rate,

    /// The command and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "CMD")]
    pub(crate) command: Vec<OsString>,
}

/// What can be learned.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum TaskName {
    /// Handwritten digits, with a neural network
    Mnist,
    /// Mails, spam or not, with a logistic regression
    Spam,
}

impl TaskName {
    pub(crate) const ALL: [Self; 2] = [Self::Mnist, Self::Spam];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Mnist => "mnist",
            Self::Spam => "spam",
        }
    }
}

#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum TransportName {
    /// A process for each, over loopback TCP
    Tcp,
    /// A thread for each, in this process
    Local,
    /// The processes that mpirun has started, over MPI
    Mpi,
}

fn workers(text: &str) -> Result<usize, String> {
    count(text, "worker")
}

fn ranks(text: &str) -> Result<usize, String> {
    count(text, "rank")
}

fn hosts(text: &str) -> Result<usize, String> {
    count(text, "host")
}

fn count(text: &str, what: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(0) => Err(format!("there has to be at least 1 {what}")),
        Ok(count) if count <= MAX_WORKERS => Ok(count),
        Ok(_) => Err(format!("more than {MAX_WORKERS} {what}s do not fit one machine")),
        Err(_) => Err("not a whole number".into()),
    }
}

/// A process each, all on this machine: beyond this it is a mistake.
const MAX_WORKERS: usize = 256;

fn iterations(text: &str) -> Result<u32, String> {
    match text.parse() {
        Ok(0) => Err("there has to be at least 1 iteration".into()),
        Ok(count) => Ok(count),
        Err(_) => Err(format!("not a whole number up to {}", u32::MAX)),
    }
}

fn dimension(text: &str) -> Result<u64, String> {
    let (digits, unit) = match text.char_indices().last() {
        Some((end, 'k' | 'K')) => (&text[..end], 1_000),
        Some((end, 'M')) => (&text[..end], 1_000_000),
        Some((end, 'G')) => (&text[..end], 1_000_000_000),
        _ => (text, 1),
    };
    let digits = digits.replace('_', "");
    let is_number = !digits.is_empty() && digits.bytes().all(|digit| digit.is_ascii_digit());
    // What is a number and does not fit is too large.
    let dim = is_number.then(|| digits.parse().ok().and_then(|count: u64| count.checked_mul(unit)));
    match dim {
        None => Err("not a whole number, with k, M or G behind it or without".into()),
        Some(Some(0)) => Err("a vector has to have at least 1 value".into()),
        Some(Some(dim)) if dim <= MAX_DIM => Ok(dim),
        Some(_) => Err(format!("a vector has at most 2^32 = {MAX_DIM} values")),
    }
}

/// Indices are 32 bits long.
const MAX_DIM: u64 = 1 << 32;

fn density(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(density) if density > 0.0 && density <= 1.0 => Ok(density),
        _ => Err("a density is a number above 0 and at most 1".into()),
    }
}

fn rate(text: &str) -> Result<f32, String> {
    match text.parse::<f32>() {
        Ok(rate) if rate > 0.0 && rate.is_finite() => Ok(rate),
        _ => Err("a learning rate is a number above 0".into()),
    }
}

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.parse::<f64>().ok().filter(|seconds| *seconds > 0.0);
    let duration = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    duration.ok_or_else(|| "not a number of seconds above 0".into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory as _;

    #[test]
    fn the_command_line_is_well_formed() {
        Cli::command().debug_assert();
    }

    #[test]
    fn a_dimension_may_have_underscores_and_a_unit() {
        for (text, dim) in
            [("1", 1), ("16M", 16_000_000), ("1_000", 1_000), ("4k", 4_000), ("4G", 4_000_000_000)]
        {
            assert_eq!(dimension(text), Ok(dim), "{text}");
        }
        assert_eq!(dimension("4294967296"), Ok(1 << 32));
        for (text, says) in [
            ("0", "at least 1 value"),
            ("4294967297", "2^32"),
            ("5G", "2^32"),
            ("99999999999999999999G", "2^32"),
            ("", "whole number"),
            ("M", "whole number"),
            ("1.5M", "whole number"),
            ("-1", "whole number"),
            ("+1", "whole number"),
            ("1m", "whole number"),
            ("1é", "whole number"),
        ] {
            assert!(dimension(text).unwrap_err().contains(says), "{text}");
        }
    }

    #[test]
    fn numbers_out_of_range_are_refused_in_words() {
        assert_eq!(workers("0").unwrap_err(), "there has to be at least 1 worker");
        assert!(workers("-1").is_err() && workers("257").is_err());
        assert_eq!(workers("256"), Ok(256));
        for bad in ["0", "-0.1", "1.01", "NaN", "inf", "x", ""] {
            assert!(density(bad).unwrap_err().contains("above 0 and at most 1"), "{bad}");
        }
        assert_eq!(density("1"), Ok(1.0));
        assert_eq!(ranks("0").unwrap_err(), "there has to be at least 1 rank");
        assert_eq!(iterations("0").unwrap_err(), "there has to be at least 1 iteration");
        assert!(rate("inf").is_err() && rate("0").is_err() && rate("1e-3") == Ok(0.001));
        assert!(seconds("0").is_err() && seconds("1e300").is_err());
        assert_eq!(seconds("1.5"), Ok(Duration::from_millis(1500)));
    }
}
