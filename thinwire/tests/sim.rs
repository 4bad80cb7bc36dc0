//! `thinwire sim`.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use common::{folder, names, stderr, stdout, thinwire};
use serde_json::Value;

#[test]
fn simulated_times_are_those_of_the_formulas_and_above_their_bounds() {
    let folder = folder();
    let algorithms = "dense_ring,dense_recursive_doubling,ssar_recursive_doubling,topk_allgather,gtopk_tree,gtopk_butterfly";
    let mut command = thinwire(folder.path());
    command.args([
        "sim",
        "--json",
        "--ranks=2,5,16",
        "--dim=100_000",
        "--density=0.01",
        "--algorithm",
        algorithms,
    ]);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    let rows: Vec<Value> = stdout(&output).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(rows.len(), 6 * 3);
    for row in rows {
        let [time, formula, bound] =
            ["virtual_ms", "formula_ms", "lower_bound_ms"].map(|key| row[key].as_f64().unwrap());
        assert!((time / formula - 1.0).abs() < 0.03 && time >= bound, "{row}");
        assert!(row["bytes_max"].as_u64().unwrap() > 0 && row["rounds"].as_u64().unwrap() > 0, "{row}");
    }
}

/// The rows of these simulations.
fn simulate(arguments: &[&str]) -> Vec<Value> {
    let folder = folder();
    let output = thinwire(folder.path()).args(["sim", "--json"]).args(arguments).output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    stdout(&output).lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn number(row: &Value, key: &str) -> f64 {
    row[key].as_f64().unwrap()
}

#[test]
fn an_algorithm_that_knows_of_groups_takes_the_time_of_its_formula_and_less_than_the_flat_one() {
    let common = ["--ranks=8,16", "--dim=100_000", "--density=0.01", "--groups=4"];
    let algorithms = "--algorithm=dense_ring,ssar_split_allgather,ssar_recursive_doubling";
    let bytes_alone =
        ["--alpha=1us", "--rate=10mbit", "--inner-alpha=1us", "--inner-rate=100mbit", algorithms];
    let rows = simulate(&[&common[..], &bytes_alone].concat());
    assert_eq!(rows.len(), 3 * 2 * 2);
    for rows in rows.chunks(4) {
        for (flat, hierarchical) in rows[..2].iter().zip(&rows[2..]) {
            assert_eq!(
                hierarchical["algorithm"],
                format!("hierarchical_{}", flat["algorithm"].as_str().unwrap())
            );
            assert_eq!(hierarchical["ranks"], flat["ranks"]);
            let [flat, time, formula, bound] = [
                number(flat, "virtual_ms"),
                number(hierarchical, "virtual_ms"),
                number(hierarchical, "formula_ms"),
                number(hierarchical, "lower_bound_ms"),
            ];
            assert!(
                (time / formula - 1.0).abs() < 0.03 && time >= bound && time < flat,
                "{hierarchical}, {flat}"
            );
        }
    }
    let with_latency = ["--algorithm=dense_ring,ssar_split_allgather,gtopk_tree,gtopk_butterfly,gtopk_exact"];
    for row in simulate(&[&common[..], &with_latency].concat()) {
        if row["algorithm"].as_str().unwrap().starts_with("hierarchical_") {
            assert!(number(&row, "virtual_ms") < 1.03 * number(&row, "formula_ms"), "{row}");
        }
        assert!(number(&row, "virtual_ms") >= number(&row, "lower_bound_ms"), "{row}");
    }
}

#[test]
fn two_runs_draw_the_same_pictures() {
    let draw = || {
        let folder = folder();
        let mut command = thinwire(folder.path());
        command.args([
            "sim",
            "--ranks=8",
            "--dim=1000",
            "--density=0.1",
            "--algorithm=gtopk_tree,gtopk_exact,oktopk,spardl",
            "--groups=2",
        ]);
        command.args(["--jitter=20us", "--stragglers=0.2:5", "--plot=times.svg", "--trace=messages.svg"]);
        let output = command.output().unwrap();
        assert!(output.status.success(), "{}", stderr(&output));
        assert!(stdout(&output).contains("hierarchical_gtopk_exact"));
        assert_eq!(names(folder.path()), ["messages.svg", "times.svg"]);
        ["messages.svg", "times.svg"].map(|name| std::fs::read_to_string(folder.path().join(name)).unwrap())
    };
    let pictures = draw();
    assert_eq!(pictures, draw());
    assert!(pictures.iter().all(|picture| picture.contains("</svg>")));
}

#[test]
fn options_that_make_no_sense_are_refused() {
    let folder = folder();
    for (option, says) in [
        ("--alpha=50", "50"),
        ("--alpha=-1us", "-1us"),
        ("--rate=0gbit", "0gbit"),
        ("--rate=fast", "fast"),
        ("--ranks=0", "0"),
        ("--density=2", "above 0 and at most 1"),
        ("--stragglers=2", "2"),
        ("--algorithm=topq", "unknown algorithm"),
        ("--plot=.", "directory"),
        ("--groups=0", "0"),
        ("--groups=1", "at least 2 ranks"),
        ("--groups=3", "1024 ranks are no whole number of groups"),
        ("--groups=2048", "1024 ranks are no whole number of groups"),
        ("--inner-alpha=1us", "--groups"),
        ("--inner-rate=1gbit", "--groups"),
    ] {
        let output = thinwire(folder.path()).args(["sim", option]).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{option}: {}", stderr(&output));
        assert!(stderr(&output).contains(says), "{option}: {}", stderr(&output));
        assert!(names(folder.path()).is_empty());
    }
}
