//! Several child processes that end together.

use std::io::{self, BufRead as _, BufReader, Read};
use std::process::{Child, Command};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{
    Pid, Signal, WaitId, WaitIdOptions, WaitIdStatus, kill_process, kill_process_group, waitid,
};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::error::signal_code;

/// How long to wait, after a rank has failed by itself, for one that was killed. The system closes the
/// connections of a killed process before it tells that it has ended, so those who lost it can be faster.
const SETTLE: Duration = Duration::from_millis(500);
/// How long a process has to end after it was asked to.
const GRACE: Duration = Duration::from_secs(3);
/// How long to wait for the last output once all processes have ended: what they left behind may hold it.
const LAST_OUTPUT: Duration = Duration::from_secs(1);
/// A line longer than this is passed on in pieces, so that no child fills the memory.
const LONGEST_LINE: u64 = 1 << 16;

/// Child processes, one a rank, that are started, watched and ended together.
///
/// Dropping it kills those that still run.
pub(crate) struct Children {
    running: Vec<Running>,
    streams: usize,
    /// Whether each child leads a process group, so that what it starts ends with it.
    groups: bool,
    sender: Sender<Event>,
    events: Receiver<Event>,
}

struct Running {
    child: Child,
    pid: Pid,
    end: Option<End>,
}

enum Event {
    Ended(usize, End),
    StreamClosed,
    Signal(i32),
}

/// How a process ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum End {
    Code(i32),
    Signal(i32),
}

impl End {
    /// The exit code that a shell would show.
    pub(crate) fn code(self) -> u8 {
        match self {
            Self::Code(code) => u8::try_from(code).unwrap_or(u8::MAX),
            Self::Signal(signal) => signal_code(signal),
        }
    }
}

impl std::fmt::Display for End {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Code(code) => write!(f, "ended with exit code {code}"),
            Self::Signal(signal) => write!(f, "was killed by signal {signal}"),
        }
    }
}

/// Why the children were ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Cause {
    /// This rank failed first, or was killed and thereby made others fail.
    Failed(usize, End),
    /// This process was asked to end.
    Signal(i32),
}

impl Children {
    /// No children yet. From now on the signals that ask this process to end reach the children instead.
    pub(crate) fn new(groups: bool) -> io::Result<Self> {
        let (sender, events) = channel();
        let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP])?;
        let signalled = sender.clone();
        let forward = move || signals.forever().all(|signal| signalled.send(Event::Signal(signal)).is_ok());
        thread::Builder::new().name("signals".into()).spawn(forward)?;
        Ok(Self { running: Vec::new(), streams: 0, groups, sender, events })
    }

    /// Starts the next rank, and hands each line of its piped output, with its line break, to `on_line`.
    pub(crate) fn spawn<F>(&mut self, command: &mut Command, on_line: F) -> io::Result<()>
    where
        F: Fn(Stream, &[u8]) + Clone + Send + 'static,
    {
        use std::os::unix::process::CommandExt as _;

        if self.groups {
            command.process_group(0);
        }
        let mut child = command.spawn()?;
        let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
        let pid = Pid::from_child(&child);
        let rank = self.running.len();
        self.running.push(Running { child, pid, end: None });
        if let Some(stdout) = stdout {
            let on_line = on_line.clone();
            self.read_lines(stdout, move |line| on_line(Stream::Out, line))?;
        }
        if let Some(stderr) = stderr {
            self.read_lines(stderr, move |line| on_line(Stream::Error, line))?;
        }
        let sender = self.sender.clone();
        let wait = move || {
            // Leaves the process to be reaped later: until then its number is nobody else's.
            let ended = waitid(WaitId::Pid(pid), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT);
            let status = ended.ok().flatten();
            let signal = status.as_ref().and_then(WaitIdStatus::terminating_signal).map(End::Signal);
            let code = status.as_ref().and_then(WaitIdStatus::exit_status).map(End::Code);
            let _ = sender.send(Event::Ended(rank, signal.or(code).unwrap_or(End::Code(1))));
        };
        thread::Builder::new().name(format!("wait {rank}")).spawn(wait)?;
        Ok(())
    }

    fn read_lines<R, F>(&mut self, stream: R, on_line: F) -> io::Result<()>
    where
        R: Read + Send + 'static,
        F: Fn(&[u8]) + Send + 'static,
    {
        let sender = self.sender.clone();
        let read = move || {
            let (mut reader, mut line) = (BufReader::new(stream), Vec::new());
            while let Ok(1..) = reader.by_ref().take(LONGEST_LINE).read_until(b'\n', &mut line) {
                if line.last() != Some(&b'\n') {
                    line.push(b'\n');
                }
                on_line(&line);
                line.clear();
            }
            let _ = sender.send(Event::StreamClosed);
        };
        thread::Builder::new().name("output".into()).spawn(read)?;
        self.streams += 1;
        Ok(())
    }

    /// Waits until all have ended. When one fails, or a signal arrives, the others are asked to end,
    /// and killed if they do not.
    pub(crate) fn wait(mut self) -> Result<(), Cause> {
        let mut cause = None;
        let mut asked = false;
        let mut deadline: Option<Instant> = None;
        while self.running.iter().any(|running| running.end.is_none()) {
            let event = match deadline {
                Some(at) => self.events.recv_timeout(at.saturating_duration_since(Instant::now())),
                None => self.events.recv().map_err(|_| RecvTimeoutError::Disconnected),
            };
            match event {
                Ok(Event::Ended(rank, end)) => {
                    if let Some(running) = self.running.get_mut(rank) {
                        running.end = Some(end);
                    }
                    let killed = matches!(end, End::Signal(_));
                    if asked || !(killed || (cause.is_none() && end != End::Code(0))) {
                        continue;
                    }
                    cause = Some(Cause::Failed(rank, end));
                    deadline = Some(Instant::now() + if killed { Duration::ZERO } else { SETTLE });
                }
                Ok(Event::Signal(number)) => {
                    // Whoever asks twice does not want to wait.
                    let again = matches!(cause, Some(Cause::Signal(_)));
                    cause.get_or_insert(Cause::Signal(number));
                    self.signal(Signal::from_named_raw(number).unwrap_or(Signal::TERM));
                    asked = true;
                    deadline = Some(Instant::now() + if again { Duration::ZERO } else { GRACE });
                }
                Ok(Event::StreamClosed) => self.streams -= 1,
                Err(RecvTimeoutError::Timeout) if !asked => {
                    self.signal(Signal::TERM);
                    asked = true;
                    deadline = Some(Instant::now() + GRACE);
                }
                Err(RecvTimeoutError::Timeout) => {
                    self.signal(Signal::KILL);
                    deadline = None;
                }
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        if self.groups {
            // What a rank left running in its group.
            self.signal_groups(Signal::KILL);
        }
        let until = Instant::now() + LAST_OUTPUT;
        while self.streams > 0 {
            match self.events.recv_timeout(until.saturating_duration_since(Instant::now())) {
                Ok(Event::StreamClosed) => self.streams -= 1,
                Ok(_) => {}
                Err(_) => break,
            }
        }
        // A terminal's Ctrl-C reaches everyone: that a child was faster is no failure of its own.
        match cause {
            Some(Cause::Failed(_, End::Signal(SIGINT))) => Err(Cause::Signal(SIGINT)),
            Some(cause) => Err(cause),
            None => Ok(()),
        }
    }

    /// To every rank that still runs; with groups, also to what it started.
    fn signal(&self, signal: Signal) {
        if self.groups {
            self.signal_groups(signal);
        } else {
            for running in self.running.iter().filter(|running| running.end.is_none()) {
                let _ = kill_process(running.pid, signal);
            }
        }
    }

    /// To every group, also where the rank itself has ended: it is not reaped yet, so the number is its own.
    fn signal_groups(&self, signal: Signal) {
        for running in &self.running {
            let _ = kill_process_group(running.pid, signal);
        }
    }
}

impl Drop for Children {
    fn drop(&mut self) {
        self.signal(Signal::KILL);
        for running in &mut self.running {
            let _ = running.child.wait();
        }
    }
}

/// Where a line was written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Stream {
    Out,
    Error,
}
