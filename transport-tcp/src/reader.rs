//! The reader task of a connection. It never stops reading, whatever the application does, so that
//! heartbeats, aborts and goodbyes always get through.

use std::net::Shutdown;

use bytes::BufMut;
use matching::{Effects, MESSAGE_COST, lock};
use tokio::io::AsyncReadExt;
use tokio::net::tcp::OwnedReadHalf;
use transport::{Error, Rank, Scope};

use crate::frame::{Decoder, Header, Kind, Step};
use crate::link::Link;
use crate::world::World;

/// How much is read at once, unless it goes straight to its place.
const BUFFER: usize = 64 << 10;
/// From how many missing bytes on a payload is read straight to its place.
const DIRECT: u64 = 16 << 10;

/// Reads until the connection ends, one way or the other.
pub(crate) async fn read(world: &World, link: &Link, mut socket: OwnedReadHalf) {
    let mut buffer = vec![0; BUFFER];
    match frames(world, link, &mut socket, &mut buffer).await {
        Ok(end) => {
            let detail = match end {
                End::Goodbye => "it has left the world",
                End::Closed => "it closed the connection without a goodbye",
            };
            link.end(&Error::peer_lost(link.peer, detail), Shutdown::Write);
            // Until the peer has closed as well: what it still sends would otherwise be answered with a
            // reset, which could destroy our last messages.
            while socket.read(&mut buffer).await.is_ok_and(|read| read > 0) {}
        }
        Err(Failure::System(error)) => link.fail(error),
        Err(Failure::Protocol(detail)) => link.violated(detail),
    }
}

enum End {
    Goodbye,
    Closed,
}

enum Failure {
    System(std::io::Error),
    Protocol(String),
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Self {
        Self::System(error)
    }
}

impl From<String> for Failure {
    fn from(detail: String) -> Self {
        Self::Protocol(detail)
    }
}

async fn frames(
    world: &World,
    link: &Link,
    socket: &mut OwnedReadHalf,
    buffer: &mut [u8],
) -> Result<End, Failure> {
    let mut decoder = Decoder::new();
    // The one whose payload is arriving.
    let mut current = Header::new(Kind::Heartbeat);
    loop {
        let mut input: &[u8] = &[];
        let read = match decoder.direct().filter(|(_, rest)| *rest >= DIRECT) {
            Some((into, rest)) => {
                let rest = usize::try_from(rest).unwrap_or(usize::MAX);
                let read = socket.read_buf(&mut into.limit(rest)).await?;
                decoder.read_directly(read as u64);
                read
            }
            None => {
                let read = socket.read(buffer).await?;
                input = buffer.get(..read).unwrap_or_default();
                read
            }
        };
        if read == 0 {
            return Ok(End::Closed);
        }
        if let Some(outbox) = &link.outbox {
            outbox.hear();
        }
        loop {
            match decoder.step(&mut input).map_err(|violation| violation.to_string())? {
                Step::Starved => break,
                Step::Header(header) => {
                    current = header;
                    if header.kind == Kind::Goodbye {
                        return Ok(End::Goodbye);
                    }
                    begin(link, &mut decoder, &header)?;
                }
                Step::Payload(payload) => finish(world, link, &current, payload)?,
                Step::Skipped => skipped(link, &current),
            }
        }
    }
}

/// Acts on a header, and says where its payload goes.
fn begin(link: &Link, decoder: &mut Decoder, header: &Header) -> Result<(), String> {
    let Some(outbox) = &link.outbox else { return Ok(()) };
    outbox.credit(header.credit)?;
    let into = match header.kind {
        // Bounded by the window, which this rank has granted.
        Kind::Eager => lock(&link.inbox).expect(header.tag, header.length)?,
        Kind::Part => lock(&link.inbox).expect_part(header.tag, header.id, header.length)?,
        Kind::Abort => Some(Vec::new()),
        Kind::Announce => {
            let effects = lock(&link.inbox).announce(header.tag, header.length, header.id)?;
            link.apply(effects);
            return Ok(());
        }
        Kind::Fetch => return outbox.fetch(header.id),
        Kind::Credit | Kind::Heartbeat | Kind::Goodbye => return Ok(()),
    };
    match into {
        Some(into) => decoder.collect(header, into),
        None => decoder.skip(header),
    }
    Ok(())
}

/// Acts on a frame that has arrived whole.
fn finish(world: &World, link: &Link, header: &Header, payload: Vec<u8>) -> Result<(), String> {
    match header.kind {
        Kind::Eager => link.change(|inbox| inbox.deliver(header.tag, payload)),
        Kind::Part => link.change(|inbox| inbox.part_arrived(header.id, header.length, payload)),
        Kind::Abort => {
            let scope = if header.id == 1 { Scope::World } else { Scope::Context(header.tag.context) };
            let by = Rank(header.tag.number);
            world.link(by).map_err(|error| format!("it passed on an abort, but {error}"))?;
            world.abort(by, scope, &String::from_utf8_lossy(&payload));
        }
        kind => return Err(format!("it sent a payload with a frame of kind {kind:?}")),
    }
    Ok(())
}

/// A frame of an aborted context: the room it took in the window is free again.
fn skipped(link: &Link, header: &Header) {
    if header.kind == Kind::Eager {
        link.apply(Effects { credit: header.length + MESSAGE_COST, ..Effects::default() });
    }
}
