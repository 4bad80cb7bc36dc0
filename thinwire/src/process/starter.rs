//! The ranks of a command on this machine: this program again, once a rank.

use std::collections::VecDeque;
use std::env;
use std::ffi::OsString;
use std::net::{Ipv4Addr, TcpListener};
use std::os::fd::OwnedFd;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Context as _;

use crate::error::{Error, When as _};
use crate::process::children::{Cause, Children, End};
use crate::process::watch::STARTER;
use crate::ranks::THREADS;

/// Variables by which a user steers ranks that he starts himself; these ranks meet where we say.
pub(crate) const NOT_INHERITED: [&str; 4] =
    ["THINWIRE_PEERS", "THINWIRE_BIND", "THINWIRE_MASTER_PORT", "TORCHELASTIC_USE_AGENT_STORE"];
/// Lines of a silent rank that are kept for the case that it fails.
const KEPT_LINES: usize = 50;

type Lines = Arc<Mutex<VecDeque<Vec<u8>>>>;

/// Starts the ranks with the arguments of this process and waits for them.
///
/// Rank 0 has the terminal. What the others say is shown only if one of them fails.
pub(crate) fn start(ranks: usize) -> Result<(), Error> {
    let program = env::current_exe().context("cannot find this program itself").setup()?;
    let mut arguments: Vec<OsString> = env::args_os().skip(1).collect();
    if arguments.is_empty() {
        arguments.push("train".into());
    }
    // Bound here and handed to rank 0, so that nobody can take the port in between.
    let listener =
        TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("cannot listen on 127.0.0.1").setup()?;
    let port = listener.local_addr().setup()?.port();
    let mut listener = Some(listener);
    let secret = secret()?;
    let mut children = Children::new(false).setup()?;
    let mut said = Vec::new();
    for rank in 0..ranks {
        let mut command = Command::new(&program);
        command.args(&arguments);
        NOT_INHERITED.iter().for_each(|name| _ = command.env_remove(name));
        command.envs(world(rank, ranks, "127.0.0.1", port));
        command.env(STARTER, std::process::id().to_string()).env("THINWIRE_SECRET", &secret);
        if env::var_os(THREADS).is_none() {
            command.env(THREADS, "1");
        }
        let lines = Lines::default();
        match listener.take() {
            Some(listener) => {
                command.env("THINWIRE_LISTENER", "stdin").stdin(OwnedFd::from(listener));
            }
            None => {
                command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
            }
        }
        said.push(Arc::clone(&lines));
        let keep = move |_, line: &[u8]| {
            let mut lines = lines.lock().unwrap_or_else(PoisonError::into_inner);
            if lines.len() == KEPT_LINES {
                lines.pop_front();
            }
            lines.push_back(line.to_vec());
        };
        children.spawn(&mut command, keep).with_context(|| format!("cannot start rank {rank}")).setup()?;
    }
    match children.wait() {
        Ok(()) => Ok(()),
        Err(Cause::Signal(signal)) => Err(Error::Interrupted { signal }),
        Err(Cause::Failed(rank, end)) => {
            Err(Error::Child { code: end.code(), report: report(rank, end, &said) })
        }
    }
}

/// Keeps other users' processes on this machine out of the world.
pub(crate) fn secret() -> Result<String, Error> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).map_err(|error| Error::setup(format!("no random numbers: {error}")))?;
    Ok(format!("{:032x}", u128::from_ne_bytes(bytes)))
}

/// The variables that make a process a rank of a world.
pub(crate) fn world(rank: usize, size: usize, host: &str, port: u16) -> [(&'static str, String); 6] {
    [
        ("RANK", rank.to_string()),
        ("LOCAL_RANK", rank.to_string()),
        ("WORLD_SIZE", size.to_string()),
        ("LOCAL_WORLD_SIZE", size.to_string()),
        ("MASTER_ADDR", host.to_owned()),
        ("MASTER_PORT", port.to_string()),
    ]
}

/// What the ranks said, the one that failed last.
fn report(failed: usize, end: End, said: &[Lines]) -> Vec<u8> {
    let mut report = Vec::new();
    let quote = |rank: usize, lines: &Lines, report: &mut Vec<u8>| {
        for line in lines.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            report.extend(format!("[{rank}] ").into_bytes());
            report.extend(line);
        }
    };
    // When rank 0 fails, it has told why itself, and the others can only tell that it is gone.
    if failed != 0 {
        let others = said.iter().enumerate().filter(|(rank, _)| *rank != failed);
        others.for_each(|(rank, lines)| quote(rank, lines, &mut report));
        said.iter().skip(failed).take(1).for_each(|lines| quote(failed, lines, &mut report));
    }
    let silent = said.get(failed).is_none_or(|lines| lines.lock().is_ok_and(|lines| lines.is_empty()));
    if matches!(end, End::Signal(_)) || (failed != 0 && silent) {
        report.extend(format!("thinwire: error: rank {failed} {end}\n").into_bytes());
    }
    report
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &str) -> Lines {
        Arc::new(Mutex::new(text.lines().map(|line| format!("{line}\n").into_bytes()).collect()))
    }

    #[test]
    fn the_rank_that_failed_speaks_last() {
        let said = [lines(""), lines("two is lost"), lines("first\nboom"), lines("")];
        let text = |rank, end| String::from_utf8(report(rank, end, &said)).unwrap();
        assert_eq!(text(2, End::Code(1)), "[1] two is lost\n[2] first\n[2] boom\n");
        assert!(
            text(2, End::Signal(9)).ends_with("[2] boom\nthinwire: error: rank 2 was killed by signal 9\n")
        );
        assert!(text(3, End::Code(4)).ends_with("thinwire: error: rank 3 ended with exit code 4\n"));
        assert_eq!(text(0, End::Code(1)), "");
        assert_eq!(text(0, End::Signal(11)), "thinwire: error: rank 0 was killed by signal 11\n");
    }
}
