//! Rank 0's side of the rendezvous.
//!
//! One thread serves all connections without blocking on any: what does not speak, or speaks
//! nonsense, costs a bounded amount of memory for a bounded time and delays nobody.

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use transport::Rank;

use crate::secret::constant_time_eq;
use crate::wire::{BadHello, Hello, MAX_BLOB, Reply, decode_blob, version_refused};
use crate::{Config, Error, JobToken, Roster, Secret};

/// Pause between two rounds in which nothing happened.
const PAUSE: Duration = Duration::from_millis(1);
/// For how long a connection may take to say hello.
const HELLO_TIME: Duration = Duration::from_secs(5);
/// How many connections beyond the world's own may be about to say hello; the oldest have to go.
const MAX_STRANGERS: usize = 64;
/// For how long rank 0 stays to tell the others why it gives up.
const FAREWELL: Duration = Duration::from_millis(500);
/// How many refused connections are remembered for the error message.
const MAX_NOTES: usize = 4;

pub(crate) struct Server {
    world_size: usize,
    secret: [u8; Secret::MAX],
    start: Instant,
    deadline: Instant,
    /// Connected, but not yet known, in the order of arrival.
    strangers: VecDeque<Stranger>,
    /// By rank. Rank 0's own place stays empty.
    members: Vec<Option<Member>>,
    notes: Vec<String>,
}

struct Stranger {
    stream: TcpStream,
    address: SocketAddr,
    since: Instant,
    hello: Vec<u8>,
}

struct Member {
    stream: TcpStream,
    address: SocketAddr,
    nonce: u64,
    /// When this rank will have waited long enough.
    deadline: Instant,
    /// What it sent since its hello: its address.
    received: Vec<u8>,
}

impl Server {
    pub(crate) fn new(config: &Config, start: Instant, deadline: Instant) -> Self {
        Self {
            world_size: config.world_size,
            secret: Secret::padded(config.secret.as_ref()),
            start,
            deadline,
            strangers: VecDeque::new(),
            members: (0..config.world_size).map(|_| None).collect(),
            notes: Vec::new(),
        }
    }

    /// Waits until every rank has said hello.
    pub(crate) fn assemble(&mut self, listener: &TcpListener) -> Result<(), Error> {
        listener.set_nonblocking(true).map_err(Error::io("preparing the listener"))?;
        loop {
            let heard = self.accept(listener) | self.hear_strangers();
            for (rank, address, reason) in self.hear_members() {
                self.note(format!("rank {rank} at {address} came, then {reason}"));
            }
            let missing = self.missing();
            if missing.is_empty() {
                self.strangers.clear();
                return Ok(());
            }
            if let Some(note) = self.patience_is_over() {
                return Err(self.give_up_on(missing, note));
            }
            if !heard {
                thread::sleep(PAUSE);
            }
        }
    }

    /// Collects the addresses and hands everybody all of them.
    pub(crate) fn exchange(mut self, own: &[u8]) -> Result<Roster, Error> {
        let token = JobToken::random()?;
        let blobs = loop {
            if let Some((rank, address, reason)) = self.hear_members().into_iter().next() {
                return Err(self.fail(format!("rank {rank} at {address} {reason} during the exchange")));
            }
            let blobs = self.blobs(own);
            if blobs.iter().all(Option::is_some) {
                break blobs.into_iter().flatten().collect();
            }
            if let Some(note) = self.patience_is_over() {
                let silent = (0..).zip(&blobs).filter(|(_, blob)| blob.is_none()).map(|(rank, _)| Rank(rank));
                return Err(self.give_up_on(silent.collect(), note));
            }
            thread::sleep(PAUSE);
        };
        let roster = Roster { blobs, token };
        self.distribute(&Reply::Roster(roster.clone()).encode());
        Ok(roster)
    }

    /// Takes in new connections. True if there were any.
    fn accept(&mut self, listener: &TcpListener) -> bool {
        let mut accepted = false;
        while let Ok((stream, address)) = listener.accept() {
            accepted = true;
            if stream.set_nonblocking(true).is_err() {
                continue;
            }
            if self.strangers.len() >= self.world_size.saturating_add(MAX_STRANGERS) {
                self.strangers.pop_front();
            }
            let hello = Vec::with_capacity(Hello::SIZE);
            self.strangers.push_back(Stranger { stream, address, since: Instant::now(), hello });
        }
        accepted
    }

    /// Reads what the new connections have to say. True if one of them finished its hello.
    fn hear_strangers(&mut self) -> bool {
        let mut finished = false;
        for mut stranger in std::mem::take(&mut self.strangers) {
            let open = read_available(&mut stranger.stream, &mut stranger.hello, Hello::SIZE).is_ok();
            if stranger.hello.len() == Hello::SIZE {
                finished = true;
                self.judge(stranger);
            } else if open && stranger.since.elapsed() < HELLO_TIME {
                self.strangers.push_back(stranger);
            }
        }
        finished
    }

    fn judge(&mut self, stranger: Stranger) {
        let Stranger { mut stream, address, hello, .. } = stranger;
        let outcome = match Hello::decode(&hello) {
            Ok(hello) => self.admissible(&hello).map(|()| hello),
            Err(BadHello::Version(version)) => Err(version_refused(version)),
            Err(BadHello::Stranger) => return,
        };
        match outcome {
            Ok(hello) => {
                let deadline = Instant::now() + Duration::from_millis(hello.patience.into());
                let welcomed = stream.write_all(&Reply::Welcome.encode()).is_ok();
                if let Some(place) = self.members.get_mut(hello.rank as usize).filter(|_| welcomed) {
                    *place =
                        Some(Member { stream, address, nonce: hello.nonce, deadline, received: Vec::new() });
                }
            }
            Err(reason) => {
                // A few bytes into an empty socket buffer; if they do not fit, nobody reads them.
                let _ = stream.write_all(&Reply::Refused(reason.clone()).encode());
                self.note(format!("refused {address}: {reason}"));
            }
        }
    }

    fn admissible(&mut self, hello: &Hello) -> Result<(), String> {
        let (rank, size) = (hello.rank, self.world_size);
        if !constant_time_eq(&hello.secret, &self.secret) {
            return Err("its secret is not the one of this job".into());
        }
        if hello.world_size as usize != size {
            return Err(format!(
                "it is rank {rank} of a world of {}, but this world has {size}",
                hello.world_size
            ));
        }
        if rank == 0 {
            return Err("it claims to be rank 0, which is the process that listens here".into());
        }
        let Some(place) = self.members.get_mut(rank as usize) else {
            return Err(format!("there is no rank {rank} in a world of {size}"));
        };
        // The same process may come twice, when its first attempt took too long. Another process may
        // take the place of one that has died meanwhile.
        if let Some(first) = place
            && first.nonce != hello.nonce
            && first.hear().is_ok()
        {
            return Err(format!("rank {rank} is taken already, by the process at {}", first.address));
        }
        Ok(())
    }

    /// Reads what the members have to say; those that left or broke the rules lose their place.
    fn hear_members(&mut self) -> Vec<(Rank, SocketAddr, String)> {
        let mut gone = Vec::new();
        for (rank, place) in (0..).zip(&mut self.members) {
            if let Some(member) = place
                && let Err(reason) = member.hear()
            {
                gone.push((Rank(rank), member.address, reason));
                *place = None;
            }
        }
        gone
    }

    fn blobs(&self, own: &[u8]) -> Vec<Option<Vec<u8>>> {
        let sent = |member: &Member| decode_blob(&member.received).ok().flatten().map(<[u8]>::to_vec);
        let others = self.members.iter().skip(1).map(|place| place.as_ref().and_then(sent));
        std::iter::once(Some(own.to_vec())).chain(others).collect()
    }

    /// Sends the roster. A rank that dies now is the data path's to notice.
    fn distribute(&mut self, roster: &[u8]) {
        let mut open: Vec<(&mut TcpStream, &[u8])> =
            self.members.iter_mut().flatten().map(|member| (&mut member.stream, roster)).collect();
        while !open.is_empty() && Instant::now() < self.deadline {
            open.retain_mut(|(stream, rest)| match stream.write(rest) {
                Ok(written) => {
                    *rest = rest.get(written..).unwrap_or_default();
                    !rest.is_empty()
                }
                Err(error) => is_transient(&error),
            });
            if !open.is_empty() {
                thread::sleep(PAUSE);
            }
        }
    }

    fn missing(&self) -> Vec<Rank> {
        let places = (0..).zip(&self.members).skip(1);
        places.filter(|(_, place)| place.is_none()).map(|(rank, _)| Rank(rank)).collect()
    }

    /// Whether somebody has waited long enough, and what to say about it. Since a world without that
    /// rank cannot come together, all give up at the same moment and for the same reason.
    fn patience_is_over(&self) -> Option<String> {
        let now = Instant::now();
        if now >= self.deadline {
            return Some(String::new());
        }
        let mut waiting = (0..).zip(&self.members).filter_map(|(rank, place)| Some((rank, place.as_ref()?)));
        let (rank, _) = waiting.find(|(_, member): &(u32, _)| now >= member.deadline)?;
        Some(format!("rank {rank} began earlier and waits no longer"))
    }

    fn give_up_on(&mut self, ranks: Vec<Rank>, note: String) -> Error {
        let notes = std::iter::once(note).chain(std::mem::take(&mut self.notes));
        let note = notes.filter(|note| !note.is_empty()).collect::<Vec<_>>().join("; ");
        let elapsed = self.start.elapsed();
        self.farewell(&Reply::Missing { elapsed, ranks: ranks.clone(), note: note.clone() });
        Error::Missing { ranks, world_size: self.world_size, elapsed, note }
    }

    fn fail(&mut self, reason: String) -> Error {
        self.farewell(&Reply::Failed(reason.clone()));
        Error::Failed { reason }
    }

    /// Tells all members, then waits a moment for them to close: closing first, with something of
    /// theirs unread, could destroy the message on its way.
    fn farewell(&mut self, reply: &Reply) {
        let (bytes, until) = (reply.encode(), Instant::now() + FAREWELL);
        for member in self.members.iter_mut().flatten() {
            let _ = member.stream.write_all(&bytes);
            let _ = member.stream.shutdown(Shutdown::Write);
        }
        while self.members.iter().any(Option::is_some) && Instant::now() < until {
            thread::sleep(PAUSE);
            self.hear_members();
        }
        self.members.clear();
    }

    fn note(&mut self, note: String) {
        if self.notes.len() < MAX_NOTES && !self.notes.contains(&note) {
            self.notes.push(note);
        }
    }
}

impl Member {
    /// Reads what has arrived. An error says why the member is none any more.
    fn hear(&mut self) -> Result<(), String> {
        read_available(&mut self.stream, &mut self.received, 4 + MAX_BLOB + 1)
            .map_err(|_| "left".to_owned())?;
        decode_blob(&self.received).map(|_| ())
    }
}

/// Reads until nothing is there or `limit` bytes are. An error means that the connection has ended.
fn read_available(stream: &mut TcpStream, into: &mut Vec<u8>, limit: usize) -> io::Result<()> {
    while into.len() < limit {
        let mut chunk = [0; 512];
        let wanted = chunk.len().min(limit - into.len());
        let Some(wanted) = chunk.get_mut(..wanted) else { break };
        match stream.read(wanted) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(read) => into.extend_from_slice(chunk.get(..read).unwrap_or_default()),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

fn is_transient(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}
