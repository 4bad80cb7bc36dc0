//! The program in a world that mpirun has started.
#![cfg(feature = "mpi")]
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use std::path::Path;
use std::process::{Command, Output};

use common::{folder, names, results, stderr, stdout, train};

fn mpirun(folder: &Path, ranks: &str, arguments: &[&str]) -> Output {
    let mut command = Command::new(std::env::var_os("MPIRUN").unwrap_or_else(|| "mpirun".into()));
    command.env("OMPI_ALLOW_RUN_AS_ROOT", "1").env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
    command.env("OMPI_MCA_rmaps_base_oversubscribe", "1").current_dir(folder);
    command.args(["-n", ranks, env!("CARGO_BIN_EXE_thinwire")]).args(arguments).output().unwrap()
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
    let options = ["bench", "allreduce", "--transport", "mpi", "--ranks", "3"];
    let output = mpirun(folder.path(), "2", &options);
    assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
    assert!(
        stderr(&output).contains("--ranks 3 contradicts mpirun, which has started 2"),
        "{}",
        stderr(&output)
    );
}
