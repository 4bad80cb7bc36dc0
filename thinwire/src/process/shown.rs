//! Children whose lines are shown, each with the number of its rank in front.

use std::io::{self, Write};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};

use crate::error::{Error, When as _};
use crate::process::children::{Cause, Children, End, Stream};
use crate::process::watch::STARTER;
use crate::ranks::THREADS;

/// [`Children`] whose lines are shown, and whose last words are kept for the case that they fail.
pub(crate) struct Shown {
    children: Children,
    last_words: Vec<Arc<Mutex<LastWords>>>,
}

/// The last words of a rank: its last line that is not empty, one that it wrote to standard error if
/// there is one.
#[derive(Default)]
struct LastWords {
    out: Vec<u8>,
    error: Vec<u8>,
}

impl Shown {
    /// No children yet. From now on the signals that ask this process to end reach the children instead.
    pub(crate) fn new() -> Result<Self, Error> {
        Ok(Self { children: Children::new(true).setup()?, last_words: Vec::new() })
    }

    /// Starts the next rank, without input.
    pub(crate) fn spawn(&mut self, command: &mut Command) -> io::Result<()> {
        let rank = self.last_words.len();
        command.env(STARTER, std::process::id().to_string());
        if std::env::var_os(THREADS).is_none() {
            command.env(THREADS, "1");
        }
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let words = Arc::new(Mutex::new(LastWords::default()));
        self.last_words.push(Arc::clone(&words));
        self.children.spawn(command, move |stream, line: &[u8]| {
            show(rank, stream, line);
            if !line.trim_ascii().is_empty() {
                let mut words = words.lock().unwrap_or_else(PoisonError::into_inner);
                match stream {
                    Stream::Out => words.out = line.to_vec(),
                    Stream::Error => words.error = line.to_vec(),
                }
            }
        })
    }

    /// Waits until all have ended; see [`Children::wait`]. `what` is what a rank is called when it has failed.
    pub(crate) fn wait(self, what: &str) -> Result<(), Error> {
        match self.children.wait() {
            Ok(()) => Ok(()),
            Err(Cause::Signal(signal)) => Err(Error::Interrupted { signal }),
            Err(Cause::Failed(rank, end)) => {
                let words = self
                    .last_words
                    .get(rank)
                    .map(|words| words.lock().unwrap_or_else(PoisonError::into_inner));
                let report = report(what, rank, end, words.as_deref().unwrap_or(&LastWords::default()));
                Err(Error::Child { code: end.code(), report })
            }
        }
    }
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

fn report(what: &str, rank: usize, end: End, words: &LastWords) -> Vec<u8> {
    let mut report = format!("thinwire: error: {what} {rank} {end}").into_bytes();
    let last = if words.error.is_empty() { &words.out } else { &words.error };
    if last.is_empty() {
        report.push(b'\n');
    } else {
        report.extend(format!("; its last message:\n[{rank}] ").into_bytes());
        report.extend(last);
    }
    report
}
