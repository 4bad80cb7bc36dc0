//! What a plain TCP stream does between two ranks: what sums over TCP are compared with.

use std::env;
use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream, ToSocketAddrs as _};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, anyhow, bail};
use collectives::Communicator;
use serde::{Deserialize, Serialize};
use transport::{AnyTransport, Rank, block_on};

use crate::ranks;

/// How long the stream is, in time and in bytes: whichever ends first.
const TIME: Duration = Duration::from_millis(500);
const BYTES: usize = 1 << 30;
/// What one write takes.
const BLOCK: usize = 256 << 10;
/// How long either end waits for the other.
const PATIENCE: Duration = Duration::from_secs(10);

/// What rank 1 tells all.
#[derive(Serialize, Deserialize, Default)]
struct Told {
    listens: Option<SocketAddr>,
    bytes_per_second: Option<f64>,
    fault: Option<String>,
}

/// Bytes per second of payload from rank 1 to rank 0 by one [`TcpStream`], with the others still. Every rank calls this
/// alike, and all get the same. `None` without a second rank or an address to meet at.
pub(super) fn goodput(communicator: &Communicator<AnyTransport>) -> anyhow::Result<Option<f64>> {
    let Some(host) = env::var("MASTER_ADDR").ok().filter(|_| communicator.world_size() > 1) else {
        return Ok(None);
    };
    let listener = match communicator.rank() {
        Rank(0) => listen(&host).ok(),
        _ => None,
    };
    let listens = listener.as_ref().and_then(|listener| listener.local_addr().ok());
    let told = ranks::exchange(communicator, &Told { listens, ..Told::default() })?;
    let Some(address) = told.first().and_then(|of_rank_0| of_rank_0.listens) else { return Ok(None) };
    let outcome = match (communicator.rank(), listener) {
        (Rank(0), Some(listener)) => take(&listener).map(Some),
        (Rank(1), _) => give(address).map(|()| None),
        _ => Ok(None),
    };
    let own = match outcome {
        Ok(bytes_per_second) => Told { bytes_per_second, ..Told::default() },
        Err(error) => Told { fault: Some(error.to_string()), ..Told::default() },
    };
    let told = ranks::exchange(communicator, &own)?;
    if let Some(fault) = told.iter().find_map(|rank| rank.fault.as_ref()) {
        bail!("a plain TCP stream from rank 1 to rank 0 failed: {fault}");
    }
    block_on(communicator.barrier())?;
    Ok(told.first().and_then(|of_rank_0| of_rank_0.bytes_per_second))
}

/// At a free port of the address where rank 0 is reached.
fn listen(host: &str) -> io::Result<TcpListener> {
    let addresses: Vec<SocketAddr> = (host, 0).to_socket_addrs()?.collect();
    let listener = TcpListener::bind(&addresses[..])?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

fn give(address: SocketAddr) -> anyhow::Result<()> {
    let mut stream = TcpStream::connect_timeout(&address, PATIENCE).context("connecting")?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let (block, begun, mut sent) = (vec![0; BLOCK], Instant::now(), 0);
    while sent < BYTES && begun.elapsed() < TIME {
        stream.write_all(&block).context("writing")?;
        sent += BLOCK;
    }
    Ok(())
}

/// The rate from the first byte to the last, all of which have come through the wire by then.
fn take(listener: &TcpListener) -> anyhow::Result<f64> {
    let until = Instant::now() + PATIENCE;
    let mut stream = loop {
        match listener.accept() {
            Ok((stream, _)) => break stream,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock && Instant::now() < until => {
                thread::sleep(Duration::from_millis(1));
            }
            Err(error) => return Err(error).context("waiting for the connection"),
        }
    };
    stream.set_nonblocking(false)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let mut block = vec![0; BLOCK];
    let mut begun: Option<Instant> = None;
    let mut received = 0;
    loop {
        let count = stream.read(&mut block).context("reading")?;
        match begun {
            _ if count == 0 => break,
            // What came before is not counted: it is not known how long it took.
            None => begun = Some(Instant::now()),
            Some(_) => received += count,
        }
    }
    let seconds = begun.ok_or_else(|| anyhow!("nothing came"))?.elapsed().as_secs_f64();
    Ok(received as f64 / seconds)
}
