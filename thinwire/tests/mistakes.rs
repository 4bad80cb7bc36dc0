//! What is wrong before anything runs: a clear sentence, exit code 2, and no file left behind.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use std::fs;
use std::net::TcpListener;
use std::path::Path;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use common::{folder, free_port, names, rank, stderr, thinwire};

/// Checks the exit code, what is said, and that the folder holds what it held before.
fn refuses(folder: &Path, command: &mut Command, says: &[&str]) -> Output {
    let before = names(folder);
    let output = command.output().unwrap();
    let said = stderr(&output);
    assert_eq!(output.status.code(), Some(2), "{command:?}: {said}");
    for part in says {
        assert!(said.contains(part), "{command:?} does not say {part:?}: {said}");
    }
    assert!(!said.contains("panicked"), "{said}");
    assert_eq!(names(folder), before, "{command:?}");
    output
}

#[test]
fn options_that_make_no_sense_are_refused() {
    let folder = folder();
    for (options, says) in [
        (
            &["--algorithm", "topq"][..],
            &["unknown algorithm", "topq", "ssar_split_allgather", "gtopk_tree"][..],
        ),
        (&["--density", "0"], &["above 0 and at most 1"]),
        (&["--density", "1.5"], &["above 0 and at most 1"]),
        (&["--density", "NaN"], &["above 0 and at most 1"]),
        (&["--workers", "0"], &["at least 1 worker"]),
        (&["--workers", "x"], &["not a whole number"]),
        (&["--epochs", "0"], &["epochs"]),
        (&["--task", "cifar"], &["mnist", "spam"]),
        (&["--transport", "udp"], &["tcp", "local"]),
        (&["--task", "spam", "--algorithm", "gtopk"], &["gtopk cannot train spam", "summed exactly"]),
        (&["--task", "spam", "--density", "0.1"], &["--density does not apply to spam"]),
        (&["--task", "mnist", "--data", "x"], &["--data is a file for the task spam"]),
        (&["--workers", "4", "extra"], &["unexpected argument"]),
    ] {
        for transport in ["tcp", "local"] {
            let mut command = thinwire(folder.path());
            command.arg("train").args(options);
            if !options.contains(&"--transport") {
                command.args(["--transport", transport]);
            }
            refuses(folder.path(), &mut command, says);
        }
    }
}

#[test]
fn a_missing_or_malformed_data_file_is_named_with_its_line() {
    let folder = folder();
    let lines = |text: &str| -> String { "1 1:1\n0 2:1\n".repeat(10) + text };
    for (name, contents) in [
        ("label", lines("spam 1:1\n")),
        ("feature", lines("1 0:1\n")),
        ("order", lines("1 3:1 2:1\n")),
        ("value", lines("1 3:inf\n")),
        ("large", lines("1 4294967296:1\n")),
        ("classes", lines("3 1:1\n")),
        ("few", "1 1:1\n0 1:1\n".into()),
        ("empty", String::new()),
        ("truncated.gz", "\x1f\u{0}".into()),
    ] {
        fs::write(folder.path().join(name), contents).unwrap();
    }
    fs::write(folder.path().join("truncated.gz"), [0x1f, 0x8b, 8, 0, 0]).unwrap();
    for (file, says) in [
        ("missing", &["cannot read missing", "No such file"][..]),
        (".", &["cannot read ."]),
        ("label", &["label", "line 21", "the label `spam` is not a number"]),
        ("feature", &["line 21", "numbered from 1"]),
        ("order", &["line 21", "feature 2 follows feature 3"]),
        ("value", &["line 21", "not a finite number"]),
        ("large", &["line 21", "`4294967296` is too large"]),
        ("classes", &["classes cannot be used", "its labels are 0, 1, 3"]),
        ("few", &["2 examples", "4 workers"]),
        ("empty", &["it has no rows"]),
        ("truncated.gz", &["cannot decompress truncated.gz"]),
    ] {
        for transport in ["tcp", "local"] {
            let mut command = thinwire(folder.path());
            command.args(["train", "--json", "out.json", "--transport", transport, "--data", file]);
            refuses(folder.path(), &mut command, says);
        }
    }
}

#[test]
fn files_that_cannot_be_written_are_found_before_the_run() {
    let folder = folder();
    fs::create_dir(folder.path().join("directory")).unwrap();
    for (options, says) in [
        (["--json", "missing/out.json"], "cannot write --json missing/out.json"),
        (["--plot", "missing/out.svg"], "cannot write --plot missing/out.svg"),
        (["--plot", "directory"], "it is a directory"),
        (["--json", "thinwire-train.svg"], "the same file"),
    ] {
        for transport in ["tcp", "local"] {
            let mut command = thinwire(folder.path());
            command.args(["train", "--transport", transport]).args(options);
            refuses(folder.path(), &mut command, &[says]);
        }
    }
}

#[test]
fn an_environment_that_contradicts_itself_is_refused() {
    let folder = folder();
    let mut half = thinwire(folder.path());
    refuses(folder.path(), half.arg("train").env("RANK", "1"), &["WORLD_SIZE is not set"]);
    let mut outside = rank(folder.path(), 4, 4, 1);
    refuses(folder.path(), &mut outside, &["RANK", "ranks go from 0 to 3"]);
    let mut other = rank(folder.path(), 0, 4, 1);
    refuses(folder.path(), other.args(["--workers", "3"]), &["--workers 3 contradicts WORLD_SIZE=4"]);
    let mut local = rank(folder.path(), 0, 4, 1);
    refuses(folder.path(), local.args(["--transport", "local"]), &["--transport local"]);
}

#[test]
fn a_port_in_use_is_named() {
    let folder = folder();
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    let mut command = rank(folder.path(), 0, 2, port);
    refuses(folder.path(), &mut command, &["in use", &port.to_string()]);
}

#[test]
fn a_peer_that_never_appears_is_named_with_the_time() {
    let folder = folder();
    let begun = Instant::now();
    let mut first = rank(folder.path(), 0, 2, free_port());
    first.args(["--timeout", "0.5"]);
    refuses(folder.path(), &mut first, &["rank 1 of 2 did not appear within 0.5 s"]);
    let mut second = rank(folder.path(), 1, 2, free_port());
    second.args(["--timeout", "0.5"]);
    refuses(folder.path(), &mut second, &["rank 0 cannot be reached", "0.5 s"]);
    assert!(begun.elapsed() < Duration::from_secs(10));
}

#[test]
fn ranks_with_other_options_or_data_are_refused() {
    let folder = folder();
    fs::write(folder.path().join("a"), "1 1:1\n0 2:1\n".repeat(10)).unwrap();
    fs::write(folder.path().join("b"), "1 1:1\n0 3:1\n".repeat(10)).unwrap();
    for (first, second, says) in [
        (["--data", "a", "--epochs", "2"], ["--data", "a", "--epochs", "3"], "3 epochs"),
        (["--data", "a", "--seed", "1"], ["--data", "b", "--seed", "1"], "on data"),
    ] {
        let port = free_port();
        let other = rank(folder.path(), 1, 2, port).args(second).stderr(std::process::Stdio::piped()).spawn();
        let other = other.unwrap();
        let says = ["different options", "rank 0 with", "rank 1 with", says];
        refuses(folder.path(), rank(folder.path(), 0, 2, port).args(first), &says);
        let output = other.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
    }
}

#[test]
fn launch_without_a_command_or_with_an_unknown_one_is_refused() {
    let folder = folder();
    refuses(folder.path(), thinwire(folder.path()).args(["launch", "-n", "2"]), &["CMD"]);
    refuses(
        folder.path(),
        thinwire(folder.path()).args(["launch", "-n", "0", "--", "true"]),
        &["at least 1"],
    );
    let unknown = ["launch", "-n", "2", "--", "./no-such-program"];
    refuses(folder.path(), thinwire(folder.path()).args(unknown), &["cannot start ./no-such-program"]);
}

#[cfg(not(feature = "mpi"))]
#[test]
fn a_program_without_mpi_says_how_to_get_one_with_it() {
    let folder = folder();
    let output = thinwire(folder.path()).args(["bench", "allreduce", "--transport", "mpi"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("cargo build --release --features mpi"), "{}", stderr(&output));
    assert!(names(folder.path()).is_empty());
}
