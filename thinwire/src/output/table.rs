use comfy_table::{Cell, CellAlignment, ContentArrangement, Table};
use comfy_table::{LineStyle, TableStyle};

use crate::train::Outcome;

const HEADER: [&str; 12] = [
    "\ntask",
    "\nalgorithm",
    "\ndensity",
    "test\naccuracy",
    "bytes per\nworker, step",
    "\nfewer",
    "compute\ns",
    "select\ns",
    "communi-\ncate s",
    "update\ns",
    "wall\ns",
    "speed-\nup",
];

const STYLE: TableStyle = TableStyle::new().top_border(RULE).header_separator(RULE).bottom_border(RULE);
const RULE: LineStyle = LineStyle::none().fill('─').junction('─');

/// The outcomes, a line each, with what the columns mean.
pub(super) fn render(outcomes: &[Outcome]) -> String {
    let table = ruled(2, HEADER, outcomes.iter().map(|outcome| row(outcome, baseline(outcomes, outcome))));
    let workers = outcomes.first().map_or(0, |outcome| outcome.workers);
    format!(
        "{table}\n\
         {workers} workers. Bytes: what a worker sends at a step, with headers, once the density's warm-up is over.\n\
         Times: seconds of the whole run, on average over the workers; communicate includes waiting for others.\n\
         `fewer` (bytes) and `speed-up` (wall time) compare with the first dense run of the task."
    )
}

/// A table between rules whose first columns are words, to the left, and the others numbers, to the right.
pub(crate) fn ruled<const N: usize>(
    words: usize,
    header: [&str; N],
    rows: impl IntoIterator<Item = [String; N]>,
) -> Table {
    let align = |column| if column < words { CellAlignment::Left } else { CellAlignment::Right };
    let cell = |(column, text): (usize, String)| Cell::new(text).set_alignment(align(column));
    let cells = |texts: [String; N]| texts.into_iter().enumerate().map(cell).collect::<Vec<_>>();
    let mut table = Table::new();
    table.load_style(STYLE).set_content_arrangement(ContentArrangement::Disabled);
    table.set_header(cells(header.map(str::to_owned)));
    for row in rows {
        table.add_row(cells(row));
    }
    table
}

/// The dense run that another run of the same task is compared with.
fn baseline<'a>(outcomes: &'a [Outcome], outcome: &Outcome) -> Option<&'a Outcome> {
    outcomes.iter().find(|other| other.is_dense && other.task == outcome.task)
}

fn row(outcome: &Outcome, baseline: Option<&Outcome>) -> [String; 12] {
    let seconds = |seconds: f64| format!("{seconds:.2}");
    let fewer = baseline.map(|dense| dense.bytes_per_worker_step / outcome.bytes_per_worker_step);
    // A world of one sends nothing.
    let fewer = fewer.filter(|ratio| ratio.is_finite());
    [
        outcome.task.into(),
        outcome.algorithm.into(),
        percent(outcome.density, 3),
        outcome.accuracy.map_or("-".into(), |accuracy| format!("{:.2} %", 100.0 * accuracy)),
        bytes(outcome.bytes_per_worker_step),
        fewer.map_or("-".into(), |ratio| format!("{ratio:.1}x")),
        seconds(outcome.compute_s),
        seconds(outcome.select_s),
        seconds(outcome.communicate_s),
        seconds(outcome.update_s),
        seconds(outcome.wall_s),
        outcome.speedup_over_dense.map_or("-".into(), |ratio| format!("{ratio:.2}x")),
    ]
}

/// A share in per cent, with so many significant digits and no zeros at the end.
fn percent(share: f64, digits: usize) -> String {
    let percent = 100.0 * share;
    let whole = if percent >= 1.0 { percent.log10() as usize + 1 } else { 0 };
    let text = format!("{percent:.*}", digits.saturating_sub(whole));
    let text = if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { &text };
    format!("{text} %")
}

/// A number of bytes in the unit that keeps it short.
pub(crate) fn bytes(bytes: f64) -> String {
    match bytes {
        1e6.. => format!("{:.2} MB", bytes / 1e6),
        1e3.. => format!("{:.1} kB", bytes / 1e3),
        _ => format!("{bytes:.0} B"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(algorithm: &'static str, is_dense: bool, bytes: f64) -> Outcome {
        Outcome {
            task: "mnist",
            algorithm,
            density: if is_dense { 1.0 } else { 0.01 },
            workers: 4,
            accuracy: Some(0.9655),
            bytes_per_worker_step: bytes,
            bytes_per_worker: bytes,
            wall_s: 2.0,
            compute_s: 1.0,
            select_s: 0.25,
            communicate_s: 0.5,
            update_s: 0.25,
            speedup_over_dense: Some(1.5),
            epochs: 1,
            steps: 1,
            loss: 0.1,
            parameters_hash: "0".into(),
            predictions_hash: None,
            is_dense,
            curve: Default::default(),
        }
    }

    #[test]
    fn a_table_has_a_line_for_each_run() {
        let text = render(&[outcome("dense", true, 3_215_000.0), outcome("gtopk", false, 85_720.0)]);
        let line = |name: &str| text.lines().find(|line| line.contains(name)).unwrap().to_owned();
        for part in ["100 %", "96.55 %", "3.21 MB", "1.0x", "1.50x"] {
            assert!(line("dense ").contains(part), "{part}: {text}");
        }
        for part in ["1 %", "85.7 kB", "37.5x"] {
            assert!(line("gtopk").contains(part), "{part}: {text}");
        }
    }

    #[test]
    fn numbers_are_short() {
        let shown = |share| percent(share, 3);
        assert_eq!([1.0, 0.25, 0.01, 0.001, 0.01382].map(shown), ["100 %", "25 %", "1 %", "0.1 %", "1.38 %"]);
        assert_eq!([0.0, 999.0, 1000.0, 2.5e6].map(bytes), ["0 B", "999 B", "1.0 kB", "2.50 MB"]);
    }

    #[test]
    fn what_cannot_be_compared_is_a_dash() {
        let alone = Outcome { speedup_over_dense: None, ..outcome("gtopk", false, 0.0) };
        let row = row(&alone, baseline(std::slice::from_ref(&alone), &alone));
        assert_eq!((&row[5][..], &row[11][..]), ("-", "-"));
    }
}
