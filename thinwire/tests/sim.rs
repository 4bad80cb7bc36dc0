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
        ]);
        command.args(["--jitter=20us", "--stragglers=0.2:5", "--plot=times.svg", "--trace=messages.svg"]);
        let output = command.output().unwrap();
        assert!(output.status.success(), "{}", stderr(&output));
        assert!(stdout(&output).contains("gtopk_exact"));
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
    ] {
        let output = thinwire(folder.path()).args(["sim", option]).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{option}: {}", stderr(&output));
        assert!(stderr(&output).contains(says), "{option}: {}", stderr(&output));
        assert!(names(folder.path()).is_empty());
    }
}
