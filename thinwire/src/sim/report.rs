use serde::Serialize;

use crate::cli::SimArgs;
use crate::output::table;

/// What came of one simulation: a line of the output.
#[derive(Serialize, Clone, Debug)]
pub(super) struct Row {
    pub(super) algorithm: String,
    pub(super) ranks: usize,
    pub(super) dim: u64,
    /// Entries of one rank's input.
    pub(super) nnz: u64,
    pub(super) virtual_ms: f64,
    pub(super) formula_ms: f64,
    pub(super) lower_bound_ms: f64,
    /// Of the rank that sends or receives the most.
    pub(super) bytes_max: u64,
    pub(super) rounds: u32,
    /// How many times smaller the simulated vectors were.
    pub(super) scale: f64,
}

const HEADER: [&str; 8] = [
    "\nalgorithm",
    "\nranks",
    "simulated\nms",
    "formula\nms",
    "at least\nms",
    "\nbytes",
    "\nrounds",
    "\nscale",
];

pub(super) fn render(rows: &[Row], args: &SimArgs) -> String {
    let table = table::ruled(1, HEADER, rows.iter().map(cells));
    let mut text = table.to_string();
    if let Some(Row { dim, nnz, .. }) = rows.first() {
        let (alpha, rate) = (args.alpha, 8e-9 * args.rate.bytes_per_second());
        text.push_str(&format!(
            "\nEach rank has {nnz} of {dim} values; links with a latency of {alpha:?} and {rate} Gbit/s.\n\
             Virtual time: that of the network alone, computing costs nothing. Bytes: those of the rank with the most, with headers.\n\
             `at least`: what no algorithm with the same result can undercut."
        ));
    }
    if let Some(size) = args.groups {
        let (alpha, rate) = (args.inner_alpha, 8e-9 * args.inner_rate.bytes_per_second());
        text.push_str(&format!(
            "\nGroups of {size} ranks share a link to the others; inside, links with a latency of {alpha:?} and {rate} Gbit/s.\n\
             `formula`: hierarchical, with what is shared one after the other, so at most that; flat, as without groups."
        ));
    }
    if rows.iter().any(|row| row.scale > 1.0) {
        text.push_str(
            "\n`scale`: vectors so many times shorter were simulated, with bytes that take so many times longer.",
        );
    }
    text
}

fn cells(row: &Row) -> [String; 8] {
    let ms = |ms: f64| format!("{ms:.3}");
    [
        row.algorithm.clone(),
        row.ranks.to_string(),
        ms(row.virtual_ms),
        ms(row.formula_ms),
        ms(row.lower_bound_ms),
        table::bytes(row.bytes_max as f64),
        row.rounds.to_string(),
        if row.scale > 1.0 { format!("{:.1}", row.scale) } else { "1".into() },
    ]
}
