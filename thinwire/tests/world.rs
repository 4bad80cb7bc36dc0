//! Processes that form a world: joining it, losing one of it, losing who started it.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use common::{children, folder, free_port, names, rank, runs, signal, stderr, thinwire, wait_until};

/// Reads what a process says until a line contains this.
fn hear(child: &mut Child, part: &str) -> BufReader<std::process::ChildStderr> {
    let mut reader = BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    while !line.contains(part) {
        line.clear();
        assert_ne!(reader.read_line(&mut line).unwrap(), 0, "it ended without saying {part:?}");
    }
    reader
}

/// A training that goes on for longer than any test.
const ENDLESS: [&str; 5] = ["--task", "spam", "--epochs", "100000", "--algorithm=ssar_recursive_doubling"];

#[test]
fn a_world_of_the_environment_is_joined() {
    let folder = folder();
    let port = free_port();
    let options = ["--task", "spam", "--epochs", "1", "--algorithm", "dense_ring", "--json", "out.json"];
    // In any order.
    let ranks = [2, 0, 1]
        .map(|i| rank(folder.path(), i, 3, port).args(options).stderr(Stdio::piped()).spawn().unwrap());
    for child in ranks {
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "{}", stderr(&output));
    }
    let results = common::results(&folder.path().join("out.json"));
    assert_eq!(results[0]["workers"], 3);
    assert_eq!(names(folder.path()), ["out.json", "thinwire-train.svg"]);
}

#[test]
fn when_one_of_four_is_killed_in_a_step_the_others_name_it_within_two_seconds() {
    let folder = folder();
    let port = free_port();
    let start = |i| rank(folder.path(), i, 4, port).args(ENDLESS).stderr(Stdio::piped()).spawn().unwrap();
    let mut ranks: Vec<Child> = (0..4).map(start).collect();
    let mut of_rank_0 = hear(&mut ranks[0], "epoch 1 of");
    ranks[2].kill().unwrap();
    let killed = Instant::now();
    for i in [0, 1, 3] {
        let status = ranks[i].wait().unwrap();
        assert!(killed.elapsed() < Duration::from_secs(2), "rank {i} took {:?}", killed.elapsed());
        assert_eq!(status.code(), Some(1));
        let mut said = String::new();
        match ranks[i].stderr.take() {
            Some(mut stderr) => std::io::Read::read_to_string(&mut stderr, &mut said).unwrap(),
            None => std::io::Read::read_to_string(&mut of_rank_0, &mut said).unwrap(),
        };
        let last = said.lines().last().unwrap();
        assert!(last.contains("thinwire: error: spam by") && last.contains("rank 2"), "rank {i}: {said}");
    }
    ranks[2].wait().unwrap();
    assert!(names(folder.path()).is_empty());
}

#[test]
fn when_a_worker_is_killed_the_program_ends_with_its_fate_as_last_words() {
    let folder = folder();
    let mut starter =
        thinwire(folder.path()).arg("train").args(ENDLESS).stderr(Stdio::piped()).spawn().unwrap();
    let mut rest = hear(&mut starter, "epoch 1 of");
    let workers = children(starter.id());
    assert_eq!(workers.len(), 4);
    let is_rank_2 = |pid: &&u32| {
        let environment = std::fs::read(format!("/proc/{pid}/environ")).unwrap();
        environment.split(|byte| *byte == 0).any(|variable| variable == b"RANK=2")
    };
    let rank_2 = *workers.iter().find(is_rank_2).unwrap();
    signal(rank_2, "KILL");
    let mut said = String::new();
    std::io::Read::read_to_string(&mut rest, &mut said).unwrap();
    assert_eq!(starter.wait().unwrap().code(), Some(137), "{said}");
    assert_eq!(said.lines().last(), Some("thinwire: error: rank 2 was killed by signal 9"), "{said}");
    assert!(!workers.iter().any(|pid| runs(*pid)));
    assert!(names(folder.path()).is_empty());
}

#[test]
fn a_signal_ends_the_program_and_its_workers() {
    for (name, code) in [("TERM", 143), ("INT", 130)] {
        let folder = folder();
        let mut starter =
            thinwire(folder.path()).arg("train").args(ENDLESS).stderr(Stdio::piped()).spawn().unwrap();
        let _rest = hear(&mut starter, "epoch 1 of");
        let workers = children(starter.id());
        signal(starter.id(), name);
        assert_eq!(starter.wait().unwrap().code(), Some(code));
        assert!(!workers.is_empty() && !workers.iter().any(|pid| runs(*pid)));
        assert!(names(folder.path()).is_empty());
    }
}

#[test]
fn workers_do_not_outlive_a_starter_that_is_killed() {
    let folder = folder();
    let mut starter =
        thinwire(folder.path()).arg("train").args(ENDLESS).stderr(Stdio::piped()).spawn().unwrap();
    let _rest = hear(&mut starter, "epoch 1 of");
    let workers = children(starter.id());
    assert_eq!(workers.len(), 4);
    starter.kill().unwrap();
    starter.wait().unwrap();
    wait_until("the workers are gone", || !workers.iter().any(|pid| runs(*pid)));
}
