//! `thinwire launch`: a command, once a rank.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use common::{folder, runs, signal, stderr, stdout, thinwire, wait_until};

fn launch(folder: &Path, ranks: &str, script: &str) -> Command {
    let mut command = thinwire(folder);
    command.args(["launch", "-n", ranks, "--", "sh", "-c", script]);
    command
}

fn output(ranks: &str, script: &str) -> Output {
    launch(folder().path(), ranks, script).output().unwrap()
}

fn sorted(text: &str) -> Vec<&str> {
    let mut lines: Vec<_> = text.lines().collect();
    lines.sort_unstable();
    lines
}

#[test]
fn each_line_is_shown_with_its_rank_on_its_own_stream() {
    let output = output("3", "echo out $LOCAL_RANK; echo error $RANK >&2; printf unfinished");
    assert!(output.status.success());
    let expected: Vec<String> =
        (0..3).flat_map(|rank| [format!("[{rank}] out {rank}"), format!("[{rank}] unfinished")]).collect();
    assert_eq!(sorted(&stdout(&output)), expected);
    assert_eq!(sorted(&stderr(&output)), ["[0] error 0", "[1] error 1", "[2] error 2"]);
}

#[test]
fn a_rank_knows_its_world() {
    let script = "echo $WORLD_SIZE $LOCAL_WORLD_SIZE $MASTER_ADDR $MASTER_PORT";
    let free = stdout(&output("2", script));
    let ports: Vec<_> = free.lines().map(|line| line.rsplit_once(' ').unwrap().1.parse::<u16>()).collect();
    assert!(matches!(ports[..], [Ok(a), Ok(b)] if a == b && a > 0), "{free}");
    assert!(free.contains("2 2 127.0.0.1 "));
    let folder = folder();
    let mut fixed = thinwire(folder.path());
    fixed.args(["launch", "-n", "1", "--master-port", "29500", "--", "sh", "-c", script]);
    assert_eq!(stdout(&fixed.output().unwrap()), "[0] 1 1 127.0.0.1 29500\n");
}

#[test]
fn lines_are_never_mixed_and_may_hold_any_bytes() {
    let script = r"i=0; while [ $i -lt 300 ]; do printf 'a\377\0b-%s-%0200d\n' $RANK $i; i=$((i+1)); done";
    let output = output("4", script);
    let mut next = [0; 4];
    for line in output.stdout.split_inclusive(|byte| *byte == b'\n') {
        let rank = usize::from(line[1] - b'0');
        let mut expected = format!("[{rank}] a").into_bytes();
        expected.extend(b"\xff\0b-");
        expected.extend(format!("{rank}-{:0200}\n", next[rank]).into_bytes());
        assert_eq!(line, expected);
        next[rank] += 1;
    }
    assert_eq!(next, [300; 4]);
}

#[test]
fn a_killed_rank_is_the_cause_even_if_those_who_lost_it_are_faster() {
    let output = output("3", r#"[ "$RANK" != 1 ] || { sleep 0.1; kill -9 $$; }; exit 5"#);
    assert_eq!(output.status.code(), Some(137));
    assert_eq!(stderr(&output).lines().last(), Some("thinwire: error: rank 1 was killed by signal 9"));
}

#[test]
fn the_first_to_fail_ends_all_and_has_the_last_word() {
    let folder = folder();
    let script = r#"
        if [ "$RANK" = 1 ]; then
            while [ "$(ls pid.* 2>/dev/null | wc -l)" -lt 4 ]; do sleep 0.02; done
            echo reason >&2; echo; echo boom >&2; exit 7
        fi
        sleep 300 & echo $! > child.$RANK; mv child.$RANK pid.child.$RANK
        echo $$ > own.$RANK; mv own.$RANK pid.own.$RANK
        wait"#;
    let begun = Instant::now();
    let output = launch(folder.path(), "3", script).output().unwrap();
    assert!(begun.elapsed() < Duration::from_secs(20));
    assert_eq!(output.status.code(), Some(7));
    let said = stderr(&output);
    assert!(said.ends_with("rank 1 ended with exit code 7; its last message:\n[1] boom\n"), "{said}");
    let pids = fs::read_dir(folder.path()).unwrap().map(|entry| fs::read_to_string(entry.unwrap().path()));
    let pids: Vec<u32> = pids.map(|pid| pid.unwrap().trim().parse().unwrap()).collect();
    assert_eq!(pids.len(), 4);
    wait_until("nothing is left", || !pids.iter().any(|pid| runs(*pid)));
}

#[test]
fn a_rank_that_does_not_listen_is_killed() {
    let begun = Instant::now();
    let output = output(
        "2",
        "if [ $RANK = 0 ]; then sleep 0.3; exit 3; fi; trap '' TERM; while :; do sleep 0.1; done",
    );
    assert_eq!(output.status.code(), Some(3));
    assert!(begun.elapsed() < Duration::from_secs(20));
}

#[test]
fn death_by_a_signal_is_told_as_a_shell_does() {
    let output = output("2", "if [ $RANK = 1 ]; then echo last; kill -9 $$; fi; sleep 300");
    assert_eq!(output.status.code(), Some(137));
    assert!(stderr(&output).ends_with("rank 1 was killed by signal 9; its last message:\n[1] last\n"));
}

#[test]
fn a_signal_reaches_every_rank() {
    let folder = folder();
    let script = "trap 'echo bye; exit 0' TERM; echo $$ > own.$RANK; mv own.$RANK pid.$RANK; while :; do sleep 0.05; done";
    let child = launch(folder.path(), "2", script).stdout(Stdio::piped()).spawn().unwrap();
    let ready = || ["pid.0", "pid.1"].iter().all(|name| folder.path().join(name).exists());
    wait_until("both ranks run", ready);
    signal(child.id(), "TERM");
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(143));
    assert_eq!(sorted(&stdout(&output)), ["[0] bye", "[1] bye"]);
}

#[test]
fn a_training_can_be_launched() {
    let folder = folder();
    let program = env!("CARGO_BIN_EXE_thinwire");
    let mut command = thinwire(folder.path());
    command.args(["launch", "-n", "2", "--", program, "train", "--task", "spam", "--epochs", "1"]);
    let output = command.args(["--json", "out.json"]).output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(stdout(&output).contains("[0] ") && !stdout(&output).contains("[1] "));
    assert_eq!(common::results(&folder.path().join("out.json"))[0]["workers"], 2);
}
