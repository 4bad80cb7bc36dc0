//! `thinwire launch`.

use std::io::{self, Write};
use std::net::{Ipv4Addr, TcpListener};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Context as _;

use crate::cli::LaunchArgs;
use crate::error::{Error, When as _};
use crate::process::children::{Cause, Children, End, Stream};
use crate::process::starter::world;
use crate::process::watch::STARTER;
use crate::ranks::THREADS;

/// The last words of a rank: its last line that is not empty, one that it wrote to standard error if
/// there is one.
#[derive(Default)]
struct LastWords {
    out: Vec<u8>,
    error: Vec<u8>,
}

/// Starts the command once a rank, shows what the ranks print, and ends them all when one fails.
pub(crate) fn launch(args: &LaunchArgs) -> Result<(), Error> {
    let Some((program, arguments)) = args.command.split_first() else {
        return Err(Error::setup("there is no command to start"));
    };
    let port = match args.master_port {
        Some(port) => port,
        None => free_port().context("no port is free").setup()?,
    };
    let mut children = Children::new(true).setup()?;
    let mut last_words = Vec::new();
    for rank in 0..args.workers {
        let mut command = Command::new(program);
        command.args(arguments).envs(world(rank, args.workers, "127.0.0.1", port));
        command.env(STARTER, std::process::id().to_string());
        if std::env::var_os(THREADS).is_none() {
            command.env(THREADS, "1");
        }
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let words = Arc::new(Mutex::new(LastWords::default()));
        last_words.push(Arc::clone(&words));
        let show = move |stream, line: &[u8]| {
            show(rank, stream, line);
            if !line.trim_ascii().is_empty() {
                let mut words = words.lock().unwrap_or_else(PoisonError::into_inner);
                match stream {
                    Stream::Out => words.out = line.to_vec(),
                    Stream::Error => words.error = line.to_vec(),
                }
            }
        };
        let context = || format!("cannot start {}", program.display());
        children.spawn(&mut command, show).with_context(context).setup()?;
    }
    match children.wait() {
        Ok(()) => Ok(()),
        Err(Cause::Signal(signal)) => Err(Error::Interrupted { signal }),
        Err(Cause::Failed(rank, end)) => {
            let words =
                last_words.get(rank).map(|words| words.lock().unwrap_or_else(PoisonError::into_inner));
            let report = report(rank, end, words.as_deref().unwrap_or(&LastWords::default()));
            Err(Error::Child { code: end.code(), report })
        }
    }
}

/// A port that was free a moment ago. The command has to bind it itself, so it cannot be kept.
fn free_port() -> io::Result<u16> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port())
}

/// Shows a line on the stream that it was written to, whole. That nobody reads it is no reason to fail.
fn show(rank: usize, stream: Stream, line: &[u8]) {
    let mut shown = format!("[{rank}] ").into_bytes();
    shown.extend_from_slice(line);
    let _ = match stream {
        Stream::Out => io::stdout().lock().write_all(&shown),
        Stream::Error => io::stderr().lock().write_all(&shown),
    };
}

fn report(rank: usize, end: End, words: &LastWords) -> Vec<u8> {
    let mut report = format!("thinwire: error: rank {rank} {end}").into_bytes();
    let last = if words.error.is_empty() { &words.out } else { &words.error };
    if last.is_empty() {
        report.push(b'\n');
    } else {
        report.extend(format!("; its last message:\n[{rank}] ").into_bytes());
        report.extend(last);
    }
    report
}
