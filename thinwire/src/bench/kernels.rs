//! `thinwire bench kernels`: what a rank computes on its own, compared with reading the same memory.

use std::hint::black_box;
use std::time::Instant;

use anyhow::ensure;
use chacha20::ChaCha8Rng;
use rand::{RngExt as _, SeedableRng as _};
use serde::Serialize;
use sparse_core::{Memory, SparseVec, codec, merge_in, scatter_add, top_k_into};
use sparse_quant::{Norm, Qsgd, Quantizer as _, Seed};
use transport::Rank;

use super::fused::{feedback, feedback_momentum, fused};
use super::input;
use super::kernel_peers::peers;
use super::measure::median;
use crate::cli::KernelsArgs;
use crate::error::{Error, When as _};
use crate::output::{print, table};

/// What was measured of one kernel: a line of the output.
#[derive(Serialize, Debug)]
pub(super) struct Row {
    pub(super) kernel: String,
    pub(super) dim: u64,
    pub(super) density: f64,
    pub(super) median_ms: f64,
    /// A read of what the kernel reads; for `fused` and `feedback` the additions alone.
    pub(super) read_ms: f64,
    pub(super) ratio: f64,
    pub(super) gb_per_s: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) ns_per_entry: Option<f64>,
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub(super) code: Option<Code>,
}

/// How indices are coded.
#[derive(Serialize, Debug)]
pub(super) struct Code {
    bits_per_index: f64,
    /// Of a support of which each is as likely as every other.
    entropy_bits: f64,
    million_per_s: f64,
}

/// What all kernels work on.
pub(super) struct Inputs {
    /// Bell-shaped, as gradients are.
    pub(super) values: Vec<f32>,
    left: SparseVec<f32>,
    right: SparseVec<f32>,
    pub(super) args: KernelsArgs,
}

/// Measures each kernel on one thread, in turn with the read that it is compared with.
pub(crate) fn kernels(args: &KernelsArgs) -> Result<(), Error> {
    let inputs = Inputs::draw(args).run()?;
    let mut rows = Vec::new();
    let mut show = |row: Row| -> Result<(), Error> {
        if args.json {
            print(&serde_json::to_string(&row).run()?);
        }
        rows.push(row);
        Ok(())
    };
    for kernel in
        [topk, fused, feedback, feedback_momentum, merge_two, scatter, encode, decode, quantize, dequantize]
    {
        show(kernel(&inputs).run()?)?;
    }
    if args.peers {
        peers(&inputs).run()?.into_iter().try_for_each(show)?;
    }
    if !args.json {
        print(&render(&rows));
    }
    Ok(())
}

impl Inputs {
    fn draw(args: &KernelsArgs) -> anyhow::Result<Self> {
        let dim = usize::try_from(args.dim)?;
        let mut rng = ChaCha8Rng::seed_from_u64(args.seed);
        let mut bell = || (0..4).map(|_| rng.random::<f32>() - 0.5).sum::<f32>();
        let values = (0..dim).map(|_| bell()).collect();
        let nnz = ((dim as f64 * args.density) as usize).max(1);
        let draw = |rank| input::draw(args.dim, nnz, args.seed, Rank(rank));
        Ok(Self { values, left: draw(0)?, right: draw(1)?, args: args.clone() })
    }

    pub(super) fn k(&self) -> usize {
        self.left.nnz()
    }

    /// Measures a kernel beside a read of these arrays, of which it makes `entries` if that is what counts.
    pub(super) fn measure(
        &self,
        kernel: &'static str,
        reads: &[&[u8]],
        entries: Option<usize>,
        run: impl FnMut() -> anyhow::Result<()>,
    ) -> anyhow::Result<Row> {
        let reference = || {
            reads.iter().for_each(|bytes| {
                black_box(read(bytes));
            });
        };
        self.compare(kernel, reads.iter().map(|bytes| bytes.len()).sum(), entries, reference, run)
    }

    /// Measures a kernel that passes over so many bytes in turn with what it is compared with.
    pub(super) fn compare(
        &self,
        kernel: &'static str,
        bytes: usize,
        entries: Option<usize>,
        mut reference: impl FnMut(),
        mut run: impl FnMut() -> anyhow::Result<()>,
    ) -> anyhow::Result<Row> {
        let (mut laps, mut read_laps) = (Vec::new(), Vec::new());
        for _ in 0..self.args.iterations {
            let begun = Instant::now();
            reference();
            read_laps.push(begun.elapsed().as_nanos() as u64);
            let begun = Instant::now();
            run()?;
            laps.push(begun.elapsed().as_nanos() as u64);
        }
        laps.sort_unstable();
        read_laps.sort_unstable();
        let (lap, read_lap) = (median(&laps) as f64, median(&read_laps) as f64);
        Ok(Row {
            kernel: kernel.to_owned(),
            dim: self.args.dim,
            density: self.args.density,
            median_ms: lap / 1e6,
            read_ms: read_lap / 1e6,
            ratio: lap / read_lap.max(1.0),
            gb_per_s: bytes as f64 / lap.max(1.0),
            ns_per_entry: entries.map(|entries| lap / entries.max(1) as f64),
            code: None,
        })
    }
}

/// Reads everything, in a way that vectorises.
fn read(bytes: &[u8]) -> u64 {
    let (words, rest) = bytes.as_chunks::<8>();
    let words = words.iter().fold(0, |all, word| all | u64::from_le_bytes(*word));
    rest.iter().fold(words, |all, byte| all | u64::from(*byte))
}

pub(super) fn bytes<T: bytemuck::NoUninit>(values: &[T]) -> &[u8] {
    bytemuck::cast_slice(values)
}

fn topk(inputs: &Inputs) -> anyhow::Result<Row> {
    let (values, k, mut largest) = (&inputs.values, inputs.k(), SparseVec::default());
    inputs.measure("topk", &[bytes(values)], None, || {
        top_k_into(values, k, &mut largest)?;
        ensure!(black_box(&largest).nnz() <= k, "more than k entries");
        Ok(())
    })
}

fn merge_two(inputs: &Inputs) -> anyhow::Result<Row> {
    let Inputs { left, right, .. } = inputs;
    let reads = [left, right].map(|vec| [bytes(vec.indices()), bytes(vec.values())]);
    let memory = Memory::new();
    let sum = merge_in(left, right, &memory)?;
    let entries = sum.nnz();
    memory.put(sum);
    inputs.measure("merge", reads.as_flattened(), Some(entries), || {
        memory.put(black_box(merge_in(left, right, &memory)?));
        Ok(())
    })
}

fn scatter(inputs: &Inputs) -> anyhow::Result<Row> {
    let left = &inputs.left;
    let mut dense = vec![0.0; inputs.values.len()];
    let reads = [bytes(left.indices()), bytes(left.values())];
    inputs.measure("scatter", &reads, Some(left.nnz()), || {
        scatter_add(&mut dense, left)?;
        black_box(&dense);
        Ok(())
    })
}

fn encode(inputs: &Inputs) -> anyhow::Result<Row> {
    let (dim, indices) = (inputs.args.dim, inputs.left.indices());
    let mut coded = Vec::with_capacity(codec::encoded_len(dim, indices, 0));
    let row = inputs.measure("encode", &[bytes(indices)], Some(indices.len()), || {
        coded.clear();
        black_box(codec::encode(dim, indices, 0, &mut coded));
        Ok(())
    })?;
    Ok(Row { code: Some(Code::new(&row, indices.len(), coded.len())), ..row })
}

fn decode(inputs: &Inputs) -> anyhow::Result<Row> {
    let (dim, indices) = (inputs.args.dim, inputs.left.indices());
    let (mut coded, mut found) = (Vec::new(), Vec::with_capacity(indices.len()));
    codec::encode(dim, indices, 0, &mut coded);
    let row = inputs.measure("decode", &[&coded], Some(indices.len()), || {
        found.clear();
        Ok(codec::decode(&coded, dim, indices.len(), 0, &mut found)?)
    })?;
    ensure!(found == indices, "the indices do not survive their code");
    Ok(Row { code: Some(Code::new(&row, indices.len(), coded.len())), ..row })
}

impl Code {
    fn new(row: &Row, indices: usize, coded: usize) -> Self {
        // log2 of the number of supports, factor by factor.
        let factor = |i: usize| ((row.dim - i as u64) as f64 / (indices - i) as f64).log2();
        Self {
            bits_per_index: 8.0 * coded as f64 / indices as f64,
            entropy_bits: (0..indices).map(factor).sum::<f64>() / indices as f64,
            million_per_s: indices as f64 / row.median_ms / 1e3,
        }
    }
}

/// As the second phase of `dsar_qsgd8` does by default.
fn quantizer() -> anyhow::Result<Qsgd> {
    Ok(Qsgd::new(8, 512, Norm::Max)?)
}

const SEED: Seed = Seed { seed: 1, step: 0, rank: 0 };

fn quantize(inputs: &Inputs) -> anyhow::Result<Row> {
    let (quantizer, values) = (quantizer()?, &inputs.values);
    let mut coded = Vec::with_capacity(quantizer.encoded_len(values.len()));
    inputs.measure("quantize", &[bytes(values)], Some(values.len()), || {
        coded.clear();
        quantizer.quantize(values, SEED, &mut coded)?;
        black_box(&coded);
        Ok(())
    })
}

fn dequantize(inputs: &Inputs) -> anyhow::Result<Row> {
    let (quantizer, mut coded) = (quantizer()?, Vec::new());
    quantizer.quantize(&inputs.values, SEED, &mut coded)?;
    let mut values = vec![0.0; inputs.values.len()];
    inputs.measure("dequantize", &[&coded], Some(values.len()), || {
        quantizer.dequantize(&coded, &mut values)?;
        black_box(&values);
        Ok(())
    })
}

const HEADER: [&str; 8] =
    ["kernel", "ms", "read, ms", "ratio", "GB/s", "ns an entry", "bits an index", "entropy"];

fn render(rows: &[Row]) -> String {
    let cells = |row: &Row| {
        [
            row.kernel.clone(),
            format!("{:.3}", row.median_ms),
            format!("{:.3}", row.read_ms),
            format!("{:.2}", row.ratio),
            format!("{:.2}", row.gb_per_s),
            row.ns_per_entry.map_or("-".into(), |ns| format!("{ns:.2}")),
            row.code.as_ref().map_or("-".into(), |code| format!("{:.2}", code.bits_per_index)),
            row.code.as_ref().map_or("-".into(), |code| format!("{:.2}", code.entropy_bits)),
        ]
    };
    let table = table::ruled(1, HEADER, rows.iter().map(cells));
    let Some(Row { dim, density, .. }) = rows.first() else { return String::new() };
    format!(
        "{table}\n{dim} values, a density of {density}. One thread; medians. `ratio` compares with `read`: reading once, in \
         the same run, what the kernel reads; for `fused` and `feedback`, with adding the gradient alone; for `feedback_momentum`, with \
         adding it to the velocity, and that to the residual."
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_read_sees_every_byte() {
        for at in 0..21 {
            let mut bytes = [0; 21];
            bytes[at] = 4;
            assert_ne!(read(&bytes), 0, "{at}");
        }
    }
}
