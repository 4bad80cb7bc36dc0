//! One connection for each pair of ranks: the higher rank connects, the lower one accepts.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use bootstrap::{JobToken, Roster};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, lookup_host};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{sleep, timeout, timeout_at};
use transport::Rank;

use crate::Error;
use crate::options::{Limits, SHORTEST_TIMEOUT};

const MAGIC: [u8; 8] = *b"thinwTCP";
const VERSION: u32 = 1;
/// Pause between attempts to connect.
const PAUSE: Duration = Duration::from_millis(50);
/// For how long a refused connection is tried again: the peer was listening at the rendezvous, so it
/// has died.
const REFUSED: Duration = Duration::from_secs(1);
/// For how long an incoming connection may take to say who it is.
const HELLO_TIME: Duration = Duration::from_secs(5);
/// How many incoming connections beyond the peers' may be about to say it; the oldest have to go.
const MAX_STRANGERS: usize = 64;

/// What this rank knows before it connects.
pub(crate) struct Plan {
    pub(crate) rank: Rank,
    pub(crate) roster: Roster,
    pub(crate) limits: Limits,
    pub(crate) listener: std::net::TcpListener,
    pub(crate) start: Instant,
    pub(crate) deadline: Instant,
}

/// A peer, connected.
pub(crate) struct Peer {
    pub(crate) stream: TcpStream,
    pub(crate) limits: Limits,
}

/// Connects to all other ranks. The place of this rank itself stays empty.
pub(crate) async fn connect(plan: Plan) -> Result<Vec<Option<Peer>>, Error> {
    let Plan { rank, roster, limits, listener, start, deadline } = plan;
    let world_size = roster.blobs.len();
    let hello =
        |to| Hello { world_size: world_size as u32, from: rank.0, to, token: roster.token.clone(), limits };
    let failed = |peer, detail| Error::Peer { peer, elapsed: start.elapsed(), detail };

    listener.set_nonblocking(true).map_err(Error::system("preparing the listener"))?;
    let listener = TcpListener::from_std(listener).map_err(Error::system("preparing the listener"))?;
    let mut outgoing = JoinSet::new();
    for (peer, blob) in (0..rank.0).zip(&roster.blobs) {
        let address = String::from_utf8_lossy(blob).into_owned();
        let hello = hello(peer);
        outgoing.spawn(async move {
            let outcome = timeout_at(deadline.into(), call(&address, &hello)).await;
            (Rank(peer), outcome.unwrap_or_else(|_| Err(format!("{address} does not answer"))))
        });
    }
    let mut peers: Vec<Option<Peer>> = (0..world_size).map(|_| None).collect();
    let mut missing = world_size - 1;
    let mut incoming = JoinSet::new();
    let mut unknown: VecDeque<AbortHandle> = VecDeque::new();
    while missing > 0 {
        let (peer, connected) = tokio::select! {
            Some(Ok((peer, outcome))) = outgoing.join_next() => {
                (peer, outcome.map_err(|detail| failed(peer, detail))?)
            }
            accepted = listener.accept() => {
                let Ok((stream, _)) = accepted else {
                    // Out of descriptors, or a connection that is gone already.
                    sleep(PAUSE).await;
                    continue;
                };
                unknown.retain(|task| !task.is_finished());
                if unknown.len() >= world_size + MAX_STRANGERS && let Some(oldest) = unknown.pop_front() {
                    oldest.abort();
                }
                let hello = hello(rank.0);
                let task = async move { timeout(HELLO_TIME, answer(stream, hello)).await.ok().flatten() };
                unknown.push_back(incoming.spawn(task));
                continue;
            }
            Some(outcome) = incoming.join_next() => match outcome {
                Ok(Some((peer, Ok(connected)))) => (peer, connected),
                Ok(Some((peer, Err(detail)))) => return Err(failed(peer, detail)),
                // A stranger.
                Ok(None) | Err(_) => continue,
            },
            () = tokio::time::sleep_until(deadline.into()) => {
                let absent = |(peer, place): &(u32, &Option<Peer>)| *peer != rank.0 && place.is_none();
                let first = (0..).zip(&peers).find(absent).map_or(rank, |(peer, _)| Rank(peer));
                return Err(failed(first, format!("{missing} of {} peers did not connect in time", world_size - 1)));
            }
        };
        // A rank that is connected already keeps its connection.
        if let Some(place) = peers.get_mut(peer.index()).filter(|place| place.is_none()) {
            *place = Some(connected);
            missing -= 1;
        }
    }
    Ok(peers)
}

/// Connects to a lower rank. An error says what happened.
async fn call(address: &str, hello: &Hello) -> Result<Peer, String> {
    let begun = Instant::now();
    let mut stream = loop {
        match connect_to_any(address).await {
            Ok(stream) => break stream,
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused && begun.elapsed() > REFUSED => {
                return Err(format!("{address}: {error}; it must have died after the rendezvous"));
            }
            // The deadline ends it.
            Err(error) => tracing::debug!(address, %error, "connecting to a peer"),
        }
        sleep(PAUSE).await;
    };
    let lost = |error: io::Error| format!("the connection to {address} failed: {error}");
    stream.set_nodelay(true).map_err(lost)?;
    stream.write_all(&hello.encode()).await.map_err(lost)?;
    let mut answer = [0; Hello::SIZE];
    stream.read_exact(&mut answer).await.map_err(lost)?;
    let answer = Hello::decode(&answer, &hello.token).ok_or(format!("a stranger answers at {address}"))??;
    if (answer.world_size, answer.from, answer.to) != (hello.world_size, hello.to, hello.from) {
        return Err(format!("rank {} of a world of {} answers at {address}", answer.from, answer.world_size));
    }
    Ok(Peer { stream, limits: answer.limits })
}

async fn connect_to_any(address: &str) -> io::Result<TcpStream> {
    let mut last = io::Error::from(io::ErrorKind::NotFound);
    for address in lookup_host(address).await? {
        match connect_to(address).await {
            Ok(stream) => return Ok(stream),
            Err(error) => last = error,
        }
    }
    Err(last)
}

async fn connect_to(address: SocketAddr) -> io::Result<TcpStream> {
    let stream = TcpStream::connect(address).await?;
    if stream.local_addr()? == address {
        // Nobody listens, and the system happened to connect the socket to itself.
        return Err(io::ErrorKind::ConnectionRefused.into());
    }
    Ok(stream)
}

/// Finds out who connects. `None`: a stranger, to be dropped. An error comes from a rank of this job.
async fn answer(mut stream: TcpStream, own: Hello) -> Option<(Rank, Result<Peer, String>)> {
    let mut hello = [0; Hello::SIZE];
    stream.read_exact(&mut hello).await.ok()?;
    let hello = match Hello::decode(&hello, &own.token)? {
        Ok(hello) => hello,
        Err(detail) => return Some((Rank(own.from), Err(detail))),
    };
    let expected = (own.from + 1)..own.world_size;
    if (hello.world_size, hello.to) != (own.world_size, own.from) || !expected.contains(&hello.from) {
        return None;
    }
    stream.set_nodelay(true).ok()?;
    stream.write_all(&Hello { to: hello.from, ..own }.encode()).await.ok()?;
    Some((Rank(hello.from), Ok(Peer { stream, limits: hello.limits })))
}

/// The first bytes in both directions of a connection.
#[derive(Clone, Debug)]
struct Hello {
    world_size: u32,
    from: u32,
    to: u32,
    token: JobToken,
    limits: Limits,
}

impl Hello {
    const SIZE: usize = 72;

    fn encode(&self) -> [u8; Self::SIZE] {
        let Limits { window, max_message, max_announced, failure_timeout } = self.limits;
        let failure_timeout = u64::try_from(failure_timeout.as_millis()).unwrap_or(u64::MAX);
        let fields: [&[u8]; 10] = [
            &MAGIC,
            &VERSION.to_le_bytes(),
            &self.world_size.to_le_bytes(),
            &self.from.to_le_bytes(),
            &self.to.to_le_bytes(),
            self.token.as_bytes(),
            &window.to_le_bytes(),
            &max_message.to_le_bytes(),
            &u64::from(max_announced).to_le_bytes(),
            &failure_timeout.to_le_bytes(),
        ];
        let mut bytes = [0; Self::SIZE];
        for (slot, byte) in bytes.iter_mut().zip(fields.into_iter().flatten()) {
            *slot = *byte;
        }
        bytes
    }

    /// `None` if it is not of this job; an error if it is, but speaks another version.
    fn decode(bytes: &[u8; Self::SIZE], token: &JobToken) -> Option<Result<Self, String>> {
        let mut words = bytes.as_chunks::<4>().0.iter().copied().map(u32::from_le_bytes);
        let mut word = || words.next().unwrap_or_default();
        let _magic = (word(), word());
        let (version, world_size, from, to) = (word(), word(), word(), word());
        let _token = (word(), word(), word(), word());
        let mut long = || u64::from(word()) | u64::from(word()) << 32;
        let (window, max_message, max_announced) = (long(), long(), long());
        // Heartbeats are sent at a quarter of it: never in a tight loop.
        let failure_timeout = Duration::from_millis(long()).max(SHORTEST_TIMEOUT);
        let presented = bytes.get(24..40).unwrap_or_default();
        if !bytes.starts_with(&MAGIC) || !token.matches(presented) {
            return None;
        }
        if version != VERSION {
            return Some(Err(format!("rank {from} speaks version {version} of the protocol, not {VERSION}")));
        }
        let max_announced = u32::try_from(max_announced).unwrap_or(u32::MAX);
        let limits = Limits { window, max_message, max_announced, failure_timeout };
        Some(Ok(Self { world_size, from, to, token: token.clone(), limits }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_hello_survives_the_wire(
            (world_size, from, to, max_announced) in any::<(u32, u32, u32, u32)>(),
            (window, max_message, patience) in (any::<u64>(), any::<u64>(), 10..=u64::MAX),
            token in any::<[u8; 16]>(),
            damage in 0..Hello::SIZE,
        ) {
            let token = JobToken::from_bytes(token);
            let failure_timeout = Duration::from_millis(patience);
            let limits = Limits { window, max_message, max_announced, failure_timeout };
            let mut bytes = Hello { world_size, from, to, token: token.clone(), limits }.encode();
            let back = Hello::decode(&bytes, &token).unwrap().unwrap();
            prop_assert_eq!((back.world_size, back.from, back.to, back.limits), (world_size, from, to, limits));

            bytes[damage] ^= 0x10;
            match Hello::decode(&bytes, &token) {
                None => prop_assert!(damage < 8 || (24..40).contains(&damage)),
                Some(Err(_)) => prop_assert!((8..12).contains(&damage)),
                Some(Ok(_)) => prop_assert!((12..24).contains(&damage) || damage >= 40),
            }
        }

        #[test]
        fn no_hello_is_too_strange(bytes in proptest::collection::vec(any::<u8>(), Hello::SIZE)) {
            let bytes: [u8; Hello::SIZE] = bytes.try_into().unwrap();
            prop_assert!(Hello::decode(&bytes, &JobToken::from_bytes([7; 16])).is_none());
        }
    }
}
