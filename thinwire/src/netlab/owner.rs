//! Names of namespaces, which tell whose they are, and the end of those whose owner is gone.

use std::fs;
use std::io::ErrorKind;
use std::process::Command;

use anyhow::Context as _;
use rustix::process::{Pid, Signal, kill_process};

use super::tools;

/// Where `ip netns` keeps its names.
const FOLDER: &str = "/run/netns";
const PREFIX: &str = "thinwire-";

/// A process, told from any other that has or had its number.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Owner {
    /// The namespace in which the number counts: containers may share the folder of names.
    counted_in: String,
    pid: u32,
    /// When it started, in ticks since the machine did.
    start: u64,
}

impl Owner {
    /// This process.
    pub(super) fn this() -> anyhow::Result<Self> {
        let pid = std::process::id();
        let start = start(pid)?.context("/proc does not know this process")?;
        Ok(Self { counted_in: counted_in()?, pid, start })
    }

    /// The name of a namespace that it owns.
    pub(super) fn name(&self, part: &str) -> String {
        let Self { counted_in, pid, start } = self;
        format!("{PREFIX}{counted_in}-{pid}-{start}-{part}")
    }

    /// The owner of a namespace, if it is one of ours.
    fn of(name: &str) -> Option<Self> {
        let mut parts = name.strip_prefix(PREFIX)?.split('-');
        let counted_in = parts.next()?.to_owned();
        let (pid, start) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
        parts.next().map(|_| Self { counted_in, pid, start })
    }

    fn is_gone(&self) -> anyhow::Result<bool> {
        Ok(self.counted_in == counted_in()? && start(self.pid)? != Some(self.start))
    }
}

/// Removes the namespaces of owners that are gone, and ends what still runs in them.
pub(super) fn sweep() -> anyhow::Result<()> {
    let entries = match fs::read_dir(FOLDER) {
        Ok(entries) => entries,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error).with_context(|| format!("cannot list {FOLDER}")),
    };
    for entry in entries {
        let Ok(name) = entry?.file_name().into_string() else { continue };
        if let Some(owner) = Owner::of(&name)
            && owner.is_gone()?
        {
            remove(&name)?;
        }
    }
    Ok(())
}

/// Removes a namespace and ends what still runs in it. That it is gone already is no error: two may clear the same.
pub(super) fn remove(name: &str) -> anyhow::Result<()> {
    let exists = || fs::symlink_metadata(format!("{FOLDER}/{name}")).is_ok();
    if !exists() {
        return Ok(());
    }
    // Its links go with the namespace, which stays as long as a process is in it. A name that never became a
    // namespace holds none.
    if let Ok(inside) = Command::new("ip").args(["netns", "pids", name]).output() {
        let pids = String::from_utf8_lossy(&inside.stdout);
        for pid in pids.lines().filter_map(|line| Pid::from_raw(line.trim().parse().ok()?)) {
            let _ = kill_process(pid, Signal::KILL);
        }
    }
    match tools::batch("ip", None, &format!("netns del {name}\n")) {
        Err(error) if exists() => Err(error),
        _ => Ok(()),
    }
}

/// When a process started, if there is one of this number that has not ended.
fn start(pid: u32) -> anyhow::Result<Option<u64>> {
    let stat = match fs::read_to_string(format!("/proc/{pid}/stat")) {
        Ok(stat) => stat,
        // The second when it ends while it is read.
        Err(error) if error.kind() == ErrorKind::NotFound || error.raw_os_error() == Some(3) => {
            return Ok(None);
        }
        Err(error) => return Err(error).with_context(|| format!("cannot tell whether process {pid} runs")),
    };
    Ok(start_in(&stat))
}

/// From what `/proc/PID/stat` says: its name in brackets, which may hold any character, then the state, and the start as
/// the 20th from there.
fn start_in(stat: &str) -> Option<u64> {
    let mut fields = stat.rsplit_once(')')?.1.split_ascii_whitespace();
    // Ended, and not reaped yet.
    if matches!(fields.next()?, "Z" | "X") {
        return None;
    }
    fields.nth(18)?.parse().ok()
}

/// The number of the namespace that process numbers count in.
fn counted_in() -> anyhow::Result<String> {
    let link = fs::read_link("/proc/self/ns/pid").context("cannot tell the namespace of this process")?;
    Ok(link.to_string_lossy().chars().filter(char::is_ascii_digit).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_tells_its_owner() {
        let owner = Owner { counted_in: "4026531836".into(), pid: 17, start: 99 };
        let name = owner.name("3");
        assert_eq!(name, "thinwire-4026531836-17-99-3");
        assert_eq!(Owner::of(&name), Some(owner));
        for other in ["thinwire", "thinwire-1-2-3", "thinwire-1-x-3-4", "other-1-2-3-4", ""] {
            assert_eq!(Owner::of(other), None, "{other}");
        }
    }

    #[test]
    fn only_a_process_that_is_no_more_is_gone() {
        let this = Owner::this().unwrap();
        let gone = |owner: Owner| owner.is_gone().unwrap();
        assert!(!gone(this.clone()));
        assert!(gone(Owner { start: this.start + 1, ..this.clone() }));
        assert!(gone(Owner { pid: u32::MAX, ..this.clone() }));
        assert!(!gone(Owner { counted_in: "1".into(), pid: u32::MAX, ..this }));
    }

    #[test]
    fn a_process_s_name_does_not_hide_its_start() {
        let rest = "1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 4242 20";
        assert_eq!(start_in(&format!("7 (a) b) S {rest}")), Some(4242));
        assert_eq!(start_in(&format!("7 (a) Z {rest}")), None);
        assert_eq!(start_in("7 (a"), None);
    }
}
