use indicatif::ProgressBar;
use serde::Serialize;

use crate::error::{Error, When as _};
use crate::output::{print, table};

/// What was measured of one algorithm: a line of the output.
#[derive(Serialize, Clone, Debug)]
pub(super) struct Row {
    pub(super) algorithm: String,
    pub(super) ranks: usize,
    pub(super) dim: u64,
    /// Entries of one rank's input.
    pub(super) nnz: usize,
    /// Of the iterations' times, each that of the slowest rank.
    pub(super) median_ms: f64,
    pub(super) min_ms: f64,
    pub(super) max_ms: f64,
    /// What the rank that sends most sends for one sum, headers included; `None` where that is not known.
    pub(super) bytes_sent_max: Option<u64>,
    pub(super) bytes_received_max: Option<u64>,
    /// The goodput of a plain TCP stream between two of the ranks, in 10^6 bits per second; `None` where there is none.
    pub(super) stream_mbps: Option<f64>,
    /// Messages that wait for each other, by the algorithm's formula.
    pub(super) rounds: Option<u32>,
    /// What no algorithm with the same result can undercut on these links.
    pub(super) lower_bound_ms: Option<f64>,
    #[serde(skip)]
    pub(super) is_dense: bool,
    /// The result is the whole sum, and not rounded.
    #[serde(skip)]
    pub(super) is_exact: bool,
    /// Another library's.
    #[serde(skip)]
    pub(super) is_peer: bool,
}

/// Shows the rows: as JSON at once, as a table at the end.
pub(super) struct Report {
    form: Form,
    rows: Vec<Row>,
    /// Draws nothing where standard error is no terminal.
    progress: ProgressBar,
}

#[derive(Clone, Copy)]
enum Form {
    Silent,
    Json,
    Table,
}

impl Report {
    /// For the rank that speaks for all.
    pub(super) fn shown(json: bool) -> Self {
        let form = if json { Form::Json } else { Form::Table };
        Self { form, rows: Vec::new(), progress: ProgressBar::new_spinner() }
    }

    /// For the other ranks.
    pub(super) fn silent() -> Self {
        Self { form: Form::Silent, rows: Vec::new(), progress: ProgressBar::hidden() }
    }

    /// Says what is measured now.
    pub(super) fn progress(&self, what: String) {
        self.progress.set_message(what);
    }

    pub(super) fn add(&mut self, row: Row) -> Result<(), Error> {
        match self.form {
            Form::Silent => {}
            Form::Json => {
                let line = serde_json::to_string(&row).run()?;
                self.progress.suspend(|| print(&line));
            }
            Form::Table => self.rows.push(row),
        }
        Ok(())
    }

    /// Ends with what the table does not show, if anything.
    pub(super) fn end(self, note: Option<&str>) {
        self.progress.finish_and_clear();
        if !self.rows.is_empty() {
            print(&render(&self.rows));
        }
        if let Some(note) = note
            && !matches!(self.form, Form::Silent)
        {
            eprintln!("thinwire: note: {note}");
        }
    }
}

const HEADER: [&str; 9] = [
    "\nalgorithm",
    "median\nms",
    "min\nms",
    "max\nms",
    "bound\nms",
    "\nrounds",
    "bytes\nsent",
    "bytes\nreceived",
    "speed-\nup",
];

fn render(rows: &[Row]) -> String {
    let dense = rows.iter().find(|row| row.is_dense);
    let table = table::ruled(1, HEADER, rows.iter().map(|row| cells(row, dense)));
    let mut text = table.to_string();
    if let Some(Row { ranks, dim, nnz, .. }) = rows.first() {
        text.push_str(&format!(
            "\n{ranks} ranks, each with {nnz} of {dim} values.\n\
             Times of a sum: the slowest rank's. Bytes of a sum, with headers: those of the rank with the most.\n\
             Bound: the least that the links allow any algorithm with the same result."
        ));
    }
    if let Some(mbps) = rows.first().and_then(|row| row.stream_mbps) {
        text.push_str(&format!("\nA plain TCP stream from rank 1 to rank 0: {mbps:.1} Mbit/s of payload."));
    }
    if let Some(Row { algorithm, .. }) = dense {
        text.push_str(&format!("\n`speed-up` (median) compares with {algorithm}."));
    }
    text.push_str(&compare_with_peers(rows).unwrap_or_default());
    text
}

/// Which of another library's dense sums is the fastest, and how the fastest of this project's that has the same result
/// compares.
fn compare_with_peers(rows: &[Row]) -> Option<String> {
    let fastest = |is_one: &dyn Fn(&Row) -> bool| {
        rows.iter().filter(|row| is_one(row)).min_by(|a, b| a.median_ms.total_cmp(&b.median_ms))
    };
    let peer = fastest(&|row| row.is_peer && row.is_dense)?;
    let mut text =
        format!("\nThe fastest MPI_Allreduce (median) is {}: {:.3} ms.", peer.algorithm, peer.median_ms);
    if let Some(own) = fastest(&|row| !row.is_peer && row.is_exact) {
        let ratio = peer.median_ms / own.median_ms;
        text.push_str(&format!(" The fastest of thinwire's exact sums, {}: {ratio:.2}x.", own.algorithm));
    }
    Some(text)
}

fn cells(row: &Row, dense: Option<&Row>) -> [String; 9] {
    let bytes = |bytes: Option<u64>| bytes.map_or("-".into(), |bytes| table::bytes(bytes as f64));
    let ms = |ms: f64| format!("{ms:.3}");
    let ratio = dense.map(|dense| dense.median_ms / row.median_ms).filter(|ratio| ratio.is_finite());
    [
        row.algorithm.clone(),
        ms(row.median_ms),
        ms(row.min_ms),
        ms(row.max_ms),
        row.lower_bound_ms.map_or("-".into(), ms),
        row.rounds.map_or("-".into(), |rounds| rounds.to_string()),
        bytes(row.bytes_sent_max),
        bytes(row.bytes_received_max),
        ratio.map_or("-".into(), |ratio| format!("{ratio:.2}x")),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(algorithm: &str, is_dense: bool, median_ms: f64) -> Row {
        Row {
            algorithm: algorithm.into(),
            ranks: 4,
            dim: 1000,
            nnz: 10,
            median_ms,
            min_ms: 0.5,
            max_ms: 20.0,
            bytes_sent_max: Some(6000),
            bytes_received_max: None,
            stream_mbps: Some(950.0),
            rounds: Some(6),
            lower_bound_ms: Some(0.25),
            is_dense,
            is_exact: true,
            is_peer: false,
        }
    }

    #[test]
    fn a_table_compares_with_the_first_dense_algorithm() {
        let text = render(&[row("topk", false, 2.0), row("dense", true, 8.0), row("ring", true, 1.0)]);
        let line = |name: &str| text.lines().find(|line| line.contains(name)).unwrap().to_owned();
        for part in ["2.000", "0.500", "20.000", "0.250", " 6 ", "6.0 kB", " - ", "4.00x"] {
            assert!(line("topk").contains(part), "{part}: {text}");
        }
        assert!(line("ring").contains("8.00x") && text.contains("compares with dense."), "{text}");
        assert!(text.contains("4 ranks, each with 10 of 1000 values."), "{text}");
        assert!(text.contains("rank 0: 950.0 Mbit/s"), "{text}");
    }

    #[test]
    fn without_a_dense_algorithm_nothing_is_compared() {
        let text = render(&[row("topk", false, 2.0)]);
        assert!(!text.contains("compares"), "{text}");
        assert!(text.lines().any(|line| line.contains("topk") && line.trim_end().ends_with('-')), "{text}");
    }

    #[test]
    fn the_fastest_peer_is_compared_with_the_fastest_exact_sum() {
        let peer = |row: Row| Row { is_peer: true, ..row };
        let mut rows = vec![
            row("ring", true, 4.0),
            row("sparse", false, 2.0),
            Row { is_exact: false, ..row("gtopk", false, 1.0) },
            peer(row("mpi_slow", true, 9.0)),
            peer(row("mpi_fast", true, 5.0)),
            peer(row("mpi_topk", false, 3.0)),
        ];
        let text = render(&rows);
        assert!(text.contains("The fastest MPI_Allreduce (median) is mpi_fast: 5.000 ms."), "{text}");
        assert!(text.ends_with("exact sums, sparse: 2.50x."), "{text}");
        rows.truncate(3);
        assert!(!render(&rows).contains("MPI_Allreduce"));
    }
}
