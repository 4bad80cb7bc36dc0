//! `thinwire bench allreduce`.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use std::process::{Command, Output, Stdio};

use common::{folder, free_port, member, names, stderr, stdout, thinwire};
use serde_json::Value;

const DEFAULT: [&str; 7] = [
    "dense_ring",
    "dense_recursive_doubling",
    "ssar_recursive_doubling",
    "ssar_split_allgather",
    "dsar_split_allgather",
    "topk_allgather",
    "gtopk_butterfly",
];

fn bench(options: &[&str]) -> Output {
    let folder = folder();
    let output = thinwire(folder.path()).args(["bench", "allreduce"]).args(options).output().unwrap();
    assert!(names(folder.path()).is_empty());
    output
}

/// The JSON objects of a successful run that says nothing else.
fn rows(output: &Output) -> Vec<Value> {
    assert!(output.status.success(), "{}", stderr(output));
    assert_eq!(stderr(output), "");
    stdout(output).lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn algorithms(rows: &[Value]) -> Vec<&str> {
    rows.iter().map(|row| row["algorithm"].as_str().unwrap()).collect()
}

/// What every rank sends and receives in a dense ring: 2 (P-1) messages of N/P values, and the header alone that
/// checks the call. `dim` is a multiple of `ranks`.
fn dense_ring_bytes(ranks: u64, dim: u64) -> u64 {
    const HEADER: u64 = 32;
    if ranks == 1 { 0 } else { 2 * (ranks - 1) * (HEADER + 4 * dim / ranks) + HEADER }
}

#[test]
fn each_algorithm_has_a_line_with_its_times_and_bytes() {
    for ranks in [1, 3, 4] {
        let size = ranks.to_string();
        let output = bench(&[
            "--transport=local",
            "--json",
            "--dim=12_k",
            "--density=0.05",
            "--iterations=3",
            "--ranks",
            &size,
        ]);
        let rows = rows(&output);
        assert_eq!(algorithms(&rows), DEFAULT);
        let number = |row: &Value, key: &str| row[key].as_f64().unwrap();
        for row in &rows {
            let keys: Vec<&str> = row.as_object().unwrap().keys().map(String::as_str).collect();
            let mut expected = [
                "algorithm",
                "ranks",
                "dim",
                "nnz",
                "median_ms",
                "min_ms",
                "max_ms",
                "bytes_sent_max",
                "bytes_received_max",
                "stream_mbps",
                "rounds",
                "lower_bound_ms",
            ];
            expected.sort_unstable();
            assert_eq!(keys, expected);
            assert!(row["stream_mbps"].is_null());
            let bound = number(row, "lower_bound_ms");
            assert!((bound > 0.0) == (ranks > 1) && bound.is_finite() && row["rounds"].is_u64(), "{row}");
            assert_eq!(
                (&row["ranks"], &row["dim"], &row["nnz"]),
                (&ranks.into(), &12_000.into(), &600.into())
            );
            let [min, median, max] = ["min_ms", "median_ms", "max_ms"].map(|key| number(row, key));
            assert!(0.0 < min && min <= median && median <= max && max < 60_000.0, "{row}");
        }
        for key in ["bytes_sent_max", "bytes_received_max"] {
            assert_eq!(rows[0][key], dense_ring_bytes(ranks, 12_000), "P = {ranks}");
            let fewer = |sparse: &Value| number(sparse, key) < number(&rows[0], key);
            assert!(ranks == 1 || rows[2..].iter().all(fewer), "{rows:?}");
        }
    }
}

#[test]
fn every_algorithm_gives_what_it_must_at_any_density() {
    const ALL: &str = "dense,dense_ring,dense_recursive_doubling,rabenseifner,topk,topk_allgather,\
                       ssar_recursive_doubling,ssar_split_allgather,ssar_ring,dsar_split_allgather,dsar_quantized,\
                       dsar_qsgd8,dsar_qsgd4,dsar_qsgd2,gtopk,gtopk_butterfly,gtopk_tree,gtopk_exact,\
                       oktopk,spardl";
    for (ranks, dim, density) in [
        ("3", "1", "1"),
        ("5", "5000", "0.0001"),
        ("6", "5000", "0.02"),
        ("3", "3001", "0.7"),
        ("2", "99", "1"),
    ] {
        let output = bench(&[
            "--transport=local",
            "--json",
            "--iterations=1",
            "--algorithm",
            ALL,
            "--ranks",
            ranks,
            "--dim",
            dim,
            "--density",
            density,
        ]);
        assert_eq!(algorithms(&rows(&output)), ALL.split(',').collect::<Vec<_>>());
    }
}

#[test]
fn processes_over_tcp_end_with_a_table() {
    let given = ["--algorithm", "topk_allgather", "--algorithm", "dense_ring,gtopk_tree"];
    let options = [&["--ranks", "3", "--dim", "30k", "--iterations", "2"], &given[..]].concat();
    let output = bench(&options);
    assert!(output.status.success(), "{}", stderr(&output));
    assert_eq!(stderr(&output), "");
    let text = stdout(&output);
    let line = |name: &str| text.lines().find(|line| line.trim_start().starts_with(name)).unwrap().to_owned();
    assert!(line("dense_ring").contains("160.2 kB") && line("dense_ring").contains("1.00x"), "{text}");
    assert!(line("topk_allgather").contains('x') && line("gtopk_tree").contains('x'), "{text}");
    assert!(text.contains("3 ranks, each with 300 of 30000 values."), "{text}");
    assert!(text.contains("compares with dense_ring"), "{text}");
}

#[test]
fn a_world_of_the_environment_is_joined_and_rank_0_speaks() {
    let folder = folder();
    let port = free_port();
    let options = ["bench", "allreduce", "--dim=3k", "--iterations=2", "--json"];
    let start = |i| {
        let mut command = member(folder.path(), i, 3, port);
        command.args(options).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    };
    let outputs = [2, 0, 1].map(start).map(|child| child.wait_with_output().unwrap());
    let [of_rank_2, of_rank_0, of_rank_1] = outputs.each_ref().map(rows);
    assert!(of_rank_1.is_empty() && of_rank_2.is_empty());
    assert_eq!(algorithms(&of_rank_0), DEFAULT);
    assert!(of_rank_0.iter().all(|row| row["ranks"] == 3 && row["stream_mbps"].as_f64().unwrap() > 0.0));
}

#[test]
fn each_kernel_has_a_line_with_its_time_and_a_read_s() {
    let folder = folder();
    let run = |options: &[&str]| {
        thinwire(folder.path())
            .args(["bench", "kernels", "--dim=100k", "--iterations=3"])
            .args(options)
            .output()
            .unwrap()
    };
    let rows = rows(&run(&["--json", "--density=0.01"]));
    let kernels: Vec<_> = rows.iter().map(|row| row["kernel"].as_str().unwrap()).collect();
    assert_eq!(
        kernels,
        [
            "topk",
            "fused",
            "feedback",
            "feedback_momentum",
            "merge",
            "scatter",
            "encode",
            "decode",
            "quantize",
            "dequantize"
        ]
    );
    for row in &rows {
        assert_eq!((&row["dim"], &row["density"]), (&100_000.into(), &0.01.into()));
        let [time, read, ratio] = ["median_ms", "read_ms", "ratio"].map(|key| row[key].as_f64().unwrap());
        assert!(time > 0.0 && read > 0.0 && (ratio / (time / read) - 1.0).abs() < 1e-6, "{row}");
    }
    for row in &rows[6..8] {
        let [bits, entropy] = ["bits_per_index", "entropy_bits"].map(|key| row[key].as_f64().unwrap());
        assert!(
            entropy < bits && bits < 1.1 * entropy && row["million_per_s"].as_f64().unwrap() > 0.0,
            "{row}"
        );
    }
    let text = stdout(&run(&["--peers"]));
    assert!(text.contains("select_nth_unstable"), "{text}");
    assert!(kernels.iter().all(|kernel| text.contains(kernel)) && text.contains("100000 values"), "{text}");
}

#[test]
fn a_sum_beside_a_computation_has_a_line_with_all_times() {
    let folder = folder();
    for transport in ["local", "tcp"] {
        let options = ["--dim=20k", "--iterations=3", "--ranks=2", "--json", "--transport", transport];
        let output = thinwire(folder.path()).args(["bench", "overlap"]).args(options).output().unwrap();
        let rows = rows(&output);
        assert_eq!(algorithms(&rows), ["dense_ring", "ssar_split_allgather", "gtopk_butterfly"]);
        for row in &rows {
            assert_eq!((&row["ranks"], &row["dim"], &row["nnz"]), (&2.into(), &20_000.into(), &200.into()));
            let [alone, compute, both, ratio] =
                ["communicate_ms", "compute_ms", "both_ms", "ratio"].map(|key| row[key].as_f64().unwrap());
            assert!(
                alone > 0.0 && compute > 0.0 && (ratio / (both / alone.max(compute)) - 1.0).abs() < 1e-6,
                "{row}"
            );
        }
    }
}

fn refuses(command: &mut Command, says: &[&str]) {
    let output = command.output().unwrap();
    let said = stderr(&output);
    assert_eq!(output.status.code(), Some(2), "{command:?}: {said}");
    assert!(says.iter().all(|part| said.contains(part)), "{command:?} does not say {says:?}: {said}");
    assert!(!said.contains("panicked"), "{said}");
    assert_eq!(stdout(&output), "");
}

#[test]
fn options_that_make_no_sense_are_refused() {
    let folder = folder();
    for (options, says) in [
        (&["--algorithm", "dense,topq"][..], &["unknown algorithm", "topq", "gtopk_tree"][..]),
        (&["--density", "0"], &["above 0 and at most 1"]),
        (&["--density", "1.1"], &["above 0 and at most 1"]),
        (&["--density", "NaN"], &["above 0 and at most 1"]),
        (&["--ranks", "0"], &["at least 1 rank"]),
        (&["--ranks", "257"], &["more than 256 ranks"]),
        (&["--dim", "0"], &["at least 1 value"]),
        (&["--dim", "5G"], &["at most 2^32"]),
        (&["--dim", "1.5"], &["whole number"]),
        (&["--iterations", "0"], &["at least 1 iteration"]),
        (&["--transport", "udp"], &["tcp", "local"]),
        (&["--peers", "--transport", "local"], &["--peers measures MPI", "leave --transport local out"]),
        (&["--peers", "--dim", "3G"], &["--peers a vector has at most 2147483647"]),
    ] {
        refuses(thinwire(folder.path()).args(["bench", "allreduce"]).args(options), says);
    }
    refuses(thinwire(folder.path()).args(["bench", "broadcast"]), &["broadcast"]);
    for (option, says) in
        [("--density=0", "above 0"), ("--dim=0", "at least 1"), ("--iterations=0", "at least 1")]
    {
        refuses(thinwire(folder.path()).args(["bench", "kernels", option]), &[says]);
    }
    let options = |options: &[&str]| {
        let mut command = member(folder.path(), 0, 4, 1);
        command.args(["bench", "allreduce"]).args(options);
        command
    };
    refuses(&mut options(&["--ranks", "3"]), &["--ranks 3 contradicts WORLD_SIZE=4"]);
    refuses(&mut options(&["--transport", "local"]), &["--transport local"]);
}

#[cfg(not(feature = "mpi"))]
#[test]
fn without_mpi_there_are_no_peers() {
    let folder = folder();
    let mut command = thinwire(folder.path());
    refuses(command.args(["bench", "allreduce", "--peers"]), &["built without MPI", "--features mpi"]);
}

#[test]
fn ranks_with_other_options_are_refused() {
    let folder = folder();
    let port = free_port();
    let start = |rank: usize, seed: &str| {
        let mut command = member(folder.path(), rank, 2, port);
        command.args(["bench", "allreduce", "--dim", "100", "--seed", seed]);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    };
    let other = start(1, "2").spawn().unwrap();
    refuses(&mut start(0, "1"), &["different options", "seed 1", "rank 1 with", "seed 2"]);
    assert_eq!(other.wait_with_output().unwrap().status.code(), Some(2));
}

#[test]
fn a_peer_that_never_appears_is_named_with_the_time() {
    let folder = folder();
    let mut first = member(folder.path(), 0, 2, free_port());
    first.args(["bench", "allreduce", "--timeout", "0.5"]);
    refuses(&mut first, &["rank 1 of 2 did not appear within 0.5 s"]);
}
