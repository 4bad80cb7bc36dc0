//! A [`Transport`] between the processes of one machine, over Unix-domain sockets.
//!
//! A message stays in its sender's outbox until the receiver wants it, that is, has posted a receive: so
//! no tag blocks another, and nothing arrives that nobody asked for. [`Mailbox`] does the matching.

#![forbid(unsafe_code)]

use std::io::{self, BufReader, ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use bytes::Bytes;
use testkit::{Mailbox, Sleep};
use transport::{Error, Rank, Scope, Tag, Transport};

/// How many bytes of messages that the peer does not want yet an outbox holds.
const WINDOW: usize = 16 << 20;

/// On the wire: the kind, the tag and the body's length, 17 bytes little-endian, then the body.
type Frame = (u8, Tag, Bytes);
const DATA: u8 = 0;
const WANT: u8 = 1;
/// Of a context. The tag is the context and the rank that began it.
const ABORT: u8 = 2;
const ABORT_WORLD: u8 = 3;
const LEAVE: Frame = (4, Tag::new(0, 0), Bytes::new());

/// One rank. Dropping it waits until all that was sent has been handed to the system.
pub struct UnixTransport {
    rank: Rank,
    links: Arc<[Link]>,
    writers: Vec<JoinHandle<io::Result<()>>>,
    begun: Instant,
}

/// What a rank shares with one peer, or with itself.
struct Link {
    inbox: Mailbox,
    outbox: Mailbox,
    /// To the thread that writes. Sending fails once the peer is lost; the mailboxes tell the caller.
    wire: Mutex<Sender<Frame>>,
}

impl UnixTransport {
    /// A rank that has a connection from and one to every rank in their order, itself included.
    pub fn new(rank: Rank, connections: Vec<(UnixStream, UnixStream)>) -> Self {
        let (mut links, mut readers, mut writers) = (Vec::new(), Vec::new(), Vec::new());
        for (from, to) in connections {
            let ((wire, frames), outbox) = (channel(), Mailbox::new(WINDOW));
            links.push(Link { inbox: Mailbox::new(usize::MAX), outbox, wire: wire.into() });
            readers.push(from);
            writers.push(thread::spawn(move || write(to, frames)));
        }
        let links: Arc<[Link]> = links.into();
        for (peer, from) in readers.into_iter().enumerate() {
            let links = Arc::clone(&links);
            thread::spawn(move || read(from, Rank::from_index(peer), &links));
        }
        Self { rank, links, writers, begun: Instant::now() }
    }

    fn link(&self, peer: Rank) -> Result<&Link, Error> {
        let stranger = Error::NoSuchRank { rank: peer, world_size: self.links.len() };
        self.links.get(peer.index()).ok_or(stranger)
    }
}

impl Link {
    fn wire(&self) -> MutexGuard<'_, Sender<Frame>> {
        self.wire.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends what the peer wants, as far as it is here. Under the lock, so that it stays in order.
    fn answer(&self, tag: Tag) {
        let wire = self.wire();
        while let Some(payload) = self.outbox.take(tag) {
            let _ = wire.send((DATA, tag, payload));
        }
    }

    fn abort(&self, scope: Scope, error: &Error) -> bool {
        self.outbox.abort(scope, error);
        self.inbox.abort(scope, error)
    }
}

impl Transport for UnixTransport {
    fn rank(&self) -> Rank {
        self.rank
    }

    fn world_size(&self) -> usize {
        self.links.len()
    }

    fn send(&self, to: Rank, tag: Tag, payload: Bytes) -> impl Future<Output = Result<(), Error>> + use<> {
        let posted = self.link(to).map(|link| (link.outbox.send(tag, payload), link.answer(tag)).0);
        async { posted?.await }
    }

    fn recv(&self, from: Rank, tag: Tag) -> impl Future<Output = Result<Bytes, Error>> + use<> {
        let posted = self.link(from).map(|link| {
            let receiving = link.inbox.recv(tag);
            if link.inbox.ask(tag) {
                let _ = link.wire().send((WANT, tag, Bytes::new()));
            }
            receiving
        });
        async { posted?.await }
    }

    fn abort(&self, scope: Scope, reason: &str) {
        abort(&self.links, self.rank, scope, reason);
    }

    fn now(&self) -> Duration {
        self.begun.elapsed()
    }

    fn sleep(&self, duration: Duration) -> impl Future<Output = ()> + use<> {
        Sleep::new(duration)
    }
}

impl Drop for UnixTransport {
    fn drop(&mut self) {
        for link in self.links.iter() {
            let wire = link.wire();
            let unwanted = link.outbox.drain().into_iter().map(|(tag, payload)| (DATA, tag, payload));
            unwanted.chain([LEAVE]).for_each(|frame| drop(wire.send(frame)));
        }
        self.writers.drain(..).for_each(|writer| drop(writer.join()));
    }
}

/// Ends a scope on this rank and, if that is news here, tells everyone, whoever began it.
fn abort(links: &[Link], by: Rank, scope: Scope, reason: &str) {
    let error = Error::Aborted { by, scope, reason: reason.into() };
    let (kind, context) = if let Scope::Context(it) = scope { (ABORT, it) } else { (ABORT_WORLD, 0) };
    let frame = (kind, Tag::new(context, by.0), Bytes::copy_from_slice(reason.as_bytes()));
    // Locked to the end: an operation that ends with this must not make the rank leave before it is told.
    let wires: Vec<_> = links.iter().map(Link::wire).collect();
    if links.iter().filter(|link| link.abort(scope, &error)).count() > 0 {
        wires.iter().for_each(|wire| drop(wire.send(frame.clone())));
    }
}

/// Writes frames until this rank leaves or the peer is gone.
fn write(mut stream: UnixStream, frames: Receiver<Frame>) -> io::Result<()> {
    for (kind, tag, body) in frames {
        let (tag, length) = (tag.to_u64().to_le_bytes(), (body.len() as u64).to_le_bytes());
        stream.write_all(&[&[kind][..], &tag, &length].concat())?;
        stream.write_all(&body)?;
        if kind == LEAVE.0 {
            break;
        }
    }
    Ok(())
}

/// Reads frames until the peer leaves or dies, and then ends whatever waits for it.
fn read(stream: UnixStream, peer: Rank, links: &[Link]) {
    let (mut stream, link) = (BufReader::new(stream), &links[peer.index()]);
    let lost = loop {
        match next(&mut stream) {
            Ok((DATA, tag, payload)) => drop(link.inbox.send(tag, payload)),
            Ok((WANT, tag, _)) => {
                link.outbox.want(tag);
                link.answer(tag);
            }
            Ok((kind @ (ABORT | ABORT_WORLD), tag, reason)) => {
                let scope = if kind == ABORT { Scope::Context(tag.context) } else { Scope::World };
                abort(links, Rank(tag.number), scope, &String::from_utf8_lossy(&reason));
            }
            Ok(frame) if frame.0 == LEAVE.0 => break Error::peer_lost(peer, "it has left"),
            Ok(_) => break Error::Protocol { peer, detail: "there is no such kind of frame".into() },
            Err(error) => break Error::peer_lost(peer, format!("its connection has ended: {error}")),
        }
    };
    link.inbox.close_receives(&lost);
    link.outbox.close_sends(&lost);
    let _ = link.wire().send(LEAVE);
}

fn next(stream: &mut impl Read) -> io::Result<Frame> {
    let (mut kind, mut tag, mut length) = ([0], [0; 8], [0; 8]);
    stream.read_exact(&mut kind)?;
    stream.read_exact(&mut tag)?;
    stream.read_exact(&mut length)?;
    let (length, mut body) = (u64::from_le_bytes(length), Vec::new());
    // The memory grows with what arrives: a length is believed only as far as it comes true.
    if (stream.take(length).read_to_end(&mut body)? as u64) < length {
        return Err(ErrorKind::UnexpectedEof.into());
    }
    Ok((kind[0], Tag::from_u64(u64::from_le_bytes(tag)), body.into()))
}
