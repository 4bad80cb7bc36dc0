//! `thinwire netlab`: a command on every host of an emulated network.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use std::fs;
use std::io::Read as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::Instant;

use common::{folder, names, runs, signal, stderr, stdout, thinwire, wait_until};
use serde_json::Value;

fn netlab(folder: &Path, hosts: &str, rate: &str, command: &[&str]) -> Command {
    let mut netlab = thinwire(folder);
    netlab.args(["netlab", "--hosts", hosts, "--rate", rate, "--"]).args(command);
    netlab
}

fn run(hosts: &str, rate: &str, script: &str) -> Output {
    netlab(folder().path(), hosts, rate, &["sh", "-c", script]).output().unwrap()
}

/// Whether this machine can make a network. Says why not.
fn possible() -> bool {
    let output = run("1", "1gbit", "true");
    if !output.status.success() {
        eprintln!("SKIPPED, nothing is tested: {}", stderr(&output));
        assert!(std::env::var_os("CI").is_none(), "the rights and tools have to be there");
    }
    output.status.success()
}

/// The namespaces of a lab.
fn left(owner: u32) -> Vec<String> {
    let all = fs::read_dir("/run/netns").into_iter().flatten().map(|entry| entry.unwrap().file_name());
    let all = all.map(|name| name.into_string().unwrap());
    all.filter(|name| name.starts_with("thinwire-") && name.contains(&format!("-{owner}-"))).collect()
}

/// A lab whose two hosts run until they are ended, with their processes.
fn idle(folder: &Path) -> (Child, Vec<u32>) {
    let script = "echo $$ > new.$RANK; mv new.$RANK pid.$RANK; exec sleep 300";
    let mut lab = netlab(folder, "2", "1gbit", &["sh", "-c", script]);
    let lab = lab.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let pid = |host| fs::read_to_string(folder.join(format!("pid.{host}"))).ok();
    wait_until("both hosts run", || (0..2).all(|host| pid(host).is_some()));
    (lab, (0..2).map(|host| pid(host).unwrap().trim().parse().unwrap()).collect())
}

#[test]
fn each_host_is_a_rank_with_an_address_of_its_own() {
    if !possible() {
        return;
    }
    let script =
        "echo $WORLD_SIZE $LOCAL_RANK $LOCAL_WORLD_SIZE $MASTER_ADDR; ip -o -4 address | cut -d' ' -f7";
    let output = run("4", "1gbit", script);
    assert!(output.status.success(), "{}", stderr(&output));
    let said = stdout(&output);
    for host in 0..4 {
        let lines: Vec<_> =
            said.lines().filter_map(|line| line.strip_prefix(&format!("[{host}] "))).collect();
        assert_eq!(lines, ["4 0 1 10.77.0.1", "127.0.0.1/8", &format!("10.77.0.{}/16", host + 1)]);
    }
    // 192.0.2.1 is nobody's: without a route there is no waiting for it.
    let outside = run("1", "1gbit", "ip route get 192.0.2.1; ip -o link | wc -l");
    assert!(stderr(&outside).contains("unreachable"), "{}", stderr(&outside));
    assert_eq!(stdout(&outside), "[0] 2\n");
}

#[test]
fn nothing_is_added_to_the_machine_s_own_network() {
    if !possible() {
        return;
    }
    let own = || {
        let show = |what: &str| Command::new("ip").args(["-o", what]).output().unwrap().stdout;
        ["link", "address", "route", "rule"].map(show)
    };
    let (before, folder) = (own(), folder());
    let (mut lab, _) = idle(folder.path());
    assert_eq!(left(lab.id()).len(), 3);
    assert_eq!(own(), before);
    signal(lab.id(), "TERM");
    assert_eq!(lab.wait().unwrap().code(), Some(143));
    assert_eq!(own(), before);
}

#[test]
fn ranks_meet_over_tcp_and_sum() {
    if !possible() {
        return;
    }
    let program = env!("CARGO_BIN_EXE_thinwire");
    let options = ["bench", "allreduce", "--transport=tcp", "--dim=30k", "--iterations=2", "--json"];
    let command = [&[program][..], &options, &["--algorithm=dense_ring,gtopk_tree"]].concat();
    let output = netlab(folder().path(), "4", "1gbit", &command).output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    let rows = stdout(&output);
    let rows: Vec<Value> =
        rows.lines().map(|line| serde_json::from_str(line.strip_prefix("[0] ").unwrap()).unwrap()).collect();
    assert_eq!(rows.len(), 2);
    // No more than the rate, and what a bucket holds.
    let within = |mbps: f64| mbps > 0.0 && mbps < 1001.0;
    assert!(
        rows.iter().all(|row| row["ranks"] == 4 && within(row["stream_mbps"].as_f64().unwrap())),
        "{rows:?}"
    );
}

/// 2.5 MB from host 0 to host 1 at 100mbit: 0.2 s by the rate, less what the buckets hold.
#[test]
fn a_stream_takes_as_long_as_the_rate_says() {
    if !possible() {
        return;
    }
    let script = r#"
import os, socket, sys, time
size, port = 2_500_000, 5000
if os.environ["RANK"] == "1":
    server = socket.create_server(("", port))
    peer, _ = server.accept()
    received = 0
    while data := peer.recv(1 << 16):
        received += len(data)
    assert received == size, received
    peer.sendall(b"!")
else:
    while True:
        try:
            peer = socket.create_connection(("10.77.0.2", port), timeout=30)
            break
        except ConnectionRefusedError:
            time.sleep(0.02)
    begun = time.monotonic()
    peer.sendall(bytes(size))
    peer.shutdown(socket.SHUT_WR)
    assert peer.recv(1) == b"!"
    print(time.monotonic() - begun)
"#;
    let output = netlab(folder().path(), "2", "100mbit", &["python3", "-c", script]).output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    let seconds: f64 = stdout(&output).trim_start_matches("[0] ").trim().parse().unwrap();
    let burst = 6_250.0 * 8.0 / 100e6;
    assert!(seconds >= 0.2 - 2.0 * burst, "{seconds}");
    // Generous: the machine may be busy.
    assert!(seconds < 2.0, "{seconds}");
}

#[test]
fn a_host_that_fails_ends_the_others_and_is_named() {
    if !possible() {
        return;
    }
    let begun = Instant::now();
    let script = "if [ $RANK = 1 ]; then echo boom >&2; exit 7; fi; sleep 300";
    let folder = folder();
    let lab =
        netlab(folder.path(), "3", "1gbit", &["sh", "-c", script]).stderr(Stdio::piped()).spawn().unwrap();
    let pid = lab.id();
    let output = lab.wait_with_output().unwrap();
    assert!(begun.elapsed().as_secs() < 60);
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).ends_with("host 1 ended with exit code 7; its last message:\n[1] boom\n"));
    assert!(left(pid).is_empty());
}

#[test]
fn a_signal_takes_the_network_down_and_what_runs_in_it() {
    if !possible() {
        return;
    }
    for (name, code) in [("INT", 130), ("TERM", 143)] {
        let folder = folder();
        let (mut lab, hosts) = idle(folder.path());
        signal(lab.id(), name);
        assert_eq!(lab.wait().unwrap().code(), Some(code));
        assert!(left(lab.id()).is_empty());
        assert!(!hosts.into_iter().any(runs));
    }
}

#[test]
fn what_a_killed_lab_left_is_cleared_by_the_next_and_nothing_else() {
    if !possible() {
        return;
    }
    let folders = [folder(), folder()];
    let [(mut killed, orphans), (mut other, hosts)] = folders.each_ref().map(|folder| idle(folder.path()));
    killed.kill().unwrap();
    killed.wait().unwrap();
    // Another test's lab may clear it before this one.
    assert!(run("1", "1gbit", "true").status.success());
    assert!(left(killed.id()).is_empty());
    wait_until("its hosts have ended", || !orphans.iter().copied().any(runs));
    assert_eq!(left(other.id()).len(), 3);
    assert!(hosts.iter().copied().all(runs) && runs(other.id()));
    signal(other.id(), "TERM");
    let mut said = String::new();
    other.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    assert_eq!((other.wait().unwrap().code(), said.as_str()), (Some(143), ""));
}

#[test]
fn options_that_make_no_sense_are_refused() {
    for (options, says) in [
        (&["--hosts", "0", "--rate", "1gbit", "--", "true"][..], "at least 1 host"),
        (&["--hosts", "x", "--rate", "1gbit", "--", "true"], "whole number"),
        (&["--hosts", "2", "--rate", "0", "--", "true"], "unit"),
        (&["--hosts", "2", "--rate", "0gbit", "--", "true"], "at least 10kbit"),
        (&["--hosts", "2", "--rate", "1gbit"], "<CMD>"),
        (&["--hosts", "2", "--rate", "1gbit", "--burst", "2", "--", "true"], "unit"),
        (&["--hosts", "2", "--rate", "1gbit", "--burst", "101ms", "--", "true"], "100ms"),
        (&["--rate", "1gbit", "--", "true"], "--hosts"),
        (&["--hosts", "2", "--", "true"], "--rate"),
    ] {
        let output = thinwire(folder().path()).arg("netlab").args(options).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{options:?}");
        assert!(stderr(&output).contains(says), "{options:?}: {}", stderr(&output));
    }
}

#[test]
fn what_is_missing_is_named() {
    let folder = folder();
    let tool = |name: &str, text: &str| {
        let path = folder.path().join(name);
        fs::write(&path, format!("#!/bin/sh\n{text}\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    };
    let fails = |says: &str| {
        let mut lab = netlab(folder.path(), "2", "1gbit", &["true"]);
        let output = lab.env("PATH", folder.path()).output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
        assert!(stderr(&output).contains(says), "{}", stderr(&output));
    };
    fails("the command `ip` is missing: install iproute2");
    tool("ip", "exit 0");
    fails("the command `tc` is missing: install iproute2");
    tool("tc", "exit 0");
    assert_eq!(names(folder.path()), ["ip", "tc"]);
    if possible() {
        // From here on the tools say what they would on such a kernel.
        tool(
            "ip",
            "case $* in *-batch*) echo 'Error: Unknown device type.\nCommand failed -:1' >&2; exit 1; esac",
        );
        fails("Unknown device type");
    }
}
