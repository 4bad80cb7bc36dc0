//! Running the program as a user does.
#![allow(dead_code, reason = "each test file uses its share")]

use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;

/// The program in a folder of its own, without the variables of a world.
pub(crate) fn thinwire(folder: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_thinwire"));
    command.current_dir(folder).stdin(Stdio::null());
    for variable in ["RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "THINWIRE_TIMEOUT", "THINWIRE_LOG"] {
        command.env_remove(variable);
    }
    command
}

pub(crate) fn folder() -> TempDir {
    tempfile::tempdir().unwrap()
}

/// `thinwire train` as rank `rank` of a world of `size` that meets at `port`.
pub(crate) fn rank(folder: &Path, rank: usize, size: usize, port: u16) -> Command {
    let mut command = member(folder, rank, size, port);
    command.arg("train");
    command
}

/// The program as rank `rank` of a world of `size` that meets at `port`.
pub(crate) fn member(folder: &Path, rank: usize, size: usize, port: u16) -> Command {
    let mut command = thinwire(folder);
    command.envs([
        ("RANK", rank.to_string()),
        ("WORLD_SIZE", size.to_string()),
        ("MASTER_ADDR", "127.0.0.1".to_owned()),
        ("MASTER_PORT", port.to_string()),
    ]);
    command
}

/// A port that nobody listens at.
pub(crate) fn free_port() -> u16 {
    TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap().port()
}

pub(crate) fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

pub(crate) fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// The names in a folder.
pub(crate) fn names(folder: &Path) -> Vec<String> {
    let name = |entry: fs::DirEntry| entry.file_name().into_string().unwrap();
    let mut names: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| name(entry.unwrap())).collect();
    names.sort();
    names
}

/// What `thinwire train` with these options writes as JSON.
pub(crate) fn train(folder: &Path, options: &[&str]) -> Vec<Value> {
    let json = folder.join("results.json");
    let output = thinwire(folder).arg("train").args(options).arg("--json").arg(&json).output().unwrap();
    assert!(output.status.success(), "{options:?}: {}", stderr(&output));
    results(&json)
}

pub(crate) fn results(json: &PathBuf) -> Vec<Value> {
    let value: Value = serde_json::from_slice(&fs::read(json).unwrap()).unwrap();
    value.as_array().unwrap().clone()
}

/// Waits until something becomes true.
pub(crate) fn wait_until(what: &str, mut is_true: impl FnMut() -> bool) {
    let until = Instant::now() + Duration::from_secs(30);
    while !is_true() {
        assert!(Instant::now() < until, "waited too long until {what}");
        thread::sleep(Duration::from_millis(10));
    }
}

/// Whether a process runs; one that has ended but is not reaped does not.
pub(crate) fn runs(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with(['Z', 'X']))
}

/// The processes that a process has started.
pub(crate) fn children(pid: u32) -> Vec<u32> {
    let processes = fs::read_dir("/proc")
        .unwrap()
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<u32>().ok());
    let parent = |pid: u32| -> Option<u32> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        stat.rsplit_once(") ")?.1.split(' ').nth(1)?.parse().ok()
    };
    processes.filter(|child| parent(*child) == Some(pid)).collect()
}

pub(crate) fn signal(pid: u32, name: &str) {
    assert!(Command::new("kill").args([&format!("-{name}"), &pid.to_string()]).status().unwrap().success());
}
