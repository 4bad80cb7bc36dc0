//! This rank's messages to one peer: order, flow control, and who writes.
//!
//! Whoever queues a frame tries to write it at once, so that the common case needs no other thread.
//! Only one thread writes at a time; the others leave their frames to it. The writer task takes over
//! when the socket is full, when there is more to write than a caller should be held up for, and in a
//! burst of messages, because it writes many at once.

mod queue;

use std::io::{self, IoSlice};
use std::net::Shutdown;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use bytes::Bytes;
use matching::{Aborts, Completion, MESSAGE_COST, Posted, lock};
use socket2::SockRef;
use tokio::net::tcp::OwnedWriteHalf;
use tokio::sync::Notify;
use transport::{Error, Rank, Scope, Tag};

use crate::batch::MAX_FRAMES;
use crate::frame::{Header, Kind};
use crate::options::Limits;
use queue::{Announced, State, Transfer};

/// A frame that follows the last write so soon, with nothing heard from the peer in between, is part of
/// a burst.
const BURST: Duration = Duration::from_micros(50);
/// How many writes a caller makes before the writer task takes over.
const CALLER_TURNS: usize = 4;
/// How many writes the writer task makes before it lets the other tasks of its thread run.
const TASK_TURNS: usize = 8;

#[derive(Debug)]
pub(crate) struct Outbox {
    peer: Rank,
    /// The peer's.
    limits: Limits,
    /// The longest message that either side allows.
    max_message: u64,
    aborts: Arc<Aborts>,
    socket: OwnedWriteHalf,
    state: Mutex<State>,
    /// Signalled when the writer task has to take over.
    work: Notify,
    /// Signalled when everything is written, or nothing can be any more.
    idle: Notify,
    start: Instant,
    /// When something was last written, in nanoseconds since `start`.
    sent_at: AtomicU64,
    /// When something was last heard from the peer, in nanoseconds since `start`.
    heard_at: AtomicU64,
}

/// What a stretch of writing came to.
#[derive(PartialEq, Eq, Debug)]
enum Written {
    Everything,
    /// There is more to write, and the socket may take it.
    TurnsUp,
    SocketFull,
    /// It is somebody else's job, or over.
    Nothing,
}

impl Outbox {
    pub(crate) fn new(
        peer: Rank,
        limits: Limits,
        own: Limits,
        aborts: Arc<Aborts>,
        socket: OwnedWriteHalf,
        start: Instant,
    ) -> Self {
        Self {
            peer,
            limits,
            max_message: limits.max_message.min(own.max_message),
            aborts,
            socket,
            state: Mutex::new(State { room: limits.window, ..State::default() }),
            work: Notify::new(),
            idle: Notify::new(),
            start,
            sent_at: AtomicU64::new(0),
            heard_at: AtomicU64::new(0),
        }
    }

    // What is sent. Each of these ends with an attempt to write; its failure ends the connection.

    /// Queues a message. `Some`: it waits until the peer asks for it and it is written.
    pub(crate) fn send(&self, tag: Tag, payload: Bytes) -> (Posted, io::Result<()>) {
        let mut state = lock(&self.state);
        if let Some(error) = self.aborts.of(tag).or_else(|| state.over.clone()) {
            return (Err(error), Ok(()));
        }
        let length = payload.len() as u64;
        if length > self.max_message {
            let error = Error::TooLarge { peer: self.peer, length, limit: self.max_message };
            return (Err(error), Ok(()));
        }
        let cost = length.saturating_add(MESSAGE_COST);
        let receipt = if cost <= state.room {
            state.room -= cost;
            state.queue.push_back((Header { tag, length, ..Header::new(Kind::Eager) }, payload));
            None
        } else if state.announced.len() >= self.limits.max_announced as usize {
            let detail = format!(
                "{} messages are waiting for rank {}: receive some",
                state.announced.len(),
                self.peer
            );
            return (Err(Error::Unsupported { detail }), Ok(()));
        } else {
            let (id, sent) = (state.next_id, Arc::new(Completion::default()));
            state.next_id += 1;
            state.announced.insert(id, Announced { tag, payload, sent: Arc::clone(&sent) });
            state.queue.push_back((Header { tag, length, id, ..Header::new(Kind::Announce) }, Bytes::new()));
            Some(sent)
        };
        (Ok(receipt), self.write(state))
    }

    /// Asks the peer for announced messages and gives back room in this rank's own window.
    pub(crate) fn request(&self, ids: &[u64], credit: u64, own_window: u64) -> io::Result<()> {
        let mut state = lock(&self.state);
        state.owed += credit;
        state.urgent.extend(ids.iter().map(|id| Header { id: *id, ..Header::new(Kind::Fetch) }));
        // Every frame carries what is owed; a frame of its own only when it becomes much.
        if ids.is_empty() && (state.owed == 0 || state.owed < own_window / 4) {
            return Ok(());
        }
        if state.urgent.is_empty() {
            state.urgent.push_back(Header::new(Kind::Credit));
        }
        self.write(state)
    }

    /// Lets the peer hear from this rank, unless something is about to be written anyway.
    pub(crate) fn heartbeat(&self) -> io::Result<()> {
        let mut state = lock(&self.state);
        if !state.is_flushed() {
            return Ok(());
        }
        state.urgent.push_back(Header::new(Kind::Heartbeat));
        self.write(state)
    }

    /// Drops what belongs to an aborted scope, and tells the peer.
    pub(crate) fn abort(&self, by: Rank, scope: Scope, reason: &Bytes) -> io::Result<()> {
        let mut state = lock(&self.state);
        let ended = state.drop_scope(scope);
        let (context, id) = match scope {
            Scope::Context(context) => (context, 0),
            Scope::World => (0, 1),
        };
        let (tag, length) = (Tag::new(context, by.0), reason.len() as u64);
        state.urgent.push_back(Header { tag, id, length, ..Header::new(Kind::Abort) });
        state.reasons.push_back(reason.clone());
        let written = self.write(state);
        for message in ended {
            message.sent.complete(self.aborts.of(message.tag).map_or(Ok(()), Err));
        }
        written
    }

    /// Says that nothing follows. Call it when everything else is queued.
    pub(crate) fn goodbye(&self) -> io::Result<()> {
        let mut state = lock(&self.state);
        if state.over.is_some() {
            return Ok(());
        }
        state.queue.push_back((Header::new(Kind::Goodbye), Bytes::new()));
        self.write(state)
    }

    // What the peer answers.

    /// The peer gave back room in its window.
    pub(crate) fn credit(&self, credit: u32) -> Result<(), String> {
        if credit == 0 {
            return Ok(());
        }
        let mut state = lock(&self.state);
        state.room = state.room.saturating_add(credit.into());
        if state.room > self.limits.window {
            return Err(format!("it gave back {credit} bytes of its window, more than were in use"));
        }
        Ok(())
    }

    /// The peer asks for an announced message.
    pub(crate) fn fetch(&self, id: u64) -> Result<(), String> {
        let mut state = lock(&self.state);
        match state.announced.remove(&id) {
            Some(message) => state.transfers.push_back(Transfer { id, message, written: 0 }),
            // An abort may have taken it away.
            None if id < state.next_id => return Ok(()),
            None => return Err(format!("it asked for message {id}, which was never announced")),
        }
        // Long messages are the writer task's.
        self.take_over(state);
        Ok(())
    }

    // Ends.

    /// Nothing can be sent any more. False if that was so before.
    pub(crate) fn end(&self, error: &Error) -> bool {
        let mut state = lock(&self.state);
        if state.over.is_some() {
            return false;
        }
        state.over = Some(error.clone());
        let ended = state.clear();
        drop(state);
        self.idle.notify_waiters();
        self.work.notify_one();
        for sent in ended {
            sent.complete(Err(error.clone()));
        }
        true
    }

    pub(crate) fn is_over(&self) -> bool {
        lock(&self.state).over.is_some()
    }

    /// Waits until everything queued is written and, if asked for, everything announced as well; or
    /// until nothing can be written any more.
    pub(crate) async fn flushed(&self, announced_too: bool) {
        loop {
            let idle = self.idle.notified();
            {
                let state = lock(&self.state);
                let settled = state.is_flushed() && (!announced_too || state.announced.is_empty());
                if settled || state.over.is_some() {
                    return;
                }
            }
            idle.await;
        }
    }

    /// Ends this direction of the connection.
    pub(crate) fn close(&self) {
        // Fails when the connection is gone already.
        let _ = SockRef::from(self.socket()).shutdown(Shutdown::Write);
    }

    /// Something arrived from the peer.
    pub(crate) fn hear(&self) {
        self.heard_at.store(self.nanoseconds(), Ordering::Relaxed);
    }

    /// When something was last heard from the peer, since the start.
    pub(crate) fn heard_at(&self) -> Duration {
        Duration::from_nanos(self.heard_at.load(Ordering::Relaxed))
    }

    /// When something was last written, since the start.
    pub(crate) fn sent_at(&self) -> Duration {
        Duration::from_nanos(self.sent_at.load(Ordering::Relaxed))
    }

    fn nanoseconds(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    pub(crate) fn socket(&self) -> &tokio::net::TcpStream {
        self.socket.as_ref()
    }

    // Writing.

    /// The writer task: writes what the callers could not. Returns when the connection is over.
    pub(crate) async fn run(&self) -> io::Result<()> {
        loop {
            self.work.notified().await;
            loop {
                match self.continue_writing()? {
                    Written::Everything => break,
                    Written::TurnsUp => tokio::task::yield_now().await,
                    Written::SocketFull => self.socket.writable().await?,
                    Written::Nothing if self.is_over() => return Ok(()),
                    Written::Nothing => break,
                }
            }
        }
    }

    fn continue_writing(&self) -> io::Result<Written> {
        let state = lock(&self.state);
        if !state.taken_over || state.writing || state.over.is_some() {
            return Ok(Written::Nothing);
        }
        self.write_turns(state, TASK_TURNS)
    }

    /// Writes on the caller's thread, unless somebody else does.
    fn write(&self, state: MutexGuard<'_, State>) -> io::Result<()> {
        if state.writing || state.taken_over || state.over.is_some() {
            return Ok(());
        }
        let (sent, heard) = (self.sent_at.load(Ordering::Relaxed), self.heard_at.load(Ordering::Relaxed));
        if sent > heard && Duration::from_nanos(self.nanoseconds().saturating_sub(sent)) < BURST {
            self.take_over(state);
            return Ok(());
        }
        match self.write_turns(state, CALLER_TURNS)? {
            Written::Everything | Written::Nothing => {}
            Written::TurnsUp | Written::SocketFull => self.take_over(lock(&self.state)),
        }
        Ok(())
    }

    fn take_over(&self, mut state: MutexGuard<'_, State>) {
        // Whoever is writing finds the new frames by itself.
        if !state.writing && !state.taken_over && state.over.is_none() && !state.is_flushed() {
            state.taken_over = true;
            drop(state);
            self.work.notify_one();
        }
    }

    fn write_turns<'a>(&'a self, mut state: MutexGuard<'a, State>, turns: usize) -> io::Result<Written> {
        for _ in 0..turns {
            state.fill_batch();
            if state.batch.is_empty() {
                state.taken_over = false;
                drop(state);
                self.idle.notify_waiters();
                return Ok(Written::Everything);
            }
            // The system call happens outside the lock.
            let mut batch = std::mem::take(&mut state.batch);
            state.writing = true;
            drop(state);
            let mut slices = [IoSlice::new(&[]); 2 * MAX_FRAMES];
            let filled = batch.slices(&mut slices);
            let written = self.socket.try_write_vectored(slices.get(..filled).unwrap_or_default());
            if let Ok(written) = &written {
                self.sent_at.store(self.nanoseconds(), Ordering::Relaxed);
                batch.advance(*written, |sent| sent.complete(Ok(())));
            }
            state = lock(&self.state);
            state.writing = false;
            if let Some(error) = state.over.clone() {
                drop(state);
                batch.clear(|sent| sent.complete(Err(error.clone())));
                return Ok(Written::Nothing);
            }
            state.batch = batch;
            match written {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(Written::SocketFull),
                Err(error) => return Err(error),
            }
        }
        Ok(Written::TurnsUp)
    }
}
