use std::net::{IpAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

use transport::Rank;

use crate::{Error, Secret, environment};

/// How long a rank waits for the others, unless told otherwise.
pub const DEFAULT_TIMEOUT: Duration = Duration::from_secs(30);

/// Who this process is in the world, and how it finds the others.
///
/// ```
/// use bootstrap::{Config, Method};
/// use std::time::Duration;
/// use transport::Rank;
///
/// let mut config = Config::new(Rank(2), 4, Method::Master { host: "node0".into(), port: 29_500 });
/// config.timeout = Duration::from_secs(120);
/// config.validate()?;
/// # Ok::<(), bootstrap::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Config {
    /// This process's rank, from 0 to `world_size - 1`.
    pub rank: Rank,
    /// How many ranks the world has.
    pub world_size: usize,
    /// Where the ranks meet.
    pub method: Method,
    /// For how long this rank waits until the world is complete, from the start of the rendezvous to
    /// the last connection of the back end.
    pub timeout: Duration,
    /// The local address where this rank's data path listens. `None`: the address by which this rank
    /// reaches the master (or its own entry in the peer list). An unspecified address (`0.0.0.0`,
    /// `::`) listens on all interfaces.
    pub bind: Option<IpAddr>,
    /// What keeps processes of other jobs out of the rendezvous. Equal on all ranks.
    pub secret: Option<Secret>,
}

/// Where the ranks meet.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Method {
    /// Rank 0 listens at this address, the others connect to it.
    ///
    /// Rank 0 binds the first address that `host` resolves to and that is local; the others try all
    /// of them in turn. Data connections use free ports.
    Master {
        /// A name, an IPv4 address or an IPv6 address (with or without brackets).
        host: String,
        /// The port, not 0.
        port: u16,
    },
    /// For rank 0 only: as [`Method::Master`], at a listener that is bound already, so that a starter
    /// can let the system choose a port without a race.
    Listener(Arc<TcpListener>),
    /// One `host:port` a rank, in the order of the ranks, the same list on all.
    ///
    /// Every rank listens at its own entry and nowhere else, for the rendezvous as for data: what a
    /// firewall has to let through is this list. [`Config::bind`] replaces the local address (not the
    /// port), for a host whose public name is not an address of its own.
    Peers(Vec<String>),
}

impl Config {
    /// A configuration with the default timeout, no address to bind and no secret.
    #[must_use]
    pub const fn new(rank: Rank, world_size: usize, method: Method) -> Self {
        Self { rank, world_size, method, timeout: DEFAULT_TIMEOUT, bind: None, secret: None }
    }

    /// Reads the variables that torchrun, `thinwire launch` and their like set. `None` when neither
    /// `RANK` nor `WORLD_SIZE` is set: this process was not started as part of a world.
    ///
    /// | variable | meaning |
    /// |---|---|
    /// | `RANK` | this process's rank |
    /// | `WORLD_SIZE` | the number of ranks |
    /// | `MASTER_ADDR` | name or address of rank 0's machine |
    /// | `MASTER_PORT` | the port where rank 0 listens |
    /// | `THINWIRE_MASTER_PORT` | takes precedence over `MASTER_PORT` |
    /// | `THINWIRE_PEERS` | one `host:port` a rank, separated by commas, instead of a master |
    /// | `THINWIRE_LISTENER` | `stdin`: rank 0's standard input is its listening socket (Unix) |
    /// | `THINWIRE_TIMEOUT` | seconds to wait for the others; 30 if not set |
    /// | `THINWIRE_BIND` | local address for the data path |
    /// | `THINWIRE_SECRET` | see [`Config::secret`] |
    ///
    /// Under torchrun the agent itself often listens at `MASTER_PORT`; it says so by
    /// `TORCHELASTIC_USE_AGENT_STORE=True`. Then rank 0 listens at `MASTER_PORT + 1`, unless
    /// `THINWIRE_MASTER_PORT` names another port.
    ///
    /// A starter that lets the system choose the port hands rank 0 the bound listener, so that nobody
    /// can take the port in between:
    ///
    /// ```no_run
    /// # #[cfg(unix)] {
    /// use std::net::TcpListener;
    /// use std::os::fd::OwnedFd;
    /// use std::process::Command;
    ///
    /// let listener = TcpListener::bind(("127.0.0.1", 0))?;
    /// let port = listener.local_addr()?.port();
    /// let mut rank_0 = Command::new("worker");
    /// rank_0.env("RANK", "0").env("WORLD_SIZE", "2");
    /// rank_0.env("THINWIRE_LISTENER", "stdin").stdin(OwnedFd::from(listener));
    /// let mut rank_1 = Command::new("worker");
    /// rank_1.env("RANK", "1").env("WORLD_SIZE", "2");
    /// rank_1.env("MASTER_ADDR", "127.0.0.1").env("MASTER_PORT", port.to_string());
    /// # }
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Variable`] naming the variable that is missing, malformed or inconsistent;
    /// [`Error::Io`] when standard input is not a listening socket though it should be.
    pub fn from_env() -> Result<Option<Self>, Error> {
        environment::read(&|name| std::env::var_os(name))
    }

    /// Checks that the parts fit together. [`Rendezvous::join`](crate::Rendezvous::join) does it too.
    ///
    /// # Errors
    /// [`Error::Config`] saying what is wrong.
    pub fn validate(&self) -> Result<(), Error> {
        let wrong = |detail: String| Err(Error::Config { detail });
        let (rank, world_size) = (self.rank, self.world_size);
        if world_size == 0 || u32::try_from(world_size).is_err() {
            return wrong(format!("a world of {world_size} ranks is not possible"));
        }
        if rank.index() >= world_size {
            return wrong(format!("there is no rank {rank} in a world of {world_size}"));
        }
        match &self.method {
            Method::Master { host, port } => {
                if host.is_empty() || *port == 0 {
                    return wrong(format!("{host:?} port {port} is no address for a master"));
                }
            }
            Method::Listener(_) if rank != Rank(0) => {
                return wrong(format!("rank {rank} has the master's listener, but only rank 0 serves"));
            }
            Method::Listener(_) => {}
            Method::Peers(peers) => {
                if peers.len() != world_size {
                    return wrong(format!("{} peers are listed for a world of {world_size}", peers.len()));
                }
                for (rank, peer) in peers.iter().enumerate() {
                    if split_host_port(peer).is_none() {
                        return wrong(format!("the entry {peer:?} of rank {rank} is not host:port"));
                    }
                }
            }
        }
        Ok(())
    }
}

/// `host:port` or `[address]:port` in its parts, the host without brackets.
pub(crate) fn split_host_port(entry: &str) -> Option<(&str, u16)> {
    let (host, port) = entry.rsplit_once(':')?;
    let port = port.parse().ok().filter(|port| *port != 0)?;
    let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    // An IPv6 address without brackets is ambiguous: its last group would be the port.
    let ambiguous = bare.is_none() && host.contains(':');
    Some((bare.unwrap_or(host), port)).filter(|(host, _)| !host.is_empty() && !ambiguous)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_and_ports_are_told_apart() {
        assert_eq!(split_host_port("node0:5000"), Some(("node0", 5000)));
        assert_eq!(split_host_port("10.0.0.1:1"), Some(("10.0.0.1", 1)));
        assert_eq!(split_host_port("[::1]:5000"), Some(("::1", 5000)));
        for bad in
            ["", ":", "node0", "node0:", "node0:0", "node0:x", "node0:70000", ":5000", "::1", "fe80::1:80"]
        {
            assert_eq!(split_host_port(bad), None, "{bad}");
        }
    }

    #[test]
    fn contradictions_are_refused() {
        let peers = |list: &[&str]| Method::Peers(list.iter().copied().map(Into::into).collect());
        let master = |host: &str, port| Method::Master { host: host.into(), port };
        let refused = |rank, world_size, method| {
            Config::new(Rank(rank), world_size, method).validate().map_err(|e| e.to_string())
        };
        assert_eq!(refused(3, 4, master("node0", 1)), Ok(()));
        assert_eq!(refused(1, 2, peers(&["a:1", "b:1"])), Ok(()));
        for (refused, says) in [
            (refused(4, 4, master("node0", 1)), "no rank 4"),
            (refused(0, 0, master("node0", 1)), "world of 0"),
            (refused(0, 1, master("", 1)), "no address"),
            (refused(0, 1, master("node0", 0)), "port 0"),
            (refused(1, 3, peers(&["a:1", "b:1"])), "2 peers are listed for a world of 3"),
            (refused(1, 2, peers(&["a:1", "b"])), "entry \"b\" of rank 1"),
        ] {
            assert!(refused.is_err_and(|error| error.contains(says)), "{says}");
        }
    }

    #[test]
    fn only_rank_0_serves() {
        let listener = Arc::new(TcpListener::bind(("127.0.0.1", 0)).unwrap());
        assert!(Config::new(Rank(0), 2, Method::Listener(Arc::clone(&listener))).validate().is_ok());
        assert!(Config::new(Rank(1), 2, Method::Listener(listener)).validate().is_err());
    }
}
