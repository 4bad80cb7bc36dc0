//! The program in a world that mpirun has started.
#![cfg(feature = "mpi")]
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use std::ffi::OsString;
use std::path::Path;
use std::process::{Command, Output};

use common::{folder, names, results, stderr, stdout, train};

fn program() -> OsString {
    std::env::var_os("MPIRUN").unwrap_or_else(|| "mpirun".into())
}

/// Ready to start so many ranks.
fn started(folder: &Path, ranks: &str, arguments: &[&str]) -> Command {
    let mut command = Command::new(program());
    command.env("OMPI_ALLOW_RUN_AS_ROOT", "1").env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
    command.env("OMPI_MCA_rmaps_base_oversubscribe", "1").current_dir(folder);
    command.args(["-n", ranks, env!("CARGO_BIN_EXE_thinwire")]).args(arguments);
    command
}

fn mpirun(folder: &Path, ranks: &str, arguments: &[&str]) -> Output {
    started(folder, ranks, arguments).output().unwrap()
}

#[test]
fn a_training_over_mpi_ends_with_the_parameters_of_one_over_tcp() {
    let folder = folder();
    let options = ["--task", "spam", "--epochs", "1", "--algorithm", "ssar_split_allgather"];
    let output = mpirun(
        folder.path(),
        "3",
        &[&["train", "--transport", "mpi", "--json", "mpi.json"], &options[..]].concat(),
    );
    assert!(output.status.success(), "{}", stderr(&output));
    assert_eq!(names(folder.path()), ["mpi.json", "thinwire-train.svg"]);
    let over_mpi = results(&folder.path().join("mpi.json"));
    let over_tcp = train(folder.path(), &[&["--workers", "3"], &options[..]].concat());
    assert_eq!(over_mpi[0]["workers"], 3);
    assert_eq!(over_mpi[0]["parameters_hash"], over_tcp[0]["parameters_hash"]);
    assert_eq!(over_mpi[0]["bytes_per_worker_step"], over_tcp[0]["bytes_per_worker_step"]);
}

#[test]
fn a_benchmark_runs_over_mpi() {
    let folder = folder();
    let options = ["bench", "allreduce", "--transport", "mpi", "--dim", "10k", "--iterations", "3", "--json"];
    let output = mpirun(folder.path(), "4", &options);
    assert!(output.status.success(), "{}", stderr(&output));
    let lines = stdout(&output);
    assert_eq!(lines.lines().count(), 7, "{lines}");
    for line in lines.lines() {
        let row: serde_json::Value = serde_json::from_str(line).unwrap();
        assert_eq!(row["ranks"], 4);
    }
}

#[test]
fn another_number_of_ranks_than_mpirun_has_started_is_a_mistake() {
    let folder = folder();
    for choice in [["--transport", "mpi"], ["--peers", "--transport=tcp"]] {
        let options = [&["bench", "allreduce", "--ranks", "3"], &choice[..]].concat();
        let output = mpirun(folder.path(), "2", &options);
        assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
        assert!(
            stderr(&output).contains("--ranks 3 contradicts mpirun, which has started 2"),
            "{}",
            stderr(&output)
        );
    }
}

/// A short benchmark with MPI's own collectives beside two of ours.
const PEERS: [&str; 8] = [
    "bench",
    "allreduce",
    "--peers",
    "--dim=10k",
    "--density=0.02",
    "--iterations=2",
    "--algorithm=dense_ring,topk_allgather",
    "--transport",
];

fn is_open_mpi(folder: &Path) -> bool {
    let version = Command::new(program()).arg("--version").current_dir(folder).output().unwrap();
    stdout(&version).contains("Open MPI")
}

#[test]
fn peers_are_measured_beside_our_algorithms_over_mpi_and_tcp() {
    let folder = folder();
    for (ranks, transport) in [("1", "mpi"), ("1", "tcp"), ("4", "mpi"), ("4", "tcp")] {
        let output = mpirun(folder.path(), ranks, &[&PEERS[..], &[transport, "--json"]].concat());
        assert!(output.status.success(), "{ranks} over {transport}: {}", stderr(&output));
        let rows: Vec<serde_json::Value> =
            stdout(&output).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let names: Vec<_> = rows.iter().map(|row| row["algorithm"].as_str().unwrap()).collect();
        assert_eq!(names[..3], ["dense_ring", "topk_allgather", "mpi_allreduce_default"]);
        assert_eq!(names.last(), Some(&"mpi_allgatherv_topk"));
        let fixed = [
            "basic_linear",
            "nonoverlapping",
            "recursive_doubling",
            "ring",
            "segmented_ring",
            "rabenseifner",
        ];
        for name in fixed.iter().filter(|_| is_open_mpi(folder.path())) {
            assert!(names.contains(&format!("mpi_allreduce_{name}").as_str()), "{names:?}");
        }
        for row in &rows {
            assert_eq!(row["ranks"].to_string(), ranks);
            let is_peer = row["algorithm"].as_str().unwrap().starts_with("mpi_");
            assert_eq!(row["bytes_sent_max"].is_null(), is_peer, "{row}");
            assert!(row["median_ms"].as_f64().unwrap() > 0.0, "{row}");
        }
    }
}

#[test]
fn a_table_names_the_fastest_peer_and_a_note_says_what_is_missing() {
    let folder = folder();
    if !is_open_mpi(folder.path()) {
        return;
    }
    let mut command = started(folder.path(), "2", &[&PEERS[..], &["tcp"]].concat());
    let output = command.env("OMPI_MCA_coll_tuned_use_dynamic_rules", "0").output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    let text = stdout(&output);
    assert!(text.contains("The fastest MPI_Allreduce (median) is mpi_allreduce_default: "), "{text}");
    assert!(!text.contains("mpi_allreduce_ring"), "{text}");
    let note = "default algorithm only: coll_tuned_use_dynamic_rules is switched off";
    assert_eq!(stderr(&output).matches(note).count(), 1, "{}", stderr(&output));
}

#[test]
fn rank_0_listens_where_master_addr_says() {
    let folder = folder();
    let mut command = started(folder.path(), "2", &[&PEERS[..], &["tcp"]].concat());
    // An address for documentation: no host has it.
    let output = command.env("MASTER_ADDR", "192.0.2.1").output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
    assert!(stderr(&output).contains("rank 0 cannot listen on 192.0.2.1"), "{}", stderr(&output));
}
