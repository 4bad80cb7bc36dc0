//! The commands `ip` and `tc`, and what they need.

use std::fs;
use std::io::{ErrorKind, Write as _};
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};

use anyhow::{Context as _, bail, ensure};

/// What a process needs to make network namespaces, by its bit in the set of its capabilities.
const RIGHTS: [(u32, &str, &str); 2] =
    [(12, "CAP_NET_ADMIN", "to make links"), (21, "CAP_SYS_ADMIN", "to make namespaces")];

/// Says what is missing, if anything.
pub(super) fn check() -> anyhow::Result<()> {
    for tool in ["ip", "tc"] {
        match Command::new(tool).arg("-V").stdout(Stdio::null()).stderr(Stdio::null()).status() {
            Err(error) if error.kind() == ErrorKind::NotFound => {
                bail!("the command `{tool}` is missing: install iproute2, or add its folder to PATH")
            }
            other => drop(other.with_context(|| format!("cannot run `{tool}`"))?),
        }
    }
    let status = fs::read_to_string("/proc/self/status").context("cannot read this process's rights")?;
    let rights = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let rights = rights.and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok());
    let rights = rights.context("/proc/self/status does not tell this process's rights")?;
    for (bit, name, what) in RIGHTS {
        ensure!(rights >> bit & 1 == 1, "{name} is missing, {what}: run this as root");
    }
    Ok(())
}

/// Runs `tool` with the lines of `script` as its commands, in a namespace if one is given.
pub(super) fn batch(tool: &str, namespace: Option<&str>, script: &str) -> anyhow::Result<()> {
    let mut command = Command::new(tool);
    if let Some(namespace) = namespace {
        command.args(["-n", namespace]);
    }
    command.args(["-batch", "-"]).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
    // A group of its own: Ctrl-C is for this process, which then takes down what was made.
    let mut child = command.process_group(0).spawn().with_context(|| format!("cannot run `{tool}`"))?;
    // What it does not read, it says why.
    if let Some(mut stdin) = child.stdin.take() {
        let _ = stdin.write_all(script.as_bytes());
    }
    let output = child.wait_with_output().with_context(|| format!("cannot run `{tool}`"))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let place = namespace.map(|namespace| format!(" in {namespace}")).unwrap_or_default();
    bail!("`{tool}`{place} failed{}: {}", lacking(script, &said), said.trim().replace('\n', "; "))
}

/// Which part of the kernel is missing, if that is what a tool says.
fn lacking(script: &str, said: &str) -> String {
    const SIGNS: [&str; 4] = ["not supported", "Unknown device type", "kind is unknown", "not found"];
    const PARTS: [(&str, &str); 3] =
        [("type bridge", "CONFIG_BRIDGE"), ("type veth", "CONFIG_VETH"), (" tbf ", "CONFIG_NET_SCH_TBF")];
    // `Command failed -:N` names the line.
    let number = said.rsplit_once("-:").map(|(_, rest)| rest.trim().parse::<usize>());
    let line = number.and_then(Result::ok).and_then(|number| script.lines().nth(number.saturating_sub(1)));
    let part = PARTS.iter().find(|(words, _)| line.is_some_and(|line| line.contains(words)));
    match part {
        Some((words, option)) if SIGNS.iter().any(|sign| said.contains(sign)) => {
            format!(" since the kernel has no {} ({option})", words.trim().trim_start_matches("type "))
        }
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_that_the_kernel_lacks_is_named() {
        let script =
            "link add name a type bridge\nlink add name b type veth peer name c\nlink set dev b up\n";
        let said = |line| format!("Error: Unknown device type.\nCommand failed -:{line}\n");
        assert_eq!(lacking(script, &said(1)), " since the kernel has no bridge (CONFIG_BRIDGE)");
        assert_eq!(lacking(script, &said(2)), " since the kernel has no veth (CONFIG_VETH)");
        assert_eq!(lacking(script, &said(3)), "");
        let tbf = "qdisc add dev a root tbf rate 1bit\n";
        let said = "Error: Specified qdisc kind is unknown.\nCommand failed -:1";
        assert_eq!(lacking(tbf, said), " since the kernel has no tbf (CONFIG_NET_SCH_TBF)");
        assert_eq!(lacking(tbf, "RTNETLINK answers: File exists\nCommand failed -:1"), "");
    }

    #[test]
    fn what_a_tool_says_is_repeated() {
        // `false` says nothing, `ls` names the option that it does not know.
        let error = batch("ls", None, "").unwrap_err().to_string();
        assert!(error.starts_with("`ls` failed: ls: "), "{error}");
        assert_eq!(batch("false", None, "").unwrap_err().to_string(), "`false` failed: ");
    }
}
