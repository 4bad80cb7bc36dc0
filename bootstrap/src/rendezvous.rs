use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use transport::Rank;

use crate::address::{listen, resolve};
use crate::config::split_host_port;
use crate::secret::fill_random;
use crate::server::Server;
use crate::wire::{Hello, MAX_BLOB, Reply, encode_blob, millis};
use crate::{Config, Error, JobToken, Method, Secret};

/// For how long one attempt to connect may take before the next address is tried.
const CONNECT_TIME: Duration = Duration::from_secs(3);
/// For how long rank 0 may take to answer a hello before the next address is tried.
const WELCOME_TIME: Duration = Duration::from_secs(5);
/// The longest pause between two rounds of attempts.
const MAX_PAUSE: Duration = Duration::from_millis(200);
/// How much longer than its own deadline a rank waits for rank 0 to say who is missing.
const GRACE: Duration = Duration::from_secs(1);
/// Stands for "for ever": deadlines stay representable.
const FOREVER: Duration = Duration::from_secs(10 * 365 * 86_400);

/// A rank that has found the others, before the addresses are exchanged.
///
/// First [`join`](Rendezvous::join), then set up the data path's listener at
/// [`bind_ip`](Rendezvous::bind_ip) (or take the one of [`take_listener`](Rendezvous::take_listener)),
/// then [`exchange`](Rendezvous::exchange) its address for everybody's. The crate's documentation has an
/// example.
///
/// A world of one rank needs no sockets and uses none.
#[derive(Debug)]
pub struct Rendezvous {
    world_size: usize,
    role: Role,
    local_ip: IpAddr,
    bind_ip: IpAddr,
    listed: Option<(TcpListener, String)>,
    start: Instant,
    deadline: Instant,
}

/// What every rank knows after the exchange.
#[derive(Clone, Debug)]
pub struct Roster {
    /// What each rank contributed, by rank.
    pub blobs: Vec<Vec<u8>>,
    /// The credential of this job.
    pub token: JobToken,
}

enum Role {
    Alone,
    Master(Server),
    Member { stream: TcpStream, master: SocketAddr },
}

impl Rendezvous {
    /// Finds the other ranks. On rank 0 it returns when all have come, elsewhere when rank 0 has been
    /// reached; the ranks may start in any order.
    ///
    /// # Errors
    /// After [`Config::timeout`] at the latest (and about a second, for rank 0 to say who is missing):
    /// [`Error::Config`]; [`Error::Resolve`]; [`Error::AddressInUse`] or [`Error::Bind`] when this rank
    /// cannot listen where it has to; [`Error::Unreachable`] when rank 0 is not there;
    /// [`Error::Refused`] when the world's size differs or the rank is taken; [`Error::Missing`].
    pub fn join(config: &Config) -> Result<Self, Error> {
        config.validate()?;
        let start = Instant::now();
        let deadline = start + config.timeout.min(FOREVER);
        if config.world_size == 1 {
            let ip = config.bind.unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST));
            return Self::new(config, Role::Alone, ip, None, start, deadline);
        }
        let (listener, own_entry) = match &config.method {
            Method::Master { host, port } if config.rank == Rank(0) => {
                (Some(listen(&resolve(host, *port, start, deadline)?)?), None)
            }
            Method::Master { .. } => (None, None),
            Method::Listener(listener) => {
                (Some(listener.try_clone().map_err(Error::io("sharing the master's listener"))?), None)
            }
            Method::Peers(peers) => {
                let entry = peers.get(config.rank.index()).map_or("", String::as_str);
                (Some(listen_at_entry(config, entry, start, deadline)?), Some(entry.to_owned()))
            }
        };
        let (role, local_ip) = match (&listener, &config.method) {
            (Some(listener), _) if config.rank == Rank(0) => {
                let address =
                    listener.local_addr().map_err(Error::io("asking the listener for its address"))?;
                check_reachable(config, address)?;
                let mut server = Server::new(config, start, deadline);
                server.assemble(listener)?;
                (Role::Master(server), address.ip())
            }
            (_, Method::Master { host, port }) => reach(config, host, *port, start, deadline)?,
            (_, Method::Peers(peers)) => {
                let master = peers.first().and_then(|entry| split_host_port(entry)).unwrap_or_default();
                reach(config, master.0, master.1, start, deadline)?
            }
            _ => return Err(Error::Config { detail: "only rank 0 can have the master's listener".into() }),
        };
        Self::new(config, role, local_ip, listener.zip(own_entry), start, deadline)
    }

    fn new(
        config: &Config,
        role: Role,
        found: IpAddr,
        listed: Option<(TcpListener, String)>,
        start: Instant,
        deadline: Instant,
    ) -> Result<Self, Error> {
        let bind_ip = config.bind.unwrap_or(found);
        let local_ip = if bind_ip.is_unspecified() { found } else { bind_ip };
        Ok(Self { world_size: config.world_size, role, local_ip, bind_ip, listed, start, deadline })
    }

    /// The address by which the other ranks reach this one: what the data path advertises.
    ///
    /// [`Config::bind`], or the address by which this rank reaches the master.
    #[must_use]
    pub const fn local_ip(&self) -> IpAddr {
        self.local_ip
    }

    /// The address where the data path listens: as [`local_ip`](Self::local_ip), unless
    /// [`Config::bind`] asks for all interfaces.
    #[must_use]
    pub const fn bind_ip(&self) -> IpAddr {
        self.bind_ip
    }

    /// With [`Method::Peers`]: the listener at this rank's own entry, and the entry, which is what the
    /// data path advertises. `None` otherwise, in a world of one, and when it was taken before.
    pub const fn take_listener(&mut self) -> Option<(TcpListener, String)> {
        self.listed.take()
    }

    /// When the world must be complete, the data path's connections included.
    #[must_use]
    pub const fn deadline(&self) -> Instant {
        self.deadline
    }

    /// Gives this rank's address, in whatever form the back end likes, and gets everybody's.
    ///
    /// # Errors
    /// [`Error::Config`] when `blob` exceeds [`MAX_BLOB`] bytes; [`Error::Missing`] on all ranks when
    /// some did not appear; [`Error::Failed`] when one left meanwhile or rank 0 did.
    pub fn exchange(self, blob: &[u8]) -> Result<Roster, Error> {
        if blob.len() > MAX_BLOB {
            let detail = format!("an address of {} bytes exceeds the limit of {MAX_BLOB}", blob.len());
            return Err(Error::Config { detail });
        }
        match self.role {
            Role::Alone => Ok(Roster { blobs: vec![blob.to_vec()], token: JobToken::random()? }),
            Role::Master(server) => server.exchange(blob),
            Role::Member { mut stream, master } => {
                let lost = |error: &io::Error| Error::Failed {
                    reason: format!(
                        "rank 0 at {master} was lost {:.1} s after this rank began: {error}",
                        self.start.elapsed().as_secs_f64()
                    ),
                };
                stream.write_all(&encode_blob(blob)).map_err(|error| lost(&error))?;
                let reply = read_reply(&mut stream, self.deadline + GRACE, self.world_size);
                match reply.map_err(|error| lost(&error))? {
                    Reply::Roster(roster) => Ok(roster),
                    Reply::Missing { elapsed, ranks, note } => {
                        Err(Error::Missing { ranks, world_size: self.world_size, elapsed, note })
                    }
                    Reply::Failed(reason) => Err(Error::Failed { reason }),
                    Reply::Refused(reason) => Err(Error::Refused { address: master, reason }),
                    Reply::Welcome => Err(lost(&invalid("it sent a second welcome"))),
                }
            }
        }
    }
}

impl std::fmt::Debug for Role {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Alone => "Alone",
            Self::Master(_) => "Master",
            Self::Member { .. } => "Member",
        })
    }
}

fn listen_at_entry(
    config: &Config,
    entry: &str,
    start: Instant,
    deadline: Instant,
) -> Result<TcpListener, Error> {
    let (host, port) = split_host_port(entry).unwrap_or_default();
    match config.bind {
        Some(ip) => listen(&[SocketAddr::new(ip, port)]),
        None => listen(&resolve(host, port, start, deadline)?),
    }
}

/// Rank 0 needs an address that others can connect to.
fn check_reachable(config: &Config, address: SocketAddr) -> Result<(), Error> {
    let listed = matches!(config.method, Method::Peers(_));
    if !address.ip().is_unspecified() || listed || config.bind.is_some_and(|ip| !ip.is_unspecified()) {
        return Ok(());
    }
    let detail = format!("the master's address {address} is none that other ranks can connect to");
    Err(Error::Config { detail })
}

/// Connects to rank 0, trying all its addresses in turn until the deadline.
fn reach(
    config: &Config,
    host: &str,
    port: u16,
    start: Instant,
    deadline: Instant,
) -> Result<(Role, IpAddr), Error> {
    let mut nonce = [0; 8];
    fill_random(&mut nonce)?;
    let mut hello = Hello {
        world_size: config.world_size as u32,
        rank: config.rank.0,
        patience: 0,
        nonce: u64::from_le_bytes(nonce),
        secret: Secret::padded(config.secret.as_ref()),
    };
    let mut pause = Duration::from_millis(5);
    let mut last = io::Error::from(io::ErrorKind::TimedOut);
    loop {
        for address in resolve(host, port, start, deadline)? {
            hello.patience = millis(remaining(deadline));
            match knock(address, &hello, deadline, config.world_size) {
                Ok((stream, None)) => {
                    let local = stream.local_addr().map_err(Error::io("asking a socket for its address"))?;
                    return Ok((Role::Member { stream, master: address }, local.ip()));
                }
                Ok((_, Some(reason))) => return Err(Error::Refused { address, reason }),
                Err(error) => last = error,
            }
        }
        if remaining(deadline).is_zero() {
            let address = format!("{host}:{port}");
            return Err(Error::Unreachable { address, elapsed: start.elapsed(), source: last });
        }
        thread::sleep(pause.min(remaining(deadline)));
        pause = (pause * 2).min(MAX_PAUSE);
    }
}

/// One attempt. The reason is rank 0's, when it refuses.
fn knock(
    address: SocketAddr,
    hello: &Hello,
    deadline: Instant,
    world_size: usize,
) -> io::Result<(TcpStream, Option<String>)> {
    let time = remaining(deadline).clamp(Duration::from_millis(1), CONNECT_TIME);
    let mut stream = TcpStream::connect_timeout(&address, time)?;
    if stream.local_addr()? == address {
        // Nobody listens, and the system happened to connect the socket to itself.
        return Err(io::ErrorKind::ConnectionRefused.into());
    }
    stream.set_nodelay(true)?;
    stream.set_write_timeout(Some(WELCOME_TIME))?;
    stream.write_all(&hello.encode())?;
    match read_reply(&mut stream, deadline.min(Instant::now() + WELCOME_TIME), world_size)? {
        Reply::Welcome => Ok((stream, None)),
        Reply::Refused(reason) => Ok((stream, Some(reason))),
        _ => Err(invalid("rank 0 answered a hello with something else than yes or no")),
    }
}

/// Reads one frame. Its buffer grows with what arrives, up to the bound of the frame's kind.
fn read_reply(stream: &mut TcpStream, until: Instant, world_size: usize) -> io::Result<Reply> {
    let mut header = Vec::new();
    read_until(stream, &mut header, Reply::HEADER, until)?;
    let (kind, length) = Reply::decode_header(&header, world_size).map_err(invalid)?;
    let mut body = Vec::new();
    read_until(stream, &mut body, length, until)?;
    Reply::decode_body(kind, &body, world_size).map_err(invalid)
}

fn read_until(stream: &mut TcpStream, into: &mut Vec<u8>, length: usize, until: Instant) -> io::Result<()> {
    let mut chunk = [0; 4096];
    while into.len() < length {
        stream.set_read_timeout(Some(remaining(until).max(Duration::from_millis(1))))?;
        let wanted = chunk.len().min(length - into.len());
        match stream.read(chunk.get_mut(..wanted).unwrap_or_default()) {
            Ok(0) => return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the connection was closed")),
            Ok(read) => into.extend_from_slice(chunk.get(..read).unwrap_or_default()),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                if remaining(until).is_zero() {
                    return Err(io::Error::new(io::ErrorKind::TimedOut, "no answer"));
                }
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

fn remaining(deadline: Instant) -> Duration {
    deadline.saturating_duration_since(Instant::now())
}

fn invalid(detail: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, detail.into())
}
