use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::algorithm::Algorithm;
use crate::rate::Rate;

use values::{
    burst, bytes, density, dimension, group, hosts, iterations, ranks, rate, seconds, simulated_ranks, span,
    stragglers, workers,
};

mod overlap;
mod values;

pub(crate) use overlap::OverlapArgs;

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
    Sim(SimArgs),
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

    /// Sum layers in buckets of up to so many bytes, each while the next layer is computed (mnist only); 1M and 1_000_000
    /// are the same [default: all layers together, once all are computed]
    #[arg(long, value_name = "BYTES", value_parser = bytes)]
    pub(crate) fusion_bytes: Option<usize>,

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
spam: gtopk algorithms, oktopk, spardl and --density do not apply; sums are exact, but for those in few bits.

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
    Overlap(OverlapArgs),
    Kernels(KernelsArgs),
}

/// Time what a rank computes on its own: selecting, merging, adding, coding, rounding
///
/// Each kernel runs on one thread, in turn with a read of the memory that it reads. `topk` selects the share
/// --density of the largest of --dim values; `fused` adds a gradient to a residual and takes out as many, `feedback` does so
/// beside the old residual, as training does, and `feedback_momentum` with a velocity and a factor for clipping; `merge` sums two sparse vectors with so many entries, at places drawn
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

    /// The rate of the ranks' links, for the lower bound: 1gbit, 100mbit [default: that of a plain TCP stream, measured]
    #[arg(long, value_name = "RATE", value_parser = str::parse::<Rate>)]
    pub(crate) rate: Option<Rate>,

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
gtopk algorithms, oktopk and spardl keep as many entries of the sum as each rank brings; the others keep all.
Without --algorithm: {}.

The keys of the JSON objects: algorithm, ranks, dim, nnz (of one rank's vector), median_ms, min_ms, max_ms,
bytes_sent_max and bytes_received_max (of one sum, headers included, at the rank with the most), stream_mbps (the
goodput of a plain TCP stream from rank 1 to rank 0, measured before the sums, in 10^6 bits per second; null if not TCP),
rounds (messages that wait for each other) and lower_bound_ms (the least that any algorithm with the same result needs for its bytes
on links of --rate, and one latency, measured); these two are null for another library's sums.

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

/// Simulate sums over many ranks, and compare their times with the formulas
///
/// Runs the collectives themselves, all ranks in this process, over a network that is computed: each rank on a host with
/// a full-duplex link of --rate and a latency of --alpha, as `testkit::sim` describes. Time is virtual, and only the
/// network takes any: what ranks compute costs nothing. Each rank has --density of --dim values that are not zero, at
/// places drawn by chance. Shows a table at the end: the simulated time, that of the formula (`collectives::cost`, without jitter,
/// stragglers or shared hosts), and the least that any algorithm with the same result needs.
#[derive(Args, Clone, Debug)]
#[command(after_long_help = sim_notes())]
pub(crate) struct SimArgs {
    /// How many ranks; a list is simulated one by one. With --plot, one number means all powers of two up to it
    #[arg(long, value_name = "P", value_delimiter = ',', default_value = "1024", value_parser = simulated_ranks)]
    pub(crate) ranks: Vec<usize>,

    /// How vectors are summed: one or more names, separated by commas. See below for them
    #[arg(
        long = "algorithm",
        value_name = "NAME",
        value_delimiter = ',',
        default_value = "gtopk_tree,topk_allgather,dense_ring",
        value_parser = str::parse::<Algorithm>
    )]
    pub(crate) algorithms: Vec<Algorithm>,

    /// How many values a vector has: up to 2^32; 16M, 16_000_000 and 16000000 are the same
    #[arg(long, value_name = "N", default_value = "25_600_000", value_parser = dimension)]
    pub(crate) dim: u64,

    /// Which share of them is not zero on a rank, above 0 and at most 1
    #[arg(long, value_name = "D", default_value_t = 0.001, value_parser = density)]
    pub(crate) density: f64,

    /// The latency of a message: a number and ns, us, ms or s
    #[arg(long, value_name = "TIME", default_value = "50us", value_parser = span)]
    pub(crate) alpha: Duration,

    /// What a link carries in each direction, a second: a number and bit, kbit, mbit or gbit
    #[arg(long, value_name = "RATE", default_value = "1gbit", value_parser = str::parse::<Rate>)]
    pub(crate) rate: Rate,

    /// How long a message occupies each end of a link, beside its bytes
    #[arg(long, value_name = "TIME", default_value = "0us", value_parser = span)]
    pub(crate) overhead: Duration,

    /// How many ranks share a host and its link; messages between them take no time
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = ranks)]
    pub(crate) ranks_per_host: usize,

    /// Puts ranks in groups of so many neighbours, and adds a row for each algorithm in their hierarchy: inside the groups,
    /// across them, inside again. A group is a host: its ranks share the link to the others, and each has one inside
    #[arg(long, value_name = "G", value_parser = group, conflicts_with = "ranks_per_host")]
    pub(crate) groups: Option<usize>,

    /// The latency of a message inside a group
    #[arg(long, value_name = "TIME", default_value = "5us", value_parser = span, requires = "groups")]
    pub(crate) inner_alpha: Duration,

    /// What the link of a rank inside its group carries in each direction, a second
    #[arg(long, value_name = "RATE", default_value = "10gbit", value_parser = str::parse::<Rate>, requires = "groups")]
    pub(crate) inner_rate: Rate,

    /// Adds up to this to the latency of each message, by chance
    #[arg(long, value_name = "TIME", default_value = "0us", value_parser = span)]
    pub(crate) jitter: Duration,

    /// Makes a share of the hosts, drawn by chance, so many times slower: 0.01:10 is each hundredth ten times
    #[arg(long, value_name = "SHARE:TIMES", value_parser = stragglers)]
    pub(crate) stragglers: Option<(f64, f64)>,

    /// Decides the places, the jitter and the stragglers
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,

    /// Print a JSON object a line, for each algorithm and number of ranks, instead of the table
    #[arg(long)]
    pub(crate) json: bool,

    /// Draw the time against the number of ranks (SVG)
    #[arg(long, value_name = "FILE")]
    pub(crate) plot: Option<PathBuf>,

    /// Draw the messages of the last simulation as lines from sender to receiver over time (SVG)
    #[arg(long, value_name = "FILE")]
    pub(crate) trace: Option<PathBuf>,
}

fn sim_notes() -> String {
    format!(
        "{}
What does not fit this machine is simulated in small: vectors with fewer values of the same density, each byte of
which takes as many times longer (headers do not). `scale` says how many times smaller they are; the formula is
that of the full size.

With --groups, `hierarchical_` and a name is the row of an algorithm that knows of the groups; the other one's ranks do not, and most of
their messages share the hosts' links. The formula of a hierarchy adds up what shares a link: it holds where bytes
alone count and the groups are a power of two; elsewhere one rank's messages travel while another's leave, and it says too much.

The keys of the JSON objects: algorithm, ranks, dim, nnz, virtual_ms, formula_ms, lower_bound_ms, bytes_max (sent or
received, at the rank with the most), rounds (messages that wait for each other), scale.

Examples:
  thinwire sim
  thinwire sim --ranks 1024 --algorithm gtopk_tree,topk_allgather,dense_ring --plot times.svg
  thinwire sim --ranks 4,8,16 --alpha 1.5us --rate 100gbit --json
  thinwire sim --ranks 64 --algorithm ssar_split_allgather --groups 8 --inner-alpha 5us --inner-rate 10gbit
  thinwire sim --ranks 8 --algorithm dense_ring --dim 10k --trace ring.svg",
        Algorithm::describe_all()
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
have 1500 bytes, so a plain TCP stream gets 0.95 of the rate. Each token bucket holds what passes in the time of --burst,
and two packets at least; packets are handed over in groups of half as much. 1 MiB waits at a link before packets are
dropped.

Example:
  thinwire netlab --hosts 8 --rate 1gbit -- thinwire bench allreduce --transport tcp --dim 16M")]
pub(crate) struct NetlabArgs {
    /// How many hosts there are
    #[arg(long, value_name = "N", value_parser = hosts)]
    pub(crate) hosts: usize,

    /// How fast a link is in each direction, with a unit as for tc: 1gbit, 100mbit, 10mbit
    #[arg(long, value_name = "RATE", value_parser = str::parse::<Rate>)]
    pub(crate) rate: Rate,

    /// How much passes at once after a pause, as the time that it takes at the rate
    ///
    /// The less, the truer are short messages; the more, the less the emulation takes of the processor, which it wakes for
    /// each group of packets: more than anything else where messages are long and what is measured computes meanwhile.
    #[arg(long, value_name = "TIME", default_value = "500us", value_parser = burst)]
    pub(crate) burst: Duration,

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

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory as _;

    #[test]
    fn the_command_line_is_well_formed() {
        Cli::command().debug_assert();
    }
}
